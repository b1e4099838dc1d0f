"""Looks at everything Rollcall needs, and says for each what to do if it is not well."""

import platform
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from importlib.metadata import version
from typing import Any

from sqlalchemy import text

from models.errors import PortInUseError, RollcallError
from rollcall.devstack import DevStack, throwaway_home
from rollcall.home import Home
from rollcall.insights import clock
from rollcall.ports import require_free
from rollcall.supervisor import FLOWER_PORT, running_settings
from tasks.database import open_engine
from tasks.reachability import consul_version, postgres_version, redis_version
from tasks.schema import current, head, require_current
from tasks.settings import Settings, unknown_variables

_SKEW = timedelta(seconds=2)
_POSTGRES_SINCE = 14
_PACKAGES = ("celery", "flower", "sqlalchemy", "alembic", "pydantic", "redis")


class Verdict(StrEnum):
    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True)
class Check:
    """What was looked at, what was found, and what to do about it."""

    name: str
    status: Verdict
    detail: str
    version: str | None = None
    remedy: str | None = None


@dataclass(frozen=True)
class Report:
    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        return all(check.status is not Verdict.FAILED for check in self.checks)

    def as_dict(self) -> dict[str, Any]:
        return {"ok": self.ok, "checks": [asdict(check) for check in self.checks]}


def examine(settings: Settings, environ: Mapping[str, str]) -> Report:
    """Every check, each on its own: one that fails never hides the next."""
    with _servers(running_settings(settings)) as (resolved, where, failed):
        looks: list[tuple[str, Callable[[], Check]]] = [
            ("python", _python),
            ("settings", lambda: _settings(environ)),
            ("folder", lambda: _folder(settings)),
            ("port", lambda: _port(resolved)),
        ]
        if failed is not None:
            return Report((*(_look(*look) for look in looks), failed))
        looks += [
            ("postgres", lambda: _postgres(resolved, where)),
            ("redis", lambda: _redis(resolved, where)),
            ("consul", lambda: _consul(resolved, where)),
            ("clock", lambda: _clock(resolved)),
            ("migrations", lambda: _migrations(resolved, embedded=where == "embedded")),
            ("ticks", lambda: _ticks(resolved)),
        ]
        return Report(tuple(_look(*look) for look in looks))


def _look(name: str, check: Callable[[], Check]) -> Check:
    try:
        return check()
    except RollcallError as error:
        return Check(name, Verdict.FAILED, error.message, remedy=error.remedy)


@contextmanager
def _servers(settings: Settings) -> Iterator[tuple[Settings, str, Check | None]]:
    """The servers to look at. Where none are named and none run, the embedded ones are tried for
    a moment in a folder that is thrown away."""
    if settings.database_url and settings.broker_url and settings.consul_url:
        yield settings, "running", None
        return
    with throwaway_home("doctor") as home, home.owned():
        stack = DevStack(settings, home)
        try:
            yield stack.start(), "embedded", None
        except RollcallError as error:
            told = Check("servers", Verdict.FAILED, error.message, remedy=error.remedy)
            yield settings, "embedded", told
        finally:
            stack.stop()


def _python() -> Check:
    installed = ", ".join(f"{name} {version(name)}" for name in ("rollcall", *_PACKAGES))
    return Check("python", Verdict.OK, f"{sys.executable}, {installed}", platform.python_version())


def _settings(environ: Mapping[str, str]) -> Check:
    unknown = unknown_variables(environ)
    if unknown:
        remedy = "correct the name or unset it; docs/reference/settings.md lists them all"
        told = f"not settings of Rollcall: {', '.join(unknown)}"
        return Check("settings", Verdict.WARNING, told, remedy=remedy)
    return Check("settings", Verdict.OK, "every ROLLCALL_ variable is known")


def _folder(settings: Settings) -> Check:
    home = Home(settings.home)
    home.create()
    free = shutil.disk_usage(home.path).free // 2**20
    if free < 512:
        remedy = "free some space, or set ROLLCALL_HOME elsewhere"
        return Check("folder", Verdict.WARNING, f"{home.path} has {free} MiB left", remedy=remedy)
    return Check("folder", Verdict.OK, f"{home.path} can be written, {free} MiB free")


