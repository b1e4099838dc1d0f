"""RuntimeTicks through real processes: Beat → Redis → worker → PostgreSQL, seen by Flower."""

import base64
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from datetime import datetime, timedelta

import httpx
import pytest
import redis
from sqlalchemy import Engine

from models.errors import InfraUnavailableError
from models.messages.runtime import RuntimeTick
from rollcall.insights import Clock, clock
from tasks.settings import Settings
from tasks.stall import EXIT_CODE
from tasks.wiring import celery_app
from tests.conftest import StartRole, sql
from tests.polling import eventually

QUEUE = "onex.runtime.events"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.at(tick_interval_ms=200)


@pytest.fixture
def start_worker(settings: Settings, start_role: StartRole) -> Callable[..., object]:
    control = celery_app(settings).control

    def start(name: str = "worker", **environ: str) -> object:
        def answers() -> None:
            address = f"{name}@{socket.gethostname()}"
            if not control.broadcast("ping", destination=[address], reply=True, timeout=1, limit=1):
                raise InfraUnavailableError("no answer yet", "wait")

        return start_role(name, "worker", "--name", name, probe=answers, **environ)

    return start


def ticks_reach(engine: Engine, number: int, seconds: float = 30) -> Clock:
    def reached() -> Clock | None:
        reading = clock(engine)
        return reading if reading.ticks >= number else None

    return eventually(reached, f"{number} ticks are taken", seconds)


def test_ticks_travel_from_beat_to_the_database(
    engine: Engine, start_role: StartRole, start_worker: Callable[..., object]
) -> None:
    start_worker()
    start_role("beat", "beat")
    first = ticks_reach(engine, 2)
    later = ticks_reach(engine, first.ticks + 3)
    assert later.runtime_id == first.runtime_id
    assert (later.tick_sequence or 0) > (first.tick_sequence or 0)
    assert later.age < timedelta(seconds=5)


def test_flower_knows_the_worker_and_the_tick_by_name(
    settings: Settings, start_role: StartRole, start_worker: Callable[..., object], port: int
) -> None:
    start_worker("worker-7")
    auth = {"ROLLCALL_FLOWER_PORT": str(port), "ROLLCALL_FLOWER_BASIC_AUTH": "u:flower-pass"}
    base = f"http://127.0.0.1:{port}"

    def answers() -> None:
        try:
            httpx.get(f"{base}/healthcheck").raise_for_status()
        except httpx.HTTPError as error:
            raise InfraUnavailableError(str(error), "wait") from None

    start_role("flower", "flower", probe=answers, **auth)
    start_role("beat", "beat")
    with httpx.Client(base_url=base, auth=("u", "flower-pass"), timeout=10) as client:
        workers = eventually(
            lambda: client.get("/api/workers", params={"refresh": 1}).json(), "Flower sees a worker"
        )
        assert list(workers) == [f"worker-7@{socket.gethostname()}"]

        def succeeded() -> dict[str, dict[str, object]] | None:
            found = client.get("/api/tasks", params={"state": "SUCCESS"})
            return dict(found.raise_for_status().json())

        task = next(iter(eventually(succeeded, "Flower sees a tick succeed").values()))
        assert task["name"] == "runtime.events.RuntimeTick"
        assert "'won': True" in str(task["result"])
    assert httpx.get(f"{base}/api/workers").status_code == 401, "Flower asks for its password"


def test_ticks_do_not_pile_up_while_no_worker_runs(
    settings: Settings, engine: Engine, start_role: StartRole, start_worker: Callable[..., object]
) -> None:
    """The tick's message expires: a worker that comes late runs the present, not the past."""
    start_role("beat", "beat")
    assert settings.broker_url
    with redis.Redis.from_url(settings.broker_url.reveal()) as broker:
        waiting = eventually(
            lambda: broker.lrange(QUEUE, 0, -1) if int(broker.llen(QUEUE)) >= 10 else None,
            "ten ticks wait",
        )
        headers = json.loads(waiting[-1])["headers"]
        emitted = RuntimeTick.model_validate(_payload(waiting[-1]))
        expires = datetime.fromisoformat(headers["expires"])
        assert timedelta(0) < expires - emitted.now < timedelta(seconds=1)
        before = int(broker.llen(QUEUE))
        start_worker()
        reading = ticks_reach(engine, 1)
        assert (reading.tick_sequence or 0) > before - 5, "the old ones were thrown away"
        eventually(lambda: int(broker.llen(QUEUE)) < 5, "the queue is drained")


