"""The loop: messages in, one transaction a batch, doorbells after the commit.

submit → inbox row → doorbell → drain:
lock the partition → take in order → drop duplicates → lock the entities → fold → write → commit
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from time import monotonic

from sqlalchemy import Engine, text
from sqlalchemy.exc import DataError, IntegrityError, ProgrammingError
from sqlalchemy.orm import Session

from fsm.machines import Machines, partition_of
from models.envelope import Envelope
from models.errors import MessageError, StaleWriteError
from models.registry import MessageRegistry
from tasks.batch import Batch, Rules, fold_batch
from tasks.doorbell import Doorbell, Room
from tasks.redaction import Redactor
from tasks.store import (
    counts,
    dead_letters,
    entities,
    event_log,
    inbox,
    intents,
    partitions,
    processed,
)
from tasks.telemetry import report

_FUTURE = timedelta(minutes=5)
_PAST = timedelta(days=30)


@dataclass(frozen=True)
class Limits:
    """How much one drain does before it lets another go on."""

    batch: int = 500
    seconds: float = 1.0
    attempts: int = 3
    submit: int = 10_000


class DrainOutcome(StrEnum):
    """How a drain ended."""

    BUSY = "busy"  # somebody else writes the partition, and will look again
    EMPTY = "empty"
    DRAINED = "drained"
    MORE = "more"  # the time was up; the bell was rung again


@dataclass
class Drained:
    """What one drain did; Flower shows it as the task's result."""

    domain: str
    partition: int
    outcome: DrainOutcome = DrainOutcome.EMPTY
    applied: int = 0
    duplicates: int = 0
    dead: int = 0

    def ended(self, outcome: DrainOutcome) -> "Drained":
        self.outcome = outcome
        return self


