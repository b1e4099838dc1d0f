"""The ten recovery scenarios of the registration machine, walked trigger by trigger."""

from collections.abc import Mapping

import pytest

from fsm.codes import ErrorCode
from fsm.contract_yaml import ContractError, FindingCode, load_contract
from fsm.delta import delta
from fsm.library import Machine, load_machine
from fsm.outcome import Outcome
from fsm.results import Result

REGISTRATION = load_machine(Machine.REGISTRATION)

NODE: Mapping[str, object] = {
    "payload": {"node": "n-1"},
    "node_id": "n-1",
    "deployment_id": "d-1",
    "environment": "prod",
    "network_id": "net-1",
    "consul_service_id": "svc-1",
    "consul_service_name": "svc",
    "postgres_record": {"node_id": "n-1"},
}


class Node:
    """One instance of the machine, which every trigger must move."""

    def __init__(self, **context: object) -> None:
        self.state = REGISTRATION.initial_state
        self.context: Mapping[str, object] = {**REGISTRATION.new_context(), **NODE, **context}
        self.trail = [self.state]
        self.last: Outcome | None = None

    def pull(self, trigger: str, **data: object) -> Outcome:
        outcome = delta(REGISTRATION, self.state, trigger, self.context, data=data)
        assert outcome.result is Result.OK, outcome.reason
        self.trail += outcome.path[1:]
        self.state, self.context, self.last = outcome.state, outcome.context, outcome
        return outcome

    def refuse(self, trigger: str, **data: object) -> Outcome:
        outcome = delta(REGISTRATION, self.state, trigger, self.context, data=data)
        assert outcome.result is not Result.OK
        assert outcome.context is self.context
        return outcome

    def validate(self) -> Outcome:
        """Go on with what the validation itself decided."""
        assert self.last is not None
        (follow_up,) = self.last.follow_ups
        return self.pull(follow_up.trigger)

    def until_consul(self) -> "Node":
        self.pull("REGISTER")
        self.validate()
        self.pull("POSTGRES_SUCCEEDED", postgres_applied=True)
        return self

    def until_partial(self) -> "Node":
        self.until_consul()
        self.pull("CONSUL_FAILED", consul_applied=False, consul_error="refused")
        return self


def test_scenario_1_postgres_fails_first() -> None:
    node = Node()
    node.pull("REGISTER")
    node.validate()
    node.pull("POSTGRES_FAILED", postgres_applied=False, postgres_error="down")
    node.pull("RETRY")
    assert node.trail == [
        "unregistered",
        "validating",
        "registering_postgres",
        "failed",
        "validating",
    ]
    assert node.last is not None
    assert node.last.context["retry_count"] == 1
    again = node.validate()
    assert (again.state, again.context["retry_count"]) == ("registering_postgres", 0)


def test_scenario_2_consul_fails_after_postgres() -> None:
    node = Node().until_partial()
    retried = node.pull("RETRY")
    assert [each.kind for each in retried.intents] == ["consul.register"]
    node.pull("CONSUL_SUCCEEDED", consul_applied=True)
    assert node.trail == [
        "unregistered",
        "validating",
        "registering_postgres",
        "postgres_registered",
        "registering_consul",
        "partial_registered",
        "registering_consul",
        "registered",
    ]
    assert node.context["retry_count"] == 0


def test_scenario_3_graceful_shutdown() -> None:
    node = Node().until_consul()
    node.pull("CONSUL_SUCCEEDED", consul_applied=True)
    leaving = node.pull("DEREGISTER")
    assert [each.kind for each in leaving.intents] == [
        "consul.deregister",
        "postgres.delete_registration",
    ]
    node.pull("DEREGISTRATION_COMPLETE")
    assert node.trail[-3:] == ["registered", "deregistering", "deregistered"]
    assert node.refuse("REGISTER").result is Result.TERMINAL


def test_scenario_4_validation_failure() -> None:
    node = Node(consul_service_name="")
    node.pull("REGISTER")
    node.validate()
    assert node.trail == ["unregistered", "validating", "failed"]
    assert "consul_service_name.length >= 1" in str(node.context["validation_error"])
    node.pull("RETRY", consul_service_name="svc")
    node.validate()
    assert node.state == "registering_postgres"
    assert "validation_error" not in node.context


