"""PostgreSQL stopped and started again under load: whoever was told "stored" was told the truth."""

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis
from sqlalchemy.exc import DBAPIError

from models.envelope import Envelope
from models.errors import RollcallError
from rollcall.devstack import DevStack, Server, throwaway_home
from rollcall.ports import free_ports
from rollcall.processes import wait_until_ready
from tasks.database import open_engine
from tasks.schema import upgrade
from tasks.settings import LogFormat, Settings
from tests.conftest import StartRole
from tests.polling import eventually
from tests.runtime_kit import MACHINES, Kit, press, ringing_kit

PRODUCERS, EACH = 4, 150


@pytest.fixture
def stack(servers: Settings) -> Iterator[DevStack]:
    """A PostgreSQL of its own, since the one of the other tests must go on."""
    with throwaway_home("chaos") as home, home.owned():
        port = free_ports(1)[0]
        stack = DevStack(servers.at(database_url=None, home=home.path, postgres_port=port), home)
        try:
            yield stack
        finally:
            stack.stop()


@pytest.fixture
def settings(stack: DevStack, tmp_path: Path) -> Settings:
    settings = stack.start().at(
        home=tmp_path, contracts_dir=MACHINES, tick_interval_ms=200, log_format=LogFormat.JSON
    )
    upgrade(open_engine(settings, "chaos", pooled=False))
    assert settings.broker_url
    with redis.Redis.from_url(settings.broker_url.reveal()) as broker:
        broker.flushdb()
    return settings


def delivered(kit: Kit, message: Envelope) -> bool:
    """As a producer does it: what was not confirmed is sent again, with the same id."""
    try:
        return kit.submit(message) == 1
    except DBAPIError:
        return False


def reachable(postgres: Server) -> bool:
    try:
        return bool(postgres.probe())
    except RollcallError:
        return False


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["fast", "crash"])
def test_everything_that_was_stored_is_applied_once(
    stack: DevStack, settings: Settings, start_role: StartRole, how: signal.Signals
) -> None:
    """Promises 1 to 4: PostgreSQL restarts three times, and nothing is lost, doubled or late."""
    kit = ringing_kit(settings)
    (postgres,) = stack.servers
    start_role("worker", "worker")
    start_role("beat", "beat")

    failures = 0

    def produce(entity_id: str) -> None:
        nonlocal failures
        for number in range(EACH):
            message = press(entity_id, data={"n": number})
            while not delivered(kit, message):
                failures += 1
                eventually(lambda: reachable(postgres), "PostgreSQL is back")

    def restart() -> None:
        if how is signal.SIGQUIT:
            postgres.child._popen.send_signal(how)  # type: ignore[union-attr]
        postgres.child.stop()
        postgres.child.start()
        wait_until_ready(postgres.child, postgres.probe, 60)

    def logged() -> int:
        return kit.count("event_log")

    kit.submit(press("warm"))
    eventually(lambda: logged() == 1, "the worker is warm")
    with ThreadPoolExecutor(PRODUCERS) as producers:
        running = [producers.submit(produce, f"l{each}") for each in range(PRODUCERS)]
        for reached in (50, 200, 350):
            eventually(lambda reached=reached: logged() >= reached, "the load goes on")  # type: ignore[misc]
            restart()
        for each in running:
            each.result()
    assert failures >= 3, "every restart was felt"
    eventually(lambda: kit.count("inbox") == 0, "nothing waits", 60)
    for entity in range(PRODUCERS):
        applied = kit.sql(
            f"SELECT data FROM event_log WHERE entity_id = 'l{entity}' ORDER BY sequence"
        )
        assert [data["n"] for (data,) in applied] == [*range(EACH)]
    assert kit.count("dead_letters") == 0
    kit.audit()
    kit.engine.dispose()
