"""The roll call's decisions, stepped over the real contracts and the real registry."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid5

import pytest

from fsm.library import load_library
from fsm.machines import Machines
from fsm.orchestrators.registration import RollCallPolicy
from fsm.step import Fold, Step, step
from models.envelope import Envelope
from models.errors import MessageError
from models.messages.effect_results import RESULTS
from models.projection import Projection
from models.registry import MessageRegistry
from tasks.catalogue import catalogue

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SPACE = UUID(int=7)
RESULT_TYPES = {each.message_type for each in RESULTS}
MACHINES = Machines(load_library().values())
REGISTRY = catalogue(MACHINES)
NODE = {
    "node_id": "n1",
    "deployment_id": "d1",
    "environment": "prod",
    "network_id": "net",
    "consul_service_id": "svc-n1",
    "consul_service_name": "svc",
    "consul_tags": ["a"],
    "postgres_record": {"role": "web"},
    "address": "10.0.0.1",
    "port": 8080,
}


@dataclass
class Run:
    """One node, told one message after the other."""

    node_id: str = "n1"
    registry: MessageRegistry = REGISTRY
    now: datetime = NOON
    projections: Mapping[str, Projection] = field(default_factory=dict)
    folds: list[Fold] = field(default_factory=list)
    told: list[Envelope] = field(default_factory=list)

    def tell(self, name: str, payload: Mapping[str, Any], category: str = "events") -> Step:
        ordinal = len(self.told)
        message = Envelope(
            message_id=uuid5(SPACE, f"{self.node_id}:{ordinal}"),
            correlation_id=uuid5(SPACE, f"{self.node_id}:correlation:{ordinal}"),
            causation_id=None,
            emitted_at=self.now,
            entity_id=self.node_id,
            message_type=f"registration.{category}.{name}",
            payload=dict(payload),
        )
        if "intent_id" in payload:
            self.registry.check(message)
        made = step(MACHINES, self.registry, self.projections, message, self.now)
        for fold in made.folds:
            self.registry.check(fold.event)
        self.told.append(message)
        self.folds += made.folds
        self.projections = made.projections
        return made

    def introspect(self, **said: Any) -> Step:
        return self.tell("NodeIntrospected", {**NODE, "node_id": self.node_id} | said)

    def postgres(self, ok: bool = True) -> Step:
        why = {} if ok else {"postgres_error": "no", "permanent": False}
        return self.tell(f"PostgresUpsert{_word(ok)}", self.answer(postgres_applied=ok, **why))

    def consul(self, ok: bool = True, **said: Any) -> Step:
        why = {} if ok else {"consul_error": "no", "permanent": False}
        return self.tell(f"ConsulRegister{_word(ok)}", self.answer(consul_applied=ok, **why) | said)

    def removal(self, service: str, ok: bool = True, **said: Any) -> Step:
        verb = "Deregister" if service == "consul" else "Delete"
        why = {} if ok else {f"{service}_error": "no", "permanent": False}
        return self.tell(f"{service.capitalize()}{verb}{_word(ok)}", self.answer(**why) | said)

    def answer(self, **said: Any) -> dict[str, Any]:
        """What an effect adds to its answer, asked by the registration as it stands."""
        registration = self.projections["registration"]
        named = registration.context["registration_id"]
        asked = {"asked_at": registration.sequence, "registration_id": named}
        return {"intent_id": str(SPACE), "attempt": 1, "outstanding": 0} | asked | said

    def ack(self, registration_id: str | None = None) -> Step:
        named = registration_id or self.projections["handshake"].context["registration_id"]
        payload = {"node_id": self.node_id, "registration_id": named}
        return self.tell("NodeRegistrationAcked", payload, "commands")

    def leave(self) -> Step:
        return self.tell("DeregisterNodeRequested", {"node_id": self.node_id}, "commands")

    def pass_deadline(self, machine: str) -> Step:
        """Let the clock run to the machine's next deadline, as a tick finds it."""
        deadlines = self.projections[machine].deadlines
        name, deadline = min(deadlines.items(), key=lambda each: each[1].at)
        self.now = max(self.now, deadline.at)
        found = {"machine": machine, "deadline": name, "set_by": deadline.set_by}
        tick = {"tick_sequence": 1, "runtime_id": "r", "now": self.now.isoformat()}
        return self.tell("DeadlinePassed", found | tick)

    def register(self) -> "Run":
        self.introspect()
        self.postgres()
        self.consul()
        return self

    @property
    def states(self) -> tuple[str, str]:
        found = [self.projections.get(each) for each in ("registration", "handshake")]
        registration, handshake = (each.state if each else "-" for each in found)
        return registration, handshake

    @property
    def generations(self) -> tuple[int, int]:
        registration, handshake = (
            self.projections[each].context["generation"] for each in ("registration", "handshake")
        )
        return registration, handshake


