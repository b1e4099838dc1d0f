"""What the registration machine asks, says, counts and emits, row by row, written down by hand."""

import pytest

from fsm.contract import CountMetric, EmitIntent, RetryCounter, State, Transition, WriteLog
from fsm.library import Machine, load_machine

REGISTRATION = load_machine(Machine.REGISTRATION)
SERVICE = ("consul_service_id", "consul_service_name")
APPLIED = ("postgres_applied", "consul_applied")
NAMED = ("consul_service_id.length >= 1", "consul_service_name.length >= 1")
COUNT_VALID = ("retry_count_valid", "retry_count < 3")

# transition: its conditions, then what it says (level, message) or counts (metric).
TRANSITIONS: dict[str, tuple[list[tuple[str, str]], tuple[str, ...]]] = {
    "start_registration": (
        [("has_registration_payload", "payload exists true")],
        ("log_registration_initiated", "INFO", "Registration workflow initiated"),
    ),
    "validation_success": (
        [("payload_valid", "validation_result == passed")],
        ("log_validation_passed", "INFO", "Payload validation passed"),
    ),
    "validation_failure": (
        [("payload_invalid", "validation_result == failed")],
        ("log_validation_failed", "ERROR", "Payload validation failed"),
    ),
    "postgres_success": (
        [("postgres_applied", "postgres_applied == true")],
        ("record_postgres_success", "registration_postgres_success"),
    ),
    "postgres_failure": (
        [("postgres_error", "postgres_applied == false")],
        ("record_postgres_failure", "registration_postgres_failure"),
    ),
    "start_consul_registration": ([], ("log_consul_start", "INFO", "Starting Consul registration")),
    "consul_success": (
        [("consul_applied", "consul_applied == true")],
        ("record_registration_complete", "registration_complete"),
    ),
    "consul_failure": (
        [("consul_error", "consul_applied == false")],
        ("record_partial_registration", "registration_partial"),
    ),
    "retry_consul": (
        [("consul_failed_postgres_ok", "postgres_applied == true"), COUNT_VALID],
        ("increment_retry_count", "INFO", "Retrying Consul registration"),
    ),
    "retry_postgres": (
        [("postgres_failed_consul_ok", "consul_applied == true"), COUNT_VALID],
        ("increment_retry_count", "INFO", "Retrying PostgreSQL registration"),
    ),
    "partial_recovery_success": (
        [
            ("both_applied", "postgres_applied == true"),
            ("consul_now_applied", "consul_applied == true"),
        ],
        ("record_recovery_success", "registration_recovery_success"),
    ),
    "initiate_deregistration": (
        [],
        ("log_deregistration_start", "INFO", "Starting graceful deregistration"),
    ),
    "deregistration_complete": ([], ("record_deregistration_complete", "deregistration_complete")),
    "retry_from_failed": (
        [COUNT_VALID],
        ("log_retry_attempt", "INFO", "Retrying registration from failed state"),
    ),
    "abandon_registration": (
        [],
        ("log_abandonment", "WARNING", "Registration abandoned after failures"),
    ),
    "global_error_handler": (
        [],
        ("log_fatal_error", "CRITICAL", "Fatal error during registration workflow"),
    ),
    "retry_exhausted": (
        [("retry_limit_reached", "retry_count >= 3")],
        ("log_retry_exhausted", "ERROR", "Retry limit exhausted in partial_registered state"),
    ),
}
COMPENSATED = {"abandon_registration", "global_error_handler"}

