"""What the source of a handler must not do, by its role: I/O, clocks, chance, publishing.

Found by reading, never by running. An import that is not known to be pure counts as I/O, so that
a new library is judged once, here, instead of slipping in.
"""

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from types import MappingProxyType

from models.output import CONTEXTS, RETURNS, HandlerOutput, Role

PURE_MODULES = frozenset(
    {
        "__future__",
        "abc",
        "base64",
        "bisect",
        "collections",
        "contextlib",
        "copy",
        "dataclasses",
        "datetime",
        "decimal",
        "enum",
        "fractions",
        "functools",
        "hashlib",
        "heapq",
        "ipaddress",
        "itertools",
        "json",
        "math",
        "numbers",
        "operator",
        "re",
        "statistics",
        "string",
        "textwrap",
        "types",
        "typing",
        "unicodedata",
        "uuid",
        "zlib",
        "fsm",
        "models",
        "pydantic",
    }
)
IMPURE_PARTS = (
    "models.tables",
    "models.migrations",
    "fsm.contract_yaml",
    "fsm.library.load_machine",
    "fsm.library.load_library",
)
CLOCK_MODULES = frozenset({"time"})
CHANCE_MODULES = frozenset({"random", "secrets"})
CLOCKS = frozenset(
    {
        "datetime.datetime.now",
        "datetime.datetime.utcnow",
        "datetime.datetime.today",
        "datetime.date.today",
    }
)
CLOCK_CALLS = frozenset({"now", "utcnow", "today"})
CHANCES = frozenset({"uuid.uuid1", "uuid.uuid4"})
IO_NAMES = frozenset(
    {"open", "input", "print", "eval", "exec", "compile", "breakpoint", "__import__"}
)
PUBLISHING = frozenset({"delay", "apply_async", "send_task", "publish", "ring"})
NOW = "now"
_PURE_ROLES = frozenset({Role.ORCHESTRATOR, Role.REDUCER})
_CLOCKED_CONTEXTS = frozenset(
    kind.__name__ for kind in CONTEXTS.values() if NOW in {each.name for each in fields(kind)}
)
_OUTPUT = HandlerOutput.__name__
_PARTS = tuple(each.name for each in fields(HandlerOutput))
_FORBIDDEN_PARTS: Mapping[Role, frozenset[str]] = MappingProxyType(
    {role: frozenset({"events", "intents", "projections"}) - RETURNS[role] for role in Role}
)


class Rule(StrEnum):
    """What a handler's source can break."""

    SYNTAX = "syntax"
    IO = "io"
    CLOCK = "clock"
    CHANCE = "chance"
    PUBLISH = "publish"
    NOW = "now"
    OUTPUT = "output"


@dataclass(frozen=True, slots=True, order=True)
class Violation:
    """One place in a source that breaks a rule."""

    file: str
    line: int
    rule: Rule
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.rule.value} {self.message}"


Found = Iterator[tuple[Rule, str]]
Check = Callable[[ast.AST, Role, Mapping[str, str]], Found]


def violations(source: str, role: Role, file: str = "<source>") -> tuple[Violation, ...]:
    """Every rule the source breaks in that role, from its top to its bottom."""
    try:
        tree = ast.parse(source, file)
    except (SyntaxError, ValueError) as error:
        line = error.lineno if isinstance(error, SyntaxError) and error.lineno else 1
        return (Violation(file, line, Rule.SYNTAX, f"cannot be read: {error}"),)
    names = _imported(tree)
    found = {
        Violation(file, getattr(node, "lineno", 1), rule, message)
        for node in ast.walk(tree)
        for check in _CHECKS
        for rule, message in check(node, role, names)
    }
    return tuple(sorted(found))


