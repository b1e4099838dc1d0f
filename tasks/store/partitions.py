"""Partitions: how many there are, who writes one now, and who died while writing."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import text
from sqlalchemy.orm import Session

_NUMBER = text("SELECT partitions FROM runtime_layout")
_PREPARE = text(
    """
    INSERT INTO partitions (domain, partition)
    SELECT domain, partition
      FROM unnest(CAST(:domains AS text[])) AS domain,
           generate_series(0, (SELECT partitions FROM runtime_layout) - 1) AS partition
    ON CONFLICT DO NOTHING
    """
)
# Held to the end of the transaction: a frozen process loses it with its connection.
_LOCK = text("SELECT pg_try_advisory_xact_lock(hashtext(:domain), :partition)")
_NOW = text("SELECT clock_timestamp()")
# A mark whose database session is gone was left by a process that died in the middle of a batch.
_MARK = text(
    """
    WITH before AS (
        SELECT holder_pid IS NOT NULL AND NOT EXISTS (
                   SELECT FROM pg_stat_activity AS a
                    WHERE a.pid = p.holder_pid AND a.backend_start = p.holder_started
               ) AS died
          FROM partitions AS p WHERE domain = :domain AND partition = :partition
    ), me AS (
        SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()
    )
    UPDATE partitions SET holder_pid = me.pid, holder_started = me.backend_start
      FROM before, me
     WHERE domain = :domain AND partition = :partition
    RETURNING before.died
    """
)
_UNMARK = text(
    "UPDATE partitions SET holder_pid = NULL, holder_started = NULL"
    " WHERE domain = :domain AND partition = :partition AND holder_pid = pg_backend_pid()"
)


def number(session: Session) -> int:
    """How many partitions there are; it lives in the database, so that everybody agrees."""
    return int(session.execute(_NUMBER).scalar_one())


def prepare(session: Session, domains: Sequence[str]) -> None:
    """Make the rows of these domains' partitions."""
    session.execute(_PREPARE, {"domains": [*domains]})


def lock(session: Session, domain: str, partition: int) -> bool:
    """Become the partition's one writer until the transaction ends, unless somebody is."""
    values = {"domain": domain, "partition": partition}
    return bool(session.execute(_LOCK, values).scalar_one())


def now(session: Session) -> datetime:
    """The time by the database's clock: one for all machines, asked for after the lock."""
    found: datetime = session.execute(_NOW).scalar_one()
    return found


def mark(session: Session, domain: str, partition: int) -> bool:
    """Say that we write it now; True when whoever said so before died without taking it back."""
    values = {"domain": domain, "partition": partition}
    return bool(session.execute(_MARK, values).scalar_one())


def unmark(session: Session, domain: str, partition: int) -> None:
    session.execute(_UNMARK, {"domain": domain, "partition": partition})
