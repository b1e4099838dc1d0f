"""One hop from state to state: the counter, the data check, and the actions in their order."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import assert_never

from fsm.contract import (
    Action,
    Contract,
    CountMetric,
    EmitIntent,
    Level,
    Transition,
    Validate,
    WriteLog,
)
from fsm.outcome import Log, Metric, Reason
from fsm.refusals import shown, unmet_data, unmet_options

PASSED = "passed"
FAILED = "failed"


class PayloadError(Exception):
    """An intent lacks a field that it cannot do without."""


class DataError(Exception):
    """The state to be entered refuses its data."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.message)
        self.reason = reason


@dataclass(slots=True)
class Draft:
    """What has been decided so far; each hop adds to it as a whole or not at all."""

    context: dict[str, object]
    path: list[str]
    transitions: list[Transition] = field(default_factory=list)
    intents: list[tuple[str, Mapping[str, object], str]] = field(default_factory=list)
    follow_ups: list[str] = field(default_factory=list)
    logs: list[Log] = field(default_factory=list)
    metrics: list[Metric] = field(default_factory=list)
    unmet: tuple[str, ...] = ()
    reason: Reason | None = None


def hop(contract: Contract, draft: Draft, transition: Transition) -> None:
    """Take one transition: counter, data check, then exit, transition and entry actions."""
    source, target = contract.state(draft.path[-1]), contract.state(transition.to_state)
    if source is None or target is None:
        raise PayloadError(f"{transition.name} leads to no state of the machine")
    context = _counted(contract, draft.context, transition.trigger)
    lacking = unmet_data(target, context)
    validate = target.validate
    if lacking is not None and validate is None:
        raise DataError(lacking)
    intents, logs = len(draft.intents), len(draft.logs)
    metrics, follow_ups = len(draft.metrics), len(draft.follow_ups)
    try:
        if validate is not None:
            context = _validated(draft, context, validate, lacking)
        for actions in (source.exit, transition.actions, target.entry):
            for action in actions:
                act(draft, context, action, transition.trigger, metrics)
    except BaseException:
        del draft.intents[intents:], draft.logs[logs:]
        del draft.metrics[metrics:], draft.follow_ups[follow_ups:]
        raise
    if transition.optional:
        _report_options(contract, draft, transition)
    draft.context = context
    draft.path.append(target.name)
    draft.transitions.append(transition)


def _report_options(contract: Contract, draft: Draft, transition: Transition) -> None:
    for name in unmet_options(contract, transition, draft.context):
        draft.unmet += (name,)
        draft.logs.append(Log(Level.INFO, f"{transition.name}: optional {name} does not hold"))


def _counted(contract: Contract, context: dict[str, object], trigger: str) -> dict[str, object]:
    counter = contract.retry_counter
    if counter is None:
        return context
    if trigger in counter.reset_on:
        return {**context, counter.field: 0}
    if trigger in counter.increment_on:
        count = context.get(counter.field)
        known = count if isinstance(count, int | float) and not isinstance(count, bool) else 0
        return {**context, counter.field: int(min(max(known, 0) + 1, counter.max_value))}
    return context


def _validated(
    draft: Draft, context: dict[str, object], validate: Validate, lacking: Reason | None
) -> dict[str, object]:
    if lacking is None:
        draft.follow_ups.append(validate.passed)
        checked = {**context, "validation_result": PASSED}
        checked.pop("validation_error", None)
        return checked
    draft.follow_ups.append(validate.failed)
    return {**context, "validation_result": FAILED, "validation_error": lacking.message}


def act(
    draft: Draft, context: Mapping[str, object], action: Action, trigger: str, counted_from: int
) -> None:
    """Add what one action asks for: an intent, a log line, or a metric once per hop."""
    match action:
        case EmitIntent():
            if action.when is None or action.when.evaluate(context):
                payload = _payload(action, context)
                draft.intents.append((action.intent_kind, payload, action.name))
        case WriteLog():
            draft.logs.append(_log(action, context) if action.fields else action.log)
        case CountMetric():
            if action.triggers and trigger not in action.triggers:
                return
            if not any([each.name == action.metric for each in draft.metrics[counted_from:]]):
                draft.metrics.append(action.count)
        case Validate():
            pass
        case _:
            assert_never(action)


def _log(action: WriteLog, context: Mapping[str, object]) -> Log:
    beside = tuple((name, shown(context[name])) for name in action.fields if name in context)
    return Log(action.level, action.message, beside)


def _payload(action: EmitIntent, context: Mapping[str, object]) -> dict[str, object]:
    payload = deepcopy(dict(action.constants)) if action.constants else {}
    for name, key in action.payload:
        value = context.get(key)
        if value is None:
            raise PayloadError(f"{action.intent_kind} needs {key}")
        payload[name] = value
    for name, key in action.optional_payload:
        value = context.get(key)
        if value is not None:
            payload[name] = value
    return payload


def asked_on_entry(
    contract: Contract, state: str, kind: str, context: Mapping[str, object]
) -> dict[str, object]:
    """The payload of the intent that entering the state asks for; for whoever asks again."""
    entered = contract.state(state)
    for action in entered.entry if entered is not None else ():
        if isinstance(action, EmitIntent) and action.intent_kind == kind:
            return _payload(action, context)
    raise PayloadError(f"{state} does not ask for {kind}")