def _word(ok: bool) -> str:
    return "Succeeded" if ok else "Failed"


def test_a_node_becomes_active() -> None:
    run = Run()
    made = run.introspect()
    assert run.states == ("registering_postgres", "accepted")
    intents = [each for fold in made.folds for each in fold.folded.outcome.intents]
    assert [each.kind for each in intents] == ["postgres.upsert_registration"]
    run.postgres()
    run.consul()
    assert run.states == ("registered", "awaiting_ack")
    assert run.projections["handshake"].deadlines["ack"].at == NOON + timedelta(seconds=30)
    run.ack()
    assert run.states == ("registered", "active")


def test_every_event_of_a_run_has_its_cause_and_its_workflow() -> None:
    run = Run().register()
    run.ack()
    known = {each.message_id for each in run.told} | {each.event.message_id for each in run.folds}
    workflow = run.told[0].correlation_id
    told = {each.message_id for each in run.told}
    for fold in run.folds:
        if fold.event.message_id not in told:
            assert fold.event.causation_id in known
            assert fold.event.correlation_id == workflow
        assert fold.folded.projection.correlation_id == workflow
    ack = run.told[-1].correlation_id
    assert run.projections["handshake"].context["ack_correlation_id"] == str(ack)


def test_the_same_messages_give_the_same_ids() -> None:
    first, second = Run().register(), Run().register()
    assert [each.event for each in first.folds] == [each.event for each in second.folds]
    for machine, projection in first.projections.items():
        assert projection.digest() == second.projections[machine].digest()


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (RollCallPolicy(environments=frozenset({"test"})), "environment: is not on the allow-list"),
        (RollCallPolicy(denied_nodes=frozenset({"n1"})), "node_id: is on the deny-list"),
    ],
)
def test_the_policy_refuses(policy: RollCallPolicy, reason: str) -> None:
    run = Run(registry=catalogue(MACHINES, policy))
    run.introspect()
    assert run.states == ("-", "rejected")
    assert run.projections["handshake"].context["rejection_reason"] == reason


def test_a_wrong_payload_is_rejected_by_field() -> None:
    run = Run()
    run.introspect(port=70000)
    assert run.states == ("-", "rejected")
    assert run.projections["handshake"].context["rejection_reason"].startswith("port: ")


@pytest.mark.parametrize(
    ("field_name", "value"),
    [
        ("node_id", "a/b"),
        ("node_id", "a\n"),
        ("port", 0),
        ("port", 65536),
        ("port", "80"),
        ("consul_tags", ["t"] * 65),
        ("environment", ""),
        ("address", "a b"),
        ("postgres_record", {"x": "y" * 70000}),
        ("surprise", 1),
    ],
)
def test_the_door_names_the_field(field_name: str, value: object) -> None:
    message = Envelope(
        message_id=SPACE,
        correlation_id=SPACE,
        causation_id=None,
        emitted_at=NOON,
        entity_id="n1",
        message_type="registration.events.NodeIntrospected",
        payload={**NODE, field_name: value},  # type: ignore[dict-item]
    )
    with pytest.raises(MessageError, match=field_name):
        REGISTRY.check(message)


def test_an_early_acknowledgement_counts_and_a_second_says_nothing() -> None:
    run = Run()
    run.introspect()
    run.ack()
    assert run.states == ("registering_postgres", "ack_received")
    run.postgres()
    run.consul()
    assert run.states == ("registered", "active")
    assert run.ack().folds == []


