"""How an intent is carried out: claim → circuit → handler → settle.

A claim commits its attempt and a lease before anything is sent. Settling writes the outcome, the
result's event and the circuit in one transaction; a claim that was lost meanwhile settles nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from time import monotonic
from typing import Any
from uuid import UUID, uuid4, uuid5

from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from fsm.breaker import (
    Admitted,
    Barred,
    CallId,
    CallOutcome,
    Circuit,
    CircuitState,
    admit,
    settle,
)
from fsm.retry import FailureKind, GiveUp, GiveUpReason, RetryAt, next_attempt
from models.envelope import Envelope
from tasks.doorbell import Room
from tasks.effects.handler import Answer, Claimed, Done, Failed, Kind, Service
from tasks.logs import correlated, logger
from tasks.poison import refuses
from tasks.store import circuits, dead_letters, inbox, intents, ledger, partitions
from tasks.store.dead_letters import EffectKey, EffectLetter

MOST_HISTORY = 20
_LONGEST_ERROR = 500
_CONFLICT = "the same thing was done before with another payload"

_RECHECK = text(
    """
    INSERT INTO consul_rechecks (node_id, due_at, reason)
    SELECT DISTINCT node_id, CAST(:due_at AS timestamptz), 'a lease ran out'
      FROM unnest(CAST(:node_ids AS text[])) AS node_id
    ON CONFLICT (node_id) DO UPDATE SET due_at = greatest(consul_rechecks.due_at, EXCLUDED.due_at)
    """
)


@dataclass
class Executed:
    """What one run did; Flower shows it as the task's result."""

    service: str
    done: int = 0
    failed: int = 0
    again: int = 0
    cancelled: int = 0
    lost: int = 0
    more: bool = False
    rooms: set[Room] = field(default_factory=set)

    @property
    def settled(self) -> int:
        return self.done + self.failed

    def told(self) -> dict[str, Any]:
        counts = {name: value for name, value in vars(self).items() if name != "rooms"}
        return counts | {"rooms": sorted(f"{domain}:{number}" for domain, number in self.rooms)}


@dataclass
class _Claim:
    """What was taken in one transaction, and the circuit it was taken through."""

    call: CallId
    circuit: Circuit
    claimed: list[Claimed] = field(default_factory=list)
    known: dict[UUID, Done | Failed] = field(default_factory=dict)
    looked_at: int = 0

    @property
    def to_do(self) -> list[Claimed]:
        return [each for each in self.claimed if each.intent_id not in self.known]


@dataclass
class _Settlement:
    """What one transaction writes."""

    entries: list[ledger.Entry] = field(default_factory=list)
    removed: list[UUID] = field(default_factory=list)
    undone: list[ledger.Key] = field(default_factory=list)
    closed: list[EffectKey] = field(default_factory=list)
    again: list[intents.Later] = field(default_factory=list)
    ended: list[tuple[Claimed, Kind, Done | Failed]] = field(default_factory=list)
    letters: list[EffectLetter] = field(default_factory=list)