def _imported(tree: ast.AST) -> dict[str, str]:
    """What each imported name stands for, in full."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                for each in node.names:
                    root = each.name.partition(".")[0]
                    names[each.asname or root] = each.name if each.asname else root
            case ast.ImportFrom(module=str(module)):
                names |= {each.asname or each.name: f"{module}.{each.name}" for each in node.names}
            case _:
                pass
    return names


def _full(node: ast.AST, names: Mapping[str, str]) -> str:
    """The full name of an imported thing, or nothing."""
    match node:
        case ast.Name():
            return names.get(node.id, "")
        case ast.Attribute():
            owner = _full(node.value, names)
            return owner and f"{owner}.{node.attr}"
        case _:
            return ""


def _last(node: ast.AST) -> str:
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            return node.attr
        case _:
            return ""


def _imports(node: ast.AST, role: Role, names: Mapping[str, str]) -> Found:
    if role not in _PURE_ROLES:
        return
    match node:
        case ast.Import():
            modules = [each.name for each in node.names]
        case ast.ImportFrom(level=0, module=str(module)):
            modules = [f"{module}.{each.name}" for each in node.names]
        case ast.ImportFrom():
            yield Rule.IO, "imports relatively: what it imports cannot be judged"
            return
        case _:
            return
    for module in modules:
        root = module.partition(".")[0]
        if root in CLOCK_MODULES:
            yield Rule.CLOCK, f"imports {root}"
        elif root in CHANCE_MODULES:
            yield Rule.CHANCE, f"imports {root}"
        elif root not in PURE_MODULES:
            yield Rule.IO, f"imports {root}, which is not known to be pure"
        elif any(f"{module}.".startswith(f"{part}.") for part in IMPURE_PARTS):
            yield Rule.IO, f"imports {module}, which does I/O"


def _io(node: ast.AST, role: Role, names: Mapping[str, str]) -> Found:
    if role in _PURE_ROLES and isinstance(node, ast.Name) and node.id in IO_NAMES:
        yield Rule.IO, f"uses {node.id}"


def _clock(node: ast.AST, role: Role, names: Mapping[str, str]) -> Found:
    if role not in _PURE_ROLES:
        return
    full = _full(node, names)
    if full in CLOCKS or full.partition(".")[0] in CLOCK_MODULES:
        yield Rule.CLOCK, f"reads {full}"
    elif full in CHANCES or full.partition(".")[0] in CHANCE_MODULES:
        yield Rule.CHANCE, f"uses {full}"
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in CLOCK_CALLS and _full(node.func, names) not in CLOCKS:
            yield Rule.CLOCK, f"calls {node.func.attr}()"
    elif _fetched(node) in CLOCK_CALLS:
        yield Rule.CLOCK, f"fetches {_fetched(node)} by name"


def _publishing(node: ast.AST, role: Role, names: Mapping[str, str]) -> Found:
    called = _last(node.func) if isinstance(node, ast.Call) else ""
    if called in PUBLISHING:
        yield Rule.PUBLISH, f"calls {called}(): only the runtime publishes"
    elif _fetched(node) in PUBLISHING:
        yield Rule.PUBLISH, f"fetches {_fetched(node)} by name: only the runtime publishes"
    elif isinstance(node, ast.ImportFrom):
        for each in node.names:
            if each.name in PUBLISHING:
                yield Rule.PUBLISH, f"imports {each.name}: only the runtime publishes"


def _fetched(node: ast.AST) -> str:
    """The attribute a getattr asks for, where it is written out."""
    match node:
        case ast.Call(func=ast.Name(id="getattr"), args=[_, ast.Constant(value=str(name)), *_]):
            return name
        case _:
            return ""


def _now(node: ast.AST, role: Role, names: Mapping[str, str]) -> Found:
    if role is not Role.REDUCER:
        return
    match node:
        case ast.Name(id=word) | ast.Attribute(attr=word) | ast.arg(arg=word):
            pass
        case ast.keyword(arg=str(word)) | ast.alias(name=word) | ast.Constant(value=str(word)):
            pass
        case _:
            return
    if word == NOW:
        yield Rule.NOW, "mentions now: a reducer has emitted_at and no other time"
    elif word in _CLOCKED_CONTEXTS:
        yield Rule.NOW, f"mentions {word}, which has now"


def _outputs(node: ast.AST, role: Role, names: Mapping[str, str]) -> Found:
    if not isinstance(node, ast.Call):
        return
    called = (_full(node.func, names) or _last(node.func)).rpartition(".")[2]
    if called not in {_OUTPUT, "replace"}:
        return
    given = {each.arg: each.value for each in node.keywords if each.arg is not None}
    if called == _OUTPUT:
        given |= dict(zip(_PARTS, node.args, strict=False))
        hidden = any(each.arg is None for each in node.keywords)
        if hidden or any(isinstance(each, ast.Starred) for each in node.args):
            yield Rule.OUTPUT, f"hides the parts of its {_OUTPUT} behind a star"
    for part in sorted(_FORBIDDEN_PARTS[role] & given.keys()):
        if not (isinstance(given[part], ast.Tuple) and ast.unparse(given[part]) == "()"):
            allowed = " and ".join(sorted(RETURNS[role]))
            yield Rule.OUTPUT, f"returns {part}: this role returns {allowed} only"


_CHECKS: tuple[Check, ...] = (_imports, _io, _clock, _publishing, _now, _outputs)
