"""Every setting, read once from the environment into one frozen object. Nothing else reads it."""

import ipaddress
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self, get_args, get_type_hints
from urllib.parse import urlsplit

from fsm.liveness import LivenessPolicy
from models.errors import ConfigurationError, SettingError
from tasks.secrets import Secret, SecretUrl

TICK_VARIABLE = "ONEX_RUNTIME_TICK_INTERVAL_MS"
TICK_DEFAULT_MS, TICK_MIN_MS, TICK_MAX_MS = 1000, 100, 60_000


class LogFormat(StrEnum):
    JSON = "json"
    CONSOLE = "console"


class ConsulMode(StrEnum):
    """How a node gets into Consul: as a node of its own, or as a service of an agent."""

    CATALOG = "catalog"
    AGENT = "agent"


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Notice:
    """Something the reader of settings mended and the log must say."""

    level: LogLevel
    message: str


def _url(*schemes: str) -> Callable[[str], SecretUrl]:
    def parse(text: str) -> SecretUrl:
        parts = urlsplit(text)
        if parts.scheme not in schemes or not parts.hostname or parts.port == 0:
            raise ValueError
        return SecretUrl(text)

    return parse


def _number(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not low <= int(text) <= high:
            raise ValueError
        return int(text)

    return parse


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", text):
        raise ValueError
    return text


def _basic_auth(text: str) -> Secret:
    user, colon, password = text.partition(":")
    if not (user and colon and password):
        raise ValueError
    return Secret(text)


def _list(text: str) -> frozenset[str]:
    found = frozenset(each.strip() for each in text.split(","))
    if not all(found):
        raise ValueError
    return found


def _switch(text: str) -> bool:
    return {"on": True, "true": True, "1": True, "off": False, "false": False, "0": False}[
        text.strip().lower()
    ]


@dataclass(frozen=True)
class Reader:
    """How one variable's text becomes a value, and what to tell who wrote it wrong."""

    parse: Callable[[str], object]
    takes: str


_URL = "postgresql://user:password@host:5432/name"
Milliseconds = Annotated[int, Reader(_number(100, 600_000), "milliseconds from 100 to 600000")]
Port = Annotated[int, Reader(_number(0, 65_535), "a port from 1 to 65535, or 0 for a free one")]
Folder = Reader(Path, "a folder")
Names = Reader(_list, "names with commas between them")


@dataclass(frozen=True)
class Settings:
    """What an operator may say. A server's URL left out means the embedded one."""

    database_url: Annotated[SecretUrl | None, Reader(_url("postgresql", "postgres"), _URL)] = None
    broker_url: Annotated[
        SecretUrl | None, Reader(_url("redis", "rediss"), "redis://:password@host:6379/0")
    ] = None
    consul_url: Annotated[SecretUrl | None, Reader(_url("http", "https"), "http://host:8500")] = (
        None
    )
    consul_token: Annotated[Secret | None, Reader(Secret, "an ACL token")] = None
    consul_mode: Annotated[ConsulMode, Reader(ConsulMode, ", ".join(ConsulMode))] = (
        ConsulMode.CATALOG
    )
    consul_datacenter: Annotated[str | None, Reader(_name, "a datacenter's name")] = None
    consul_ca_file: Annotated[Path | None, Reader(Path, "a file of certificates")] = None
    consul_timeout_ms: Milliseconds = 3_000
    consul_node_prefix: Annotated[str, Reader(_name, "letters, digits, dots and dashes")] = (
        "rollcall-"
    )
    flower_basic_auth: Annotated[Secret | None, Reader(_basic_auth, "user:password")] = None

    home: Annotated[Path, Folder] = Path(".rollcall")
    cache: Annotated[Path | None, Folder] = None
    consul_bin: Annotated[Path | None, Reader(Path, "the path of a consul binary")] = None
    contracts_dir: Annotated[Path | None, Folder] = None
    allowed_environments: Annotated[frozenset[str] | None, Names] = None
    denied_nodes: Annotated[frozenset[str] | None, Names] = None
    register_on_request: Annotated[bool, Reader(_switch, "on or off")] = False
    log_retention_months: Annotated[int, Reader(_number(0, 1200), "months, or 0 to keep all")] = 0
    runtime_name: Annotated[str | None, Reader(_name, "letters, digits, dots and dashes")] = None
    workers: Annotated[int, Reader(_number(1, 64), "a number from 1 to 64")] = 2
    worker_concurrency: Annotated[int, Reader(_number(1, 256), "a number from 1 to 256")] = 2
    stall_seconds: Annotated[int, Reader(_number(5, 3600), "seconds from 5 to 3600")] = 60

    ack_seconds: Annotated[int, Reader(_number(1, 3600), "seconds from 1 to 3600")] = 30
    first_heartbeat_seconds: Annotated[int, Reader(_number(1, 3600), "seconds from 1 to 3600")] = 60
    heartbeat_interval_seconds: Annotated[
        int, Reader(_number(1, 3600), "seconds from 1 to 3600")
    ] = 30
    liveness_seconds: Annotated[int, Reader(_number(2, 86_400), "seconds from 2 to 86400")] = 90
    brake_share_percent: Annotated[int, Reader(_number(0, 100), "percent, or 0 for no brake")] = 55
    brake_min_nodes: Annotated[int, Reader(_number(1, 1_000_000), "a number of nodes")] = 10
    gc_interval_seconds: Annotated[int, Reader(_number(10, 86_400), "seconds from 10 to 86400")] = (
        300
    )
    gc_orphan_age_seconds: Annotated[
        int, Reader(_number(60, 604_800), "seconds from 60 to 604800")
    ] = 3600

    postgres_port: Port = 0
    redis_port: Port = 0
    consul_port: Port = 0
    flower_port: Port = 0
    flower_address: Annotated[str, Reader(_name, "an address to listen on")] = "127.0.0.1"

    log_format: Annotated[LogFormat, Reader(LogFormat, "json or console")] = LogFormat.CONSOLE
    log_level: Annotated[LogLevel, Reader(LogLevel, ", ".join(LogLevel))] = LogLevel.INFO

    statement_timeout_ms: Milliseconds = 30_000
    lock_timeout_ms: Milliseconds = 10_000
    idle_transaction_timeout_ms: Milliseconds = 15_000

    tick_interval_ms: int = TICK_DEFAULT_MS
    notices: tuple[Notice, ...] = ()

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Self:
        """Read them all; every wrong one is told, not only the first."""
        environ = os.environ if environ is None else environ
        found: dict[str, object] = {}
        wrong: list[SettingError] = []
        for variable in _variables():
            try:
                if text := variable.text(environ):
                    found[variable.field] = variable.parsed(text)
            except SettingError as error:
                wrong.append(error)
        if wrong:
            raise _together(wrong)
        interval, notices = tick_interval(environ.get(TICK_VARIABLE))
        return cls(**found, tick_interval_ms=interval, notices=notices)  # type: ignore[arg-type]

    @property
    def secrets(self) -> tuple[str, ...]:
        """Every value that no output may show."""
        shown: list[str] = []
        for item in fields(self):
            value = getattr(self, item.name)
            if isinstance(value, SecretUrl):
                shown.extend(value.credentials)
            elif isinstance(value, Secret):
                shown.extend((value.reveal(), value.reveal().rpartition(":")[2]))
        return tuple(dict.fromkeys(shown))

    @property
    def liveness(self) -> LivenessPolicy:
        return LivenessPolicy(
            timedelta(seconds=self.heartbeat_interval_seconds),
            timedelta(seconds=self.liveness_seconds),
            self.brake_share_percent,
            self.brake_min_nodes,
        )

    @property
    def flower_is_local(self) -> bool:
        """Whether only this machine can reach Flower."""
        if self.flower_address == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.flower_address).is_loopback
        except ValueError:
            return False

    def environment(self) -> dict[str, str]:
        """The variables that make a child process read these very settings."""
        said: dict[str, str] = {TICK_VARIABLE: str(self.tick_interval_ms)}
        for variable in _variables():
            value = getattr(self, variable.field)
            if value is not None:
                said[variable.name] = _said(value)
        return said

    def at(self, **changes: object) -> "Settings":
        """The same settings with some of them said anew."""
        return replace(self, **changes)  # type: ignore[arg-type]


