"""How fast the durable runtime is, on real servers: submit → Celery worker → committed, and ticks.

Every number is taken in one run on one machine, fsync on; the bars are the design's.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

from sqlalchemy import Engine, text

from fsm.library import all_machines
from fsm.machines import partition_of
from models.envelope import Envelope
from models.messages.runtime import RuntimeTick
from rollcall.devstack import DevStack, throwaway_home
from tasks.database import open_engine
from tasks.schema import upgrade
from tasks.settings import Settings
from tasks.ticks import run_tick
from tasks.wiring import producer
from tasks.worker_process import WorkerProcess

MACHINES = Path(__file__).parent / "machines"
CHUNK = 1000
BARS = {"transitions_per_s": 5000.0, "one_partition_per_s": 1000.0}
TICK_MS = 10.0
FLAT = 3.0


def messages(entity_ids: Sequence[str], number: int) -> list[Envelope]:
    """`number` presses, in turn on each lamp."""
    now = datetime.now(UTC)
    return [
        Envelope(
            message_id=uuid4(),
            correlation_id=uuid4(),
            causation_id=None,
            emitted_at=now,
            entity_id=entity_ids[at % len(entity_ids)],
            message_type="lamp.commands.PullTrigger",
            payload={"machine": "lamp", "trigger": "PRESS", "data": {}},
        )
        for at in range(number)
    ]


@contextmanager
def workers(settings: Settings, number: int) -> Iterator[None]:
    """Real worker processes, ready when the first message was folded."""
    environment = os.environ | settings.environment()
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "rollcall", "worker"],
            env=environment | {"ROLLCALL_RUNTIME_NAME": f"bench-{at}"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for at in range(number)
    ]
    try:
        yield
    finally:
        for each in started:
            each.terminate()
        for each in started:
            each.wait(30)


def applied(engine: Engine) -> int:
    """How many transitions are committed: the sum of sequences, without counting the log."""
    with engine.connect() as connection:
        found = connection.execute(text("SELECT sum(last_applied_sequence) FROM entities"))
        return int(found.scalar_one() or 0)


def wait_for(engine: Engine, number: int, seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while applied(engine) < number:
        if time.monotonic() > until:
            raise SystemExit(f"only {applied(engine)} of {number} were applied in {seconds} s")
        time.sleep(0.01)


def throughput(process: WorkerProcess, entity_ids: Sequence[str], number: int) -> float:
    """Messages submitted, folded by the workers and committed, a second."""
    waiting = messages(entity_ids, number)
    before = applied(process.engine)
    start = time.perf_counter()
    for at in range(0, number, CHUNK):
        process.runtime.submit(waiting[at : at + CHUNK])
    wait_for(process.engine, before + number)
    return number / (time.perf_counter() - start)


def tick_ms(engine: Engine, rounds: int = 15) -> float:
    """The median time of a tick that finds nothing due."""
    taken: list[float] = []
    for number in range(1, rounds + 1):
        with engine.begin() as connection:
            connection.execute(text("UPDATE runtime_clock SET at = 'epoch'"))
        tick = RuntimeTick(now=datetime.now(UTC), tick_sequence=number, runtime_id="bench")
        start = time.perf_counter()
        run_tick(engine, tick, timedelta(seconds=1), lambda rooms: 0)
        taken.append((time.perf_counter() - start) * 1000)
    return statistics.median(taken)


def fill(engine: Engine, number: int) -> None:
    """Entities that all have a deadline, none of them due."""
    with engine.begin() as connection:
        connection.execute(text("SET LOCAL statement_timeout = 0"))
        connection.execute(text("SET LOCAL transaction_timeout = 0"))
        connection.execute(
            text(
                """
                INSERT INTO entities (entity_id, machine, domain, partition, state, context,
                    deadlines, next_deadline, last_applied_sequence, last_applied_event_id,
                    last_trigger, correlation_id, contract_hash, digest, created_at, updated_at)
                SELECT 'fill-' || n, 'lamp', 'lamp', n % 16, 'lit', '{}', '{}',
                       now() + interval '1 day' + n * interval '1 ms', 0, gen_random_uuid(),
                       'PRESS', gen_random_uuid(), '', '', now(), now()
                  FROM generate_series(1, :number) AS n
                ON CONFLICT DO NOTHING
                """
            ),
            {"number": number},
        )
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("SET statement_timeout = 0"))
        connection.execute(text("VACUUM ANALYZE entities"))


def measure(number: int, number_of_workers: int, entities: int) -> dict[str, float]:
    with throwaway_home("bench") as home, home.owned():
        settings = Settings.from_environment({}).at(home=home.path, contracts_dir=MACHINES)
        stack = DevStack(settings, home)
        try:
            settings = stack.start().at(contracts_dir=MACHINES, worker_concurrency=1)
            upgrade(open_engine(settings, "bench", pooled=False))
            process = producer(settings)
            found: dict[str, float] = {}
            with workers(settings, number_of_workers):
                throughput(process, ["warm"], 100)
                lamps = [f"l{at}" for at in range(number // 4)]
                found["transitions_per_s"] = throughput(process, lamps, number)
                one = [each for each in lamps if partition_of(each, 16) == 0]
                found["one_partition_per_s"] = throughput(process, one, number // 4)
            engine = open_engine(settings, "bench")
            fill(engine, entities // 100)
            found["tick_ms_few"] = tick_ms(engine)
            fill(engine, entities)
            found["tick_ms_many"] = tick_ms(engine)
            engine.dispose()
        finally:
            stack.stop()
    return found


def missed(found: dict[str, float]) -> list[str]:
    wrong = [f"{name} is under {bar:.0f}" for name, bar in BARS.items() if found[name] < bar]
    if found["tick_ms_many"] > TICK_MS:
        wrong.append(f"tick_ms_many is over {TICK_MS:.0f}")
    if found["tick_ms_many"] > FLAT * max(found["tick_ms_few"], 1.0):
        wrong.append("the tick is not flat")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=40_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--entities", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    assert "lamp" in all_machines(MACHINES)
    found = measure(asked.messages, asked.workers, asked.entities)
    wrong = missed(found)
    if asked.json:
        print(json.dumps({**found, "missed": wrong}))
    else:
        for name, value in found.items():
            print(f"{name:24} {value:12.2f}")
        for each in wrong:
            print(f"missed: {each}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