def _port(settings: Settings) -> Check:
    if Home(settings.home).held():
        return Check("port", Verdict.OK, f"Flower listens on {settings.flower_port}")
    port = settings.flower_port or FLOWER_PORT
    try:
        require_free(port, "Flower", "ROLLCALL_FLOWER_PORT")
    except PortInUseError as error:
        # A port that was asked for is a fault; the usual one gives way to a free one.
        status = Verdict.FAILED if settings.flower_port else Verdict.WARNING
        return Check("port", status, error.message, remedy=error.remedy)
    return Check("port", Verdict.OK, f"{port} is free for Flower")


def _postgres(settings: Settings, where: str) -> Check:
    assert settings.database_url is not None  # noqa: S101
    found = postgres_version(settings.database_url)
    told = f"{where}, answers at {settings.database_url}"
    if int(found.partition(".")[0]) < _POSTGRES_SINCE:
        remedy = f"use PostgreSQL {_POSTGRES_SINCE} or newer"
        return Check("postgres", Verdict.FAILED, told, found, remedy)
    with open_engine(settings, "doctor", pooled=False).connect() as connection:
        durable = connection.execute(text("SHOW fsync")).scalar_one() == "on"
    if not durable:
        remedy = "set fsync = on: what is committed must survive a crash"
        return Check("postgres", Verdict.FAILED, f"{told}, with fsync off", found, remedy)
    return Check("postgres", Verdict.OK, f"{told}, fsync on", found)


def _redis(settings: Settings, where: str) -> Check:
    assert settings.broker_url is not None  # noqa: S101
    found = redis_version(settings.broker_url)
    return Check("redis", Verdict.OK, f"{where}, answers at {settings.broker_url}", found)


def _consul(settings: Settings, where: str) -> Check:
    assert settings.consul_url is not None  # noqa: S101
    found = consul_version(settings.consul_url, settings.consul_token)
    return Check("consul", Verdict.OK, f"{where}, answers at {settings.consul_url}", found)


def _clock(settings: Settings) -> Check:
    """The database's clock is the one that counts; ours must not tell another story in the logs."""
    with open_engine(settings, "doctor", pooled=False).connect() as connection:
        before = datetime.now(UTC)
        theirs = connection.execute(text("SELECT clock_timestamp()")).scalar_one()
        apart = abs(theirs - (before + (datetime.now(UTC) - before) / 2))
    told = f"{apart.total_seconds() * 1000:.0f} ms apart from PostgreSQL's"
    if apart > _SKEW:
        return Check("clock", Verdict.WARNING, told, remedy="let NTP set both machines' clocks")
    return Check("clock", Verdict.OK, told)


def _migrations(settings: Settings, embedded: bool) -> Check:
    engine = open_engine(settings, "doctor", pooled=False)
    if embedded and current(engine) is None:
        return Check("migrations", Verdict.OK, f"a new database will be upgraded to {head()}")
    require_current(engine)
    return Check("migrations", Verdict.OK, f"the database is at {head()}", head())


def _ticks(settings: Settings) -> Check:
    engine = open_engine(settings, "doctor", pooled=False)
    if current(engine) is None:
        return Check("ticks", Verdict.OK, "none yet: nothing runs on this database")
    reading = clock(engine)
    if reading.tick_sequence is None:
        return Check("ticks", Verdict.OK, "none yet: nothing runs on this database")
    seconds = reading.age.total_seconds()
    told = f"the last RuntimeTick was taken {seconds:.1f} s ago by {reading.runtime_id}"
    if seconds > 5 * settings.tick_interval_ms / 1000 + 5:
        remedy = "see that a beat and a worker run: `rollcall status`"
        return Check("ticks", Verdict.WARNING, told, remedy=remedy)
    return Check("ticks", Verdict.OK, told)
