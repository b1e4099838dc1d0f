"""How an orchestrator makes an event: caused by its message, in its workflow, under a fixed id."""

from collections.abc import Mapping
from typing import Any
from uuid import uuid5

from models.envelope import Envelope
from models.output import OrchestratorContext


def caused(
    message: Envelope,
    context: OrchestratorContext,
    name: str,
    ordinal: int,
    message_type: str,
    payload: Mapping[str, Any],
) -> Envelope:
    """The `ordinal`-th event that the orchestrator `name` emits because of `message`."""
    workflow = next(
        (each.correlation_id for each in context.projections.values()), message.correlation_id
    )
    return Envelope.trusted(
        message_id=uuid5(message.message_id, f"{name}:orchestrator:{ordinal}"),
        correlation_id=workflow,
        causation_id=message.message_id,
        emitted_at=context.now,
        entity_id=message.entity_id,
        message_type=message_type,
        payload=dict(payload),
    )
