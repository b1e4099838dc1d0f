"""`rollcall up` and its life: twice, killed, stopped; nothing is ever left behind."""

import contextlib
import json
import os
import pty
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from rollcall.devstack import throwaway_home
from rollcall.home import Home
from rollcall.ports import free_ports
from rollcall.supervisor import stop_stack
from tests.conftest import REPOSITORY, Rollcall, clean_environment
from tests.polling import eventually

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def home() -> Iterator[Home]:
    with throwaway_home("up") as home:
        yield home
        stop_stack(home)


@pytest.fixture
def environ(home: Home, consul: Path) -> dict[str, str]:
    return clean_environment() | {
        "ROLLCALL_HOME": str(home.path),
        "ROLLCALL_CONSUL_BIN": str(consul),
        "ROLLCALL_WORKERS": "1",
        "ROLLCALL_FLOWER_PORT": str(free_ports(1)[0]),
        "ONEX_RUNTIME_TICK_INTERVAL_MS": "200",
    }


@pytest.fixture
def run(environ: dict[str, str]) -> Run:
    def run(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "rollcall", *words],
            env=environ | more,
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )

    return run


def status(run: Run) -> dict[str, Any]:
    return dict(json.loads(run("status", "--json").stdout))


def family(home: Home) -> list[psutil.Process]:
    """Every process that belongs to the stack: recorded, or grown from one that is."""
    found: list[psutil.Process] = []
    for pid_file in home.leftovers():
        try:
            process = psutil.Process(int(pid_file.read_text()))
        except (psutil.NoSuchProcess, ValueError):
            continue
        found += [process, *process.children(recursive=True)]
    return found


def ports(processes: list[psutil.Process]) -> set[int]:
    listening: set[int] = set()
    for process in processes:
        for connection in process.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr:
                listening.add(connection.laddr.port)
    return listening


def assert_nothing_left(processes: list[psutil.Process], listened: set[int]) -> None:
    eventually(
        lambda: not [process for process in processes if process.is_running()], "no orphan is left"
    )
    for port in listened:
        with socket.socket() as attempt:
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            attempt.bind(("127.0.0.1", port))


def test_up_twice_is_one_stack_and_down_leaves_nothing(run: Run, home: Home) -> None:
    first = run("up", "--detach")
    assert first.returncode == 0, first.stderr
    before = status(run)
    assert before["running"]
    assert {part["name"] for part in before["parts"]} == {
        *("postgres", "redis", "consul", "worker-1", "beat", "flower")
    }
    second = run("up", "--detach")
    assert second.returncode == 0
    assert "already running" in second.stdout
    assert [part["pid"] for part in status(run)["parts"]] == [
        part["pid"] for part in before["parts"]
    ]
    foreground = run("up")
    assert foreground.returncode == 0
    assert "already running" in foreground.stdout

    processes, listened = family(home), ports(family(home))
    assert len(processes) >= 6
    assert len(listened) >= 4
    assert run("down").returncode == 0
    assert_nothing_left(processes, listened)
    assert run("status").returncode == 1
    again = run("down")
    assert (again.returncode, "nothing runs" in again.stdout) == (0, True)


def test_the_tick_goes_round_and_the_status_shows_its_age(run: Run) -> None:
    assert run("up", "--detach").returncode == 0
    first = status(run)["tick"]
    later = eventually(
        lambda: tick if (tick := status(run)["tick"])["ticks"] > first["ticks"] + 2 else None,
        "ticks go on",
    )
    assert later["age_seconds"] < 5
    assert later["runtime_id"] == first["runtime_id"]


def test_a_killed_supervisor_leaves_orphans_that_the_next_start_ends(run: Run, home: Home) -> None:
    assert run("up", "--detach").returncode == 0
    orphans, listened = family(home), ports(family(home))
    owner = home.owner()
    assert owner is not None
    os.kill(owner, signal.SIGKILL)
    eventually(lambda: not home.held(), "the lock ends with its holder")
    assert [process for process in orphans if process.is_running()], "kill -9 leaves them running"

    started = run("up", "--detach")
    assert started.returncode == 0, started.stderr
    assert_nothing_left(orphans, listened - ports(family(home)))
    assert status(run)["running"]


