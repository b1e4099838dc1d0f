"""A batch of messages of one partition, folded in memory: all that one transaction writes."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from fsm.machines import Machines, domain_of, partition_of
from fsm.step import Fold, Step, step
from models.envelope import Envelope
from models.projection import Projection
from models.registry import MessageRegistry
from tasks.metrics import ENVIRONMENTS
from tasks.store.dead_letters import DeadLetter
from tasks.store.entities import Change, Stored
from tasks.store.event_log import Applied
from tasks.store.inbox import Addressed, Waiting
from tasks.store.intents import Wanted
from tasks.store.processed import DEAD_LETTER


@dataclass(slots=True)
class Batch:
    """What became of each message, and what is to be written for all of them together."""

    domain: str
    partition: int
    partitions: int
    now: datetime
    done: list[int] = field(default_factory=list)
    deferred: int = 0
    duplicates: int = 0
    results: dict[UUID, str] = field(default_factory=dict)
    latest: dict[tuple[str, str], Projection] = field(default_factory=dict)
    digests: dict[tuple[str, str], bytes] = field(default_factory=dict)
    bases: dict[tuple[str, str], int] = field(default_factory=dict)
    applied: list[Applied] = field(default_factory=list)
    intents: list[Wanted] = field(default_factory=list)
    elsewhere: list[Addressed] = field(default_factory=list)
    dead: list[DeadLetter] = field(default_factory=list)
    given_up: dict[tuple[str, str], Projection] = field(default_factory=dict)
    moved: Counter[tuple[str, str]] = field(default_factory=Counter)
    steps: list[tuple[Envelope, Step]] = field(default_factory=list)
    since: dict[str, datetime] = field(default_factory=dict)
    environments: frozenset[str] = ENVIRONMENTS

    @property
    def changes(self) -> list[Change]:
        """Each projection that moved, once, as it is in the end."""
        return [
            Change(self.domain, self.partition, self.bases[key], projection, self.digests[key])
            for key, projection in self.latest.items()
        ]

    def add(self, message: Envelope, made: Step) -> None:
        """Take one message's step in; called only when all of it could be made."""
        rows = [self._applied(fold) for fold in made.folds]
        for fold, row in zip(made.folds, rows, strict=True):
            projection = fold.folded.projection
            key = (projection.entity_id, projection.machine)
            self.bases.setdefault(key, projection.sequence - 1)
            if projection.sequence > 1:
                self.moved[projection.machine, fold.state_before] -= 1
            self.moved[projection.machine, projection.state] += 1
            self.latest[key] = projection
            self.given_up.pop(key, None)
            if _gave_up(fold):
                self.given_up[key] = projection
            self.digests[key] = row.digest
            self.intents += self._wanted(fold)
        self.applied += rows
        self.elsewhere += [
            Addressed(
                each.message_type.partition(".")[0],
                partition_of(each.entity_id, self.partitions),
                each,
            )
            for each in made.elsewhere
        ]
        self.results[message.message_id] = made.result
        self.steps.append((message, made))

    def _applied(self, fold: Fold) -> Applied:
        event, projection = fold.event, fold.folded.projection
        return Applied(
            domain=self.domain,
            entity_id=projection.entity_id,
            machine=projection.machine,
            sequence=projection.sequence,
            applied_at=self.now,
            message_id=event.message_id,
            message_type=event.message_type,
            correlation_id=projection.correlation_id,
            message_correlation_id=event.correlation_id,
            causation_id=event.causation_id,
            emitted_at=event.emitted_at,
            trigger=fold.pull.trigger,
            data=dict(fold.pull.data),
            path=fold.folded.outcome.path,
            contract_hash=projection.contract_hash,
            digest=projection.digest(),
        )

    def _wanted(self, fold: Fold) -> list[Wanted]:
        projection = fold.folded.projection
        return [
            Wanted(
                intent_id=intent.id,
                domain=domain_of(projection.machine),
                partition=self.partition,
                entity_id=projection.entity_id,
                machine=projection.machine,
                kind=intent.kind,
                payload=intent.payload,
                correlation_id=projection.correlation_id,
                causation_id=fold.event.message_id,
                sequence=projection.sequence,
                not_after=projection.next_deadline,
            )
            for intent in fold.folded.outcome.intents
        ]


def _gave_up(fold: Fold) -> bool:
    """The machine came to an error it does not leave by itself."""
    contract, state = fold.pull.contract, fold.folded.projection.state
    leaves = any(each.state == state for each in contract.auto_retry)
    return state in contract.error_states and state != fold.state_before and not leaves


@dataclass(frozen=True)
class Rules:
    """What messages are folded by."""

    machines: Machines
    registry: MessageRegistry
    redacted: Callable[[str], str]


def fold_batch(
    batch: Batch,
    rules: Rules,
    waiting: Sequence[Waiting],
    known: set[UUID],
    stored: Stored,
    held: set[str],
) -> None:
    """Fold the messages in their order. A duplicate is dropped, an entity that somebody else holds
    keeps its messages waiting, and a message whose handler fails goes to dead letters alone."""
    for position, attempts, message in waiting:
        if message.message_id in known or message.message_id in batch.results:
            batch.duplicates += 1
            batch.done.append(position)
            continue
        if message.entity_id in held:
            batch.deferred += 1
            continue
        before = _before(batch, stored, message.entity_id, rules.machines)
        batch.done.append(position)
        try:
            made = step(rules.machines, rules.registry, before, message, batch.now)
            batch.add(message, made)
        except Exception as error:  # handlers are pure: an exception is a bug, not bad luck
            why = rules.redacted(f"{type(error).__name__}: {error}")
            batch.dead.append(
                DeadLetter(batch.domain, message, before, "handler failed", why, attempts)
            )
            batch.results[message.message_id] = DEAD_LETTER


def _before(
    batch: Batch, stored: Stored, entity_id: str, machines: Machines
) -> Mapping[str, Projection]:
    """Where the entity stands after the messages of this batch that came first."""
    found = dict(stored.get(entity_id, {}))
    for contract in machines:
        latest = batch.latest.get((entity_id, contract.name))
        if latest is not None:
            found[contract.name] = latest
    return found
