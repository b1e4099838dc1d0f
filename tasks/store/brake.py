"""The brake's one row, and what it is measured by."""

from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import text
from sqlalchemy.orm import Session

from fsm.liveness import ACTIVE, HANDSHAKE


class Silence(NamedTuple):
    """How many live nodes there are, and how many of them were not heard lately."""

    silent: int
    live: int


_TAKE = text("SELECT held_since FROM brake FOR UPDATE SKIP LOCKED")
_HELD = text("SELECT held_since IS NOT NULL FROM brake")
_MEASURE = text(
    """
    SELECT (SELECT count(*) FROM heartbeats WHERE last_seen < :heard_since),
           (SELECT COALESCE(CAST(sum(entities) AS bigint), 0) FROM state_counts
             WHERE machine = :machine AND state = :state)
    """
)
_NOTE = text(
    "UPDATE brake SET held_since = :held_since, silent = :silent, live = :live, measured_at = :now"
)
# The whole table: row by row it would meet heartbeats that lock theirs in another order.
_LOCK_ALL = text("LOCK TABLE heartbeats IN EXCLUSIVE MODE")
_EXTEND = text("UPDATE heartbeats SET deadline = :until WHERE deadline < :until")


class Taken(NamedTuple):
    """The locked row."""

    held_since: datetime | None


def take(session: Session) -> Taken | None:
    """Lock the brake; None while another tick has it."""
    row = session.execute(_TAKE).one_or_none()
    return None if row is None else Taken(*row)


def held(session: Session) -> bool:
    return bool(session.execute(_HELD).scalar_one())


def measure(session: Session, heard_since: datetime) -> Silence:
    """One scan of a narrow table; live nodes come from the counters."""
    values = {"heard_since": heard_since, "machine": HANDSHAKE, "state": ACTIVE}
    return Silence(*session.execute(_MEASURE, values).one())


def note(session: Session, held_since: datetime | None, found: Silence, now: datetime) -> None:
    values = {"held_since": held_since, "silent": found.silent, "live": found.live, "now": now}
    session.execute(_NOTE, values)


def extend_all(session: Session, now: datetime, liveness: timedelta) -> None:
    """No node's deadline is nearer than a whole liveness from now."""
    session.execute(_LOCK_ALL)
    session.execute(_EXTEND, {"until": now + liveness})
