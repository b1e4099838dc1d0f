"""The loop: messages in, one transaction a batch, doorbells after the commit.

submit → inbox row → doorbell → drain:
lock the partition → take in order → drop duplicates → lock the entities → fold → write → commit
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from time import monotonic

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from fsm.contract_yaml import load_contract
from fsm.liveness import LivenessPolicy
from fsm.machines import Machines, partition_of
from models.envelope import Envelope
from models.errors import StaleWriteError
from models.registry import MessageRegistry
from tasks.admission import admit, causes_elsewhere, refuse_broken_chains, refuse_strange_times
from tasks.batch import Batch, Rules, fold_batch
from tasks.doorbell import Doorbell, Room
from tasks.liveness import spare_the_living
from tasks.pace import Pace
from tasks.poison import bury_first, count_attempt, refuses
from tasks.redaction import Redactor
from tasks.store import contracts, entities, inbox, partitions, processed
from tasks.store.intents import Wanted
from tasks.telemetry import report
from tasks.writing import write


@dataclass(frozen=True)
class Limits:
    """How much one drain does before it lets another go on."""

    batch: int = 500
    seconds: float = 1.0
    attempts: int = 3


class DrainOutcome(StrEnum):
    """How a drain ended."""

    BUSY = "busy"  # somebody else writes the partition or its entities, and will look again
    EMPTY = "empty"
    DRAINED = "drained"
    MORE = "more"  # something waits still; the bell was rung again


@dataclass
class Drained:
    """What one drain did; Flower shows it as the task's result."""

    domain: str
    partition: int
    outcome: DrainOutcome = DrainOutcome.EMPTY
    applied: int = 0
    duplicates: int = 0
    dead: int = 0
    intents: list[Wanted] = field(default_factory=list)

    def add(self, batch: Batch) -> None:
        self.intents += batch.intents
        self.applied += len(batch.applied)
        self.duplicates += batch.duplicates
        self.dead += len(batch.dead)

    def told(self) -> dict[str, object]:
        counts = {name: value for name, value in vars(self).items() if name != "intents"}
        return counts | {"outcome": self.outcome.value, "intents": len(self.intents)}

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
        liveness: LivenessPolicy = LivenessPolicy(),
    ) -> None:
        self._engine = engine
        self._registry = registry
        self._rules = Rules(machines, registry, redactor.text)
        self._doorbell = doorbell
        self._redactor = redactor
        self._limits = limits
        self._clock = clock
        self._liveness = liveness
        self._partitions: int | None = None

    def submit(self, envelopes: Sequence[Envelope]) -> int:
        """Store messages from outside. Durable when it returns; all of them or none."""
        domains = admit(self._registry, envelopes)
        with self._engine.connect() as connection, _transaction(connection) as session:
            refuse_strange_times(envelopes, self._now(session))
            if causes := causes_elsewhere(envelopes):
                # The inbox first: what is folded in between is among the processed by then.
                waiting = inbox.known(session, causes)
                known = waiting | processed.known(session, causes)
                refuse_broken_chains(envelopes, {*causes} - known)
            number = self._number_of_partitions(session)
            addressed = [
                inbox.Addressed(domain, partition_of(envelope.entity_id, number), envelope)
                for domain, envelope in zip(domains, envelopes, strict=True)
            ]
            inbox.put(session, addressed)
        self._doorbell.ring((each.domain, each.partition) for each in addressed)
        return len(addressed)

    def drain(self, domain: str, partition: int) -> Drained:
        """Fold what waits in a partition until it is empty or the time is up."""
        room = (domain, partition)
        total, stuck = Drained(domain, partition), False
        until = monotonic() + self._limits.seconds
        self._doorbell.answered(room)
        with self._engine.connect() as connection:
            died = self._sign_in(connection, room)
            if died is None:
                return total.ended(DrainOutcome.BUSY)
            pace = Pace(self._limits.batch, died=died)
            while monotonic() < until:
                if pace.careful and self._begin_one(connection, room, pace):
                    total.dead += 1
                    continue
                try:
                    batch = self._fold_once(connection, room, pace.most)
                except StaleWriteError:
                    continue
                except DBAPIError as error:
                    if not refuses(error):
                        raise
                    if pace.refused():
                        total.dead += self._bury_first(connection, room, error)
                    continue
                if batch is None:
                    self._unmark(connection, room)
                    return total.ended(DrainOutcome.BUSY)
                total.add(batch)
                stuck = batch.deferred > 0 and not batch.done
                if stuck or len(batch.done) + batch.deferred < pace.most:
                    break
                pace.went_well()
            waits = self._sign_out(connection, room)
        if stuck:  # the tick rings: whoever waits for a lock must not ring in circles
            return total.ended(DrainOutcome.BUSY)
        if waits:
            self._doorbell.ring([room])
            return total.ended(DrainOutcome.MORE)
        return total.ended(DrainOutcome.DRAINED if total.applied else DrainOutcome.EMPTY)

    def _fold_once(self, connection: Connection, room: Room, most: int) -> Batch | None:
        """One transaction: everything from the lock to the commit."""
        with _transaction(connection) as session:
            if not partitions.lock(session, *room):
                return None
            batch = Batch(*room, self._number_of_partitions(session), self._now(session))
            waiting = inbox.take(session, *room, most)
            if waiting:
                messages = [each.envelope for each in waiting]
                known = processed.known(session, [each.message_id for each in messages])
                entity_ids = {each.entity_id for each in messages}
                stored, held = entities.lock(session, entity_ids, batch.since)
                self._learn(session, stored)
                waiting = spare_the_living(session, batch, waiting, stored, self._liveness)
                fold_batch(batch, self._rules, waiting, known, stored, held)
                write(session, batch)
        report(batch)
        self._doorbell.ring({(each.domain, each.partition) for each in batch.elsewhere})
        return batch

    def _sign_in(self, connection: Connection, room: Room) -> bool | None:
        """Become the partition's writer; True if the one before died in the middle of it, None if
        it is still at it."""
        with _transaction(connection) as session:
            session.execute(text("SET LOCAL synchronous_commit = off"))
            return partitions.mark(session, *room) if partitions.lock(session, *room) else None

    def _sign_out(self, connection: Connection, room: Room) -> bool:
        """Take the mark back, then look once more without the lock: whoever rang while we held it
        found us busy and went away."""
        self._unmark(connection, room)
        with _transaction(connection) as session:
            return inbox.any_waiting(session, *room)

    def _unmark(self, connection: Connection, room: Room) -> None:
        with _transaction(connection) as session:
            session.execute(text("SET LOCAL synchronous_commit = off"))
            partitions.unmark(session, *room)

    def _begin_one(self, connection: Connection, room: Room, pace: Pace) -> bool:
        """Count the next message's attempt; True when it had too many and was put away."""
        with _transaction(connection) as session:
            if not partitions.lock(session, *room):
                return False
            buried = count_attempt(session, room, self._limits.attempts)
        if buried is None:
            pace.danger_over()
        return bool(buried)

    def _bury_first(self, connection: Connection, room: Room, error: Exception) -> int:
        why = self._redactor.text(str(error).splitlines()[0])
        with _transaction(connection) as session:
            if not partitions.lock(session, *room):
                return 0
            return bury_first(session, room, "refused by the database", why)

    def _learn(self, session: Session, stored: entities.Stored) -> None:
        """Read the contracts that another version of this deployment brought meanwhile."""
        hashes = {each.contract_hash for machines in stored.values() for each in machines.values()}
        if unknown := self._rules.machines.unknown(hashes):
            for found, document in contracts.documents(session, unknown).items():
                self._rules.machines.learn(found, load_contract(document))

    def _now(self, session: Session) -> datetime:
        return self._clock() if self._clock else partitions.now(session)

    def _number_of_partitions(self, session: Session) -> int:
        if self._partitions is None:
            self._partitions = partitions.number(session)
        return self._partitions


@contextmanager
def _transaction(connection: Connection) -> Iterator[Session]:
    with Session(connection) as session, session.begin():
        yield session
