"""The embedded servers: real, private, durable, for root and for an ordinary user."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from models.errors import PortInUseError, StackError
from rollcall.account import server_account
from rollcall.devstack import DevStack, throwaway_home
from rollcall.home import Home
from tasks.settings import Settings
from tests.conftest import REPOSITORY, clean_environment, sql

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="tells what root does")


@pytest.fixture
def home() -> Iterator[Home]:
    with throwaway_home("devstack") as home, home.owned():
        yield home


@pytest.fixture
def only_postgres(servers: Settings, home: Home) -> Settings:
    """Redis and Consul are the user's own: only PostgreSQL is left to start."""
    return servers.at(database_url=None, home=home.path)


def test_a_users_own_servers_are_used_and_left_alone(servers: Settings, home: Home) -> None:
    stack = DevStack(servers, home)
    assert stack.start() == servers
    assert stack.servers == []


def test_what_was_committed_is_there_after_a_restart(only_postgres: Settings, home: Home) -> None:
    stack = DevStack(only_postgres, home)
    first = stack.start()
    sql(first.database_url, "CREATE TABLE kept AS SELECT 42 AS answer")
    assert sql(first.database_url, "SHOW fsync") == [("on",)]
    stack.stop()
    again = DevStack(only_postgres, home)
    second = again.start()
    assert sql(second.database_url, "SELECT answer FROM kept") == [(42,)]
    again.stop()


def test_what_consul_was_told_is_there_after_a_restart(servers: Settings, home: Home) -> None:
    """Also on other ports: the folder is the same, the ports of the next start are not."""
    only_consul = servers.at(consul_url=None, home=home.path)
    node = {"Node": "kept", "Address": "10.0.0.1"}
    stack = DevStack(only_consul, home)
    first = stack.start().consul_url
    assert first is not None
    httpx.put(f"{first.reveal()}/v1/catalog/register", json=node).raise_for_status()
    stack.stop()
    again = DevStack(only_consul, home)
    second = again.start().consul_url
    assert second is not None
    found = httpx.get(f"{second.reveal()}/v1/catalog/nodes").json()
    again.stop()
    assert "kept" in [each["Node"] for each in found]


def test_a_kill_in_the_middle_of_making_the_cluster_leaves_nothing_half_made(
    only_postgres: Settings, home: Home
) -> None:
    stack = DevStack(only_postgres, home)
    half = stack._folder("postgres") / "half-made"
    half.mkdir()
    (half / "PG_VERSION").write_text("18\n")
    started = stack.start()
    assert sql(started.database_url, "SELECT 1") == [(1,)]
    stack.stop()


def test_the_servers_listen_on_loopback_only(servers: Settings) -> None:
    for url in (servers.database_url, servers.broker_url, servers.consul_url):
        assert url is not None
        port = int(str(url).rpartition(":")[2].partition("/")[0])
        listening = {
            connection.laddr.ip
            for connection in psutil.net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN
            and connection.laddr
            and connection.laddr.port == port
        }
        assert listening == {"127.0.0.1"}


def test_no_password_stands_in_the_arguments_of_a_process(servers: Settings) -> None:
    arguments = " ".join(
        " ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])
    )
    for secret in servers.secrets:
        assert secret not in arguments


@as_root
def test_started_by_root_the_servers_run_as_nobody(only_postgres: Settings, home: Home) -> None:
    stack = DevStack(only_postgres, home)
    stack.start()
    pid = stack.servers[0].child.pid
    assert pid is not None
    assert psutil.Process(pid).username() == "nobody"
    stack.stop()


@as_root
def test_in_a_folder_that_nobody_reaches_the_servers_run_all_the_same(
    only_postgres: Settings, tmp_path: Path
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    account = server_account()
    assert account is not None
    assert not account.reaches(closed / "any")
    home = Home(closed / "home")
    with home.owned():
        stack = DevStack(only_postgres, home)
        try:
            started = stack.start()
            assert sql(started.database_url, "SELECT 1") == [(1,)]
            assert stack._data.is_relative_to("/var/lib/rollcall")
        finally:
            stack.stop()
            shutil.rmtree(stack._data)


@as_root
def test_binaries_that_nobody_reaches_are_copied(
    only_postgres: Settings, home: Home, tmp_path: Path
) -> None:
    account = server_account()
    assert account is not None
    source = tmp_path / "wheel"
    (source / "bin").mkdir(parents=True)
    (source / "bin" / "server").write_text("#!/bin/sh\n")
    (source / "bin" / "server").chmod(0o700)
    copied = account.copied(source, home.path / "copy")
    assert account.runs(copied / "bin" / "server")


@as_root
def test_an_ordinary_user_can_start_them_too(consul: Path) -> None:
    """A process without root's rights, but for reading: this machine's Python may be root's."""
    with throwaway_home("ordinary") as outer:
        folder = outer.path / "theirs"
        folder.mkdir()
        os.chown(folder, 65534, 65534)
        consul = Path(shutil.copy2(consul, outer.path / "consul"))
        script = (
            "import json, os\n"
            "from pathlib import Path\n"
            "from rollcall.devstack import DevStack\n"
            "from rollcall.home import Home\n"
            "from tasks.settings import Settings\n"
            "settings = Settings.from_environment()\n"
            "home = Home(settings.home)\n"
            "with home.owned():\n"
            "    stack = DevStack(settings, home)\n"
            "    stack.start()\n"
            "    print(json.dumps([os.geteuid(), [s.probe() for s in stack.servers]]))\n"
            "    stack.stop()\n"
        )
        done = subprocess.run(
            [
                *("setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups"),
                *("--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"),
                *(sys.executable, "-c", script),
            ],
            env=clean_environment()
            | {
                "ROLLCALL_HOME": str(folder / "home"),
                "ROLLCALL_CONSUL_BIN": str(consul),
                "PYTHONPATH": str(REPOSITORY),
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        uid, versions = json.loads(done.stdout)
        assert uid == 65534
        assert len(versions) == 3


def test_a_port_in_use_is_refused_before_anything_starts(
    only_postgres: Settings, home: Home
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        stack = DevStack(only_postgres.at(postgres_port=port), home)
        with pytest.raises(PortInUseError) as caught:
            stack.start()
    assert str(port) in caught.value.message
    assert "ROLLCALL_POSTGRES_PORT" in caught.value.remedy
    assert stack.servers == []


@pytest.mark.parametrize("unusable", ["/proc/rollcall", "/dev/null/rollcall"])
def test_a_folder_that_cannot_be_written_is_refused_with_the_remedy(unusable: str) -> None:
    with pytest.raises(StackError, match="ROLLCALL_HOME"), Home(Path(unusable)).owned():
        pass


def test_what_a_killed_throwaway_left_is_swept_by_the_next(only_postgres: Settings) -> None:
    script = (
        "import os, signal\n"
        "from rollcall.devstack import DevStack, throwaway_home\n"
        "from tasks.settings import Settings\n"
        "with throwaway_home('swept') as home, home.owned():\n"
        "    stack = DevStack(Settings.from_environment(), home)\n"
        "    stack.start()\n"
        "    print(home.path, stack.servers[0].child.pid, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    killed = subprocess.run(
        [sys.executable, "-c", script],
        env=clean_environment() | only_postgres.environment(),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    path, pid = killed.stdout.split()
    assert psutil.pid_exists(int(pid)), "kill -9 leaves the server running"
    with throwaway_home("swept"):
        assert not psutil.pid_exists(int(pid))
        assert not Path(path).exists()
