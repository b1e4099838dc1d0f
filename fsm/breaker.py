"""Circuit transitions: when calls to a failing service stop, and how one probe reopens the way.

The circuit is a record that the caller loads and saves; nothing here keeps state or reads a clock.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NewType, assert_never

from models.errors import ConfigurationError

CallId = NewType("CallId", str)


class CircuitState(StrEnum):
    """CLOSED lets calls through, OPEN lets none, HALF_OPEN one at a time."""

    CLOSED = "CLOSED"
    OPEN = "OPEN"
    HALF_OPEN = "HALF_OPEN"


class CallOutcome(StrEnum):
    """What a call says about the service, which is not always what it says about the intent."""

    SUCCESS = "success"
    FAILURE = "failure"  # no answer, a timeout, a 5xx
    REFUSED = "refused"  # a 4xx, or a call never made: nothing learnt about the service's health


@dataclass(frozen=True, slots=True)
class BreakerPolicy:
    """How many failures in a row open a circuit, how long it stays open, how long a probe counts.

    `probe_timeout` must outlast the slowest call: a probe older than that is taken for dead.
    """

    threshold: int
    reset_timeout: timedelta
    probe_timeout: timedelta = timedelta(seconds=30)

    def __post_init__(self) -> None:
        if self.threshold < 1:
            raise ConfigurationError(f"breaker threshold is {self.threshold}", "at least 1")
        if min(self.reset_timeout, self.probe_timeout) <= timedelta(0):
            raise ConfigurationError(
                f"breaker timeouts are {self.reset_timeout} and {self.probe_timeout}",
                "both are above zero",
            )


@dataclass(frozen=True, slots=True)
class Circuit:
    """One service's circuit; `failures` counts those since the last success."""

    state: CircuitState = CircuitState.CLOSED
    failures: int = 0
    opened_at: datetime | None = None
    probe_holder: CallId | None = None
    probe_since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Admitted:
    """The call may go, once this circuit is saved."""

    circuit: Circuit


@dataclass(frozen=True, slots=True)
class Barred:
    """The call may not go, and asking again before `until` is useless unless a probe ends."""

    until: datetime


def admit(
    policy: BreakerPolicy, circuit: Circuit, call: CallId, now: datetime
) -> Admitted | Barred:
    """Whether the call may go; through a circuit that is not closed it goes as the one probe."""
    match circuit.state:
        case CircuitState.CLOSED:
            return Admitted(circuit)
        case CircuitState.OPEN:
            since, patience = circuit.opened_at, policy.reset_timeout
        case CircuitState.HALF_OPEN:
            since, patience = circuit.probe_since, policy.probe_timeout
        case _:
            assert_never(circuit.state)
    if since is not None and now < since + patience:
        return Barred(since + patience)
    return Admitted(
        replace(circuit, state=CircuitState.HALF_OPEN, probe_holder=call, probe_since=now)
    )


def settle(
    policy: BreakerPolicy, circuit: Circuit, call: CallId, outcome: CallOutcome, now: datetime
) -> Circuit:
    """The circuit after a call that was admitted."""
    match outcome:
        case CallOutcome.SUCCESS:
            return on_success(circuit, call)
        case CallOutcome.FAILURE:
            return on_failure(policy, circuit, call, now)
        case CallOutcome.REFUSED:
            return on_refusal(circuit, call)
        case _:
            assert_never(outcome)


def on_success(circuit: Circuit, call: CallId) -> Circuit:
    """Closes the circuit if the probe brings it; a call older than the opening proves nothing."""
    match circuit.state:
        case CircuitState.CLOSED:
            return circuit if circuit.failures == 0 else Circuit()
        case CircuitState.HALF_OPEN:
            return Circuit() if circuit.probe_holder == call else circuit
        case CircuitState.OPEN:
            return circuit
        case _:
            assert_never(circuit.state)


def on_failure(policy: BreakerPolicy, circuit: Circuit, call: CallId, now: datetime) -> Circuit:
    """Counts towards the threshold, or opens again if the probe brings it; a late one is old news.

    An open circuit does not open anew, or stragglers would keep it open for ever.
    """
    failures = circuit.failures + 1
    match circuit.state:
        case CircuitState.CLOSED if failures < policy.threshold:
            return replace(circuit, failures=failures)
        case CircuitState.CLOSED:
            return Circuit(CircuitState.OPEN, failures, opened_at=now)
        case CircuitState.HALF_OPEN if circuit.probe_holder == call:
            return Circuit(CircuitState.OPEN, failures, opened_at=now)
        case CircuitState.HALF_OPEN | CircuitState.OPEN:
            return circuit
        case _:
            assert_never(circuit.state)


def on_refusal(circuit: Circuit, call: CallId) -> Circuit:
    """Moves nothing; a probe that learnt nothing only makes room for the next."""
    if circuit.state is CircuitState.HALF_OPEN and circuit.probe_holder == call:
        return replace(circuit, probe_holder=None, probe_since=None)
    return circuit
