"""When each live node was last heard. A row is there exactly while the handshake is active.

Rows are locked in the order of their ids, after entities and after the brake.
"""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

from sqlalchemy import text
from sqlalchemy.orm import Session

# No index but the key: an update stays on its page. Neither time ever goes back.
_BEAT = text(
    """
    WITH heard AS MATERIALIZED (
        SELECT node_id FROM heartbeats
         WHERE node_id = ANY (CAST(:node_ids AS text[]))
         ORDER BY node_id
           FOR NO KEY UPDATE
    )
    UPDATE heartbeats AS h
       SET last_seen = GREATEST(h.last_seen, at.now),
           deadline = GREATEST(h.deadline, at.now + :liveness)
      FROM heard,
           (SELECT COALESCE(CAST(:now AS timestamptz), now()) AS now) AS at
     WHERE h.node_id = heard.node_id
    RETURNING h.node_id
    """
)
_BEGIN = text(
    """
    INSERT INTO heartbeats AS h (node_id, last_seen, deadline)
    SELECT node_id, :now, deadline
      FROM unnest(CAST(:node_ids AS text[]), CAST(:deadlines AS timestamptz[]))
           AS rows (node_id, deadline)
     ORDER BY node_id
    ON CONFLICT (node_id) DO UPDATE
        SET last_seen = GREATEST(h.last_seen, EXCLUDED.last_seen),
            deadline = GREATEST(h.deadline, EXCLUDED.deadline)
    """
)
_END = text(
    """
    WITH gone AS MATERIALIZED (
        SELECT node_id FROM heartbeats
         WHERE node_id = ANY (CAST(:node_ids AS text[])) ORDER BY node_id FOR UPDATE
    )
    DELETE FROM heartbeats AS h USING gone WHERE h.node_id = gone.node_id
    """
)
_READ = text(
    "SELECT node_id, deadline FROM heartbeats WHERE node_id = ANY (CAST(:node_ids AS text[]))"
)
_LOCK = text(
    "SELECT node_id, deadline FROM heartbeats WHERE node_id = ANY (CAST(:node_ids AS text[]))"
    " ORDER BY node_id FOR UPDATE"
)
# next_deadline is no part of the projection's digest: moving it changes no projection.
_REARM = text(
    """
    UPDATE entities AS e
       SET next_deadline = LEAST(e.next_deadline, rows.until),
           timeouts_emitted =
               CAST(CAST(e.timeouts_emitted AS jsonb) - CAST(:name AS text) AS json)
      FROM unnest(CAST(:node_ids AS text[]), CAST(:untils AS timestamptz[]))
           AS rows (node_id, until)
     WHERE e.entity_id = rows.node_id AND e.machine = :machine
    """
)


def beat(
    session: Session, node_ids: Collection[str], liveness: timedelta, now: datetime | None
) -> set[str]:
    """Note that these were heard; those that are live are given back."""
    values = {"node_ids": [*node_ids], "liveness": liveness, "now": now}
    return {*session.execute(_BEAT, values).scalars()}


def begin(session: Session, deadlines: Mapping[str, datetime], now: datetime) -> None:
    """Nodes that became active, each with its first deadline."""
    if deadlines:
        values = {"node_ids": [*deadlines], "deadlines": [*deadlines.values()], "now": now}
        session.execute(_BEGIN, values)


def end(session: Session, node_ids: Collection[str]) -> None:
    """Nodes that are active no more."""
    if node_ids:
        session.execute(_END, {"node_ids": [*node_ids]})


def read(session: Session, node_ids: Collection[str]) -> dict[str, datetime]:
    """Until when each counts as alive, without locking."""
    return {row[0]: row[1] for row in session.execute(_READ, {"node_ids": [*node_ids]})}


def lock(session: Session, node_ids: Collection[str]) -> dict[str, datetime]:
    """The same, and nobody moves it before we are done."""
    return {row[0]: row[1] for row in session.execute(_LOCK, {"node_ids": [*node_ids]})}


def rearm(session: Session, machine: str, name: str, untils: Mapping[str, datetime]) -> None:
    """Let a deadline be found again at another time, as if it had not been found yet."""
    if untils:
        session.execute(
            _REARM,
            {
                "machine": machine,
                "name": name,
                "node_ids": [*untils],
                "untils": [*untils.values()],
            },
        )
