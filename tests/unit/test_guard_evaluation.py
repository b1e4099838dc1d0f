"""What a loaded guard answers, operator by operator and type by type."""

from collections.abc import Mapping
from enum import IntEnum, StrEnum

import pytest

from fsm.guard import GuardCode, GuardError, parse_guard


def failure(text: str, context: Mapping[str, object], strict: bool = False) -> GuardError:
    guard = parse_guard(text)
    with pytest.raises(GuardError) as caught:
        guard.evaluate(context, strict=strict)
    return caught.value


class Phase(StrEnum):
    ACTIVE = "active"


class Level(IntEnum):
    HIGH = 2


@pytest.mark.parametrize(
    ("text", "seen", "holds"),
    [
        ("x == true", True, True),
        ("x == true", False, False),
        ("x == true", 1, False),
        ("x == true", "true", False),
        ("x == false", 0, False),
        ("x == 1", True, False),
        ("x == 3", 3, True),
        ("x == 3", 3.0, True),
        ("x == 3.5", 3.5, True),
        ("x == 3", "3", False),
        ("x == passed", "passed", True),
        ("x == passed", "Passed", False),
        ("x == passed", ["passed"], False),
        ("x == active", Phase.ACTIVE, True),
        ("x == 2", Level.HIGH, True),
        ("x == 3", {"a": 3}, False),
        ("x equals passed", "passed", True),
        ("x != true", 1, True),
        ("x != true", True, False),
        ("x != 3", "3", True),
        ("x != failed", "passed", True),
        ("x not_equals failed", "failed", False),
        ("x < 3", 2, True),
        ("x < 3", 3, False),
        ("x < 3", 2.999, True),
        ("x <= 3", 3, True),
        ("x <= 3", 4, False),
        ("x > 3", 4, True),
        ("x > 3", 3, False),
        ("x >= 3", 3, True),
        ("x >= 3", 2, False),
        ("x < 3", Level.HIGH, True),
        ("x < 3", float("nan"), False),
        ("x > 3", float("inf"), True),
        ("x < 99999999999999999999999", 10**22, True),
        ("x exists true", 0, True),
        ("x exists true", "", True),
        ("x exists true", False, True),
        ("x exists true", [], True),
        ("x exists false", 0, False),
        ("x not_exists true", 0, False),
        ("x not_exists false", 0, True),
        ("x in [a, b]", "a", True),
        ("x in [a, b]", "c", False),
        ("x in [a, 1, true]", 1, True),
        ("x in [a, 1, true]", True, True),
        ("x in [a, 1]", True, False),
        ("x in [a, true]", 1, False),
        ("x in [1.5]", 1.5, True),
        ("x in [1]", "1", False),
        ("x in [a]", ["a"], False),
        ("x not_in [dev, test]", "production", True),
        ("x not_in [dev, test]", "dev", False),
        ("x not_in [1]", True, True),
        ("x not_in [a]", {}, True),
        ("x contains production", ["eu", "production"], True),
        ("x contains production", ("production",), True),
        ("x contains production", {"production"}, True),
        ("x contains production", frozenset(), False),
        ("x contains production", ["productions"], False),
        ("x contains 1", [True], False),
        ("x contains true", [1], False),
        ("x contains 1", [1.0], True),
        ("x matches ^node-.*", "node-7", True),
        ("x matches ^node-.*", "a-node-7", False),
        ("x matches node", "a-node-7", True),
        ("x matches .*_test$", "unit_test", True),
        ("x matches .*_test$", "unit_tests", False),
        (r"x matches ^v[0-9]+\.[0-9]+\.[0-9]+$", "v1.2.3", True),
        (r"x matches ^v[0-9]+\.[0-9]+\.[0-9]+$", "v1.2.3\n", False),
        ("x matches ^prod", "Production", False),
        ("x matches (?i)^production", "PRODUCTION-eu", True),
        ("x matches ^[a-z][a-z0-9_]*$", "node_7", True),
        ("x matches ^[a-z][a-z0-9_]*$", "7node", False),
        ("x matches ^.$", "é", True),
        ("x matches true", "true", True),
        ("x matches ^active$", Phase.ACTIVE, True),
    ],
)
def test_answers(text: str, seen: object, holds: bool) -> None:
    guard = parse_guard(text)
    assert guard.evaluate({"x": seen}) is holds
    assert guard.evaluate({"x": seen}, strict=True) is holds


ABSENT: list[Mapping[str, object]] = [{}, {"x": None}, {"X": 3}]


@pytest.mark.parametrize("context", ABSENT)
@pytest.mark.parametrize(
    "text",
    [
        "x == 3",
        "x != 3",
        "x equals a",
        "x not_equals a",
        "x < 3",
        "x > 3",
        "x <= 3",
        "x >= 3",
        "x in [a]",
        "x not_in [a]",
        "x contains a",
        "x matches a",
    ],
)
def test_an_undefined_field_blocks_and_is_an_error_when_strict(
    text: str, context: Mapping[str, object]
) -> None:
    assert parse_guard(text).evaluate(context) is False
    error = failure(text, context, strict=True)
    assert error.code is GuardCode.GUARD_FIELD_UNDEFINED
    assert "'x'" in error.message


@pytest.mark.parametrize("context", ABSENT)
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("x exists true", False),
        ("x exists false", True),
        ("x not_exists true", True),
        ("x not_exists false", False),
    ],
)
def test_existence_is_never_an_error(
    text: str, holds: bool, strict: bool, context: Mapping[str, object]
) -> None:
    assert parse_guard(text).evaluate(context, strict=strict) is holds


@pytest.mark.parametrize(
    ("text", "seen", "kind"),
    [
        *[
            (f"x {operator} 3", seen, kind)
            for operator in ("<", ">", "<=", ">=")
            for seen, kind in [
                ("3", "a string"),
                (True, "a boolean"),
                (False, "a boolean"),
                ([3], "an array"),
                ({"count": 3}, "an object"),
                (object(), "an object"),
            ]
        ],
        ("x contains a", "abc", "a string"),
        ("x contains a", {"a": 1}, "an object"),
        ("x contains 1", 1, "a number"),
        ("x matches a", 3, "a number"),
        ("x matches a", ["a"], "an array"),
        ("x matches a", b"a", "an object"),
    ],
)
def test_types_that_do_not_compare(text: str, seen: object, kind: str) -> None:
    error = failure(text, {"x": seen})
    assert error.code is GuardCode.GUARD_TYPE_ERROR
    assert error.message.startswith(f"Field 'x' is {kind}, ")
