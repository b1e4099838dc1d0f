"""Reading contracts: what is accepted, what the values mean, and what a hash stands for."""

import dataclasses
from pathlib import Path

import pytest
import yaml

from fsm.contract import Concurrency, EmitIntent, StateType
from fsm.contract_yaml import ContractError, FindingCode, load_contract
from fsm.library import Machine, load_machine

TOP = """\
version: { major: 1, minor: 0, patch: 0 }
state_machine_name: switch
state_machine_version: "2.1.0"
description: "A switch"
initial_state: off
success_states: [on]
terminal_states: [yes]
error_states: []
persistence_enabled: true
checkpoint_interval_ms: 5000
recovery_enabled: true
rollback_enabled: true
strict_validation_enabled: true
conflict_resolution_strategy: "priority_based"
concurrent_transitions_allowed: false
transition_timeout_ms: 10000
"""
BODY = """\
states:
  - { state_name: off, state_type: initial }
  - { state_name: on, state_type: success }
  - { state_name: yes, state_type: terminal }
transitions:
  - { transition_name: no, from_state: off, to_state: on, trigger: ON }
  - { transition_name: y, from_state: on, to_state: yes, trigger: YES }
"""


def indented(text: str) -> str:
    return "".join(f"  {line}\n" for line in text.splitlines())


def refusal(text: str) -> ContractError:
    with pytest.raises(ContractError) as refused:
        load_contract(text)
    return refused.value


def test_on_off_and_yes_stay_words() -> None:
    contract = load_contract(TOP + BODY)
    assert [each.name for each in contract.states] == ["off", "on", "yes"]
    assert contract.initial_state == "off"
    assert contract.version == "2.1.0"


def test_the_wrapper_changes_nothing_wherever_the_rest_stands() -> None:
    plain = load_contract(TOP + BODY)
    around_all = load_contract("fsm_subcontract:\n" + indented(TOP + BODY))
    around_top = load_contract("fsm_subcontract:\n" + indented(TOP) + BODY)
    assert plain == around_all == around_top
    assert plain.content_hash == around_all.content_hash == around_top.content_hash


def test_a_field_both_inside_and_beside_the_wrapper_is_a_duplicate() -> None:
    text = "fsm_subcontract:\n" + indented(TOP) + "description: twice\n" + BODY
    (finding,) = refusal(text).findings
    assert (finding.code, finding.place.line) == (FindingCode.DUPLICATE_KEY, 18)


def test_a_description_may_be_empty_and_a_name_may_not() -> None:
    assert load_contract(TOP.replace('"A switch"', '""') + BODY).description == ""
    nameless = TOP.replace("state_machine_name: switch", 'state_machine_name: ""')
    (finding,) = refusal(nameless + BODY).findings
    assert finding.code is FindingCode.WRONG_TYPE


def test_the_hash_follows_the_meaning_and_not_the_layout() -> None:
    contract = load_contract(TOP + BODY)
    same = load_contract("# a comment\n\n" + TOP.replace("[on]", "\n  - on") + BODY)
    other = load_contract(TOP + BODY.replace("trigger: YES", "trigger: YES, priority: 7"))
    assert same.content_hash == contract.content_hash
    assert other.content_hash != contract.content_hash
    assert len(contract.content_hash) == 64


def test_a_path_is_a_file_and_a_text_is_yaml(tmp_path: Path) -> None:
    file = tmp_path / "switch.yaml"
    file.write_text(TOP + BODY)
    assert load_contract(file) == load_contract(TOP + BODY)
    assert load_contract(file).source == str(file)
    assert [each.code for each in refusal(str(file)).findings] == [FindingCode.WRONG_TYPE]


@pytest.mark.parametrize("name", ["missing.yaml", "."])
def test_a_file_that_cannot_be_read_is_a_finding(tmp_path: Path, name: str) -> None:
    with pytest.raises(ContractError) as refused:
        load_contract(tmp_path / name)
    (finding,) = refused.value.findings
    assert finding.code is FindingCode.UNREADABLE_FILE


def test_a_text_beyond_reason_is_a_finding() -> None:
    (finding,) = refusal("a" * 600_000).findings
    assert finding.code is FindingCode.TOO_LARGE


def test_a_machine_of_unreasonable_size_is_a_finding() -> None:
    states = "".join(
        f"  - {{ state_name: s{at}, state_type: operational }}\n" for at in range(1001)
    )
    codes = [
        each.code
        for each in refusal(TOP + BODY.replace("states:\n", "states:\n" + states)).findings
    ]
    assert codes == [FindingCode.TOO_LARGE]


def test_an_alias_may_be_used_and_is_no_bomb() -> None:
    contract = load_machine(Machine.MANIFEST)
    first, second = (each for each in contract.transitions if each.trigger == "reject")
    assert first.conditions == second.conditions


