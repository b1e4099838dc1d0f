"""The only reader of contract files: a Contract that can work, or every finding at once."""

from collections.abc import Set
from pathlib import Path

from fsm.action_fields import Catalogue, read_actions, read_catalogue, read_guard, read_pairs
from fsm.analysis import analyse
from fsm.catalogue import KNOWN_INTENTS, NAMED_ACTIONS
from fsm.contract import (
    FATAL_ERROR,
    Concurrency,
    Condition,
    ConflictResolution,
    Contract,
    State,
    StateType,
    Timeout,
    Transition,
)
from fsm.fields import Fields, Ledger
from fsm.findings import ContractError, Finding, FindingCode, Place
from fsm.section_fields import (
    read_auto_retry,
    read_lines,
    read_messages,
    read_retry_counter,
    read_sources,
    read_version,
)
from fsm.validation import Rule, RuleError, parse_rule
from fsm.yaml_tree import MAX_TEXT, Mapped, Node, Scalar, Sequence, TreeError, read_tree

__all__ = ["ContractError", "Finding", "FindingCode", "Place", "load_contract"]

_WRAPPER = "fsm_subcontract"
_TEXT = "<text>"
_MAX_BYTES = 4 * MAX_TEXT
_INERT_FLAGS = (
    "persistence_enabled",
    "recovery_enabled",
    "rollback_enabled",
    "concurrent_transitions_allowed",
)
_INERT_NUMBERS = ("checkpoint_interval_ms", "transition_timeout_ms")


def load_contract(source: Path | str, known_intents: Set[str] = KNOWN_INTENTS) -> Contract:
    """The contract in a file (a Path) or in YAML text (a str); ContractError lists all findings."""
    ledger = Ledger(str(source) if isinstance(source, Path) else _TEXT)
    contract: Contract | None = None
    try:
        tree = read_tree(_text(source))
    except TreeError as error:
        ledger.note(error.code, error.line, error.message)
    else:
        contract = _document(tree, ledger)
    if contract is not None and not ledger.dropped:
        ledger.findings += analyse(contract, known_intents, with_guards=not ledger.guards_unread)
    if ledger.findings or contract is None:
        raise ContractError(ledger.findings)
    return contract


def _text(source: Path | str) -> str:
    if isinstance(source, str):
        return source
    try:
        with source.open("rb") as file:
            written = file.read(_MAX_BYTES + 1)
        if len(written) > _MAX_BYTES:
            raise TreeError(FindingCode.TOO_LARGE, 1, f"more than {_MAX_BYTES} bytes")
        return written.decode("utf-8-sig")
    except OSError as error:
        raise TreeError(
            FindingCode.UNREADABLE_FILE, 1, error.strerror or "it cannot be read"
        ) from None
    except ValueError:
        raise TreeError(FindingCode.UNREADABLE_FILE, 1, "it is not UTF-8 text") from None


def _document(tree: Node, ledger: Ledger) -> Contract | None:
    if not isinstance(tree, Mapped):
        ledger.note(FindingCode.WRONG_TYPE, tree.line, "a contract is a mapping")
        return None
    return _contract(Fields(_unwrapped(tree, ledger), ledger, "a contract"))


def _unwrapped(tree: Mapped, ledger: Ledger) -> Mapped:
    entries: list[tuple[Node, Node]] = []
    for key, value in tree.entries:
        if not isinstance(key, Scalar) or key.text != _WRAPPER:
            entries.append((key, value))
        elif isinstance(value, Mapped):
            entries.extend(value.entries)
        else:
            ledger.note(FindingCode.WRONG_TYPE, key.line, f"{_WRAPPER!r} takes a mapping")
    return Mapped(tree.line, entries)


def _contract(top: Fields) -> Contract | None:
    usable = top.required("state_machine_name", "initial_state", "states", "transitions")
    known = read_catalogue(top, NAMED_ACTIONS)
    states = tuple(top.items("states", lambda each: _state(each, known), "state"))
    transitions = tuple(
        top.items("transitions", lambda each: _transition(each, known), "transition")
    )
    for key in _INERT_FLAGS:
        top.flag(key, True)
    for key in _INERT_NUMBERS:
        top.whole(key, 0)
    contract = Contract(
        name=top.text("state_machine_name"),
        version=read_version(top, "state_machine_version"),
        subcontract_version=read_version(top, "version"),
        description=top.prose("description"),
        initial_state=top.text("initial_state"),
        states=states,
        transitions=transitions,
        success_states=top.names("success_states")
        or tuple(each.name for each in states if each.type is StateType.SUCCESS),
        terminal_states=top.names("terminal_states")
        or tuple(each.name for each in states if each.is_terminal),
        error_states=top.names("error_states")
        or tuple(each.name for each in states if each.type is StateType.ERROR),
        retry_counter=read_retry_counter(top),
        auto_retry=tuple(top.items("auto_retry", read_auto_retry, "retry rule")),
        strict=top.flag("strict_validation_enabled", False),
        conflict_resolution=top.choice(
            "conflict_resolution_strategy",
            ConflictResolution,
            ConflictResolution.PRIORITY_BASED,
        ),
        concurrency=top.choice("concurrency", Concurrency, Concurrency.LOCKED),
        messages=read_messages(top),
        trigger_sources=read_sources(top),
        idempotent_triggers=top.names("idempotent_triggers"),
        initial_context=read_pairs(top, "initial_context"),
        ttl_ms=top.whole("ttl_ms", 0, least=1) or None,
        source=top.ledger.file,
        lines=read_lines(top),
    )
    top.finish()
    return contract if usable and contract.name and contract.initial_state else None


