"""What the garbage collection reads and writes: who stands behind what, and who does no more."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.orm import Session

from models.canonical import canonical

DEAD = ("failed", "deregistered", "unregistered")
"""States of a registration that keep nothing in Consul, and no record for long."""

# Held by an open transaction: a frozen process loses it with its connection.
_LOCK = text("SELECT pg_try_advisory_xact_lock(hashtext('rollcall.gc'))")
_KEEP = text("SELECT 1")
_LIVE = text(
    """
    SELECT e.entity_id
      FROM unnest(CAST(:node_ids AS text[]), CAST(:registration_ids AS text[]))
           AS rows (node_id, registration_id)
      JOIN entities AS e ON e.entity_id = rows.node_id AND e.machine = 'registration'
     WHERE e.context->>'registration_id' = rows.registration_id
       AND e.state <> ALL (CAST(:dead AS text[]))
    """
)
_WALK = text(
    """
    SELECT r.node_id, r.registration_id, e.state,
           coalesce(e.context->>'registration_id' = r.registration_id, false),
           greatest(r.updated_at, e.updated_at)
      FROM node_records AS r
      LEFT JOIN entities AS e ON e.entity_id = r.node_id AND e.machine = 'registration'
     WHERE r.node_id > :after
     ORDER BY r.node_id
     LIMIT :most
    """
)
# The machines' rows are held, so that nobody takes the attempt up again meanwhile.
_HOLD = text(
    """
    SELECT entity_id FROM entities
     WHERE entity_id = ANY (CAST(:node_ids AS text[])) AND machine = 'registration'
     ORDER BY entity_id
       FOR UPDATE SKIP LOCKED
    """
)
_CLEAN = text(
    """
    WITH dead AS (
        SELECT r.node_id
          FROM node_records AS r
          LEFT JOIN entities AS e ON e.entity_id = r.node_id AND e.machine = 'registration'
         WHERE r.node_id = ANY (CAST(:node_ids AS text[])) AND r.updated_at < :before
           AND (e.entity_id IS NULL
                OR e.entity_id = ANY (CAST(:held AS text[])) AND e.updated_at < :before
                   AND (e.state = ANY (CAST(:dead AS text[]))
                        OR e.context->>'registration_id' IS DISTINCT FROM r.registration_id))
         ORDER BY r.node_id
           FOR UPDATE OF r SKIP LOCKED
    )
    DELETE FROM node_records AS r USING dead WHERE r.node_id = dead.node_id
    RETURNING r.node_id, r.registration_id
    """
)
# Whoever still has something to be done in Consul is looked at by the next run.
_FORGOTTEN = text(
    """
    SELECT e.entity_id, CAST((
               SELECT l.intent_id FROM effect_ledger AS l
                WHERE l.entity_id = e.entity_id AND l.kind = 'consul.register'
                  AND l.registration_id = e.context->>'registration_id'
                ORDER BY l.settled_at DESC, l.intent_id LIMIT 1) AS text)
      FROM unnest(CAST(:node_ids AS text[]), CAST(:registration_ids AS text[]))
           AS rows (node_id, registration_id)
      JOIN entities AS e ON e.entity_id = rows.node_id AND e.machine = 'registration'
     WHERE e.state = 'registered' AND e.context->>'registration_id' = rows.registration_id
       AND e.updated_at < :before AND e.entity_id = ANY (CAST(:held AS text[]))
       AND NOT EXISTS (SELECT FROM intents AS i
                        WHERE i.entity_id = e.entity_id AND i.service = 'consul')
    """
)
# Silence ends a node by its deadline; these are the ones for whom that went astray.
_SILENT = text(
    """
    SELECT h.node_id, CAST(e.last_applied_event_id AS text), CAST(e.correlation_id AS text)
      FROM heartbeats AS h
      JOIN entities AS e ON e.entity_id = h.node_id AND e.machine = 'handshake'
     WHERE h.deadline < :before AND e.state = 'active'
     ORDER BY h.node_id
     LIMIT :most
       FOR UPDATE OF h SKIP LOCKED
    """
)
_LOOK_AGAIN = text(
    """
    INSERT INTO consul_rechecks (node_id, due_at, reason)
    SELECT node_id, CAST(:due_at AS timestamptz), 'nobody knows what was written'
      FROM unnest(CAST(:node_ids AS text[])) AS node_id
     ORDER BY node_id
    ON CONFLICT (node_id) DO UPDATE SET due_at = greatest(consul_rechecks.due_at, EXCLUDED.due_at)
    """
)
_RECHECKS = text("SELECT node_id FROM consul_rechecks WHERE due_at <= :now")
_RECHECKED = text(
    "DELETE FROM consul_rechecks WHERE due_at <= :now AND node_id = ANY (CAST(:node_ids AS text[]))"
)
_NOTE = text(
    """
    INSERT INTO registration_gc_log (run_timestamp, nodes_cleaned, node_ids, details)
    VALUES (:now, :nodes_cleaned, CAST(:node_ids AS json), CAST(:details AS json))
    """
)
_RAN_SINCE = text("SELECT EXISTS (SELECT FROM registration_gc_log WHERE run_timestamp > :since)")


class Kept(NamedTuple):
    """A node's record. `own`: its registration is the one that wrote it."""

    node_id: str
    registration_id: str
    state: str | None
    own: bool
    changed_at: datetime

    @property
    def is_dead(self) -> bool:
        return self.state is None or not self.own or self.state in DEAD


