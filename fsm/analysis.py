"""What is wrong with a contract before it ever runs: the load rules, then what can never work."""

from collections.abc import Iterable, Iterator, Set

from fsm.catalogue import KNOWN_INTENTS
from fsm.contract import WILDCARD, Action, Contract, EmitIntent, State, StateType, Transition
from fsm.findings import Finding, FindingCode, Place
from fsm.guard_analysis import guard_findings
from fsm.reachability import reachability_findings
from fsm.trigger_analysis import trigger_findings


def analyse(
    contract: Contract, known_intents: Set[str] = KNOWN_INTENTS, *, with_guards: bool = True
) -> tuple[Finding, ...]:
    """Every finding about a contract that could be read; none means that it may be loaded.

    `with_guards` is false when some guard could not be read, so that nothing is said about it.
    """
    found = [
        *_listed_states(contract),
        *_names(contract),
        *_ends(contract),
        *_orphans(contract),
        *_classes(contract),
        *_intents(contract, known_intents),
        *reachability_findings(contract),
        *trigger_findings(contract),
    ]
    if with_guards:
        found.extend(guard_findings(contract))
    return tuple(found)


def _listed_states(contract: Contract) -> Iterator[Finding]:
    """Rules 1 to 4: the initial, success, terminal and error states exist."""
    lists: tuple[tuple[str, FindingCode, Iterable[str]], ...] = (
        ("initial_state", FindingCode.UNKNOWN_INITIAL_STATE, (contract.initial_state,)),
        ("success_states", FindingCode.UNKNOWN_SUCCESS_STATE, contract.success_states),
        ("terminal_states", FindingCode.UNKNOWN_TERMINAL_STATE, contract.terminal_states),
        ("error_states", FindingCode.UNKNOWN_ERROR_STATE, contract.error_states),
    )
    for key, code, names in lists:
        for name in names:
            if contract.state(name) is None:
                place = Place(contract.source, _line(contract, key), name)
                yield Finding(code, place, f"{key} names {name!r}, which is no state")


def _orphans(contract: Contract) -> Iterator[Finding]:
    """Rule 5: every state has a transition of its own."""
    touched = {each.from_state for each in contract.transitions}
    touched |= {each.to_state for each in contract.transitions}
    for state in contract.states:
        if state.name not in touched:
            message = "no transition leads to it or away from it"
            yield Finding(FindingCode.ORPHAN_STATE, _at_state(contract, state), message)


def _ends(contract: Contract) -> Iterator[Finding]:
    """Rule 6: a terminal state has no exit."""
    for each in contract.transitions:
        state = contract.state(each.from_state)
        if state is not None and (state.is_terminal or state.name in contract.terminal_states):
            message = f"{state.name} is terminal and cannot be left"
            yield Finding(FindingCode.TERMINAL_STATE_EXIT, _at(contract, each), message)


def _names(contract: Contract) -> Iterator[Finding]:
    """Rules 7 and 8: names are unique, and transitions connect states that exist."""
    seen: set[str] = set()
    for state in contract.states:
        if state.name == WILDCARD:
            message = "a state cannot be named like the wildcard"
            yield Finding(FindingCode.INVALID_VALUE, _at_state(contract, state), message)
        if state.name in seen:
            message = f"a second state is named {state.name!r}"
            yield Finding(FindingCode.DUPLICATE_STATE_NAME, _at_state(contract, state), message)
        seen.add(state.name)
    named: set[str] = set()
    for each in contract.transitions:
        if each.name in named:
            message = f"a second transition is named {each.name!r}"
            yield Finding(FindingCode.DUPLICATE_TRANSITION_NAME, _at(contract, each), message)
        named.add(each.name)
        for end, name in (("from_state", each.from_state), ("to_state", each.to_state)):
            if name not in seen and not (end == "from_state" and each.is_wildcard):
                message = f"{end} is {name!r}, which is no state"
                yield Finding(FindingCode.UNKNOWN_STATE, _at(contract, each), message)


def _classes(contract: Contract) -> Iterator[Finding]:
    """A state is what the lists say it is."""
    for state in contract.states:
        for message in _contradictions(contract, state):
            yield Finding(FindingCode.STATE_CLASS_MISMATCH, _at_state(contract, state), message)


def _contradictions(contract: Contract, state: State) -> Iterator[str]:
    listed = state.name in contract.terminal_states
    if listed and not state.is_terminal:
        yield "terminal_states names it, but is_terminal is false"
    if state.is_terminal and not listed:
        yield "is_terminal is true, but terminal_states does not name it"
    if state.type is StateType.TERMINAL and not state.is_terminal:
        yield "its type is terminal, but is_terminal is false"
    if state.name in contract.success_states and state.type is not StateType.SUCCESS:
        yield f"success_states names it, but its type is {state.type}"
    if state.name in contract.error_states and state.type is not StateType.ERROR:
        yield f"error_states names it, but its type is {state.type}"
    if state.type is StateType.INITIAL and state.name != contract.initial_state:
        yield f"its type is initial, but the machine starts in {contract.initial_state}"


def _intents(contract: Contract, known: Set[str]) -> Iterator[Finding]:
    """An intent that no effect handles would wait for ever."""
    for place, actions in _all_actions(contract):
        for action in actions:
            if isinstance(action, EmitIntent) and action.intent_kind not in known:
                at = Place(place.file, action.line or place.line, place.name)
                message = f"no effect handles {action.intent_kind!r}"
                yield Finding(FindingCode.UNKNOWN_INTENT, at, message)


def intent_kinds(contract: Contract) -> set[str]:
    """Every kind of I/O the machine may ask for."""
    return {
        action.intent_kind
        for _, actions in _all_actions(contract)
        for action in actions
        if isinstance(action, EmitIntent)
    }


def _all_actions(contract: Contract) -> Iterator[tuple[Place, tuple[Action, ...]]]:
    for state in contract.states:
        yield _at_state(contract, state), (*state.entry, *state.exit)
    for each in contract.transitions:
        yield _at(contract, each), each.actions


def _line(contract: Contract, key: str) -> int:
    return dict(contract.lines).get(key, 1)


def _at_state(contract: Contract, state: State) -> Place:
    return Place(contract.source, state.line, state.name)


def _at(contract: Contract, transition: Transition) -> Place:
    return Place(contract.source, transition.line, transition.name)