def _state(fields: Fields, known: Catalogue) -> State | None:
    usable = fields.required("state_name", "state_type")
    fields.name = name = fields.text("state_name")
    kind = fields.choice("state_type", StateType, StateType.OPERATIONAL)
    entry_names, entry = read_actions(fields, "entry_actions", known)
    exit_names, exits = read_actions(fields, "exit_actions", known)
    ended = kind is StateType.TERMINAL
    state = State(
        name=name,
        type=kind,
        description=fields.prose("description"),
        is_terminal=fields.flag("is_terminal", ended),
        is_recoverable=fields.flag("is_recoverable", not ended and kind is not StateType.SUCCESS),
        timeout=_timeout(fields, name),
        entry_actions=entry_names,
        exit_actions=exit_names,
        entry=entry,
        exit=exits,
        required_data=fields.names("required_data"),
        optional_data=fields.names("optional_data"),
        validation_rules=_rules(fields),
        line=fields.line,
    )
    fields.finish()
    if usable and name:
        return state
    fields.ledger.dropped = True
    return None


def _timeout(fields: Fields, state: str) -> Timeout | None:
    after = fields.whole("timeout_ms", 0, least=1)
    trigger = fields.text("on_timeout", FATAL_ERROR)
    deadline = fields.text("deadline_name", state)
    data = read_pairs(fields, "timeout_data")
    if after:
        line = fields.line_of("on_timeout" if fields.has("on_timeout") else "timeout_ms")
        return Timeout(deadline, after, trigger, data, line)
    for key in ("on_timeout", "timeout_data", "deadline_name"):
        if fields.has(key) and not fields.has("timeout_ms"):
            message = f"{key!r} needs 'timeout_ms'"
            fields.note(FindingCode.MISSING_FIELD, fields.line_of(key), message)
    return None


def _rules(fields: Fields) -> tuple[Rule, ...]:
    node = fields.node("validation_rules")
    if node is None:
        return ()
    if not isinstance(node, Sequence):
        message = "'validation_rules' takes a list of rules"
        fields.note(FindingCode.WRONG_TYPE, node.line, message)
        return ()
    rules: list[Rule] = []
    for each in node.items:
        try:
            rules.append(parse_rule(each.text if isinstance(each, Scalar) else ""))
        except RuleError as error:
            fields.note(FindingCode.VALIDATION_RULE_SYNTAX, each.line, error.message)
    return tuple(rules)


def _transition(fields: Fields, known: Catalogue) -> Transition | None:
    usable = fields.required("transition_name", "from_state", "to_state", "trigger")
    fields.name = name = fields.text("transition_name")
    _, actions = read_actions(fields, "actions", known)
    transition = Transition(
        name=name,
        from_state=fields.text("from_state"),
        to_state=fields.text("to_state"),
        trigger=fields.text("trigger"),
        priority=fields.whole("priority", 10),
        conditions=tuple(fields.items("conditions", _condition, "condition")),
        actions=actions,
        description=fields.prose("description"),
        is_atomic=fields.flag("is_atomic", True),
        line=fields.line,
    )
    fields.finish()
    if usable and all((name, transition.from_state, transition.to_state, transition.trigger)):
        return transition
    fields.ledger.dropped = True
    return None


def _condition(fields: Fields) -> Condition | None:
    usable = fields.required("condition_name", "expression")
    name = fields.text("condition_name")
    if fields.text("condition_type", "expression") != "expression":
        message = "'condition_type' takes expression"
        fields.note(FindingCode.INVALID_VALUE, fields.line_of("condition_type"), message)
    required = fields.flag("required", True)
    fields.prose("description")
    node = fields.node("expression")
    fields.finish()
    if not usable or not isinstance(node, Scalar):
        fields.ledger.guards_unread = True
        if node is not None and not isinstance(node, Scalar):
            fields.note(FindingCode.WRONG_TYPE, node.line, "'expression' takes a guard")
        return None
    guard = read_guard(fields, node.text, node.line)
    return None if guard is None else Condition(name, guard, required, fields.line)
