"""Every state and every trigger of every machine, against tables written down by hand."""

import dataclasses

import pytest

from fsm.contract import Contract
from fsm.delta import delta
from fsm.library import Machine, load_library
from fsm.results import Result

LIBRARY = load_library()
Context = dict[str, object]


@dataclasses.dataclass(frozen=True)
class Table:
    """A machine as its specification draws it."""

    states: tuple[str, ...]
    triggers: tuple[str, ...]
    terminal: frozenset[str]
    allowed: dict[tuple[str, str], tuple[str, str]]
    repeated: frozenset[tuple[str, str]]


NODE: Context = {
    "payload": {"node": "n-1"},
    "node_id": "n-1",
    "deployment_id": "d-1",
    "environment": "prod",
    "network_id": "net-1",
    "consul_service_id": "svc-1",
    "consul_service_name": "svc",
    "postgres_record": {"node_id": "n-1"},
    "retry_count": 0,
    "postgres_applied": False,
    "consul_applied": False,
}

REGISTRATION = Table(
    states=(
        "unregistered",
        "validating",
        "registering_postgres",
        "postgres_registered",
        "registering_consul",
        "registered",
        "partial_registered",
        "deregistering",
        "deregistered",
        "failed",
    ),
    triggers=(
        "REGISTER",
        "VALIDATION_PASSED",
        "VALIDATION_FAILED",
        "POSTGRES_SUCCEEDED",
        "POSTGRES_FAILED",
        "CONTINUE",
        "CONSUL_SUCCEEDED",
        "CONSUL_FAILED",
        "RETRY",
        "RETRY_POSTGRES",
        "RECOVERY_COMPLETE",
        "DEREGISTER",
        "DEREGISTRATION_COMPLETE",
        "ABANDON",
        "FATAL_ERROR",
        "RETRY_EXHAUSTED",
    ),
    terminal=frozenset({"deregistered"}),
    allowed={
        ("unregistered", "REGISTER"): ("validating", "start_registration"),
        ("validating", "VALIDATION_PASSED"): ("registering_postgres", "validation_success"),
        ("validating", "VALIDATION_FAILED"): ("failed", "validation_failure"),
        ("registering_postgres", "POSTGRES_SUCCEEDED"): ("registering_consul", "postgres_success"),
        ("registering_postgres", "POSTGRES_FAILED"): ("failed", "postgres_failure"),
        ("postgres_registered", "CONTINUE"): ("registering_consul", "start_consul_registration"),
        ("registering_consul", "CONSUL_SUCCEEDED"): ("registered", "consul_success"),
        ("registering_consul", "CONSUL_FAILED"): ("partial_registered", "consul_failure"),
        ("partial_registered", "RETRY"): ("registering_consul", "retry_consul"),
        ("partial_registered", "RETRY_POSTGRES"): ("registering_postgres", "retry_postgres"),
        ("partial_registered", "RECOVERY_COMPLETE"): ("registered", "partial_recovery_success"),
        ("registered", "DEREGISTER"): ("deregistering", "initiate_deregistration"),
        ("deregistering", "DEREGISTRATION_COMPLETE"): ("deregistered", "deregistration_complete"),
        ("failed", "RETRY"): ("validating", "retry_from_failed"),
        ("failed", "ABANDON"): ("deregistered", "abandon_registration"),
        ("partial_registered", "RETRY_EXHAUSTED"): ("failed", "retry_exhausted"),
        ("unregistered", "FATAL_ERROR"): ("failed", "global_error_handler"),
        ("validating", "FATAL_ERROR"): ("failed", "global_error_handler"),
        ("registering_postgres", "FATAL_ERROR"): ("failed", "global_error_handler"),
        ("postgres_registered", "FATAL_ERROR"): ("failed", "global_error_handler"),
        ("registering_consul", "FATAL_ERROR"): ("failed", "global_error_handler"),
        ("registered", "FATAL_ERROR"): ("failed", "global_error_handler"),
        ("partial_registered", "FATAL_ERROR"): ("failed", "global_error_handler"),
        ("deregistering", "FATAL_ERROR"): ("failed", "global_error_handler"),
        ("failed", "FATAL_ERROR"): ("failed", "global_error_handler"),
    },
    repeated=frozenset(),
)

