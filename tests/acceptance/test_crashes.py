"""Workers that are killed, frozen or murdered by a message, in the worst moments there are."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from tasks.settings import Settings
from tests.acceptance.test_durability import in_one_room
from tests.conftest import REPOSITORY, clean_environment
from tests.polling import eventually
from tests.runtime_kit import Kit, kit_of, press

# A worker process whose end is fixed: at which step, by which signal, or by which entity.
DOOMED = """
import os, signal, sys
import tasks.batch, tasks.runtime
from tasks.settings import Settings
from tasks.store import inbox
from tests.runtime_kit import kit_of

gap, end = sys.argv[1:]

def then_end(function, worth=lambda done, *args: True):
    def run(*args):
        done = function(*args)
        if worth(done, *args):
            os.kill(os.getpid(), signal.Signals[end])
        return done
    return run

def deadly(*args):
    if args[3].entity_id == end:
        os._exit(9)
    return step(*args)

match gap:
    case "taken":
        inbox.take = then_end(inbox.take, lambda taken, *_: taken)
    case "written":
        inbox.remove = then_end(inbox.remove)
    case "committed":
        tasks.runtime.report = then_end(tasks.runtime.report, lambda _, batch: batch.applied)
    case "folding":
        step, tasks.batch.step = tasks.batch.step, deadly

for kit in kit_of(Settings.from_environment()):
    kit.drain()
"""


@pytest.fixture
def kit(settings: Settings) -> Iterator[Kit]:
    yield from kit_of(settings)


def doomed(settings: Settings, gap: str, end: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", DOOMED, gap, end],
        env=clean_environment() | settings.environment(),
        cwd=REPOSITORY,
    )


def drained(kit: Kit) -> bool:
    """Go on until nothing waits; a dead worker's session may hold its partition for a moment."""
    kit.drain()
    return kit.count("inbox") == 0


@pytest.mark.parametrize("gap", ["taken", "written", "committed"])
def test_a_worker_killed_in_any_gap_loses_and_doubles_nothing(
    settings: Settings, kit: Kit, gap: str
) -> None:
    """Promise 2: a batch is committed whole or not at all, whenever its worker dies."""
    entities = in_one_room(20)
    messages = [press(each) for each in entities] + [press(each, "RELEASE") for each in entities]
    kit.submit(*messages)
    assert doomed(settings, gap, "SIGKILL").wait(30) == -signal.SIGKILL
    assert kit.count("event_log") == (40 if gap == "committed" else 0)
    kit.submit(*messages[:5])
    eventually(lambda: drained(kit), "another worker goes on")
    assert kit.count("event_log") == 40
    assert set(kit.states().values()) == {"dark"}
    assert kit.count("dead_letters") == 0
    kit.audit()


def test_a_message_that_kills_its_worker_ends_in_dead_letters(settings: Settings, kit: Kit) -> None:
    """Promise 8: it is put away after a few deaths, and the others of its partition are folded."""
    entities = in_one_room(8)
    killer = entities[4]
    kit.submit(*(press(each, data={"n": at}) for at, each in enumerate(entities)))
    ends: list[int] = []
    while len(ends) < 10 and (not ends or ends[-1]):
        ends.append(doomed(settings, "folding", killer).wait(30))
        eventually(lambda: no_session_of_the_dead(kit), "PostgreSQL notices the death")
    assert ends == [9, 9, 9, 9, 0], "one death in a batch, three alone, then it is put away"
    ((reason, entity_id, envelope, attempts),) = kit.sql(
        "SELECT reason, entity_id, envelope, attempts FROM dead_letters"
    )
    assert (reason, entity_id) == ("killed its worker", killer)
    assert envelope["payload"]["data"] == {"n": 4}
    assert attempts == 3
    assert sorted(kit.states()) == sorted({*entities} - {killer})
    kit.audit()


def no_session_of_the_dead(kit: Kit) -> bool:
    left = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
    kit.engine.dispose()
    return kit.sql(left) == [(1,)]


@pytest.mark.parametrize("gap", ["taken", "written"])
def test_a_frozen_worker_frees_its_partition_and_does_no_harm_later(
    settings: Settings, kit: Kit, gap: str
) -> None:
    """Promise 4 with ruling 11: its transaction is ended by the server, not by its waking up."""
    entities = in_one_room(10)
    kit.submit(*(press(each) for each in entities))
    frozen = doomed(settings.at(idle_transaction_timeout_ms=500), gap, "SIGSTOP")
    try:
        eventually(
            lambda: psutil.Process(frozen.pid).status() == psutil.STATUS_STOPPED, "it freezes"
        )
        kit.drain()
        eventually(lambda: drained(kit), "another worker folds", 10)
        kit.submit(*(press(each, "RELEASE") for each in entities))
        os.kill(frozen.pid, signal.SIGCONT)
        assert frozen.wait(30) == 1, "its session is gone, and it says so"
    finally:
        frozen.kill()
        frozen.wait()
    eventually(lambda: drained(kit), "nothing waits")
    assert kit.count("event_log") == 20
    assert set(kit.states().values()) == {"dark"}
    kit.audit()