class Effects:
    """Carries out the intents of every service this deployment has a handler for."""

    def __init__(
        self,
        engine: Engine,
        services: Mapping[str, Service],
        redacted: Callable[[str], str],
        jitter: Callable[[], float],
        clock: Callable[[], datetime] | None = None,
    ) -> None:
        self._engine = engine
        self._services = services
        self._redacted = redacted
        self._jitter = jitter
        self._clock = clock
        self._kinds = {kind.name: kind for each in services.values() for kind in each.kinds}

    def serves(self, service_name: str) -> bool:
        return service_name in self._services

    @property
    def services(self) -> list[str]:
        return sorted(self._services)

    def run(
        self, service_name: str, named: Sequence[UUID] | None = None, seconds: float = 1.0
    ) -> Executed:
        """Carry out what is due until nothing is, or the time is up; only those `named`, if any."""
        service = self._services[service_name]
        total, until = Executed(service_name), monotonic() + seconds
        while True:
            began = monotonic()
            claim = self._claim(service, named, total)
            if claim.claimed:
                self._carry_out(service, claim, began + service.lease_seconds, total)
            total.more = claim.looked_at > 0
            if not total.more or monotonic() >= until:
                return total

    def _claim(self, service: Service, named: Sequence[UUID] | None, total: Executed) -> _Claim:
        """One transaction: the attempt is counted and the lease runs once it commits."""
        call = CallId(str(uuid4()))
        with Session(self._engine) as session, session.begin():
            if service.handler.transactional:  # nothing leaves the database before it is settled
                session.execute(text("SET LOCAL synchronous_commit = off"))
            now = self._now(session)
            circuit, most = circuits.read(session, service.name), service.batch
            if circuit.state is not CircuitState.CLOSED:
                circuit = circuits.lock(session, service.name)
                allowed = admit(service.breaker, circuit, call, now)
                if isinstance(allowed, Barred):
                    intents.postpone(session, service.name, now, allowed.until)
                    return _Claim(call, circuit)
                most = 1 if circuit.state is not CircuitState.CLOSED else most
                probing = allowed
            else:
                probing = Admitted(circuit)
            found = intents.due(session, service.name, now, most, named)
            claim = _Claim(call, circuit, looked_at=len(found))
            if found and probing.circuit is not circuit:
                until = now + service.breaker.probe_timeout
                circuits.save(session, service.name, probing.circuit, until, now)
                claim.circuit = probing.circuit
            stale = [each.claimed for each in found if self._is_over(each)]
            ledger.record(session, [ledger.Entry(each, "cancelled") for each in stale], now)
            intents.remove(session, [each.intent_id for each in stale])
            total.cancelled += len(stale)
            claim.claimed = [each.claimed for each in found if not self._is_over(each)]
            claim.known = self._known(session, claim.claimed)
            lease = timedelta(seconds=service.lease_seconds)
            intents.lease(session, claim.claimed, now + lease)
            if service.rechecked:
                _recheck(session, [each.claimed.entity_id for each in found if each.lost], now)
        return claim

    def _is_over(self, found: intents.Found) -> bool:
        """Staleness drops only what would establish something; a removal outlives its machine."""
        return not found.current and not self._kinds[found.claimed.kind].removal

    def _known(self, session: Session, claimed: Sequence[Claimed]) -> dict[UUID, Done | Failed]:
        """What was done before under the same natural key is not done again."""
        keys = {each.intent_id: _key(each, each.kind) for each in claimed if each.registration_id}
        found = ledger.in_force(session, [key for key in keys.values() if key is not None])
        known: dict[UUID, Done | Failed] = {}
        for each in claimed:
            key = keys.get(each.intent_id)
            if key is not None and key in found:
                same = found[key] == ledger.digest(each.payload)
                known[each.intent_id] = Done() if same else Failed(FailureKind.PERMANENT, _CONFLICT)
        return known

    def _carry_out(self, service: Service, claim: _Claim, until: float, total: Executed) -> None:
        """Have the handler do it, then settle. Our own database is written while settling."""
        handler, to_do = service.handler, claim.to_do
        answer = Answer({}, ())
        if handler.transactional:
            self._settle_writing(service, claim, claim.claimed, until, total)
            return
        if to_do:
            answer = self._answer(service, to_do, until)
        with Session(self._engine) as session, session.begin():
            self._settle(session, service, claim, claim.claimed, answer, total)

    def _answer(self, service: Service, to_do: Sequence[Claimed], until: float) -> Answer:
        try:
            return service.handler.perform(to_do, until, None)
        except Exception as error:  # a handler answers: an exception is a bug, and counts as one
            logger("effects").exception("handler failed", service=service.name)
            said = f"{type(error).__name__}: {error}"
            failed = Failed(FailureKind.UNKNOWN, said)
            return Answer({each.intent_id: failed for each in to_do}, (CallOutcome.FAILURE,))

    def _settle_writing(
        self,
        service: Service,
        claim: _Claim,
        claimed: Sequence[Claimed],
        until: float,
        total: Executed,
    ) -> None:
        """Write and settle together. What the database refuses is halved until the bad one is
        alone."""
        to_do = [each for each in claimed if each.intent_id not in claim.known]
        try:
            with Session(self._engine) as session, session.begin():
                ours = intents.settling(session, claimed)
                owned = [
                    each for each in to_do if ours.attempts.get(each.intent_id) == each.attempt
                ]
                answer = service.handler.perform(owned, until, session)
                self._settle(session, service, claim, claimed, answer, total)
        except DBAPIError as error:
            if len(claimed) > 1:
                middle = len(claimed) // 2
                for half in (claimed[:middle], claimed[middle:]):
                    self._settle_writing(service, claim, half, until, total)
                return
            kind = FailureKind.PERMANENT if refuses(error) else FailureKind.TRANSIENT
            call = CallOutcome.REFUSED if refuses(error) else CallOutcome.FAILURE
            failed = Failed(kind, str(error).splitlines()[0])
            answer = Answer({claimed[0].intent_id: failed}, (call,))
            with Session(self._engine) as session, session.begin():
                self._settle(session, service, claim, claimed, answer, total)

    def _settle(
        self,
        session: Session,
        service: Service,
        claim: _Claim,
        claimed: Sequence[Claimed],
        answer: Answer,
        total: Executed,
    ) -> None:
        """Everything that follows from the answer, in one transaction."""
        now = self._now(session)
        ours = intents.settling(session, claimed)
        barred = self._move_circuit(session, service, claim, answer.calls, now)
        made = _Settlement()
        for each in claimed:
            if ours.attempts.get(each.intent_id) != each.attempt:
                total.lost += 1  # the lease ran out, and somebody else has it
                continue
            outcome = claim.known.get(each.intent_id) or answer.outcomes.get(each.intent_id)
            self._conclude(service, made, each, outcome, barred, now)
        ledger.undo(session, made.undone)
        # What was done before under the same natural key has its row, and it stands once.
        known = {key for key, outcome in claim.known.items() if isinstance(outcome, Done)}
        fresh = [each for each in made.entries if each.claimed.intent_id not in known]
        ledger.record(session, fresh, now)
        intents.remove(session, made.removed)
        intents.later(session, made.again)
        dead_letters.put_effects(session, made.letters)
        dead_letters.close_for(session, made.closed, "done")
        results = _results(made.ended, ours.steps, now)
        inbox.put(session, results)
        total.done += sum(isinstance(outcome, Done) for _, _, outcome in made.ended)
        total.failed += sum(isinstance(outcome, Failed) for _, _, outcome in made.ended)
        total.again += len(made.again)
        total.rooms |= {(each.domain, each.partition) for each in results}

    def _conclude(
        self,
        service: Service,
        made: _Settlement,
        claimed: Claimed,
        outcome: Done | Failed | None,
        barred: datetime | None,
        now: datetime,
    ) -> None:
        """What becomes of one intent."""
        kind = self._kinds[claimed.kind]
        if outcome is None:  # there was no time for it: it was not tried
            made.again.append(_later(claimed, now, claimed.tries, claimed.history))
            return
        if isinstance(outcome, Done):
            if kind.inverse is not None and (key := _key(claimed, kind.inverse)) is not None:
                made.undone.append(key)
            made.entries.append(ledger.Entry(claimed, "succeeded"))
            made.closed.append(EffectKey(claimed.entity_id, kind.name, claimed.registration_id))
            made.removed.append(claimed.intent_id)
            made.ended.append((claimed, kind, outcome))
            return
        failed = Failed(outcome.kind, self._redacted(outcome.error)[:_LONGEST_ERROR])
        tried = {
            "attempt": claimed.attempt,
            "at": now.isoformat(),
            "kind": failed.kind.value,
            "error": failed.error,
        }
        history = (*claimed.history, tried)[-MOST_HISTORY:]
        if barred is not None and failed.kind is not FailureKind.PERMANENT:
            made.again.append(_later(claimed, barred, claimed.tries, history))
            return
        not_after = None if kind.removal else claimed.not_after
        tries = claimed.tries + 1
        match next_attempt(service.retry, tries, failed.kind, now, not_after, self._jitter()):
            case RetryAt(at=at):
                made.again.append(_later(claimed, at, tries, history))
            case GiveUp(reason=reason):
                conflict = failed.error == _CONFLICT
                status = "conflict" if conflict else "failed"
                made.entries.append(ledger.Entry(claimed, status, failed.error))
                made.removed.append(claimed.intent_id)
                made.ended.append((claimed, kind, failed))
                # A machine that is waiting is told, and may ask again; a removal has nobody.
                if kind.removal or reason is GiveUpReason.PERMANENT_ERROR:
                    said = "conflict" if conflict else reason.value
                    made.letters.append(_letter(claimed, said, failed.error, history, now))
            case _:
                raise AssertionError

    def _move_circuit(
        self,
        session: Session,
        service: Service,
        claim: _Claim,
        calls: Sequence[CallOutcome],
        now: datetime,
    ) -> datetime | None:
        """Move the circuit by what the calls told; until when nothing goes, if it is not closed."""
        quiet = CallOutcome.FAILURE not in calls and claim.circuit == Circuit()
        if quiet or not calls:
            return None
        before = circuit = circuits.lock(session, service.name)
        for outcome in calls:
            circuit = settle(service.breaker, circuit, claim.call, outcome, now)
        barred: datetime | None = None
        if circuit.state is CircuitState.OPEN and circuit.opened_at is not None:
            barred = circuit.opened_at + service.breaker.reset_timeout
        elif circuit.state is CircuitState.HALF_OPEN:
            barred = now + service.breaker.probe_timeout
        if circuit != before:
            circuits.save(session, service.name, circuit, barred, now)
        if circuit.state is not before.state:
            logger("effects").warning(
                "circuit moved",
                service=service.name,
                before=before.state.value,
                after=circuit.state.value,
                failures=circuit.failures,
            )
            if circuit.state is CircuitState.CLOSED:
                intents.resume(session, service.name, now)
        return barred

    def _now(self, session: Session) -> datetime:
        return self._clock() if self._clock else partitions.now(session)


