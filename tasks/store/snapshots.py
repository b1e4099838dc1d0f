"""Projections as they are, kept beside the log for reads; the newest of each entity. They never
replace the log."""

from typing import NamedTuple

from sqlalchemy import text
from sqlalchemy.orm import Session

# The canonical text, put together by the database from parts that are stored canonically. A row
# whose bytes are not those of its digest was tampered with: it is passed over and counted.
_TAKE = text(
    """
    WITH page AS MATERIALIZED (
        SELECT entity_id, machine, last_applied_sequence AS sequence, digest,
               '{"context":' || CAST(context AS text)
               || ',"contract_hash":' || to_json(contract_hash)
               || ',"correlation_id":' || to_json(CAST(correlation_id AS text))
               || ',"deadlines":' || CAST(deadlines AS text)
               || ',"entity_id":' || to_json(entity_id)
               || ',"last_event_id":' || to_json(CAST(last_applied_event_id AS text))
               || ',"last_trigger":' || to_json(last_trigger)
               || ',"machine":' || to_json(machine)
               || ',"sequence":' || last_applied_sequence
               || ',"state":' || to_json(state) || '}' AS projection
          FROM entities
         WHERE (entity_id, machine) > (:entity_id, :machine)
           AND (:only = '' OR machine = :only)
         ORDER BY entity_id, machine
         LIMIT :most
    ), taken AS (
        INSERT INTO snapshots AS s (entity_id, machine, sequence, projection, digest, taken_at)
        SELECT entity_id, machine, sequence, CAST(projection AS json), digest, clock_timestamp()
          FROM page
         WHERE sha256(convert_to(projection, 'UTF8')) = digest
         ORDER BY entity_id, machine
        ON CONFLICT (entity_id, machine) DO UPDATE
            SET sequence = EXCLUDED.sequence, projection = EXCLUDED.projection,
                digest = EXCLUDED.digest, taken_at = EXCLUDED.taken_at
          WHERE s.sequence <= EXCLUDED.sequence
        RETURNING entity_id, machine
    )
    SELECT p.entity_id, p.machine, t.entity_id IS NOT NULL AS taken
      FROM page AS p LEFT JOIN taken AS t USING (entity_id, machine)
     ORDER BY p.entity_id, p.machine
    """
)

_CHECK = text(
    """
    WITH page AS MATERIALIZED (
        SELECT entity_id, machine, sequence, digest, CAST(projection AS text) AS projection
          FROM snapshots
         WHERE (entity_id, machine) > (:entity_id, :machine)
           AND (:only = '' OR machine = :only)
         ORDER BY entity_id, machine
         LIMIT :most
    )
    SELECT p.entity_id, p.machine, p.sequence,
           p.digest = sha256(convert_to(p.projection, 'UTF8')) AND EXISTS (
               SELECT FROM event_log AS l
                WHERE l.entity_id = p.entity_id AND l.machine = p.machine
                  AND l.sequence = p.sequence AND l.digest = p.digest
                UNION ALL
               SELECT FROM log_bases AS b
                WHERE b.entity_id = p.entity_id AND b.machine = p.machine
                  AND (b.sequence > p.sequence OR (b.sequence, b.digest) = (p.sequence, p.digest))
           ) AS holds
      FROM page AS p
     ORDER BY p.entity_id, p.machine
    """
)


class Checked(NamedTuple):
    """A snapshot, and whether its bytes are those the log has at its sequence."""

    entity_id: str
    machine: str
    sequence: int
    holds: bool


class Looked(NamedTuple):
    """A row of a page, and whether it was taken."""

    entity_id: str
    machine: str
    taken: bool


def take(session: Session, entity_id: str, machine: str, most: int, only: str = "") -> list[Looked]:
    """Take the next rows after this place, in one statement."""
    values = {"entity_id": entity_id, "machine": machine, "most": most, "only": only}
    return [Looked(*row) for row in session.execute(_TAKE, values)]


def check(session: Session, entity_id: str, machine: str, most: int, only: str) -> list[Checked]:
    """Compare the next snapshots after this place with the log, in one statement."""
    values = {"entity_id": entity_id, "machine": machine, "most": most, "only": only}
    return [Checked(*row) for row in session.execute(_CHECK, values)]
