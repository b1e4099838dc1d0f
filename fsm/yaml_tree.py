"""YAML text to a tree that knows its lines: bounded, without tags, and with `on` still a word."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import yaml

from fsm.findings import FindingCode

MAX_TEXT = 512 * 1024
MAX_NODES = 50_000
MAX_DEPTH = 24

_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][+-]?[0-9]+)?")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f]")
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS: Mapping[str, bool] = {
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}
_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class TreeError(Exception):
    """The text is no tree we read; the reader turns it into a finding."""

    def __init__(self, code: FindingCode, line: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.line = line
        self.message = message


@dataclass(frozen=True, slots=True)
class Scalar:
    """A leaf: what it means, and what was written."""

    value: bool | int | float | str | None
    text: str
    line: int
    weight: int = 1
    depth: int = 0


@dataclass(slots=True)
class Sequence:
    """A list of nodes; like a mapping it knows how much it holds and how deep, aliases unfolded."""

    line: int
    items: list["Node"] = field(default_factory=list)
    weight: int = 1
    depth: int = 1


@dataclass(slots=True)
class Mapped:
    """Keys in the order they were written; a repeated key is reported by the reader."""

    line: int
    entries: list[tuple["Node", "Node"]] = field(default_factory=list)
    weight: int = 1
    depth: int = 1


Node = Scalar | Sequence | Mapped


@dataclass(slots=True)
class _Open:
    node: Sequence | Mapped
    anchor: str | None
    key: Node | None = None


def read_tree(text: str) -> Node:
    """The one document in the text, or a TreeError that says at which line it stops being one."""
    if len(text) > MAX_TEXT:
        raise TreeError(FindingCode.TOO_LARGE, 1, f"more than {MAX_TEXT} characters")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        raise TreeError(FindingCode.NOT_YAML, line, "a character that is not Unicode") from None
    try:
        return _build(yaml.parse(text, Loader=_Loader))
    except yaml.YAMLError as error:
        raise _syntax(text, error) from None


def plain(node: Node) -> object:
    """The node as the Python value it stands for; keys are what was written."""
    match node:
        case Scalar():
            return node.value
        case Sequence():
            return [plain(each) for each in node.items]
        case Mapped():
            return {
                key.text: plain(value) for key, value in node.entries if isinstance(key, Scalar)
            }


def _build(events: Iterator[yaml.Event]) -> Node:
    anchors: dict[str, Node] = {}
    stack: list[_Open] = []
    root: Node | None = None
    documents = 0
    for event in events:
        line = event.start_mark.line + 1 if event.start_mark else 1
        done: Node | None = None
        match event:
            case yaml.DocumentStartEvent():
                documents += 1
                if documents > 1:
                    raise TreeError(FindingCode.MULTIPLE_DOCUMENTS, line, "a second document")
            case yaml.AliasEvent():
                done = anchors.get(event.anchor or "")
                if done is None:
                    message = f"*{event.anchor} has no finished anchor above it"
                    raise TreeError(FindingCode.NOT_YAML, line, message)
            case yaml.ScalarEvent():
                done = _scalar(event, line)
                _anchor(anchors, event.anchor, done)
            case yaml.SequenceStartEvent() | yaml.MappingStartEvent():
                _refuse_tag(event.tag, line)
                opened = (
                    Sequence(line) if isinstance(event, yaml.SequenceStartEvent) else Mapped(line)
                )
                stack.append(_Open(opened, event.anchor))
                if len(stack) > MAX_DEPTH:
                    raise _too_deep(line)
            case yaml.SequenceEndEvent() | yaml.MappingEndEvent():
                closed = stack.pop()
                done = closed.node
                _anchor(anchors, closed.anchor, done)
            case _:
                pass
        if done is None:
            continue
        if stack:
            _attach(stack[-1], done, line)
        else:
            root = done
    if root is None:
        raise TreeError(FindingCode.NOT_YAML, 1, "the text is empty")
    return root


def _attach(parent: _Open, child: Node, line: int) -> None:
    parent.node.weight += child.weight
    if parent.node.weight > MAX_NODES:
        raise TreeError(FindingCode.ALIAS_BOMB, line, f"unfolds to more than {MAX_NODES} nodes")
    parent.node.depth = max(parent.node.depth, child.depth + 1)
    if parent.node.depth > MAX_DEPTH:
        raise _too_deep(line)
    if isinstance(parent.node, Sequence):
        parent.node.items.append(child)
    elif parent.key is None:
        parent.key = child
    else:
        parent.node.entries.append((parent.key, child))
        parent.key = None


def _too_deep(line: int) -> TreeError:
    return TreeError(FindingCode.TOO_LARGE, line, f"nested over {MAX_DEPTH} deep")


def _anchor(anchors: dict[str, Node], name: str | None, node: Node) -> None:
    if name is not None:
        anchors[name] = node


def _scalar(event: yaml.ScalarEvent, line: int) -> Scalar:
    text = str(event.value)
    _refuse_tag(event.tag, line)
    if control := _CONTROL.search(text):
        message = f"the control character {control.group()!r} is no text"
        raise TreeError(FindingCode.INVALID_VALUE, line, message)
    is_plain = event.style in (None, "")
    return Scalar(_meaning(text) if is_plain else text, text, line)


def _refuse_tag(tag: str | None, line: int) -> None:
    if tag is not None:
        raise TreeError(FindingCode.UNSUPPORTED_TAG, line, f"the tag {tag} is not supported")


def _meaning(text: str) -> bool | int | float | str | None:
    if text in _NULLS:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text) and math.isfinite(number := float(text)):
        return number
    return text


def _syntax(text: str, error: yaml.YAMLError) -> TreeError:
    mark = getattr(error, "problem_mark", None)
    if mark is not None:
        line = mark.line + 1
        problem = getattr(error, "problem", None) or "it is not YAML"
    else:
        position = getattr(error, "position", 0)
        line = text.count("\n", 0, position) + 1 if isinstance(position, int) else 1
        problem = getattr(error, "reason", None) or "it is not YAML"
    lines = text.splitlines()
    written = lines[line - 1] if 0 < line <= len(lines) else ""
    if "\t" in written[: len(written) - len(written.lstrip())]:
        return TreeError(FindingCode.TAB_INDENTATION, line, "a tab indents this line; use spaces")
    return TreeError(FindingCode.NOT_YAML, line, str(problem))
