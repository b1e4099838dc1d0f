"""The guard language's text: the only reader of `field operator value`, and its printer."""

import math
import re
from decimal import Decimal

from fsm.guard_terms import GuardCode, GuardError, Operator, Scalar, Value, shown

MAX_EXPRESSION = 4096

_MARGIN = " \t\r\n"
_TOKEN = re.compile(r"[^ \t]+")
_THREE_PARTS = re.compile(r"([^ \t]+)[ \t]+([^ \t]+)[ \t]+([^ \t].*)", re.DOTALL)
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FOREIGN = re.compile(r"[^A-Za-z0-9_]")
_NUMBER = re.compile(r"([+-]?[0-9]+)(?:\.([0-9]+))?")
_EXPONENT = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?[eE][+-]?[0-9]+")
_STRING = re.compile(r"[A-Za-z0-9_]+")


def read(text: str) -> tuple[str, Operator, Value]:
    """The parts of a guard, checked in reading order, so that the first mistake is the one told."""
    name, symbol, literal = _tokens(text)
    _check_field(name)
    operator = _operator(symbol)
    if operator is Operator.MATCHES:
        return name, operator, literal
    if literal.startswith("["):
        return name, operator, _array(literal)
    return name, operator, _scalar(literal)


def printed(value: Value) -> str:
    """The literal that reads back as this value."""
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return format(Decimal(repr(value)), "f")
        case tuple():
            return f"[{', '.join(printed(each) for each in value)}]"
        case _:
            return str(value)


def invalid_value(literal: str, remedy: str) -> GuardError:
    """The refusal of a literal, worded alike by the grammar and by the operators."""
    message = f"Invalid value '{shown(literal)}'"
    return GuardError(GuardCode.GUARD_INVALID_VALUE, message, remedy)


def _tokens(text: str) -> tuple[str, str, str]:
    trimmed = text.strip(_MARGIN)
    if not text:
        raise _syntax_error("Expression is empty")
    if not trimmed:
        raise _syntax_error("Expression is empty after trimming whitespace")
    if len(trimmed.replace(" ", "")) > MAX_EXPRESSION:
        raise _syntax_error(f"Expression has more than {MAX_EXPRESSION} characters")
    parts = _THREE_PARTS.fullmatch(trimmed)
    if parts and parts[3].startswith("[") and parts[2] != Operator.MATCHES:
        tokens = [parts[1], parts[2], *_array_tokens(parts[3])]
    else:
        tokens = _TOKEN.findall(trimmed)
    match tokens:
        case [name, symbol, literal]:
            return name, symbol, literal
        case [only]:
            raise _syntax_error(f"Expression '{shown(only)}' has 1 token(s), expected exactly 3")
        case _:
            raise _syntax_error(f"Expression has {len(tokens)} token(s), expected exactly 3")


def _syntax_error(message: str) -> GuardError:
    remedy = "write field, operator and value with blanks between them"
    return GuardError(GuardCode.GUARD_SYNTAX_ERROR, message, remedy)


def _array_tokens(text: str) -> list[str]:
    """An array is one token, blanks and all; what follows its bracket is counted as usual."""
    closing = text.rfind("]")
    if closing < 0:
        return [text]
    attached, _, rest = text[closing + 1 :].replace("\t", " ").partition(" ")
    return [text[: closing + 1] + attached, *_TOKEN.findall(rest)]


def _check_field(name: str) -> None:
    if _FIELD.fullmatch(name):
        return
    foreign = _FOREIGN.search(name)
    if foreign:
        message = f"contains invalid character '{shown(foreign.group())}'"
        remedy = "a field is one top-level name of letters, digits and underscores"
    elif name.isdigit():
        message, remedy = "is not a valid identifier", "a number is not a field"
    else:
        message, remedy = "is not a valid identifier", "cannot start with digit"
    raise GuardError(GuardCode.GUARD_INVALID_FIELD, f"Field name '{shown(name)}' {message}", remedy)


def _operator(symbol: str) -> Operator:
    try:
        return Operator(symbol)
    except ValueError:
        message = f"Unknown operator '{shown(symbol)}'"
        meant = _meant(symbol)
        remedy = f"did you mean '{meant}'?" if meant else f"valid: {', '.join(Operator)}"
        raise GuardError(GuardCode.GUARD_INVALID_OPERATOR, message, remedy) from None


def _meant(symbol: str) -> Operator | None:
    match symbol.lower():
        case "like" | "=~":
            return Operator.MATCHES
        case "=" | "===":
            return Operator.EQ
        case "<>" | "!==":
            return Operator.NE
        case lowered:
            return next((each for each in Operator if each == lowered), None)


def _array(literal: str) -> tuple[Scalar, ...]:
    if not literal.endswith("]"):
        if "]" in literal:
            raise invalid_value(literal, "nothing may follow the array's bracket")
        raise GuardError(
            GuardCode.GUARD_INVALID_VALUE,
            f"Unclosed array bracket in value '{shown(literal)}'",
            "an array is written [a, b]",
        )
    items = [item.strip(_MARGIN) for item in literal[1:-1].split(",")]
    if not all(items):
        raise invalid_value(literal, "an array holds at least one value, and none that is empty")
    return tuple(_scalar(item) for item in items)


def _scalar(literal: str) -> Scalar:
    lowered = literal.lower()
    if literal in ("true", "false"):
        return literal == "true"
    if lowered in ("true", "false"):
        raise GuardError(
            GuardCode.GUARD_INVALID_VALUE,
            f"Invalid boolean value '{literal}'",
            "must be lowercase 'true' or 'false'",
        )
    if lowered == "null":
        raise invalid_value(literal, "use 'exists' operator for null checks")
    if lowered == "undefined":
        raise invalid_value(literal, "use 'exists' operator for presence checks")
    if literal[0] in "'\"" or literal[-1] in "'\"":
        raise invalid_value(literal, "string values should not be quoted")
    if number := _NUMBER.fullmatch(literal):
        return _number(literal, number[1], number[2])
    if _EXPONENT.fullmatch(literal):
        raise invalid_value(literal, "scientific notation is not supported")
    if _STRING.fullmatch(literal):
        return literal
    raise invalid_value(literal, "a string is letters, digits and underscores only")


def _number(literal: str, whole: str, fraction: str | None) -> int | float:
    """One number has one form: what is whole is an int, so that 3, 3.0 and +3 are equal guards."""
    if not (fraction or "").strip("0"):
        return int(whole)
    number = float(literal)
    if math.isinf(number):
        raise invalid_value(literal, "the number is too large")
    return int(number) if number.is_integer() else number
