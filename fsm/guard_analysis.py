"""What guards make impossible or undecided: contradictions, ties, and transitions in the shade."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain, combinations

from fsm.contract import Contract, State, Transition
from fsm.findings import Finding, FindingCode, Place
from fsm.guard import GuardError
from fsm.guard_logic import contradicts


def guard_findings(contract: Contract) -> Iterator[Finding]:
    """Everything that only the guards can tell."""
    for each in contract.transitions:
        if contradicts(each.guards):
            message = f"its guards exclude each other: {_listed(each)}"
            yield Finding(FindingCode.CONTRADICTORY_GUARDS, _at(contract, each), message)
    yield from _conflicts(contract)
    yield from _deaf_timeouts(contract)
    yield from _unlimited_retries(contract)


def _conflicts(contract: Contract) -> Iterator[Finding]:
    """Higher priority wins, and a state's own transition over a wildcard; a tie is nobody's."""
    rivals: defaultdict[tuple[str, str], list[Transition]] = defaultdict(list)
    for each in contract.transitions:
        rivals[each.from_state, each.trigger].append(each)
    for first, second in chain.from_iterable(combinations(each, 2) for each in rivals.values()):
        if first.priority == second.priority:
            if not contradicts((*first.guards, *second.guards)):
                message = f"{first.name} could fire as well, at the same priority"
                yield Finding(FindingCode.NON_DETERMINISTIC, _at(contract, second), message)
            continue
        winner, other = sorted((first, second), key=lambda each: -each.priority)
        if not winner.guards:
            message = f"{winner.name} always fires before it"
            yield Finding(FindingCode.SHADOWED_TRANSITION, _at(contract, other), message)


def _deaf_timeouts(contract: Contract) -> Iterator[Finding]:
    """A timeout whose own data blocks every transition of its trigger never ends the state."""
    for state in contract.states:
        if state.timeout is None:
            continue
        candidates = contract.candidates(state.name, state.timeout.trigger)
        if candidates and all(_is_blocked(each, state) for each in candidates):
            place = Place(contract.source, state.timeout.line or state.line, state.name)
            message = f"timeout_data lets no transition of {state.timeout.trigger} fire"
            yield Finding(FindingCode.TIMEOUT_NOT_TAKEN, place, message)


def _is_blocked(transition: Transition, state: State) -> bool:
    data = dict(state.timeout.data) if state.timeout else {}
    for guard in transition.guards:
        try:
            if guard.field in data and not guard.evaluate(data):
                return True
        except GuardError:
            return True
    return False


def _unlimited_retries(contract: Contract) -> Iterator[Finding]:
    counter = contract.retry_counter
    if counter is None:
        return
    read = {guard.field for each in contract.transitions for guard in each.guards}
    if counter.field not in read:
        lines = dict(contract.lines)
        line = lines.get("retry_counter.max_value", lines.get("retry_counter", 1))
        message = f"no condition reads {counter.field!r}, so its maximum limits nothing"
        yield Finding(FindingCode.UNUSED_RETRY_RULE, Place(contract.source, line), message)


def _listed(transition: Transition) -> str:
    return ", ".join(str(guard) for guard in transition.guards)


def _at(contract: Contract, transition: Transition) -> Place:
    return Place(contract.source, transition.line, transition.name)
