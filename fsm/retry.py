"""When a failed effect is tried again, or why it is not: exponential backoff with full jitter."""

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import assert_never

from models.errors import ConfigurationError


class FailureKind(StrEnum):
    """What a failure says about trying again."""

    TRANSIENT = "transient"  # it did not happen, and may succeed later
    UNKNOWN = "unknown"  # it may have happened: a timeout, a 5xx; effects are idempotent
    PERMANENT = "permanent"  # it will be refused however often it is asked


class GiveUpReason(StrEnum):
    """Why a failed effect ends in the dead letters."""

    PERMANENT_ERROR = "permanent_error"
    ATTEMPTS_EXHAUSTED = "attempts_exhausted"
    DEADLINE = "deadline"


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How patient an effect is: `attempts` counts the first try too."""

    base: timedelta
    factor: float
    cap: timedelta
    attempts: int

    def __post_init__(self) -> None:
        if not timedelta(0) < self.base <= self.cap:
            raise ConfigurationError(
                f"retry delays from {self.base} to {self.cap} cannot grow",
                "the base is above zero and not above the cap",
            )
        if not 1 <= self.factor < math.inf:
            raise ConfigurationError(
                f"retry factor is {self.factor}", "it is a finite number, at least 1"
            )
        if self.attempts < 1:
            raise ConfigurationError(f"retry attempts are {self.attempts}", "at least 1")


@dataclass(frozen=True, slots=True)
class RetryAt:
    """The effect is due again, as attempt number `attempt`."""

    at: datetime
    attempt: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The effect is not tried again."""

    reason: GiveUpReason


def ceiling(policy: RetryPolicy, attempt: int) -> timedelta:
    """The longest wait after failed attempt number `attempt`, the first being 1."""
    if attempt < 1:
        raise ValueError(f"attempts count from 1, not {attempt}")
    growth = (attempt - 1) * math.log(policy.factor)
    if growth >= math.log(policy.cap / policy.base):
        return policy.cap
    return min(policy.cap, policy.base * policy.factor ** (attempt - 1))


def delay(policy: RetryPolicy, attempt: int, jitter: float) -> timedelta:
    """Full jitter: anywhere below the ceiling, so that a herd which failed together disperses."""
    if not 0 <= jitter < 1:
        raise ValueError(f"jitter is in [0, 1), not {jitter}")
    return ceiling(policy, attempt) * jitter


def next_attempt(
    policy: RetryPolicy,
    attempt: int,
    failure: FailureKind,
    now: datetime,
    not_after: datetime | None,
    jitter: float,
) -> RetryAt | GiveUp:
    """What follows the failure of attempt number `attempt`, counted within its budget from 1.

    A retry may be due at `not_after` but not later; None leaves only the attempts to bound it.
    """
    match failure:
        case FailureKind.PERMANENT:
            return GiveUp(GiveUpReason.PERMANENT_ERROR)
        case FailureKind.TRANSIENT | FailureKind.UNKNOWN:
            pass
        case _:
            assert_never(failure)
    if attempt >= policy.attempts:
        return GiveUp(GiveUpReason.ATTEMPTS_EXHAUSTED)
    at = now + delay(policy, attempt, jitter)
    if not_after is not None and at > not_after:
        return GiveUp(GiveUpReason.DEADLINE)
    return RetryAt(at, attempt + 1)