HANDSHAKE = Table(
    states=(
        "unknown",
        "pending_registration",
        "accepted",
        "awaiting_ack",
        "ack_received",
        "active",
        "rejected",
        "ack_timed_out",
        "liveness_expired",
        "departed",
    ),
    triggers=(
        "INITIATED",
        "ACCEPTED",
        "REJECTED",
        "REGISTERED",
        "ACK_RECEIVED",
        "BECAME_ACTIVE",
        "ACK_TIMED_OUT",
        "LIVENESS_EXPIRED",
        "DEPARTED",
    ),
    terminal=frozenset({"rejected", "ack_timed_out", "liveness_expired", "departed"}),
    allowed={
        ("unknown", "INITIATED"): ("pending_registration", "initiate"),
        ("pending_registration", "ACCEPTED"): ("accepted", "accept"),
        ("pending_registration", "REJECTED"): ("rejected", "reject"),
        ("accepted", "REGISTERED"): ("awaiting_ack", "open_ack_window"),
        ("awaiting_ack", "ACK_RECEIVED"): ("ack_received", "acknowledge"),
        ("accepted", "ACK_RECEIVED"): ("ack_received", "acknowledge_early"),
        ("ack_received", "BECAME_ACTIVE"): ("active", "become_active"),
        ("awaiting_ack", "ACK_TIMED_OUT"): ("ack_timed_out", "ack_timeout"),
        ("active", "LIVENESS_EXPIRED"): ("liveness_expired", "expire"),
        ("unknown", "DEPARTED"): ("departed", "depart"),
        ("pending_registration", "DEPARTED"): ("departed", "depart"),
        ("accepted", "DEPARTED"): ("departed", "depart"),
        ("awaiting_ack", "DEPARTED"): ("departed", "depart"),
        ("ack_received", "DEPARTED"): ("departed", "depart"),
        ("active", "DEPARTED"): ("departed", "depart"),
    },
    repeated=frozenset(
        {
            ("pending_registration", "INITIATED"),
            ("accepted", "ACCEPTED"),
            ("ack_received", "ACK_RECEIVED"),
            ("active", "BECAME_ACTIVE"),
        }
    ),
)

ACTION = Table(
    states=("queued", "running", "succeeded", "failed"),
    triggers=("START", "SUCCEED", "FAIL"),
    terminal=frozenset({"succeeded", "failed"}),
    allowed={
        ("queued", "START"): ("running", "start"),
        ("running", "SUCCEED"): ("succeeded", "succeed"),
        ("running", "FAIL"): ("failed", "fail"),
    },
    repeated=frozenset(),
)

COMMAND = Table(
    states=("RECEIVED", "ACCEPTED", "EXECUTED", "REJECTED", "FAILED", "TIMEOUT"),
    triggers=("ACCEPTED", "EXECUTED", "REJECTED", "FAILED", "TIMEOUT"),
    terminal=frozenset({"EXECUTED", "REJECTED", "FAILED", "TIMEOUT"}),
    allowed={
        ("RECEIVED", "ACCEPTED"): ("ACCEPTED", "accept"),
        ("ACCEPTED", "EXECUTED"): ("EXECUTED", "execute"),
        ("RECEIVED", "REJECTED"): ("REJECTED", "reject"),
        ("ACCEPTED", "FAILED"): ("FAILED", "fail"),
        ("RECEIVED", "TIMEOUT"): ("TIMEOUT", "accept_timeout"),
        ("ACCEPTED", "TIMEOUT"): ("TIMEOUT", "exec_timeout"),
    },
    repeated=frozenset(
        {
            ("ACCEPTED", "ACCEPTED"),
            ("EXECUTED", "EXECUTED"),
            ("REJECTED", "REJECTED"),
            ("FAILED", "FAILED"),
            ("TIMEOUT", "TIMEOUT"),
        }
    ),
)

