"""Deadlines that came due: found by index, turned into one message each, with a marker.

A state that waits for I/O is not blamed for what nobody could do: while its intent was never yet
claimed, or its service's circuit is not closed, the deadline is looked at again later.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple
from uuid import UUID, uuid5

from sqlalchemy import text
from sqlalchemy.orm import Session

from fsm.machines import domain_of
from fsm.reducer import RETRY
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
    SELECT e.entity_id, e.machine, e.state, e.partition, CAST(e.deadlines AS text),
           CAST(e.correlation_id AS text), now(),
           (SELECT max(CASE WHEN c.state <> 'CLOSED' THEN greatest(c.barred_until, now())
                            WHEN i.attempt = 0 THEN now() END) + interval '10 seconds'
              FROM intents AS i LEFT JOIN circuits AS c USING (service)
             WHERE i.entity_id = e.entity_id AND i.machine = e.machine
               AND i.sequence = e.last_applied_sequence),
           (SELECT max(c.barred_until)
              FROM circuits AS c
              JOIN unnest(CAST(:machines AS text[]), CAST(:services AS text[]))
                   AS asked (machine, service) USING (service)
             WHERE asked.machine = e.machine AND c.state <> 'CLOSED' AND c.barred_until > now())
      FROM entities AS e
     WHERE e.next_deadline <= now()
     ORDER BY e.next_deadline
     LIMIT :most
       FOR UPDATE OF e SKIP LOCKED
    """
)
# The patience of the intent that is waited for grows with the deadline.
_POSTPONE = text(
    """
    WITH rows AS (
        SELECT * FROM unnest(CAST(:entity_ids AS text[]), CAST(:machines AS text[]),
                             CAST(:untils AS timestamptz[])) AS rows (entity_id, machine, until)
    ), moved AS (
        UPDATE entities AS e SET next_deadline = rows.until
          FROM rows WHERE e.entity_id = rows.entity_id AND e.machine = rows.machine
        RETURNING e.entity_id, e.machine, e.last_applied_sequence AS sequence, rows.until
    )
    UPDATE intents AS i SET not_after = greatest(i.not_after, moved.until)
      FROM moved
     WHERE i.entity_id = moved.entity_id AND i.machine = moved.machine
       AND i.sequence = moved.sequence
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


def take_due(
    session: Session,
    tick: RuntimeTick,
    most: int,
    retried: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Due:
    """The messages of up to `most` entities whose time has come, each marked as emitted.
    `retried` names the services that a machine's automatic retries need."""
    messages: list[Addressed] = []
    marks: list[tuple[str, str, datetime | None, str]] = []
    postponed: list[tuple[str, str, datetime]] = []
    asked = [(machine, each) for machine, services in retried.items() for each in services]
    values = {
        "most": most,
        "machines": [machine for machine, _ in asked],
        "services": [service for _, service in asked],
    }
    for (
        entity_id,
        machine,
        state,
        partition,
        stored,
        correlation_id,
        now,
        awaited,
        barred,
    ) in session.execute(_DUE, values).all():
        deadlines = deadlines_from_json(json.loads(stored))
        due = {name: each for name, each in deadlines.items() if each.at <= now}
        later = [each.at for name, each in deadlines.items() if name not in due]
        held = {state: awaited, RETRY: barred}  # a deadline with a name of its own never waits
        waits = {name: held[name] for name in due if held.get(name) is not None}
        if waits:
            postponed.append((entity_id, machine, min([*later, *waits.values()])))
            due = {name: each for name, each in due.items() if name not in waits}
        else:
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
    _postpone(session, postponed)
    return Due(len(marks) + len(postponed), messages)


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


def _postpone(session: Session, postponed: Sequence[tuple[str, str, datetime]]) -> None:
    if postponed:
        session.execute(
            _POSTPONE,
            {
                "entity_ids": [entity_id for entity_id, _, _ in postponed],
                "machines": [machine for _, machine, _ in postponed],
                "untils": [until for _, _, until in postponed],
            },
        )
