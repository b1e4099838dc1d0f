"""A runtime in this process, on real servers, for machines that the tests bring along."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from fsm.library import all_machines
from fsm.machines import Machines, partition_of
from fsm.reducer import fold, unborn
from models.envelope import Envelope
from models.projection import Projection
from tasks.app import send_drain
from tasks.doorbell import Room
from tasks.replay import verify
from tasks.runtime import Drained, Runtime
from tasks.settings import Settings
from tasks.store import event_log
from tasks.wiring import celery_app
from tasks.worker_process import WorkerProcess
from tests.conftest import sql

MACHINES = Path(__file__).parent / "machines"
PARTITIONS = 16


def press(
    entity_id: str,
    trigger: str = "PRESS",
    machine: str = "lamp",
    data: Mapping[str, Any] | None = None,
    **said: Any,
) -> Envelope:
    """The request to pull a trigger, as an outsider sends it."""
    fields: dict[str, Any] = {
        "message_id": uuid4(),
        "correlation_id": uuid4(),
        "causation_id": None,
        "emitted_at": datetime.now(UTC),
        "entity_id": entity_id,
        "message_type": f"{machine}.commands.PullTrigger",
        "payload": {"machine": machine, "trigger": trigger, "data": dict(data or {})},
    }
    return Envelope(**fields | said)


@dataclass
class Kit:
    """A worker process's parts, and what an onlooker sees of its database."""

    settings: Settings
    process: WorkerProcess
    rung: list[Room]

    @property
    def runtime(self) -> Runtime:
        return self.process.runtime

    @property
    def engine(self) -> Engine:
        return self.process.engine

    def submit(self, *envelopes: Envelope) -> int:
        return self.runtime.submit(envelopes)

    def drain(self, domain: str = "lamp") -> list[Drained]:
        """Answer every door of a domain once."""
        drained = [self.runtime.drain(domain, room) for room in range(PARTITIONS)]
        return [each for each in drained if each.outcome != "empty"]

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        return sql(self.settings.database_url, statement)

    def states(self, machine: str = "lamp") -> dict[str, str]:
        rows = self.sql(f"SELECT entity_id, state FROM entities WHERE machine = '{machine}'")
        return dict(rows)

    def sequences(self, entity_id: str, machine: str = "lamp") -> list[int]:
        rows = self.sql(
            f"SELECT sequence FROM event_log WHERE entity_id = '{entity_id}'"
            f" AND machine = '{machine}' ORDER BY sequence"
        )
        return [sequence for (sequence,) in rows]

    def count(self, table: str) -> int:
        return int(self.sql(f"SELECT count(*) FROM {table}")[0][0])

    def audit(self) -> None:
        """Nothing waits, and folding the log again gives every row, every count and no gap."""
        assert self.count("inbox") == 0
        machines = Machines(each.contract for each in all_machines(MACHINES).values())
        folded: dict[tuple[str, str], Projection] = {}
        with Session(self.engine) as session:
            logged = event_log.after(session, event_log.Place(), 1_000_000)
        for row in logged:
            key, contract = (row.entity_id, row.machine), machines.of_hash(row.contract_hash)
            before = folded.get(key) or unborn(contract, row.entity_id, row.correlation_id)
            assert row.sequence == before.sequence + 1, f"{key} jumps to {row.sequence}"
            after = fold(
                contract, before, row.message_id, row.trigger, row.data, row.applied_at
            ).projection
            assert (after.sequence, after.digest()) == (row.sequence, row.digest), key
            folded[key] = after
        kept = self.sql("SELECT entity_id, machine, digest FROM entities")
        assert {(entity_id, machine): bytes(digest) for entity_id, machine, digest in kept} == {
            key: each.digest() for key, each in folded.items()
        }
        counted = self.sql(
            "SELECT machine, state, CAST(sum(entities) AS bigint) FROM state_counts"
            " GROUP BY machine, state HAVING sum(entities) <> 0"
        )
        states = Counter((each.machine, each.state) for each in folded.values())
        assert {(machine, state): number for machine, state, number in counted} == states
        doubled = (
            "SELECT message_id FROM event_log GROUP BY machine, message_id HAVING count(*) > 1"
        )
        assert self.sql(doubled) == []
        assert verify(self.engine, machines).mismatches == []

    def results(self) -> dict[UUID, str]:
        rows = self.sql("SELECT CAST(message_id AS text), result FROM processed")
        return {UUID(message_id): result for message_id, result in rows}


def kit_of(settings: Settings) -> Iterator[Kit]:
    """A kit that tells who was rung and sends nothing through Celery."""
    rung: list[Room] = []
    process = WorkerProcess(settings, all_machines(MACHINES), lambda *room: rung.append(room))
    yield Kit(settings, process, rung)
    process.engine.dispose()


def ringing_kit(settings: Settings) -> Kit:
    """A producer's kit: it rings workers through Celery."""
    app = celery_app(settings)
    library = all_machines(MACHINES)
    return Kit(settings, WorkerProcess(settings, library, lambda *room: send_drain(app, *room)), [])


def rooms_of(entity_ids: Iterable[str]) -> set[int]:
    return {partition_of(each, PARTITIONS) for each in entity_ids}