class Runtime:
    """Runs any machine. The only one that opens a transaction around handlers, the only publisher,
    the only source of `now`."""

    def __init__(
        self,
        engine: Engine,
        machines: Machines,
        registry: MessageRegistry,
        doorbell: Doorbell,
        redactor: Redactor,
        limits: Limits = Limits(),
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        self._engine = engine
        self._registry = registry
        self._rules = Rules(machines, registry, redactor.text)
        self._doorbell = doorbell
        self._redactor = redactor
        self._limits = limits
        self._clock = clock
        self._partitions: int | None = None

    def submit(self, envelopes: Sequence[Envelope]) -> int:
        """Store messages from outside. Durable when it returns; all of them or none."""
        specs = [self._checked(at, envelope) for at, envelope in enumerate(envelopes)]
        if len(specs) > self._limits.submit:
            raise MessageError(
                f"{len(specs)} messages at once", f"submit at most {self._limits.submit}"
            )
        with Session(self._engine) as session, session.begin():
            self._refuse_strange_times(session, envelopes)
            self._refuse_broken_chains(session, envelopes)
            number = self._number_of_partitions(session)
            rooms = [partition_of(each.entity_id, number) for each in envelopes]
            addressed = [
                inbox.Addressed(spec, room, envelope)
                for spec, room, envelope in zip(specs, rooms, envelopes, strict=True)
            ]
            inbox.put(session, addressed)
        self._doorbell.ring((each.domain, each.partition) for each in addressed)
        return len(addressed)

    def drain(self, domain: str, partition: int) -> Drained:
        """Fold what waits in a partition until it is empty or the time is up."""
        room = (domain, partition)
        until = monotonic() + self._limits.seconds
        total = Drained(domain, partition)
        self._doorbell.answered(room)
        died = self._mark(room)
        if died is None:
            return total.ended(DrainOutcome.BUSY)
        careful = self._limits.batch if died else 0
        most = 1 if died else self._limits.batch
        while monotonic() < until:
            if careful and not self._begin_one(room, total):
                careful, most = 0, self._limits.batch
            try:
                batch = self._fold_once(room, most)
            except StaleWriteError:
                continue
            except (DataError, ProgrammingError, IntegrityError) as error:
                if most > 1:
                    most //= 2
                    continue
                batch = self._bury_first(room, error)
            if batch is None:
                return total.ended(DrainOutcome.BUSY)
            total.applied += len(batch.applied)
            total.duplicates += batch.duplicates
            total.dead += len(batch.dead)
            if len(batch.done) + batch.deferred < most:
                break
            careful = max(0, careful - 1)
            most = 1 if careful else min(most * 2, self._limits.batch)
        if self._something_waits(room):
            self._doorbell.ring([room])
            return total.ended(DrainOutcome.MORE)
        return total.ended(DrainOutcome.DRAINED if total.applied else DrainOutcome.EMPTY)

    def _fold_once(self, room: Room, most: int) -> Batch | None:
        """One transaction: everything from the lock to the commit."""
        domain, partition = room
        with Session(self._engine) as session, session.begin():
            locked_at = partitions.lock(session, domain, partition)
            if locked_at is None:
                return None
            now = self._clock() if self._clock else locked_at
            waiting = inbox.take(session, domain, partition, most)
            batch = Batch(domain, partition, self._number_of_partitions(session), now)
            if waiting:
                messages = [each.envelope for each in waiting]
                known = processed.known(session, [each.message_id for each in messages])
                stored, held = entities.lock(session, {each.entity_id for each in messages})
                fold_batch(batch, self._rules, waiting, known, stored, held)
                self._write(session, batch)
            if len(waiting) < most:
                partitions.unmark(session, domain, partition)
        report(batch)
        self._doorbell.ring({(each.domain, each.partition) for each in batch.elsewhere})
        return batch

    def _write(self, session: Session, batch: Batch) -> None:
        """Projections, log, intents, events: one statement each, however long the batch is."""
        entities.save(session, batch.changes, batch.now)
        event_log.append(session, batch.applied)
        intents.put(session, batch.intents, batch.now)
        inbox.put(session, batch.elsewhere)
        dead_letters.put(session, batch.dead)
        processed.record(session, batch.results)
        counts.move(session, batch.domain, batch.partition, batch.moved)
        inbox.remove(session, batch.domain, batch.partition, batch.done)

    def _mark(self, room: Room) -> bool | None:
        """Sign in as the partition's writer; True if the one before died in the middle of it."""
        with Session(self._engine) as session, session.begin():
            session.execute(text("SET LOCAL synchronous_commit = off"))
            if partitions.lock(session, *room) is None:
                return None
            return partitions.mark(session, *room)

    def _begin_one(self, room: Room, total: Drained) -> bool:
        """After a death: count the first message's attempt before it is touched. One that has
        killed its worker too often is put away. False when nothing waits."""
        with Session(self._engine) as session, session.begin():
            if partitions.lock(session, *room) is None:
                return False
            first = inbox.take(session, *room, 1)
            if not first:
                return False
            attempts = inbox.begin(session, *room, first[0].position)
            if attempts > self._limits.attempts:
                why = f"its worker died {attempts - 1} times while this message was folded"
                self._bury(session, room, first[0], "killed its worker", why)
                total.dead += 1
        return True

    def _bury_first(self, room: Room, error: Exception) -> Batch | None:
        """A message that the database refuses by itself goes to dead letters, by itself."""
        with Session(self._engine) as session, session.begin():
            now = partitions.lock(session, *room)
            if now is None:
                return None
            batch = Batch(*room, 1, now)
            for waiting in inbox.take(session, *room, 1):
                why = self._redactor.text(str(error).splitlines()[0])
                self._bury(session, room, waiting, "refused by the database", why)
                batch.done.append(waiting.position)
        return batch

    def _bury(
        self, session: Session, room: Room, waiting: inbox.Waiting, reason: str, error: str
    ) -> None:
        message = waiting.envelope
        stored = entities.read(session, [message.entity_id]).get(message.entity_id, {})
        letter = dead_letters.DeadLetter(room[0], message, stored, reason, error, waiting.attempts)
        dead_letters.put(session, [letter])
        if not processed.known(session, [message.message_id]):
            processed.record(session, {message.message_id: "DEAD_LETTER"})
        inbox.remove(session, *room, [waiting.position])

    def _something_waits(self, room: Room) -> bool:
        """Without the lock: whoever rang while we held it found us busy and went away."""
        with Session(self._engine) as session, session.begin():
            return inbox.any_waiting(session, *room)

    def _number_of_partitions(self, session: Session) -> int:
        if self._partitions is None:
            self._partitions = partitions.number(session)
        return self._partitions

    def _checked(self, at: int, envelope: Envelope) -> str:
        """Refuse what may not come from outside, naming which of the many it is."""
        try:
            spec = self._registry.check(envelope)
        except MessageError as error:
            raise MessageError(f"message {at}: {error.message}", error.remedy) from None
        if not spec.external:
            raise MessageError(
                f"message {at}: {envelope.message_type} is not accepted from outside",
                "it is emitted by handlers only",
            )
        return spec.message_type.domain

    def _refuse_strange_times(self, session: Session, envelopes: Sequence[Envelope]) -> None:
        now = self._clock() if self._clock else session.execute(text("SELECT now()")).scalar_one()
        for at, envelope in enumerate(envelopes):
            if not now - _PAST <= envelope.emitted_at <= now + _FUTURE:
                raise MessageError(
                    f"message {at}: emitted_at is {envelope.emitted_at.isoformat()}",
                    f"it takes the last {_PAST.days} days, and at most"
                    f" {_FUTURE.seconds // 60} minutes ahead of the database's clock",
                )

    def _refuse_broken_chains(self, session: Session, envelopes: Sequence[Envelope]) -> None:
        """A cause must be a message that came before, here or in the same submit."""
        named = {each.causation_id for each in envelopes if each.causation_id is not None}
        named -= {each.message_id for each in envelopes}
        if named:
            unknown = named - processed.known(session, [*named])
            for at, envelope in enumerate(envelopes):
                if envelope.causation_id in unknown:
                    raise MessageError(
                        f"message {at}: causation_id {envelope.causation_id} is no known message",
                        "name the message that caused it, or none",
                    )
