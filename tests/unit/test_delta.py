"""What a transition produces: order, ids, counters, checks and failures."""

import json
from collections.abc import Mapping
from uuid import UUID, uuid5

import pytest

from fsm.canonical import canonical_json
from fsm.codes import ErrorCode
from fsm.contract import Contract
from fsm.contract_yaml import load_contract
from fsm.delta import Steps, delta
from fsm.library import Machine, load_machine
from fsm.results import Result

REGISTRATION = load_machine(Machine.REGISTRATION)
MANIFEST = load_machine(Machine.MANIFEST)
CAUSE = UUID("11111111-2222-5333-8444-555555555555")
NODE: Mapping[str, object] = {
    "payload": {"node": "n-1"},
    "node_id": "n-1",
    "deployment_id": "d-1",
    "environment": "prod",
    "network_id": "net-1",
    "consul_service_id": "svc-1",
    "consul_service_name": "svc",
    "consul_tags": ["a"],
    "postgres_record": {"node_id": "n-1"},
    "registration_id": "r-1",
    "correlation_id": "c-1",
    "retry_count": 0,
    "postgres_applied": False,
    "consul_applied": False,
}
REGISTERED = {**NODE, "postgres_applied": True, "consul_applied": True}


def machine(body: str) -> Contract:
    return load_contract(f"state_machine_name: small\ninitial_state: idle\n{body}")


ORDERED = machine("""
actions:
  ring: { action_config: { intent_type: http.request, method: POST, url: "http://ring" } }
  knock:
    action_config: { intent_type: http.request, payload: { url: door }, when: "loud == true" }
states:
  - { state_name: idle, state_type: initial, exit_actions: [ring] }
  - { state_name: done, state_type: terminal, entry_actions: [knock, ring] }
transitions:
  - transition_name: finish
    from_state: idle
    to_state: done
    trigger: FINISH
    conditions:
      - { condition_name: is_polite, expression: "polite == true", required: false }
    actions: [knock]
""")


def test_exit_transition_and_entry_actions_follow_in_this_order() -> None:
    outcome = delta(ORDERED, "idle", "FINISH", {"door": "http://door", "loud": True}, cause=CAUSE)
    assert [each.action for each in outcome.intents] == ["ring", "knock", "knock", "ring"]
    assert outcome.intents[0].payload == {"method": "POST", "url": "http://ring"}
    assert outcome.intents[1].payload == {"url": "http://door"}


def test_an_action_with_a_guard_is_left_out_when_it_does_not_hold() -> None:
    outcome = delta(ORDERED, "idle", "FINISH", {"loud": False})
    assert [each.action for each in outcome.intents] == ["ring", "ring"]


def test_ids_are_uuid5_of_the_cause_and_the_place() -> None:
    outcome = delta(ORDERED, "idle", "FINISH", {}, cause=CAUSE, first_ordinal=4)
    assert [each.id for each in outcome.intents] == [
        uuid5(CAUSE, "small:reducer:4"),
        uuid5(CAUSE, "small:reducer:5"),
    ]


def test_a_condition_that_is_not_required_is_reported_and_blocks_nothing() -> None:
    outcome = delta(ORDERED, "idle", "FINISH", {})
    assert outcome.result is Result.OK
    assert outcome.unmet == ("is_polite",)
    assert any("is_polite" in each.message for each in outcome.logs)
    assert delta(ORDERED, "idle", "FINISH", {"polite": True}).unmet == ()


def test_an_intent_that_cannot_be_built_without_a_fatal_error_moves_nothing() -> None:
    context = {"loud": True}
    outcome = delta(ORDERED, "idle", "FINISH", context)
    assert (outcome.result, outcome.state) == (Result.GUARD_BLOCKED, "idle")
    assert outcome.context is context
    assert outcome.reason is not None
    assert outcome.reason.code is ErrorCode.INTENT_PAYLOAD_ERROR


