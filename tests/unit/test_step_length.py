"""One message's step: how long it may become."""

from datetime import UTC, datetime
from uuid import uuid4

import pytest

from fsm.emission import caused
from fsm.machines import Machines
from fsm.step import MOST_EVENTS, Step, step
from models.envelope import Envelope
from models.errors import MessageError
from models.output import HandlerOutput, OrchestratorContext, Role
from models.registry import HandlerSpec, MessageRegistry, MessageSpec, parse_message_type

NEXT = parse_message_type("relay.events.PassedOn")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def pass_on(message: Envelope, context: OrchestratorContext) -> HandlerOutput:
    left = message.payload["left"]
    assert isinstance(left, int)
    if not left:
        return HandlerOutput()
    event = caused(message, context, "relay", 0, str(NEXT), {"left": left - 1})
    return HandlerOutput(events=(event,))


def relayed(events: int) -> Step:
    """A step of that many events, the message itself among them."""
    handler = HandlerSpec("relay", Role.ORCHESTRATOR, "relay", (NEXT,), pass_on)
    message = Envelope(
        message_id=uuid4(),
        correlation_id=uuid4(),
        causation_id=None,
        emitted_at=NOW,
        entity_id="baton",
        message_type=str(NEXT),
        payload={"left": events - 1},
    )
    return step(Machines(()), MessageRegistry([MessageSpec(NEXT)], [handler]), {}, message, NOW)


def test_a_step_of_as_many_events_as_allowed_is_taken() -> None:
    assert len(relayed(MOST_EVENTS).outputs) == MOST_EVENTS


def test_one_event_more_is_refused() -> None:
    with pytest.raises(MessageError, match="more than 64 events"):
        relayed(MOST_EVENTS + 1)
