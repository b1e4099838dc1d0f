"""What the guard language takes and refuses at load, row by row."""

import copy
import pickle

import pytest

from fsm.guard import GuardCode, GuardError, Operator, Value, parse_guard
from models.errors import RollcallError

SYNTAX = GuardCode.GUARD_SYNTAX_ERROR
FIELD = GuardCode.GUARD_INVALID_FIELD
OPERATOR = GuardCode.GUARD_INVALID_OPERATOR
VALUE = GuardCode.GUARD_INVALID_VALUE


def refusal(text: str) -> GuardError:
    with pytest.raises(GuardError) as caught:
        parse_guard(text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "field", "operator", "value"),
    [
        ("payload exists true", "payload", Operator.EXISTS, True),
        ("validation_result == passed", "validation_result", Operator.EQ, "passed"),
        ("validation_result == failed", "validation_result", Operator.EQ, "failed"),
        ("postgres_applied == true", "postgres_applied", Operator.EQ, True),
        ("postgres_applied == false", "postgres_applied", Operator.EQ, False),
        ("consul_applied == true", "consul_applied", Operator.EQ, True),
        ("consul_applied == false", "consul_applied", Operator.EQ, False),
        ("retry_count < 3", "retry_count", Operator.LT, 3),
        ("retry_count >= 3", "retry_count", Operator.GE, 3),
        ("validation_result != failed", "validation_result", Operator.NE, "failed"),
        ("status equals active", "status", Operator.EQUALS, "active"),
        ("error_code not_equals E001", "error_code", Operator.NOT_EQUALS, "E001"),
        ("retry_count >= 0", "retry_count", Operator.GE, 0),
        ("priority <= 5", "priority", Operator.LE, 5),
        ("value > -999", "value", Operator.GT, -999),
        ("retry_count < -1", "retry_count", Operator.LT, -1),
        ("priority <= 999999999", "priority", Operator.LE, 999999999),
        ("count == 0", "count", Operator.EQ, 0),
        ("ratio == 3.14", "ratio", Operator.EQ, 3.14),
        ("ratio == -0.5", "ratio", Operator.EQ, -0.5),
        ("ratio == +2.5", "ratio", Operator.EQ, 2.5),
        ("consul_error exists true", "consul_error", Operator.EXISTS, True),
        ("field exists false", "field", Operator.EXISTS, False),
        ("optional_field not_exists true", "optional_field", Operator.NOT_EXISTS, True),
        ("field not_exists false", "field", Operator.NOT_EXISTS, False),
        ("state in [active, pending]", "state", Operator.IN, ("active", "pending")),
        ("state in [registering_postgres]", "state", Operator.IN, ("registering_postgres",)),
        ("environment not_in [dev, test]", "environment", Operator.NOT_IN, ("dev", "test")),
        ("tags contains production", "tags", Operator.CONTAINS, "production"),
        ("service_name matches ^node-.*", "service_name", Operator.MATCHES, "^node-.*"),
        ("version matches ^v[0-9]+", "version", Operator.MATCHES, "^v[0-9]+"),
        (r"version matches ^v[0-9]+\.[0-9]+$", "version", Operator.MATCHES, r"^v[0-9]+\.[0-9]+$"),
        ("env matches (?i)^production", "env", Operator.MATCHES, "(?i)^production"),
        ("name matches [a-z]+", "name", Operator.MATCHES, "[a-z]+"),
        ("PostgresApplied == true", "PostgresApplied", Operator.EQ, True),
        ("_private2 == Passed", "_private2", Operator.EQ, "Passed"),
        ("in in [in]", "in", Operator.IN, ("in",)),
        ("status == 2fast", "status", Operator.EQ, "2fast"),
    ],
)
def test_loads(text: str, field: str, operator: Operator, value: Value) -> None:
    guard = parse_guard(text)
    assert (guard.field, guard.operator, guard.value) == (field, operator, value)
    assert type(guard.value) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        "retry_count < 3",
        "  retry_count   <   3  ",
        "retry_count    <    3",
        "retry_count\t<\t3",
        "retry_count \t < \t 3",
        "retry_count < 3\n",
        "\r\n retry_count < 3 \r\n",
        "retry_count < 3 ",
        "\tretry_count < 3\t",
        "retry_count < +3",
        "retry_count < 03",
        "retry_count < 3.0",
    ],
)
def test_whitespace_and_number_form_do_not_matter(text: str) -> None:
    assert parse_guard(text) == parse_guard("retry_count < 3")


@pytest.mark.parametrize(
    "text",
    [
        "state in [a, b, c]",
        "state in [a,b,c]",
        "state in [ a , b , c ]",
        "state in [a\t,\tb ,c]",
        "state in [a,\n  b,\n  c\n]",
        "\tstate   in   [a,b, c]  ",
    ],
)
def test_an_array_may_contain_whitespace(text: str) -> None:
    assert parse_guard(text) == parse_guard("state in [a, b, c]")
    assert parse_guard(text).value == ("a", "b", "c")