def test_the_upsert_carries_its_record_and_its_trace() -> None:
    context = {**NODE, "validation_result": "passed"}
    outcome = delta(REGISTRATION, "validating", "VALIDATION_PASSED", context)
    (upsert,) = outcome.intents
    assert upsert.kind == "postgres.upsert_registration"
    assert upsert.payload == {
        "record": {"node_id": "n-1"},
        "consul_service_id": "svc-1",
        "deployment_id": "d-1",
        "environment": "prod",
        "network_id": "net-1",
        "node_id": "n-1",
        "registration_id": "r-1",
        "correlation_id": "c-1",
    }


def test_single_step_walks_through_the_checkpoint() -> None:
    outcome = delta(
        REGISTRATION,
        "registering_postgres",
        "POSTGRES_SUCCEEDED",
        NODE,
        data={"postgres_applied": True},
    )
    assert outcome.path == ("registering_postgres", "postgres_registered", "registering_consul")
    assert [each.name for each in outcome.transitions] == [
        "postgres_success",
        "start_consul_registration",
    ]
    (consul,) = outcome.intents
    assert (consul.kind, consul.payload["tags"]) == ("consul.register", ["a"])
    assert outcome.follow_ups == ()
    assert any("postgres_registered" in each.message for each in outcome.logs)


def test_two_steps_stop_at_the_checkpoint_and_hand_continue_back() -> None:
    first = delta(
        REGISTRATION,
        "registering_postgres",
        "POSTGRES_SUCCEEDED",
        NODE,
        data={"postgres_applied": True},
        cause=CAUSE,
        steps=Steps.TWO,
    )
    assert first.state == "postgres_registered"
    assert first.intents == ()
    (follow_up,) = first.follow_ups
    assert (follow_up.trigger, follow_up.id) == (
        "CONTINUE",
        uuid5(CAUSE, "registration:reducer:0"),
    )
    second = delta(
        REGISTRATION, first.state, "CONTINUE", first.context, cause=follow_up.id, steps=Steps.TWO
    )
    assert second.state == "registering_consul"
    assert [each.kind for each in second.intents] == ["consul.register"]


def test_both_modes_end_in_the_same_state_with_the_same_context() -> None:
    given = {**NODE, "postgres_applied": True}
    once = delta(REGISTRATION, "registering_postgres", "POSTGRES_SUCCEEDED", given)
    first = delta(
        REGISTRATION, "registering_postgres", "POSTGRES_SUCCEEDED", given, steps=Steps.TWO
    )
    second = delta(REGISTRATION, first.state, "CONTINUE", first.context, steps=Steps.TWO)
    assert (once.state, once.context) == (second.state, second.context)


def test_continue_that_fails_on_its_own_is_fatal_too() -> None:
    broken = {**NODE, "postgres_applied": True, "consul_service_id": ""}
    outcome = delta(REGISTRATION, "postgres_registered", "CONTINUE", broken)
    assert outcome.path == ("postgres_registered", "failed")
    assert outcome.reason is not None
    assert outcome.reason.code is ErrorCode.INTERNAL_TRANSITION_ERROR


class Poisoned(dict[str, object]):
    """A record that breaks whoever looks into it."""

    def __len__(self) -> int:
        raise RuntimeError("poison")


def test_any_exception_while_intents_are_built_ends_in_failed() -> None:
    broken = {**NODE, "postgres_applied": True, "consul_service_id": Poisoned()}
    outcome = delta(REGISTRATION, "partial_registered", "RETRY", broken)
    assert (outcome.result, outcome.state) == (Result.OK, "failed")
    assert outcome.reason is not None
    assert outcome.reason.code is ErrorCode.INTENT_EMISSION_FAILED
    assert "poison" not in outcome.reason.message
    internal = [each for each in outcome.metrics if each.name == "registration_internal_error"]
    assert dict(internal[0].labels)["error_type"] == "RuntimeError"
    assert [each.name for each in outcome.transitions] == ["global_error_handler"]


def test_failing_takes_back_what_was_applied() -> None:
    outcome = delta(REGISTRATION, "registered", "FATAL_ERROR", REGISTERED)
    assert [each.kind for each in outcome.intents] == [
        "consul.deregister",
        "postgres.delete_registration",
    ]
    assert delta(REGISTRATION, "validating", "FATAL_ERROR", NODE).intents == ()


