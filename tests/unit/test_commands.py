"""The command registry: what each event does in each status, timeouts and TTL by a given clock."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm.commands import (
    Command,
    CommandRegistry,
    CommandStatus,
    Transition,
    TransitionResult,
)
from fsm.library import load_machine
from models.errors import SettingError

RECEIVED, ACCEPTED = CommandStatus.RECEIVED, CommandStatus.ACCEPTED
EXECUTED, REJECTED = CommandStatus.EXECUTED, CommandStatus.REJECTED
FAILED, TIMEOUT = CommandStatus.FAILED, CommandStatus.TIMEOUT
OK, DUPLICATE = TransitionResult.OK, TransitionResult.DUPLICATE
UNKNOWN_COMMAND, INVALID_STATE = TransitionResult.UNKNOWN_COMMAND, TransitionResult.INVALID_STATE
TERMINAL = TransitionResult.TERMINAL

TERMINAL_STATUSES = {EXECUTED, REJECTED, FAILED, TIMEOUT}

REBOOT = Command("c-1", "reboot", {"host": "a"})


class FakeClock:
    """A clock that moves only when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def registry(clock: FakeClock) -> CommandRegistry:
    return CommandRegistry(accept_timeout_s=3, exec_timeout_s=80, ttl_s=600, clock=clock)


def bring(registry: CommandRegistry, clock: FakeClock, status: CommandStatus) -> None:
    """Take the command to a status by the shortest way."""
    registry.on_received(REBOOT)
    if status in (ACCEPTED, EXECUTED, FAILED):
        registry.on_accepted("c-1")
    if status is EXECUTED:
        registry.on_executed("c-1")
    if status is FAILED:
        registry.on_failed("c-1")
    if status is REJECTED:
        registry.on_rejected("c-1")
    if status is TIMEOUT:
        clock.now += 3
        registry.expire_timeouts()
    assert status_of(registry) is status


def status_of(registry: CommandRegistry, command_id: str = "c-1") -> CommandStatus | None:
    record = registry.get_record(command_id)
    return record.status if record else None


def test_duplicate_on_received(registry: CommandRegistry) -> None:
    first = registry.on_received(REBOOT)
    assert (first.result, first.changed) == (OK, True)

    second = registry.on_received(Command("c-1", "reboot", {"host": "another"}))

    assert (second.result, second.changed) == (DUPLICATE, False)
    assert second.record == first.record
    assert second.record is not None
    assert second.record.command.payload == {"host": "a"}


def test_happy_path(registry: CommandRegistry) -> None:
    steps = [
        registry.on_received(REBOOT),
        registry.on_accepted("c-1"),
        registry.on_executed("c-1"),
    ]
    assert [step.result for step in steps] == [OK, OK, OK]
    assert [step.record.status for step in steps if step.record] == [RECEIVED, ACCEPTED, EXECUTED]
    assert all(step.changed for step in steps)


def test_invalid_order(registry: CommandRegistry) -> None:
    registry.on_received(REBOOT)
    step = registry.on_executed("c-1")
    assert (step.result, step.changed) == (INVALID_STATE, False)
    assert status_of(registry) is RECEIVED


def test_accept_timeout(registry: CommandRegistry, clock: FakeClock) -> None:
    registry.on_received(REBOOT)
    clock.now += 2.999
    assert registry.expire_timeouts() == 0
    assert status_of(registry) is RECEIVED
    clock.now += 0.001
    assert registry.expire_timeouts() == 1
    assert status_of(registry) is TIMEOUT
    assert registry.expire_timeouts() == 0


def test_exec_timeout_runs_from_acceptance(registry: CommandRegistry, clock: FakeClock) -> None:
    registry.on_received(REBOOT)
    clock.now += 2
    registry.on_accepted("c-1")
    clock.now += 79
    assert registry.expire_timeouts() == 0
    clock.now += 1
    assert registry.expire_timeouts() == 1
    assert status_of(registry) is TIMEOUT


