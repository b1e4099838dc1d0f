"""How an intent is carried out: claim → circuit → handler → settle.

A claim commits its attempt and a lease before anything is sent. Settling writes the outcome, the
result's event and the circuit in one transaction; a claim that was lost meanwhile settles nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from time import monotonic
from uuid import UUID, uuid4

from sqlalchemy import Engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from fsm.breaker import Admitted, Barred, CallId, CallOutcome, CircuitState, admit
from fsm.retry import FailureKind
from tasks.effects.handler import Answer, Claimed, Done, Failed, Service
from tasks.effects.settle import CONFLICT, Claim, Executed, Settling, natural_key
from tasks.logs import logger
from tasks.poison import refuses
from tasks.store import circuits, garbage, intents, ledger, partitions


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
        self._clock = clock
        self._kinds = {kind.name: kind for each in services.values() for kind in each.kinds}
        self._settling = Settling(self._kinds, redacted, jitter)

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

    def _claim(self, service: Service, named: Sequence[UUID] | None, total: Executed) -> Claim:
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
                    return Claim(call, circuit)
                most = 1 if circuit.state is not CircuitState.CLOSED else most
                probing = allowed
            else:
                probing = Admitted(circuit)
            found = intents.due(session, service.name, now, most, named)
            claim = Claim(call, circuit, looked_at=len(found))
            stale = [each.claimed for each in found if self._is_over(each)]
            ledger.record(session, [ledger.Entry(each, "cancelled") for each in stale], now)
            intents.remove(session, [each.intent_id for each in stale])
            total.cancelled += len(stale)
            claim.claimed = [each.claimed for each in found if not self._is_over(each)]
            claim.known = self._known(session, claim.claimed)
            # What is dropped or was done before makes no call: it must not use up the one probe.
            if claim.to_do and probing.circuit is not circuit:
                until = now + service.breaker.probe_timeout
                circuits.save(session, service.name, probing.circuit, until, now)
                claim.circuit = probing.circuit
            lease = timedelta(seconds=service.lease_seconds)
            intents.lease(session, claim.claimed, now + lease)
            if service.rechecked:
                garbage.look_again(session, _in_doubt(found, stale), now)
        return claim

    def _is_over(self, found: intents.Found) -> bool:
        """Staleness drops only what would establish something; a removal outlives its machine."""
        return not found.current and not self._kinds[found.claimed.kind].removal

    def _known(self, session: Session, claimed: Sequence[Claimed]) -> dict[UUID, Done | Failed]:
        """What was done before under the same natural key is not done again."""
        keys = {
            each.intent_id: natural_key(each, each.kind) for each in claimed if each.registration_id
        }
        found = ledger.in_force(session, [key for key in keys.values() if key is not None])
        known: dict[UUID, Done | Failed] = {}
        for each in claimed:
            key = keys.get(each.intent_id)
            if key is not None and key in found:
                same = found[key] == ledger.digest(each.payload)
                known[each.intent_id] = Done() if same else Failed(FailureKind.PERMANENT, CONFLICT)
        return known

    def _carry_out(self, service: Service, claim: Claim, until: float, total: Executed) -> None:
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
        claim: Claim,
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
        claim: Claim,
        claimed: Sequence[Claimed],
        answer: Answer,
        total: Executed,
    ) -> None:
        now = self._now(session)
        self._settling.settle(session, service, claim, claimed, answer, now, total)

    def _now(self, session: Session) -> datetime:
        return self._clock() if self._clock else partitions.now(session)


def _in_doubt(found: Sequence[intents.Found], stale: Sequence[Claimed]) -> set[str]:
    """Whoever lost a lease may still write, and what was tried before it was over may be done."""
    lost = {each.claimed.entity_id for each in found if each.lost}
    return lost | {each.entity_id for each in stale if each.attempt > 1}