def test_an_acknowledgement_of_another_attempt_is_not_taken() -> None:
    run = Run().register()
    assert run.ack(str(UUID(int=9))).folds == []
    assert run.states == ("registered", "awaiting_ack")


def test_no_acknowledgement_in_time_deregisters() -> None:
    run = Run().register()
    run.pass_deadline("handshake")
    assert run.states == ("deregistering", "ack_timed_out")
    run.pass_deadline("registration")
    assert run.states == ("deregistered", "ack_timed_out")


def test_a_node_that_falls_silent_is_deregistered() -> None:
    run = Run().register()
    run.ack()
    run.pass_deadline("handshake")
    assert run.states == ("deregistering", "liveness_expired")


def test_108_late_acknowledgements_leave_nobody_stuck() -> None:
    for at in range(108):
        run = Run(f"n{at}").register()
        run.pass_deadline("handshake")
        if at % 2:  # half of them while the last attempt is still being taken back
            run.pass_deadline("registration")
        first = run.projections["handshake"].context["registration_id"]
        run.ack()
        if not at % 2:
            assert run.states == ("deregistering", "pending_registration")
            run.pass_deadline("registration")
        assert run.states == ("registering_postgres", "accepted")
        assert run.generations == (2, 2)
        assert run.projections["registration"].context["registration_id"] != first
        run.postgres()
        run.consul()
        run.ack()
        assert run.states == ("registered", "active")


def test_an_introspection_after_the_end_starts_a_new_generation() -> None:
    run = Run().register()
    run.leave()
    run.pass_deadline("registration")
    assert run.states == ("deregistered", "departed")
    before = run.projections["handshake"].sequence
    run.introspect(environment="other")
    assert run.states == ("registering_postgres", "accepted")
    assert run.projections["handshake"].sequence == before + 2
    assert run.projections["registration"].context["environment"] == "other"
    assert run.projections["registration"].context["consul_applied"] is False


def test_a_departure_is_remembered_until_the_registration_can_follow() -> None:
    run = Run()
    run.introspect()
    run.leave()
    assert run.states == ("registering_postgres", "departed")
    run.postgres()
    run.consul()
    assert run.states == ("deregistering", "departed")


def test_a_departure_ends_a_partial_or_failed_registration() -> None:
    partial = Run()
    partial.introspect()
    partial.postgres()
    partial.consul(ok=False)
    made = partial.leave()
    assert partial.states == ("deregistered", "departed")
    kinds = {each.kind for fold in made.folds for each in fold.folded.outcome.intents}
    assert "postgres.delete_registration" in kinds
    failed = Run()
    failed.introspect()
    failed.postgres(ok=False)
    assert failed.states == ("failed", "accepted")
    failed.leave()
    assert failed.states == ("deregistered", "departed")


def test_consul_is_retried_three_times_with_a_growing_wait() -> None:
    run = Run()
    run.introspect()
    run.postgres()
    waits = []
    for _ in range(4):
        run.consul(ok=False)
        assert run.states[0] == "partial_registered"
        waits.append((run.projections["registration"].deadlines["retry"].at - run.now).seconds)
        run.pass_deadline("registration")
    assert waits == [1, 2, 4, 0]
    assert run.states == ("failed", "accepted")


def test_a_late_success_recovers_a_partial_registration() -> None:
    run = Run()
    run.introspect()
    run.postgres()
    run.consul(ok=False)
    late = run.projections["registration"].sequence - 1
    run.consul(registration_id=str(UUID(int=9)), asked_at=late)
    assert run.states == ("partial_registered", "accepted")
    run.consul(asked_at=late)
    assert run.states == ("registered", "awaiting_ack")


def test_registration_on_request_is_off_and_says_so() -> None:
    run = Run()
    made = run.tell("RegisterNodeRequested", NODE, "commands")
    assert made.result == "REFUSED"
    (line,) = [line for output in made.outputs for line in output.logs]
    assert "is off" in line.message
    allowed = Run(registry=catalogue(MACHINES, RollCallPolicy(register_on_request=True)))
    allowed.tell("RegisterNodeRequested", NODE, "commands")
    assert allowed.states == ("registering_postgres", "accepted")


