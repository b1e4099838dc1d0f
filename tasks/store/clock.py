"""The runtime's clock row: whose tick counts, and when the last one was taken."""

from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import text
from sqlalchemy.orm import Session

from models.messages.runtime import RuntimeTick


class TickTaken(NamedTuple):
    """The winning tick's time, by the database's clock, how many were taken so far, and whether
    the brake holds: told along, so that an idle tick need not ask."""

    at: datetime
    ticks: int
    braked: bool


# One conditional UPDATE decides: of any number of beats, one tick per interval wins.
_TAKE = text(
    """
    UPDATE runtime_clock
       SET at = now(), emitted_at = :emitted_at, tick_sequence = :tick_sequence,
           runtime_id = :runtime_id, ticks = ticks + 1
     WHERE at < now() - :half_an_interval
    RETURNING at, ticks, (SELECT held_since IS NOT NULL FROM brake)
    """
)


def take_tick(session: Session, tick: RuntimeTick, interval: timedelta) -> TickTaken | None:
    """Move the clock with this tick; None when another tick has just moved it."""
    row = session.execute(
        _TAKE,
        {
            "emitted_at": tick.now,
            "tick_sequence": tick.tick_sequence,
            "runtime_id": tick.runtime_id,
            "half_an_interval": interval / 2,
        },
    ).one_or_none()
    return None if row is None else TickTaken(*row)
