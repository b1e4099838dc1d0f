"""`rollcall demo`: real processes, real trouble, and a count that is no formality."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from rollcall.demo.fleet import SERVICE, Fleet
from tests.conftest import REPOSITORY, Rollcall, clean_environment
from tests.polling import eventually

PROMISED = sum(each.handshake == "active" for each in Fleet(30).expected.values())


class Demo:
    """A demo that runs, and what it has said so far."""

    def __init__(self, folder: Path, consul: Path, *words: str) -> None:
        self._told = folder / "told"
        with self._told.open("wb") as told:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "rollcall", "demo", "--json", *words],
                env=clean_environment()
                | {"ROLLCALL_CONSUL_BIN": str(consul), "TMPDIR": str(folder)},
                cwd=REPOSITORY,
                stdout=subprocess.PIPE,
                stderr=told,
                text=True,
            )

    def told(self) -> str:
        return self._told.read_text()

    def said(self, pattern: str) -> re.Match[str]:
        return eventually(lambda: re.search(pattern, self.told()), pattern, seconds=60)

    def end(self, seconds: float) -> tuple[int, str]:
        printed, _ = self.process.communicate(timeout=seconds)
        return self.process.returncode, printed


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder that the servers' account reaches."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o711)
    return tmp_path


@pytest.fixture
def demo(shared: Path, consul: Path) -> Iterator[Demo]:
    started = Demo(shared, consul, "--nodes", "10")
    yield started
    if started.process.poll() is None:
        started.process.send_signal(signal.SIGTERM)
        started.process.communicate(timeout=60)


@pytest.mark.timeout(180)
def test_every_promise_is_kept_through_chaos(rollcall: Rollcall, consul: Path) -> None:
    done = rollcall(
        *("demo", "--nodes", "30", "--chaos", "--json"),
        seconds=170,
        ROLLCALL_CONSUL_BIN=str(consul),
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    count = json.loads(done.stdout)
    assert 0 < count.pop("p50_ms") <= count.pop("p99_ms")
    assert count == {
        "nodes": 30,
        "active": PROMISED,
        "in_postgres": PROMISED,
        "in_consul": PROMISED,
        "lost": 0,
        "doubled": 0,
        "stuck": 0,
    }
    for trouble in ("Consul stops", "worker-1 is killed", "worker-1 ended with -9", "is flushed"):
        assert trouble in done.stderr


@pytest.mark.timeout(180)
def test_a_node_taken_out_of_consul_behind_its_back_is_found_missing(demo: Demo) -> None:
    consul_url = demo.said(r"consul \S+ answers at (\S+)")[1]
    stays = Fleet(10).nodes[0].node_id
    demo.said("1 active|[0-9] active")

    def entry() -> str | None:
        found = httpx.get(f"{consul_url}/v1/catalog/service/{SERVICE}").json()
        names = [each["Node"] for each in found if each["ServiceMeta"]["node_id"] == stays]
        return names[0] if names else None

    gone = {"Node": eventually(entry, f"{stays} in Consul")}
    httpx.put(f"{consul_url}/v1/catalog/deregister", json=gone).raise_for_status()
    code, printed = demo.end(120)
    count = json.loads(printed)
    assert (code, count["lost"], count["doubled"], count["stuck"]) == (1, 1, 0, 0)
    assert f"{stays}: Consul does not have its registration" in demo.told()


@pytest.mark.timeout(180)
def test_ctrl_c_stops_everything(demo: Demo) -> None:
    demo.said("nodes introduce themselves")
    family = psutil.Process(demo.process.pid).children(recursive=True)
    assert len(family) >= 6
    began = time.monotonic()
    demo.process.send_signal(signal.SIGINT)
    code, printed = demo.end(60)
    assert (code, printed) == (130, "")
    assert time.monotonic() - began < 60
    assert [each for each in family if each.is_running()] == []
