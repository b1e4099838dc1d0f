"""A contract: all a machine may do, frozen, with the lookups of a transition built once."""

import copy
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from fsm.canonical import canonical_json
from fsm.contract_terms import (
    Action,
    Concurrency,
    ConflictResolution,
    CountMetric,
    EmitIntent,
    Level,
    Pairs,
    Source,
    StateType,
    Validate,
    WriteLog,
)
from fsm.guard import Guard
from fsm.validation import Rule

__all__ = [
    "CONTINUE",
    "FATAL_ERROR",
    "WILDCARD",
    "Action",
    "AutoRetry",
    "Concurrency",
    "Condition",
    "ConflictResolution",
    "Contract",
    "CountMetric",
    "EmitIntent",
    "Level",
    "Pairs",
    "RetryCounter",
    "Source",
    "State",
    "StateType",
    "Timeout",
    "Transition",
    "Validate",
    "WriteLog",
]

WILDCARD = "*"
CONTINUE = "CONTINUE"
FATAL_ERROR = "FATAL_ERROR"


@dataclass(frozen=True, slots=True)
class Condition:
    """A named guard; one that is not required is evaluated and reported, and blocks nothing."""

    name: str
    guard: Guard
    required: bool = True
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Timeout:
    """How long a state may last, what happens then, and what that says about the context."""

    name: str
    after_ms: int
    trigger: str
    data: Pairs = ()
    line: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class State:
    """One state; with `validate`, data it refuses becomes a trigger instead of a refusal."""

    name: str
    type: StateType
    description: str = ""
    is_terminal: bool = False
    is_recoverable: bool = True
    timeout: Timeout | None = None
    entry_actions: tuple[str, ...] = ()
    exit_actions: tuple[str, ...] = ()
    entry: tuple[Action, ...] = ()
    exit: tuple[Action, ...] = ()
    required_data: tuple[str, ...] = ()
    optional_data: tuple[str, ...] = ()
    validation_rules: tuple[Rule, ...] = ()
    line: int = field(default=0, compare=False)
    validate: Validate | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checks = (action for action in self.entry if isinstance(action, Validate))
        object.__setattr__(self, "validate", next(checks, None))


