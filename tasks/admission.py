"""What may come in from outside: checked whole before anything is stored."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from models.envelope import Envelope
from models.errors import MessageError
from models.registry import MessageRegistry

MOST_AT_ONCE = 10_000
FUTURE = timedelta(minutes=5)
PAST = timedelta(days=30)


def admit(registry: MessageRegistry, envelopes: Sequence[Envelope]) -> list[str]:
    """The domain of each message; what may not come from outside is named by its place."""
    if len(envelopes) > MOST_AT_ONCE:
        raise MessageError(f"{len(envelopes)} messages at once", f"submit at most {MOST_AT_ONCE}")
    return [_domain(registry, at, envelope) for at, envelope in enumerate(envelopes)]


def _domain(registry: MessageRegistry, at: int, envelope: Envelope) -> str:
    try:
        spec = registry.check(envelope)
    except MessageError as error:
        raise MessageError(f"message {at}: {error.message}", error.remedy) from None
    if not spec.external:
        raise MessageError(
            f"message {at}: {envelope.message_type} is not accepted from outside",
            "it is emitted by handlers only",
        )
    return spec.message_type.domain


def refuse_strange_times(envelopes: Sequence[Envelope], now: datetime) -> None:
    """What is older than the memory of duplicates, or lies ahead of any clock that is merely off,
    cannot be told from a message that was applied before."""
    for at, envelope in enumerate(envelopes):
        if not now - PAST <= envelope.emitted_at <= now + FUTURE:
            raise MessageError(
                f"message {at}: emitted_at is {envelope.emitted_at.isoformat()}",
                f"it takes the last {PAST.days} days, and at most {FUTURE.seconds // 60} minutes"
                " ahead of the database's clock",
            )


def causes_elsewhere(envelopes: Sequence[Envelope]) -> list[UUID]:
    """The causes that these messages name and do not bring along."""
    named = {each.causation_id for each in envelopes if each.causation_id is not None}
    return [*(named - {each.message_id for each in envelopes})]


def refuse_broken_chains(envelopes: Sequence[Envelope], unknown: set[UUID]) -> None:
    """A cause must be a message that came before, here or in the same submit."""
    for at, envelope in enumerate(envelopes):
        if envelope.causation_id in unknown:
            raise MessageError(
                f"message {at}: causation_id {envelope.causation_id} is no known message",
                "name the message that caused it, or none",
            )
