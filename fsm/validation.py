"""Validation rules: what a state asks of its data, in a syntax of their own compiled at load."""

import operator as compare
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeGuard, assert_never

from models.errors import RollcallError

_MAX_RULE = 512
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LENGTH = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\.length")
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}(?:\.[0-9]{1,18})?")
_QUOTED = re.compile(r"'([^'\s]*)'|\"([^\"\s]*)\"")
_WORDS: Mapping[str, bool | None] = {"null": None, "true": True, "false": False}
_ORDER: Mapping[str, Callable[[float, float], bool]] = {
    "<": compare.lt,
    ">": compare.gt,
    "<=": compare.le,
    ">=": compare.ge,
}
_NUMBERS = (int, float)
_SIZED = (str, list, dict, tuple)
_OPERATORS = ("==", "!=", *_ORDER)


class RuleError(RollcallError):
    """A validation rule that cannot be read."""


@dataclass(frozen=True, slots=True)
class Field:
    """A context field, or with `length` how long it is."""

    name: str
    length: bool = False

    def __str__(self) -> str:
        return f"{self.name}.length" if self.length else self.name


@dataclass(frozen=True, slots=True)
class Literal:
    """A value the rule itself names."""

    value: bool | int | float | str | None

    def __str__(self) -> str:
        match self.value:
            case None:
                return "null"
            case bool():
                return "true" if self.value else "false"
            case str():
                return f"'{self.value}'"
            case _:
                return str(self.value)


Operand = Field | Literal


@dataclass(frozen=True, slots=True)
class Rule:
    """One comparison. An absent field is null; what cannot be compared does not hold."""

    left: Field
    operator: str
    right: Operand
    holds: Callable[[Mapping[str, object]], bool] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "holds", _compiled(self.left, self.operator, self.right))

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.right}"


def parse_rule(text: str) -> Rule:
    """The rule a contract wrote: field, operator, then null, a literal or another field."""
    tokens = text.split()
    if len(text) > _MAX_RULE or len(tokens) != 3:
        raise _refused(text, "it takes three words: field, operator, value")
    name, operator, literal = tokens
    left = _operand(name)
    if not isinstance(left, Field):
        raise _refused(text, f"{name!r} is not a field")
    if operator not in _OPERATORS:
        raise _refused(text, f"{operator!r} is none of {' '.join(_OPERATORS)}")
    right = _operand(literal)
    if right is None:
        raise _refused(text, f"{literal!r} is neither a field nor a value")
    if operator in _ORDER and isinstance(right, Literal) and not _is_number(right.value):
        raise _refused(text, f"{literal!r} has no order")
    return Rule(left, operator, right)


def satisfied(
    required: tuple[str, ...], rules: tuple[Rule, ...], context: Mapping[str, object]
) -> bool:
    """Whether no required field is absent or null and every rule holds."""
    for name in required:
        if context.get(name) is None:
            return False
    return all([rule.holds(context) for rule in rules])


def _operand(token: str) -> Operand | None:
    if token in _WORDS:
        return Literal(_WORDS[token])
    if length := _LENGTH.fullmatch(token):
        return Field(length.group(1), length=True)
    if _FIELD.fullmatch(token):
        return Field(token)
    if _NUMBER.fullmatch(token):
        return Literal(float(token) if "." in token else int(token))
    if quoted := _QUOTED.fullmatch(token):
        return Literal(quoted.group(1) if quoted.group(1) is not None else quoted.group(2))
    return None


def _compiled(left: Field, operator: str, right: Operand) -> Callable[[Mapping[str, object]], bool]:
    """The comparison as a closure over readers of both sides; it never raises."""
    read_left, read_right = _reader(left), _reader(right)
    if operator == "==":
        return lambda context: _same(read_left(context), read_right(context))
    if operator == "!=":
        return lambda context: not _same(read_left(context), read_right(context))
    ordered = _ORDER[operator]

    def in_order(context: Mapping[str, object]) -> bool:
        one, other = read_left(context), read_right(context)
        return _is_number(one) and _is_number(other) and ordered(one, other)

    return in_order


def _reader(operand: Operand) -> Callable[[Mapping[str, object]], object]:
    match operand:
        case Literal(value):
            return lambda context: value
        case Field(name, length=False):
            return lambda context: context.get(name)
        case Field(name):
            return lambda context: _length(context.get(name))
        case _:
            assert_never(operand)


def _length(value: object) -> int | None:
    return len(value) if isinstance(value, _SIZED) else None


def _same(left: object, right: object) -> bool:
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return left == right


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, _NUMBERS) and value is not True and value is not False


def _refused(text: str, why: str) -> RuleError:
    shown = text if len(text) <= 80 else f"{text[:77]}..."
    return RuleError(f"Validation rule {shown!r} cannot be read: {why}", "see the contract guide")
