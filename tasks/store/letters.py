"""Dead letters as operators see them: found by a filter, taken to be worked on, closed."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import text
from sqlalchemy.orm import Session

MESSAGE = "message"
"""The kind of a letter that is a message, where kinds of intents are asked for."""


class Letter(NamedTuple):
    """One dead letter, whole."""

    dead_letter_id: int
    domain: str
    message_id: str
    entity_id: str
    message_type: str
    correlation_id: str
    reason: str
    error: str
    attempts: int
    created_at: datetime
    closed_at: datetime | None
    closed_as: str | None
    machine: str | None
    kind: str | None
    registration_id: str | None
    history: list[Any]
    envelope: dict[str, Any]
    projections: dict[str, Any]

    @property
    def sequence(self) -> int:
        """The step of its machine that asked for the intent."""
        return int(self.envelope.get("sequence") or 0)


class Filter(NamedTuple):
    """Which letters; what is left empty does not matter."""

    entity: str = ""
    machine: str = ""
    domain: str = ""
    kind: str = ""
    reason: str = ""
    since: datetime | None = None
    closed: bool = False


class Standing(NamedTuple):
    """Where a machine stands now."""

    state: str
    sequence: int
    context: Mapping[str, Any]


_COLUMNS = """
    dead_letter_id, domain, CAST(message_id AS text), entity_id, message_type,
    CAST(correlation_id AS text), reason, error, attempts, created_at, closed_at, closed_as,
    machine, kind, registration_id, history, envelope, projections
"""
# A message names no machine: it is for all machines of its domain.
_WHERE = """
     WHERE (closed_at IS NOT NULL) = :closed
       AND (:entity = '' OR entity_id = :entity)
       AND (:machine = '' OR machine = :machine OR (kind IS NULL AND domain = :domain))
       AND (:kind = '' OR coalesce(kind, 'message') = :kind)
       AND (:reason = '' OR strpos(lower(reason), lower(:reason)) > 0)
       AND (CAST(:since AS timestamptz) IS NULL OR created_at >= :since)
"""
_FIND = text(
    f"SELECT {_COLUMNS} FROM dead_letters {_WHERE} ORDER BY dead_letter_id DESC LIMIT :most"  # noqa: S608
)
_IDS = text(f"SELECT dead_letter_id FROM dead_letters {_WHERE} ORDER BY dead_letter_id")  # noqa: S608
_COUNT = text(f"SELECT count(*) FROM dead_letters {_WHERE}")  # noqa: S608
_READ = text(
    f"SELECT {_COLUMNS} FROM dead_letters"  # noqa: S608
    " WHERE dead_letter_id = ANY (CAST(:ids AS bigint[])) ORDER BY dead_letter_id"
)
# Whoever comes second finds a letter locked or closed, and leaves it.
_TAKE = text(
    f"""
    SELECT {_COLUMNS} FROM dead_letters
     WHERE dead_letter_id = ANY (CAST(:ids AS bigint[])) AND closed_at IS NULL
     ORDER BY dead_letter_id
       FOR UPDATE SKIP LOCKED
    """  # noqa: S608
)
_CLOSE = text(
    "UPDATE dead_letters SET closed_at = clock_timestamp(), closed_as = :closed_as"
    " WHERE dead_letter_id = ANY (CAST(:ids AS bigint[]))"
)
_STANDINGS = text(
    "SELECT entity_id, machine, state, last_applied_sequence, context FROM entities"
    " WHERE entity_id = ANY (CAST(:entity_ids AS text[]))"
)
# The attempt goes on counting, the tries of its budget begin anew; the payload is kept as it was.
_ASK_AGAIN = text(
    """
    INSERT INTO intents (intent_id, domain, partition, entity_id, machine, kind, service, payload,
                         correlation_id, causation_id, created_at, due_at, attempt, sequence,
                         registration_id, history)
    SELECT d.message_id, d.domain, rows.partition, d.entity_id, d.machine, d.kind,
           split_part(d.kind, '.', 1), d.envelope -> 'payload', d.correlation_id,
           CAST(d.envelope ->> 'causation_id' AS uuid), clock_timestamp(), clock_timestamp(),
           d.attempts, coalesce(CAST(d.envelope ->> 'sequence' AS bigint), 0),
           d.registration_id, d.history
      FROM unnest(CAST(:ids AS bigint[]), CAST(:partitions AS smallint[]))
           AS rows (dead_letter_id, partition)
      JOIN dead_letters AS d USING (dead_letter_id)
     ORDER BY d.dead_letter_id
    ON CONFLICT (intent_id) DO NOTHING
    """
)


def find(session: Session, which: Filter, most: int) -> list[Letter]:
    """The newest letters first."""
    return [Letter(*row) for row in session.execute(_FIND, which._asdict() | {"most": most})]


def ids(session: Session, which: Filter) -> list[int]:
    return [found for (found,) in session.execute(_IDS, which._asdict())]


def count(session: Session, which: Filter) -> int:
    return int(session.execute(_COUNT, which._asdict()).scalar_one())


def read(session: Session, wanted: Sequence[int]) -> list[Letter]:
    """Open or closed, and nothing is locked."""
    return [Letter(*row) for row in session.execute(_READ, {"ids": [*wanted]})]


def take(session: Session, wanted: Sequence[int]) -> list[Letter]:
    """Those that are open and that nobody else works on: the caller's until it commits."""
    return [Letter(*row) for row in session.execute(_TAKE, {"ids": [*wanted]})]


def close(session: Session, closed: Sequence[int], closed_as: str) -> None:
    if closed:
        session.execute(_CLOSE, {"ids": [*closed], "closed_as": closed_as})


def standings(session: Session, found: Sequence[Letter]) -> dict[tuple[str, str], Standing]:
    """Where the machines of these letters' entities stand."""
    rows = session.execute(_STANDINGS, {"entity_ids": [*{each.entity_id for each in found}]})
    return {(entity_id, machine): Standing(*rest) for entity_id, machine, *rest in rows}


def ask_again(session: Session, addressed: Mapping[int, int]) -> None:
    """Make the intents of these letters wait again, each in its partition."""
    if addressed:
        values = {"ids": [*addressed], "partitions": [*addressed.values()]}
        session.execute(_ASK_AGAIN, values)
