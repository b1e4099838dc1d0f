"""What a guard's operator asks of a value that is there, as closures compiled once at load."""

import operator as comparisons
from collections.abc import Callable
from typing import Any, TypeGuard, assert_never

import re2

from fsm.guard_grammar import invalid_value, printed
from fsm.guard_terms import GuardCode, GuardError, Operator, Scalar, Value, kind_of

MAX_PATTERN = 256
MAX_SUBJECT = 4096
MAX_SEARCH = 1 << 22
PATTERN_MEMORY_BYTES = 1 << 18

_NUMBERS = (int, float)

Predicate = Callable[[object], bool]


def predicate(field: str, operator: Operator, value: Value) -> Predicate:
    """The operator's question with its value bound, or GUARD_INVALID_VALUE if they do not fit."""
    match operator:
        case Operator.EQ | Operator.EQUALS:
            return _equality(_scalar(operator, value))
        case Operator.NE | Operator.NOT_EQUALS:
            equal = _equality(_scalar(operator, value))
            return lambda seen: not equal(seen)
        case Operator.LT:
            return _ordering(field, operator, value, comparisons.lt)
        case Operator.GT:
            return _ordering(field, operator, value, comparisons.gt)
        case Operator.LE:
            return _ordering(field, operator, value, comparisons.le)
        case Operator.GE:
            return _ordering(field, operator, value, comparisons.ge)
        case Operator.EXISTS:
            return _presence(operator, value, wanted=True)
        case Operator.NOT_EXISTS:
            return _presence(operator, value, wanted=False)
        case Operator.IN:
            return _membership(operator, value)
        case Operator.NOT_IN:
            member = _membership(operator, value)
            return lambda seen: not member(seen)
        case Operator.CONTAINS:
            return _containment(field, _scalar(operator, value))
        case Operator.MATCHES:
            return _matching(field, value)
        case _:
            assert_never(operator)


def _is_number(seen: object) -> TypeGuard[int | float]:
    return isinstance(seen, _NUMBERS) and seen is not True and seen is not False


def _scalar(operator: Operator, value: Value) -> Scalar:
    if isinstance(value, tuple):
        raise invalid_value(printed(value), f"'{operator}' takes a boolean, a number or a string")
    return value


def _equality(wanted: Scalar) -> Predicate:
    """Strict: a value of another type is simply not equal, and `true` is not 1."""
    if isinstance(wanted, bool):
        return lambda seen: seen is wanted
    if isinstance(wanted, str):
        return lambda seen: isinstance(seen, str) and seen == wanted
    return lambda seen: _is_number(seen) and seen == wanted


def _ordering(
    field: str,
    operator: Operator,
    value: Value,
    compare: Callable[[float, float], bool],
) -> Predicate:
    if not _is_number(value):
        raise invalid_value(printed(value), f"'{operator}' takes a number")
    limit = value

    def ordered(seen: object) -> bool:
        if _is_number(seen):
            return compare(seen, limit)
        raise _type_error(field, operator, "a number", seen)

    return ordered


def _presence(operator: Operator, value: Value, wanted: bool) -> Predicate:
    if not isinstance(value, bool):
        raise invalid_value(printed(value), f"'{operator}' takes true or false")
    present = value is wanted
    return lambda seen: (seen is not None) is present


def _membership(operator: Operator, value: Value) -> Predicate:
    if not isinstance(value, tuple):
        raise invalid_value(printed(value), f"'{operator}' takes an array such as [a, b]")
    booleans = frozenset(each for each in value if isinstance(each, bool))
    numbers = frozenset(each for each in value if _is_number(each))
    strings = frozenset(each for each in value if isinstance(each, str))

    def member(seen: object) -> bool:
        if isinstance(seen, str):
            return seen in strings
        if isinstance(seen, bool):
            return seen in booleans
        return _is_number(seen) and seen in numbers

    return member


def _containment(field: str, wanted: Scalar) -> Predicate:
    equal = _equality(wanted)

    def contained(seen: object) -> bool:
        if isinstance(seen, list | tuple | set | frozenset):
            return any(map(equal, seen))
        raise _type_error(field, Operator.CONTAINS, "an array", seen)

    return contained


def _matching(field: str, value: Value) -> Predicate:
    if not isinstance(value, str):
        raise invalid_value(printed(value), "'matches' takes a pattern")
    pattern = _compiled(value)
    search = pattern.search
    longest = max(MAX_SUBJECT, MAX_SEARCH // pattern.programsize)

    def matched(seen: object) -> bool:
        if not isinstance(seen, str):
            raise _type_error(field, Operator.MATCHES, "a string", seen)
        if len(seen) > longest:
            raise GuardError(
                GuardCode.GUARD_EVALUATION_ERROR,
                f"Field '{field}' is too long for 'matches'",
                f"at most {longest} characters are searched",
            )
        try:
            return search(seen.encode()) is not None
        except UnicodeEncodeError:
            raise GuardError(
                GuardCode.GUARD_EVALUATION_ERROR,
                f"Field '{field}' is not valid text",
                "lone surrogates cannot be searched",
            ) from None

    return matched


def _compiled(pattern: str) -> Any:
    """re2 runs in linear time; the bounds keep the constant small (docs/adr/003)."""
    if len(pattern) > MAX_PATTERN:
        raise invalid_value(pattern, f"a pattern has at most {MAX_PATTERN} characters")
    if len(pattern) > 1 and pattern[0] == pattern[-1] and pattern[0] in "'\"":
        raise invalid_value(pattern, "patterns should not be quoted")
    if any(map(str.isspace, pattern)):
        raise invalid_value(pattern, "a pattern holds no whitespace: write \\s")
    options = re2.Options()
    options.never_capture = True
    options.log_errors = False
    options.max_mem = PATTERN_MEMORY_BYTES
    try:
        return re2.compile(pattern.encode(), options)
    except UnicodeEncodeError:
        raise invalid_value(pattern, "lone surrogates cannot be searched") from None
    except re2.error as refusal:
        reason = refusal.args[0].decode(errors="replace")
        raise invalid_value(
            pattern, f"patterns are RE2's, without lookaround and backreferences: {reason}"
        ) from None


def _type_error(field: str, operator: Operator, wanted: str, seen: object) -> GuardError:
    return GuardError(
        GuardCode.GUARD_TYPE_ERROR,
        f"Field '{field}' is {kind_of(seen)}, '{operator}' compares {wanted}",
        "fix the context's data or the guard",
    )
