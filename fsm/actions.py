"""Control actions: which status may follow which, as the action contract says."""

from collections.abc import Sequence
from enum import StrEnum
from functools import cache
from itertools import pairwise

from fsm.contract import Contract
from fsm.library import Machine, load_machine
from models.errors import RollcallError


class ActionStatus(StrEnum):
    """Where a control action stands."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class InvalidActionTransitionError(RollcallError):
    """An action was asked to take a status that cannot follow the one it has."""

    def __init__(self, current: str, requested: str, valid: Sequence[str]) -> None:
        super().__init__(
            f"Invalid state transition: {current} -> {requested}. "
            f"Valid transitions from '{current}': {', '.join(valid)}",
            "report one of the valid statuses" if valid else "request a new action",
        )
        self.current = current
        self.requested = requested

    def body(self) -> dict[str, str]:
        """What a caller over HTTP is told."""
        return {
            "error": "Invalid state transition",
            "details": self.message,
            "currentStatus": self.current,
            "requestedStatus": self.requested,
        }


class ActionFSM:
    """The questions to ask before a status is written; a status nobody knows leads nowhere."""

    @staticmethod
    def guard(current: str, requested: str) -> None:
        """Raise unless `requested` may follow `current`."""
        if not ActionFSM.is_valid_transition(current, requested):
            targets = ActionFSM.get_valid_targets(current)
            raise InvalidActionTransitionError(str(current), str(requested), targets)

    @staticmethod
    def is_valid_transition(current: str, requested: str) -> bool:
        """Whether `requested` may follow `current`."""
        return requested in ActionFSM.get_valid_targets(current)

    @staticmethod
    def get_valid_targets(current: str) -> list[ActionStatus]:
        """What may follow, in the contract's order."""
        exits = _contract().exits(current)
        return list(dict.fromkeys(ActionStatus(each.to_state) for each in exits))

    @staticmethod
    def is_terminal(status: str) -> bool:
        """Whether nothing follows any more."""
        state = _contract().state(status)
        return state is not None and state.is_terminal

    @staticmethod
    def validate_sequence(statuses: Sequence[str]) -> bool:
        """Whether an action may have gone through these statuses, one after the other."""
        known = all(_contract().state(status) is not None for status in statuses)
        return known and all(ActionFSM.is_valid_transition(*step) for step in pairwise(statuses))


class ActionStateUtils:
    """The same questions in the words of whoever shows or schedules an action."""

    @staticmethod
    def can_start(status: str) -> bool:
        """Whether an agent may begin."""
        return ActionFSM.is_valid_transition(status, ActionStatus.RUNNING)

    @staticmethod
    def can_complete(status: str) -> bool:
        """Whether the next report may end it."""
        return any(ActionFSM.is_terminal(each) for each in ActionFSM.get_valid_targets(status))

    @staticmethod
    def is_final(status: str) -> bool:
        """Whether it is over."""
        return ActionFSM.is_terminal(status)

    @staticmethod
    def is_active(status: str) -> bool:
        """Whether it is not over yet."""
        return not ActionFSM.is_terminal(status)

    @staticmethod
    def get_next_states(status: str) -> list[ActionStatus]:
        """What may follow."""
        return ActionFSM.get_valid_targets(status)


@cache
def _contract() -> Contract:
    """Frozen, so it is read once a process."""
    return load_machine(Machine.ACTION)
