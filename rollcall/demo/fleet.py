"""The simulated fleet: who does what, and what each node says by where it stands."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from uuid import uuid4

from models.envelope import Envelope
from models.messages.registration import (
    DeregisterNodeRequested,
    NodeIntrospected,
    NodeRegistrationAcked,
)
from rollcall.demo.count import Expected, Seen

SERVICE = "rollcall-demo"
_BEATS_OF_THE_DYING = 2
_EVERY_SO_MANY_SAY_IT_TWICE = 7


class Part(StrEnum):
    """What a node does once it has introduced itself."""

    STAYS = "stays"
    LATE = "late"  # answers when the time for it is over, then again
    DIES = "dies"  # falls silent
    LEAVES = "leaves"
    QUITS = "quits"  # leaves before it has been registered


# Twenty nodes; the first five are one of each.
_PARTS = (*Part, *(Part.STAYS,) * 10, Part.LATE, Part.LATE, Part.DIES, Part.LEAVES, Part.STAYS)
_EXPECTED: Mapping[Part, Expected] = {
    Part.STAYS: Expected("active"),
    Part.LATE: Expected("active", generation=2),
    Part.DIES: Expected("liveness_expired"),
    Part.LEAVES: Expected("departed"),
    Part.QUITS: Expected("departed"),
}


@dataclass
class Node:
    """One node, and what it has said so far."""

    node_id: str
    part: Part
    introduced: Envelope | None = None
    answered: set[str] = field(default_factory=set)
    beats: int = 0
    left: bool = False

    @property
    def expected(self) -> Expected:
        return _EXPECTED[self.part]


class Fleet:
    """Nodes that introduce themselves one after the other and react to where they stand."""

    def __init__(self, number: int) -> None:
        self.nodes = [Node(f"node-{at + 1:04}", _PARTS[at % len(_PARTS)]) for at in range(number)]

    @property
    def expected(self) -> dict[str, Expected]:
        return {each.node_id: each.expected for each in self.nodes}

    @property
    def introduced(self) -> dict[str, datetime]:
        """When each node introduced itself."""
        return {each.node_id: each.introduced.emitted_at for each in self.nodes if each.introduced}

    def introduce(self, share: float) -> list[Envelope]:
        """What the nodes up to this share of the fleet say that have not spoken yet. Some say it
        twice, like a node that had no answer."""
        said: list[Envelope] = []
        for at, node in enumerate(self.nodes[: round(share * len(self.nodes))]):
            if node.introduced is None:
                node.introduced = _said(NodeIntrospected.message_type, node, _introspection(node))
                said.append(node.introduced)
                if at % _EVERY_SO_MANY_SAY_IT_TWICE == 0:
                    said.append(node.introduced)
        return said

    def react(self, seen: Mapping[str, Seen]) -> list[Envelope]:
        """Answers and farewells."""
        return [
            message
            for node in self.nodes
            if node.node_id in seen
            for message in _reaction(node, seen[node.node_id])
        ]

    def alive(self, seen: Mapping[str, Seen]) -> Sequence[str]:
        """The active nodes that send a heartbeat now."""
        found: list[str] = []
        for node in self.nodes:
            active = node.node_id in seen and seen[node.node_id].handshake == "active"
            if active and not (node.part is Part.DIES and node.beats >= _BEATS_OF_THE_DYING):
                node.beats += 1
                found.append(node.node_id)
        return found


def _reaction(node: Node, seen: Seen) -> Iterator[Envelope]:
    if node.part is Part.QUITS or (node.part is Part.LEAVES and node.beats > 1):
        if not node.left:
            node.left = True
            said = {"node_id": node.node_id, "reason": node.part.value}
            yield _said(DeregisterNodeRequested.message_type, node, said)
        return
    waits = node.part is Part.LATE and seen.generation == 1
    open_ = {"ack_timed_out"} if waits else {"accepted", "awaiting_ack", "ack_timed_out"}
    answer = f"{seen.registration_id} {seen.handshake == 'ack_timed_out'}"
    if seen.registration_id and seen.handshake in open_ and answer not in node.answered:
        node.answered.add(answer)
        said = {"node_id": node.node_id, "registration_id": seen.registration_id}
        yield _said(NodeRegistrationAcked.message_type, node, said)


def _said(message_type: str, node: Node, payload: Mapping[str, Any]) -> Envelope:
    return Envelope(
        message_id=uuid4(),
        correlation_id=uuid4(),
        causation_id=None,
        emitted_at=datetime.now(UTC),
        entity_id=node.node_id,
        message_type=message_type,
        payload=dict(payload),
    )


def _introspection(node: Node) -> dict[str, Any]:
    return {
        "node_id": node.node_id,
        "deployment_id": "demo",
        "environment": "demo",
        "network_id": "loopback",
        "consul_service_id": f"{SERVICE}-{node.node_id}",
        "consul_service_name": SERVICE,
        "consul_tags": ["demo"],
        "postgres_record": {"part": node.part.value},
        "address": "127.0.0.1",
        "port": 9000,
    }
