"""I/O that should happen: rows that effects claim once the transaction that wrote them is over."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.orm import Session

from models.canonical import canonical


class Wanted(NamedTuple):
    """An intent as a fold asks for it."""

    intent_id: UUID
    domain: str
    partition: int
    entity_id: str
    machine: str
    kind: str
    payload: Mapping[str, Any]
    correlation_id: UUID
    causation_id: UUID

    @property
    def service(self) -> str:
        """Whom it goes to: the first word of its kind."""
        return self.kind.partition(".")[0]


_PUT = text(
    """
    INSERT INTO intents (intent_id, domain, partition, entity_id, machine, kind, service, payload,
                         correlation_id, causation_id, created_at, due_at)
    SELECT intent_id, domain, partition, entity_id, machine, kind, service, CAST(payload AS json),
           correlation_id, causation_id, :now, :now
      FROM unnest(CAST(:intent_ids AS uuid[]), CAST(:domains AS text[]),
                  CAST(:partitions AS smallint[]), CAST(:entity_ids AS text[]),
                  CAST(:machines AS text[]), CAST(:kinds AS text[]), CAST(:services AS text[]),
                  CAST(:payloads AS text[]), CAST(:correlation_ids AS uuid[]),
                  CAST(:causation_ids AS uuid[]))
           AS rows (intent_id, domain, partition, entity_id, machine, kind, service, payload,
                    correlation_id, causation_id)
    """
)


def put(session: Session, intents: Sequence[Wanted], now: datetime) -> None:
    if not intents:
        return
    session.execute(
        _PUT,
        {
            "now": now,
            "intent_ids": [str(each.intent_id) for each in intents],
            "domains": [each.domain for each in intents],
            "partitions": [each.partition for each in intents],
            "entity_ids": [each.entity_id for each in intents],
            "machines": [each.machine for each in intents],
            "kinds": [each.kind for each in intents],
            "services": [each.service for each in intents],
            "payloads": [canonical(each.payload) for each in intents],
            "correlation_ids": [str(each.correlation_id) for each in intents],
            "causation_ids": [str(each.causation_id) for each in intents],
        },
    )