MANIFEST = Table(
    states=("DRAFT", "REVIEWED", "APPROVED", "REGISTERED", "REJECTED"),
    triggers=("submit_for_review", "approve", "reject", "register", "revert_to_draft"),
    terminal=frozenset({"REGISTERED"}),
    allowed={
        ("DRAFT", "submit_for_review"): ("REVIEWED", "submit_draft"),
        ("REVIEWED", "approve"): ("APPROVED", "approve_reviewed"),
        ("REVIEWED", "reject"): ("REJECTED", "reject_reviewed"),
        ("REVIEWED", "revert_to_draft"): ("DRAFT", "revert_reviewed"),
        ("APPROVED", "reject"): ("REJECTED", "reject_approved"),
        ("APPROVED", "register"): ("REGISTERED", "register_approved"),
        ("APPROVED", "revert_to_draft"): ("DRAFT", "revert_approved"),
        ("REJECTED", "revert_to_draft"): ("DRAFT", "revert_rejected"),
    },
    repeated=frozenset({("REVIEWED", "submit_for_review"), ("REGISTERED", "register")}),
)

TABLES = {
    Machine.REGISTRATION: REGISTRATION,
    Machine.HANDSHAKE: HANDSHAKE,
    Machine.ACTION: ACTION,
    Machine.COMMAND: COMMAND,
    Machine.MANIFEST: MANIFEST,
}

# What must be in the context for a guarded row to pass.
PASSING: dict[tuple[Machine, str, str], Context] = {
    (Machine.REGISTRATION, "validating", "VALIDATION_PASSED"): {"validation_result": "passed"},
    (Machine.REGISTRATION, "validating", "VALIDATION_FAILED"): {"validation_result": "failed"},
    (Machine.REGISTRATION, "registering_postgres", "POSTGRES_SUCCEEDED"): {
        "postgres_applied": True
    },
    (Machine.REGISTRATION, "postgres_registered", "CONTINUE"): {"postgres_applied": True},
    (Machine.REGISTRATION, "registering_consul", "CONSUL_SUCCEEDED"): {
        "postgres_applied": True,
        "consul_applied": True,
    },
    (Machine.REGISTRATION, "registering_consul", "CONSUL_FAILED"): {"postgres_applied": True},
    (Machine.REGISTRATION, "partial_registered", "RETRY"): {"postgres_applied": True},
    (Machine.REGISTRATION, "partial_registered", "RETRY_POSTGRES"): {"consul_applied": True},
    (Machine.REGISTRATION, "partial_registered", "RECOVERY_COMPLETE"): {
        "postgres_applied": True,
        "consul_applied": True,
    },
    (Machine.REGISTRATION, "partial_registered", "RETRY_EXHAUSTED"): {"retry_count": 3},
    (Machine.HANDSHAKE, "ack_received", "BECAME_ACTIVE"): {"registered": True},
    (Machine.MANIFEST, "DRAFT", "submit_for_review"): {"manifest": {}, "urn": "urn:a:b"},
    (Machine.MANIFEST, "REVIEWED", "approve"): {"reviewer": "ann", "notes": "fine"},
    (Machine.MANIFEST, "REVIEWED", "reject"): {"reason": "no"},
    (Machine.MANIFEST, "APPROVED", "reject"): {"reason": "no"},
    (Machine.MANIFEST, "APPROVED", "register"): {"manifest": {}, "urn": "urn:a:b"},
}

