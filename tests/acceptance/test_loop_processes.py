"""The loop through real beats, workers and Redis: doorbells may be lost, messages may not."""

import socket
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from time import monotonic

import pytest
import redis

from models.errors import InfraUnavailableError
from rollcall.processes import Child
from tasks.settings import Settings
from tasks.wiring import celery_app
from tests.acceptance.test_durability import deadlines_pass
from tests.conftest import StartRole
from tests.polling import eventually
from tests.runtime_kit import MACHINES, Kit, press, ringing_kit, rooms_of

StartWorker = Callable[..., Child]


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.at(tick_interval_ms=100, contracts_dir=MACHINES)


@pytest.fixture
def kit(settings: Settings) -> Iterator[Kit]:
    kit = ringing_kit(settings)
    yield kit
    kit.engine.dispose()


@pytest.fixture
def start_worker(settings: Settings, start_role: StartRole) -> StartWorker:
    control = celery_app(settings).control

    def start(name: str = "worker", **environ: str) -> Child:
        def answers() -> None:
            address = f"{name}@{socket.gethostname()}"
            if not control.broadcast("ping", destination=[address], reply=True, timeout=1, limit=1):
                raise InfraUnavailableError("no answer yet", "wait")

        return start_role(name, "worker", "--name", name, probe=answers, **environ)

    return start


def all_done(kit: Kit, number: int) -> bool:
    return kit.sql("SELECT count(*) FROM entities WHERE state = 'done'") == [(number,)]


def test_two_beats_and_three_workers_fire_each_deadline_once(
    kit: Kit, start_role: StartRole, start_worker: StartWorker
) -> None:
    """Promise 6: each deadline fires one timeout event, with any number of beats and workers."""
    for number in range(3):
        start_worker(f"w{number}")
    for number in range(2):
        start_role(f"beat-{number}", "beat")
    kit.submit(*(press(f"e{each}", "BOIL", "egg") for each in range(200)))
    eventually(lambda: all_done(kit, 200), "every egg is done")
    eventually(lambda: kit.count("inbox") == 0, "nothing waits")
    assert kit.sql("SELECT trigger, count(*) FROM event_log GROUP BY trigger ORDER BY 1") == [
        ("BOIL", 200),
        ("TIMEOUT", 200),
    ]
    kit.audit()


def test_a_deadline_that_passed_while_nothing_ran_fires_once(
    kit: Kit, start_role: StartRole, start_worker: StartWorker
) -> None:
    """Promise 6: deadlines are columns, not memory."""
    kit.submit(*(press(f"e{each}", "BOIL", "egg") for each in range(30)))
    kit.drain("egg")
    deadlines_pass(kit)
    assert kit.count("event_log") == 30
    start_worker()
    start_role("beat", "beat")
    eventually(lambda: all_done(kit, 30), "every egg is done")
    eventually(lambda: kit.count("inbox") == 0, "nothing waits")
    assert kit.count("event_log") == 60
    kit.audit()


def test_messages_of_one_entity_are_applied_in_the_order_they_were_submitted(
    kit: Kit, start_role: StartRole, start_worker: StartWorker
) -> None:
    """Promise 4: one order per entity, with eight worker processes at it."""
    start_worker(ROLLCALL_WORKER_CONCURRENCY="8")
    start_role("beat", "beat")

    def producer(own: list[str]) -> None:
        for number in range(50):
            kit.submit(*(press(each, data={"n": number}) for each in own))

    with ThreadPoolExecutor(5) as producers:
        shares = [[f"l{each}" for each in range(first, 20, 5)] for first in range(5)]
        for each in [producers.submit(producer, share) for share in shares]:
            each.result()
    eventually(lambda: kit.count("inbox") == 0, "nothing waits")
    for entity in range(20):
        applied = kit.sql(
            f"SELECT data FROM event_log WHERE entity_id = 'l{entity}' ORDER BY sequence"
        )
        assert [data["n"] for (data,) in applied] == [*range(50)]
    kit.audit()


def test_a_broker_flushed_in_the_middle_of_it_all_loses_nothing(
    settings: Settings, kit: Kit, start_role: StartRole, start_worker: StartWorker
) -> None:
    """Promise 1: the row is the truth; flushing Redis whole loses and duplicates nothing."""
    assert settings.broker_url
    with redis.Redis.from_url(settings.broker_url.reveal()) as broker:
        kit.submit(*(press(f"early-{each}") for each in range(100)))
        assert int(broker.llen("onex.lamp.events")) > 0
        broker.flushdb()
        start_worker()
        start_role("beat", "beat")
        eventually(lambda: kit.count("inbox") == 0, "the tick rings for what was never rung")
        broker.flushdb()
        for number in range(60):
            kit.submit(*(press(f"l{each}", data={"n": number}) for each in range(5)))
            if number % 15 == 5:
                broker.flushdb()
    eventually(lambda: kit.count("inbox") == 0, "the tick rings again")
    assert kit.count("event_log") == 400
    kit.audit()


DEADLY = """
import os
import tasks.batch
from tasks.logs import configure_logging
from tasks.settings import Settings
from tasks.wiring import celery_app

def deadly(*args):
    if args[3].entity_id == "killer":
        os._exit(9)
    return step(*args)

step, tasks.batch.step = tasks.batch.step, deadly
settings = Settings.from_environment()
configure_logging(settings)
celery_app(settings).worker_main(["worker", "--hostname", "deadly@here", "--concurrency", "2",
                                  "--without-mingle", "--without-gossip"])
"""


def test_a_worker_outlives_the_message_that_kills_its_processes(
    kit: Kit, start_role: StartRole
) -> None:
    """Promise 8, through Celery: its children die, it does not, and everybody else is served."""
    worker = start_role("deadly", argv=(sys.executable, "-c", DEADLY))
    start_role("beat", "beat")
    neighbours = [each for each in map(str, range(200)) if rooms_of([each]) == rooms_of(["killer"])]
    kit.submit(press(neighbours[0]), press("killer"), *(press(each) for each in neighbours))
    eventually(lambda: kit.count("inbox") == 0, "everything is folded or put away", 60)
    assert kit.sql("SELECT entity_id, reason FROM dead_letters") == [
        ("killer", "killed its worker")
    ]
    assert sorted(kit.states()) == sorted(neighbours)
    assert worker.running()
    kit.audit()


def test_no_wake_up_is_lost(kit: Kit, start_worker: StartWorker) -> None:
    """Promise 1 from the other side: no beat runs, so nothing but the doorbell can wake anybody."""
    start_worker(ONEX_RUNTIME_TICK_INTERVAL_MS="60000")
    kit.submit(press("warm"))
    eventually(lambda: kit.count("inbox") == 0, "the worker is warm")
    began = monotonic()
    for number in range(1000):
        kit.submit(press(f"l{number % 50}", data={"n": number}))
    submitted = monotonic() - began
    eventually(lambda: kit.count("inbox") == 0, "every one is applied", 20)
    took = monotonic() - began
    assert kit.count("event_log") == 1001
    assert took < submitted + 20, f"{submitted:.1f} s to submit, {took:.1f} s to apply"
    kit.audit()
