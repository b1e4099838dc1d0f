"""What holds of every text and every context."""

from collections.abc import Mapping

from hypothesis import example, given
from hypothesis import strategies as st

from fsm.guard import Guard, GuardCode, GuardError, Operator, parse_guard
from fsm.guard_grammar import MAX_EXPRESSION
from fsm.guard_predicates import MAX_SUBJECT

AT_LOAD = {
    GuardCode.GUARD_SYNTAX_ERROR,
    GuardCode.GUARD_INVALID_FIELD,
    GuardCode.GUARD_INVALID_OPERATOR,
    GuardCode.GUARD_INVALID_VALUE,
}
AT_RUN_TIME = {GuardCode.GUARD_TYPE_ERROR, GuardCode.GUARD_EVALUATION_ERROR}

operators = st.sampled_from([*Operator, "like", "===", "EQUALS"])
words = st.text("aAzZ_019", min_size=1, max_size=6)
decimals = st.from_regex(r"[+-]?[0-9]{1,40}(\.[0-9]{1,40})?", fullmatch=True)
literals = st.one_of(
    words, decimals, st.sampled_from(["true", "false", "True", "null", "undefined", "1e5", "'a'"])
)
arrays = st.lists(literals, max_size=5).map(lambda items: f"[{' ,'.join(items)}]")
patterns = st.text(r"^$.*+?()[]{}|\dpLabc019-=:!<", min_size=1, max_size=20)
blanks = st.text(" \t", min_size=1, max_size=3)
near_guards = st.builds(
    lambda field, before, operator, after, value: f"{field}{before}{operator}{after}{value}",
    words,
    blanks,
    operators,
    blanks,
    st.one_of(literals, arrays, patterns),
)
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20))
contexts = st.fixed_dictionaries(
    {}, optional={"x": st.one_of(scalars, st.lists(scalars), st.dictionaries(st.text(), scalars))}
)


def loaded(text: str) -> Guard | GuardCode:
    try:
        return parse_guard(text)
    except GuardError as error:
        return error.code


def answered(guard: Guard, context: Mapping[str, object], strict: bool) -> bool | GuardCode:
    try:
        return guard.evaluate(context, strict=strict)
    except GuardError as error:
        return error.code


@given(st.one_of(st.text(st.characters()), near_guards))
@example("x in [" + ",".join(["a"] * (MAX_EXPRESSION // 2 - 4)) + "]")
@example("x == 0." + "0" * 400 + "1")
@example("x == " + "9" * 400 + ".5")
@example("x == 9007199254740993.0")
@example("x matches \n^a")
@example("\ud800 == 3")
def test_any_text_loads_and_prints_back_or_has_a_code(text: str) -> None:
    guard = loaded(text)
    if isinstance(guard, GuardCode):
        assert guard in AT_LOAD
        return
    again = parse_guard(str(guard))
    assert again == guard
    assert hash(again) == hash(guard)
    assert str(again) == str(guard)


@given(near_guards.map(lambda text: "x" + text.lstrip("aAzZ_019")), contexts, st.booleans())
@example("x matches .", {"x": "\ud800"}, False)
@example("x matches .", {"x": "a" * (MAX_SUBJECT + 1)}, False)
def test_every_context_has_an_answer_or_a_code(
    text: str, context: dict[str, object], strict: bool
) -> None:
    guard = loaded(text)
    if isinstance(guard, GuardCode):
        return
    answer = answered(guard, context, strict)
    undefined = context.get("x") is None
    existence = guard.operator in (Operator.EXISTS, Operator.NOT_EXISTS)
    if undefined and strict and not existence:
        assert answer is GuardCode.GUARD_FIELD_UNDEFINED
    else:
        assert answer is True or answer is False or answer in AT_RUN_TIME


@given(near_guards, contexts)
def test_the_same_question_has_the_same_answer(text: str, context: dict[str, object]) -> None:
    guard = loaded(text)
    if isinstance(guard, Guard):
        again = parse_guard(str(guard))
        assert answered(guard, context, True) == answered(again, context, True)