# What in the context blocks a guarded row, and the guard that says so.
BLOCKING: list[tuple[Machine, str, str, Context, str, str]] = [
    (Machine.REGISTRATION, "unregistered", "REGISTER", {"payload": None}, "payload exists true",
     "GUARD_FAILED"),
    (Machine.REGISTRATION, "validating", "VALIDATION_PASSED", {"validation_result": "failed"},
     "validation_result == passed", "GUARD_FAILED"),
    (Machine.REGISTRATION, "validating", "VALIDATION_FAILED", {"validation_result": "passed"},
     "validation_result == failed", "GUARD_FAILED"),
    (Machine.REGISTRATION, "registering_postgres", "POSTGRES_SUCCEEDED",
     {"postgres_applied": False}, "postgres_applied == true", "GUARD_FAILED"),
    (Machine.REGISTRATION, "registering_postgres", "POSTGRES_FAILED",
     {"postgres_applied": True}, "postgres_applied == false", "GUARD_FAILED"),
    (Machine.REGISTRATION, "registering_consul", "CONSUL_SUCCEEDED", {"consul_applied": False},
     "consul_applied == true", "GUARD_FAILED"),
    (Machine.REGISTRATION, "registering_consul", "CONSUL_FAILED", {"consul_applied": True},
     "consul_applied == false", "GUARD_FAILED"),
    (Machine.REGISTRATION, "partial_registered", "RETRY", {"postgres_applied": False},
     "postgres_applied == true", "GUARD_FAILED"),
    (Machine.REGISTRATION, "partial_registered", "RETRY",
     {"postgres_applied": True, "retry_count": 3}, "retry_count < 3", "RETRY_EXHAUSTED"),
    (Machine.REGISTRATION, "partial_registered", "RETRY_POSTGRES", {"consul_applied": False},
     "consul_applied == true", "GUARD_FAILED"),
    (Machine.REGISTRATION, "partial_registered", "RETRY_POSTGRES",
     {"consul_applied": True, "retry_count": 3}, "retry_count < 3", "RETRY_EXHAUSTED"),
    (Machine.REGISTRATION, "partial_registered", "RECOVERY_COMPLETE",
     {"postgres_applied": False, "consul_applied": True}, "postgres_applied == true",
     "GUARD_FAILED"),
    (Machine.REGISTRATION, "partial_registered", "RECOVERY_COMPLETE",
     {"postgres_applied": True, "consul_applied": False}, "consul_applied == true",
     "GUARD_FAILED"),
    (Machine.REGISTRATION, "partial_registered", "RETRY_EXHAUSTED", {"retry_count": 2},
     "retry_count >= 3", "GUARD_FAILED"),
    (Machine.REGISTRATION, "failed", "RETRY", {"retry_count": 3}, "retry_count < 3",
     "RETRY_EXHAUSTED"),
    (Machine.HANDSHAKE, "ack_received", "BECAME_ACTIVE", {"registered": False},
     "registered == true", "GUARD_FAILED"),
    (Machine.MANIFEST, "DRAFT", "submit_for_review", {"urn": "urn:a:b"}, "manifest exists true",
     "GUARD_FAILED"),
    (Machine.MANIFEST, "DRAFT", "submit_for_review", {"manifest": {}, "urn": " "},
     r"urn matches \S", "GUARD_FAILED"),
    (Machine.MANIFEST, "REVIEWED", "approve", {"notes": "fine"}, r"reviewer matches \S",
     "GUARD_FAILED"),
    (Machine.MANIFEST, "REVIEWED", "approve", {"reviewer": "ann"}, r"notes matches \S",
     "GUARD_FAILED"),
    (Machine.MANIFEST, "REVIEWED", "reject", {}, r"reason matches \S", "GUARD_FAILED"),
    (Machine.MANIFEST, "APPROVED", "reject", {"reason": ""}, r"reason matches \S",
     "GUARD_FAILED"),
    (Machine.MANIFEST, "APPROVED", "register", {"urn": "urn:a:b"}, "manifest exists true",
     "GUARD_FAILED"),
    (Machine.MANIFEST, "APPROVED", "register",
     {"manifest": {}, "urn": "urn:a:b", "conflicting_urn": "urn:a:b"},
     "conflicting_urn not_exists true", "GUARD_FAILED"),
]  # fmt: skip

