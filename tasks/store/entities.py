"""Where every entity of every machine stands: locked, read and written in sets."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.orm import Session

from models.canonical import canonical
from models.errors import StaleWriteError
from models.projection import Projection, deadlines_as_json, deadlines_from_json

Stored = Mapping[str, Mapping[str, Projection]]

_COLUMNS = """
    entity_id, machine, state, CAST(context AS text) AS context,
    CAST(deadlines AS text) AS deadlines, last_applied_sequence,
    CAST(last_applied_event_id AS text) AS last_applied_event_id, last_trigger,
    CAST(correlation_id AS text) AS correlation_id, contract_hash
"""
# The outer half tells which entities exist, the inner one which of them could be locked.
_LOCK = text(
    f"""
    WITH locked AS MATERIALIZED (
        SELECT {_COLUMNS}, updated_at FROM entities
         WHERE entity_id = ANY (CAST(:entity_ids AS text[]))
         ORDER BY entity_id, machine
           FOR UPDATE SKIP LOCKED
    )
    SELECT entity_id, machine, l.state, l.context, l.deadlines, l.last_applied_sequence,
           l.last_applied_event_id, l.last_trigger, l.correlation_id, l.contract_hash, l.updated_at
      FROM entities AS e LEFT JOIN locked AS l USING (entity_id, machine)
     WHERE e.entity_id = ANY (CAST(:entity_ids AS text[]))
    """  # noqa: S608
)
_READ = text(
    f"SELECT {_COLUMNS} FROM entities WHERE entity_id = ANY (CAST(:entity_ids AS text[]))"  # noqa: S608
)
_HOLD = text(
    "SELECT machine, last_applied_sequence FROM entities"
    " WHERE entity_id = ANY (CAST(:entity_ids AS text[])) ORDER BY entity_id, machine FOR UPDATE"
)
_KEPT = text(
    f"SELECT {_COLUMNS}, digest FROM entities WHERE entity_id = ANY (CAST(:entity_ids AS text[]))"  # noqa: S608
)
_WITHOUT_LOG = text(
    """
    SELECT entity_id, machine, last_applied_sequence,
           NOT EXISTS (SELECT FROM event_log AS l
                        WHERE l.entity_id = e.entity_id AND l.machine = e.machine)
      FROM entities AS e
     WHERE (entity_id, machine) > (:entity_id, :machine)
     ORDER BY entity_id, machine
     LIMIT :most
    """
)
_ROWS = """
    unnest(CAST(:entity_ids AS text[]), CAST(:machines AS text[]), CAST(:domains AS text[]),
           CAST(:partitions AS smallint[]), CAST(:states AS text[]), CAST(:contexts AS text[]),
           CAST(:deadlines AS text[]), CAST(:next_deadlines AS timestamptz[]),
           CAST(:sequences AS bigint[]), CAST(:event_ids AS uuid[]), CAST(:triggers AS text[]),
           CAST(:correlation_ids AS uuid[]), CAST(:contract_hashes AS text[]),
           CAST(:digests AS bytea[]), CAST(:bases AS bigint[]))
    AS rows (entity_id, machine, domain, partition, state, context, deadlines, next_deadline,
             sequence, event_id, trigger, correlation_id, contract_hash, digest, base)
"""
_INSERT = text(
    f"""
    INSERT INTO entities (entity_id, machine, domain, partition, state, context, deadlines,
                          next_deadline, last_applied_sequence, last_applied_event_id, last_trigger,
                          correlation_id, contract_hash, digest, created_at, updated_at)
    SELECT entity_id, machine, domain, partition, state, CAST(context AS json),
           CAST(deadlines AS json), next_deadline, sequence, event_id, trigger, correlation_id,
           contract_hash, digest, :now, :now
      FROM {_ROWS}
    ON CONFLICT DO NOTHING
    """  # noqa: S608
)
_UPDATE = text(
    f"""
    UPDATE entities AS e
       SET state = rows.state, context = CAST(rows.context AS json),
           deadlines = CAST(rows.deadlines AS json), next_deadline = rows.next_deadline,
           timeouts_emitted = '{{}}', last_applied_sequence = rows.sequence,
           last_applied_event_id = rows.event_id, last_trigger = rows.trigger,
           contract_hash = rows.contract_hash, digest = rows.digest, updated_at = :now
      FROM {_ROWS}
     WHERE e.entity_id = rows.entity_id AND e.machine = rows.machine
       AND e.last_applied_sequence = rows.base
    """  # noqa: S608
)


class Change(NamedTuple):
    """A projection to write, and the sequence its row must still have."""

    domain: str
    partition: int
    base: int
    projection: Projection
    digest: bytes


def lock(
    session: Session, entity_ids: Iterable[str], since: dict[str, datetime] | None = None
) -> tuple[Stored, set[str]]:
    """Lock all machines of these entities; those another holds are named, not waited for. `since`
    is told when each node's registration moved last."""
    found: dict[str, dict[str, Projection]] = {}
    held: set[str] = set()
    rows = session.execute(_LOCK, {"entity_ids": sorted(entity_ids)})
    for entity_id, machine, *row, moved_at in rows:
        if row[0] is None:
            held.add(entity_id)
        else:
            if since is not None and machine == "registration":
                since[entity_id] = moved_at
            found.setdefault(entity_id, {})[machine] = _projection(entity_id, machine, *row)
    return {each: machines for each, machines in found.items() if each not in held}, held


