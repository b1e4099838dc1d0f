"""Contracts that somebody wrote to hurt, or wrote without thinking: bounded, refused, explained."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from fsm.contract_yaml import ContractError, FindingCode, load_contract
from fsm.delta import delta
from fsm.library import Machine
from rollcall.contracts import contract_app

HEAD = "state_machine_name: door\ninitial_state: open\n"
STATES = """\
states:
  - { state_name: open, state_type: initial }
  - { state_name: shut, state_type: terminal }
"""
ROW = "  - { transition_name: close, from_state: open, to_state: shut, trigger: CLOSE }\n"
DOOR = HEAD + STATES + "transitions:\n" + ROW


def findings(text: str) -> list[tuple[FindingCode, str]]:
    with pytest.raises(ContractError) as refused:
        load_contract(text)
    return [(each.code, each.message) for each in refused.value.findings]


def codes(text: str) -> list[FindingCode]:
    return [code for code, _ in findings(text)]


def guarded(*expressions: str, extra: str = "") -> str:
    listed = ", ".join(
        f'{{ condition_name: c{at}, expression: "{each}" }}' for at, each in enumerate(expressions)
    )
    return DOOR.replace("trigger: CLOSE", f"trigger: CLOSE, conditions: [{listed}]") + extra


def test_the_door_itself_loads() -> None:
    assert load_contract(DOOR).name == "door"


@pytest.mark.parametrize("inside", ["[*k{}]", "{{ x: *k{} }}"])
def test_aliases_cannot_nest_deeper_than_brackets_may(inside: str) -> None:
    chain = "".join(f"  k{at}: &k{at} {inside.format(at - 1)}\n" for at in range(1, 200))
    assert codes(DOOR + "initial_context:\n  k0: &k0 [x]\n" + chain) == [FindingCode.TOO_LARGE]


def test_an_alias_without_an_anchor_is_a_slip_and_no_bomb() -> None:
    ((code, message),) = findings(DOOR + "description: *typo\n")
    assert code is FindingCode.NOT_YAML
    assert "*typo" in message


@pytest.mark.parametrize("escape", ["\\0", "\\e[2J", "\\x9b", "\\x7f"])
def test_a_control_character_is_refused_wherever_it_stands(escape: str) -> None:
    name = DOOR.replace("transition_name: close", f'transition_name: "{escape}close"')
    value = DOOR + f'initial_context: {{ note: "{escape}" }}\n'
    key = DOOR + f'initial_context: {{ "{escape}": 1 }}\n'
    for text in (name, value, key):
        assert codes(text) == [FindingCode.INVALID_VALUE]


def test_a_finding_is_printed_without_what_could_steer_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "door.yaml"
    path.write_text(DOOR.replace("name: close", 'name: "\u202eclose", colour: red'))
    result = CliRunner().invoke(contract_app, ["check", str(path)])
    assert result.exit_code == 1
    assert "\u202e" not in result.stdout
    assert "\\u202e" in result.stdout


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs an endless file")
def test_an_endless_file_is_read_to_its_bound() -> None:
    with pytest.raises(ContractError) as refused:
        load_contract(Path("/dev/zero"))
    assert [each.code for each in refused.value.findings] == [FindingCode.TOO_LARGE]


@pytest.mark.parametrize("value", ["", "[1]", "5"])
def test_a_wrapper_that_wraps_nothing_is_of_the_wrong_type(value: str) -> None:
    assert codes(f"fsm_subcontract: {value}\n{DOOR}") == [FindingCode.WRONG_TYPE]


def test_a_thousand_rivals_are_one_finding_and_quick() -> None:
    rows = "".join(ROW.replace("close", f"close{at}") for at in range(1000))
    begin = time.perf_counter()
    assert codes(HEAD + STATES + "transitions:\n" + rows) == [FindingCode.TOO_LARGE]
    assert time.perf_counter() - begin < 5


def test_each_tie_is_told_once() -> None:
    rows = "".join(ROW.replace("close", f"close{at}") for at in range(5))
    found = findings(HEAD + STATES + "transitions:\n" + rows)
    assert [code for code, _ in found] == [FindingCode.NON_DETERMINISTIC] * 4


def test_many_states_and_wildcards_are_analysed_in_seconds() -> None:
    states = "".join(f"  - {{ state_name: s{at}, state_type: operational }}\n" for at in range(500))
    rows = "".join(
        f'  - {{ transition_name: t{at}, from_state: "*", to_state: s{at}, trigger: T{at} }}\n'
        for at in range(500)
    )
    begin = time.perf_counter()
    close = ROW.replace("from_state: open", 'from_state: "*"')
    text = HEAD + STATES + states + "transitions:\n" + close + rows
    assert codes(text) == [FindingCode.ORPHAN_STATE]
    assert time.perf_counter() - begin < 10


def test_what_asks_for_no_more_at_a_higher_priority_shadows() -> None:
    first = '{ condition_name: a, expression: "size > 3" }'
    second = '{ condition_name: b, expression: "hinges == true" }'
    rows = ROW.replace("CLOSE", f"CLOSE, priority: 20, conditions: [{first}]") + ROW.replace(
        "CLOSE", f"CLOSE, conditions: [{second}, {first}]"
    ).replace("close", "later")
    assert findings(HEAD + STATES + "transitions:\n" + rows) == [
        (FindingCode.SHADOWED_TRANSITION, "close always fires before it")
    ]


COUNTER = "retry_counter: { storage: tries, increment_on: [CLOSE], max_value: 3 }\n"


@pytest.mark.parametrize("guard", ["tries < 5", "tries <= 3", "size < 3"])
def test_a_retry_that_its_maximum_does_not_stop_is_refused(guard: str) -> None:
    assert codes(guarded(guard, extra=COUNTER)) == [FindingCode.UNUSED_RETRY_RULE]


@pytest.mark.parametrize("guard", ["tries > 3", "tries < 0", "tries == 7"])
def test_a_guard_that_the_counter_never_meets_is_refused(guard: str) -> None:
    assert codes(guarded(guard, extra=COUNTER)) == [FindingCode.CONTRADICTORY_GUARDS]


@pytest.mark.parametrize("guard", ["tries < 3", "tries != 3", "tries in [0, 1, 2]"])
def test_a_retry_that_its_maximum_stops_loads(guard: str) -> None:
    assert load_contract(guarded(guard, extra=COUNTER)).retry_counter is not None


@pytest.mark.parametrize("start", ["4", "-1", "1.0", "true", "three", "[]"])
def test_a_counter_starts_within_its_bounds(start: str) -> None:
    extra = f"{COUNTER}initial_context: {{ tries: {start} }}\n"
    assert codes(guarded("tries < 3", extra=extra)) == [FindingCode.INVALID_VALUE]


def test_a_backoff_grows() -> None:
    retry = "auto_retry: [{ state: open, trigger: CLOSE, base_ms: 500, max_ms: 100 }]\n"
    assert codes(DOOR + retry) == [FindingCode.INVALID_VALUE]


@pytest.mark.parametrize("nothing", ["", "[]"])
def test_an_action_says_something(nothing: str) -> None:
    assert codes(f"{DOOR}actions: {{ ring: {nothing} }}\n") == [FindingCode.WRONG_TYPE]


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("trigger: CLOSE", "trigger: CLOSE, actions: [validate_payload]"),
        ("state_type: initial", "state_type: initial, exit_actions: [validate_payload]"),
    ],
)
def test_a_validation_that_would_do_nothing_is_refused(written: str, instead: str) -> None:
    assert codes(DOOR.replace(written, instead)) == [FindingCode.INVALID_VALUE]


def test_nobody_outside_pulls_what_the_machine_pulls_itself() -> None:
    fatal = '  - { transition_name: f, from_state: "*", to_state: shut, trigger: FATAL_ERROR }\n'
    contract = load_contract(DOOR + fatal)
    assert contract.accepts_from_outside("CLOSE")
    assert not contract.accepts_from_outside("FATAL_ERROR")
    opened = load_contract(DOOR + fatal + "trigger_sources: { FATAL_ERROR: External }\n")
    assert opened.accepts_from_outside("FATAL_ERROR")


def test_contracts_are_equal_exactly_when_their_hashes_are() -> None:
    texts = [f"{DOOR}initial_context: {{ a: {value} }}\n" for value in ("1", "1.0", "true")]
    one, decimal, true = (load_contract(text) for text in texts)
    assert len({one.content_hash, decimal.content_hash, true.content_hash}) == 3
    assert one != true
    assert one != decimal
    assert one == load_contract("# again\n" + texts[0])


def test_whoever_changes_a_payload_does_not_change_the_machine() -> None:
    call = "{ action_name: a, action_config: { intent_type: http.request, headers: { a: b } } }"
    contract = load_contract(DOOR.replace("trigger: CLOSE", f"trigger: CLOSE, actions: [{call}]"))
    (intent,) = delta(contract, "open", "CLOSE", {}).intents
    headers = intent.payload["headers"]
    assert isinstance(headers, dict)
    headers["a"] = "changed"
    (again,) = delta(contract, "open", "CLOSE", {}).intents
    assert again.payload["headers"] == {"a": "b"}


def test_hashes_are_the_same_in_every_process() -> None:
    program = (
        "from fsm.library import load_library\n"
        "print([each.content_hash for each in load_library().values()])"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(told) == 1
    assert told.pop().count("'") == 2 * len(Machine)
