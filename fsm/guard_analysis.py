"""What guards make impossible or undecided: contradictions, ties, and transitions in the shade."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from fsm.contract import Contract, RetryCounter, Transition
from fsm.findings import Finding, FindingCode, Place
from fsm.guard import Guard, GuardError, Operator
from fsm.guard_logic import contradicts

MAX_RIVALS = 200


def guard_findings(contract: Contract) -> Iterator[Finding]:
    """Everything that only the guards can tell."""
    for each in contract.transitions:
        if contradicts(each.guards):
            message = f"its guards exclude each other: {_listed(each)}"
            yield Finding(FindingCode.CONTRADICTORY_GUARDS, _at(contract, each), message)
    yield from _conflicts(contract)
    yield from _deaf_timeouts(contract)
    if contract.retry_counter is not None:
        yield from _retry_limits(contract, contract.retry_counter)


def _conflicts(contract: Contract) -> Iterator[Finding]:
    """Higher priority wins, and a state's own transition over a wildcard; a tie is nobody's."""
    rivals: defaultdict[tuple[str, str], list[Transition]] = defaultdict(list)
    for each in contract.transitions:
        rivals[each.from_state, each.trigger].append(each)
    for (state, trigger), rows in rivals.items():
        if len(rows) > MAX_RIVALS:
            message = f"over {MAX_RIVALS} transitions take {trigger} in {state}"
            yield Finding(FindingCode.TOO_LARGE, _at(contract, rows[0]), message)
            continue
        for at, each in enumerate(rows):
            yield from _ties(contract, rows[:at], each)
            yield from _shadows(contract, rows, each)


def _ties(contract: Contract, earlier: Sequence[Transition], each: Transition) -> Iterator[Finding]:
    for other in earlier:
        if other.priority == each.priority and not contradicts((*other.guards, *each.guards)):
            message = f"{other.name} could fire as well, at the same priority"
            yield Finding(FindingCode.NON_DETERMINISTIC, _at(contract, each), message)
            return


def _shadows(contract: Contract, rows: Sequence[Transition], each: Transition) -> Iterator[Finding]:
    """What asks for no more than a lower priority does always comes before it."""
    for other in rows:
        if other.priority > each.priority and set(other.guards) <= set(each.guards):
            message = f"{other.name} always fires before it"
            yield Finding(FindingCode.SHADOWED_TRANSITION, _at(contract, each), message)
            return


def _deaf_timeouts(contract: Contract) -> Iterator[Finding]:
    """A timeout whose own data blocks every transition of its trigger never ends the state."""
    for state in contract.states:
        if state.timeout is None:
            continue
        candidates = contract.candidates(state.name, state.timeout.trigger)
        if candidates and all(_is_blocked(each, dict(state.timeout.data)) for each in candidates):
            place = Place(contract.source, state.timeout.line or state.line, state.name)
            message = f"timeout_data lets no transition of {state.timeout.trigger} fire"
            yield Finding(FindingCode.TIMEOUT_NOT_TAKEN, place, message)


def _is_blocked(transition: Transition, data: Mapping[str, object]) -> bool:
    """Whether these fields alone keep it from firing, whatever the others are."""
    for guard in transition.guards:
        try:
            if guard.field in data and not guard.evaluate(data):
                return True
        except GuardError:
            return True
    return False


def _retry_limits(contract: Contract, counter: RetryCounter) -> Iterator[Finding]:
    """The counter stops at its maximum; only a guard on it stops the retries."""
    full = {counter.field: counter.max_value}
    bounds = (
        Guard(counter.field, Operator.GE, 0),
        Guard(counter.field, Operator.LE, counter.max_value),
    )
    for each in contract.transitions:
        if each.trigger in counter.increment_on and not _is_blocked(each, full):
            message = f"it still fires when {counter.field} is {counter.max_value}, the maximum"
            yield Finding(FindingCode.UNUSED_RETRY_RULE, _at(contract, each), message)
        asked = [guard for guard in each.guards if guard.field == counter.field]
        if asked and not contradicts(asked) and contradicts((*asked, *bounds)):
            message = f"{counter.field} is never outside 0 to {counter.max_value}: {_listed(each)}"
            yield Finding(FindingCode.CONTRADICTORY_GUARDS, _at(contract, each), message)


def _listed(transition: Transition) -> str:
    return ", ".join(str(guard) for guard in transition.guards)


def _at(contract: Contract, transition: Transition) -> Place:
    return Place(contract.source, transition.line, transition.name)
