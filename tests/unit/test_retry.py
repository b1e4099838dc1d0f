"""Backoff with full jitter, and the three ways a retry ends."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm.retry import (
    FailureKind,
    GiveUp,
    GiveUpReason,
    RetryAt,
    RetryPolicy,
    ceiling,
    delay,
    next_attempt,
)
from models.errors import ConfigurationError

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = RetryPolicy(timedelta(seconds=1), 2.0, timedelta(seconds=10), 5)
ALMOST_ONE = 1 - 2**-53


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


policies = st.builds(
    lambda base, factor, room, attempts: RetryPolicy(base, factor, base + room, attempts),
    st.timedeltas(timedelta(microseconds=1), timedelta(hours=1)),
    st.floats(1, 100),
    st.timedeltas(timedelta(0), timedelta(days=1)),
    st.integers(1, 50),
)
jitters = st.floats(0, 1, exclude_max=True)
attempts = st.integers(1, 10_000)


@pytest.mark.parametrize(
    ("attempt", "longest"), [(1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (6, 10), (10**9, 10)]
)
def test_the_ceiling_doubles_up_to_the_cap(attempt: int, longest: int) -> None:
    assert ceiling(POLICY, attempt) == seconds(longest)


@pytest.mark.parametrize(("jitter", "wait"), [(0.0, 0), (0.25, 1), (0.5, 2), (0.75, 3)])
def test_the_jitter_is_full(jitter: float, wait: float) -> None:
    assert delay(POLICY, 3, jitter) == seconds(wait)


def test_a_factor_of_one_never_grows() -> None:
    assert ceiling(RetryPolicy(seconds(2), 1, seconds(9), 3), 100) == seconds(2)


@given(policies, attempts, jitters)
def test_a_delay_stays_between_nothing_and_the_ceiling(
    policy: RetryPolicy, attempt: int, jitter: float
) -> None:
    assert timedelta(0) <= delay(policy, attempt, jitter) <= ceiling(policy, attempt) <= policy.cap


@given(policies, attempts)
def test_the_ceiling_never_falls(policy: RetryPolicy, attempt: int) -> None:
    assert ceiling(policy, attempt) <= ceiling(policy, attempt + 1)


@pytest.mark.parametrize("jitter", [-0.1, 1.0, 2.0, float("nan")])
def test_a_jitter_out_of_range_is_a_bug(jitter: float) -> None:
    with pytest.raises(ValueError, match="jitter"):
        delay(POLICY, 1, jitter)


def test_attempts_count_from_one() -> None:
    with pytest.raises(ValueError, match="attempts"):
        ceiling(POLICY, 0)


@pytest.mark.parametrize("failure", [FailureKind.TRANSIENT, FailureKind.UNKNOWN])
def test_a_failure_that_may_pass_is_tried_again(failure: FailureKind) -> None:
    assert next_attempt(POLICY, 2, failure, NOW, None, 0.5) == RetryAt(NOW + seconds(1), 3)


@pytest.mark.parametrize(
    ("attempt", "failure", "not_after", "reason"),
    [
        (1, FailureKind.PERMANENT, None, GiveUpReason.PERMANENT_ERROR),
        (5, FailureKind.PERMANENT, NOW, GiveUpReason.PERMANENT_ERROR),
        (5, FailureKind.TRANSIENT, None, GiveUpReason.ATTEMPTS_EXHAUSTED),
        (6, FailureKind.UNKNOWN, NOW, GiveUpReason.ATTEMPTS_EXHAUSTED),
        (1, FailureKind.TRANSIENT, NOW + seconds(0.499), GiveUpReason.DEADLINE),
        (1, FailureKind.UNKNOWN, NOW - seconds(1), GiveUpReason.DEADLINE),
    ],
)
def test_gives_up(
    attempt: int, failure: FailureKind, not_after: datetime | None, reason: GiveUpReason
) -> None:
    assert next_attempt(POLICY, attempt, failure, NOW, not_after, 0.5) == GiveUp(reason)


def test_a_retry_may_be_due_at_its_deadline() -> None:
    not_after = NOW + seconds(0.5)
    answer = next_attempt(POLICY, 1, FailureKind.TRANSIENT, NOW, not_after, 0.5)
    assert answer == RetryAt(not_after, 2)


@given(
    policies,
    st.integers(1, 60),
    st.sampled_from(FailureKind),
    st.none() | st.timedeltas(timedelta(seconds=-1), timedelta(days=2)).map(NOW.__add__),
    jitters,
)
def test_a_retry_is_never_early_late_or_beyond_its_attempts(
    policy: RetryPolicy,
    attempt: int,
    failure: FailureKind,
    not_after: datetime | None,
    jitter: float,
) -> None:
    answer = next_attempt(policy, attempt, failure, NOW, not_after, jitter)
    if isinstance(answer, RetryAt):
        assert failure is not FailureKind.PERMANENT
        assert answer.attempt == attempt + 1 <= policy.attempts
        assert NOW <= answer.at <= NOW + policy.cap
        assert not_after is None or answer.at <= not_after


@given(policies, st.floats(0, ALMOST_ONE))
def test_a_transient_failure_ends_after_exactly_its_attempts(
    policy: RetryPolicy, jitter: float
) -> None:
    attempt = 1
    while isinstance(
        answer := next_attempt(policy, attempt, FailureKind.TRANSIENT, NOW, None, jitter), RetryAt
    ):
        attempt = answer.attempt
    assert attempt == policy.attempts
    assert answer == GiveUp(GiveUpReason.ATTEMPTS_EXHAUSTED)


@pytest.mark.parametrize(
    ("base", "factor", "cap", "count"),
    [
        (0, 2, 10, 3),
        (-1, 2, 10, 3),
        (11, 2, 10, 3),
        (1, 0.5, 10, 3),
        (1, float("inf"), 10, 3),
        (1, float("nan"), 10, 3),
        (1, 2, 10, 0),
    ],
)
def test_a_policy_that_cannot_work_is_refused(
    base: float, factor: float, cap: float, count: int
) -> None:
    with pytest.raises(ConfigurationError):
        RetryPolicy(seconds(base), factor, seconds(cap), count)
