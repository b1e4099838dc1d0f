"""What an outsider may bring with a trigger, and what only the machine may say."""

from datetime import UTC, datetime
from uuid import uuid4

import pytest
from pydantic.types import JsonValue

from fsm.library import load_library
from fsm.machines import Machines
from fsm.orchestrators.machines import MachineOrchestrator
from models.envelope import Envelope
from models.output import HandlerOutput, OrchestratorContext

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def asked(data: dict[str, JsonValue]) -> HandlerOutput:
    """What is made of an operator's RETRY that brings these data."""
    message = Envelope(
        message_id=uuid4(),
        correlation_id=uuid4(),
        causation_id=None,
        emitted_at=NOW,
        entity_id="n1",
        message_type="registration.commands.PullTrigger",
        payload={"machine": "registration", "trigger": "RETRY", "data": data},
    )
    machines = Machines(load_library().values())
    orchestrator = MachineOrchestrator("registration", machines)
    return orchestrator.decide(message, OrchestratorContext(now=NOW, projections={}))


@pytest.mark.parametrize(
    "field",
    [
        "postgres_applied",
        "consul_applied",
        "postgres_error",
        "consul_error",
        "validation_error",
        "retry_count",
        "registration_id",
        "generation",
    ],
)
def test_a_field_of_the_machine_is_refused_by_name(field: str) -> None:
    output = asked({field: True, "note": "mended"})
    assert output.events == ()
    (line,) = output.logs
    assert line.message == f"RETRY refused: data.{field}: is the machine's own"


def test_every_refused_field_is_named() -> None:
    (line,) = asked({"retry_count": 0, "consul_applied": True}).logs
    assert "data.consul_applied: " in line.message
    assert "data.retry_count: " in line.message


def test_other_data_go_with_the_trigger() -> None:
    (event,) = asked({"note": "mended"}).events
    assert event.message_type == "registration.events.NodeRegistrationRetried"
    assert event.payload == {"note": "mended"}
