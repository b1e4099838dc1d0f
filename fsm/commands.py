"""The command registry: one record a command, moved by the command contract and a given clock."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from types import MappingProxyType
from typing import assert_never

from fsm.contract import Contract
from fsm.delta import delta
from fsm.library import Machine, load_machine
from fsm.results import Result
from models.errors import SettingError

Clock = Callable[[], float]
"""Seconds that never go back; where they begin does not matter."""


class CommandStatus(StrEnum):
    """Where a command stands."""

    RECEIVED = "RECEIVED"
    ACCEPTED = "ACCEPTED"
    EXECUTED = "EXECUTED"
    REJECTED = "REJECTED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"


class TransitionResult(StrEnum):
    """What became of an event, in the registry's own words. Only OK changed anything."""

    OK = "OK"
    DUPLICATE = "DUPLICATE"
    UNKNOWN_COMMAND = "UNKNOWN_COMMAND"
    INVALID_STATE = "INVALID_STATE"
    TERMINAL = "TERMINAL"


@dataclass(frozen=True, slots=True)
class Command:
    """A request by its id; the payload is copied, so nobody changes it afterwards."""

    command_id: str
    command_type: str
    payload: Mapping[str, object] = field(hash=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "payload", MappingProxyType(dict(self.payload)))


@dataclass(frozen=True, slots=True)
class CommandRecord:
    """A command's status, since when it has it, and when the command came."""

    command: Command
    status: CommandStatus
    received_at: float
    since: float


@dataclass(frozen=True, slots=True)
class Transition:
    """The answer to one event: the record as it is now, and whether the event changed it."""

    record: CommandRecord | None
    result: TransitionResult
    changed: bool


class CommandRegistry:
    """Every command that is not forgotten yet. Late and repeated events are named, never mended."""

    def __init__(
        self,
        accept_timeout_s: float | None = None,
        exec_timeout_s: float | None = None,
        ttl_s: float | None = None,
        *,
        clock: Clock,
    ) -> None:
        contract = _contract()
        self._contract = contract
        self._clock = clock
        self._records: dict[str, CommandRecord] = {}
        self.accept_timeout_s = _seconds(
            "accept_timeout_s", accept_timeout_s, _timeout_ms(contract, CommandStatus.RECEIVED)
        )
        self.exec_timeout_s = _seconds(
            "exec_timeout_s", exec_timeout_s, _timeout_ms(contract, CommandStatus.ACCEPTED)
        )
        self.ttl_s = _seconds("ttl_s", ttl_s, contract.ttl_ms)

    def on_received(self, command: Command) -> Transition:
        """Take a command in; a known id is a duplicate, whatever it carries."""
        known = self._records.get(command.command_id)
        if known is not None:
            return Transition(known, TransitionResult.DUPLICATE, changed=False)
        now = self._clock()
        record = CommandRecord(command, CommandStatus(self._contract.initial_state), now, now)
        self._records[command.command_id] = record
        return Transition(record, TransitionResult.OK, changed=True)

    def on_accepted(self, command_id: str) -> Transition:
        """Its executor has taken it on."""
        return self._apply(command_id, "ACCEPTED")

    def on_executed(self, command_id: str) -> Transition:
        """It is done."""
        return self._apply(command_id, "EXECUTED")

    def on_rejected(self, command_id: str) -> Transition:
        """Its executor refuses it."""
        return self._apply(command_id, "REJECTED")

    def on_failed(self, command_id: str) -> Transition:
        """It was taken on and did not work."""
        return self._apply(command_id, "FAILED")

    def get_record(self, command_id: str) -> CommandRecord | None:
        """The record of a command, unless it never came or is forgotten."""
        return self._records.get(command_id)

    def expire_timeouts(self) -> int:
        """Time out what waited too long; how many that were."""
        now = self._clock()
        expired = 0
        for command_id, record in list(self._records.items()):
            state = self._contract.state(record.status)
            limit = self._limit_s(record.status)
            if state is None or state.timeout is None or limit is None:
                continue
            if now - record.since >= limit:
                expired += self._apply(command_id, state.timeout.trigger).changed
        return expired

    def gc_ttl(self) -> int:
        """Expire, then forget what is over and was received longer than the TTL ago; how many."""
        self.expire_timeouts()
        now = self._clock()
        over = [
            command_id
            for command_id, record in self._records.items()
            if record.status in self._contract.terminal_states
            and now - record.received_at >= self.ttl_s
        ]
        for command_id in over:
            del self._records[command_id]
        return len(over)

    def _apply(self, command_id: str, trigger: str) -> Transition:
        record = self._records.get(command_id)
        if record is None:
            return Transition(None, TransitionResult.UNKNOWN_COMMAND, changed=False)
        outcome = delta(self._contract, record.status, trigger, {})
        if outcome.changed:
            status = CommandStatus(outcome.state)
            record = replace(record, status=status, since=self._clock())
            self._records[command_id] = record
        return Transition(record, _face(outcome.result), outcome.changed)

    def _limit_s(self, status: CommandStatus) -> float | None:
        match status:
            case CommandStatus.RECEIVED:
                return self.accept_timeout_s
            case CommandStatus.ACCEPTED:
                return self.exec_timeout_s
            case (
                CommandStatus.EXECUTED
                | CommandStatus.REJECTED
                | CommandStatus.FAILED
                | CommandStatus.TIMEOUT
            ):
                return None
            case _:
                assert_never(status)


def _face(result: Result) -> TransitionResult:
    """The registry's word for a result of the one vocabulary."""
    match result:
        case Result.OK:
            return TransitionResult.OK
        case Result.DUPLICATE | Result.ALREADY_APPLIED:
            return TransitionResult.DUPLICATE
        case Result.UNKNOWN:
            return TransitionResult.UNKNOWN_COMMAND
        case Result.INVALID_STATE | Result.GUARD_BLOCKED:
            return TransitionResult.INVALID_STATE
        case Result.TERMINAL:
            return TransitionResult.TERMINAL
        case _:
            assert_never(result)


def _timeout_ms(contract: Contract, status: CommandStatus) -> int | None:
    state = contract.state(status)
    return None if state is None or state.timeout is None else state.timeout.after_ms


def _seconds(name: str, given: float | None, contract_ms: int | None) -> float:
    """A duration as given, else as the contract has it, else endless."""
    if given is None:
        return float("inf") if contract_ms is None else contract_ms / 1000
    if not given >= 0:
        raise SettingError(name, str(given), "seconds, zero or more")
    return given


@cache
def _contract() -> Contract:
    """Frozen, so it is read once a process."""
    return load_machine(Machine.COMMAND)
