"""What a contract writes under `actions`, `entry_actions` and `exit_actions`, read into actions."""

from collections.abc import Mapping
from enum import StrEnum

from fsm.contract import Action, CountMetric, EmitIntent, Level, Pairs, Validate, WriteLog
from fsm.fields import Fields
from fsm.findings import FindingCode
from fsm.guard import Guard, GuardError, parse_guard
from fsm.yaml_tree import Mapped, Node, Scalar, Sequence

Catalogue = Mapping[str, tuple[Action, ...]]

_LOG_PREFIX = "log_"


class ActionType(StrEnum):
    """What an action does when the machine moves."""

    EMIT_INTENT = "emit_intent"
    VALIDATE = "validate"


def read_catalogue(top: Fields, known: Catalogue) -> Catalogue:
    """The named actions a contract brings along, over those everybody has."""
    section = top.group("actions")
    if section is None:
        return known
    own: dict[str, tuple[Action, ...]] = {}
    for name in section.written():
        node = section.node(name)
        nodes = node.items if isinstance(node, Sequence) else [node] if node else []
        if not nodes:
            message = f"the action {name!r} says nothing"
            section.note(FindingCode.WRONG_TYPE, section.line_of(name), message)
        own[name] = tuple(
            action for each in nodes for action in _inline(each, section, known, default_name=name)
        )
    return {**known, **own}


def read_actions(
    owner: Fields, key: str, known: Catalogue
) -> tuple[tuple[str, ...], tuple[Action, ...]]:
    """The names of the actions under a key, and the actions themselves in their order."""
    node = owner.node(key)
    if node is None:
        return (), ()
    if not isinstance(node, Sequence):
        owner.note(FindingCode.WRONG_TYPE, node.line, f"{key!r} takes a list of actions")
        return (), ()
    names: list[str] = []
    actions: list[Action] = []
    for each in node.items:
        found = _inline(each, owner, known)
        if found:
            names.append(found[0].name)
            actions.extend(found)
    return tuple(names), tuple(actions)


def read_guard(owner: Fields, text: str, line: int) -> Guard | None:
    """The guard, or a finding with the guard's own code."""
    try:
        return parse_guard(text)
    except GuardError as error:
        owner.ledger.guards_unread = True
        owner.note(FindingCode(error.code.value), line, str(error))
        return None


def read_pairs(owner: Fields, key: str) -> Pairs:
    """A small mapping of names to plain values."""
    group = owner.group(key)
    if group is None:
        return ()
    return tuple((name, group.value(name)) for name in group.written())


def _inline(
    node: Node, owner: Fields, known: Catalogue, default_name: str = ""
) -> tuple[Action, ...]:
    if isinstance(node, Mapped):
        action = _action(Fields(node, owner.ledger, "an action", owner.name), default_name)
        return () if action is None else (action,)
    if isinstance(node, Scalar) and isinstance(node.value, str) and node.value.strip():
        return _named(node.value, node.line, owner, known)
    owner.note(FindingCode.WRONG_TYPE, node.line, "an action is a name or a mapping")
    return ()


def _named(name: str, line: int, owner: Fields, known: Catalogue) -> tuple[Action, ...]:
    if name in known:
        return known[name]
    if name.startswith(_LOG_PREFIX):
        said = name.removeprefix(_LOG_PREFIX).replace("_", " ").capitalize()
        return (WriteLog(name, Level.INFO, said or name, line=line),)
    owner.note(FindingCode.UNKNOWN_ACTION, line, f"no action is named {name!r}")
    return ()


def _action(fields: Fields, default_name: str) -> Action | None:
    name = fields.text("action_name", default_name)
    kind = fields.choice("action_type", ActionType, ActionType.EMIT_INTENT)
    config = fields.group("action_config")
    fields.prose("description")
    usable = bool(name) or fields.required("action_name")
    usable = fields.required("action_config") and usable
    fields.finish()
    if config is None or not usable:
        return None
    match kind:
        case ActionType.VALIDATE:
            return _validate(name, fields.line, config)
        case ActionType.EMIT_INTENT:
            return _emit(name, fields.line, config)


def _validate(name: str, line: int, config: Fields) -> Action | None:
    usable = config.required("passed", "failed")
    action = Validate(name, config.text("passed"), config.text("failed"), line)
    config.finish()
    return action if usable else None


def _emit(name: str, line: int, config: Fields) -> Action | None:
    if not config.required("intent_type"):
        return None
    match config.text("intent_type"):
        case "":
            return None
        case "log_event":
            return _log(name, line, config)
        case "log_metric":
            return _metric(name, line, config)
        case intent_kind:
            return _intent(name, line, intent_kind, config)


def _log(name: str, line: int, config: Fields) -> Action | None:
    usable = config.required("message")
    level = config.choice("level", Level, Level.INFO)
    action = WriteLog(name, level, config.text("message"), config.names("fields"), line)
    config.finish()
    return action if usable else None


def _metric(name: str, line: int, config: Fields) -> Action | None:
    usable = config.required("metric")
    value = config.value("value") if config.has("value") else 1
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        config.note(FindingCode.WRONG_TYPE, config.line_of("value"), "'value' takes a number")
        value = 1
    triggers = frozenset(config.names("on"))
    action = CountMetric(name, config.text("metric"), value, triggers, line)
    config.finish()
    return action if usable else None


def _intent(name: str, line: int, intent_kind: str, config: Fields) -> Action:
    when: Guard | None = None
    if config.has("when"):
        when = read_guard(config, config.text("when"), config.line_of("when"))
    payload = _field_names(config, "payload")
    optional = _field_names(config, "optional_payload")
    taken = {"intent_type", "when", "payload", "optional_payload"}
    constants = tuple((key, config.value(key)) for key in config.written() if key not in taken)
    return EmitIntent(name, intent_kind, constants, payload, optional, when, line)


def _field_names(config: Fields, key: str) -> tuple[tuple[str, str], ...]:
    group = config.group(key)
    if group is None:
        return ()
    return tuple((name, group.text(name, name)) for name in group.written())