def read(session: Session, entity_ids: Iterable[str]) -> Stored:
    """Look without locking."""
    found: dict[str, dict[str, Projection]] = {}
    for entity_id, machine, *row in session.execute(_READ, {"entity_ids": sorted(entity_ids)}):
        found.setdefault(entity_id, {})[machine] = _projection(entity_id, machine, *row)
    return found


def confirm(session: Session, projections: Collection[Projection]) -> None:
    """Lock one entity's rows and refuse to go on if any moved since it was read: for a decision
    that rests on more rows than it writes."""
    read = {each.machine: each.sequence for each in projections}
    entity_ids = sorted({each.entity_id for each in projections})
    held = {machine: at for machine, at in session.execute(_HOLD, {"entity_ids": entity_ids})}
    if held != read:
        raise StaleWriteError("the entity moved meanwhile", "try again")


def kept(
    session: Session, entity_ids: Iterable[str]
) -> dict[tuple[str, str], tuple[Projection, bytes]]:
    """The rows as they are, each with the digest it is kept with."""
    found = {}
    for entity_id, machine, *row, digest in session.execute(
        _KEPT, {"entity_ids": sorted(entity_ids)}
    ):
        found[entity_id, machine] = (_projection(entity_id, machine, *row), bytes(digest))
    return found


class Walked(NamedTuple):
    """A row met on the way through all of them."""

    entity_id: str
    machine: str
    sequence: int
    has_no_log: bool


def after(session: Session, entity_id: str, machine: str, most: int) -> list[Walked]:
    """The next rows by key, and whether the log knows them."""
    values = {"entity_id": entity_id, "machine": machine, "most": most}
    return [Walked(*row) for row in session.execute(_WITHOUT_LOG, values)]


def save(session: Session, changes: Sequence[Change], now: datetime) -> None:
    """Write them all, or refuse: a row that moved meanwhile is never overwritten."""
    for statement, rows in (
        (_INSERT, [change for change in changes if change.base == 0]),
        (_UPDATE, [change for change in changes if change.base > 0]),
    ):
        if rows:
            written = session.execute(statement, _values(rows, now)).rowcount  # type: ignore[attr-defined]
            if written != len(rows):
                raise StaleWriteError(
                    f"{len(rows) - written} of {len(rows)} entities moved meanwhile", "try again"
                )


def _values(changes: Sequence[Change], now: datetime) -> dict[str, Any]:
    projections = [change.projection for change in changes]
    return {
        "now": now,
        "entity_ids": [each.entity_id for each in projections],
        "machines": [each.machine for each in projections],
        "domains": [change.domain for change in changes],
        "partitions": [change.partition for change in changes],
        "states": [each.state for each in projections],
        "contexts": [canonical(each.context) for each in projections],
        "deadlines": [canonical(deadlines_as_json(each.deadlines)) for each in projections],
        "next_deadlines": [each.next_deadline for each in projections],
        "sequences": [each.sequence for each in projections],
        "event_ids": [str(each.last_event_id) for each in projections],
        "triggers": [each.last_trigger for each in projections],
        "correlation_ids": [str(each.correlation_id) for each in projections],
        "contract_hashes": [each.contract_hash for each in projections],
        "digests": [f"\\x{change.digest.hex()}" for change in changes],
        "bases": [change.base for change in changes],
    }


def _projection(
    entity_id: str,
    machine: str,
    state: str,
    context: str,
    deadlines: str,
    sequence: int,
    event_id: str,
    trigger: str,
    correlation_id: str,
    contract_hash: str,
) -> Projection:
    return Projection(
        machine=machine,
        entity_id=entity_id,
        state=state,
        context=json.loads(context),
        deadlines=deadlines_from_json(json.loads(deadlines)) if deadlines != "{}" else {},
        sequence=sequence,
        last_event_id=UUID(event_id),
        last_trigger=trigger,
        correlation_id=UUID(correlation_id),
        contract_hash=contract_hash,
    )
