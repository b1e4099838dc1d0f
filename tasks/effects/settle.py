"""What follows from a handler's answer: all of it in one transaction.

Done, tried again later, or given up; whichever it is, whoever asked is told.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID, uuid5

from sqlalchemy.orm import Session

from fsm.breaker import CallId, Circuit
from fsm.retry import FailureKind, GiveUp, GiveUpReason, RetryAt, next_attempt
from models.envelope import Envelope
from tasks.doorbell import Room
from tasks.effects.circuit import move_circuit
from tasks.effects.handler import Answer, Claimed, Done, Failed, Kind, Service
from tasks.logs import correlated, logger
from tasks.store import dead_letters, garbage, inbox, intents, ledger
from tasks.store.dead_letters import EffectKey, EffectLetter

MOST_HISTORY = 20
CONFLICT = "the same thing was done before with another payload"
_LONGEST_ERROR = 500


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
class Claim:
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


class Settling:
    """Writes what became of the intents of a claim."""

    def __init__(
        self,
        kinds: Mapping[str, Kind],
        redacted: Callable[[str], str],
        jitter: Callable[[], float],
    ) -> None:
        self._kinds = kinds
        self._redacted = redacted
        self._jitter = jitter

    def settle(
        self,
        session: Session,
        service: Service,
        claim: Claim,
        claimed: Sequence[Claimed],
        answer: Answer,
        now: datetime,
        total: Executed,
    ) -> None:
        """Everything that follows from the answer, in one transaction."""
        ours = intents.settling(session, claimed)
        given_up = ledger.given_up(session, claimed)
        barred = move_circuit(session, service, claim.call, claim.circuit, answer.calls, now)
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
        if service.rechecked:
            garbage.look_again(session, _in_doubt(made), now)
        dead_letters.put_effects(session, made.letters)
        dead_letters.close_for(session, made.closed, "done")
        results = _results(made.ended, ours.steps, given_up, now)
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
            if kind.inverse is not None and (key := natural_key(claimed, kind.inverse)) is not None:
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
        unheard = kind.removal or kind.failed is None  # no machine asks for it again
        not_after = None if unheard else claimed.not_after
        tries = claimed.tries + 1
        match next_attempt(service.retry, tries, failed.kind, now, not_after, self._jitter()):
            case RetryAt(at=at):
                made.again.append(_later(claimed, at, tries, history))
            case GiveUp(reason=reason):
                conflict = failed.error == CONFLICT
                said = "conflict" if conflict else reason.value
                letter = _letter(claimed, said, failed.error, history, now)
                entry = ledger.Entry(claimed, "conflict" if conflict else "failed", failed.error)
                made.removed.append(claimed.intent_id)
                made.ended.append((claimed, kind, failed))
                if unheard or reason is GiveUpReason.PERMANENT_ERROR:
                    made.letters.append(letter)
                else:  # its machine is told and may ask again: the letter waits until it gives up
                    entry = entry._replace(envelope=letter.envelope(), history=letter.told())
                made.entries.append(entry)
            case _:
                raise AssertionError


def _in_doubt(made: _Settlement) -> set[str]:
    """Whose attempt was given up without an answer: it may be done after all."""
    return {
        claimed.entity_id
        for claimed, _, outcome in made.ended
        if isinstance(outcome, Failed) and outcome.kind is FailureKind.UNKNOWN
    }


def natural_key(claimed: Claimed, kind: str) -> ledger.Key | None:
    if claimed.registration_id is None:
        return None
    return ledger.Key(claimed.entity_id, kind, claimed.registration_id)


def _results(
    ended: Sequence[tuple[Claimed, Kind, Done | Failed]],
    steps: Mapping[tuple[str, str, int], int],
    given_up: Mapping[tuple[str, str, int], int],
    now: datetime,
) -> list[inbox.Addressed]:
    """The events that tell the machines; each id is the intent's and its attempt's. What was given
    up stays outstanding: it is not done."""
    left = {step: count + given_up.get(step, 0) for step, count in steps.items()}
    made: list[inbox.Addressed] = []
    for claimed, kind, outcome in ended:
        step = (claimed.entity_id, claimed.machine, claimed.sequence)
        payload: dict[str, Any] = {
            "intent_id": str(claimed.intent_id),
            "attempt": claimed.attempt,
            "asked_at": claimed.sequence,
            "registration_id": claimed.registration_id,
            "outstanding": left[step] - 1,
        }
        if isinstance(outcome, Done):
            left[step] -= 1
        if kind.flag is not None:
            payload[kind.flag] = isinstance(outcome, Done)
        if isinstance(outcome, Failed):
            payload[kind.error_field] = outcome.error or "no reason given"
            payload["permanent"] = outcome.kind is FailureKind.PERMANENT
        message_type = kind.succeeded if isinstance(outcome, Done) else kind.failed
        if message_type is not None:
            envelope = Envelope.trusted(
                message_id=uuid5(claimed.intent_id, str(claimed.attempt)),
                correlation_id=claimed.correlation_id,
                causation_id=claimed.causation_id,
                emitted_at=now,
                entity_id=claimed.entity_id,
                message_type=message_type,
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
