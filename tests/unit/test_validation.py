"""The rules a state holds its data to."""

import pytest

from fsm.validation import RuleError, parse_rule, satisfied


@pytest.mark.parametrize(
    ("rule", "context", "holds"),
    [
        ("node_id != null", {"node_id": "n"}, True),
        ("node_id != null", {"node_id": None}, False),
        ("node_id != null", {}, False),
        ("node_id == null", {}, True),
        ("name.length >= 1", {"name": "x"}, True),
        ("name.length >= 1", {"name": ""}, False),
        ("name.length >= 1", {"name": ["x"]}, True),
        ("name.length >= 1", {"name": 7}, False),
        ("name.length >= 1", {}, False),
        ("name.length == other.length", {"name": "ab", "other": [1, 2]}, True),
        ("applied == true", {"applied": True}, True),
        ("applied == true", {"applied": 1}, False),
        ("applied == true", {"applied": "true"}, False),
        ("count == 1", {"count": True}, False),
        ("a != b", {"a": True, "b": False}, True),
        ("a != b", {"a": True, "b": True}, False),
        ("a != b", {"a": True, "b": 1}, True),
        ("a < b", {"a": 1, "b": 2.5}, True),
        ("a < b", {"a": "1", "b": 2}, False),
        ("a < b", {"a": True, "b": 2}, False),
        ("a <= -1.5", {"a": -2}, True),
        ("a > 1", {"a": 1}, False),
        ("kind == 'node'", {"kind": "node"}, True),
        ('kind == "node"', {"kind": "Node"}, False),
    ],
)
def test_a_rule_holds_or_not_and_never_raises(
    rule: str, context: dict[str, object], holds: bool
) -> None:
    assert parse_rule(rule).holds(context) is holds
    assert satisfied((), (parse_rule(rule),), context) is holds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "node_id",
        "node_id !=",
        "node_id != null now",
        "node_id is null",
        "null != node_id",
        "1 < count",
        "name.size >= 1",
        "payload.node_id != null",
        "name.length >= null",
        "a < 'b'",
        "a == $b",
        "a == " + "b" * 600,
    ],
)
def test_a_rule_that_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(RuleError):
        parse_rule(text)


@pytest.mark.parametrize(
    "text", ["a != null", "a.length >= 1", "a == b", "a == true", "a < 3", "a == 'x'", "a > -0.5"]
)
def test_a_rule_prints_back_to_an_equal_rule(text: str) -> None:
    rule = parse_rule(text)
    assert str(rule) == text
    assert parse_rule(str(rule)) == rule


def test_required_fields_must_be_there_and_not_null() -> None:
    assert satisfied(("a",), (), {"a": False})
    assert not satisfied(("a",), (), {"a": None})
    assert not satisfied(("a",), (), {})
