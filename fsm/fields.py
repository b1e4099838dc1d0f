"""Reading one mapping of a contract field by field, noting what is wrong instead of stopping."""

from collections.abc import Callable
from enum import StrEnum
from typing import TypeVar

from fsm.findings import Finding, FindingCode, Place
from fsm.yaml_tree import Mapped, Node, Scalar, Sequence, plain

MAX_ITEMS = 1000
_MAX_WHOLE = 10**12
_Choice = TypeVar("_Choice", bound=StrEnum)
_Read = TypeVar("_Read")


class Ledger:
    """The findings of one file, and what could not be read because of them."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.findings: list[Finding] = []
        self.guards_unread = False
        self.dropped = False

    def note(self, code: FindingCode, line: int, message: str, name: str = "") -> None:
        """Write down one finding."""
        self.findings.append(Finding(code, Place(self.file, line, name), message))


class Fields:
    """One mapping: each field is asked for by type; what was never asked for is unknown."""

    def __init__(self, node: Mapped, ledger: Ledger, what: str, name: str = "") -> None:
        self.line = node.line
        self.ledger = ledger
        self.what = what
        self.name = name
        self._asked: set[str] = set()
        self._nodes: dict[str, tuple[int, Node]] = {}
        for key, value in node.entries:
            if not isinstance(key, Scalar):
                self.note(FindingCode.WRONG_TYPE, key.line, "a key must be one word")
            elif key.text in self._nodes:
                self.note(FindingCode.DUPLICATE_KEY, key.line, f"{key.text!r} is written twice")
            else:
                self._nodes[key.text] = (key.line, value)

    def note(self, code: FindingCode, line: int, message: str) -> None:
        """Write down one finding about this mapping."""
        self.ledger.note(code, line, message, self.name)

    def written(self) -> tuple[str, ...]:
        """The keys as written."""
        return tuple(self._nodes)

    def has(self, key: str) -> bool:
        """Whether the field is there and says something."""
        entry = self._nodes.get(key)
        return entry is not None and not _is_null(entry[1])

    def line_of(self, key: str) -> int:
        """The line of a field, or of the mapping if the field is not there."""
        return self._nodes[key][0] if key in self._nodes else self.line

    def node(self, key: str) -> Node | None:
        """The field as it stands, or nothing if it is absent or null."""
        self._asked.add(key)
        return self._nodes[key][1] if self.has(key) else None

    def required(self, *keys: str) -> bool:
        """Whether all the fields are there; each that is not is a finding."""
        missing = [key for key in keys if not self.has(key)]
        for key in missing:
            self._asked.add(key)
            message = f"{self.what} needs {key!r}"
            self.note(FindingCode.MISSING_FIELD, self.line_of(key), message)
        return not missing

    def text(self, key: str, default: str = "") -> str:
        """A word or a sentence, which must say something."""
        node = self.node(key)
        if node is None:
            return default
        if isinstance(node, Scalar) and isinstance(node.value, str) and node.value.strip():
            return node.value
        return self._wrong(key, node, "text", default)

    def prose(self, key: str) -> str:
        """Words for people, which may be none."""
        node = self.node(key)
        if node is None or (isinstance(node, Scalar) and node.value == ""):
            return ""
        return self.text(key)

    def flag(self, key: str, default: bool) -> bool:
        """true or false."""
        node = self.node(key)
        if node is None:
            return default
        if isinstance(node, Scalar) and isinstance(node.value, bool):
            return node.value
        return self._wrong(key, node, "true or false", default)

    def whole(self, key: str, default: int, least: int = 0) -> int:
        """A whole number within reason."""
        node = self.node(key)
        if node is None:
            return default
        value = node.value if isinstance(node, Scalar) else None
        if isinstance(value, bool) or not isinstance(value, int):
            return self._wrong(key, node, "a whole number", default)
        if not least <= value <= _MAX_WHOLE:
            self.note(
                FindingCode.INVALID_VALUE,
                node.line,
                f"{key!r} is {value}, it takes {least} to {_MAX_WHOLE}",
            )
            return default
        return value

    def choice(self, key: str, choices: type[_Choice], default: _Choice) -> _Choice:
        """One of a closed set of words."""
        node = self.node(key)
        if node is None:
            return default
        text = node.text if isinstance(node, Scalar) else None
        if text is not None and text in choices.__members__.values():
            return choices(text)
        listed = ", ".join(choices)
        self.note(FindingCode.INVALID_VALUE, node.line, f"{key!r} is {text!r}, it takes {listed}")
        return default

    def names(self, key: str) -> tuple[str, ...]:
        """A list of words."""
        node = self.node(key)
        if node is None:
            return ()
        if isinstance(node, Sequence) and all(_is_word(each) for each in node.items):
            return tuple(each.text for each in node.items if isinstance(each, Scalar))
        return self._wrong(key, node, "a list of names", ())

    def items(self, key: str, read: Callable[["Fields"], _Read | None], what: str) -> list[_Read]:
        """A list of mappings, each read on its own; one that is unusable is left out."""
        node = self.node(key)
        if node is None:
            return []
        if isinstance(node, Sequence) and len(node.items) > MAX_ITEMS:
            self.note(FindingCode.TOO_LARGE, node.line, f"{key!r} has over {MAX_ITEMS} {what}s")
            self.ledger.dropped = True
            return []
        if not isinstance(node, Sequence):
            self.ledger.dropped = True
            return self._wrong(key, node, f"a list of {what}s", [])
        found: list[_Read] = []
        for each in node.items:
            if not isinstance(each, Mapped):
                message = f"{key!r} lists {what}s, and this is none"
                self.note(FindingCode.WRONG_TYPE, each.line, message)
                self.ledger.dropped = True
                continue
            one = read(Fields(each, self.ledger, f"a {what}", self.name))
            if one is not None:
                found.append(one)
        return found

    def group(self, key: str) -> "Fields | None":
        """A mapping inside this one."""
        node = self.node(key)
        if node is None:
            return None
        if isinstance(node, Mapped):
            return Fields(node, self.ledger, repr(key), self.name)
        return self._wrong(key, node, "a mapping", None)

    def value(self, key: str) -> object:
        """Any value, as plain data."""
        node = self.node(key)
        return None if node is None else plain(node)

    def finish(self) -> None:
        """Report the fields nobody asked for."""
        for key in self._nodes.keys() - self._asked:
            message = f"{self.what} has no field {key!r}"
            self.note(FindingCode.UNKNOWN_FIELD, self.line_of(key), message)

    def _wrong(self, key: str, node: Node, takes: str, default: _Read) -> _Read:
        self.note(FindingCode.WRONG_TYPE, node.line, f"{key!r} takes {takes}")
        return default


def _is_null(node: Node) -> bool:
    return isinstance(node, Scalar) and node.value is None


def _is_word(node: Node) -> bool:
    return isinstance(node, Scalar) and isinstance(node.value, str) and bool(node.value.strip())