EXACTLY = "token(s), expected exactly 3"


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("retry_count<3", SYNTAX, f"Expression 'retry_count<3' has 1 {EXACTLY}"),
        ("postgres_applied==true", SYNTAX, f"Expression 'postgres_applied==true' has 1 {EXACTLY}"),
        ("retry_count< 3", SYNTAX, f"Expression has 2 {EXACTLY}"),
        ("retry_count <3", SYNTAX, f"Expression has 2 {EXACTLY}"),
        ("consul_applied!=false", SYNTAX, f"Expression 'consul_applied!=false' has 1 {EXACTLY}"),
        ("retry_count>=3", SYNTAX, f"Expression 'retry_count>=3' has 1 {EXACTLY}"),
        ("priority<=5", SYNTAX, f"Expression 'priority<=5' has 1 {EXACTLY}"),
        ("status!= active", SYNTAX, f"Expression has 2 {EXACTLY}"),
        ("retry_count < 3 extra", SYNTAX, f"Expression has 4 {EXACTLY}"),
        ("field == == true", SYNTAX, f"Expression has 4 {EXACTLY}"),
        ("retry_count", SYNTAX, f"Expression 'retry_count' has 1 {EXACTLY}"),
        ("postgres_applied", SYNTAX, f"Expression 'postgres_applied' has 1 {EXACTLY}"),
        ("retry_count <", SYNTAX, f"Expression has 2 {EXACTLY}"),
        ("retry_count < ", SYNTAX, f"Expression has 2 {EXACTLY}"),
        ("< 3", SYNTAX, f"Expression has 2 {EXACTLY}"),
        ("", SYNTAX, "Expression is empty"),
        ("   ", SYNTAX, "Expression is empty after trimming whitespace"),
        ("\t\n", SYNTAX, "Expression is empty after trimming whitespace"),
        ("field == two words", SYNTAX, f"Expression has 4 {EXACTLY}"),
        ("field in [a, b] extra", SYNTAX, f"Expression has 4 {EXACTLY}"),
        ("field in [a, b]\textra more", SYNTAX, f"Expression has 5 {EXACTLY}"),
        ("field in a, b", SYNTAX, f"Expression has 4 {EXACTLY}"),
        ("field matches [a b]", SYNTAX, f"Expression has 4 {EXACTLY}"),
        ("retry_count\n<\n3", SYNTAX, rf"Expression 'retry_count\n<\n3' has 1 {EXACTLY}"),
        ("retry_count\u00a0<\u00a03", SYNTAX, f"has 1 {EXACTLY}"),
        (
            "2fast == true",
            FIELD,
            "Field name '2fast' is not a valid identifier (cannot start with digit)",
        ),
        ("123field == true", FIELD, "Field name '123field' is not a valid identifier"),
        ("123 < 5", FIELD, "Field name '123' is not a valid identifier"),
        ("field-name == true", FIELD, "Field name 'field-name' contains invalid character '-'"),
        ("field.nested == true", FIELD, "Field name 'field.nested' contains invalid character '.'"),
        ("context.retry_count < 3", FIELD, "contains invalid character '.'"),
        ("payload.node_id exists true", FIELD, "contains invalid character '.'"),
        ("response.status_code == 200", FIELD, "contains invalid character '.'"),
        ("event.payload.status == active", FIELD, "contains invalid character '.'"),
        ('config["timeout_ms"] > 5000', FIELD, "contains invalid character '['"),
        ("größe == 3", FIELD, "Field name 'größe' contains invalid character 'ö'"),
        ("fi\u200beld == 3", FIELD, r"contains invalid character '\u200b'"),
        (
            "count <=> 5",
            OPERATOR,
            "Unknown operator '<=>' (valid: ==, !=, <, >, <=, >=, equals, not_equals, exists,",
        ),
        ("status === active", OPERATOR, "Unknown operator '==='"),
        ("count ~= 5", OPERATOR, "Unknown operator '~='"),
        ("retry_count ~= 3", OPERATOR, "Unknown operator '~='"),
        (
            "status like pattern",
            OPERATOR,
            "Unknown operator 'like' (did you mean 'matches'?)",
        ),
        ("status EQUALS active", OPERATOR, "Unknown operator 'EQUALS' (did you mean 'equals'?)"),
        ("status In [a]", OPERATOR, "Unknown operator 'In' (did you mean 'in'?)"),
        ("status <=> [a, b", OPERATOR, "Unknown operator '<=>'"),
        (
            "postgres_applied == True",
            VALUE,
            "Invalid boolean value 'True' (must be lowercase 'true' or 'false')",
        ),
        (
            "consul_applied == FALSE",
            VALUE,
            "Invalid boolean value 'FALSE' (must be lowercase 'true' or 'false')",
        ),
        ("postgres_applied == TRUE", VALUE, "Invalid boolean value 'TRUE'"),
        ("field exists True", VALUE, "Invalid boolean value 'True'"),
        ("state in [True]", VALUE, "Invalid boolean value 'True'"),
        ("count < [a, b", VALUE, "Unclosed array bracket in value '[a, b'"),
        ("count < [invalid", VALUE, "Unclosed array bracket in value '[invalid'"),
        ("state in [", VALUE, "Unclosed array bracket in value '['"),
        (
            "field == null",
            VALUE,
            "Invalid value 'null' (use 'exists' operator for null checks)",
        ),
        (
            "field == undefined",
            VALUE,
            "Invalid value 'undefined' (use 'exists' operator for presence checks)",
        ),
        ("field == NULL", VALUE, "Invalid value 'NULL'"),
        ("state in [a, null]", VALUE, "Invalid value 'null'"),
        (
            "field == 'quoted'",
            VALUE,
            "Invalid value ''quoted'' (string values should not be quoted)",
        ),
        ('field == "quoted"', VALUE, "string values should not be quoted"),
        ("state in ['a', 'b']", VALUE, "string values should not be quoted"),
        ("name matches '^node'", VALUE, "patterns should not be quoted"),
        ("count == 1e5", VALUE, "scientific notation is not supported"),
        ("count < 2.5E-3", VALUE, "scientific notation is not supported"),
        ("count == .5", VALUE, "Invalid value '.5'"),
        ("count == 5.", VALUE, "Invalid value '5.'"),
        ("count == --5", VALUE, "Invalid value '--5'"),
        ("count == 1,000", VALUE, "Invalid value '1,000'"),
        ("count == ٣", VALUE, "Invalid value '٣'"),
        ("region == us-east-1", VALUE, "Invalid value 'us-east-1'"),
        ("name == café", VALUE, "Invalid value 'café'"),
        ("field == ==", VALUE, "Invalid value '=='"),
        ("state in []", VALUE, "Invalid value '[]'"),
        ("state in [a,]", VALUE, "Invalid value '[a,]'"),
        ("state in [a b]", VALUE, "Invalid value 'a b'"),
        ("state in [[a], [b]]", VALUE, "Invalid value '[a]'"),
        ("state in [a]b", VALUE, "Invalid value '[a]b'"),
        ("state in a]", VALUE, "Invalid value 'a]'"),
    ],
)
def test_refuses(text: str, code: GuardCode, message: str) -> None:
    error = refusal(text)
    assert error.code is code
    assert message in str(error)


