"""Manifests: what each event does in each state, what it needs, and what was done already."""

import pytest

from fsm.library import load_machine
from fsm.manifests import (
    LastTransition,
    ManifestEvent,
    ManifestRequest,
    ManifestState,
    already_applied,
    can_transition,
    decide,
)
from fsm.results import Result

DRAFT, REVIEWED, APPROVED = ManifestState.DRAFT, ManifestState.REVIEWED, ManifestState.APPROVED
REGISTERED, REJECTED = ManifestState.REGISTERED, ManifestState.REJECTED
SUBMIT, APPROVE = ManifestEvent.SUBMIT_FOR_REVIEW, ManifestEvent.APPROVE
REJECT, REGISTER = ManifestEvent.REJECT, ManifestEvent.REGISTER
REVERT = ManifestEvent.REVERT_TO_DRAFT

ALLOWED = {
    (DRAFT, SUBMIT): REVIEWED,
    (REVIEWED, APPROVE): APPROVED,
    (REVIEWED, REJECT): REJECTED,
    (REVIEWED, REVERT): DRAFT,
    (APPROVED, REGISTER): REGISTERED,
    (APPROVED, REJECT): REJECTED,
    (APPROVED, REVERT): DRAFT,
    (REJECTED, REVERT): DRAFT,
}

SERVICE = {"urn": "urn:protocol:billing:1.0.0", "owner": "payments"}


def complete(event: ManifestEvent) -> ManifestRequest:
    """A request that lacks nothing."""
    return ManifestRequest(event, manifest=SERVICE, reviewer="ada", notes="fine", reason="stale")


def arrived_by(
    event: ManifestEvent, source: ManifestState, target: ManifestState
) -> LastTransition:
    return LastTransition(event=event, from_state=source, to_state=target)


@pytest.mark.parametrize("state", ManifestState)
@pytest.mark.parametrize("event", ManifestEvent)
def test_every_event_in_every_state(state: ManifestState, event: ManifestEvent) -> None:
    decision = decide(state, complete(event), last=None)
    target = ALLOWED.get((state, event))
    assert can_transition(state, event) is (target is not None)
    if target is not None:
        assert (decision.result, decision.state, decision.changed) == (Result.OK, target, True)
        assert decision.reason == ""
    else:
        refused = Result.TERMINAL if state is REGISTERED else Result.INVALID_STATE
        assert (decision.result, decision.state, decision.changed) == (refused, state, False)
        assert decision.reason == f"Event '{event}' not allowed in state '{state}'"
    assert not decision.idempotent


@pytest.mark.parametrize(
    ("state", "request_", "unmet"),
    [
        (DRAFT, ManifestRequest(SUBMIT), ["manifest", "urn"]),
        (DRAFT, ManifestRequest(SUBMIT, manifest={"owner": "payments"}), ["urn"]),
        (DRAFT, ManifestRequest(SUBMIT, manifest={"urn": "  "}), ["urn"]),
        (DRAFT, ManifestRequest(SUBMIT, manifest={"urn": 7}), ["urn"]),
        (REVIEWED, ManifestRequest(APPROVE), ["reviewer", "notes"]),
        (REVIEWED, ManifestRequest(APPROVE, reviewer="ada"), ["notes"]),
        (REVIEWED, ManifestRequest(APPROVE, notes="fine"), ["reviewer"]),
        (REVIEWED, ManifestRequest(APPROVE, reviewer=" ", notes="\n"), ["reviewer", "notes"]),
        (REVIEWED, ManifestRequest(REJECT), ["reason"]),
        (APPROVED, ManifestRequest(REJECT, reason=""), ["reason"]),
        (APPROVED, ManifestRequest(REGISTER), ["manifest", "urn"]),
        (APPROVED, ManifestRequest(REGISTER, manifest={}), ["urn"]),
    ],
)
def test_what_an_event_needs(
    state: ManifestState, request_: ManifestRequest, unmet: list[str]
) -> None:
    decision = decide(state, request_, last=None)
    assert (decision.result, decision.state) == (Result.GUARD_BLOCKED, state)
    assert not decision.changed
    assert list(decision.unmet) == unmet
    for each in unmet:
        assert each in decision.reason


def test_a_conflicting_urn_is_not_registered() -> None:
    request = ManifestRequest(REGISTER, manifest=SERVICE, conflicting_urn="m-7")
    decision = decide(APPROVED, request, last=None)
    assert (decision.result, decision.state) == (Result.GUARD_BLOCKED, APPROVED)
    assert "conflicting_urn" in decision.reason
    assert decide(DRAFT, ManifestRequest(SUBMIT, manifest=SERVICE, conflicting_urn="m-7")).changed


@pytest.mark.parametrize(
    ("state", "event", "last", "expected"),
    [
        (REVIEWED, SUBMIT, arrived_by(SUBMIT, DRAFT, REVIEWED), True),
        (REGISTERED, REGISTER, arrived_by(REGISTER, APPROVED, REGISTERED), True),
        (REVIEWED, SUBMIT, None, False),
        (DRAFT, SUBMIT, arrived_by(REVERT, REVIEWED, DRAFT), False),
        (APPROVED, SUBMIT, arrived_by(APPROVE, REVIEWED, APPROVED), False),
        (REVIEWED, SUBMIT, arrived_by(APPROVE, REVIEWED, APPROVED), False),
        (APPROVED, APPROVE, arrived_by(APPROVE, REVIEWED, APPROVED), False),
        (REJECTED, REJECT, arrived_by(REJECT, REVIEWED, REJECTED), False),
        (DRAFT, REVERT, arrived_by(REVERT, REVIEWED, DRAFT), False),
    ],
)
def test_already_applied(
    state: ManifestState, event: ManifestEvent, last: LastTransition | None, expected: bool
) -> None:
    assert already_applied(state, event, last) is expected
    decision = decide(state, complete(event), last=last)
    assert (decision.result is Result.ALREADY_APPLIED) is expected
    assert decision.idempotent is expected
    if expected:
        assert (decision.state, decision.changed) == (state, False)


def test_already_applied_asks_for_nothing_again() -> None:
    last = arrived_by(SUBMIT, DRAFT, REVIEWED)
    assert decide(REVIEWED, ManifestRequest(SUBMIT), last=last).result is Result.ALREADY_APPLIED


def test_five_submits_step_once() -> None:
    """Whoever comes second reads the winner's state and is told that it is done."""
    state, last, steps = DRAFT, None, []
    for _ in range(5):
        decision = decide(state, complete(SUBMIT), last=last)
        steps.append(decision.changed)
        if decision.changed:
            state, last = decision.state, arrived_by(SUBMIT, state, decision.state)
    assert steps == [True, False, False, False, False]


def test_every_state_of_the_contract_has_a_name() -> None:
    assert {state.name for state in load_machine("manifest").states} == set(ManifestState)


def test_notes_and_reasons_may_be_as_long_as_people_write_them() -> None:
    long_notes = "\n" * 10_000 + "fine. " * 10_000
    approval = ManifestRequest(APPROVE, reviewer="ada", notes=long_notes)
    assert decide(REVIEWED, approval).result is Result.OK
    assert decide(REVIEWED, ManifestRequest(REJECT, reason=long_notes)).result is Result.OK
    blank = ManifestRequest(APPROVE, reviewer="ada", notes=" \n" * 10_000)
    assert decide(REVIEWED, blank).unmet == ("notes",)
