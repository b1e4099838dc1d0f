"""What a handler is given and may return, by its role; only the runtime does anything with it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Protocol
from uuid import UUID

from models.envelope import Envelope
from models.errors import ShapeError
from models.projection import Projection
from models.topics import Category


class Role(StrEnum):
    """What a handler is for."""

    ORCHESTRATOR = "orchestrator"
    REDUCER = "reducer"
    EFFECT = "effect"


class Measure(Protocol):
    """One thing to be counted once the transaction commits."""

    @property
    def name(self) -> str: ...
    @property
    def value(self) -> int | float: ...
    @property
    def labels(self) -> tuple[tuple[str, str], ...]: ...


class Line(Protocol):
    """One line to be logged once the transaction commits."""

    @property
    def level(self) -> str: ...
    @property
    def message(self) -> str: ...
    @property
    def fields(self) -> tuple[tuple[str, object], ...]: ...


@dataclass(frozen=True, slots=True)
class IntentRequest:
    """I/O that should happen; its id depends on its cause alone."""

    intent_id: UUID
    kind: str
    payload: Mapping[str, object]


Message = Projection | IntentRequest | Envelope


@dataclass(frozen=True, slots=True)
class HandlerOutput:
    """All a handler can do: say it. Each tuple keeps the handler's order."""

    events: tuple[Envelope, ...] = ()
    intents: tuple[IntentRequest, ...] = ()
    projections: tuple[Projection, ...] = ()
    metrics: tuple[Measure, ...] = ()
    logs: tuple[Line, ...] = ()

    def in_order(self) -> Iterator[Message]:
        """Projections, then intents, then events: no intent is seen before its state is."""
        yield from self.projections
        yield from self.intents
        yield from self.events


@dataclass(frozen=True, slots=True)
class OrchestratorContext:
    """What a decision rests on: the time, and where the entity's machines stand."""

    now: datetime
    projections: Mapping[str, Projection]


@dataclass(frozen=True, slots=True)
class ReducerContext:
    """What a fold rests on: where the entity's machines stand, and no time at all."""

    projections: Mapping[str, Projection]


@dataclass(frozen=True, slots=True)
class EffectContext:
    """What an effect may know: the time, and how often the intent has been tried with this."""

    now: datetime
    attempt: int = 1


Context = OrchestratorContext | ReducerContext | EffectContext

CONTEXTS: Mapping[Role, type[Context]] = MappingProxyType(
    {
        Role.ORCHESTRATOR: OrchestratorContext,
        Role.REDUCER: ReducerContext,
        Role.EFFECT: EffectContext,
    }
)
CONSUMES: Mapping[Role, frozenset[Category]] = MappingProxyType(
    {
        Role.ORCHESTRATOR: frozenset({Category.EVENTS, Category.COMMANDS}),
        Role.REDUCER: frozenset({Category.EVENTS}),
        Role.EFFECT: frozenset({Category.INTENTS}),
    }
)
RETURNS: Mapping[Role, frozenset[str]] = MappingProxyType(
    {
        Role.ORCHESTRATOR: frozenset({"events"}),
        Role.REDUCER: frozenset({"projections", "intents"}),
        Role.EFFECT: frozenset({"events"}),
    }
)
_ALWAYS = frozenset({"metrics", "logs"})
_PARTS = tuple(each.name for each in fields(HandlerOutput))
_KINDS: Mapping[str, type] = MappingProxyType(
    {"events": Envelope, "intents": IntentRequest, "projections": Projection}
)
_FORBIDDEN: Mapping[Role, tuple[str, ...]] = MappingProxyType(
    {role: tuple(part for part in _KINDS if part not in RETURNS[role]) for role in Role}
)


def check_context(role: Role, context: object) -> None:
    """Refuse a context of another role: a reducer is never handed a clock."""
    if type(context) is not CONTEXTS[role]:
        raise ShapeError(
            f"{_an(role)} was given {_a(context)}", f"it takes {CONTEXTS[role].__name__}"
        )


def check_output(role: Role, output: object) -> None:
    """Refuse what the role may not return, whatever the handler's annotations say."""
    if type(output) is not HandlerOutput:
        raise ShapeError(f"{_an(role)} returned {_a(output)}", "return a HandlerOutput")
    for part in _FORBIDDEN[role]:
        if getattr(output, part):
            allowed = " and ".join(sorted(RETURNS[role]))
            raise ShapeError(f"{_an(role)} returned {part}", f"it may return {allowed} only")
    for part in _PARTS:
        _check_part(role, part, getattr(output, part))


def _check_part(role: Role, part: str, values: object) -> None:
    if type(values) is not tuple:
        raise ShapeError(f"{_an(role)}'s {part} is {_a(values)}", "return a tuple")
    if part in _ALWAYS:
        return
    kind = _KINDS[part]
    for at, value in enumerate(values):
        if not isinstance(value, kind):
            raise ShapeError(
                f"{_an(role)}'s {part}.{at} is {_a(value)}", f"return {kind.__name__}s there"
            )
        if isinstance(value, Envelope) and f".{Category.EVENTS}." not in value.message_type:
            raise ShapeError(
                f"{_an(role)}'s {part}.{at} is {value.message_type}", "return events there"
            )


def _an(role: Role) -> str:
    return f"{'a' if role is Role.REDUCER else 'an'} {role.value}"


def _a(value: object) -> str:
    return f"a value of type {type(value).__name__}"
