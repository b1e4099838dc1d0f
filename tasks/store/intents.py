"""I/O that should happen: rows that effects claim once the transaction that wrote them is over."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.orm import Session

from models.canonical import canonical
from tasks.effects.handler import Claimed


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
    sequence: int
    not_after: datetime | None = None

    @property
    def registration_id(self) -> str | None:
        """With the entity and the kind, the natural key of what is to be done."""
        found = self.payload.get("registration_id")
        return None if found is None else str(found)

    @property
    def service(self) -> str:
        """Whom it goes to: the first word of its kind."""
        return self.kind.partition(".")[0]


_PUT = text(
    """
    INSERT INTO intents (intent_id, domain, partition, entity_id, machine, kind, service, payload,
                         correlation_id, causation_id, created_at, due_at, sequence,
                         registration_id, not_after)
    SELECT intent_id, domain, partition, entity_id, machine, kind, service, CAST(payload AS json),
           correlation_id, causation_id, :now, :now, sequence, registration_id, not_after
      FROM unnest(CAST(:intent_ids AS uuid[]), CAST(:domains AS text[]),
                  CAST(:partitions AS smallint[]), CAST(:entity_ids AS text[]),
                  CAST(:machines AS text[]), CAST(:kinds AS text[]), CAST(:services AS text[]),
                  CAST(:payloads AS text[]), CAST(:correlation_ids AS uuid[]),
                  CAST(:causation_ids AS uuid[]), CAST(:sequences AS bigint[]),
                  CAST(:registration_ids AS text[]), CAST(:not_afters AS timestamptz[]))
           WITH ORDINALITY
           AS rows (intent_id, domain, partition, entity_id, machine, kind, service, payload,
                    correlation_id, causation_id, sequence, registration_id, not_after, ord)
     ORDER BY ord
    """
)
# What waits for the same service is looked at first: it is over, or it goes before.
_HURRY = text(
    """
    UPDATE intents AS i SET due_at = :now
      FROM unnest(CAST(:entity_ids AS text[]), CAST(:services AS text[]))
           AS rows (entity_id, service)
     WHERE i.entity_id = rows.entity_id AND i.service = rows.service
       AND i.due_at > :now AND i.leased_until IS NULL
    """
)
# The oldest of an entity's intents for a service goes first, so at most one of them is leased.
_CLAIM = """
    SELECT CAST(i.intent_id AS text), i.domain, i.partition, i.entity_id, i.machine, i.kind,
           CAST(i.payload AS text), i.registration_id, CAST(i.correlation_id AS text),
           CAST(i.causation_id AS text), i.sequence, i.attempt + 1, i.tries, i.not_after,
           CAST(i.history AS text), i.leased_until IS NOT NULL,
           coalesce(e.last_applied_sequence = i.sequence, false)
      FROM intents AS i
      LEFT JOIN entities AS e ON e.entity_id = i.entity_id AND e.machine = i.machine
     WHERE i.service = :service AND i.due_at <= :now {which}
       AND NOT EXISTS (SELECT FROM intents AS o
                        WHERE o.entity_id = i.entity_id AND o.service = i.service
                          AND o.position < i.position)
     ORDER BY i.due_at, i.position
     LIMIT :most
       FOR UPDATE OF i SKIP LOCKED
    """
_CLAIM_DUE = text(_CLAIM.format(which=""))
_CLAIM_NAMED = text(_CLAIM.format(which="AND i.intent_id = ANY (CAST(:named AS uuid[]))"))
_LEASE = text(
    """
    UPDATE intents SET attempt = attempt + 1, leased_until = :until, due_at = :until
     WHERE intent_id = ANY (CAST(:intent_ids AS uuid[]))
    """
)
# All intents of the steps that are being settled, in one order: nobody waits in a circle.
_SETTLING = text(
    """
    SELECT CAST(i.intent_id AS text), i.attempt, i.entity_id, i.machine, i.sequence
      FROM intents AS i
     WHERE EXISTS (SELECT FROM unnest(CAST(:entity_ids AS text[]), CAST(:machines AS text[]),
                                      CAST(:sequences AS bigint[]))
                          AS rows (entity_id, machine, sequence)
                    WHERE rows.entity_id = i.entity_id AND rows.machine = i.machine
                      AND rows.sequence = i.sequence)
       AND i.entity_id = ANY (CAST(:entity_ids AS text[]))
     ORDER BY i.intent_id
       FOR UPDATE
    """
)
_REMOVE = text("DELETE FROM intents WHERE intent_id = ANY (CAST(:intent_ids AS uuid[]))")
_LATER = text(
    """
    UPDATE intents AS i
       SET due_at = rows.due_at, leased_until = NULL, tries = rows.tries,
           not_after = rows.not_after, history = CAST(rows.history AS json)
      FROM unnest(CAST(:intent_ids AS uuid[]), CAST(:due_ats AS timestamptz[]),
                  CAST(:tries AS integer[]), CAST(:not_afters AS timestamptz[]),
                  CAST(:histories AS text[]))
           AS rows (intent_id, due_at, tries, not_after, history)
     WHERE i.intent_id = rows.intent_id
    """
)
_POSTPONE = text(
    """
    UPDATE intents SET not_after = not_after + (:until - due_at), due_at = :until,
                       leased_until = NULL
     WHERE service = :service AND due_at <= :now
    """
)
_RESUME = text(
    """
    UPDATE intents SET due_at = :now
     WHERE service = :service AND due_at > :now AND leased_until IS NULL
    """
)


class Found(NamedTuple):
    """An intent whose time has come. `current`: its machine still stands where it asked for it.
    `lost`: somebody held it and never came back."""

    claimed: Claimed
    lost: bool
    current: bool


class Later(NamedTuple):
    """When an intent is tried again, and what is known of it by then."""

    intent_id: UUID
    due_at: datetime
    tries: int
    not_after: datetime | None
    history: Sequence[Mapping[str, Any]]


class Settling(NamedTuple):
    """Which claims are still ours, and how many intents each step still waits for."""

    attempts: Mapping[UUID, int]
    steps: Mapping[tuple[str, str, int], int]


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
            "sequences": [each.sequence for each in intents],
            "registration_ids": [each.registration_id for each in intents],
            "not_afters": [each.not_after for each in intents],
        },
    )


def hurry(session: Session, intents: Sequence[Wanted], now: datetime) -> None:
    """Have what these entities asked of the same services before looked at now."""
    pairs = sorted({(each.entity_id, each.service) for each in intents})
    if pairs:
        session.execute(
            _HURRY,
            {
                "now": now,
                "entity_ids": [entity_id for entity_id, _ in pairs],
                "services": [service for _, service in pairs],
            },
        )


def due(
    session: Session, service: str, now: datetime, most: int, named: Sequence[UUID] | None = None
) -> list[Found]:
    """Intents whose time has come, the caller's until it commits; others are skipped."""
    values: dict[str, Any] = {"service": service, "now": now, "most": most}
    if named is None:
        rows = session.execute(_CLAIM_DUE, values)
    else:
        rows = session.execute(_CLAIM_NAMED, values | {"named": [str(each) for each in named]})
    return [_found(*row) for row in rows]


