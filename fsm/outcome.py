"""What a transition decided: the new state and everything that should follow from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from fsm.codes import ErrorCode
from fsm.contract import Transition
from fsm.contract_terms import Log, Metric
from fsm.results import Result

__all__ = ["FollowUp", "Intent", "Log", "Metric", "Outcome", "Reason"]


@dataclass(frozen=True, slots=True)
class Intent:
    """I/O that should happen; its id depends on the cause and its place alone."""

    id: UUID
    kind: str
    payload: Mapping[str, object]
    action: str


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A trigger the machine pulls next by itself, in the same transaction."""

    id: UUID
    trigger: str


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a trigger moved nothing, or why it ended in FATAL_ERROR; a repetition has no code."""

    code: ErrorCode | None
    message: str
    condition: str | None = None
    guard: str | None = None
    seen: object = None
    suggestions: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class Outcome:
    """The whole answer to one trigger; `path` leads from the state before to `state`."""

    result: Result
    state: str
    context: Mapping[str, object]
    path: tuple[str, ...]
    transitions: tuple[Transition, ...] = ()
    intents: tuple[Intent, ...] = ()
    follow_ups: tuple[FollowUp, ...] = ()
    logs: tuple[Log, ...] = ()
    metrics: tuple[Metric, ...] = ()
    unmet: tuple[str, ...] = ()
    reason: Reason | None = None

    @property
    def transition(self) -> Transition | None:
        """The transition the trigger took; an automatic step after it is in `transitions`."""
        return self.transitions[0] if self.transitions else None

    @property
    def changed(self) -> bool:
        """Whether anything has to be stored."""
        return self.result is Result.OK