CELLS = [
    (machine, state, trigger)
    for machine, table in TABLES.items()
    for state in table.states
    for trigger in table.triggers
]


def context_of(machine: Machine, state: str, trigger: str) -> Context:
    start = NODE if machine is Machine.REGISTRATION else {}
    return {**start, **PASSING.get((machine, state, trigger), {})}


@pytest.mark.parametrize("machine", Machine)
def test_a_machine_has_exactly_the_states_and_triggers_of_its_table(machine: Machine) -> None:
    contract, table = LIBRARY[machine], TABLES[machine]
    assert tuple(each.name for each in contract.states) == table.states
    assert set(contract.triggers) == set(table.triggers)
    assert {each.name for each in contract.states if each.is_terminal} == table.terminal
    taken = {name for _, name in table.allowed.values()}
    assert {each.name for each in contract.transitions} == taken


@pytest.mark.parametrize(("machine", "state", "trigger"), CELLS)
def test_every_state_answers_every_trigger_as_the_table_says(
    machine: Machine, state: str, trigger: str
) -> None:
    contract, table = LIBRARY[machine], TABLES[machine]
    context = context_of(machine, state, trigger)
    outcome = delta(contract, state, trigger, context)
    if (state, trigger) in table.allowed:
        target, name = table.allowed[(state, trigger)]
        assert (outcome.result, outcome.state) == (Result.OK, target), outcome.reason
        assert outcome.transition is not None
        assert outcome.transition.name == name
        assert outcome.path[0] == state
        assert outcome.path[-1] == target
        return
    expected = Result.INVALID_STATE
    if (state, trigger) in table.repeated:
        expected = Result.DUPLICATE
    elif state in table.terminal:
        expected = Result.TERMINAL
    assert outcome.result is expected
    assert_unmoved(contract, state, context, outcome.state, outcome.context)
    assert outcome.path == (state,)
    assert outcome.intents == ()
    assert outcome.follow_ups == ()
    assert outcome.reason is not None


@pytest.mark.parametrize(("machine", "state", "trigger", "context", "guard", "code"), BLOCKING)
def test_a_guard_that_fails_leaves_the_state_and_says_what_it_saw(
    machine: Machine, state: str, trigger: str, context: Context, guard: str, code: str
) -> None:
    given = {**context_of(machine, state, "none"), **context}
    outcome = delta(LIBRARY[machine], state, trigger, given)
    assert outcome.result is Result.GUARD_BLOCKED
    assert_unmoved(LIBRARY[machine], state, given, outcome.state, outcome.context)
    assert outcome.intents == ()
    assert outcome.reason is not None
    assert (outcome.reason.guard, outcome.reason.code) == (guard, code)
    field = guard.split()[0]
    assert outcome.reason.seen == given.get(field)
    assert guard in outcome.reason.message


@pytest.mark.parametrize("machine", Machine)
def test_an_unknown_state_or_trigger_is_unknown(machine: Machine) -> None:
    contract = LIBRARY[machine]
    nowhere = delta(contract, "nowhere", contract.triggers[0], {})
    nothing = delta(contract, contract.initial_state, "NOTHING", {})
    assert nowhere.result is nothing.result is Result.UNKNOWN


def assert_unmoved(
    contract: Contract, state: str, before: Context, after: str, context: object
) -> None:
    assert after == state, f"{contract.name} moved although it refused"
    assert context is before


