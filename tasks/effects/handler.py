"""What an effect is given, what it answers, and what is known of its kinds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from sqlalchemy.orm import Session

from fsm.breaker import BreakerPolicy, CallOutcome
from fsm.retry import FailureKind, RetryPolicy


@dataclass(frozen=True, slots=True)
class Claimed:
    """An intent that is ours until its lease ends. `attempt` counts from 1 and never resets."""

    intent_id: UUID
    domain: str
    partition: int
    entity_id: str
    machine: str
    kind: str
    payload: Mapping[str, Any]
    registration_id: str | None
    correlation_id: UUID
    causation_id: UUID
    sequence: int
    attempt: int
    tries: int
    not_after: datetime | None
    history: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Done:
    """It took effect, now or before. `data` goes into the result's payload."""

    data: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """It did not, or nobody knows. `error` is one sentence, redacted before it is kept."""

    kind: FailureKind
    error: str


@dataclass(frozen=True, slots=True)
class Answer:
    """One outcome for each claimed intent, by its id, and what each call told of the service."""

    outcomes: Mapping[UUID, Done | Failed]
    calls: Sequence[CallOutcome]


class Handler(Protocol):
    """Carries out the intents of one service. It decides nothing and retries nothing.

    It never raises for what the service says: that is a `Failed`. It returns before `until`, a
    reading of `time.monotonic()`; what it had no time for it leaves out of the outcomes, and those
    intents are tried again without counting. `session` is the transaction in which the outcomes
    are settled, open only for handlers that write to our own database (`transactional`).
    """

    transactional: bool

    def perform(
        self, claimed: Sequence[Claimed], until: float, session: Session | None
    ) -> Answer: ...


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of intent: how it is undone, and which events tell what became of it.

    An establishing intent is dropped once its machine moved on; a removal outlives it.
    `flag` is the field of the result's payload that says whether it was applied. Of a kind without
    events nobody is told: no machine waits for it.
    """

    name: str
    succeeded: str | None = None
    failed: str | None = None
    flag: str | None = None
    error_field: str = "error"
    inverse: str | None = None
    removal: bool = False


@dataclass(frozen=True)
class Service:
    """Whom a group of kinds goes to, and how patient we are with it.

    `rechecked`: what a lost lease may have written is looked at again.
    """

    name: str
    handler: Handler
    kinds: tuple[Kind, ...]
    retry: RetryPolicy
    breaker: BreakerPolicy
    batch: int
    lease_seconds: float
    rechecked: bool = False
