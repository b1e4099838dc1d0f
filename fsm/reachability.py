"""Where a machine can get to: states nobody reaches or leaves, and checkpoints in a ring."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set

from fsm.contract import CONTINUE, Contract, State, StateType
from fsm.findings import Finding, FindingCode, Place


def reachability_findings(contract: Contract) -> Iterator[Finding]:
    """Unreachable states, dead ends and automatic cycles."""
    edges = successors(contract)
    yield from _unreachable(contract, edges)
    yield from _dead_ends(contract, edges)
    yield from _cycles(contract)


def successors(contract: Contract) -> Mapping[str, frozenset[str]]:
    """For each state those one transition away, wildcards included."""
    return {
        state.name: frozenset(each.to_state for each in contract.exits(state.name))
        for state in contract.states
    }


def reachable(starts: Iterable[str], edges: Mapping[str, Set[str]]) -> frozenset[str]:
    """Every state that can be reached from some of these, themselves included."""
    seen: set[str] = set()
    waiting = list(starts)
    while waiting:
        state = waiting.pop()
        if state not in seen:
            seen.add(state)
            waiting.extend(edges.get(state, frozenset()))
    return frozenset(seen)


def _unreachable(contract: Contract, edges: Mapping[str, frozenset[str]]) -> Iterator[Finding]:
    if contract.state(contract.initial_state) is None:
        return
    seen = reachable((contract.initial_state,), edges)
    entered = {each.to_state for each in contract.transitions}
    left = {each.from_state for each in contract.transitions}
    for state in contract.states:
        is_orphan = state.name not in entered and state.name not in left
        if state.name not in seen and not is_orphan:
            message = f"no way leads here from {contract.initial_state}"
            yield Finding(FindingCode.UNREACHABLE_STATE, _at(contract, state), message)


def _dead_ends(contract: Contract, edges: Mapping[str, frozenset[str]]) -> Iterator[Finding]:
    ends = {state.name for state in contract.states if state.is_terminal}
    backwards: defaultdict[str, set[str]] = defaultdict(set)
    for name, following in edges.items():
        for each in following:
            backwards[each].add(name)
    hopeful = reachable(ends | set(contract.success_states), backwards)
    for state in contract.states:
        if state.is_terminal or state.name in contract.terminal_states:
            continue
        if not edges[state.name]:
            message = "it is not terminal, and nothing leads away from it"
        elif state.name not in hopeful:
            message = "neither a success state nor a terminal one can be reached from it"
        else:
            continue
        yield Finding(FindingCode.DEAD_END, _at(contract, state), message)


def _cycles(contract: Contract) -> Iterator[Finding]:
    """Checkpoints that CONTINUE into one another would be walked for ever."""
    automatic = {
        state.name: frozenset(each.to_state for each in contract.candidates(state.name, CONTINUE))
        for state in contract.states
        if state.type is StateType.SNAPSHOT
    }
    for state in contract.states:
        following = automatic.get(state.name, frozenset())
        if state.name in reachable(following, automatic):
            message = f"{CONTINUE} leads from here back to here"
            yield Finding(FindingCode.AUTOMATIC_CYCLE, _at(contract, state), message)


def _at(contract: Contract, state: State) -> Place:
    return Place(contract.source, state.line, state.name)
