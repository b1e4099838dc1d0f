"""Taking snapshots of all projections, in pages, while workers go on."""

from typing import NamedTuple

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from tasks.store import snapshots

_PAGE = 5000


class Taken(NamedTuple):
    """How many were taken, and how many rows were passed over since their bytes are wrong."""

    taken: int
    passed_over: int


def take_snapshots(engine: Engine, only: str = "", page: int = _PAGE) -> Taken:
    """The newest snapshot of every entity, of one machine or of all."""
    place, taken, looked, full = ("", ""), 0, 0, True
    while full:
        with Session(engine) as session, session.begin():
            rows = snapshots.take(session, *place, page, only)
        full = len(rows) == page
        taken += sum(row.taken for row in rows)
        looked += len(rows)
        if rows:
            place = (rows[-1].entity_id, rows[-1].machine)
    return Taken(taken, looked - taken)
