"""What is asked of the database about nodes, without changing it."""

from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Engine, text


class Node(NamedTuple):
    """A node at a glance."""

    node_id: str
    registration: str | None
    handshake: str | None
    generation: int
    since: datetime
    last_heartbeat: datetime | None


class Pending(NamedTuple):
    """I/O that still should happen for a node."""

    kind: str
    attempt: int
    due_at: datetime
    history: list[Any]


class Letter(NamedTuple):
    """A dead letter of a node."""

    dead_letter_id: int
    message_type: str
    reason: str
    error: str
    created_at: datetime
    closed_as: str | None


class AttemptOutcome(NamedTuple):
    """How one attempt to register a node went."""

    generation: int
    registration_id: str
    status: str
    postgres_applied: bool
    consul_applied: bool
    error: str | None
    recorded_at: datetime


_NODES = text(
    """
    SELECT h.entity_id, r.state, h.state,
           coalesce(CAST(h.context ->> 'generation' AS integer), 0),
           greatest(h.updated_at, r.updated_at), b.last_seen
      FROM entities AS h
      LEFT JOIN entities AS r ON r.entity_id = h.entity_id AND r.machine = 'registration'
      LEFT JOIN heartbeats AS b ON b.node_id = h.entity_id
     WHERE h.machine = 'handshake' AND (:state = '' OR r.state = :state)
       AND (:handshake = '' OR h.state = :handshake)
     ORDER BY h.entity_id
     LIMIT :limit
    """
)
_CONTEXTS = text(
    "SELECT machine, context FROM entities WHERE entity_id = :node_id"
    " AND machine IN ('registration', 'handshake')"
)
_PENDING = text(
    "SELECT kind, attempt, due_at, history FROM intents"
    " WHERE entity_id = :node_id ORDER BY position"
)
_LETTERS = text(
    "SELECT dead_letter_id, message_type, reason, error, created_at, closed_as FROM dead_letters"
    " WHERE entity_id = :node_id ORDER BY dead_letter_id"
)

_OUTCOMES = text(
    "SELECT generation, registration_id, status, postgres_applied, consul_applied, error,"
    " recorded_at FROM registration_outcomes WHERE node_id = :node_id ORDER BY generation"
)


def nodes(engine: Engine, state: str, handshake: str, limit: int) -> list[Node]:
    asked = {"state": state, "handshake": handshake, "limit": limit}
    with engine.connect() as connection:
        return [Node(*row) for row in connection.execute(_NODES, asked)]


def contexts(engine: Engine, node_id: str) -> dict[str, dict[str, Any]]:
    """What both machines know of a node."""
    with engine.connect() as connection:
        rows = connection.execute(_CONTEXTS, {"node_id": node_id})
        return {machine: context for machine, context in rows}


def pending(engine: Engine, node_id: str) -> list[Pending]:
    with engine.connect() as connection:
        return [Pending(*row) for row in connection.execute(_PENDING, {"node_id": node_id})]


def letters(engine: Engine, node_id: str) -> list[Letter]:
    with engine.connect() as connection:
        return [Letter(*row) for row in connection.execute(_LETTERS, {"node_id": node_id})]


def outcomes(engine: Engine, node_id: str) -> list[AttemptOutcome]:
    """One for each attempt that came to something."""
    with engine.connect() as connection:
        rows = connection.execute(_OUTCOMES, {"node_id": node_id})
        return [AttemptOutcome(*row) for row in rows]
