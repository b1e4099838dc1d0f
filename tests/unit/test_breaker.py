"""Circuit transitions: threshold, one probe at a time, and no way to stay half-open for ever."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from fsm.breaker import (
    Admitted,
    Barred,
    BreakerPolicy,
    CallId,
    CallOutcome,
    Circuit,
    CircuitState,
    admit,
    on_failure,
    on_success,
    settle,
)
from models.errors import ConfigurationError

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = BreakerPolicy(3, timedelta(seconds=60), timedelta(seconds=20))
OPEN = Circuit(CircuitState.OPEN, failures=3, opened_at=NOW)
ONE, TWO = CallId("one"), CallId("two")


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def probing(call: CallId = ONE) -> Circuit:
    answer = admit(POLICY, OPEN, call, later(60))
    assert isinstance(answer, Admitted)
    return answer.circuit


def test_circuit_breaker_transitions_under_failure() -> None:
    circuit = Circuit()
    for failures in (1, 2):
        circuit = on_failure(POLICY, circuit, ONE, NOW)
        assert circuit == Circuit(CircuitState.CLOSED, failures)
        assert admit(POLICY, circuit, ONE, NOW) == Admitted(circuit)
    circuit = on_failure(POLICY, circuit, ONE, NOW)
    assert circuit == OPEN
    assert admit(POLICY, circuit, ONE, later(59.999)) == Barred(later(60))
    probe = admit(POLICY, circuit, ONE, later(60))
    assert isinstance(probe, Admitted)
    assert probe.circuit.state is CircuitState.HALF_OPEN
    assert on_success(probe.circuit, ONE) == Circuit()


def test_a_success_forgets_the_failures_before_it() -> None:
    circuit = on_failure(POLICY, on_failure(POLICY, Circuit(), ONE, NOW), ONE, NOW)
    circuit = on_success(circuit, ONE)
    assert circuit == Circuit()
    assert on_failure(POLICY, circuit, ONE, NOW).state is CircuitState.CLOSED


def test_a_success_on_a_sound_circuit_changes_nothing_to_save() -> None:
    circuit = Circuit()
    assert on_success(circuit, ONE) is circuit


def test_one_probe_at_a_time() -> None:
    circuit = probing(ONE)
    assert (circuit.probe_holder, circuit.probe_since) == (ONE, later(60))
    for call in (ONE, TWO):
        assert admit(POLICY, circuit, call, later(79.999)) == Barred(later(80))


def test_a_failed_probe_opens_the_circuit_anew() -> None:
    assert on_failure(POLICY, probing(), ONE, later(65)) == Circuit(
        CircuitState.OPEN, failures=4, opened_at=later(65)
    )


def test_a_probe_whose_holder_died_is_given_to_another() -> None:
    answer = admit(POLICY, probing(ONE), TWO, later(80))
    assert isinstance(answer, Admitted)
    assert (answer.circuit.probe_holder, answer.circuit.probe_since) == (TWO, later(80))
    assert on_success(answer.circuit, ONE) == answer.circuit
    assert on_failure(POLICY, answer.circuit, ONE, later(81)) == answer.circuit
    assert on_success(answer.circuit, TWO) == Circuit()


@pytest.mark.parametrize("outcome", CallOutcome)
def test_a_late_outcome_does_not_move_an_open_circuit(outcome: CallOutcome) -> None:
    assert settle(POLICY, OPEN, ONE, outcome, later(30)) == OPEN


@pytest.mark.parametrize("outcome", CallOutcome)
def test_another_calls_outcome_does_not_settle_the_probe(outcome: CallOutcome) -> None:
    assert settle(POLICY, probing(ONE), TWO, outcome, later(61)) == probing(ONE)


@pytest.mark.parametrize("circuit", [Circuit(), Circuit(failures=2), OPEN])
def test_a_refusal_moves_nothing(circuit: Circuit) -> None:
    assert settle(POLICY, circuit, ONE, CallOutcome.REFUSED, NOW) == circuit


def test_a_refused_probe_makes_room_for_the_next() -> None:
    circuit = settle(POLICY, probing(ONE), ONE, CallOutcome.REFUSED, later(61))
    assert circuit.state is CircuitState.HALF_OPEN
    answer = admit(POLICY, circuit, TWO, later(61))
    assert isinstance(answer, Admitted)
    assert answer.circuit.probe_holder == TWO


@pytest.mark.parametrize(
    ("threshold", "reset", "probe"), [(0, 60, 20), (-1, 60, 20), (3, 0, 20), (3, 60, 0)]
)
def test_a_policy_that_cannot_work_is_refused(threshold: int, reset: int, probe: int) -> None:
    with pytest.raises(ConfigurationError):
        BreakerPolicy(threshold, timedelta(seconds=reset), timedelta(seconds=probe))


circuits = st.builds(
    Circuit,
    st.sampled_from(CircuitState),
    st.integers(0, 9),
    st.none() | st.just(NOW),
    st.none() | st.sampled_from([ONE, TWO]),
    st.none() | st.just(NOW),
)


@given(circuits)
def test_time_alone_lets_a_call_through_any_circuit(circuit: Circuit) -> None:
    wait = max(POLICY.reset_timeout, POLICY.probe_timeout)
    assert isinstance(admit(POLICY, circuit, TWO, NOW + wait), Admitted)


@given(circuits)
def test_being_barred_ends_when_it_says(circuit: Circuit) -> None:
    answer = admit(POLICY, circuit, TWO, NOW)
    if isinstance(answer, Barred):
        assert isinstance(admit(POLICY, circuit, TWO, answer.until), Admitted)


class Workers(RuleBasedStateMachine):
    """Many workers over one circuit: calls start, end in any order, or are never heard of again."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.circuit = Circuit()
        self.running: list[CallId] = []
        self.probes: dict[CallId, datetime] = {}
        self.calls = 0

    @rule(seconds=st.sampled_from([0, 1, 19, 20, 60]))
    def time_passes(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    @rule()
    def a_call_starts(self) -> None:
        self.calls += 1
        call = CallId(str(self.calls))
        answer = admit(POLICY, self.circuit, call, self.now)
        if isinstance(answer, Admitted):
            self.circuit = answer.circuit
            self.running.append(call)
            if self.circuit.state is CircuitState.HALF_OPEN:
                self.probes[call] = self.now

    @rule(data=st.data(), outcome=st.sampled_from(CallOutcome))
    def a_call_ends(self, data: st.DataObject, outcome: CallOutcome) -> None:
        if self.running:
            call = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
            self.probes.pop(call, None)
            self.circuit = settle(POLICY, self.circuit, call, outcome, self.now)

    @rule()
    def a_worker_dies(self) -> None:
        if self.running:
            self.running.pop()

    @invariant()
    def at_most_one_probe_is_young(self) -> None:
        young = [at for at in self.probes.values() if self.now < at + POLICY.probe_timeout]
        assert len(young) <= 1

    @invariant()
    def the_record_fits_its_state(self) -> None:
        match self.circuit.state:
            case CircuitState.CLOSED:
                assert self.circuit == Circuit(failures=self.circuit.failures)
                assert self.circuit.failures < POLICY.threshold
            case CircuitState.OPEN:
                assert self.circuit.opened_at is not None
                assert self.circuit.probe_holder is None
            case CircuitState.HALF_OPEN:
                assert (self.circuit.probe_holder is None) is (self.circuit.probe_since is None)


TestWorkers = Workers.TestCase