TIMEOUTS = {
    (Machine.REGISTRATION, "validating"): (5_000, "FATAL_ERROR", "failed"),
    (Machine.REGISTRATION, "registering_postgres"): (10_000, "POSTGRES_FAILED", "failed"),
    (Machine.REGISTRATION, "registering_consul"): (10_000, "CONSUL_FAILED", "partial_registered"),
    (Machine.REGISTRATION, "deregistering"): (15_000, "DEREGISTRATION_COMPLETE", "deregistered"),
    (Machine.HANDSHAKE, "awaiting_ack"): (30_000, "ACK_TIMED_OUT", "ack_timed_out"),
    (Machine.HANDSHAKE, "active"): (60_000, "LIVENESS_EXPIRED", "liveness_expired"),
    (Machine.COMMAND, "RECEIVED"): (3_000, "TIMEOUT", "TIMEOUT"),
    (Machine.COMMAND, "ACCEPTED"): (80_000, "TIMEOUT", "TIMEOUT"),
}


def test_only_the_listed_states_have_timeouts_and_each_leads_on() -> None:
    found = {
        (machine, state.name): state.timeout
        for machine, contract in LIBRARY.items()
        for state in contract.states
        if state.timeout is not None
    }
    assert found.keys() == TIMEOUTS.keys()
    for (machine, state), timeout in found.items():
        after_ms, trigger, target = TIMEOUTS[(machine, state)]
        assert (timeout.after_ms, timeout.trigger) == (after_ms, trigger)
        worst = {**NODE, "postgres_applied": True, "consul_applied": state != "registering_consul"}
        outcome = delta(LIBRARY[machine], state, trigger, worst, data=dict(timeout.data))
        assert (outcome.result, outcome.state) == (Result.OK, target), outcome.reason


def test_the_command_machine_forgets_after_its_time_to_live() -> None:
    assert LIBRARY[Machine.COMMAND].ttl_ms == 600_000


SOURCES = {
    "REGISTER": {"External"},
    "VALIDATION_PASSED": {"Internal"},
    "VALIDATION_FAILED": {"Internal"},
    "POSTGRES_SUCCEEDED": {"Effect"},
    "POSTGRES_FAILED": {"Effect"},
    "CONSUL_SUCCEEDED": {"Effect"},
    "CONSUL_FAILED": {"Effect"},
    "CONTINUE": {"Internal"},
    "RECOVERY_COMPLETE": {"Orchestrator"},
    "DEREGISTER": {"External"},
    "DEREGISTRATION_COMPLETE": {"Orchestrator"},
    "RETRY": {"External", "Internal"},
    "RETRY_POSTGRES": {"External"},
    "ABANDON": {"External"},
    "FATAL_ERROR": {"Internal"},
    "RETRY_EXHAUSTED": {"Orchestrator"},
}


def test_each_trigger_has_its_source_and_only_external_ones_come_from_outside() -> None:
    contract = LIBRARY[Machine.REGISTRATION]
    for trigger, sources in SOURCES.items():
        assert {each.value for each in contract.sources(trigger)} == sources
        assert contract.accepts_from_outside(trigger) == ("External" in sources)
    assert not contract.accepts_from_outside("NOTHING")


CLASSES = {
    "unregistered": ("initial", False, True),
    "validating": ("operational", False, True),
    "registering_postgres": ("operational", False, True),
    "postgres_registered": ("snapshot", False, True),
    "registering_consul": ("operational", False, True),
    "registered": ("success", False, False),
    "partial_registered": ("error", False, True),
    "deregistering": ("operational", False, True),
    "deregistered": ("terminal", True, False),
    "failed": ("error", False, True),
}


def test_the_states_of_registration_are_classified_as_specified() -> None:
    found = {
        each.name: (each.type.value, each.is_terminal, each.is_recoverable)
        for each in LIBRARY[Machine.REGISTRATION].states
    }
    assert found == CLASSES


def test_the_priorities_of_registration_are_as_specified() -> None:
    special = {"abandon_registration": 5, "global_error_handler": 0}
    for each in LIBRARY[Machine.REGISTRATION].transitions:
        assert each.priority == special.get(each.name, 10)
