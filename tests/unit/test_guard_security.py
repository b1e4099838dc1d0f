"""What a hostile contract or a hostile node cannot do with a guard."""

import ast
import inspect
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import pytest

from fsm import guard, guard_grammar, guard_logic, guard_predicates, guard_terms
from fsm.guard import GuardCode, GuardError, parse_guard
from fsm.guard_grammar import MAX_EXPRESSION
from fsm.guard_predicates import MAX_PATTERN, MAX_SUBJECT

GENEROUS_SECONDS = 2.0


@contextmanager
def promptly() -> Iterator[None]:
    started = time.perf_counter()
    yield
    assert time.perf_counter() - started < GENEROUS_SECONDS


def code_of(text: str) -> GuardCode:
    with pytest.raises(GuardError) as caught:
        parse_guard(text)
    return caught.value.code


@pytest.mark.parametrize(
    "pattern",
    [
        "(?=a)b",
        "(?!a)b",
        "(?<=a)b",
        "(?<!a)b",
        r"(a)\1",
        "(?P<n>a)(?P=n)",
        "(?>a+)",
        "a++",
        "(?(1)a|b)",
        "(?#comment)a",
        r"\Z",
        "a{1001}",
        "((a{100}){100}){100}",
        "(?:(?:x?){1000}){1000}",
        "[a-z]{0,1000}" * 15,
        r"(\pL{0,90}\pN?)*$",
        "a" * (MAX_PATTERN + 1),
        "\ud800",
        "a\u00a0b",
    ],
)
def test_patterns_that_are_not_linear_or_too_large_are_refused(pattern: str) -> None:
    with promptly():
        assert code_of(f"x matches {pattern}") is GuardCode.GUARD_INVALID_VALUE


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$",
        "(a*)*$",
        "(a|aa)+$",
        "(a|a?)+$",
        "^(a+)+b",
        "(.*a){1,200}$",
        "(x+x+)+y",
        "([a-zA-Z]+)*$",
        ".*.*.*.*.*.*.*.*=.*",
        "[ab]*a[ab]{900}c",
        "(?i)(a|b|ab)*c",
        "(" * 60 + "a*" + ")*" * 60,
    ],
)
@pytest.mark.parametrize("letters", ["a", "ab", "ax", "é"])
def test_patterns_that_explode_elsewhere_answer_promptly(pattern: str, letters: str) -> None:
    subject = (letters * MAX_SUBJECT)[: MAX_SUBJECT - 1] + "!"
    loaded = parse_guard(f"x matches {pattern}")
    with promptly():
        loaded.evaluate({"x": subject})


def test_a_subject_is_bounded() -> None:
    loaded = parse_guard("x matches a$")
    assert loaded.evaluate({"x": "a" * MAX_SUBJECT})
    with promptly(), pytest.raises(GuardError) as caught:
        loaded.evaluate({"x": "a" * 10_000_000})
    assert caught.value.code is GuardCode.GUARD_EVALUATION_ERROR


def test_a_subject_that_is_not_text_is_an_error_with_a_code() -> None:
    with pytest.raises(GuardError) as caught:
        parse_guard("x matches .").evaluate({"x": "a\ud800"})
    assert caught.value.code is GuardCode.GUARD_EVALUATION_ERROR


@pytest.mark.parametrize(
    "text",
    [
        "x" * 1_000_000,
        "x == " + "9" * 1_000_000,
        "x == 0." + "0" * 1_000_000 + "1",
        "x in [" + "a," * 500_000 + "a]",
        "x in " + "[" * 1_000_000,
        "x " * 500_000,
        "x in [a]" + " b" * 500_000,
        "x == " + "\u202e" * 100_000,
        "x matches " + "(" * 1_000_000,
    ],
)
def test_a_huge_expression_is_refused_promptly_and_shortly(text: str) -> None:
    with promptly(), pytest.raises(GuardError) as caught:
        parse_guard(text)
    assert caught.value.code is GuardCode.GUARD_SYNTAX_ERROR
    assert len(str(caught.value)) < 500


def test_blanks_do_not_count_towards_the_length() -> None:
    assert parse_guard("x" + " " * 10 * MAX_EXPRESSION + "== 3").value == 3


def test_the_longest_number_is_still_a_number() -> None:
    digits = "9" * (MAX_EXPRESSION - len("x<"))
    assert parse_guard(f"x < {digits}").evaluate({"x": 1e308})
    assert code_of(f"x < {'9' * 400}.5") is GuardCode.GUARD_INVALID_VALUE


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true') == 0",
        "x == __import__('os').system('true')",
        "x == (lambda:1)()",
        "x == {}.__class__",
        "x in [__import__('os')]",
        "x == {{7*7}}",
        "x == ${HOME}",
        "x == $(id)",
        "x == `id`",
        "x == a;b",
        "x == %s",
        "x.__class__ exists true",
        "\u2179 == 3",
        "x == \uff54\uff52\uff55\uff45x == \uff13x\x00 == 3",
        "x == \x00",
        "x \u2028== 3",
        "x \uff1d\uff1d 3",
        "x\u200b == 3",
        "\ufeffx == 3",
        "x == \ud83d",
    ],
)
def test_code_and_lookalikes_are_refused(text: str) -> None:
    assert code_of(text)


def test_a_name_from_python_is_only_a_name() -> None:
    assert parse_guard("__class__ exists true").evaluate({}) is False
    assert parse_guard("x == __import__").evaluate({"x": "__import__"})


def test_a_message_shows_no_control_characters_and_no_value_of_the_context() -> None:
    with pytest.raises(GuardError) as caught:
        parse_guard("x\x1b[31m\u202e == 3")
    assert str(caught.value).isprintable()
    with pytest.raises(GuardError) as caught:
        parse_guard("x < 3").evaluate({"x": "hunter2"})
    assert "hunter2" not in str(caught.value)


class Hostile:
    """A value of the context that fails whenever it is asked anything."""

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    def __hash__(self) -> int:
        raise RuntimeError

    def __bool__(self) -> bool:
        raise RuntimeError

    def __repr__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize("text", ["x == 3", "x != a", "x in [a, 1, true]", "x not_in [a]"])
def test_an_alien_value_is_never_called(text: str) -> None:
    parse_guard(text).evaluate({"x": Hostile()})
    parse_guard("x contains a").evaluate({"x": [Hostile(), "a"]})
    with pytest.raises(GuardError):
        parse_guard("x < 3").evaluate({"x": Hostile()})


@pytest.mark.parametrize(
    "module", [guard, guard_grammar, guard_logic, guard_predicates, guard_terms]
)
def test_nothing_is_evaluated_as_python(module: ModuleType) -> None:
    tree = ast.parse(inspect.getsource(module))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert not names & {"eval", "exec", "compile", "__import__", "getattr", "globals"}
