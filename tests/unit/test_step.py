"""One message's whole effect, decided in memory by the real machines and their registry."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4, uuid5

import pytest

from fsm.emission import caused
from fsm.library import all_machines
from fsm.machines import Machines, partition_of
from fsm.step import Step, step
from models.envelope import Envelope
from models.errors import MessageError, ShapeError
from models.messages.runtime import PullTrigger
from models.output import HandlerOutput, OrchestratorContext, Role
from models.projection import Projection
from models.registry import (
    HandlerSpec,
    MessageRegistry,
    MessageSpec,
    machine_message_specs,
    parse_message_type,
)
from tasks.catalogue import catalogue

FOLDER = Path(__file__).parent.parent / "machines"
MACHINES = Machines([each.contract for each in all_machines(FOLDER).values()])
REGISTRY = catalogue(MACHINES)
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def pull(trigger: str, machine: str = "lamp", **said: Any) -> Envelope:
    fields: dict[str, Any] = {
        "message_id": uuid4(),
        "correlation_id": uuid4(),
        "causation_id": None,
        "emitted_at": NOW,
        "entity_id": "l1",
        "message_type": f"{machine}.commands.PullTrigger",
        "payload": {"machine": machine, "trigger": trigger, "data": {}},
    }
    return Envelope(**fields | said)


def taken(message: Envelope, before: dict[str, Projection] | None = None) -> Step:
    return step(MACHINES, REGISTRY, before or {}, message, NOW)


def test_the_first_event_gives_birth() -> None:
    made = taken(pull("PRESS"))
    lamp = made.projections["lamp"]
    assert (lamp.state, lamp.sequence, made.result) == ("lit", 1, "OK")
    assert lamp.deadlines["burn"].set_by == 1
    assert lamp.deadlines["burn"].cause == made.folds[0].event.message_id


def test_ids_depend_on_the_cause_alone() -> None:
    """Promise 5, ruling 1."""
    message = pull("PRESS")
    first, second = taken(message), taken(message)
    assert first.folds[0].event == second.folds[0].event
    assert first.folds[0].event.message_id == uuid5(
        message.message_id, "lamp.machines:orchestrator:0"
    )
    assert first.projections["lamp"].digest() == second.projections["lamp"].digest()


def test_the_workflow_keeps_its_correlation_id_and_the_outsiders_is_its_own() -> None:
    """Ruling 2."""
    born = taken(pull("PRESS"))
    workflow = born.projections["lamp"].correlation_id
    stranger = pull("RELEASE")
    after = taken(stranger, born.projections)
    assert stranger.correlation_id != workflow
    assert after.folds[0].event.correlation_id == workflow
    assert after.folds[0].event.causation_id == stranger.message_id


@pytest.mark.parametrize(
    ("trigger", "result"), [("TIMEOUT", "REFUSED"), ("DANCE", "REFUSED"), ("RELEASE", None)]
)
def test_what_is_refused_changes_nothing(trigger: str, result: str | None) -> None:
    made = taken(pull(trigger))
    assert (made.folds, made.projections) == ([], {})
    assert made.result == result if result else made.result in ("INVALID_STATE", "UNKNOWN")


def test_a_refusal_says_why() -> None:
    born = taken(pull("PRESS"))
    assert born.reason is None
    early = taken(pull("RELEASE"))
    assert early.result != "OK"
    assert early.reason is not None
    assert "RELEASE" in early.reason
    assert taken(pull("DANCE")).reason == "no handler grants this from outside"


def test_an_outsider_does_not_begin_a_generation() -> None:
    message = pull("REGISTER", "registration")
    message.payload["data"]["generation"] = 9  # type: ignore[index,call-overload]
    assert taken(message).result == "REFUSED"


def test_an_unborn_entity_has_no_deadline_to_pass() -> None:
    passed = pull(
        "x",
        message_type="lamp.events.DeadlinePassed",
        payload={
            "machine": "lamp",
            "deadline": "burn",
            "set_by": 1,
            "tick_sequence": 1,
            "runtime_id": "rt",
            "now": NOW.isoformat(),
        },
    )
    assert taken(passed).folds == []


class Strange:
    """An orchestrator that does what the test wants."""

    def __init__(self, decide: Any) -> None:
        specs = [
            *machine_message_specs("lamp"),
            MessageSpec(parse_message_type("lamp.events.Noticed")),
        ]
        consumed = tuple(spec.message_type for spec in specs)
        handler = HandlerSpec("strange", Role.ORCHESTRATOR, "lamp", consumed, decide)
        self.registry = MessageRegistry(specs, [handler])

    def taken(self, message: Envelope) -> Step:
        return step(MACHINES, self.registry, {}, message, NOW)


def noticed(message: Envelope, context: OrchestratorContext, ordinal: int = 0) -> Envelope:
    return caused(message, context, "strange", ordinal, "lamp.events.Noticed", {})


def test_two_handlers_that_answer_each_other_for_ever_are_stopped() -> None:
    strange = Strange(lambda m, c: HandlerOutput(events=(noticed(m, c),)))
    with pytest.raises(MessageError, match="more than 64 events"):
        strange.taken(pull("PRESS"))


def test_an_event_outside_the_chain_is_refused() -> None:
    """Promise 11."""

    def decide(message: Envelope, context: OrchestratorContext) -> HandlerOutput:
        loose = noticed(message, context).model_copy(update={"causation_id": UUID(int=7)})
        return HandlerOutput(events=(loose,))

    with pytest.raises(MessageError, match="outside the chain"):
        Strange(decide).taken(pull("PRESS"))


def test_an_orchestrator_that_returns_a_projection_is_refused() -> None:
    born = taken(pull("PRESS")).projections["lamp"]
    with pytest.raises(ShapeError, match="an orchestrator returned projections"):
        Strange(lambda m, c: HandlerOutput(projections=(born,))).taken(pull("PRESS"))


def test_what_concerns_another_entity_goes_through_its_own_inbox() -> None:
    def decide(message: Envelope, context: OrchestratorContext) -> HandlerOutput:
        if not message.message_type.endswith(PullTrigger.name):
            return HandlerOutput()
        other = noticed(message, context).model_copy(update={"entity_id": "l2"})
        return HandlerOutput(events=(other,))

    made = Strange(decide).taken(pull("PRESS"))
    assert [each.entity_id for each in made.elsewhere] == ["l2"]
    assert made.folds == []


def test_an_entitys_partition_is_the_same_everywhere() -> None:
    """Ruling 6: numbers that another process, started another day, must find again."""
    assert [partition_of(each, 16) for each in ("a", "node-1", "n\u00f6de")] == [3, 15, 15]
