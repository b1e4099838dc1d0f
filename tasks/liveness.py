"""Who is expired for silence and who is spared: a fresh heartbeat wins, and so does the brake."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from sqlalchemy.orm import Session

from fsm.liveness import ACTIVE, HANDSHAKE, LIVENESS, LivenessPolicy
from models.envelope import Envelope
from models.messages.runtime import DeadlinePassed
from models.topics import Category
from tasks.batch import Batch
from tasks.logs import logger
from tasks.store import brake, heartbeats
from tasks.store.entities import Stored
from tasks.store.inbox import Addressed, Waiting

_TYPE = f"registration.{Category.EVENTS.value}.{DeadlinePassed.name}"


def is_expiry(message: Envelope) -> bool:
    """Whether it says that a node's liveness ran out."""
    return (
        message.message_type == _TYPE
        and message.payload.get("machine") == HANDSHAKE
        and message.payload.get("deadline") == LIVENESS
    )


class LivenessWatch:
    """One tick's look at the nodes whose time has come. Silence is measured once a tick."""

    def __init__(self, policy: LivenessPolicy) -> None:
        self._policy = policy
        self._held: bool | None = None

    def look_at_brake(self, session: Session, now: datetime) -> None:
        """Measure, hold or let go. Whoever finds the brake in other hands expires nobody."""
        taken = brake.take(session)
        if taken is None:
            self._held = True
            return
        found = brake.measure(session, now - self._policy.quiet)
        before, self._held = taken.held_since, self._policy.holds(found.silent, found.live)
        if before is not None and not self._held:
            brake.extend_all(session, now, self._policy.liveness)
        brake.note(session, (before or now) if self._held else None, found, now)
        told = {"silent": found.silent, "live": found.live}
        if self._held and before is None:
            logger("liveness").error("brake held: too many nodes are silent at once", **told)
        elif before is not None and not self._held:
            logger("liveness").warning("brake released: expiring goes on", **told)

    def sift(self, session: Session, messages: Sequence[Addressed]) -> list[Addressed]:
        """The messages without the expiries of nodes that are to be spared; their deadlines are
        set again. In the transaction that found them."""
        asked = {each.envelope.entity_id: each for each in messages if is_expiry(each.envelope)}
        if not asked:
            return [*messages]
        now = next(iter(asked.values())).envelope.emitted_at
        spared = _later(heartbeats.read(session, asked), now)
        stale = asked.keys() - spared.keys()
        if stale and self._held is None:
            self.look_at_brake(session, now)
        if stale and self._held:
            spared |= dict.fromkeys(stale, now + self._policy.liveness)
        elif stale:
            spared |= _later(heartbeats.lock(session, stale), now)
        heartbeats.rearm(session, HANDSHAKE, LIVENESS, spared)
        return [
            each
            for each in messages
            if not (is_expiry(each.envelope) and each.envelope.entity_id in spared)
        ]


def spare_the_living(
    session: Session,
    batch: Batch,
    waiting: Sequence[Waiting],
    stored: Stored,
    policy: LivenessPolicy,
) -> list[Waiting]:
    """What is left to fold: an expiry goes when the node was heard since, or the brake holds.

    It is not remembered as processed: the same deadline comes again under the same id."""
    asked = {each.envelope.entity_id for each in waiting if _stands(each.envelope, stored)}
    if not asked:
        return [*waiting]
    untils = heartbeats.lock(session, asked)
    if brake.held(session):
        until = batch.now + policy.liveness
        untils = {each: max(untils.get(each, until), until) for each in asked}
    spared = _later(untils, batch.now)
    heartbeats.rearm(session, HANDSHAKE, LIVENESS, spared)
    left = []
    for each in waiting:
        if each.envelope.entity_id in spared and _stands(each.envelope, stored):
            batch.done.append(each.position)
        else:
            left.append(each)
    return left


def follow(session: Session, batch: Batch) -> None:
    """A node that became active has a heartbeat row, one that no longer is has none."""
    touched = {*_moved_through_active(batch)}
    if not touched:
        return
    latest = {each: batch.latest[each, HANDSHAKE] for each in touched}
    heartbeats.end(session, sorted(each for each in touched if latest[each].state != ACTIVE))
    heartbeats.begin(
        session,
        {
            each: latest[each].deadlines[LIVENESS].at
            for each in sorted(touched)
            if latest[each].state == ACTIVE and LIVENESS in latest[each].deadlines
        },
        batch.now,
    )


def _moved_through_active(batch: Batch) -> Iterator[str]:
    for _, made in batch.steps:
        for fold in made.folds:
            projection = fold.folded.projection
            if projection.machine == HANDSHAKE and ACTIVE in (fold.state_before, projection.state):
                yield projection.entity_id


def _stands(message: Envelope, stored: Stored) -> bool:
    """Whether it speaks of the deadline that the node has now."""
    if not is_expiry(message):
        return False
    handshake = stored.get(message.entity_id, {}).get(HANDSHAKE)
    deadline = None if handshake is None else handshake.deadlines.get(LIVENESS)
    return deadline is not None and deadline.set_by == message.payload.get("set_by")


def _later(untils: dict[str, datetime], now: datetime) -> dict[str, datetime]:
    return {node_id: until for node_id, until in untils.items() if until > now}