@dataclass(frozen=True, slots=True)
class Transition:
    """One row of the transition table."""

    name: str
    from_state: str
    to_state: str
    trigger: str
    priority: int = 10
    conditions: tuple[Condition, ...] = ()
    actions: tuple[Action, ...] = ()
    description: str = ""
    is_atomic: bool = True
    line: int = field(default=0, compare=False)
    required: tuple[Condition, ...] = field(init=False, repr=False, compare=False)
    optional: tuple[Condition, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        required = tuple(each for each in self.conditions if each.required)
        optional = tuple(each for each in self.conditions if not each.required)
        object.__setattr__(self, "required", required)
        object.__setattr__(self, "optional", optional)

    @property
    def is_wildcard(self) -> bool:
        """Whether it leaves every state that is not terminal."""
        return self.from_state == WILDCARD

    @property
    def guards(self) -> tuple[Guard, ...]:
        """The guards that must hold."""
        return tuple(each.guard for each in self.required)


@dataclass(frozen=True, slots=True)
class RetryCounter:
    """The context field that counts retries, and what moves it."""

    field: str
    increment_on: tuple[str, ...]
    reset_on: tuple[str, ...]
    max_value: int


@dataclass(frozen=True, slots=True)
class AutoRetry:
    """A state the runtime leaves by itself: `trigger` after a backoff, `exhausted` at the end."""

    state: str
    trigger: str
    exhausted: str | None
    base_ms: int
    max_ms: int


@dataclass(frozen=True, eq=False)
class Contract:
    """A whole machine. What means the same is equal, wherever and however it was written."""

    name: str
    version: str
    initial_state: str
    states: tuple[State, ...]
    transitions: tuple[Transition, ...]
    subcontract_version: str = "1.0.0"
    description: str = ""
    success_states: tuple[str, ...] = ()
    terminal_states: tuple[str, ...] = ()
    error_states: tuple[str, ...] = ()
    retry_counter: RetryCounter | None = None
    auto_retry: tuple[AutoRetry, ...] = ()
    strict: bool = False
    conflict_resolution: ConflictResolution = ConflictResolution.PRIORITY_BASED
    concurrency: Concurrency = Concurrency.LOCKED
    messages: tuple[tuple[str, str], ...] = ()
    trigger_sources: tuple[tuple[str, tuple[Source, ...]], ...] = ()
    idempotent_triggers: tuple[str, ...] = ()
    initial_context: Pairs = ()
    ttl_ms: int | None = None
    source: str = field(default="", compare=False)
    lines: tuple[tuple[str, int], ...] = field(default=(), repr=False, compare=False)
    content_hash: str = field(init=False, compare=False)
    triggers: tuple[str, ...] = field(init=False, compare=False)
    _states: Mapping[str, State] = field(init=False, repr=False, compare=False)
    _candidates: Mapping[tuple[str, str], tuple[Transition, ...]] = field(
        init=False, repr=False, compare=False
    )
    _exits: Mapping[str, tuple[Transition, ...]] = field(init=False, repr=False, compare=False)
    _sources: Mapping[str, tuple[Source, ...]] = field(init=False, repr=False, compare=False)
    _targets: Mapping[str, frozenset[str]] = field(init=False, repr=False, compare=False)
    _messages: Mapping[str, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        states = {state.name: state for state in self.states}
        triggers = tuple(dict.fromkeys(each.trigger for each in self.transitions))
        targets = {
            trigger: frozenset(t.to_state for t in self.transitions if t.trigger == trigger)
            for trigger in triggers
        }
        candidates = _candidates(self.states, self.transitions)
        exits = {
            name: tuple(
                each for trigger in triggers for each in candidates.get((name, trigger), ())
            )
            for name in states
        }
        derived: dict[str, object] = {
            "triggers": triggers,
            "content_hash": hashlib.sha256(canonical_json(self)).hexdigest(),
            "_states": MappingProxyType(states),
            "_candidates": MappingProxyType(candidates),
            "_exits": MappingProxyType(exits),
            "_sources": MappingProxyType(
                {**_own_triggers(self.states), **dict(self.trigger_sources)}
            ),
            "_targets": MappingProxyType(targets),
            "_messages": MappingProxyType(dict(self.messages)),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Contract) and self.content_hash == other.content_hash

    def __hash__(self) -> int:
        return hash(self.content_hash)

    def state(self, name: str) -> State | None:
        """The state of that name, if the machine has it."""
        return self._states.get(name)

    def candidates(self, state: str, trigger: str) -> tuple[Transition, ...]:
        """What the trigger could do in the state: highest priority first, wildcards last."""
        return self._candidates.get((state, trigger), ())

    def exits(self, state: str) -> tuple[Transition, ...]:
        """Every transition that leaves the state, in the order they are tried per trigger."""
        return self._exits.get(state, ())

    def targets(self, trigger: str) -> frozenset[str]:
        """The states the trigger leads to; empty if the machine does not know the trigger."""
        return self._targets.get(trigger, frozenset())

    def sources(self, trigger: str) -> tuple[Source, ...]:
        """Who may pull it; where the contract is silent, the outside, but for the machine's own."""
        return self._sources.get(trigger, (Source.EXTERNAL,))

    def accepts_from_outside(self, trigger: str) -> bool:
        """Whether a request from outside may pull the trigger."""
        return bool(self.targets(trigger)) and Source.EXTERNAL in self.sources(trigger)

    def trigger_of(self, message_type: str) -> str | None:
        """The trigger a message of that type pulls, if any."""
        return self._messages.get(message_type)

    def new_context(self) -> dict[str, object]:
        """The context a new instance starts with, its retry counter at zero."""
        counter = {self.retry_counter.field: 0} if self.retry_counter else {}
        return {**counter, **copy.deepcopy(dict(self.initial_context))}


def _own_triggers(states: Iterable[State]) -> dict[str, tuple[Source, ...]]:
    """The triggers a machine pulls by itself; nobody else may, unless the contract lets them."""
    own = {CONTINUE, FATAL_ERROR}
    for state in states:
        if state.validate is not None:
            own |= {state.validate.passed, state.validate.failed}
    return dict.fromkeys(own, (Source.INTERNAL,))


def _candidates(
    states: Iterable[State], transitions: tuple[Transition, ...]
) -> dict[tuple[str, str], tuple[Transition, ...]]:
    ordered = sorted(transitions, key=lambda each: (each.is_wildcard, -each.priority))
    leaving: defaultdict[str, list[Transition]] = defaultdict(list)
    for each in ordered:
        leaving[each.from_state].append(each)
    table: defaultdict[tuple[str, str], list[Transition]] = defaultdict(list)
    for state in states:
        anywhere = [] if state.is_terminal else leaving[WILDCARD]
        for each in (*leaving[state.name], *anywhere):
            table[state.name, each.trigger].append(each)
    return {key: tuple(found) for key, found in table.items()}
