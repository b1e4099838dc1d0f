"""The eight rules every contract is held to when it is loaded."""

import pytest

from fsm.contract_yaml import ContractError, FindingCode, load_contract

SOUND = """\
state_machine_name: job
initial_state: waiting
success_states: [done]
terminal_states: [gone]
error_states: [broken]
states:
  - { state_name: waiting, state_type: initial }
  - { state_name: done, state_type: success }
  - { state_name: broken, state_type: error }
  - { state_name: gone, state_type: terminal }
transitions:
  - { transition_name: finish, from_state: waiting, to_state: done, trigger: FINISH }
  - { transition_name: break, from_state: waiting, to_state: broken, trigger: BREAK }
  - { transition_name: mend, from_state: broken, to_state: waiting, trigger: MEND }
  - { transition_name: leave, from_state: done, to_state: gone, trigger: LEAVE }
"""


def codes(text: str) -> set[FindingCode]:
    with pytest.raises(ContractError) as refused:
        load_contract(text)
    return {each.code for each in refused.value.findings}


def test_a_sound_contract_loads() -> None:
    contract = load_contract(SOUND)
    assert contract.name == "job"
    assert contract.success_states == ("done",)


@pytest.mark.parametrize(
    ("rule", "written", "instead", "code"),
    [
        (1, "initial_state: waiting", "initial_state: asleep", FindingCode.UNKNOWN_INITIAL_STATE),
        (2, "success_states: [done]", "success_states: [won]", FindingCode.UNKNOWN_SUCCESS_STATE),
        (
            3,
            "terminal_states: [gone]",
            "terminal_states: [end]",
            FindingCode.UNKNOWN_TERMINAL_STATE,
        ),
        (4, "error_states: [broken]", "error_states: [torn]", FindingCode.UNKNOWN_ERROR_STATE),
        (
            5,
            "states:\n  - { state_name: waiting",
            "states:\n  - { state_name: island, state_type: operational }\n"
            "  - { state_name: waiting",
            FindingCode.ORPHAN_STATE,
        ),
        (
            6,
            "{ transition_name: mend, from_state: broken",
            "{ transition_name: revive, from_state: gone, to_state: waiting, trigger: REVIVE }\n"
            "  - { transition_name: mend, from_state: broken",
            FindingCode.TERMINAL_STATE_EXIT,
        ),
        (
            7,
            "transition_name: mend",
            "transition_name: break",
            FindingCode.DUPLICATE_TRANSITION_NAME,
        ),
        (8, "to_state: broken", "to_state: nowhere", FindingCode.UNKNOWN_STATE),
    ],
)
def test_each_load_rule_refuses_what_breaks_it(
    rule: int, written: str, instead: str, code: FindingCode
) -> None:
    assert SOUND.count(written) == 1, f"rule {rule} changes nothing"
    assert code in codes(SOUND.replace(written, instead))


def test_rule_6_lets_a_success_state_be_left() -> None:
    assert [each.name for each in load_contract(SOUND).exits("done")] == ["leave"]


def test_all_findings_come_at_once_in_the_order_of_the_file() -> None:
    text = (
        SOUND.replace("initial_state: waiting", "initial_state: asleep")
        .replace("to_state: broken", "to_state: nowhere")
        .replace("trigger: LEAVE", "trigger: LEAVE, colour: red, priority: high")
    )
    with pytest.raises(ContractError) as refused:
        load_contract(text)
    lines = [each.place.line for each in refused.value.findings]
    found = {each.code for each in refused.value.findings}
    assert lines == sorted(lines)
    assert {
        FindingCode.UNKNOWN_INITIAL_STATE,
        FindingCode.UNKNOWN_STATE,
        FindingCode.UNKNOWN_FIELD,
        FindingCode.WRONG_TYPE,
    } <= found
    named = {each.place.name for each in refused.value.findings}
    assert {"break", "leave"} <= named


def test_a_broken_guard_hides_nothing_else() -> None:
    text = SOUND.replace("to_state: broken", "to_state: nowhere").replace(
        "trigger: LEAVE",
        'trigger: LEAVE, conditions: [{ condition_name: c, expression: "a<1" }]',
    )
    assert {FindingCode.UNKNOWN_STATE, FindingCode.GUARD_SYNTAX_ERROR} <= codes(text)


def test_a_name_of_the_wrong_type_is_one_finding() -> None:
    assert codes(SOUND.replace("to_state: broken", "to_state: 7")) == {FindingCode.WRONG_TYPE}
    assert codes(SOUND.replace("initial_state: waiting", "initial_state: 7")) == {
        FindingCode.WRONG_TYPE
    }


CIRCLE = """\
  - { transition_name: enter, from_state: waiting, to_state: circling, trigger: ENTER }
  - { transition_name: circle, from_state: circling, to_state: circling, trigger: CIRCLE }
"""


def test_a_state_that_only_leads_back_to_itself_is_a_dead_end() -> None:
    text = SOUND.replace(
        "transitions:\n",
        "  - { state_name: circling, state_type: operational }\ntransitions:\n" + CIRCLE,
    )
    assert codes(text) == {FindingCode.DEAD_END}


def test_a_timeout_whose_own_data_blocks_it_is_not_taken() -> None:
    limit = "state_type: initial, timeout_ms: 5, on_timeout: BREAK, timeout_data: { torn: false }"
    guard = ' trigger: BREAK, conditions: [{ condition_name: c, expression: "torn == true" }]'
    text = SOUND.replace("state_type: initial", limit).replace(" trigger: BREAK", guard)
    assert codes(text) == {FindingCode.TIMEOUT_NOT_TAKEN}
    assert load_contract(text.replace("torn: false", "torn: true")).name == "job"


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("name: done, state_type: success", "name: done, state_type: operational"),
        ("name: broken, state_type: error", "name: broken, state_type: operational"),
        ("name: gone, state_type: terminal", "name: gone, state_type: error"),
        (
            "name: gone, state_type: terminal",
            "name: gone, is_terminal: false, state_type: terminal",
        ),
        ("name: broken, state_type: error", "name: broken, state_type: initial"),
        ("terminal_states: [gone]", "terminal_states: [broken]"),
    ],
)
def test_a_state_is_what_its_type_its_flag_and_the_lists_agree_on(
    written: str, instead: str
) -> None:
    assert SOUND.count(written) == 1
    assert FindingCode.STATE_CLASS_MISMATCH in codes(SOUND.replace(written, instead))


def test_a_state_that_is_terminal_unlisted_is_told_so() -> None:
    text = SOUND.replace("state_type: terminal", "state_type: operational, is_terminal: true")
    with pytest.raises(ContractError) as refused:
        load_contract(text.replace("terminal_states: [gone]", "terminal_states: [done]"))
    messages = [each.message for each in refused.value.findings if each.place.name == "gone"]
    assert messages == ["is_terminal is true, but terminal_states does not name it"]


def test_an_initial_state_is_the_one_the_machine_starts_in() -> None:
    text = SOUND.replace("error_states: [broken]\n", "").replace(
        "name: broken, state_type: error", "name: broken, state_type: initial"
    )
    assert codes(text) == {FindingCode.STATE_CLASS_MISMATCH}


def test_no_state_is_named_like_the_wildcard() -> None:
    text = SOUND.replace("state_name: broken", 'state_name: "*"').replace(
        "error_states: [broken]", 'error_states: ["*"]'
    )
    text = text.replace("to_state: broken", 'to_state: "*"').replace(
        "from_state: broken", 'from_state: "*"'
    )
    assert FindingCode.INVALID_VALUE in codes(text)
