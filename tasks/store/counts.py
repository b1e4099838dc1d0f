"""How many entities are in which state: kept per partition, so that nobody ever counts rows."""

from collections.abc import Mapping

from sqlalchemy import text
from sqlalchemy.orm import Session

# Ordered, so that two writers of one partition's counters cannot wait for each other in a circle.
_MOVE = text(
    """
    INSERT INTO state_counts AS c (domain, partition, machine, state, entities)
    SELECT :domain, :partition, machine, state, moved
      FROM unnest(CAST(:machines AS text[]), CAST(:states AS text[]), CAST(:moved AS bigint[]))
           AS rows (machine, state, moved)
     ORDER BY machine, state
    ON CONFLICT (domain, partition, machine, state)
        DO UPDATE SET entities = c.entities + EXCLUDED.entities
    """
)


def move(
    session: Session, domain: str, partition: int, moved: Mapping[tuple[str, str], int]
) -> None:
    """Add and take away, for (machine, state)."""
    real = {key: number for key, number in moved.items() if number}
    if real:
        session.execute(
            _MOVE,
            {
                "domain": domain,
                "partition": partition,
                "machines": [machine for machine, _ in real],
                "states": [state for _, state in real],
                "moved": [*real.values()],
            },
        )