def _payload(message: bytes) -> object:
    body = json.loads(base64.b64decode(json.loads(message)["body"]))
    return body[0][0]


def test_three_beats_cost_one_tick_an_interval(
    settings: Settings, engine: Engine, start_role: StartRole, start_worker: Callable[..., object]
) -> None:
    workers = [start_worker("w1"), start_worker("w2")]
    for number in range(3):
        start_role(f"beat-{number}", "beat")
    taken = "SELECT ticks, at FROM runtime_clock"
    ticks_reach(engine, 1)
    ((first, began),) = sql(settings.database_url, taken)
    ticks_reach(engine, int(str(first)) + 15)
    ((last, ended),) = sql(settings.database_url, taken)
    half_an_interval = timedelta(milliseconds=100)
    assert ended - began >= (last - first) * half_an_interval  # type: ignore[operator]
    logs = "".join(worker.log.read_text() for worker in workers)  # type: ignore[attr-defined]
    assert "'won': False" in logs, "the other beats' ticks arrived and stopped there"


def test_a_worker_killed_in_the_middle_of_it_all_is_replaced_by_any_other(
    engine: Engine, start_role: StartRole, start_worker: Callable[..., object]
) -> None:
    doomed = start_worker("doomed")
    start_role("beat", "beat")
    ticks_reach(engine, 2)
    pid = doomed.pid  # type: ignore[attr-defined]
    os.killpg(pid, signal.SIGKILL)
    start_worker("successor")
    ticks_reach(engine, clock(engine).ticks + 3)


def test_a_beat_restarted_is_a_new_instance_and_counts_from_one(
    engine: Engine, start_role: StartRole, start_worker: Callable[..., object]
) -> None:
    start_worker()
    first = start_role("beat", "beat")
    old = ticks_reach(engine, 3)
    first.stop()
    start_role("beat-again", "beat")
    new = eventually(
        lambda: reading if (reading := clock(engine)).runtime_id != old.runtime_id else None,
        "the new instance's tick is taken",
    )
    assert (new.tick_sequence or 0) <= 3


FROZEN_WORKER = """
import sys, time
from celery.worker.control import control_command
from tasks.settings import Settings
from tasks.wiring import celery_app
from tasks.logs import configure_logging

@control_command()
def freeze(state):
    time.sleep(3600)

settings = Settings.from_environment()
configure_logging(settings)
celery_app(settings).worker_main(["worker", "--hostname", "frozen@here", "--concurrency", "1",
                                  "--without-mingle", "--without-gossip"])
"""


def test_a_worker_that_stops_consuming_exits_for_its_supervisor(
    settings: Settings, engine: Engine, start_role: StartRole
) -> None:
    """The known field problem: alive, idle, and taking nothing while messages wait."""
    app = celery_app(settings)

    def answers() -> None:
        if not app.control.broadcast(
            "ping", destination=["frozen@here"], reply=True, timeout=1, limit=1
        ):
            raise InfraUnavailableError("no answer yet", "wait")

    worker = start_role(
        "frozen",
        argv=(sys.executable, "-c", FROZEN_WORKER),
        probe=answers,
        ROLLCALL_STALL_SECONDS="5",
    )
    start_role("beat", "beat")
    ticks_reach(engine, 2)
    app.control.broadcast("freeze", destination=["frozen@here"])
    eventually(lambda: not worker.running(), "the frozen worker gives up")
    assert worker.exit_code() == EXIT_CODE
    assert "messages wait and none was taken" in worker.log.read_text()


def test_a_message_that_is_not_json_is_refused_and_the_worker_lives_on(
    settings: Settings, engine: Engine, start_role: StartRole, start_worker: Callable[..., object]
) -> None:
    worker = start_worker()
    assert settings.broker_url
    with redis.Redis.from_url(settings.broker_url.reveal()) as broker:
        app = celery_app(settings)
        app.conf.accept_content = ["json", "pickle"]
        app.send_task(
            "runtime.events.RuntimeTick", args=[{"a": 1}], serializer="pickle", queue=QUEUE
        )
        app.send_task("runtime.events.RuntimeTick", args=[{"now": "yesterday"}], queue=QUEUE)
        app.send_task("no.such.Task", queue=QUEUE)
        eventually(lambda: int(broker.llen(QUEUE)) == 0, "everything was consumed")
    start_role("beat", "beat")
    ticks_reach(engine, 2)
    log = worker.log.read_text()  # type: ignore[attr-defined]
    assert "ContentDisallowed" in log or "Refusing to deserialize" in log
    assert "no.such.Task" in log