def test_down_ends_what_a_killed_supervisor_left(run: Run, home: Home) -> None:
    assert run("up", "--detach").returncode == 0
    orphans, listened = family(home), ports(family(home))
    os.kill(home.owner() or 0, signal.SIGKILL)
    eventually(lambda: not home.held(), "the lock ends with its holder")
    done = run("down")
    assert (done.returncode, done.stdout.strip()) == (0, "stopped")
    assert_nothing_left(orphans, listened)


@pytest.mark.parametrize("victim", ["worker-1", "beat", "redis", "postgres"])
def test_what_dies_is_started_again(run: Run, victim: str) -> None:
    assert run("up", "--detach").returncode == 0
    before = next(part for part in status(run)["parts"] if part["name"] == victim)
    os.kill(before["pid"], signal.SIGKILL)

    def replaced() -> Any:
        part = next(part for part in status(run)["parts"] if part["name"] == victim)
        return (part["state"], part["restarts"]) == ("running", 1) and part["pid"] != before["pid"]

    eventually(replaced, f"{victim} runs again")
    ticks = eventually(lambda: status(run)["tick"], "the database answers")["ticks"]
    eventually(
        lambda: (status(run)["tick"] or {"ticks": 0})["ticks"] > ticks, "ticks go on", seconds=60
    )


@pytest.mark.parametrize("signal_name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_every_polite_way_to_stop_leaves_nothing(
    environ: dict[str, str], home: Home, signal_name: str
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "rollcall", "up"],
        env=environ,
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    eventually(lambda: home.told().get("phase") == "ready", "it is up", seconds=60)
    processes, listened = family(home), ports(family(home))
    process.send_signal(signal.Signals[signal_name])
    process.send_signal(signal.Signals[signal_name])
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert output.rstrip().endswith("stopped")
    assert_nothing_left(processes, listened)


def test_stopped_while_it_starts_it_leaves_nothing(environ: dict[str, str], home: Home) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "rollcall", "up"],
        env=environ,
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    started = eventually(lambda: family(home), "something was started", every=0.01)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert_nothing_left(started, set())
    assert home.leftovers() == []


def test_on_a_terminal_the_board_is_live_and_ctrl_c_ends_it(
    environ: dict[str, str], home: Home
) -> None:
    pid, terminal = pty.fork()
    if pid == 0:  # the child becomes the command, on a terminal of its own
        os.chdir(REPOSITORY)
        command = [sys.executable, "-m", "rollcall", "up"]
        os.execve(sys.executable, command, environ | {"TERM": "xterm"})  # noqa: S606
    os.set_blocking(terminal, False)
    shown = ""

    def screen() -> str:
        nonlocal shown
        with contextlib.suppress(OSError):
            shown += os.read(terminal, 65_536).decode(errors="replace")
        return shown

    eventually(lambda: "so far" in screen() and "worker-1" in screen(), "the board shows ticks")
    for wanted in ("postgres", "http://127.0.0.1", "running", "Flower"):
        assert wanted in shown
    os.write(terminal, b"\x03")
    eventually(lambda: not home.held() and "stopped" in screen(), "Ctrl-C ends it")
    assert os.waitpid(pid, 0)[1] == 0
    os.close(terminal)


def test_a_start_that_fails_in_the_background_is_told_in_the_foreground(
    run: Run, rollcall: Rollcall
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        failed = run("up", "--detach", "--flower-port", str(port))
    assert failed.returncode == 5
    (line,) = failed.stderr.strip().splitlines()
    assert str(port) in line
    assert "ROLLCALL_FLOWER_PORT" in line
