"""Garbage collection: what Consul and PostgreSQL hold that no live registration stands behind,
and what Consul forgot.

Consul is read before PostgreSQL: whoever is being registered was in PostgreSQL first, and is found
there. What is taken from Consul goes only if nobody wrote it since it was read.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from time import monotonic
from typing import Any, TypeVar
from uuid import uuid5

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from fsm.breaker import CircuitState
from fsm.hop import asked_on_entry
from fsm.machines import Machines, domain_of, partition_of
from models.envelope import Envelope
from models.messages.registration import DeregisterNodeRequested
from models.projection import Projection
from tasks.collected import Collected, GcPolicy
from tasks.doorbell import Room, service_room
from tasks.effects.consul_catalog import Catalog, Entry, read_catalog, remove
from tasks.effects.consul_client import ConsulClient
from tasks.effects.services import CONSUL
from tasks.logs import logger
from tasks.store import (
    brake,
    circuits,
    dead_letters,
    entities,
    garbage,
    inbox,
    intents,
    ledger,
    partitions,
)
from tasks.store.dead_letters import EffectKey

REGISTER, DEREGISTER = "consul.register", "consul.deregister"
UPSERT, DELETE = "postgres.upsert_registration", "postgres.delete_registration"
CLOSED_AS = "garbage collected"
_REGISTRATION, _HANDSHAKE = "registration", "handshake"
_WALK = 5000

Told = Callable[[int], None]
T = TypeVar("T")


class Collector:
    """One deployment's garbage collection. Without a client, Consul is left alone."""

    def __init__(
        self,
        engine: Engine,
        machines: Machines,
        client: ConsulClient | None,
        prefix: str,
        policy: GcPolicy,
    ) -> None:
        self._engine = engine
        self._machines = machines
        self._client = client
        self._prefix = prefix
        self._policy = policy

    def run(
        self,
        ring: Callable[[Iterable[Room]], object],
        *,
        dry_run: bool = False,
        unless_since: timedelta | None = None,
        told: Told = lambda _: None,
    ) -> Collected:
        """Collect once; only one run at a time works. `unless_since`: not if one ran so lately."""
        done, began = Collected(dry_run), monotonic()
        with Session(self._engine) as holder, holder.begin():
            now = partitions.now(holder)
            if not garbage.alone(holder):
                done.skipped = "another garbage collection is under way"
            elif brake.held(holder):
                done.skipped = "the brake holds: too many nodes are silent at once"
            elif unless_since and garbage.ran_since(holder, now - unless_since):
                done.skipped = "it ran a moment ago"
            if done.skipped:
                return done
            try:
                rooms = self._send_away(done, now)
                self._collect(holder, done, now, began + self._policy.seconds, told)
            finally:
                done.seconds = round(monotonic() - began, 3)
                if not dry_run:
                    with Session(self._engine) as session, session.begin():
                        garbage.note(session, now, done.cleaned, done.counts())
        if not dry_run:
            ring(rooms | ({service_room(CONSUL)} if done.repaired else set()))
        logger("gc").info("garbage collected", **done.counts())
        return done

    def _collect(
        self, holder: Session, done: Collected, now: datetime, until: float, told: Told
    ) -> None:
        catalog = self._catalog(holder)
        done.consul_left_alone = self._client is None
        done.consul_trouble = None if done.consul_left_alone else catalog.trouble
        dead, missing = self._walk(holder, catalog, now)
        suspects, looked_at = self._suspects(holder, catalog, now)
        work: list[tuple[Callable[[Any], None], Any]] = [
            *((lambda some: self._remove(done, some, until), some) for some in self._cut(suspects)),
            *((lambda some: self._clean(done, some, now), some) for some in self._cut(dead)),
            *((lambda some: self._repair(done, some, now), some) for some in self._cut(missing)),
        ]
        for act, some in work:
            if monotonic() >= until:
                done.more = True
                return
            garbage.stay(holder)
            act(some)
            told(len(some))
        looked_at -= {each.node_id for each in suspects} - {*done.consul_removed}
        done.rechecked = len(looked_at)
        if not done.dry_run:
            with Session(self._engine) as session, session.begin():
                garbage.rechecked(session, sorted(looked_at), now)

    def _send_away(self, done: Collected, now: datetime) -> set[Room]:
        """Ask for the deregistration of nodes whose expiry went astray; whom to ring. Their
        machines decide, and the next run finds what they leave."""
        domain = domain_of(_REGISTRATION)
        with Session(self._engine) as session, session.begin():
            found = garbage.silent(session, now - self._policy.age, self._policy.batch)
            done.sent_away = [each.node_id for each in found]
            if done.dry_run or not found:
                return set()
            number = partitions.number(session)
            asked = [
                inbox.Addressed(domain, partition_of(each.node_id, number), _leave(each, now))
                for each in found
            ]
            inbox.put(session, asked)
        return {(each.domain, each.partition) for each in asked}

    def _catalog(self, session: Session) -> Catalog:
        if self._client is None:
            return Catalog(trouble="none is set, or its mode is `agent`")
        if circuits.read(session, CONSUL).state is not CircuitState.CLOSED:
            return Catalog(trouble="its circuit is open")
        return read_catalog(self._client, self._prefix)

    def _suspects(
        self, session: Session, catalog: Catalog, now: datetime
    ) -> tuple[list[Entry], set[str]]:
        """Entries that nobody stands behind and that are old enough; and the nodes that were to be
        looked at again, whose age does not matter."""
        if catalog.trouble:
            return [], set()
        again = garbage.rechecks(session, now)
        found: list[Entry] = []
        for some in self._cut(catalog.entries):
            live = garbage.live(session, {each.node_id: each.registration_id for each in some})
            found += [
                each
                for each in some
                if each.node_id not in live
                and (
                    each.node_id in again
                    or self._policy.is_old(each.written_at, each.critical_since, now)
                )
            ]
        return found, again

    def _walk(
        self, session: Session, catalog: Catalog, now: datetime
    ) -> tuple[list[garbage.Kept], list[garbage.Kept]]:
        """Records of dead attempts, and registered nodes that Consul does not show."""
        shown = {each.node_id: each.registration_id for each in catalog.entries if each.complete}
        dead: list[garbage.Kept] = []
        missing: list[garbage.Kept] = []
        after = ""
        while found := garbage.walk(session, after, _WALK):
            after = found[-1].node_id
            for each in found:
                if each.is_dead:
                    if each.changed_at < now - self._policy.age:
                        dead.append(each)
                elif (
                    catalog.trouble is None
                    and each.state == "registered"
                    and each.changed_at < now
                    and shown.get(each.node_id) != each.registration_id
                ):
                    missing.append(each)
        return dead, missing

    def _remove(self, done: Collected, entries: Sequence[Entry], until: float) -> None:
        """Take entries out of Consul. One that somebody wrote meanwhile is left to him."""
        if done.dry_run or self._client is None:
            done.consul_removed += [each.node_id for each in entries]
            return
        sent = remove(self._client, entries, until)
        gone = [each for each in entries if each.node_id in sent.done]
        done.failed |= {key: each.error for key, each in sent.failed.items()}
        done.failed |= {key: said for key, said in sent.refused.items() if "is stale" not in said}
        with Session(self._engine) as session, session.begin():
            self._close(
                session,
                done,
                [(each.node_id, each.registration_id) for each in gone],
                REGISTER,
                DEREGISTER,
            )
        done.consul_removed += [each.node_id for each in gone]

    def _clean(self, done: Collected, records: Sequence[garbage.Kept], now: datetime) -> None:
        if done.dry_run:
            done.records_removed += [each.node_id for each in records]
            return
        node_ids = [each.node_id for each in records]
        with Session(self._engine) as session, session.begin():
            held = garbage.hold(session, node_ids)
            gone = garbage.clean(session, node_ids, held, now - self._policy.age)
            self._close(session, done, [*gone.items()], UPSERT, DELETE)
        done.records_removed += sorted(gone)

    def _close(
        self,
        session: Session,
        done: Collected,
        owners: Sequence[tuple[str, str]],
        established: str,
        removal: str,
    ) -> None:
        """What was done is undone, and what was to take it away is needed no more."""
        ledger.undo(session, [ledger.Key(node, established, owner) for node, owner in owners])
        keys = [EffectKey(node, removal, owner) for node, owner in owners]
        done.letters_closed += dead_letters.close_for(session, keys, CLOSED_AS)

    def _repair(self, done: Collected, records: Sequence[garbage.Kept], now: datetime) -> None:
        """Ask for the registration in Consul again: an effect without a transition. Its result is
        one that no machine waits for."""
        if done.dry_run:
            done.repaired += [each.node_id for each in records]
            return
        owners = {each.node_id: each.registration_id for each in records}
        with Session(self._engine) as session, session.begin():
            held = garbage.hold(session, [*owners])
            lasts = garbage.forgotten(session, owners, held, now)
            stored = entities.read(session, lasts)
            number = partitions.number(session)
            wanted = []
            for node_id, last in lasts.items():
                machines = stored[node_id]
                registration = machines[_REGISTRATION]
                wanted.append(
                    intents.Wanted(
                        intent_id=uuid5(last or registration.last_event_id, "repair"),
                        domain=domain_of(_REGISTRATION),
                        partition=partition_of(node_id, number),
                        entity_id=node_id,
                        machine=_REGISTRATION,
                        kind=REGISTER,
                        payload=self._payload(registration, machines.get(_HANDSHAKE)),
                        correlation_id=registration.correlation_id,
                        causation_id=registration.last_event_id,
                        sequence=registration.sequence,
                    )
                )
            ledger.undo(
                session,
                [ledger.Key(each.entity_id, REGISTER, owners[each.entity_id]) for each in wanted],
            )
            intents.put(session, wanted, partitions.now(session))
        done.repaired += [each.entity_id for each in wanted]

    def _payload(self, registration: Projection, handshake: Projection | None) -> dict[str, Any]:
        """As the machine asked for it; a node that is active is shown as alive at once."""
        contract = self._machines.of_hash(registration.contract_hash)
        payload = asked_on_entry(contract, "registering_consul", REGISTER, registration.context)
        active = handshake is not None and handshake.state == "active"
        return payload | ({"active": True} if active else {})

    def _cut(self, found: Sequence[T]) -> Iterator[Sequence[T]]:
        size = self._policy.batch
        return (found[at : at + size] for at in range(0, len(found), size))


def _leave(node: garbage.Silent, now: datetime) -> Envelope:
    """Asked for twice at the same step of its machine, it is one message."""
    return Envelope.trusted(
        message_id=uuid5(node.last_event_id, "gc"),
        correlation_id=node.correlation_id,
        causation_id=node.last_event_id,
        emitted_at=now,
        entity_id=node.node_id,
        message_type=DeregisterNodeRequested.message_type,
        payload={"node_id": node.node_id, "reason": "not heard for long"},
    )