def test_abandoning_takes_back_only_what_was_applied() -> None:
    half = {**NODE, "postgres_applied": True}
    assert [each.kind for each in delta(REGISTRATION, "failed", "ABANDON", half).intents] == [
        "postgres.delete_registration"
    ]
    assert delta(REGISTRATION, "failed", "ABANDON", NODE).intents == ()


def test_data_enters_the_context_only_with_the_transition() -> None:
    context = {**NODE}
    blocked = delta(
        REGISTRATION,
        "registering_consul",
        "CONSUL_SUCCEEDED",
        context,
        data={"consul_applied": False},
    )
    assert blocked.context is context
    moved = delta(
        REGISTRATION,
        "registering_consul",
        "CONSUL_SUCCEEDED",
        {**NODE, "postgres_applied": True},
        data={"consul_applied": True},
    )
    assert moved.context["consul_applied"] is True
    assert context == NODE


def test_no_message_can_write_the_retry_counter() -> None:
    outcome = delta(
        REGISTRATION, "failed", "RETRY", {**NODE, "retry_count": 2}, data={"retry_count": 0}
    )
    assert outcome.context["retry_count"] == 3
    uncounted = {key: value for key, value in NODE.items() if key != "retry_count"}
    refused = delta(REGISTRATION, "failed", "RETRY", uncounted, data={"retry_count": 0})
    assert refused.reason is not None
    assert refused.reason.code is ErrorCode.GUARD_FIELD_UNDEFINED


@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize(
    ("state", "trigger", "applied"),
    [
        ("failed", "RETRY", {}),
        ("partial_registered", "RETRY", {"postgres_applied": True}),
        ("partial_registered", "RETRY_POSTGRES", {"consul_applied": True}),
    ],
)
def test_every_retry_counts_within_its_transition(
    state: str, trigger: str, applied: dict[str, object], count: int
) -> None:
    outcome = delta(REGISTRATION, state, trigger, {**NODE, **applied, "retry_count": count})
    assert outcome.result is Result.OK
    assert outcome.context["retry_count"] == count + 1


@pytest.mark.parametrize(
    ("count", "counted"), [(0.0, 1), (1.0, 2), (2.0, 3), (2.5, 3), (-7, 1), (-0.5, 1)]
)
def test_a_count_of_any_number_counts_on_and_stays_whole(count: float, counted: int) -> None:
    outcome = delta(REGISTRATION, "failed", "RETRY", {**NODE, "retry_count": count})
    assert outcome.context["retry_count"] == counted
    assert type(outcome.context["retry_count"]) is int


@pytest.mark.parametrize(
    ("state", "trigger", "extra"),
    [
        ("validating", "VALIDATION_PASSED", {"validation_result": "passed"}),
        ("registering_postgres", "POSTGRES_SUCCEEDED", {"postgres_applied": True}),
        (
            "registering_consul",
            "CONSUL_SUCCEEDED",
            {"postgres_applied": True, "consul_applied": True},
        ),
    ],
)
def test_each_named_success_resets_the_counter(
    state: str, trigger: str, extra: dict[str, object]
) -> None:
    outcome = delta(REGISTRATION, state, trigger, {**NODE, **extra, "retry_count": 2})
    assert outcome.context["retry_count"] == 0


def test_a_failure_leaves_the_counter_alone() -> None:
    given = {**NODE, "postgres_applied": True, "retry_count": 2}
    assert (
        delta(REGISTRATION, "registering_consul", "CONSUL_FAILED", given).context["retry_count"]
        == 2
    )


def test_registering_validates_and_says_what_comes_next() -> None:
    good = delta(REGISTRATION, "unregistered", "REGISTER", NODE)
    assert (good.state, good.context["validation_result"]) == ("validating", "passed")
    assert [each.trigger for each in good.follow_ups] == ["VALIDATION_PASSED"]
    bad = delta(REGISTRATION, "unregistered", "REGISTER", {**NODE, "network_id": None})
    assert (bad.state, bad.context["validation_result"]) == ("validating", "failed")
    assert [each.trigger for each in bad.follow_ups] == ["VALIDATION_FAILED"]
    assert "network_id is missing" in str(bad.context["validation_error"])