def lease(session: Session, claimed: Sequence[Claimed], until: datetime) -> None:
    """Count the attempt; committed before the I/O, so that a crash is remembered."""
    if claimed:
        session.execute(
            _LEASE, {"intent_ids": [str(each.intent_id) for each in claimed], "until": until}
        )


def settling(session: Session, claimed: Sequence[Claimed]) -> Settling:
    """Lock the intents of these steps."""
    rows = session.execute(
        _SETTLING,
        {
            "entity_ids": [each.entity_id for each in claimed],
            "machines": [each.machine for each in claimed],
            "sequences": [each.sequence for each in claimed],
        },
    )
    attempts: dict[UUID, int] = {}
    steps: Counter[tuple[str, str, int]] = Counter()
    for intent_id, attempt, *step in rows:
        attempts[UUID(intent_id)] = attempt
        steps[tuple(step)] += 1
    return Settling(attempts, steps)


def remove(session: Session, intent_ids: Sequence[UUID]) -> None:
    if intent_ids:
        session.execute(_REMOVE, {"intent_ids": [str(each) for each in intent_ids]})


def later(session: Session, again: Sequence[Later]) -> None:
    """Let go of them until they are due again."""
    if again:
        session.execute(
            _LATER,
            {
                "intent_ids": [str(each.intent_id) for each in again],
                "due_ats": [each.due_at for each in again],
                "tries": [each.tries for each in again],
                "not_afters": [each.not_after for each in again],
                "histories": [canonical([*each.history]) for each in again],
            },
        )


def postpone(session: Session, service: str, now: datetime, until: datetime) -> None:
    """The circuit is open: what is due waits, and its patience with it."""
    session.execute(_POSTPONE, {"service": service, "now": now, "until": until})


def resume(session: Session, service: str, now: datetime) -> None:
    """The circuit closed: what waited is due."""
    session.execute(_RESUME, {"service": service, "now": now})


def _found(
    intent_id: str,
    domain: str,
    partition: int,
    entity_id: str,
    machine: str,
    kind: str,
    payload: str,
    registration_id: str | None,
    correlation_id: str,
    causation_id: str,
    sequence: int,
    attempt: int,
    tries: int,
    not_after: datetime | None,
    history: str,
    lost: bool,
    current: bool,
) -> Found:
    claimed = Claimed(
        UUID(intent_id),
        domain,
        partition,
        entity_id,
        machine,
        kind,
        json.loads(payload),
        registration_id,
        UUID(correlation_id),
        UUID(causation_id),
        sequence,
        attempt,
        tries,
        not_after,
        tuple(json.loads(history)),
    )
    return Found(claimed, lost, current)