class Silent(NamedTuple):
    """A node that counts as active and was not heard for long."""

    node_id: str
    last_event_id: UUID
    correlation_id: UUID


def alone(session: Session) -> bool:
    """Become the one that collects until the transaction ends, unless somebody does."""
    return bool(session.execute(_LOCK).scalar_one())


def stay(session: Session) -> None:
    """Tell the database that whoever holds the lock is still at work."""
    session.execute(_KEEP)


def live(session: Session, owners: Mapping[str, str]) -> set[str]:
    """The nodes (id → registration_id) behind which that very registration stands."""
    values = {"node_ids": [*owners], "registration_ids": [*owners.values()], "dead": [*DEAD]}
    return {node_id for (node_id,) in session.execute(_LIVE, values)}


def walk(session: Session, after: str, most: int) -> list[Kept]:
    """The next records by key."""
    return [Kept(*row) for row in session.execute(_WALK, {"after": after, "most": most})]


def hold(session: Session, node_ids: Sequence[str]) -> list[str]:
    """Lock the registrations of these nodes; those another holds are left out."""
    return [row[0] for row in session.execute(_HOLD, {"node_ids": [*node_ids]})]


def clean(
    session: Session, node_ids: Sequence[str], held: Sequence[str], before: datetime
) -> dict[str, str]:
    """Delete the records of dead attempts; node → the registration that had written it."""
    values = {"node_ids": [*node_ids], "held": [*held], "before": before, "dead": [*DEAD]}
    return {node_id: owner for node_id, owner in session.execute(_CLEAN, values)}


def forgotten(
    session: Session, owners: Mapping[str, str], held: Sequence[str], before: datetime
) -> dict[str, UUID | None]:
    """Of these nodes, those still registered and unchanged; with the intent that was last."""
    values = {
        "node_ids": [*owners],
        "registration_ids": [*owners.values()],
        "held": [*held],
        "before": before,
    }
    rows = session.execute(_FORGOTTEN, values)
    return {node_id: None if last is None else UUID(last) for node_id, last in rows}


def silent(session: Session, before: datetime, most: int) -> list[Silent]:
    rows = session.execute(_SILENT, {"before": before, "most": most})
    return [Silent(node_id, UUID(event), UUID(chain)) for node_id, event, chain in rows]


def look_again(session: Session, node_ids: Collection[str], now: datetime) -> None:
    """Have these nodes looked at in Consul, once whoever may still write had the time to."""
    if node_ids:
        values = {"node_ids": sorted(node_ids), "due_at": now + timedelta(minutes=1)}
        session.execute(_LOOK_AGAIN, values)


def rechecks(session: Session, now: datetime) -> set[str]:
    return {node_id for (node_id,) in session.execute(_RECHECKS, {"now": now})}


def rechecked(session: Session, node_ids: Sequence[str], now: datetime) -> None:
    if node_ids:
        session.execute(_RECHECKED, {"node_ids": [*node_ids], "now": now})


def ran_since(session: Session, since: datetime) -> bool:
    return bool(session.execute(_RAN_SINCE, {"since": since}).scalar_one())


def note(
    session: Session, now: datetime, node_ids: Sequence[str], details: Mapping[str, Any]
) -> None:
    values = {
        "now": now,
        "nodes_cleaned": len(node_ids),
        "node_ids": canonical([*node_ids]),
        "details": canonical(dict(details)),
    }
    session.execute(_NOTE, values)