def _results(
    ended: Sequence[tuple[Claimed, Kind, Done | Failed]],
    steps: Mapping[tuple[str, str, int], int],
    now: datetime,
) -> list[inbox.Addressed]:
    """The events that tell the machines; each id is the intent's and its attempt's."""
    left = dict(steps)
    made: list[inbox.Addressed] = []
    for claimed, kind, outcome in ended:
        step = (claimed.entity_id, claimed.machine, claimed.sequence)
        left[step] -= 1
        payload: dict[str, Any] = {
            "intent_id": str(claimed.intent_id),
            "attempt": claimed.attempt,
            "asked_at": claimed.sequence,
            "registration_id": claimed.registration_id,
            "outstanding": left[step],
        }
        if kind.flag is not None:
            payload[kind.flag] = isinstance(outcome, Done)
        if isinstance(outcome, Failed):
            payload[kind.error_field] = outcome.error or "no reason given"
            payload["permanent"] = outcome.kind is FailureKind.PERMANENT
        envelope = Envelope.trusted(
            message_id=uuid5(claimed.intent_id, str(claimed.attempt)),
            correlation_id=claimed.correlation_id,
            causation_id=claimed.causation_id,
            emitted_at=now,
            entity_id=claimed.entity_id,
            message_type=kind.succeeded if isinstance(outcome, Done) else kind.failed,
            payload=payload,
        )
        made.append(inbox.Addressed(claimed.domain, claimed.partition, envelope))
        if isinstance(outcome, Failed):
            with correlated(str(claimed.correlation_id), entity_id=claimed.entity_id):
                logger("effects").warning(
                    "effect given up", kind=kind.name, attempt=claimed.attempt, error=outcome.error
                )
    return made


