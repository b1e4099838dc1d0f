"""Triggers that reach nothing and triggers that nothing pulls."""

from collections.abc import Iterator

from fsm.contract import CONTINUE, FATAL_ERROR, Contract, RetryCounter, Source, StateType, Validate
from fsm.findings import Finding, FindingCode, Place


def trigger_findings(contract: Contract) -> Iterator[Finding]:
    """Everything the names of triggers tell."""
    yield from _timeouts(contract)
    yield from _validations(contract)
    yield from _misplaced_validations(contract)
    yield from _names(contract)
    yield from _automatic_retries(contract)
    yield from _retry_rules(contract)
    yield from _never_emitted(contract)


def _timeouts(contract: Contract) -> Iterator[Finding]:
    for state in contract.states:
        timeout = state.timeout
        if timeout is not None and not contract.candidates(state.name, timeout.trigger):
            place = Place(contract.source, timeout.line or state.line, state.name)
            message = f"its timeout pulls {timeout.trigger}, which it does not accept"
            yield Finding(FindingCode.TIMEOUT_NOT_TAKEN, place, message)


def _validations(contract: Contract) -> Iterator[Finding]:
    for state in contract.states:
        if state.validate is None:
            continue
        for trigger in (state.validate.passed, state.validate.failed):
            if not contract.candidates(state.name, trigger):
                place = Place(contract.source, state.line, state.name)
                message = f"{state.validate.name} pulls {trigger}, which it does not accept"
                yield Finding(FindingCode.UNKNOWN_TRIGGER, place, message)


def _misplaced_validations(contract: Contract) -> Iterator[Finding]:
    """A state checks its data once, on entry; anywhere else the action would do nothing."""
    owners = [(each.name, each.line, (each.entry, each.exit)) for each in contract.states]
    owners += [(each.name, each.line, ((), each.actions)) for each in contract.transitions]
    for name, line, (entry, elsewhere) in owners:
        checks = [action for action in entry if isinstance(action, Validate)][1:]
        checks += [action for action in elsewhere if isinstance(action, Validate)]
        for action in checks:
            place = Place(contract.source, action.line or line, name)
            message = f"{action.name} validates, which only one of a state's entry_actions does"
            yield Finding(FindingCode.INVALID_VALUE, place, message)


def _names(contract: Contract) -> Iterator[Finding]:
    named = [(f"triggers.{message}", trigger) for message, trigger in contract.messages]
    named += [(f"trigger_sources.{trigger}", trigger) for trigger, _ in contract.trigger_sources]
    named += [("idempotent_triggers", trigger) for trigger in contract.idempotent_triggers]
    lines = dict(contract.lines)
    for key, trigger in named:
        if trigger not in contract.triggers:
            place = Place(contract.source, lines.get(key, 1))
            message = f"{key.partition('.')[0]} names {trigger!r}, which no transition takes"
            yield Finding(FindingCode.UNKNOWN_TRIGGER, place, message)


def _automatic_retries(contract: Contract) -> Iterator[Finding]:
    place = Place(contract.source, dict(contract.lines).get("auto_retry", 1))
    for retry in contract.auto_retry:
        if contract.state(retry.state) is None:
            message = f"auto_retry names {retry.state!r}, which is no state"
            yield Finding(FindingCode.UNKNOWN_STATE, place, message)
            continue
        for trigger in filter(None, (retry.trigger, retry.exhausted)):
            if not contract.candidates(retry.state, trigger):
                message = f"auto_retry pulls {trigger}, which {retry.state} does not accept"
                yield Finding(FindingCode.UNKNOWN_TRIGGER, place, message)


def _retry_rules(contract: Contract) -> Iterator[Finding]:
    counter = contract.retry_counter
    if counter is None:
        return
    yield from _first_count(contract, counter)
    lines = dict(contract.lines)
    for rule, triggers in (
        ("increment_on", counter.increment_on),
        ("reset_on", counter.reset_on),
    ):
        for trigger in triggers:
            if trigger not in contract.triggers:
                place = Place(contract.source, lines.get(f"retry_counter.{rule}", 1))
                message = f"{rule} names {trigger!r}, which no transition takes"
                yield Finding(FindingCode.UNUSED_RETRY_RULE, place, message)


def _first_count(contract: Contract, counter: RetryCounter) -> Iterator[Finding]:
    count = contract.new_context()[counter.field]
    if type(count) is not int or not 0 <= count <= counter.max_value:
        place = Place(contract.source, dict(contract.lines).get("initial_context", 1))
        message = f"{counter.field!r} starts as {count!r}, it takes 0 to {counter.max_value}"
        yield Finding(FindingCode.INVALID_VALUE, place, message)


def _never_emitted(contract: Contract) -> Iterator[Finding]:
    """What is not for the outside needs a message, a timeout or the machine itself to pull it."""
    emitted = {trigger for _, trigger in contract.messages} | {FATAL_ERROR}
    for state in contract.states:
        if state.timeout is not None:
            emitted.add(state.timeout.trigger)
        if state.validate is not None:
            emitted |= {state.validate.passed, state.validate.failed}
        if state.type is StateType.SNAPSHOT:
            emitted.add(CONTINUE)
    for retry in contract.auto_retry:
        emitted |= {retry.trigger, retry.exhausted or retry.trigger}
    for trigger, sources in contract.trigger_sources:
        known = trigger in contract.triggers
        if known and Source.EXTERNAL not in sources and trigger not in emitted:
            line = dict(contract.lines).get(f"trigger_sources.{trigger}", 1)
            message = f"{trigger} comes from {', '.join(sources)}, and nothing there pulls it"
            place = Place(contract.source, line)
            yield Finding(FindingCode.TRIGGER_NEVER_EMITTED, place, message)
