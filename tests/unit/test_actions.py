"""Control actions: three transitions, every refusal and its exact words."""

import pytest

from fsm.actions import (
    ActionFSM,
    ActionStateUtils,
    ActionStatus,
    InvalidActionTransitionError,
)
from fsm.library import load_machine
from models.errors import RollcallError

QUEUED, RUNNING = ActionStatus.QUEUED, ActionStatus.RUNNING
SUCCEEDED, FAILED = ActionStatus.SUCCEEDED, ActionStatus.FAILED

VALID = {(QUEUED, RUNNING), (RUNNING, SUCCEEDED), (RUNNING, FAILED)}


@pytest.mark.parametrize("source", ActionStatus)
@pytest.mark.parametrize("target", ActionStatus)
def test_exactly_three_transitions_are_valid(source: ActionStatus, target: ActionStatus) -> None:
    valid = (source, target) in VALID
    assert ActionFSM.is_valid_transition(source, target) is valid
    if valid:
        ActionFSM.guard(source, target)
    else:
        with pytest.raises(InvalidActionTransitionError):
            ActionFSM.guard(source, target)


@pytest.mark.parametrize(
    ("source", "target", "words"),
    [
        (
            QUEUED,
            SUCCEEDED,
            "Invalid state transition: queued -> succeeded. "
            "Valid transitions from 'queued': running",
        ),
        (
            RUNNING,
            QUEUED,
            "Invalid state transition: running -> queued. "
            "Valid transitions from 'running': succeeded, failed",
        ),
        (
            SUCCEEDED,
            RUNNING,
            "Invalid state transition: succeeded -> running. Valid transitions from 'succeeded': ",
        ),
        (
            FAILED,
            RUNNING,
            "Invalid state transition: failed -> running. Valid transitions from 'failed': ",
        ),
    ],
)
def test_the_error_has_its_exact_words_and_shape(
    source: ActionStatus, target: ActionStatus, words: str
) -> None:
    with pytest.raises(InvalidActionTransitionError) as caught:
        ActionFSM.guard(source, target)
    error = caught.value
    assert error.message == words
    assert isinstance(error, RollcallError)
    assert error.body() == {
        "error": "Invalid state transition",
        "details": words,
        "currentStatus": str(source),
        "requestedStatus": str(target),
    }


@pytest.mark.parametrize(
    ("status", "targets"),
    [(QUEUED, [RUNNING]), (RUNNING, [SUCCEEDED, FAILED]), (SUCCEEDED, []), (FAILED, [])],
)
def test_valid_targets(status: ActionStatus, targets: list[ActionStatus]) -> None:
    assert ActionFSM.get_valid_targets(status) == targets
    assert ActionStateUtils.get_next_states(status) == targets


@pytest.mark.parametrize(
    ("status", "start", "complete", "final"),
    [
        (QUEUED, True, False, False),
        (RUNNING, False, True, False),
        (SUCCEEDED, False, False, True),
        (FAILED, False, False, True),
    ],
)
def test_state_questions(status: ActionStatus, start: bool, complete: bool, final: bool) -> None:
    assert ActionFSM.is_terminal(status) is final
    assert ActionStateUtils.can_start(status) is start
    assert ActionStateUtils.can_complete(status) is complete
    assert ActionStateUtils.is_final(status) is final
    assert ActionStateUtils.is_active(status) is not final


@pytest.mark.parametrize(
    ("sequence", "valid"),
    [
        ([], True),
        ([QUEUED], True),
        ([RUNNING], True),
        ([QUEUED, RUNNING], True),
        ([QUEUED, RUNNING, SUCCEEDED], True),
        ([QUEUED, RUNNING, FAILED], True),
        ([RUNNING, FAILED], True),
        ([QUEUED, SUCCEEDED], False),
        ([QUEUED, RUNNING, QUEUED], False),
        ([QUEUED, RUNNING, SUCCEEDED, RUNNING], False),
        ([RUNNING, RUNNING], False),
    ],
)
def test_sequences(sequence: list[ActionStatus], valid: bool) -> None:
    assert ActionFSM.validate_sequence(sequence) is valid


def test_plain_strings_are_statuses() -> None:
    assert ActionFSM.is_valid_transition("queued", "running")
    assert not ActionFSM.is_valid_transition("queued", "paused")
    assert not ActionFSM.is_valid_transition("paused", "running")
    assert ActionFSM.get_valid_targets("paused") == []
    assert not ActionFSM.is_terminal("paused")
    assert not ActionFSM.validate_sequence(["paused"])
    with pytest.raises(InvalidActionTransitionError) as caught:
        ActionFSM.guard("paused", "running")
    assert caught.value.message == (
        "Invalid state transition: paused -> running. Valid transitions from 'paused': "
    )


def test_every_state_of_the_contract_has_a_name() -> None:
    assert {state.name for state in load_machine("action").states} == set(ActionStatus)
