"""Promise 9: no node stays stuck, whatever the two machines of a node do to each other."""

import dataclasses
from collections.abc import Mapping

import pytest

from fsm.composition import Counterexample, find_stuck, reachable_combinations
from fsm.contract import Contract
from fsm.library import Machine, load_machine
from fsm.roll_call import roll_call

REGISTRATION = load_machine(Machine.REGISTRATION)
HANDSHAKE = load_machine(Machine.HANDSHAKE)


def without_transition(contract: Contract, name: str) -> Contract:
    kept = tuple(each for each in contract.transitions if each.name != name)
    assert len(kept) == len(contract.transitions) - 1
    return dataclasses.replace(contract, transitions=kept)


def without_timeout(contract: Contract, name: str) -> Contract:
    states = tuple(
        dataclasses.replace(each, timeout=None) if each.name == name else each
        for each in contract.states
    )
    return dataclasses.replace(contract, states=states)


def stuck_in(found: Counterexample | None) -> Mapping[str, str]:
    assert found is not None, "the check does not see what it should"
    return dict(found.stuck)


def test_promise_9_no_node_stays_stuck() -> None:
    assert find_stuck(roll_call(REGISTRATION, HANDSHAKE)) is None


def test_promise_9_holds_for_a_node_that_cannot_be_validated() -> None:
    nameless = roll_call(REGISTRATION, HANDSHAKE, node={"payload": "p", "node_id": "n"})
    assert find_stuck(nameless) is None
    assert ("failed", "accepted") in reachable_combinations(nameless)
    assert ("registered", "active") not in reachable_combinations(nameless)


def test_the_check_sees_what_it_is_about() -> None:
    combined = reachable_combinations(roll_call(REGISTRATION, HANDSHAKE))
    assert {
        ("registered", "active"),
        ("registered", "awaiting_ack"),
        ("partial_registered", "accepted"),
        ("registering_consul", "ack_received"),
        ("registering_consul", "departed"),
        ("deregistering", "ack_timed_out"),
        ("deregistering", "liveness_expired"),
        ("deregistered", "departed"),
    } <= combined
    assert ("registered", "departed") not in combined
    assert ("failed", "departed") not in combined
    assert ("partial_registered", "departed") not in combined


def test_without_abandon_a_failed_node_is_stuck() -> None:
    found = find_stuck(
        roll_call(without_transition(REGISTRATION, "abandon_registration"), HANDSHAKE)
    )
    assert stuck_in(found)["registration"] == "failed"


def test_without_its_timeout_a_deregistration_is_stuck() -> None:
    found = find_stuck(roll_call(without_timeout(REGISTRATION, "deregistering"), HANDSHAKE))
    assert stuck_in(found)["registration"] == "deregistering"


def test_without_a_way_out_a_handshake_outlives_its_registration() -> None:
    deaf = without_timeout(without_transition(HANDSHAKE, "depart"), "awaiting_ack")
    found = find_stuck(roll_call(REGISTRATION, deaf))
    assert stuck_in(found)["handshake"] not in {"active", "departed"}


@pytest.mark.parametrize("state", ["registering_postgres", "registering_consul"])
def test_without_a_timeout_an_unanswered_effect_holds_a_node_for_ever(state: str) -> None:
    found = find_stuck(roll_call(without_timeout(REGISTRATION, state), HANDSHAKE))
    assert stuck_in(found)["registration"] == state


def test_a_counterexample_tells_the_way_step_by_step() -> None:
    found = find_stuck(
        roll_call(without_transition(REGISTRATION, "abandon_registration"), HANDSHAKE)
    )
    assert found is not None
    assert found.steps[-1].states == found.stuck
    lines = str(found).splitlines()
    assert len(lines) == len(found.steps) + 1
    assert lines[-1].startswith("stuck: registration failed")