EVENTS: dict[str, Callable[[CommandRegistry], Transition]] = {
    "received": lambda registry: registry.on_received(REBOOT),
    "accepted": lambda registry: registry.on_accepted("c-1"),
    "executed": lambda registry: registry.on_executed("c-1"),
    "rejected": lambda registry: registry.on_rejected("c-1"),
    "failed": lambda registry: registry.on_failed("c-1"),
}

TABLE = [
    (RECEIVED, "received", DUPLICATE, RECEIVED),
    (RECEIVED, "accepted", OK, ACCEPTED),
    (RECEIVED, "executed", INVALID_STATE, RECEIVED),
    (RECEIVED, "rejected", OK, REJECTED),
    (RECEIVED, "failed", INVALID_STATE, RECEIVED),
    (ACCEPTED, "received", DUPLICATE, ACCEPTED),
    (ACCEPTED, "accepted", DUPLICATE, ACCEPTED),
    (ACCEPTED, "executed", OK, EXECUTED),
    (ACCEPTED, "rejected", INVALID_STATE, ACCEPTED),
    (ACCEPTED, "failed", OK, FAILED),
    (EXECUTED, "received", DUPLICATE, EXECUTED),
    (EXECUTED, "accepted", TERMINAL, EXECUTED),
    (EXECUTED, "executed", DUPLICATE, EXECUTED),
    (EXECUTED, "rejected", TERMINAL, EXECUTED),
    (EXECUTED, "failed", TERMINAL, EXECUTED),
    (REJECTED, "received", DUPLICATE, REJECTED),
    (REJECTED, "accepted", TERMINAL, REJECTED),
    (REJECTED, "executed", TERMINAL, REJECTED),
    (REJECTED, "rejected", DUPLICATE, REJECTED),
    (REJECTED, "failed", TERMINAL, REJECTED),
    (FAILED, "received", DUPLICATE, FAILED),
    (FAILED, "accepted", TERMINAL, FAILED),
    (FAILED, "executed", TERMINAL, FAILED),
    (FAILED, "rejected", TERMINAL, FAILED),
    (FAILED, "failed", DUPLICATE, FAILED),
    (TIMEOUT, "received", DUPLICATE, TIMEOUT),
    (TIMEOUT, "accepted", TERMINAL, TIMEOUT),
    (TIMEOUT, "executed", TERMINAL, TIMEOUT),
    (TIMEOUT, "rejected", TERMINAL, TIMEOUT),
    (TIMEOUT, "failed", TERMINAL, TIMEOUT),
]


@pytest.mark.parametrize(("status", "event", "result", "after"), TABLE)
def test_every_event_in_every_status(
    registry: CommandRegistry,
    clock: FakeClock,
    status: CommandStatus,
    event: str,
    result: TransitionResult,
    after: CommandStatus,
) -> None:
    bring(registry, clock, status)
    before = registry.get_record("c-1")

    step = EVENTS[event](registry)

    assert step.result is result
    assert step.changed is (result is OK)
    assert status_of(registry) is after
    assert step.record == registry.get_record("c-1")
    if not step.changed:
        assert step.record == before


@pytest.mark.parametrize("event", ["accepted", "executed", "rejected", "failed"])
def test_an_unknown_command_has_no_record(registry: CommandRegistry, event: str) -> None:
    assert EVENTS[event](registry) == Transition(None, UNKNOWN_COMMAND, False)
    assert registry.get_record("c-1") is None


def test_the_table_is_whole() -> None:
    assert len({(status, event) for status, event, _, _ in TABLE}) == len(CommandStatus) * 5


def test_gc_ttl_expires_first_and_then_deletes_only_terminal_records(
    registry: CommandRegistry, clock: FakeClock
) -> None:
    registry.on_received(REBOOT)
    clock.now += 600
    assert registry.gc_ttl() == 1
    assert registry.get_record("c-1") is None
    assert registry.on_received(REBOOT).result is OK


