"""Every question Rollcall asks of the database without changing it."""

from datetime import timedelta
from typing import NamedTuple

from sqlalchemy import Engine, text


class Clock(NamedTuple):
    """The last RuntimeTick that was taken, and how long ago."""

    ticks: int
    age: timedelta
    tick_sequence: int | None
    runtime_id: str | None


_CLOCK = text("SELECT ticks, clock_timestamp() - at, tick_sequence, runtime_id FROM runtime_clock")


def clock(engine: Engine) -> Clock:
    with engine.connect() as connection:
        return Clock(*connection.execute(_CLOCK).one())
