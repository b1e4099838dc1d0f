"""Every question Rollcall asks of the database without changing it."""

from datetime import datetime, timedelta
from typing import NamedTuple

from sqlalchemy import Engine, text

from fsm.machines import partition_of


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


class Happened(NamedTuple):
    """One event of an entity's timeline."""

    sequence: int
    machine: str
    applied_at: datetime
    trigger: str
    path: str
    message_type: str
    message_id: str
    correlation_id: str
    causation_id: str | None


class Standing(NamedTuple):
    """Where one machine of an entity stands."""

    machine: str
    state: str
    sequence: int
    deadlines: dict[str, dict[str, object]]


class Expected(NamedTuple):
    """A message that waits to be folded."""

    message_type: str
    message_id: str
    emitted_at: datetime
    attempts: int


class Timeline(NamedTuple):
    """All that is known of an entity, at one moment."""

    events: list[Happened]
    machines: list[Standing]
    waiting: list[Expected]

    @property
    def known(self) -> bool:
        return bool(self.events or self.machines or self.waiting)


_HAPPENED = text(
    """
    SELECT sequence, machine, applied_at, trigger, path, message_type, CAST(message_id AS text),
           CAST(correlation_id AS text), CAST(causation_id AS text)
      FROM event_log
     WHERE entity_id = :entity_id AND (:machine = '' OR machine = :machine)
     ORDER BY applied_at, machine, sequence
    """
)
_STANDING = text(
    """
    SELECT machine, state, last_applied_sequence, deadlines
      FROM entities
     WHERE entity_id = :entity_id AND (:machine = '' OR machine = :machine)
     ORDER BY machine
    """
)
# An entity has one partition in every domain: a probe of each, never a scan of the inbox.
_EXPECTED = text(
    """
    SELECT i.message_type, CAST(i.message_id AS text), i.emitted_at, i.attempts
      FROM partitions AS p JOIN inbox AS i USING (domain, partition)
     WHERE p.partition = :partition AND i.entity_id = :entity_id
     ORDER BY i.domain, i.position
    """
)
_PARTITIONS = text("SELECT partitions FROM runtime_layout")


def timeline(engine: Engine, entity_id: str, machine: str = "") -> Timeline:
    """What happened to an entity, where its machines stand, and what still waits for it."""
    with engine.connect() as plain:
        connection = plain.execution_options(isolation_level="REPEATABLE READ")
        number = connection.execute(_PARTITIONS).scalar_one()
        said = {"entity_id": entity_id, "machine": machine}
        where = {"entity_id": entity_id, "partition": partition_of(entity_id, number)}
        return Timeline(
            [Happened(*row) for row in connection.execute(_HAPPENED, said)],
            [Standing(*row) for row in connection.execute(_STANDING, said)],
            [Expected(*row) for row in connection.execute(_EXPECTED, where)],
        )
