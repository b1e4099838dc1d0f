"""Real servers for every test that wants them: one set a run, a database and a broker each.

Values left in the environment by whoever runs the tests must not steer them.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import psycopg2
import pytest
import redis
from sqlalchemy import Engine

from rollcall.consul_binary import find_consul
from rollcall.devstack import DevStack, throwaway_home
from rollcall.home import Home
from rollcall.ports import free_ports
from rollcall.processes import Child, Program, stop_together, wait_until_ready
from tasks.database import open_engine
from tasks.schema import upgrade
from tasks.secrets import SecretUrl
from tasks.settings import LogFormat, Settings

REPOSITORY = Path(__file__).parent.parent
KEPT = ("ROLLCALL_CACHE", "ROLLCALL_CONSUL_BIN")

Rollcall = Callable[..., subprocess.CompletedProcess[str]]
StartRole = Callable[..., Child]


def clean_environment() -> dict[str, str]:
    """The environment without settings, but with where to find consul."""
    return {
        key: value
        for key, value in os.environ.items()
        if key in KEPT or not key.startswith(("ROLLCALL_", "ONEX_", "FLOWER_"))
    }


@pytest.fixture(scope="session")
def consul() -> Path:
    return find_consul(Settings.from_environment(clean_environment()))


@pytest.fixture(scope="session")
def servers(consul: Path) -> Iterator[Settings]:
    """PostgreSQL, Redis and Consul, once a run."""
    settings = Settings.from_environment(clean_environment()).at(consul_bin=consul)
    with throwaway_home("tests") as home, home.owned():
        stack = DevStack(settings.at(home=home.path), home)
        try:
            yield stack.start()
        finally:
            stack.stop()


def _at(url: SecretUrl | None, path: str) -> SecretUrl:
    assert url is not None
    return SecretUrl(url.reveal().rpartition("/")[0] + f"/{path}")


def sql(url: SecretUrl | None, statement: str) -> list[tuple[object, ...]]:
    """Run one statement outside any transaction, as an onlooker."""
    assert url is not None
    connection = psycopg2.connect(url.reveal())
    try:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchall() if cursor.description else []
    finally:
        connection.close()


@pytest.fixture(scope="session")
def template(servers: Settings) -> str:
    """A migrated database that every test's own is copied from."""
    sql(servers.database_url, "CREATE DATABASE template_rollcall")
    url = _at(servers.database_url, "template_rollcall")
    upgrade(open_engine(servers.at(database_url=url), "template", pooled=False))
    return "template_rollcall"


_numbers = count(1)


@pytest.fixture
def empty_database(servers: Settings) -> Iterator[Settings]:
    """A database that was never migrated, and a broker of its own."""
    yield from _isolated(servers, "template0")


@pytest.fixture
def settings(servers: Settings, template: str) -> Iterator[Settings]:
    """The settings of one test: its own copy of the migrated database, its own empty broker."""
    yield from _isolated(servers, template)


def _isolated(servers: Settings, template: str) -> Iterator[Settings]:
    number = next(_numbers)
    name = f"test_{number}"
    sql(servers.database_url, f"CREATE DATABASE {name} TEMPLATE {template}")
    broker = _at(servers.broker_url, str(number % 63 + 1))
    with redis.Redis.from_url(broker.reveal()) as client:
        client.flushdb()
    with throwaway_home("test") as home:
        yield servers.at(
            database_url=_at(servers.database_url, name),
            broker_url=broker,
            home=home.path,
            log_format=LogFormat.JSON,
        )
    sql(servers.database_url, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def engine(settings: Settings) -> Iterator[Engine]:
    opened = open_engine(settings, "test")
    yield opened
    opened.dispose()


@pytest.fixture
def rollcall(tmp_path: Path) -> Rollcall:
    """Run the command line in a process of its own and return what it printed."""

    def run(
        *words: str, settings: Settings | None = None, seconds: float = 60, **environ: str
    ) -> subprocess.CompletedProcess[str]:
        said = settings.environment() if settings else {"ROLLCALL_HOME": str(tmp_path / "home")}
        return subprocess.run(
            [sys.executable, "-m", "rollcall", *words],
            env=clean_environment() | said | environ,
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    return run


@pytest.fixture
def start_role(settings: Settings) -> Iterator[StartRole]:
    """Start a worker, beat or Flower as a deployment does; a probe says when it is ready."""
    home = Home(settings.home)
    home.create()
    started: list[Child] = []

    def start(
        name: str,
        *words: str,
        probe: Callable[[], object] = lambda: None,
        argv: tuple[str, ...] = (),
        **environ: str,
    ) -> Child:
        command = argv or (sys.executable, "-m", "rollcall", *words)
        env = clean_environment() | settings.environment() | environ
        child = Child(Program(name, command, env=env, stop_seconds=20), home.path)
        child.start()
        started.append(child)
        wait_until_ready(child, probe, 60)
        return child

    # Held, so that another run's sweep does not take our processes for somebody's leftovers.
    with home.owned():
        yield start
        stop_together(started)


@pytest.fixture
def port() -> int:
    return free_ports(1)[0]
