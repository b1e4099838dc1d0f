"""Taking old months off the log: never without a base that the rest can be folded onto."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from fsm.machines import Machines
from models.errors import RollcallError
from tasks.replay import keep_bases
from tasks.store import event_log, log_bases, partitions
from tasks.store.event_log import Month


@dataclass(frozen=True)
class Detached:
    """A month that is off the log; its table keeps the name."""

    name: str
    events: int
    entities: int

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class LogError(RollcallError):
    """A month cannot be taken off the log."""


def attached(engine: Engine) -> list[Month]:
    with Session(engine) as session, session.begin():
        return event_log.months(session)


def due(engine: Engine, keep: int) -> list[Month]:
    """The months beyond the current one and the `keep` before it, oldest first."""
    with Session(engine) as session, session.begin():
        now = partitions.now(session)
        listed = event_log.months(session)
    first_kept = now.year * 12 + now.month - keep
    return [month for month in listed if month.begins.year * 12 + month.begins.month < first_kept]


def detach(
    engine: Engine, machines: Machines, month: Month, told: Callable[[int], None] = lambda _: None
) -> Detached:
    """Fold the month, keep where its entities stood, then take it off. Nothing is deleted; killed
    in the middle, it is simply done again."""
    with Session(engine) as session, session.begin():
        oldest = next(iter(event_log.months(session)), None)
        astray = event_log.any_astray(session, month.ends)
    if oldest != month:
        raise LogError(f"{month.name} is not the oldest month on the log", "begin with the oldest")
    if astray:
        raise LogError(
            f"event_log_default has events older than {month.ends}", "see `rollcall replay`"
        )
    seen = keep_bases(engine, machines, month.ends.isoformat(), told)
    if not seen.clean:
        entity_id, machine, sequence, what = seen.mismatches[0]
        raise LogError(
            f"{month.name} does not fold: {machine} {entity_id} at {sequence}, {what}",
            "mend what `rollcall replay --verify` names",
        )
    with Session(engine) as session, session.begin():
        event_log.detach(session, month)
        log_bases.forget_older(session)
    return Detached(month.name, seen.events, seen.projections)
