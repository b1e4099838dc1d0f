"""What an operator does with dead letters: find them, have them done again, or let them go.

A message goes back to the tail of its inbox. An intent is asked for again while its machine still
waits for it, and a removal always; once its attempt is over, the machine decides what comes next.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID, uuid5

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from fsm.delta import delta
from fsm.machines import Machines, domain_of, partition_of
from models.envelope import Envelope
from models.messages.registration import ReplayRegistrationRequested
from models.messages.runtime import PullTrigger
from tasks.doorbell import Room, service_room
from tasks.effects.services import KINDS
from tasks.store import inbox, letters, partitions, processed
from tasks.store.letters import Filter, Letter, Standing
from tasks.worker_process import WorkerProcess

CHUNK = 500
REPLAYED = "replayed"
DISCARDED = "discarded"
REMOVALS = frozenset(kind.name for kind in KINDS if kind.removal)
"""Intents that outlive their machine: what they take away must go, whatever came after."""

_REGISTRATION = "registration"
_RETRY = "RETRY"
_MAY_START_AGAIN = frozenset({"failed", "partial_registered", "deregistered"})

Told = Callable[[int], None]
Standings = Mapping[tuple[str, str], Standing]


class Again(StrEnum):
    """How a letter is done again."""

    MESSAGE = "message"  # back into the inbox, at the tail
    INTENT = "intent"  # a new attempt with the same identity
    REGISTRATION = "registration"  # the roll call decides: RETRY, or a new generation
    TRIGGER = "retry"  # RETRY is pulled on its machine
    REFUSED = "refused"


class Plan(NamedTuple):
    """What replaying a letter would do, and in words."""

    again: Again
    why: str


class Fate(NamedTuple):
    """What became of a letter that was asked for."""

    dead_letter_id: int
    outcome: str
    why: str

    @property
    def done(self) -> bool:
        return self.outcome in (REPLAYED, DISCARDED)


def find(session: Session, which: Filter, most: int = 50) -> list[Letter]:
    """The newest letters that the filter lets through."""
    return letters.find(session, which, most)


def plan(letter: Letter, standings: Standings, machines: Machines) -> Plan:
    """Decide, changing nothing."""
    if letter.domain not in machines.domains:
        return Plan(Again.REFUSED, f"no machine of the domain {letter.domain} runs here")
    if letter.kind is None:
        return Plan(Again.MESSAGE, "the message goes back into the inbox, behind what waits there")
    if letter.kind in REMOVALS:
        return Plan(Again.INTENT, "a removal outlives its machine: it is tried again")
    machine = str(letter.machine)
    standing = standings.get((letter.entity_id, machine))
    if standing is None:
        return Plan(Again.REFUSED, f"{letter.entity_id} has no {machine}")
    if standing.sequence == letter.sequence:
        return Plan(Again.INTENT, f"its machine still waits in {standing.state}: it is tried again")
    if machine == _REGISTRATION:
        return _registration(letter, standing, machines)
    if _takes_retry(machines, machine, standing):
        return Plan(Again.TRIGGER, f"its attempt is over: {_RETRY} is pulled in {standing.state}")
    return Plan(Again.REFUSED, f"its machine moved on to {standing.state}, which takes no {_RETRY}")


def _registration(letter: Letter, standing: Standing, machines: Machines) -> Plan:
    if standing.context.get("registration_id") != letter.registration_id:
        return Plan(Again.REFUSED, "a later registration of the node took its place: discard it")
    if standing.state not in _MAY_START_AGAIN:
        return Plan(Again.REFUSED, f"its registration went on and is in {standing.state}")
    if _takes_retry(machines, _REGISTRATION, standing):
        return Plan(Again.REGISTRATION, f"its attempt is over: {_RETRY} in {standing.state}")
    return Plan(
        Again.REGISTRATION,
        "its attempt is over and may not be retried: it is abandoned, and a new generation begins"
        " with what the node said last",
    )


def _takes_retry(machines: Machines, machine: str, standing: Standing) -> bool:
    contract = machines.named(machine)
    return (
        contract is not None
        and contract.accepts_from_outside(_RETRY)
        and delta(
            contract, standing.state, _RETRY, dict(standing.context), cause=UUID(int=0)
        ).changed
    )


def replay(process: WorkerProcess, ids: Sequence[int], told: Told = lambda _: None) -> list[Fate]:
    """Have these letters done again, one transaction a chunk. Whoever replays the same letter at
    the same time finds it taken: it is done again once."""
    fates: list[Fate] = []
    for chunk in _chunks(ids):
        with Session(process.engine) as session, session.begin():
            taken = letters.take(session, chunk)
            standings = letters.standings(session, taken)
            planned = [(each, plan(each, standings, process.machines)) for each in taken]
            rooms = _carry_out(session, planned)
            done = [Fate(each.dead_letter_id, _outcome(made), made.why) for each, made in planned]
            letters.close(session, [each.dead_letter_id for each in done if each.done], REPLAYED)
            done += _missing(session, chunk, taken)
        process.doorbell.ring({*rooms, *_services(planned)})
        fates += done
        told(len(chunk))
    return fates


def _services(planned: Iterable[tuple[Letter, Plan]]) -> set[Room]:
    """Whose bells are rung for the intents that are asked for again."""
    return {
        service_room(str(letter.kind).partition(".")[0])
        for letter, made in planned
        if made.again is Again.INTENT
    }


def discard(
    engine: Engine, ids: Sequence[int], reason: str, told: Told = lambda _: None
) -> list[Fate]:
    """Close these letters without doing anything; why is kept with them."""
    fates: list[Fate] = []
    for chunk in _chunks(ids):
        with Session(engine) as session, session.begin():
            taken = letters.take(session, chunk)
            closed = [each.dead_letter_id for each in taken]
            letters.close(session, closed, f"{DISCARDED}: {reason}")
            fates += [Fate(each, DISCARDED, reason) for each in closed]
            fates += _missing(session, chunk, taken)
        told(len(chunk))
    return fates


def _carry_out(session: Session, planned: Sequence[tuple[Letter, Plan]]) -> set[tuple[str, int]]:
    """Write what the plans say, one statement for each sort; whom to ring afterwards."""
    number, now = partitions.number(session), partitions.now(session)
    messages: list[inbox.Addressed] = []
    intents: dict[int, int] = {}
    for letter, made in planned:
        partition = partition_of(letter.entity_id, number)
        match made.again:
            case Again.MESSAGE:
                messages.append(inbox.Addressed(letter.domain, partition, _message(letter)))
            case Again.INTENT:
                intents[letter.dead_letter_id] = partition
            case Again.REGISTRATION | Again.TRIGGER:
                asked = _command(letter, made.again, now)
                messages.append(inbox.Addressed(letter.domain, partition, asked))
            case Again.REFUSED:
                pass
    processed.forget_dead(session, [each.envelope.message_id for each in messages])
    inbox.put(session, messages)
    letters.ask_again(session, intents)
    return {(each.domain, each.partition) for each in messages}


def _message(letter: Letter) -> Envelope:
    said = letter.envelope
    cause = said["causation_id"]
    return Envelope.trusted(
        message_id=UUID(letter.message_id),
        correlation_id=UUID(letter.correlation_id),
        causation_id=None if cause is None else UUID(cause),
        emitted_at=datetime.fromisoformat(said["emitted_at"]),
        entity_id=letter.entity_id,
        message_type=letter.message_type,
        payload=said["payload"],
    )


def _command(letter: Letter, again: Again, now: datetime) -> Envelope:
    """Ask the machine, which decides. The id is the letter's: asked twice, it is asked once."""
    if again is Again.REGISTRATION:
        message_type = ReplayRegistrationRequested.message_type
        payload: dict[str, Any] = {
            "node_id": letter.entity_id,
            "registration_id": letter.registration_id,
        }
    else:
        machine = str(letter.machine)
        message_type = f"{domain_of(machine)}.commands.{PullTrigger.name}"
        payload = {"machine": machine, "trigger": _RETRY, "data": {}}
    cause = letter.envelope.get("causation_id")
    return Envelope.trusted(
        message_id=uuid5(UUID(letter.message_id), f"replay:{letter.dead_letter_id}"),
        correlation_id=UUID(letter.correlation_id),
        causation_id=None if cause is None else UUID(cause),
        emitted_at=now,
        entity_id=letter.entity_id,
        message_type=message_type,
        payload=payload,
    )


def _missing(session: Session, chunk: Sequence[int], taken: Iterable[Letter]) -> list[Fate]:
    """Why the others could not be taken."""
    left = {*chunk} - {each.dead_letter_id for each in taken}
    if not left:
        return []
    known = {each.dead_letter_id: each.closed_as for each in letters.read(session, [*left])}
    return [
        Fate(each, "unknown", "there is no such letter")
        if each not in known
        else Fate(each, "closed", f"it is closed: {known[each]}")
        if known[each] is not None
        else Fate(each, "busy", "somebody else works on it")
        for each in sorted(left)
    ]


def _outcome(made: Plan) -> str:
    return Again.REFUSED.value if made.again is Again.REFUSED else REPLAYED


def _chunks(ids: Sequence[int]) -> Iterable[Sequence[int]]:
    wanted = [*dict.fromkeys(ids)]
    return (wanted[at : at + CHUNK] for at in range(0, len(wanted), CHUNK))