def test_a_contract_is_frozen_all_the_way_down() -> None:
    contract = load_machine(Machine.REGISTRATION)
    for value in (
        contract,
        contract.states[1],
        contract.states[1].timeout,
        contract.transitions[0],
    ):
        assert dataclasses.is_dataclass(value)
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, dataclasses.fields(value)[0].name, "changed")
    assert isinstance(contract.states, tuple)
    assert isinstance(contract.transitions[0].conditions, tuple)


def test_what_is_left_out_has_the_value_one_would_expect() -> None:
    contract = load_contract("state_machine_name: switch\ninitial_state: off\n" + BODY)
    assert contract.success_states == ("on",)
    assert contract.terminal_states == ("yes",)
    assert contract.concurrency is Concurrency.LOCKED
    assert not contract.strict
    assert contract.transitions[0].priority == 10
    last = contract.state("yes")
    assert last is not None
    assert (last.type, last.is_terminal, last.is_recoverable) == (StateType.TERMINAL, True, False)


def test_a_timeout_without_a_trigger_of_its_own_is_fatal() -> None:
    text = BODY.replace("state_type: initial", "state_type: initial, timeout_ms: 5")
    head = "state_machine_name: switch\ninitial_state: off\n"
    codes = [each.code for each in refusal(head + text).findings]
    assert codes == [FindingCode.TIMEOUT_NOT_TAKEN]
    fatal = '  - { transition_name: f, from_state: "*", to_state: yes, trigger: FATAL_ERROR }\n'
    state = load_contract(head + text + fatal).state("off")
    assert state is not None
    assert state.timeout is not None
    assert (state.timeout.name, state.timeout.trigger) == ("off", "FATAL_ERROR")


def test_the_known_intents_are_the_callers_to_choose() -> None:
    text = "state_machine_name: switch\ninitial_state: off\n" + BODY.replace(
        "trigger: ON }",
        "trigger: ON, actions: [{ action_name: a, action_config: { intent_type: lamp.light } }] }",
    )
    assert [each.code for each in refusal(text).findings] == [FindingCode.UNKNOWN_INTENT]
    contract = load_contract(text, known_intents={"lamp.light"})
    (action,) = contract.transitions[0].actions
    assert isinstance(action, EmitIntent)
    assert action.intent_kind == "lamp.light"


def test_the_messages_and_the_start_of_an_instance_come_with_the_machine() -> None:
    contract = load_machine(Machine.REGISTRATION)
    assert contract.trigger_of("registration.events.NodeRegistrationAccepted") == "REGISTER"
    assert contract.trigger_of("registration.events.Unheard") is None
    assert contract.new_context() == {
        "generation": 0,
        "retry_count": 0,
        "postgres_applied": False,
        "consul_applied": False,
    }
    (retry,) = contract.auto_retry
    assert (retry.state, retry.trigger, retry.exhausted) == (
        "partial_registered",
        "RETRY",
        "RETRY_EXHAUSTED",
    )


OURS = ("triggers", "trigger_sources", "initial_context", "auto_retry", "actions", "concurrency")
OURS_IN_A_STATE = ("on_timeout", "timeout_data", "deadline_name")


def test_a_contract_with_the_fields_of_the_specification_alone_loads() -> None:
    whole = load_machine(Machine.REGISTRATION)
    document = yaml.safe_load(Path(whole.source).read_text())
    for key in OURS:
        del document["fsm_subcontract"][key]
    for state in document["states"]:
        for key in OURS_IN_A_STATE:
            state.pop(key, None)
    for transition in document["transitions"]:
        transition["actions"] = [each for each in transition["actions"] if isinstance(each, dict)]
    contract = load_contract(yaml.safe_dump(document, sort_keys=False))
    assert (len(contract.states), len(contract.transitions)) == (10, 17)
    for bare, full in zip(contract.states, whole.states, strict=True):
        assert dataclasses.replace(bare, timeout=None) == dataclasses.replace(full, timeout=None)
        assert (bare.timeout is None) == (full.timeout is None)
    own = {"CONTINUE", "FATAL_ERROR", "VALIDATION_PASSED", "VALIDATION_FAILED"}
    outside = {each for each in contract.triggers if contract.accepts_from_outside(each)}
    assert outside == set(contract.triggers) - own


def test_a_finding_is_listed_once_however_often_it_is_met() -> None:
    text = TOP + BODY + "triggers: 5\nretry_counter: { storage: a, storage: b }\n"
    findings = refusal(text).findings
    assert len(findings) == len(set(findings))
    assert [each.code for each in findings].count(FindingCode.DUPLICATE_KEY) == 1


def test_contracts_can_be_kept_in_a_set_and_start_each_instance_afresh() -> None:
    text = TOP + BODY + "initial_context: { seen: [] }\n"
    assert len({load_contract(text), load_contract(text)}) == 1
    contract = load_contract(text)
    assert contract.new_context()["seen"] is not contract.new_context()["seen"]


@pytest.mark.parametrize("machine", Machine)
def test_the_shipped_machines_load_under_their_own_name(machine: Machine) -> None:
    assert load_machine(machine).name == machine