def _later(
    claimed: Claimed, at: datetime, tries: int, history: Sequence[Mapping[str, Any]]
) -> intents.Later:
    return intents.Later(claimed.intent_id, at, tries, claimed.not_after, history)


def _letter(
    claimed: Claimed,
    reason: str,
    error: str,
    history: Sequence[Mapping[str, Any]],
    now: datetime,
) -> EffectLetter:
    return EffectLetter(
        domain=claimed.domain,
        machine=claimed.machine,
        kind=claimed.kind,
        entity_id=claimed.entity_id,
        intent_id=claimed.intent_id,
        registration_id=claimed.registration_id,
        payload=claimed.payload,
        correlation_id=claimed.correlation_id,
        causation_id=claimed.causation_id,
        reason=reason,
        error=error,
        attempts=claimed.attempt,
        history=history,
        at=now,
        sequence=claimed.sequence,
    )


def _key(claimed: Claimed, kind: str) -> ledger.Key | None:
    if claimed.registration_id is None:
        return None
    return ledger.Key(claimed.entity_id, kind, claimed.registration_id)


def _recheck(session: Session, node_ids: Sequence[str], now: datetime) -> None:
    """Whoever lost a lease may still write: these nodes are looked at again later."""
    if node_ids:
        values = {"node_ids": [*node_ids], "due_at": now + timedelta(minutes=1)}
        session.execute(_RECHECK, values)
