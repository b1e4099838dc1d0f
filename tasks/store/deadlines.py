"""Deadlines that came due: found by index, turned into one message each, with a marker."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID, uuid5

from sqlalchemy import text
from sqlalchemy.orm import Session

from fsm.machines import domain_of
from models.canonical import canonical
from models.envelope import Envelope
from models.messages.runtime import DeadlinePassed, RuntimeTick
from models.projection import deadlines_from_json
from models.topics import Category
from tasks.store.inbox import Addressed

# The same deadline is the same message, whichever beat's tick finds it.
_NAMESPACE = UUID("6f1c0f5e-8f0b-5b0f-9f57-0d2b5b7f2f11")

# now() and not clock_timestamp(): an index cannot be searched by what changes while it is searched.
_DUE = text(
    """
    SELECT entity_id, machine, partition, CAST(deadlines AS text), CAST(correlation_id AS text),
           now()
      FROM entities
     WHERE next_deadline <= now()
     ORDER BY next_deadline
     LIMIT :most
       FOR UPDATE SKIP LOCKED
    """
)
_MARK = text(
    """
    UPDATE entities AS e
       SET next_deadline = rows.next_deadline,
           timeouts_emitted = CAST(rows.emitted AS json)
      FROM unnest(CAST(:entity_ids AS text[]), CAST(:machines AS text[]),
                  CAST(:next_deadlines AS timestamptz[]), CAST(:emitted AS text[]))
           AS rows (entity_id, machine, next_deadline, emitted)
     WHERE e.entity_id = rows.entity_id AND e.machine = rows.machine
    """
)


class Due(NamedTuple):
    """How many entities' time has come, and the messages that say so."""

    entities: int
    messages: list[Addressed]


def take_due(session: Session, tick: RuntimeTick, most: int) -> Due:
    """The messages of up to `most` entities whose time has come, each marked as emitted."""
    messages: list[Addressed] = []
    marks: list[tuple[str, str, datetime | None, str]] = []
    for entity_id, machine, partition, stored, correlation_id, now in session.execute(
        _DUE, {"most": most}
    ):
        deadlines = deadlines_from_json(json.loads(stored))
        due = {name: each for name, each in deadlines.items() if each.at <= now}
        later = [each.at for name, each in deadlines.items() if name not in due]
        marks.append(
            (
                entity_id,
                machine,
                min(later, default=None),
                canonical(dict.fromkeys(due, now.isoformat())),
            )
        )
        domain = domain_of(machine)
        for name, deadline in due.items():
            payload = DeadlinePassed(
                machine=machine,
                deadline=name,
                set_by=deadline.set_by,
                tick_sequence=tick.tick_sequence,
                runtime_id=tick.runtime_id,
                now=now,
            )
            envelope = Envelope.trusted(
                message_id=uuid5(_NAMESPACE, f"{machine}:{entity_id}:{name}:{deadline.set_by}"),
                correlation_id=UUID(correlation_id),
                causation_id=deadline.cause,
                emitted_at=now,
                entity_id=entity_id,
                message_type=f"{domain}.{Category.EVENTS.value}.{DeadlinePassed.name}",
                payload=payload.model_dump(mode="json"),
            )
            messages.append(Addressed(domain, partition, envelope))
    _mark(session, marks)
    return Due(len(marks), messages)


def _mark(session: Session, marks: Sequence[tuple[str, str, datetime | None, str]]) -> None:
    if marks:
        session.execute(
            _MARK,
            {
                "entity_ids": [entity_id for entity_id, _, _, _ in marks],
                "machines": [machine for _, machine, _, _ in marks],
                "next_deadlines": [next_deadline for _, _, next_deadline, _ in marks],
                "emitted": [emitted for _, _, _, emitted in marks],
            },
        )