def test_scenario_5_retry_exhaustion_in_the_partial_state() -> None:
    node = Node().until_partial()
    for count in (1, 2, 3):
        node.pull("RETRY")
        assert node.context["retry_count"] == count
        node.pull("CONSUL_FAILED", consul_applied=False)
    blocked = node.refuse("RETRY")
    assert blocked.result is Result.GUARD_BLOCKED
    assert blocked.reason is not None
    assert blocked.reason.code is ErrorCode.RETRY_EXHAUSTED
    assert "RETRY_EXHAUSTED" in blocked.reason.suggestions
    node.pull("RETRY_EXHAUSTED")
    assert node.state == "failed"
    stuck = node.refuse("RETRY")
    assert stuck.reason is not None
    assert stuck.reason.suggestions == ("ABANDON",)
    assert "ABANDON" in stuck.reason.message
    abandoned = node.pull("ABANDON")
    assert node.state == "deregistered"
    assert [each.kind for each in abandoned.intents] == ["postgres.delete_registration"]


@pytest.mark.parametrize(
    ("trigger", "target"), [("RETRY", "validating"), ("ABANDON", "deregistered")]
)
def test_scenario_6_fatal_error_from_any_state(trigger: str, target: str) -> None:
    node = Node().until_consul()
    node.pull("FATAL_ERROR")
    assert node.state == "failed"
    node.pull(trigger)
    assert node.state == target


def test_scenario_7_timeout_of_consul() -> None:
    node = Node().until_consul()
    consul = REGISTRATION.state("registering_consul")
    assert consul is not None
    assert consul.timeout is not None
    node.pull(consul.timeout.trigger, **dict(consul.timeout.data))
    assert node.state == "partial_registered"
    assert node.context["consul_error"] == "timeout"
    node.pull("RETRY")
    assert node.state == "registering_consul"


@pytest.mark.parametrize(
    ("trigger", "target"), [("RETRY", "validating"), ("ABANDON", "deregistered")]
)
def test_scenario_8_continue_fails(trigger: str, target: str) -> None:
    node = Node()
    node.pull("REGISTER")
    node.validate()
    node.context = {**node.context, "consul_service_id": None}
    failed = node.pull("POSTGRES_SUCCEEDED", postgres_applied=True)
    assert failed.path == ("registering_postgres", "postgres_registered", "failed")
    assert failed.reason is not None
    assert failed.reason.code is ErrorCode.INTERNAL_TRANSITION_ERROR
    (internal,) = (each for each in failed.metrics if each.name == "registration_internal_error")
    assert dict(internal.labels)["phase"] == "continue_processing"
    assert "CRITICAL" in [each.level for each in failed.logs]
    node.pull(trigger)
    assert node.state == target


def test_scenario_9_a_guard_cannot_be_evaluated_at_run_time() -> None:
    node = Node().until_partial()
    node.context = {**node.context, "retry_count": "two"}
    blocked = node.refuse("RETRY")
    assert (blocked.result, blocked.state) == (Result.GUARD_BLOCKED, "partial_registered")
    assert blocked.reason is not None
    assert blocked.reason.code is ErrorCode.GUARD_TYPE_ERROR
    assert blocked.reason.guard == "retry_count < 3"
    assert blocked.reason.seen == "two"
    node.context = {**node.context, "retry_count": None}
    undefined = node.refuse("RETRY")
    assert undefined.reason is not None
    assert undefined.reason.code is ErrorCode.GUARD_FIELD_UNDEFINED
    node.context = {**node.context, "retry_count": 2}
    node.pull("RETRY")
    assert node.state == "registering_consul"


@pytest.mark.parametrize(
    ("guard", "code"),
    [
        ("retry_count<3", FindingCode.GUARD_SYNTAX_ERROR),
        ("retry_count ~= 3", FindingCode.GUARD_INVALID_OPERATOR),
        ("123field == true", FindingCode.GUARD_INVALID_FIELD),
        ("count < [invalid", FindingCode.GUARD_INVALID_VALUE),
    ],
)
def test_scenario_10_a_contract_with_a_broken_guard_does_not_load(
    guard: str, code: FindingCode
) -> None:
    text = f"""
state_machine_name: one
initial_state: idle
states:
  - {{ state_name: idle, state_type: initial }}
  - {{ state_name: done, state_type: terminal }}
transitions:
  - transition_name: finish
    from_state: idle
    to_state: done
    trigger: FINISH
    conditions: [{{ condition_name: broken, expression: "{guard}" }}]
"""
    with pytest.raises(ContractError) as refused:
        load_contract(text)
    assert [each.code for each in refused.value.findings] == [code]
