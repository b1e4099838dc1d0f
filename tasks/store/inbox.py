"""Messages that wait to be folded: inserted, taken in order, deleted."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.orm import Session

from models.canonical import canonical
from models.envelope import Envelope


class Waiting(NamedTuple):
    """A message in the inbox, and how often it was begun with its attempt committed first."""

    position: int
    attempts: int
    envelope: Envelope


_PUT = text(
    """
    INSERT INTO inbox (domain, partition, message_id, correlation_id, causation_id, emitted_at,
                       entity_id, message_type, payload)
    SELECT domain, partition, message_id, correlation_id, causation_id, emitted_at,
           entity_id, message_type, CAST(payload AS json)
      FROM unnest(CAST(:domains AS text[]), CAST(:partitions AS smallint[]),
                  CAST(:message_ids AS uuid[]), CAST(:correlation_ids AS uuid[]),
                  CAST(:causation_ids AS uuid[]), CAST(:emitted_ats AS timestamptz[]),
                  CAST(:entity_ids AS text[]), CAST(:message_types AS text[]),
                  CAST(:payloads AS text[]))
           WITH ORDINALITY AS rows (domain, partition, message_id, correlation_id, causation_id,
                                    emitted_at, entity_id, message_type, payload, ord)
     ORDER BY ord
    """
)
_TAKE = text(
    """
    SELECT position, attempts, CAST(message_id AS text), CAST(correlation_id AS text),
           CAST(causation_id AS text), emitted_at, entity_id, message_type, CAST(payload AS text)
      FROM inbox
     WHERE domain = :domain AND partition = :partition
     ORDER BY position
     LIMIT :most
    """
)
_REMOVE = text(
    """
    DELETE FROM inbox
     WHERE domain = :domain AND partition = :partition
       AND position = ANY (CAST(:positions AS bigint[]))
    """
)
_BEGIN = text(
    """
    UPDATE inbox SET attempts = attempts + 1
     WHERE domain = :domain AND partition = :partition AND position = :position
    RETURNING attempts
    """
)
_ANY = text("SELECT EXISTS (SELECT FROM inbox WHERE domain = :domain AND partition = :partition)")
_KNOWN = text(
    "SELECT CAST(message_id AS text) FROM inbox"
    " WHERE message_id = ANY (CAST(:message_ids AS uuid[]))"
)
_UNRUNG = text(
    """
    SELECT domain, partition FROM partitions AS p
     WHERE EXISTS (SELECT FROM inbox AS i
                    WHERE i.domain = p.domain AND i.partition = p.partition)
    UNION ALL
    SELECT 'effects.' || service, 0 FROM unnest(CAST(:services AS text[])) AS known (service)
     WHERE EXISTS (SELECT FROM intents AS i WHERE i.service = known.service AND i.due_at <= now())
    """
)


class Addressed(NamedTuple):
    """A message and the partition that will fold it."""

    domain: str
    partition: int
    envelope: Envelope


def put(session: Session, messages: Sequence[Addressed]) -> None:
    """Store them all, in their order, in one statement."""
    if not messages:
        return
    envelopes = [message.envelope for message in messages]
    session.execute(
        _PUT,
        {
            "domains": [message.domain for message in messages],
            "partitions": [message.partition for message in messages],
            "message_ids": [str(each.message_id) for each in envelopes],
            "correlation_ids": [str(each.correlation_id) for each in envelopes],
            "causation_ids": [each.causation_id and str(each.causation_id) for each in envelopes],
            "emitted_ats": [each.emitted_at for each in envelopes],
            "entity_ids": [each.entity_id for each in envelopes],
            "message_types": [each.message_type for each in envelopes],
            "payloads": [canonical(each.payload) for each in envelopes],
        },
    )


def take(session: Session, domain: str, partition: int, most: int) -> list[Waiting]:
    """The oldest messages of a partition whose lock the caller holds."""
    rows = session.execute(_TAKE, {"domain": domain, "partition": partition, "most": most})
    return [Waiting(position, attempts, _envelope(*stored)) for position, attempts, *stored in rows]


def remove(session: Session, domain: str, partition: int, positions: Sequence[int]) -> None:
    if positions:
        values = {"domain": domain, "partition": partition, "positions": list(positions)}
        session.execute(_REMOVE, values)


def begin(session: Session, domain: str, partition: int, position: int) -> int:
    """Count an attempt; committed before the message is touched, so that a crash is remembered."""
    values = {"domain": domain, "partition": partition, "position": position}
    return int(session.execute(_BEGIN, values).scalar_one())


def any_waiting(session: Session, domain: str, partition: int) -> bool:
    values = {"domain": domain, "partition": partition}
    return bool(session.execute(_ANY, values).scalar_one())


def known(session: Session, message_ids: Sequence[UUID]) -> set[UUID]:
    """Which of these messages wait."""
    rows = session.execute(_KNOWN, {"message_ids": [str(each) for each in message_ids]})
    return {UUID(found) for (found,) in rows}


def waiting_rooms(session: Session, services: Sequence[str]) -> list[tuple[str, int]]:
    """Every partition with something to do, and every service with an intent that is due, be it
    new, to be retried or of a lease that ran out: one index probe each, however much waits."""
    rows = session.execute(_UNRUNG, {"services": [*services]})
    return [(domain, partition) for domain, partition in rows]


def _envelope(
    message_id: str,
    correlation_id: str,
    causation_id: str | None,
    emitted_at: datetime,
    entity_id: str,
    message_type: str,
    payload: str,
) -> Envelope:
    return Envelope.trusted(
        message_id=UUID(message_id),
        correlation_id=UUID(correlation_id),
        causation_id=None if causation_id is None else UUID(causation_id),
        emitted_at=emitted_at,
        entity_id=entity_id,
        message_type=message_type,
        payload=json.loads(payload),
    )
