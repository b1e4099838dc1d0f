"""Direct transitions for callers who wait: read, decide, and write only if nothing moved meanwhile.

For contracts that say `concurrency: optimistic`; drains lock rows as ever. One attempt reads
without locks, decides as a drain would, and writes what a drain would in one short transaction.
"""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import uuid4

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from fsm.breaker import CallId, CallOutcome
from fsm.contract import Concurrency, Contract
from fsm.machines import Machines, partition_of
from fsm.results import Result
from fsm.retry import RetryPolicy, delay
from fsm.step import step
from models.envelope import Envelope
from models.errors import ContentionError, MessageError, StaleWriteError, VersionConflictError
from models.messages.runtime import PullTrigger
from models.projection import Projection
from models.registry import MessageRegistry
from tasks.admission import admit, causes_elsewhere, refuse_broken_chains, refuse_strange_times
from tasks.batch import Batch
from tasks.contention import Conflict, Contention, Counted
from tasks.doorbell import Doorbell
from tasks.logs import correlated, logger
from tasks.store import entities, inbox, partitions, processed
from tasks.telemetry import report
from tasks.writing import write

# The longest waits are 10, 50, 250 and 1000 ms, with full jitter.
RETRIES = RetryPolicy(timedelta(milliseconds=10), 5, timedelta(seconds=1), attempts=5)
_LOCKED = frozenset({"40P01", "55P03", "40001"})  # deadlock, lock timeout, serialization


@dataclass(frozen=True, slots=True)
class Transitioned:
    """What became of a message, and where its entity stands. `idempotent`: it had been done
    before, by another message; `repeated`: this very message had been decided before. `reason`
    says why nothing moved; it is told once and not kept for repetitions."""

    result: str
    machine: str
    entity_id: str
    state: str
    version: int
    idempotent: bool = False
    repeated: bool = False
    attempts: int = 1
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class _Read:
    """What an attempt rests on."""

    decided: str | None
    before: dict[str, Projection]
    now: datetime
    partitions: int


