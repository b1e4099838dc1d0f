"""What was counted: rows that every process adds to, in the transaction of what it counts."""

import json
from collections.abc import Mapping

from sqlalchemy import text
from sqlalchemy.orm import Session

from tasks.metrics import Row, Tally

_ROWS = (
    "unnest(CAST(:names AS text[]), CAST(:parts AS text[]), CAST(:labels AS text[]),"
    " CAST(:values AS double precision[])) AS rows (name, part, labels, value)"
)
# A slot is a partition's: of those who add to a row at most a few wait for one another.
_ADD = text(
    f"""
    INSERT INTO metric_values AS m (slot, name, part, labels, value)
    SELECT :slot, name, part, labels, value FROM {_ROWS} ORDER BY name, part, labels
    ON CONFLICT (slot, name, part, labels) DO UPDATE SET value = m.value + EXCLUDED.value
    """  # noqa: S608
)
_SET = text(
    f"""
    INSERT INTO metric_values (slot, name, part, labels, value)
    SELECT 0, name, part, labels, value FROM {_ROWS} ORDER BY name, part, labels
    ON CONFLICT (slot, name, part, labels) DO UPDATE SET value = EXCLUDED.value
    """  # noqa: S608
)
_READ = text("SELECT name, part, labels, sum(value) FROM metric_values GROUP BY name, part, labels")


def add(session: Session, slot: int, tally: Tally) -> None:
    """Add a tally: the last statement of a transaction, so that nobody waits for it long."""
    if tally.added:
        session.execute(_ADD, {"slot": slot, **_values(tally.added)})
    if tally.set_to:
        session.execute(_SET, _values(tally.set_to))


def read(session: Session) -> dict[Row, float]:
    rows = session.execute(_READ)
    return {
        (name, part, tuple((key, value) for key, value in json.loads(labels))): total
        for name, part, labels, total in rows
    }


def _values(rows: Mapping[Row, float]) -> dict[str, list[object]]:
    return {
        "names": [name for name, _, _ in rows],
        "parts": [part for _, part, _ in rows],
        "labels": [json.dumps(labels) for _, _, labels in rows],
        "values": [float(each) for each in rows.values()],
    }