def test_a_state_that_gets_wrong_data_is_not_entered() -> None:
    given = {**NODE, "postgres_applied": False, "consul_applied": False}
    outcome = delta(REGISTRATION, "registering_consul", "CONSUL_FAILED", given)
    assert (outcome.result, outcome.state) == (Result.GUARD_BLOCKED, "registering_consul")
    assert outcome.reason is not None
    assert outcome.reason.code is ErrorCode.VALIDATION_ERROR
    assert "postgres_applied != consul_applied" in outcome.reason.message


@pytest.mark.parametrize(
    ("state", "trigger", "extra", "counted"),
    [
        ("registering_postgres", "POSTGRES_SUCCEEDED", {"postgres_applied": True},
         {"registration_postgres_success"}),
        ("registering_postgres", "POSTGRES_FAILED", {}, {"registration_postgres_failure"}),
        ("registering_consul", "CONSUL_SUCCEEDED",
         {"postgres_applied": True, "consul_applied": True}, {"registration_complete"}),
        ("registering_consul", "CONSUL_FAILED", {"postgres_applied": True},
         {"registration_partial", "registration_consul_error_total"}),
        ("partial_registered", "RECOVERY_COMPLETE",
         {"postgres_applied": True, "consul_applied": True}, {"registration_recovery_success"}),
        ("validating", "VALIDATION_FAILED", {"validation_result": "failed"},
         {"registration_validation_error_total"}),
        ("partial_registered", "RETRY_EXHAUSTED", {"retry_count": 3},
         {"registration_retry_exhausted_total"}),
        ("registered", "FATAL_ERROR", {}, {"registration_fatal_error_total"}),
        ("deregistering", "DEREGISTRATION_COMPLETE", {}, {"deregistration_complete"}),
        ("failed", "ABANDON", {}, set()),
        ("unregistered", "REGISTER", {}, set()),
    ],
)  # fmt: skip
def test_each_transition_counts_its_metrics_once(
    state: str, trigger: str, extra: dict[str, object], counted: set[str]
) -> None:
    outcome = delta(REGISTRATION, state, trigger, {**NODE, **extra})
    names = [each.name for each in outcome.metrics]
    assert sorted(names) == sorted(counted)
    assert all(each.value == 1 for each in outcome.metrics)


def test_a_repetition_is_already_applied_only_with_proof() -> None:
    given: dict[str, object] = {}
    assert (
        delta(MANIFEST, "REVIEWED", "submit_for_review", given, last_trigger="submit_for_review")
    ).result is Result.ALREADY_APPLIED
    assert (
        delta(MANIFEST, "REGISTERED", "register", given, last_trigger="register")
    ).result is Result.ALREADY_APPLIED
    assert (
        delta(MANIFEST, "REGISTERED", "register", given, last_trigger="approve")
    ).result is Result.TERMINAL
    assert (
        delta(MANIFEST, "APPROVED", "approve", given, last_trigger="approve")
    ).result is Result.INVALID_STATE


PRIORITY = machine("""
states:
  - { state_name: idle, state_type: initial }
  - { state_name: large, state_type: terminal }
  - { state_name: small, state_type: terminal }
  - { state_name: any, state_type: terminal }
transitions:
  - transition_name: fallback
    from_state: "*"
    to_state: any
    trigger: GO
    priority: 99
  - transition_name: go_small
    from_state: idle
    to_state: small
    trigger: GO
    priority: 5
    conditions: [{ condition_name: has_size, expression: "size exists true" }]
  - transition_name: go_large
    from_state: idle
    to_state: large
    trigger: GO
    priority: 10
    conditions: [{ condition_name: is_large, expression: "size > 100" }]
""")


@pytest.mark.parametrize(
    ("context", "target"), [({"size": 500}, "large"), ({"size": 5}, "small"), ({}, "any")]
)
def test_the_highest_priority_that_may_fire_wins_and_wildcards_come_last(
    context: dict[str, object], target: str
) -> None:
    assert delta(PRIORITY, "idle", "GO", context).state == target


