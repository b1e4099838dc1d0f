"""The append-only log of applied events. The database itself refuses to change or delete a row."""

import json
from collections.abc import Sequence
from datetime import date, datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.orm import Session

from models.canonical import canonical


class Applied(NamedTuple):
    """One event as it was applied to one machine of one entity."""

    domain: str
    entity_id: str
    machine: str
    sequence: int
    applied_at: datetime
    message_id: UUID
    message_type: str
    correlation_id: UUID
    message_correlation_id: UUID
    causation_id: UUID | None
    emitted_at: datetime
    trigger: str
    data: dict[str, Any]
    path: tuple[str, ...]
    contract_hash: str
    digest: bytes


_APPEND = text(
    """
    INSERT INTO event_log (domain, entity_id, machine, sequence, applied_at, message_id,
                           message_type, correlation_id, message_correlation_id, causation_id,
                           emitted_at, trigger, data, path, contract_hash, digest)
    SELECT domain, entity_id, machine, sequence, applied_at, message_id, message_type,
           correlation_id, message_correlation_id, causation_id, emitted_at, trigger,
           CAST(data AS json), path, contract_hash, digest
      FROM unnest(CAST(:domains AS text[]), CAST(:entity_ids AS text[]), CAST(:machines AS text[]),
                  CAST(:sequences AS bigint[]), CAST(:applied_ats AS timestamptz[]),
                  CAST(:message_ids AS uuid[]), CAST(:message_types AS text[]),
                  CAST(:correlation_ids AS uuid[]), CAST(:message_correlation_ids AS uuid[]),
                  CAST(:causation_ids AS uuid[]), CAST(:emitted_ats AS timestamptz[]),
                  CAST(:triggers AS text[]), CAST(:datas AS text[]), CAST(:paths AS text[]),
                  CAST(:contract_hashes AS text[]), CAST(:digests AS bytea[]))
           AS rows (domain, entity_id, machine, sequence, applied_at, message_id, message_type,
                    correlation_id, message_correlation_id, causation_id, emitted_at, trigger, data,
                    path, contract_hash, digest)
    """
)
_SELECT = """
    SELECT domain, entity_id, machine, sequence, applied_at, CAST(message_id AS text), message_type,
           CAST(correlation_id AS text), CAST(message_correlation_id AS text),
           CAST(causation_id AS text), emitted_at, trigger, CAST(data AS text), path,
           contract_hash, digest
      FROM event_log
"""
_OF_ENTITY = text(f"{_SELECT} WHERE entity_id = :entity_id ORDER BY applied_at, machine, sequence")
# By key, in its order: a replay holds no transaction for long and no log in memory.
_AFTER = text(
    f"""
    {_SELECT}
     WHERE (entity_id, machine, sequence) > (:entity_id, :machine, :sequence)
       AND (:only = '' OR machine = :only) AND applied_at < :before
     ORDER BY entity_id, machine, sequence
     LIMIT :most
    """
)
_TAILS = text(
    f"""
    {_SELECT} AS l JOIN unnest(CAST(:entity_ids AS text[]), CAST(:machines AS text[]),
                               CAST(:sequences AS bigint[])) AS k (e, m, s)
      ON l.entity_id = k.e AND l.machine = k.m AND l.sequence > k.s
     ORDER BY entity_id, machine, sequence
    """
)
# One at a time: IF NOT EXISTS does not help two that look at the same moment.
_ALONE = text("SELECT pg_advisory_xact_lock(hashtext('event_log_add_months'))")
_LISTED = text(
    r"""
    SELECT name, begins, CAST(begins + interval '1 month' AS date), bytes
      FROM (SELECT c.relname AS name, to_date(right(c.relname, 6), 'YYYYMM') AS begins,
                   pg_total_relation_size(c.oid) AS bytes
              FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
             WHERE i.inhparent = CAST('event_log' AS regclass)
               AND c.relname ~ '^event_log_[0-9]{6}$') AS listed
     ORDER BY begins
    """
)
_ASTRAY = text("SELECT EXISTS (SELECT FROM event_log_default WHERE applied_at < :before)")
_DETACH = text("SELECT event_log_detach(:name)")
_MONTHS = text("SELECT event_log_add_months(2)")