# state: entry actions, exit actions, required data, optional data, rules.
STATES: dict[str, tuple[tuple[str, ...], ...]] = {
    "unregistered": ((), ("log_registration_start",), (), ("node_id", "deployment_id"), ()),
    "validating": (
        ("validate_payload",),
        (),
        ("node_id", "deployment_id", "environment", "network_id", *SERVICE, "postgres_record"),
        ("consul_tags", "consul_health_check"),
        ("node_id != null", "deployment_id != null", *NAMED),
    ),
    "registering_postgres": (
        ("emit_postgres_upsert_intent",),
        (),
        ("postgres_record",),
        (),
        ("postgres_record != null",),
    ),
    "postgres_registered": (
        ("log_postgres_success",),
        (),
        ("postgres_applied",),
        (),
        ("postgres_applied == true",),
    ),
    "registering_consul": (
        ("emit_consul_register_intent",),
        (),
        SERVICE,
        ("consul_tags", "consul_health_check"),
        NAMED,
    ),
    "registered": (
        ("log_registration_complete", "emit_registration_success_metric"),
        (),
        APPLIED,
        (),
        ("postgres_applied == true", "consul_applied == true"),
    ),
    "partial_registered": (
        ("log_partial_failure", "emit_partial_registration_metric"),
        (),
        APPLIED,
        ("postgres_error", "consul_error"),
        ("postgres_applied != consul_applied",),
    ),
    "deregistering": (
        ("emit_consul_deregister_intent", "emit_postgres_deregister_intent"),
        (),
        ("node_id", "consul_service_id"),
        (),
        (),
    ),
    "deregistered": (
        ("log_deregistration_complete", "emit_deregistration_metric"),
        (),
        (),
        (),
        (),
    ),
    "failed": (
        ("log_failure", "emit_failure_metric"),
        (),
        (),
        ("postgres_error", "consul_error", "validation_error"),
        (),
    ),
}

TRACED = {"node_id", "registration_id", "correlation_id", "generation"}
# What an effect gets to read: its kind, what it cannot do without, what it may get besides.
INTENTS = {
    "emit_postgres_upsert_intent": (
        "postgres.upsert_registration",
        {"record"},
        {"deployment_id", "environment", "network_id", "consul_service_id"},
    ),
    "emit_consul_register_intent": (
        "consul.register",
        {"service_id", "service_name"},
        {"tags", "health_check", "address", "port", "environment", "deployment_id", "network_id"},
    ),
    "emit_consul_deregister_intent": ("consul.deregister", {"service_id"}, set()),
    "emit_postgres_deregister_intent": ("postgres.delete_registration", {"node_id"}, set()),
}


@pytest.mark.parametrize("transition", REGISTRATION.transitions, ids=lambda each: each.name)
def test_a_transition_asks_and_says_what_is_written(transition: Transition) -> None:
    conditions, (name, *said) = TRANSITIONS[transition.name]
    found = [(each.name, str(each.guard)) for each in transition.conditions]
    assert found == conditions
    assert all(each.required for each in transition.conditions)
    first, *more = transition.actions
    assert first.name == name
    match first:
        case WriteLog():
            assert [first.level, first.message] == said
        case CountMetric():
            assert [first.metric] == said
            assert first.value == 1
        case _:
            pytest.fail("the first action is neither a line nor a count")
    compensation = ["compensate_consul", "compensate_postgres"]
    assert [each.name for each in more] == (compensation if transition.name in COMPENSATED else [])


@pytest.mark.parametrize("state", REGISTRATION.states, ids=lambda each: each.name)
def test_a_state_does_and_asks_what_is_written(state: State) -> None:
    assert STATES[state.name] == (
        state.entry_actions,
        state.exit_actions,
        state.required_data,
        state.optional_data,
        tuple(str(rule) for rule in state.validation_rules),
    )


def test_each_intent_carries_what_its_effect_needs_and_how_to_trace_it() -> None:
    found = {
        action.name: action
        for state in REGISTRATION.states
        for action in state.entry
        if isinstance(action, EmitIntent)
    }
    assert found.keys() == INTENTS.keys()
    for name, (kind, needed, besides) in INTENTS.items():
        action = found[name]
        assert action.intent_kind == kind
        assert {key for key, _ in action.payload} == needed
        optional = {key for key, _ in action.optional_payload}
        assert optional == besides | TRACED - needed


def test_the_retry_counter_is_the_specified_one() -> None:
    assert REGISTRATION.retry_counter == RetryCounter(
        field="retry_count",
        increment_on=("RETRY", "RETRY_POSTGRES"),
        reset_on=("POSTGRES_SUCCEEDED", "CONSUL_SUCCEEDED", "VALIDATION_PASSED"),
        max_value=3,
    )


def test_the_tables_leave_nothing_out() -> None:
    assert TRANSITIONS.keys() == {each.name for each in REGISTRATION.transitions}
    assert STATES.keys() == {each.name for each in REGISTRATION.states}
    assert (len(STATES), len(TRANSITIONS)) == (10, 17)
    assert REGISTRATION.strict
