"""Counters with few labels, and one circuit a machine."""

from datetime import timedelta

import pytest

from fsm.breaker import BreakerPolicy, CallId, CallOutcome
from fsm.retry import ceiling
from models.errors import InfraUnavailableError, StaleWriteError
from tasks.contention import Conflict, Contention, Counted
from tasks.optimistic import RETRIES, _conflict

ONE, TWO = CallId("one"), CallId("two")


def test_counts_are_kept_by_machine_and_reason() -> None:
    contention = Contention()
    contention.count("manifest", Counted.RETRY, Conflict.STALE)
    contention.count("manifest", Counted.RETRY, Conflict.LOCKED)
    contention.count("other", Counted.RETRY, Conflict.LOCKED)
    assert contention.counted("manifest", Counted.RETRY) == 2
    assert contention.counted("manifest", Counted.RETRY, Conflict.LOCKED) == 1
    assert contention.counted("manifest", Counted.EXHAUSTED) == 0


def test_one_machine_in_trouble_bars_no_other_and_lets_one_probe_through() -> None:
    time = [0.0]
    contention = Contention(BreakerPolicy(1, timedelta(seconds=10)), lambda: time[0])
    contention.enter("manifest", ONE)
    contention.leave("manifest", ONE, CallOutcome.FAILURE)
    contention.enter("other", ONE)
    with pytest.raises(InfraUnavailableError):
        contention.enter("manifest", TWO)
    time[0] = 10.0
    contention.enter("manifest", ONE)
    with pytest.raises(InfraUnavailableError):
        contention.enter("manifest", TWO)
    contention.leave("manifest", ONE, CallOutcome.SUCCESS)
    contention.enter("manifest", TWO)


def test_waits_grow_from_ten_milliseconds_to_a_second() -> None:
    waits = [ceiling(RETRIES, attempt) / timedelta(milliseconds=1) for attempt in range(1, 5)]
    assert waits == [10, 50, 250, 1000]
    assert RETRIES.attempts == 5


def test_only_conflicts_are_tried_again() -> None:
    assert _conflict(StaleWriteError("moved", "again")) is Conflict.STALE
    assert _conflict(ValueError("a bug")) is None
