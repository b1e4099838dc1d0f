"""Which messages were applied or refused, so that none is applied twice."""

from collections.abc import Mapping, Sequence
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.orm import Session

_KNOWN = text(
    "SELECT CAST(message_id AS text) FROM processed"
    " WHERE message_id = ANY (CAST(:message_ids AS uuid[]))"
)
_RESULT = text("SELECT result FROM processed WHERE message_id = CAST(:message_id AS uuid)")
# No ON CONFLICT: two partitions with the same message id must not both commit. The loser's
# transaction rolls back and finds the message processed when it tries again.
_RECORD = text(
    """
    INSERT INTO processed (message_id, result)
    SELECT * FROM unnest(CAST(:message_ids AS uuid[]), CAST(:results AS text[]))
    """
)
_FORGET_DEAD = text(
    "DELETE FROM processed"
    " WHERE message_id = ANY (CAST(:message_ids AS uuid[])) AND result = :dead_letter"
)

DEAD_LETTER = "DEAD_LETTER"
"""What is remembered of a dead letter, so that a second delivery is a duplicate."""


def known(session: Session, message_ids: Sequence[UUID]) -> set[UUID]:
    rows = session.execute(_KNOWN, {"message_ids": [str(each) for each in message_ids]})
    return {UUID(found) for (found,) in rows}


def result(session: Session, message_id: UUID) -> str | None:
    """What became of a message; None if it was not seen yet."""
    values = {"message_id": str(message_id)}
    found: str | None = session.execute(_RESULT, values).scalar_one_or_none()
    return found


def record(session: Session, results: Mapping[UUID, str]) -> None:
    if results:
        values = {"message_ids": [str(each) for each in results], "results": [*results.values()]}
        session.execute(_RECORD, values)


def forget_dead(session: Session, message_ids: Sequence[UUID]) -> None:
    """Let these messages in again, of those that are known as dead letters only."""
    if message_ids:
        values = {
            "message_ids": [str(each) for each in message_ids],
            "dead_letter": DEAD_LETTER,
        }
        session.execute(_FORGET_DEAD, values)