def _said(value: object) -> str:
    """A value as the variable's text that is read as the same value."""
    if isinstance(value, Secret):
        return value.reveal()
    return ",".join(sorted(value)) if isinstance(value, frozenset) else str(value)


def tick_interval(text: str | None) -> tuple[int, tuple[Notice, ...]]:
    """The interval of RuntimeTick: clamped with a warning, or the default with an error."""
    if not text:
        return TICK_DEFAULT_MS, ()
    try:
        asked = int(text)
    except ValueError:
        told = f"{TICK_VARIABLE} is {text[:32]!r}, not a number: using {TICK_DEFAULT_MS}"
        return TICK_DEFAULT_MS, (Notice(LogLevel.ERROR, told),)
    clamped = min(max(asked, TICK_MIN_MS), TICK_MAX_MS)
    if clamped == asked:
        return asked, ()
    told = f"{TICK_VARIABLE} is {asked}, outside {TICK_MIN_MS}..{TICK_MAX_MS}: using {clamped}"
    return clamped, (Notice(LogLevel.WARNING, told),)


def unknown_variables(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Variables with our prefix that no setting reads: most likely misspelt."""
    known = {name for variable in _variables() for name in (variable.name, variable.file)}
    return tuple(sorted(x for x in environ if x.startswith("ROLLCALL_") and x not in known))


@dataclass(frozen=True)
class _Variable:
    field: str
    reader: Reader
    secret: bool

    @property
    def name(self) -> str:
        return f"ROLLCALL_{self.field.upper()}"

    @property
    def file(self) -> str | None:
        """A secret may also live in the file that this variable names."""
        return f"{self.name}_FILE" if self.secret else None

    def text(self, environ: Mapping[str, str]) -> str | None:
        path = environ.get(self.file) if self.file else None
        if not path:
            return environ.get(self.name)
        try:
            return Path(path).read_text().strip()
        except OSError as error:
            got = f"{path!r}, which cannot be read ({error.strerror})"
            raise SettingError(f"{self.name}_FILE", got, "a readable file") from None

    def parsed(self, text: str) -> object:
        try:
            return self.reader.parse(text)
        except (ValueError, KeyError):
            got = "set, but not usable" if self.secret else repr(text[:64])
            raise SettingError(self.name, got, self.reader.takes) from None


def _variables() -> tuple[_Variable, ...]:
    hints = get_type_hints(Settings, include_extras=True)
    return tuple(
        _Variable(item.name, kind.__metadata__[0], Secret in _classes(kind))
        for item in fields(Settings)
        if hasattr(kind := hints[item.name], "__metadata__")
    )


def _classes(kind: object) -> set[type]:
    """The classes a hint allows, with what they derive from."""
    plain = get_args(kind)[0]
    return {base for option in (get_args(plain) or (plain,)) for base in option.__mro__}


def _together(wrong: list[SettingError]) -> ConfigurationError:
    if len(wrong) == 1:
        return wrong[0]
    said = "; ".join(f"{error.message}, {error.remedy}" for error in wrong)
    return ConfigurationError(said, "correct these variables")
