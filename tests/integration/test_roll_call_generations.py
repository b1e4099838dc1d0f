"""Attempts that end and begin again, on a real database, with effects' answers fed by hand."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from models.envelope import Envelope
from tasks.settings import Settings
from tests.runtime_kit import Kit, kit_of

NODES = [f"n{at}" for at in range(108)]


@pytest.fixture
def kit(settings: Settings) -> Iterator[Kit]:
    yield from kit_of(settings)


def said(node_id: str, name: str, payload: Mapping[str, Any]) -> Envelope:
    return Envelope(
        message_id=uuid4(),
        correlation_id=uuid4(),
        causation_id=None,
        emitted_at=datetime.now(UTC),
        entity_id=node_id,
        message_type=f"registration.{name}",
        payload=dict(payload),
    )


def introspect(kit: Kit, *nodes: str) -> None:
    kit.submit(
        *(
            said(
                each,
                "events.NodeIntrospected",
                {
                    "node_id": each,
                    "deployment_id": "d1",
                    "environment": "prod",
                    "network_id": "net",
                    "consul_service_id": f"svc-{each}",
                    "consul_service_name": "svc",
                    "postgres_record": {"role": "web"},
                },
            )
            for each in nodes
        )
    )
    kit.drain("registration")


def answer(kit: Kit, name: str, **data: Any) -> None:
    """The same answer for every node whose registration has not ended."""
    rows = kit.sql(
        "SELECT entity_id, last_applied_sequence, context->>'registration_id' FROM entities"
        " WHERE machine = 'registration' AND state <> 'deregistered'"
    )
    kit.feed(
        *(
            said(
                node_id,
                f"events.{name}",
                {
                    "intent_id": str(uuid4()),
                    "attempt": 1,
                    "asked_at": sequence,
                    "registration_id": registration_id,
                    "outstanding": 0,
                }
                | data,
            )
            for node_id, sequence, registration_id in rows
        )
    )
    kit.drain("registration")


def register(kit: Kit) -> None:
    answer(kit, "PostgresUpsertSucceeded", postgres_applied=True)
    answer(kit, "ConsulRegisterSucceeded", consul_applied=True)


def acknowledge(kit: Kit) -> None:
    rows = kit.sql(
        "SELECT entity_id, context->>'registration_id' FROM entities WHERE machine = 'handshake'"
    )
    kit.submit(
        *(
            said(
                node_id,
                "commands.NodeRegistrationAcked",
                {"node_id": node_id, "registration_id": registration_id},
            )
            for node_id, registration_id in rows
        )
    )
    kit.drain("registration")


def pass_deadlines(kit: Kit, machine: str) -> None:
    """What a tick puts into the inbox that comes later than every deadline of the machine."""
    later = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    rows = kit.sql(
        "SELECT entity_id, name, (deadline->>'set_by')::int FROM entities,"
        f" json_each(deadlines) AS each (name, deadline) WHERE machine = '{machine}'"
    )
    kit.feed(
        *(
            said(
                node_id,
                "events.DeadlinePassed",
                {
                    "machine": machine,
                    "deadline": name,
                    "set_by": set_by,
                    "tick_sequence": 1,
                    "runtime_id": "r",
                    "now": later,
                },
            )
            for node_id, name, set_by in rows
        )
    )
    kit.drain("registration")


def stands(kit: Kit) -> set[tuple[str, str]]:
    registration, handshake = kit.states("registration"), kit.states("handshake")
    return {(registration[each], handshake[each]) for each in handshake}


def test_108_late_acknowledgements_leave_nobody_stuck(kit: Kit) -> None:
    """Promise 9."""
    introspect(kit, *NODES)
    register(kit)
    assert stands(kit) == {("registered", "awaiting_ack")}
    pass_deadlines(kit, "handshake")
    assert stands(kit) == {("deregistering", "ack_timed_out")}
    acknowledge(kit)
    assert stands(kit) == {("deregistering", "pending_registration")}
    answer(kit, "PostgresDeleteSucceeded", outstanding=1)
    answer(kit, "ConsulDeregisterSucceeded")
    assert stands(kit) == {("registering_postgres", "accepted")}
    register(kit)
    acknowledge(kit)
    assert stands(kit) == {("registered", "active")}
    assert len(kit.states("handshake")) == 108
    assert kit.count("dead_letters") == 0


def test_the_log_folds_across_generations(kit: Kit) -> None:
    """Promise 5."""
    introspect(kit, "n1", "n2")
    register(kit)
    kit.submit(said("n1", "commands.DeregisterNodeRequested", {"node_id": "n1"}))
    kit.drain("registration")
    pass_deadlines(kit, "registration")
    assert kit.states("registration")["n1"] == "deregistered"
    introspect(kit, "n1")
    rows = kit.sql(
        "SELECT machine, context->>'generation' FROM entities WHERE entity_id = 'n1'"
        " ORDER BY machine"
    )
    assert rows == [("handshake", "2"), ("registration", "2")]
    kit.audit()


def test_an_answer_to_an_earlier_step_is_recorded_and_ignored(kit: Kit) -> None:
    """Ruling 21."""
    introspect(kit, "n1")
    answer(kit, "PostgresUpsertSucceeded", postgres_applied=True, asked_at=0)
    assert stands(kit) == {("registering_postgres", "accepted")}
    assert sorted(kit.results().values()) == ["IGNORED", "OK"]
