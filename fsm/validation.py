"""Validation rules: what a state asks of its data, in a syntax of their own compiled at load."""

import operator as compare
import re
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass

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

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.right}"

    def holds(self, context: Mapping[str, object]) -> bool:
        """Whether the context satisfies the rule; never raises."""
        left, right = _value(self.left, context), _value(self.right, context)
        if self.operator == "==":
            return _same(left, right)
        if self.operator == "!=":
            return not _same(left, right)
        if _is_number(left) and _is_number(right):
            return _ORDER[self.operator](left, right)  # type: ignore[arg-type]
        return False


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


def missing_fields(names: tuple[str, ...], context: Mapping[str, object]) -> tuple[str, ...]:
    """Those of the names that are absent or null."""
    return tuple(name for name in names if context.get(name) is None)


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


def _value(operand: Operand, context: Mapping[str, object]) -> object:
    if isinstance(operand, Literal):
        return operand.value
    value = context.get(operand.name)
    if not operand.length:
        return value
    return len(value) if isinstance(value, Sized) else None


def _same(left: object, right: object) -> bool:
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    return left == right


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _refused(text: str, why: str) -> RuleError:
    shown = text if len(text) <= 80 else f"{text[:77]}..."
    return RuleError(f"Validation rule {shown!r} cannot be read: {why}", "see the contract guide")
