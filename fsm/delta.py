"""`delta`: one trigger on one state, as a pure and total function of what it is given."""

from collections.abc import Mapping
from enum import Enum
from hashlib import sha1
from typing import assert_never
from uuid import UUID

from fsm.codes import ErrorCode
from fsm.contract import (
    CONTINUE,
    FATAL_ERROR,
    Contract,
    Level,
    State,
    StateType,
    Transition,
)
from fsm.hop import DataError, Draft, PayloadError, act, hop
from fsm.outcome import FollowUp, Intent, Log, Metric, Outcome, Reason
from fsm.refusals import blocked, unmet_condition, without_candidates
from fsm.results import Result

NO_CAUSE = UUID(int=0)
NO_DATA: Mapping[str, object] = {}
INTERNAL_ERROR_METRIC = "registration_internal_error"


class Steps(Enum):
    """Whether CONTINUE is walked at once, or handed back so that its checkpoint can be observed."""

    SINGLE = "single"
    TWO = "two"


def delta(
    contract: Contract,
    state: str,
    trigger: str,
    context: Mapping[str, object],
    *,
    data: Mapping[str, object] = NO_DATA,
    cause: UUID = NO_CAUSE,
    steps: Steps = Steps.SINGLE,
    last_trigger: str | None = None,
    first_ordinal: int = 0,
) -> Outcome:
    """What the trigger does to an entity in that state with that context.

    `data` is what the trigger's message brings; it enters the context only if the trigger moves
    the machine. Ids are `uuid5(cause, machine:reducer:ordinal)`, from `first_ordinal` on.
    `last_trigger`, where the caller knows it, is the proof that a repetition was already applied.
    """
    candidates = contract.candidates(state, trigger)
    if not candidates:
        return without_candidates(contract, state, trigger, context, last_trigger)
    offered = _offered(contract, context, data)
    refusals: list[Reason] = []
    for transition in candidates:
        reason = unmet_condition(contract, transition, offered)
        if reason is None:
            break
        refusals.append(reason)
    else:
        return blocked(contract, state, trigger, context, refusals[0], offered)

    draft = Draft(offered, [state])
    try:
        hop(contract, draft, transition)
    except DataError as error:
        if trigger != CONTINUE:
            return blocked(contract, state, trigger, context, error.reason, offered)
        failure = _fail(contract, draft, error, ErrorCode.INTERNAL_TRANSITION_ERROR)
    except Exception as error:  # a bug or a broken context must not lose the event
        failure = _fail(contract, draft, error, _code_of(error, trigger))
    else:
        failure = _continue(contract, draft, steps)
    if failure is not None:
        return blocked(contract, state, trigger, context, failure, offered)
    return _outcome(contract, draft, cause, first_ordinal)


def _offered(
    contract: Contract, context: Mapping[str, object], data: Mapping[str, object]
) -> dict[str, object]:
    """What the guards see: the message's data over the context, but never over the counter."""
    counter = contract.retry_counter
    if counter is None or counter.field not in data:
        return {**context, **data}
    return {**context, **{key: value for key, value in data.items() if key != counter.field}}


def _continue(contract: Contract, draft: Draft, steps: Steps) -> Reason | None:
    """Go on through checkpoints; a CONTINUE that fails is fatal: nobody could send it again."""
    for _ in contract.states:
        state = draft.path[-1]
        entered = contract.state(state)
        if entered is None or entered.type is not StateType.SNAPSHOT:
            return None
        for transition in contract.candidates(state, CONTINUE):
            if unmet_condition(contract, transition, draft.context) is None:
                break
        else:
            return None
        match steps:
            case Steps.TWO:
                draft.follow_ups.append(CONTINUE)
                return None
            case Steps.SINGLE:
                try:
                    hop(contract, draft, transition)
                except Exception as error:  # see `delta`
                    return _fail(contract, draft, error, ErrorCode.INTERNAL_TRANSITION_ERROR)
            case _:
                assert_never(steps)
    return None


def _fail(contract: Contract, draft: Draft, error: Exception, code: ErrorCode) -> Reason | None:
    """Turn an exception into FATAL_ERROR; a machine without one gets the reason back instead."""
    state = draft.path[-1]
    kind = type(error).__name__.lstrip("_")
    detail = str(error) if isinstance(error, PayloadError | DataError) else kind
    reason = Reason(code, f"{contract.name} failed in {state}: {detail}")
    open_exits = [
        each
        for each in contract.candidates(state, FATAL_ERROR)
        if unmet_condition(contract, each, draft.context) is None
    ]
    target = contract.state(open_exits[0].to_state) if open_exits else None
    if target is None:
        return reason
    transition = open_exits[0]
    draft.follow_ups.clear()
    draft.logs.append(Log(Level.CRITICAL, reason.message))
    phase = "continue_processing" if code is ErrorCode.INTERNAL_TRANSITION_ERROR else "intents"
    draft.metrics.append(
        Metric(INTERNAL_ERROR_METRIC, labels=(("phase", phase), ("error_type", kind)))
    )
    _enter_failure(contract, draft, transition, target)
    draft.reason = reason
    return None


def _enter_failure(contract: Contract, draft: Draft, transition: Transition, target: State) -> None:
    """Whatever can be done on the way is done; nothing may stop the machine from failing."""
    source = contract.state(draft.path[-1])
    actions = (*(source.exit if source else ()), *transition.actions, *target.entry)
    counted_from = len(draft.metrics)
    for action in actions:
        try:
            act(draft, draft.context, action, FATAL_ERROR, counted_from)
        except Exception as error:  # see `delta`
            what = f"{action.name} left out: {type(error).__name__.lstrip('_')}"
            draft.logs.append(Log(Level.ERROR, what))
    draft.path.append(target.name)
    draft.transitions.append(transition)


def _code_of(error: Exception, trigger: str) -> ErrorCode:
    if trigger == CONTINUE:
        return ErrorCode.INTERNAL_TRANSITION_ERROR
    if isinstance(error, PayloadError):
        return ErrorCode.INTENT_PAYLOAD_ERROR
    return ErrorCode.INTENT_EMISSION_FAILED


def _outcome(contract: Contract, draft: Draft, cause: UUID, first: int) -> Outcome:
    place = cause.bytes + f"{contract.name}:reducer:".encode()
    intents = [
        Intent(_uuid5(place, ordinal), kind, payload, action)
        for ordinal, (kind, payload, action) in enumerate(draft.intents, first)
    ]
    follow_ups = [
        FollowUp(_uuid5(place, ordinal), trigger)
        for ordinal, trigger in enumerate(draft.follow_ups, first + len(intents))
    ]
    return Outcome(
        result=Result.OK,
        state=draft.path[-1],
        context=draft.context,
        path=tuple(draft.path),
        transitions=tuple(draft.transitions),
        intents=tuple(intents),
        follow_ups=tuple(follow_ups),
        logs=tuple(draft.logs),
        metrics=tuple(draft.metrics),
        unmet=draft.unmet,
        reason=draft.reason,
    )


def _uuid5(place: bytes, ordinal: int) -> UUID:
    """What `uuid.uuid5` makes of the same bytes, in half its time."""
    digest = sha1(b"%s%d" % (place, ordinal), usedforsecurity=False).digest()
    return UUID(bytes=digest[:16], version=5)