@pytest.mark.parametrize(
    ("text", "takes"),
    [
        ("x < abc", "'<' takes a number"),
        ("x > true", "'>' takes a number"),
        ("x <= [1, 2]", "'<=' takes a number"),
        ("x >= false", "'>=' takes a number"),
        ("x exists maybe", "'exists' takes true or false"),
        ("x not_exists 1", "'not_exists' takes true or false"),
        ("x in abc", "'in' takes an array"),
        ("x not_in 3", "'not_in' takes an array"),
        ("x == [a]", "'==' takes a boolean, a number or a string"),
        ("x not_equals [a]", "'not_equals' takes a boolean, a number or a string"),
        ("x contains [a]", "'contains' takes a boolean, a number or a string"),
        ("x matches [", "missing ]"),
        ("x matches (", "missing )"),
        ("x matches *", "repetition"),
    ],
)
def test_the_value_must_fit_the_operator(text: str, takes: str) -> None:
    error = refusal(text)
    assert error.code is VALUE
    assert takes in error.remedy


def test_errors_belong_to_the_tree_and_have_a_remedy() -> None:
    error = refusal("retry_count<3")
    assert isinstance(error, RollcallError)
    assert error.remedy


def test_guards_are_values() -> None:
    guard = parse_guard("state in [a, 1, 0.25, true]")
    assert str(guard) == guard.text == "state in [a, 1, 0.25, true]"
    assert {guard: 1}[parse_guard("state in [a,1,0.25,true]")] == 1
    assert pickle.loads(pickle.dumps(guard)) == guard  # noqa: S301
    assert copy.deepcopy(guard).evaluate({"state": 0.25})
    assert parse_guard("x == 1") != parse_guard("x == true")
    assert parse_guard("x in [1]") != parse_guard("x in [true]")
    assert parse_guard("x == a") != parse_guard("x equals a")
    with pytest.raises(AttributeError):
        guard.field = "other"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("x == -0.0", "x == 0"),
        ("x == 0.0000001", "x == 0.0000001"),
        ("x == 100000000000000000000000", "x == 100000000000000000000000"),
        ("x == 123456789012345678.5", "x == 123456789012345680"),
        ("x  equals\tY", "x equals Y"),
        ("x in [a,b]", "x in [a, b]"),
    ],
)
def test_prints_canonically(text: str, printed: str) -> None:
    assert str(parse_guard(text)) == printed
