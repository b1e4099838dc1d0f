"""A node's way from its introspection to `active`, on a real database."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from models.envelope import Envelope
from tasks.settings import Settings
from tests.runtime_kit import Kit, kit_of

NODE = {
    "node_id": "n1",
    "deployment_id": "d1",
    "environment": "prod",
    "network_id": "net",
    "consul_service_id": "svc-n1",
    "consul_service_name": "svc",
    "postgres_record": {"role": "web"},
}


@pytest.fixture
def kit(settings: Settings) -> Iterator[Kit]:
    yield from kit_of(settings)


def said(name: str, payload: Mapping[str, Any], cause: UUID | None = None) -> Envelope:
    return Envelope(
        message_id=uuid4(),
        correlation_id=uuid4(),
        causation_id=cause,
        emitted_at=datetime.now(UTC),
        entity_id="n1",
        message_type=f"registration.{name}",
        payload=dict(payload),
    )


def stands(kit: Kit) -> tuple[str, str]:
    return kit.states("registration")["n1"], kit.states("handshake")["n1"]


def test_a_node_becomes_active_with_an_unbroken_chain(kit: Kit) -> None:
    first = said("events.NodeIntrospected", NODE)
    kit.submit(first)
    kit.drain("registration")
    assert stands(kit) == ("registering_postgres", "accepted")
    postgres = said("events.PostgresUpsertSucceeded", {"postgres_applied": True}, first.message_id)
    kit.feed(postgres)
    kit.drain("registration")
    consul = said("events.ConsulRegisterSucceeded", {"consul_applied": True}, postgres.message_id)
    kit.feed(consul)
    kit.drain("registration")
    assert stands(kit) == ("registered", "awaiting_ack")
    ((attempt,),) = kit.sql(
        "SELECT context->>'registration_id' FROM entities WHERE machine = 'handshake'"
    )
    ack = said("commands.NodeRegistrationAcked", {"node_id": "n1", "registration_id": attempt})
    kit.submit(ack)
    kit.drain("registration")
    assert stands(kit) == ("registered", "active")
    rows = kit.sql(
        "SELECT CAST(message_id AS text), CAST(causation_id AS text), CAST(correlation_id AS text)"
        " FROM event_log WHERE entity_id = 'n1'"
    )
    known = {str(first.message_id), str(ack.message_id)} | {row[0] for row in rows}
    assert all(cause in known for _, cause, _ in rows)
    assert {row[2] for row in rows} == {str(first.correlation_id)}
    assert kit.sequences("n1", "handshake") == [1, 2, 3, 4, 5]
    assert kit.count("dead_letters") == 0
