"""Why a trigger moves nothing, in a code and in words a person can act on."""

from collections.abc import Iterable, Mapping

from fsm.codes import ErrorCode
from fsm.contract import Condition, Contract, Level, State, Transition
from fsm.guard import GuardError
from fsm.outcome import Log, Outcome, Reason
from fsm.results import Result
from fsm.validation import satisfied

_SHOWN = 200
_NUMBERS = (bool, int, float)
_LEVELS: Mapping[ErrorCode, Level] = {
    ErrorCode.RETRY_EXHAUSTED: Level.WARNING,
    ErrorCode.GUARD_FAILED: Level.DEBUG,
}


def without_candidates(
    contract: Contract,
    state: str,
    trigger: str,
    context: Mapping[str, object],
    last_trigger: str | None,
) -> Outcome:
    """The trigger has no transition here: say whether it is repeated, unknown, late or early."""
    result, reason = _no_candidate(contract, state, trigger, last_trigger)
    return Outcome(result, state, context, (state,), reason=reason)


def blocked(
    contract: Contract,
    state: str,
    trigger: str,
    context: Mapping[str, object],
    reason: Reason,
    open_to: Mapping[str, object],
) -> Outcome:
    """A transition exists and must not fire; what the machine would take instead is suggested."""
    suggestions = tuple(_open_triggers(contract, state, trigger, open_to))
    hint = f"; {' or '.join(suggestions)} is open" if suggestions else ""
    message = f"{reason.message}{hint}"
    told = Reason(reason.code, message, reason.condition, reason.guard, reason.seen, suggestions)
    level = Level.ERROR if reason.code is None else _LEVELS.get(reason.code, Level.ERROR)
    log = Log(level, message)
    return Outcome(Result.GUARD_BLOCKED, state, context, (state,), logs=(log,), reason=told)


def unmet_condition(
    contract: Contract, transition: Transition, context: Mapping[str, object]
) -> Reason | None:
    """The first required condition that does not hold, and what it saw."""
    strict = contract.strict
    for condition in transition.required:
        try:
            if condition.guard.evaluate(context, strict):
                continue
            code = _code(contract, condition, context)
            why = "does not hold"
        except GuardError as error:
            code = ErrorCode(error.code.value)
            why = f"cannot be answered: {error.message}"
        return _unmet(transition, condition, context, code, why)
    return None


def unmet_data(state: State, context: Mapping[str, object]) -> Reason | None:
    """What the state asks of its data and does not get."""
    if satisfied(state.required_data, state.validation_rules, context):
        return None
    missing = [name for name in state.required_data if context.get(name) is None]
    broken = [str(rule) for rule in state.validation_rules if not rule.holds(context)]
    parts = [f"{name} is missing" for name in missing] + [f"'{rule}' fails" for rule in broken]
    message = f"the data does not allow {state.name}: {', '.join(parts)}"
    return Reason(ErrorCode.VALIDATION_ERROR, message)


def unmet_options(
    contract: Contract, transition: Transition, context: Mapping[str, object]
) -> tuple[str, ...]:
    """The conditions that do not hold but do not block either."""
    return tuple(
        each.name for each in transition.optional if not _holds(each, context, contract.strict)
    )


def shown(value: object) -> object:
    """A value as a message may show it: short, and never the inside of a structure."""
    if value is None or isinstance(value, _NUMBERS):
        return value
    if isinstance(value, str):
        return value if len(value) <= _SHOWN else f"{value[:_SHOWN]}..."
    return f"<{type(value).__name__}>"


def _no_candidate(
    contract: Contract, state: str, trigger: str, last_trigger: str | None
) -> tuple[Result, Reason]:
    known = contract.state(state)
    if known is None:
        message = f"{contract.name} has no state {state!r}"
        return Result.UNKNOWN, Reason(ErrorCode.STATE_MISMATCH, message)
    targets = contract.targets(trigger)
    if not targets:
        message = f"{contract.name} has no trigger {trigger!r}"
        return Result.UNKNOWN, Reason(ErrorCode.INVALID_TRANSITION, message)
    if trigger in contract.idempotent_triggers and state in targets:
        message = f"{trigger} already led to {state}"
        if last_trigger is None:
            return Result.DUPLICATE, Reason(None, message)
        if last_trigger == trigger:
            return Result.ALREADY_APPLIED, Reason(None, message)
    if known.is_terminal:
        message = f"{state} is final, {trigger} comes too late"
        return Result.TERMINAL, Reason(ErrorCode.INVALID_TRANSITION, message)
    accepted = tuple(dict.fromkeys(each.trigger for each in contract.exits(state)))
    message = f"{state} does not accept {trigger}; it accepts {', '.join(accepted) or 'nothing'}"
    reason = Reason(ErrorCode.INVALID_TRANSITION, message, suggestions=accepted)
    return Result.INVALID_STATE, reason


def _unmet(
    transition: Transition,
    condition: Condition,
    context: Mapping[str, object],
    code: ErrorCode,
    why: str,
) -> Reason:
    guard = condition.guard
    seen = shown(context.get(guard.field))
    message = (
        f"{transition.name} is blocked: {condition.name} '{guard}' {why}, "
        f"{guard.field} is {'undefined' if seen is None else repr(seen)}"
    )
    return Reason(code, message, condition.name, str(guard), seen)


def _code(contract: Contract, condition: Condition, context: Mapping[str, object]) -> ErrorCode:
    counter = contract.retry_counter
    if counter is None or condition.guard.field != counter.field:
        return ErrorCode.GUARD_FAILED
    count = context.get(counter.field)
    exhausted = isinstance(count, int) and count >= counter.max_value
    return ErrorCode.RETRY_EXHAUSTED if exhausted else ErrorCode.GUARD_FAILED


def _open_triggers(
    contract: Contract, state: str, trigger: str, context: Mapping[str, object]
) -> Iterable[str]:
    told = {trigger}
    for each in contract.exits(state):
        if each.trigger in told or each.is_wildcard:
            continue
        if unmet_condition(contract, each, context) is None:
            told.add(each.trigger)
            yield each.trigger


def _holds(condition: Condition, context: Mapping[str, object], strict: bool) -> bool:
    try:
        return condition.guard.evaluate(context, strict)
    except GuardError:
        return False