def test_only_nodes_and_operators_words_come_from_outside() -> None:
    external = {str(each.message_type).split(".", 1)[1] for each in REGISTRY.specs if each.external}
    asked = {
        "events.NodeIntrospected",
        "commands.NodeRegistrationAcked",
        "commands.DeregisterNodeRequested",
        "commands.RegisterNodeRequested",
    }
    assert asked <= external
    assert "events.NodeRegistrationAccepted" not in external


def test_a_deregistration_is_complete_when_both_removals_succeeded() -> None:
    run = Run().register()
    run.leave()
    assert run.states == ("deregistering", "departed")
    run.removal("postgres", outstanding=1)
    assert run.states == ("deregistering", "departed")
    made = run.removal("consul")
    assert run.states == ("deregistered", "departed")
    (fold,) = made.folds
    assert fold.event.message_type == "registration.events.NodeDeregistrationCompleted"


def test_a_failed_removal_completes_nothing_and_time_does() -> None:
    run = Run().register()
    run.leave()
    run.removal("postgres", outstanding=1)
    assert run.removal("consul", ok=False).folds == []
    assert run.states == ("deregistering", "departed")
    run.pass_deadline("registration")
    assert run.states == ("deregistered", "departed")


def test_a_removal_that_an_earlier_step_asked_for_completes_nothing() -> None:
    run = Run().register()
    run.leave()
    run.removal("consul", asked_at=1)
    assert run.states == ("deregistering", "departed")


def test_an_answer_to_an_earlier_step_is_ignored() -> None:
    """Ruling 21."""
    run = Run()
    run.introspect()
    before = run.projections["registration"]
    made = run.tell("PostgresUpsertSucceeded", run.answer(postgres_applied=True, asked_at=7))
    assert (made.folds, made.result) == ([], "IGNORED")
    assert run.projections["registration"] == before


@pytest.mark.parametrize("to", ["awaiting_ack", "active", "deregistering"])
def test_a_node_may_leave_at_any_time(to: str) -> None:
    run = Run().register()
    if to == "active":
        run.ack()
    if to == "deregistering":
        run.pass_deadline("handshake")
        assert run.leave().folds == []
        assert run.states == ("deregistering", "ack_timed_out")
    else:
        run.leave()
        assert run.states == ("deregistering", "departed")
    run.removal("consul", outstanding=1)
    run.removal("postgres")
    assert run.states[0] == "deregistered"


def test_a_late_answer_is_judged_by_the_policy_of_now() -> None:
    run = Run().register()
    run.pass_deadline("handshake")
    run.registry = catalogue(MACHINES, RollCallPolicy(denied_nodes=frozenset({"n1"})))
    run.ack()
    assert run.states == ("deregistering", "rejected")
    assert run.projections["handshake"].context["rejection_reason"].endswith("deny-list")


def test_a_word_about_another_node_moves_nothing() -> None:
    run = Run().register()
    made = run.tell("DeregisterNodeRequested", {"node_id": "n2"}, "commands")
    assert (made.folds, made.result) == ([], "REFUSED")
    assert run.states == ("registered", "awaiting_ack")


def test_results_of_effects_do_not_come_from_outside() -> None:
    results = [each for each in REGISTRY.specs if str(each.message_type) in RESULT_TYPES]
    assert len(results) == len(RESULT_TYPES) == 8
    assert not any(each.external for each in results)
    assert all(each.payload.__name__ != "OpenPayload" for each in results)


def test_nobody_registers_a_node_behind_its_handshake() -> None:
    run = Run()
    data = {key: value for key, value in NODE.items() if key != "consul_tags"}
    asked = {"machine": "registration", "trigger": "REGISTER", "data": {**data, "payload": "p"}}
    assert run.tell("PullTrigger", asked, "commands").result == "REFUSED"
    assert run.states == ("-", "-")