def test_a_wildcard_never_leaves_a_terminal_state() -> None:
    assert delta(PRIORITY, "any", "GO", {}).result is Result.TERMINAL


def test_a_reason_never_shows_the_inside_of_a_structure() -> None:
    outcome = delta(
        REGISTRATION, "partial_registered", "RETRY", {**NODE, "postgres_applied": {"secret": "x"}}
    )
    assert outcome.reason is not None
    assert "secret" not in outcome.reason.message


def test_an_outcome_has_one_spelling() -> None:
    outcome = delta(REGISTRATION, "registered", "DEREGISTER", REGISTERED, cause=CAUSE)
    again = delta(REGISTRATION, "registered", "DEREGISTER", dict(REGISTERED), cause=CAUSE)
    assert canonical_json(outcome) == canonical_json(again)
    assert json.loads(canonical_json(outcome))["state"] == "deregistering"


HALFWAY = machine("""
actions:
  ring: { action_config: { intent_type: http.request, url: "http://ring" } }
  count: { action_config: { intent_type: log_metric, metric: rings } }
  check: { action_type: validate, action_config: { passed: GOOD, failed: BAD } }
  knock: { action_config: { intent_type: http.request, payload: { url: door } } }
states:
  - { state_name: idle, state_type: initial, exit_actions: [ring, count, log_leaving] }
  - { state_name: busy, state_type: operational, entry_actions: [check, knock] }
  - { state_name: lost, state_type: error, is_terminal: true }
transitions:
  - { transition_name: go, from_state: idle, to_state: busy, trigger: GO }
  - { transition_name: good, from_state: busy, to_state: lost, trigger: GOOD }
  - { transition_name: bad, from_state: busy, to_state: lost, trigger: BAD }
  - { transition_name: fatal, from_state: "*", to_state: lost, trigger: FATAL_ERROR }
""")


def test_a_hop_that_fails_half_way_leaves_nothing_behind() -> None:
    outcome = delta(HALFWAY, "idle", "GO", {})
    assert outcome.path == ("idle", "lost")
    assert outcome.follow_ups == ()
    assert [each.action for each in outcome.intents] == ["ring"]
    assert [each.name for each in outcome.metrics] == ["registration_internal_error", "rings"]
    assert [each.message for each in outcome.logs].count("Leaving") == 1
    assert [each.trigger for each in delta(HALFWAY, "idle", "GO", {"door": "x"}).follow_ups] == [
        "GOOD"
    ]


@pytest.mark.parametrize(
    ("extra", "level"),
    [
        ({"retry_count": 3}, "WARNING"),
        ({"postgres_applied": False}, "DEBUG"),
        ({"retry_count": "two"}, "ERROR"),
    ],
)
def test_a_refusal_is_as_loud_as_it_is_grave(extra: dict[str, object], level: str) -> None:
    context = {**NODE, "postgres_applied": True, **extra}
    (log,) = delta(REGISTRATION, "partial_registered", "RETRY", context).logs
    assert log.level == level


CHECKPOINTS = machine("""
states:
  - { state_name: idle, state_type: initial }
  - { state_name: half, state_type: snapshot, entry_actions: [check] }
  - { state_name: done, state_type: terminal, entry_actions: [knock] }
  - { state_name: lost, state_type: error, is_terminal: true }
actions:
  check: { action_type: validate, action_config: { passed: GOOD, failed: GOOD } }
  knock: { action_config: { intent_type: http.request, payload: { url: door } } }
transitions:
  - { transition_name: go, from_state: idle, to_state: half, trigger: GO }
  - { transition_name: on, from_state: half, to_state: done, trigger: CONTINUE }
  - { transition_name: good, from_state: half, to_state: done, trigger: GOOD }
  - { transition_name: fatal, from_state: "*", to_state: lost, trigger: FATAL_ERROR }
""")


def test_a_machine_that_failed_pulls_nothing_more_by_itself() -> None:
    outcome = delta(CHECKPOINTS, "idle", "GO", {})
    assert outcome.path == ("idle", "half", "lost")
    assert outcome.follow_ups == ()
