"""Folding the log again: every projection must come out byte for byte as it is kept.

Reducers only, with the contract and the time that the log names. In pages: no long transaction,
and no more in memory than one page, however long an entity's history is.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from fsm.machines import Machines, domain_of, partition_of
from fsm.reducer import fold, unborn
from models.errors import RollcallError, StaleWriteError
from models.projection import Projection
from tasks.store import entities, event_log, log_bases, partitions, snapshots
from tasks.store.event_log import Applied, Place

_PAGE = 5000
_MOST_TOLD = 1000
_TRIES = 20
_CHUNK = 500

Key = tuple[str, str]
Told = Callable[[int], None]


class Mismatch(NamedTuple):
    """Where the log and what is kept disagree."""

    entity_id: str
    machine: str
    sequence: int
    what: str


@dataclass
class Replayed:
    """What a replay saw, and what it did not like; `changed` counts rows written again."""

    events: int = 0
    projections: int = 0
    changed: int = 0
    mismatches: list[Mismatch] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not self.mismatches

    def note(self, entity_id: str, machine: str, sequence: int, what: str) -> None:
        if len(self.mismatches) < _MOST_TOLD:
            self.mismatches.append(Mismatch(entity_id, machine, sequence, what))

    def as_dict(self) -> dict[str, Any]:
        return {
            "clean": self.clean,
            "events": self.events,
            "projections": self.projections,
            "changed": self.changed,
            "mismatches": [each._asdict() for each in self.mismatches],
        }


class _Refold:
    """The log, event by event; keeps the entity it is at, gives each when it is through."""

    def __init__(self, machines: Machines, seen: Replayed) -> None:
        self._machines = machines
        self._seen = seen
        self._key: Key | None = None
        self._at: Projection | None = None

    @property
    def key(self) -> Key | None:
        return self._key

    def take(self, row: Applied, bases: log_bases.Bases) -> Projection | None:
        """Fold one event; give the entity before it, when this is the first of another. What is no
        longer on the log begins with its base."""
        key, through = (row.entity_id, row.machine), None
        begins = key != self._key
        if begins:
            through = self.end()
            self._key = key
            self._at = bases.get((*key, row.sequence - 1))
        self._seen.events += 1
        if begins or self._at is not None:
            self._at = _refolded(self._machines, self._at, row, self._seen)
        return through

    def end(self) -> Projection | None:
        """The entity the log was at, if its history could be folded whole."""
        through, self._at, self._key = self._at, None, None
        return through


def _refolded(
    machines: Machines, before: Projection | None, row: Applied, seen: Replayed
) -> Projection | None:
    """The projection after the event; None, and why is noted, when the log does not hold."""
    what = None
    try:
        contract = machines.of_hash(row.contract_hash)
        if before is None:
            before = unborn(contract, row.entity_id, row.correlation_id)
        if row.sequence == before.sequence + 1:
            made = fold(contract, before, row.message_id, row.trigger, row.data, row.applied_at)
            if not made.outcome.changed:
                what = f"{row.trigger} changes nothing: {made.outcome.result.value}"
            elif made.projection.digest() != row.digest:
                what = "folding the log gives other bytes than were logged"
            else:
                return made.projection
        else:
            what = f"the log goes from {before.sequence} to {row.sequence}"
    except RollcallError as error:
        what = str(error)
    seen.note(row.entity_id, row.machine, row.sequence, what)
    return None


def verify(
    engine: Engine, machines: Machines, only: str = "", told: Told = lambda events: None
) -> Replayed:
    """Compare every projection with what its log folds to, while workers go on."""
    seen = Replayed()
    for session, through in _pages(engine, machines, seen, only, told):
        kept = entities.kept(session, {each.entity_id for each in through})
        for projection in through:
            _compare(seen, projection, kept.get((projection.entity_id, projection.machine)))
    _rows_without_log(engine, seen, only)
    _snapshots(engine, seen, only)
    return seen


def keep_bases(engine: Engine, machines: Machines, before: str, told: Told) -> Replayed:
    """Fold the log up to a time and keep where each of its entities stood then."""
    seen = Replayed()
    for session, through in _pages(engine, machines, seen, "", told, before):
        log_bases.put(session, through)
        seen.projections += len(through)
    return seen


def rebuild(
    engine: Engine, machines: Machines, machine: str, told: Told = lambda events: None
) -> Replayed:
    """Write those projections of one machine again that are not what the log folds to."""
    seen = Replayed()
    for session, through in _pages(engine, machines, seen, machine, told):
        kept = entities.kept(session, {each.entity_id for each in through})
        wrong = [each for each in through if not _is(each, kept)]
        seen.projections += len(through)
        for at in range(0, len(wrong), _CHUNK):
            seen.changed += _mend(engine, machines, wrong[at : at + _CHUNK], seen)
    return seen


def _is(folded: Projection, kept: Mapping[Key, tuple[Projection, bytes]]) -> bool:
    row, digest = kept.get((folded.entity_id, folded.machine), (None, b""))
    return row is not None and digest == folded.digest() and row.text() == folded.text()


def _mend(engine: Engine, machines: Machines, wrong: list[Projection], seen: Replayed) -> int:
    """Lock the rows, fold what their logs got meanwhile, and write them."""
    for tried in range(_TRIES):
        try:
            with Session(engine) as session, session.begin():
                return _write_again(session, machines, wrong, seen)
        except StaleWriteError:
            time.sleep(0.01 * 2 ** min(tried, 6))
    raise StaleWriteError("the rows to be mended are held by others all the time", "try again")


def _write_again(
    session: Session, machines: Machines, wrong: list[Projection], seen: Replayed
) -> int:
    _, held = entities.lock(session, {each.entity_id for each in wrong})
    if held:
        raise StaleWriteError(f"{len(held)} entities are held", "try again")
    latest: dict[Key, Projection | None] = {(x.entity_id, x.machine): x for x in wrong}
    places = [Place(each.entity_id, each.machine, each.sequence) for each in wrong]
    for row in event_log.tails(session, places):
        before = latest[row.entity_id, row.machine]
        if before is not None:
            latest[row.entity_id, row.machine] = _refolded(machines, before, row, seen)
    kept = entities.kept(session, {each.entity_id for each in wrong})
    number = partitions.number(session)
    changes = [
        entities.Change(
            domain_of(machine),
            partition_of(entity_id, number),
            kept[entity_id, machine][0].sequence if (entity_id, machine) in kept else 0,
            projection,
            projection.digest(),
        )
        for (entity_id, machine), projection in latest.items()
        if projection is not None
    ]
    entities.save(session, changes, partitions.now(session))
    return len(changes)


def _compare(seen: Replayed, folded: Projection, kept: tuple[Projection, bytes] | None) -> None:
    seen.projections += 1
    what = None
    if kept is None:
        what = "the log knows it, and there is no row"
    else:
        row, digest = kept
        if row.sequence != folded.sequence:
            what = f"the row is at {row.sequence}, the log ends at {folded.sequence}"
        elif row.text() != folded.text():
            what = "the row differs from what the log folds to"
        elif digest != folded.digest():
            what = "the row's digest is not that of its projection"
    if what is not None:
        seen.note(folded.entity_id, folded.machine, folded.sequence, what)


def _pages(
    engine: Engine,
    machines: Machines,
    seen: Replayed,
    only: str,
    told: Told,
    before: str = "infinity",
) -> Iterator[tuple[Session, list[Projection]]]:
    """Page by page, within a transaction that sees one moment: the entities whose log ends there.
    An entity at the end of a page is finished with the next, whatever was added to it meanwhile."""
    refold, place, full = _Refold(machines, seen), Place(), True
    while full:
        with _moment(engine) as session:
            rows = event_log.after(session, place, _PAGE, only, before)
            full = len(rows) == _PAGE
            bases = _bases(session, refold.key, rows)
            through = [each for row in rows if (each := refold.take(row, bases)) is not None]
            if not full and (last := refold.end()) is not None:
                through.append(last)
            yield session, through
        if rows:
            place = Place(rows[-1].entity_id, rows[-1].machine, rows[-1].sequence)
        told(len(rows))


def _bases(session: Session, key: Key | None, rows: list[Applied]) -> log_bases.Bases:
    """What the entities that begin in this page stood at, where the log does not begin with 1."""
    wanted = set()
    for row in rows:
        if (row.entity_id, row.machine) != key and row.sequence > 1:
            wanted.add(row.entity_id)
        key = (row.entity_id, row.machine)
    return log_bases.of(session, wanted) if wanted else {}


def _rows_without_log(engine: Engine, seen: Replayed, only: str) -> None:
    """Such a row stands at a base whose whole log was taken off, or nowhere."""
    place, full = ("", ""), True
    while full:
        with _moment(engine) as session:
            rows = entities.after(session, *place, _PAGE)
            full = len(rows) == _PAGE
            lost = [row for row in rows if row.has_no_log and only in ("", row.machine)]
            if lost:
                bases = log_bases.of(session, {row.entity_id for row in lost})
                kept = entities.kept(session, {row.entity_id for row in lost})
                for row in lost:
                    base = bases.get(row[:3])
                    if base is None:
                        seen.note(*row[:3], "there is a row, and the log does not know it")
                    else:
                        _compare(seen, base, kept.get(row[:2]))
        if rows:
            place = rows[-1][:2]


def _snapshots(engine: Engine, seen: Replayed, only: str) -> None:
    """Every logged digest was compared with its fold: a snapshot needs only the log's digest."""
    place, full = ("", ""), True
    while full:
        with _moment(engine) as session:
            rows = snapshots.check(session, *place, _PAGE, only)
        full = len(rows) == _PAGE
        for row in rows:
            place = (row.entity_id, row.machine)
            if not row.holds:
                seen.note(*row[:3], "the snapshot is not what the log folds to")


@contextmanager
def _moment(engine: Engine) -> Iterator[Session]:
    """A transaction in which the log and the rows are of one moment."""
    with engine.connect() as connection:
        one_moment = connection.execution_options(isolation_level="REPEATABLE READ")
        with Session(one_moment) as session, session.begin():
            yield session