def append(session: Session, rows: Sequence[Applied]) -> None:
    if not rows:
        return
    session.execute(
        _APPEND,
        {
            "domains": [row.domain for row in rows],
            "entity_ids": [row.entity_id for row in rows],
            "machines": [row.machine for row in rows],
            "sequences": [row.sequence for row in rows],
            "applied_ats": [row.applied_at for row in rows],
            "message_ids": [str(row.message_id) for row in rows],
            "message_types": [row.message_type for row in rows],
            "correlation_ids": [str(row.correlation_id) for row in rows],
            "message_correlation_ids": [str(row.message_correlation_id) for row in rows],
            "causation_ids": [row.causation_id and str(row.causation_id) for row in rows],
            "emitted_ats": [row.emitted_at for row in rows],
            "triggers": [row.trigger for row in rows],
            "datas": [canonical(row.data) for row in rows],
            "paths": [" > ".join(row.path) for row in rows],
            "contract_hashes": [row.contract_hash for row in rows],
            "digests": [f"\\x{row.digest.hex()}" for row in rows],
        },
    )


def of_entity(session: Session, entity_id: str) -> list[Applied]:
    """Everything that was applied to an entity, on all its machines, in order."""
    return [_applied(*row) for row in session.execute(_OF_ENTITY, {"entity_id": entity_id})]


class Place(NamedTuple):
    """Where in the log a reader stands."""

    entity_id: str = ""
    machine: str = ""
    sequence: int = 0


def after(
    session: Session, place: Place, most: int, only: str = "", before: str = "infinity"
) -> list[Applied]:
    """The next events, entity by entity, each entity's in order; `only` those of one machine, or
    those applied before a time."""
    values = {**place._asdict(), "most": most, "only": only, "before": before}
    return [_applied(*row) for row in session.execute(_AFTER, values)]


def tails(session: Session, places: Sequence[Place]) -> list[Applied]:
    """What each of these entities' logs has beyond a sequence."""
    values = {
        "entity_ids": [place.entity_id for place in places],
        "machines": [place.machine for place in places],
        "sequences": [place.sequence for place in places],
    }
    return [_applied(*row) for row in session.execute(_TAILS, values)]


class Month(NamedTuple):
    """A month of the log, as one table."""

    name: str
    begins: date
    ends: date
    bytes: int


def months(session: Session) -> list[Month]:
    """The months that are on the log, oldest first."""
    return [Month(*row) for row in session.execute(_LISTED)]


def any_astray(session: Session, before: date) -> bool:
    """Whether the default partition holds events of that time: no month was there for them."""
    return bool(session.execute(_ASTRAY, {"before": before}).scalar_one())


def detach(session: Session, month: Month) -> None:
    """Take the month off the log; its table stays, as unchangeable as before."""
    session.execute(_DETACH, {"name": month.name})


def add_months(session: Session) -> None:
    """Make the partitions of this month and the next two."""
    session.execute(_ALONE)
    session.execute(_MONTHS)


def _applied(*row: Any) -> Applied:
    (domain, entity_id, machine, sequence, applied_at, message_id, message_type, correlation_id,
     message_correlation_id, causation_id, emitted_at, trigger, data, path, contract_hash,
     digest) = row  # fmt: skip
    return Applied(
        domain=domain,
        entity_id=entity_id,
        machine=machine,
        sequence=sequence,
        applied_at=applied_at,
        message_id=UUID(message_id),
        message_type=message_type,
        correlation_id=UUID(correlation_id),
        message_correlation_id=UUID(message_correlation_id),
        causation_id=None if causation_id is None else UUID(causation_id),
        emitted_at=emitted_at,
        trigger=trigger,
        data=json.loads(data),
        path=tuple(path.split(" > ")),
        contract_hash=contract_hash,
        digest=bytes(digest),
    )
