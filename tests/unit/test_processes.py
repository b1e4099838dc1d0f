"""Children that are always found again, on real processes."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from models.errors import AlreadyRunningError, StackError
from rollcall.home import Home
from rollcall.processes import Child, Program, reap, recorded, wait_until_ready
from tests.polling import eventually

FOREVER = (sys.executable, "-c", "import signal; signal.pause()")
DEAF = (
    sys.executable,
    "-c",
    "import signal; [signal.signal(s, signal.SIG_IGN) for s in (2, 15)];"
    " print('deaf', flush=True);\nwhile True: signal.pause()",
)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    home.create()
    return home


def test_a_child_is_recorded_before_it_is_the_program(home: Home) -> None:
    child = Child(Program("p", FOREVER), home.path)
    child.start()
    pid_file = home.run / "p.pid"
    process = eventually(lambda: recorded(pid_file), "the pid file names the child")
    assert process.pid == child.pid
    child.stop()
    assert not pid_file.exists()
    assert not psutil.pid_exists(process.pid)


def test_a_child_that_will_not_hear_is_ended_all_the_same(home: Home) -> None:
    child = Child(Program("deaf", DEAF, stop_seconds=0.2), home.path)
    child.start()
    eventually(lambda: "deaf" in child.log.read_text(), "it ignores signals by now")
    child.stop()
    assert child.exit_code() == -signal.SIGKILL


def test_what_a_killed_owner_left_is_ended_by_the_next(home: Home) -> None:
    left = Child(Program("left", FOREVER), home.path)
    left.start()
    eventually(lambda: recorded(home.run / "left.pid"), "it is recorded")
    with home.owned():
        eventually(lambda: not left.running(), "the next owner ended it")
    assert home.leftovers() == []


def test_somebody_elses_process_with_the_recorded_pid_is_left_alone(home: Home) -> None:
    stranger = subprocess.Popen(FOREVER)
    pid_file = home.run / "old.pid"
    pid_file.write_text(str(stranger.pid))
    os.utime(pid_file, (1_000_000_000, 1_000_000_000))
    assert recorded(pid_file) is None
    reap([pid_file])
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


@pytest.mark.parametrize("text", ["", "x", "-1", "99999999"])
def test_a_broken_pid_file_names_nobody(home: Home, text: str) -> None:
    pid_file = home.run / "broken.pid"
    pid_file.write_text(text)
    assert recorded(pid_file) is None


def test_one_folder_has_one_owner(home: Home) -> None:
    with home.owned():
        assert home.held()
        assert home.owner() == os.getpid()
        with pytest.raises(AlreadyRunningError, match=str(os.getpid())), Home(home.path).owned():
            pass
    assert not home.held()


def test_a_child_that_dies_while_starting_is_told_with_its_last_words(home: Home) -> None:
    child = Child(Program("dies", ("/bin/sh", "-c", "echo out of luck; exit 3")), home.path)
    child.start()

    def never() -> None:
        raise StackError("not yet", "wait")

    with pytest.raises(StackError, match="ended with 3 while starting: out of luck"):
        wait_until_ready(child, never, 10)
    child.stop()


def test_secrets_of_a_folder_are_made_once_and_closed_to_others(home: Home) -> None:
    first = home.secret("redis")
    assert first == Home(home.path).secret("redis") != home.secret("postgres")
    assert len(first) >= 24
    assert (home.path / "secrets.json").stat().st_mode & 0o077 == 0
