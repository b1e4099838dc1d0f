"""The roll call's decisions: who is registered, answers in time, leaves, and starts again.

An attempt is a generation of both machines. One that has ended is never taken up again; the next
one waits in `pending_registration` until what the last one wrote is taken back.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid5

from pydantic import ValidationError

from fsm.contract import FATAL_ERROR, Level
from fsm.contract_terms import Log
from fsm.emission import caused
from models.envelope import Envelope
from models.messages.effect_results import (
    REMOVALS,
    ConsulDeregisterSucceeded,
    ConsulRegisterSucceeded,
    PostgresDeleteSucceeded,
)
from models.messages.registration import (
    DeregisterNodeRequested,
    NodeBecameActive,
    NodeDeparted,
    NodeDeregistrationCompleted,
    NodeDeregistrationStarted,
    NodeIntrospected,
    NodeRegistered,
    NodeRegistrationAbandoned,
    NodeRegistrationAccepted,
    NodeRegistrationAcked,
    NodeRegistrationAckReceived,
    NodeRegistrationInitiated,
    NodeRegistrationRecovered,
    NodeRegistrationRejected,
    RegisterNodeRequested,
    ReplayRegistrationRequested,
)
from models.messages.runtime import TriggerPulled
from models.output import HandlerOutput, OrchestratorContext, Role
from models.projection import Projection
from models.registry import HandlerSpec, MessageType, parse_message_type

REGISTRATION = "registration"
HANDSHAKE = "handshake"
_OVER = frozenset({"rejected", "ack_timed_out", "liveness_expired", "departed"})
_MAY_ANSWER_LATE = frozenset({"ack_timed_out", "liveness_expired"})
_EVENTS = "registration.events"
_LONGEST_REASON = 2000
_MOST_RETRIES = 3

Said = tuple[str, Mapping[str, Any]]
"""The type of an event and its payload."""


@dataclass(frozen=True, slots=True)
class RollCallPolicy:
    """Who may be registered. No allow-list lets every environment in."""

    environments: frozenset[str] | None = None
    denied_nodes: frozenset[str] = frozenset()
    register_on_request: bool = False


class RegistrationOrchestrator:
    """Decides for both machines of a node, by where they stand."""

    name = "registration.roll_call"

    def __init__(self, policy: RollCallPolicy, folded: tuple[MessageType, ...]) -> None:
        self._policy = policy
        self._folded = folded

    def spec(self) -> HandlerSpec:
        asked = (NodeIntrospected, RegisterNodeRequested, NodeRegistrationAcked)
        return HandlerSpec(
            name=self.name,
            role=Role.ORCHESTRATOR,
            domain=REGISTRATION,
            consumes=(
                *(parse_message_type(each.message_type) for each in asked),
                parse_message_type(DeregisterNodeRequested.message_type),
                parse_message_type(ReplayRegistrationRequested.message_type),
                *self._folded,
                *(parse_message_type(each.message_type) for each in REMOVALS),
            ),
            run=self.decide,
        )

    def decide(self, message: Envelope, context: OrchestratorContext) -> HandlerOutput:
        handshake = context.projections.get(HANDSHAKE)
        if message.message_type in _ABOUT and message.payload["node_id"] != message.entity_id:
            return HandlerOutput(logs=(_STRANGER,))
        match message.message_type:
            case NodeIntrospected.message_type:
                said = self._introduced(message, handshake)
            case RegisterNodeRequested.message_type:
                if not self._policy.register_on_request:
                    return HandlerOutput(logs=(_OFF,))
                said = self._introduced(message, handshake)
            case NodeRegistrationAcked.message_type:
                said = self._acknowledged(message, handshake)
            case DeregisterNodeRequested.message_type:
                said = _leaves(handshake)
            case ReplayRegistrationRequested.message_type:
                said = self._again(message, handshake, context.projections.get(REGISTRATION))
            case _:
                said = _reactions(message, handshake, context.projections.get(REGISTRATION))
        return HandlerOutput(
            events=tuple(
                caused(message, context, self.name, ordinal, message_type, payload)
                for ordinal, (message_type, payload) in enumerate(said)
            )
        )

    def _introduced(self, message: Envelope, handshake: Projection | None) -> Iterator[Said]:
        """A node with an attempt under way has been heard already."""
        if handshake is None or handshake.state in _OVER:
            yield self._initiated(message, handshake, message.payload)

    def _acknowledged(self, message: Envelope, handshake: Projection | None) -> Iterator[Said]:
        """On time or early it counts, again it says nothing new, late it asks for a new offer."""
        if handshake is None:
            return
        if handshake.state in _MAY_ANSWER_LATE:
            yield self._initiated(message, handshake, handshake.context["offer"])
        elif handshake.state in {"accepted", "awaiting_ack"}:
            attempt = _attempt(handshake)
            if message.payload.get("registration_id") == attempt["registration_id"]:
                theirs = {"acknowledged": True, "ack_correlation_id": str(message.correlation_id)}
                yield NodeRegistrationAckReceived.message_type, attempt | theirs

    def _again(
        self, message: Envelope, handshake: Projection | None, registration: Projection | None
    ) -> Iterator[Said]:
        """Retry an attempt that failed while its guard allows it; else end it and begin the next
        one from what the node said. What the end has to take back, the reactions see to."""
        if handshake is None or registration is None:
            return
        context, here = registration.context, registration.state
        if message.payload.get("registration_id") != context.get("registration_id"):
            return
        over = handshake.state in _OVER
        if here in {"failed", "partial_registered"} and not over:
            if int(context.get("retry_count") or 0) < _MOST_RETRIES:
                behind = (
                    here == "partial_registered" and context.get("postgres_applied") is not True
                )
                retried = "NodePostgresRetried" if behind else "NodeRegistrationRetried"
                yield f"{_EVENTS}.{retried}", {}
                return
            yield f"{_EVENTS}.NodeDeparted", {}
            over = True
        if over and here in {"failed", "partial_registered", "deregistered"}:
            yield self._initiated(message, handshake, handshake.context["offer"])

    def _initiated(
        self, message: Envelope, last: Projection | None, offer: Mapping[str, Any]
    ) -> Said:
        """A new attempt, judged by the policy of now, whoever asked for it."""
        said: dict[str, Any] = {
            "registration_id": str(uuid5(message.message_id, "registration")),
            "generation": _generation(last) + 1,
            "offer": dict(offer),
        }
        if (refusal := self._refusal(message.entity_id, offer)) is not None:
            said["rejection_reason"] = refusal
        return NodeRegistrationInitiated.message_type, said

    def _refusal(self, entity_id: str, offer: Mapping[str, Any]) -> str | None:
        try:
            node = NodeIntrospected.model_validate(offer)
        except ValidationError as error:
            return "; ".join(
                f"{'.'.join(map(str, each['loc'])) or 'payload'}: {each['msg']}"
                for each in error.errors(include_url=False, include_input=False)
            )[:_LONGEST_REASON]
        if node.node_id != entity_id:
            return "node_id: is not the entity the message is about"
        if node.node_id in self._policy.denied_nodes:
            return "node_id: is on the deny-list"
        allowed = self._policy.environments
        if allowed is not None and node.environment not in allowed:
            return "environment: is not on the allow-list"
        return None


_ABOUT = frozenset({NodeRegistrationAcked.message_type, DeregisterNodeRequested.message_type})
_STRANGER = Log(Level.WARNING, "refused: node_id is not the entity the message is about")
_OFF = Log(
    Level.WARNING,
    "RegisterNodeRequested refused: registration on request is off, nodes introduce themselves",
)


def _leaves(handshake: Projection | None) -> Iterator[Said]:
    """The handshake remembers it; the registration follows as soon as its state lets it."""
    if handshake is not None and handshake.state not in _OVER:
        yield NodeDeparted.message_type, {}


def _reactions(
    message: Envelope, handshake: Projection | None, registration: Projection | None
) -> Iterator[Said]:
    """What one machine makes of the other, each time one of them was told something."""
    if registration is not None and _removed(message, registration):
        yield NodeDeregistrationCompleted.message_type, {}
        return
    if handshake is None:
        return
    here = "unregistered" if registration is None else registration.state
    behind = _generation(registration) < _generation(handshake)
    if handshake.state == "pending_registration":
        yield from _judged(handshake, here == "unregistered" or (here == "deregistered" and behind))
    if handshake.state in _OVER or behind:
        yield from _taken_back(here)
    elif here == "deregistered":
        yield NodeDeparted.message_type, {}
    elif here == "registered" and handshake.state == "accepted":
        yield NodeRegistered.message_type, {"registered": True}
    elif here == "registered" and handshake.state == "ack_received":
        yield NodeBecameActive.message_type, {"registered": True}
    elif registration is not None and _late_success(message, registration):
        applied = {"postgres_applied": True, "consul_applied": True}
        yield NodeRegistrationRecovered.message_type, applied


def _judged(handshake: Projection, free: bool) -> Iterator[Said]:
    attempt, reason = _attempt(handshake), handshake.context.get("rejection_reason")
    if reason is not None:
        said = attempt | {"rejection_reason": reason}
        yield NodeRegistrationRejected.message_type, said
    elif free:
        offer = dict(handshake.context["offer"])
        beside = {"payload": "introspection", "correlation_id": str(handshake.correlation_id)}
        yield NodeRegistrationAccepted.message_type, offer | attempt | beside


def _taken_back(here: str) -> Iterator[Said]:
    match here:
        case "registered":
            yield NodeDeregistrationStarted.message_type, {}
        case "partial_registered":
            fatal = {"machine": REGISTRATION, "trigger": FATAL_ERROR, "data": {}}
            yield f"{_EVENTS}.{TriggerPulled.name}", fatal
        case "failed":
            yield NodeRegistrationAbandoned.message_type, {}
        case _:
            pass


_GONE = frozenset({PostgresDeleteSucceeded.message_type, ConsulDeregisterSucceeded.message_type})


def _removed(message: Envelope, registration: Projection) -> bool:
    """The last removal this deregistration waited for succeeded. A failed one ends nothing: what
    it left is looked for until the state's own time is over."""
    return (
        registration.state == "deregistering"
        and message.message_type in _GONE
        and message.payload["asked_at"] == registration.sequence
        and message.payload["outstanding"] == 0
    )


def _late_success(message: Envelope, registration: Projection) -> bool:
    """Consul answered after we had given it up; an answer to another attempt does not count."""
    named = message.payload.get("registration_id")
    return (
        registration.state == "partial_registered"
        and message.message_type == ConsulRegisterSucceeded.message_type
        and message.payload.get("consul_applied") is True
        and named in (None, registration.context.get("registration_id"))
    )


def _attempt(handshake: Projection) -> dict[str, Any]:
    return {key: handshake.context[key] for key in ("registration_id", "generation")}


def _generation(projection: Projection | None) -> int:
    return 0 if projection is None else int(projection.context.get("generation") or 0)
