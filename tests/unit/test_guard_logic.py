"""Whether guards can hold together, compared with trying every value."""

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsm.guard import Guard, GuardError, parse_guard
from fsm.guard_logic import contradicts, may_overlap

SCALARS = ["true", "false", "-1", "0", "0.5", "1", "2", "a", "b", "node"]
NUMBERS = ["-1", "0", "0.5", "1", "2"]
PATTERNS = ["^a", "^b$", "^no", "^noo*d", "^node", "^(a|b)$", "a|b", "(?i)^A", "^b?", "de$", "."]

guard_texts = st.one_of(
    st.builds(
        "x {} {}".format,
        st.sampled_from(["==", "!=", "equals", "not_equals", "contains"]),
        st.sampled_from(SCALARS),
    ),
    st.builds("x {} {}".format, st.sampled_from(["<", ">", "<=", ">="]), st.sampled_from(NUMBERS)),
    st.builds(
        "x {} {}".format,
        st.sampled_from(["exists", "not_exists"]),
        st.sampled_from(["true", "false"]),
    ),
    st.builds(
        lambda operator, items: f"x {operator} [{', '.join(items)}]",
        st.sampled_from(["in", "not_in"]),
        st.lists(st.sampled_from(SCALARS), min_size=1, max_size=4),
    ),
)
plain_guards = guard_texts.map(parse_guard)
pattern_guards = st.sampled_from(PATTERNS).map(lambda pattern: parse_guard(f"x matches {pattern}"))

EVERY_SCALAR: list[object] = [
    True,
    False,
    *(quarter / 4 for quarter in range(-12, 17)),
    *["", "a", "b", "A", "no", "nod", "nood", "node", "xa", "de", "other"],
]
EVERY_ARRAY: list[object] = [[], ["a"], EVERY_SCALAR]
EVERY_VALUE: list[object] = [None, *EVERY_SCALAR, *EVERY_ARRAY, {}]


def hold(guards: Iterable[Guard], value: object) -> bool:
    try:
        return all(guard.evaluate({"x": value}) for guard in guards)
    except GuardError:
        return False


def some_value_satisfies(guards: list[Guard]) -> bool:
    return any(hold(guards, value) for value in EVERY_VALUE)


@settings(max_examples=500)
@given(st.lists(plain_guards, max_size=5))
def test_without_patterns_the_answer_is_exact(guards: list[Guard]) -> None:
    assert contradicts(guards) is not some_value_satisfies(guards)


@settings(max_examples=500)
@given(st.lists(st.one_of(plain_guards, pattern_guards), max_size=4))
def test_guards_that_some_value_satisfies_are_never_called_contradictory(
    guards: list[Guard],
) -> None:
    if some_value_satisfies(guards):
        assert not contradicts(guards)


@given(st.one_of(plain_guards, pattern_guards), st.one_of(plain_guards, pattern_guards))
def test_overlap_is_symmetric_and_false_only_for_disjoint_guards(a: Guard, b: Guard) -> None:
    assert may_overlap(a, b) is may_overlap(b, a)
    if some_value_satisfies([a, b]):
        assert may_overlap(a, b)


@given(pattern_guards, st.text(max_size=8))
def test_a_pattern_overlaps_itself_and_whatever_it_matches(guard: Guard, subject: str) -> None:
    assert may_overlap(guard, guard)
    for other in PATTERNS:
        pattern = parse_guard(f"x matches {other}")
        if hold([guard, pattern], subject):
            assert may_overlap(guard, pattern)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("retry_count < 3", "retry_count >= 3"),
        ("retry_count < 3", "retry_count > 3"),
        ("retry_count == 3", "retry_count < 3"),
        ("applied == true", "applied == false"),
        ("applied == true", "applied == 1"),
        ("applied == true", "applied != true"),
        ("applied == true", "applied < 1"),
        ("result == passed", "result equals failed"),
        ("result in [a, b]", "result in [c, d]"),
        ("result in [a, b]", "result == c"),
        ("result in [a]", "result not_in [a, b]"),
        ("result in [a, b]", "result matches ^c"),
        ("error exists true", "error exists false"),
        ("error exists true", "error not_exists true"),
        ("error not_exists true", "error != a"),
        ("tags contains a", "tags == a"),
        ("tags contains a", "tags matches a"),
        ("tags contains 1", "tags > 0"),
        ("name matches ^node-", "name matches ^edge-"),
        ("name matches ^node-.*", "name matches ^nope?x"),
    ],
)
def test_disjoint(a: str, b: str) -> None:
    assert not may_overlap(parse_guard(a), parse_guard(b))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("retry_count < 3", "retry_count <= 0"),
        ("retry_count <= 3", "retry_count >= 3"),
        ("retry_count > 2", "retry_count < 3"),
        ("retry_count < 3", "postgres_applied == true"),
        ("retry_count < 3", "retries >= 3"),
        ("applied != true", "applied != false"),
        ("result in [a, b]", "result in [b, c]"),
        ("result == node_1", "result matches ^node"),
        ("error exists false", "error not_exists true"),
        ("tags contains a", "tags contains b"),
        ("tags contains a", "tags != a"),
        ("name matches ^node", "name matches ^node-7$"),
        ("name matches ^nodes*", "name matches ^node-"),
        ("name matches ^edge|node", "name matches ^node"),
        ("name matches (?i)^EDGE", "name matches ^edge"),
    ],
)
def test_overlapping(a: str, b: str) -> None:
    assert may_overlap(parse_guard(a), parse_guard(b))


def test_three_guards_can_contradict_where_no_two_do() -> None:
    guards = [parse_guard(text) for text in ("x >= 3", "x <= 3", "x != 3")]
    assert may_overlap(guards[0], guards[1])
    assert may_overlap(guards[1], guards[2])
    assert contradicts(guards)


def test_no_guards_contradict_nothing() -> None:
    assert not contradicts([])