def test_ttl_runs_from_receipt_and_spares_what_is_not_terminal(clock: FakeClock) -> None:
    registry = CommandRegistry(accept_timeout_s=3, exec_timeout_s=10_000, ttl_s=600, clock=clock)
    registry.on_received(REBOOT)
    registry.on_accepted("c-1")
    clock.now += 599
    registry.on_received(Command("c-2", "reboot", {}))
    clock.now += 2
    assert registry.gc_ttl() == 0
    assert status_of(registry) is ACCEPTED
    registry.on_executed("c-1")
    assert registry.gc_ttl() == 1
    assert registry.get_record("c-1") is None
    assert status_of(registry, "c-2") is RECEIVED


def test_an_event_before_the_tick_wins_over_the_deadline(
    registry: CommandRegistry, clock: FakeClock
) -> None:
    registry.on_received(REBOOT)
    clock.now += 5
    assert registry.on_accepted("c-1").result is OK
    assert registry.expire_timeouts() == 0


def test_defaults_are_the_contracts(clock: FakeClock) -> None:
    registry = CommandRegistry(clock=clock)
    assert (registry.accept_timeout_s, registry.exec_timeout_s, registry.ttl_s) == (3, 80, 600)


@pytest.mark.parametrize("wrong", [-1, -0.001, float("nan")])
def test_a_timeout_that_is_no_duration_is_refused(clock: FakeClock, wrong: float) -> None:
    with pytest.raises(SettingError, match="accept_timeout_s"):
        CommandRegistry(accept_timeout_s=wrong, clock=clock)


def test_a_command_is_frozen_and_keeps_its_own_payload() -> None:
    payload = {"host": "a"}
    command = Command("c-1", "reboot", payload)
    payload["host"] = "b"
    assert command.payload == {"host": "a"}
    with pytest.raises(TypeError):
        command.payload["host"] = "c"  # type: ignore[index]
    with pytest.raises(AttributeError):
        command.command_id = "c-2"  # type: ignore[misc]
    assert hash(command) == hash(Command("c-1", "reboot", {"host": "other"}))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(sorted(EVENTS)), st.sampled_from(["c-1", "c-2", "c-3"])),
        st.tuples(st.just("wait"), st.floats(0, 300)),
        st.tuples(st.sampled_from(["expire", "gc"]), st.none()),
    ),
    max_size=40,
)


@given(STEPS)
def test_random_events_keep_the_invariants(steps: list[tuple[str, object]]) -> None:
    clock = FakeClock()
    registry = CommandRegistry(accept_timeout_s=3, exec_timeout_s=80, ttl_s=600, clock=clock)
    ids = ("c-1", "c-2", "c-3")
    for name, argument in steps:
        before = {each: registry.get_record(each) for each in ids}
        if isinstance(argument, float):
            clock.now += argument
        elif isinstance(argument, str):
            event = {
                "received": lambda id_: registry.on_received(Command(id_, "reboot", {})),
                "accepted": registry.on_accepted,
                "executed": registry.on_executed,
                "rejected": registry.on_rejected,
                "failed": registry.on_failed,
            }[name]
            step = event(argument)
            assert step.changed is (step.result is OK)
            assert step.changed is (registry.get_record(argument) != before[argument])
            assert (step.record is None) is (step.result is UNKNOWN_COMMAND)
        else:
            count = registry.expire_timeouts() if name == "expire" else registry.gc_ttl()
            changed = [each for each in ids if registry.get_record(each) != before[each]]
            assert 0 <= count <= len(changed)
        for each, record in before.items():
            if record is not None and record.status in TERMINAL_STATUSES:
                now = registry.get_record(each)
                assert now == record or (now is None and name == "gc")


def test_every_state_of_the_contract_has_a_name() -> None:
    assert {state.name for state in load_machine("command").states} == set(CommandStatus)
