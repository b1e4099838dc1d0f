"""Where entities stood when a month was taken off the log: what the rest of it is folded onto."""

from collections.abc import Iterable, Sequence

from sqlalchemy import text
from sqlalchemy.orm import Session

from models.projection import Projection

_PUT = text(
    """
    INSERT INTO log_bases (entity_id, machine, sequence, projection, digest)
    SELECT entity_id, machine, sequence, CAST(projection AS json), digest
      FROM unnest(CAST(:entity_ids AS text[]), CAST(:machines AS text[]),
                  CAST(:sequences AS bigint[]), CAST(:projections AS text[]),
                  CAST(:digests AS bytea[]))
           AS rows (entity_id, machine, sequence, projection, digest)
    ON CONFLICT DO NOTHING
    """
)
_OF = text(
    """
    SELECT CAST(projection AS text) FROM log_bases
     WHERE entity_id = ANY (CAST(:entity_ids AS text[]))
    """
)
# Only the newest base of an entity has log behind it once the month is off.
_FORGET = text(
    """
    DELETE FROM log_bases AS b
     WHERE EXISTS (SELECT FROM log_bases AS newer
                    WHERE newer.entity_id = b.entity_id AND newer.machine = b.machine
                      AND newer.sequence > b.sequence)
    """
)

Bases = dict[tuple[str, str, int], Projection]


def put(session: Session, bases: Sequence[Projection]) -> None:
    if bases:
        session.execute(
            _PUT,
            {
                "entity_ids": [each.entity_id for each in bases],
                "machines": [each.machine for each in bases],
                "sequences": [each.sequence for each in bases],
                "projections": [each.text() for each in bases],
                "digests": [f"\\x{each.digest().hex()}" for each in bases],
            },
        )


def of(session: Session, entity_ids: Iterable[str]) -> Bases:
    """The bases of these entities, by entity, machine and sequence."""
    rows = session.execute(_OF, {"entity_ids": sorted(entity_ids)})
    found = [Projection.from_text(kept) for (kept,) in rows]
    return {(each.entity_id, each.machine, each.sequence): each for each in found}


def forget_older(session: Session) -> None:
    session.execute(_FORGET)
