"""The words a contract is made of: its closed sets, and what its actions ask for."""

from dataclasses import dataclass, field
from enum import StrEnum

from fsm.guard import Guard

Pairs = tuple[tuple[str, object], ...]
"""A small frozen mapping in a fixed order."""


class StateType(StrEnum):
    """What a state is for; whether it can be left is `is_terminal`, another question."""

    INITIAL = "initial"
    OPERATIONAL = "operational"
    SNAPSHOT = "snapshot"
    SUCCESS = "success"
    ERROR = "error"
    TERMINAL = "terminal"


class Source(StrEnum):
    """Who may pull a trigger; only External ones are accepted from outside."""

    EXTERNAL = "External"
    INTERNAL = "Internal"
    EFFECT = "Effect"
    ORCHESTRATOR = "Orchestrator"


class Concurrency(StrEnum):
    """How two writers of one entity are kept apart."""

    LOCKED = "locked"
    OPTIMISTIC = "optimistic"


class ConflictResolution(StrEnum):
    """Which transition wins when several could fire."""

    PRIORITY_BASED = "priority_based"


class Level(StrEnum):
    """How loud a log line is."""

    DEBUG = "DEBUG"
    INFO = "INFO"
    WARNING = "WARNING"
    ERROR = "ERROR"
    CRITICAL = "CRITICAL"


@dataclass(frozen=True, slots=True)
class Log:
    """One line to be logged when the transition commits."""

    level: Level
    message: str
    fields: Pairs = ()


@dataclass(frozen=True, slots=True)
class Metric:
    """One thing to be counted when the transition commits."""

    name: str
    value: int | float = 1
    labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class EmitIntent:
    """Ask for I/O: constants, then context fields that must be there, then those that may."""

    name: str
    intent_kind: str
    constants: Pairs = ()
    payload: tuple[tuple[str, str], ...] = ()
    optional_payload: tuple[tuple[str, str], ...] = ()
    when: Guard | None = None
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class WriteLog:
    """Say something once; `fields` are context fields worth showing beside the message."""

    name: str
    level: Level
    message: str
    fields: tuple[str, ...] = ()
    line: int = field(default=0, compare=False)
    log: Log = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "log", Log(self.level, self.message))


@dataclass(frozen=True, slots=True)
class CountMetric:
    """Count something once; with `triggers`, only when one of them caused the transition."""

    name: str
    metric: str
    value: int | float = 1
    triggers: frozenset[str] = frozenset()
    line: int = field(default=0, compare=False)
    count: Metric = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "count", Metric(self.metric, self.value))


@dataclass(frozen=True, slots=True)
class Validate:
    """Check the entered state's data and let the machine go on with what the check says."""

    name: str
    passed: str
    failed: str
    line: int = field(default=0, compare=False)


Action = EmitIntent | WriteLog | CountMetric | Validate
