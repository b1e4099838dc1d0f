"""Manifests under review: what an event does, what it needs, and whether it was done already."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import assert_never

from fsm.contract import Condition, Contract
from fsm.delta import delta
from fsm.guard import GuardError
from fsm.library import Machine, load_machine
from fsm.results import Result

_UNPROVEN = ""  # `already_applied` has looked: to `delta`, no repetition is proven any more


class ManifestState(StrEnum):
    """How far a manifest has come."""

    DRAFT = "DRAFT"
    REVIEWED = "REVIEWED"
    APPROVED = "APPROVED"
    REGISTERED = "REGISTERED"
    REJECTED = "REJECTED"


class ManifestEvent(StrEnum):
    """What people do to a manifest."""

    SUBMIT_FOR_REVIEW = "submit_for_review"
    APPROVE = "approve"
    REJECT = "reject"
    REGISTER = "register"
    REVERT_TO_DRAFT = "revert_to_draft"


@dataclass(frozen=True, slots=True)
class LastTransition:
    """The step that brought a manifest where it is."""

    event: ManifestEvent
    from_state: ManifestState
    to_state: ManifestState


@dataclass(frozen=True, slots=True)
class ManifestRequest:
    """An event and what came with it; `conflicting_urn` is the URN that another manifest holds."""

    event: ManifestEvent
    manifest: Mapping[str, object] | None = None
    reviewer: str | None = None
    notes: str | None = None
    reason: str | None = None
    conflicting_urn: str | None = None

    def context(self) -> dict[str, object]:
        """What the contract's guards look at."""
        urn = self.manifest.get("urn") if self.manifest is not None else None
        return {
            "manifest": self.manifest,
            "urn": urn if isinstance(urn, str) else None,
            "reviewer": self.reviewer,
            "notes": self.notes,
            "reason": self.reason,
            "conflicting_urn": self.conflicting_urn,
        }


@dataclass(frozen=True, slots=True)
class ManifestDecision:
    """What becomes of a request; `changed` steps the version, `idempotent` marks the audit."""

    result: Result
    state: ManifestState
    changed: bool
    idempotent: bool = False
    reason: str = ""
    unmet: tuple[str, ...] = ()


def can_transition(state: ManifestState, event: ManifestEvent) -> bool:
    """Whether the state takes the event at all, before anyone asks what it needs."""
    return bool(_contract().candidates(state, event))


def already_applied(
    state: ManifestState, event: ManifestEvent, last: LastTransition | None
) -> bool:
    """Whether this very event brought the manifest here. Ask before comparing versions."""
    return (
        last is not None
        and event in _contract().idempotent_triggers
        and (last.event, last.to_state) == (event, state)
    )


def decide(
    state: ManifestState, request: ManifestRequest, last: LastTransition | None = None
) -> ManifestDecision:
    """What the request does to a manifest in that state; nothing is asked for twice."""
    event = request.event
    if already_applied(state, event, last):
        reason = f"Event '{event}' was already applied"
        return ManifestDecision(Result.ALREADY_APPLIED, state, False, True, reason)
    outcome = delta(_contract(), state, event, request.context(), last_trigger=_UNPROVEN)
    arrived = ManifestState(outcome.state)
    match outcome.result:
        case Result.OK:
            return ManifestDecision(outcome.result, arrived, True)
        case Result.GUARD_BLOCKED:
            unmet = _unmet(state, request)
            needs = ", ".join(str(each.guard) for each in unmet)
            fields = tuple(each.guard.field for each in unmet)
            reason = f"Event '{event}' in state '{state}' needs: {needs}"
            return ManifestDecision(outcome.result, arrived, False, reason=reason, unmet=fields)
        case (
            Result.DUPLICATE
            | Result.ALREADY_APPLIED
            | Result.UNKNOWN
            | Result.INVALID_STATE
            | Result.TERMINAL
        ):
            reason = f"Event '{event}' not allowed in state '{state}'"
            return ManifestDecision(outcome.result, arrived, False, reason=reason)
        case _:
            assert_never(outcome.result)


def _unmet(state: ManifestState, request: ManifestRequest) -> list[Condition]:
    """Everything the event lacks, so that nobody has to ask twice."""
    context = request.context()
    return [
        each
        for transition in _contract().candidates(state, request.event)
        for each in transition.conditions
        if each.required and not _holds(each, context)
    ]


def _holds(condition: Condition, context: Mapping[str, object]) -> bool:
    try:
        return condition.guard.evaluate(context)
    except GuardError:
        return False


@cache
def _contract() -> Contract:
    """Frozen, so it is read once a process."""
    return load_machine(Machine.MANIFEST)
