"""How each attempt to register a node went: one record a generation, the newest outcome."""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.orm import Session

_RECORD = text(
    """
    INSERT INTO registration_outcomes (node_id, generation, registration_id, status,
                                       postgres_applied, consul_applied, error, correlation_id,
                                       recorded_at)
    SELECT rows.*, CAST(:now AS timestamptz)
      FROM unnest(CAST(:node_ids AS text[]), CAST(:generations AS integer[]),
                  CAST(:registration_ids AS text[]), CAST(:statuses AS text[]),
                  CAST(:postgres AS boolean[]), CAST(:consul AS boolean[]),
                  CAST(:errors AS text[]), CAST(:correlation_ids AS uuid[])) AS rows
    ON CONFLICT (node_id, generation) DO UPDATE
       SET registration_id = EXCLUDED.registration_id, status = EXCLUDED.status,
           postgres_applied = EXCLUDED.postgres_applied, consul_applied = EXCLUDED.consul_applied,
           error = EXCLUDED.error, recorded_at = EXCLUDED.recorded_at
    """
)


class Attempt(NamedTuple):
    """What came of one attempt so far."""

    node_id: str
    generation: int
    registration_id: str
    status: str
    postgres_applied: bool
    consul_applied: bool
    error: str | None
    correlation_id: UUID


def record(session: Session, attempts: Sequence[Attempt], now: datetime) -> None:
    """Keep them; a later outcome of the same attempt takes the place of the earlier one."""
    if not attempts:
        return
    names = "node_ids generations registration_ids statuses postgres consul errors correlation_ids"
    columns = zip(*attempts, strict=True)
    values = {name: [*each] for name, each in zip(names.split(), columns, strict=True)}
    values["correlation_ids"] = [str(each) for each in values["correlation_ids"]]
    session.execute(_RECORD, {**values, "now": now})
