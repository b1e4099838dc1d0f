"""The guard language's vocabulary: what a guard can ask, of what, and how it says no."""

from enum import StrEnum

from models.errors import RollcallError

Scalar = bool | int | float | str
Value = Scalar | tuple[Scalar, ...]

_SHOWN_CHARACTERS = 80


class GuardCode(StrEnum):
    """What is wrong with a guard: the first four when it is loaded, the others when it is asked."""

    GUARD_SYNTAX_ERROR = "GUARD_SYNTAX_ERROR"
    GUARD_INVALID_FIELD = "GUARD_INVALID_FIELD"
    GUARD_INVALID_OPERATOR = "GUARD_INVALID_OPERATOR"
    GUARD_INVALID_VALUE = "GUARD_INVALID_VALUE"
    GUARD_TYPE_ERROR = "GUARD_TYPE_ERROR"
    GUARD_EVALUATION_ERROR = "GUARD_EVALUATION_ERROR"
    GUARD_FIELD_UNDEFINED = "GUARD_FIELD_UNDEFINED"


class GuardError(RollcallError):
    """A guard that cannot be loaded or cannot be answered; it never tells a context's values."""

    def __init__(self, code: GuardCode, message: str, remedy: str) -> None:
        super().__init__(message, remedy)
        self.code = code


class Operator(StrEnum):
    """Everything a guard can ask, in the order in which a refusal lists it."""

    EQ = "=="
    NE = "!="
    LT = "<"
    GT = ">"
    LE = "<="
    GE = ">="
    EQUALS = "equals"
    NOT_EQUALS = "not_equals"
    EXISTS = "exists"
    NOT_EXISTS = "not_exists"
    IN = "in"
    NOT_IN = "not_in"
    CONTAINS = "contains"
    MATCHES = "matches"


def kind_of(value: object) -> str:
    """A type as its messages name it: they speak of the language's types, not of Python's."""
    match value:
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list() | tuple() | set() | frozenset():
            return "an array"
        case _:
            return "an object"


def shown(text: str) -> str:
    """Text fit for a message: one line, no control characters, not too long."""
    cut = text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in cut
    )