class Transitions:
    """Applies one message to one entity while the caller waits. An exception of a handler is the
    caller's to see: nothing was stored, so nothing is put to dead letters."""

    def __init__(
        self,
        engine: Engine,
        machines: Machines,
        registry: MessageRegistry,
        doorbell: Doorbell,
        contention: Contention,
        retries: RetryPolicy = RETRIES,
        clock: Callable[[], datetime] | None = None,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._engine = engine
        self._machines = machines
        self._registry = registry
        self._doorbell = doorbell
        self._contention = contention
        self._retries = retries
        self._clock = clock
        self._sleep = sleep
        self._jitter = jitter

    def apply(self, envelope: Envelope, expected_version: int | None = None) -> Transitioned:
        """Decide the message now. Durable when it returns; a message decided before is not decided
        again. `expected_version` is the sequence the caller saw, 0 for an entity not yet there."""
        (domain,) = admit(self._registry, [envelope])
        contract = self._addressed(envelope)
        call = CallId(str(uuid4()))
        self._contention.enter(contract.name, call)
        outcome = CallOutcome.REFUSED
        try:
            with correlated(str(envelope.correlation_id), entity_id=envelope.entity_id):
                made = self._insist(domain, contract, envelope, expected_version)
            outcome = CallOutcome.SUCCESS
            return made
        except ContentionError:
            outcome = CallOutcome.FAILURE
            raise
        finally:
            self._contention.leave(contract.name, call, outcome)

    def _insist(
        self, domain: str, contract: Contract, envelope: Envelope, expected: int | None
    ) -> Transitioned:
        """Attempt after attempt, with a growing pause between them."""
        name = contract.name
        for attempt in range(1, self._retries.attempts + 1):
            try:
                return self._attempt(domain, contract, envelope, expected, attempt)
            except (StaleWriteError, DBAPIError) as error:
                reason = _conflict(error)
                if reason is None:
                    raise
            self._contention.count(name, Counted.CONFLICT, reason)
            logger("optimistic").info("conflict", machine=name, attempt=attempt, reason=reason)
            if attempt < self._retries.attempts:
                self._contention.count(name, Counted.RETRY, reason)
                self._sleep(delay(self._retries, attempt, self._jitter()).total_seconds())
        self._contention.count(name, Counted.EXHAUSTED)
        logger("optimistic").warning("gave up", machine=name, attempts=self._retries.attempts)
        raise ContentionError(
            f"{name} {envelope.entity_id} was written by others in each of"
            f" {self._retries.attempts} attempts",
            "nothing was changed: look at it again, then send the same message once more",
        )

    def _attempt(
        self,
        domain: str,
        contract: Contract,
        envelope: Envelope,
        expected: int | None,
        attempt: int,
    ) -> Transitioned:
        name = contract.name
        read = self._read(envelope)
        before = read.before.get(name)
        version = before.sequence if before else 0
        state = before.state if before else contract.initial_state
        if read.decided is not None:
            self._contention.count(name, Counted.REPEATED)
            same = read.decided == Result.ALREADY_APPLIED
            return Transitioned(
                read.decided, name, envelope.entity_id, state, version, same, True, attempt
            )
        made = step(self._machines, self._registry, read.before, envelope, read.now)
        idempotent = made.result == Result.ALREADY_APPLIED
        if expected is not None and expected != version and not idempotent:
            raise VersionConflictError(
                f"{name} {envelope.entity_id} is at version {version}, not {expected}",
                "read it again and decide anew",
                expected,
                version,
            )
        room = partition_of(envelope.entity_id, read.partitions)
        batch = Batch(domain, room, read.partitions, read.now)
        batch.add(envelope, made)
        self._commit(batch, read)
        if idempotent:
            self._contention.count(name, Counted.ALREADY_APPLIED)
            logger("optimistic").info(
                "already applied", machine=name, idempotent=True, state=state, version=version
            )
        after = made.projections.get(name)
        return Transitioned(
            result=made.result,
            machine=name,
            entity_id=envelope.entity_id,
            state=after.state if after else state,
            version=after.sequence if after else version,
            idempotent=idempotent,
            attempts=attempt,
            reason=made.reason,
        )

    def _read(self, envelope: Envelope) -> _Read:
        """Without locks. The time is asked for last, so that it lies after whatever was read."""
        with Session(self._engine) as session, session.begin():
            before = entities.read(session, [envelope.entity_id]).get(envelope.entity_id, {})
            decided = processed.result(session, envelope.message_id)
            number = partitions.number(session)
            now = self._clock() if self._clock else partitions.now(session)
            if decided is None:
                refuse_strange_times([envelope], now)
                causes = causes_elsewhere([envelope])
                if causes:
                    known = processed.known(session, causes)
                    refuse_broken_chains([envelope], {*causes} - known)
        return _Read(decided, dict(before), now, number)

    def _commit(self, batch: Batch, read: _Read) -> None:
        """Write if nothing moved. A drain that met our lock left its messages waiting: ring for
        it, which only a look after the commit can tell."""
        written = {machine for _, machine in batch.latest}
        with Session(self._engine) as session, session.begin():
            if read.before and (batch.latest or batch.elsewhere) and written != {*read.before}:
                entities.confirm(session, read.before.values())
            write(session, batch)
        report(batch)
        rooms = {(each.domain, each.partition) for each in batch.elsewhere}
        if batch.latest:
            with Session(self._engine) as session, session.begin():
                if inbox.any_waiting(session, batch.domain, batch.partition):
                    rooms.add((batch.domain, batch.partition))
        self._doorbell.ring(rooms)

    def _addressed(self, envelope: Envelope) -> Contract:
        """The one machine the message is for; it must allow this way of writing."""
        if envelope.message_type.endswith(f".{PullTrigger.name}"):
            named = self._machines.named(str(envelope.payload["machine"]))
            found = [named] if named else []
        else:
            pulls = self._machines.pulls(envelope.message_type, envelope.payload)
            found = [pull.contract for pull in pulls]
        if len(found) != 1 or found[0].concurrency is not Concurrency.OPTIMISTIC:
            raise MessageError(
                f"{envelope.message_type} is not for one machine with optimistic concurrency",
                "submit it instead",
            )
        return found[0]


def _conflict(error: Exception) -> Conflict | None:
    """Which conflict an error tells of; None for any other trouble."""
    if isinstance(error, StaleWriteError):
        return Conflict.STALE
    told = getattr(error, "orig", None)
    if getattr(told, "pgcode", None) in _LOCKED:
        return Conflict.LOCKED
    constraint = getattr(getattr(told, "diag", None), "constraint_name", None)
    return Conflict.SAME_MESSAGE if constraint == "processed_pkey" else None
