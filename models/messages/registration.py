"""The roll call's messages: what nodes and operators say, and what is decided about them."""

from typing import Annotated, ClassVar, Literal, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.types import JsonValue

from models.canonical import canonical

LARGEST_RECORD = 64 * 1024
MOST_TAGS = 64

NodeId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}\z")]
Name = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[^\x00-\x1f\x7f]+\z")]
Address = Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[A-Za-z0-9._:-]+\z")]
Port = Annotated[int, Field(ge=1, le=65535)]
Reason = Annotated[str, Field(min_length=1, max_length=2000)]
Error = Annotated[str, Field(max_length=2000)]
Count = Annotated[int, Field(ge=0)]
Record = dict[Annotated[str, Field(max_length=128)], JsonValue]


class _Said(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _Node(_Said):
    """What is to be registered of a node."""

    node_id: NodeId
    deployment_id: Name
    environment: Name
    network_id: Name
    consul_service_id: Name
    consul_service_name: Name
    consul_tags: Annotated[list[Name], Field(max_length=MOST_TAGS)] = Field(default_factory=list)
    consul_health_check: Record | None = None
    postgres_record: Record
    address: Address | None = None
    port: Port | None = None

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        for name in ("postgres_record", "consul_health_check"):
            if len(canonical(getattr(self, name)).encode()) > LARGEST_RECORD:
                raise ValueError(f"{name} takes at most {LARGEST_RECORD} bytes")
        return self


class NodeIntrospected(_Node):
    """A node introduced itself."""

    message_type: ClassVar[str] = "registration.events.NodeIntrospected"


class RegisterNodeRequested(_Node):
    """An administrator asks to register a node that does not introduce itself."""

    message_type: ClassVar[str] = "registration.commands.RegisterNodeRequested"


class NodeRegistrationAcked(_Said):
    """A node answers the offer of that registration."""

    message_type: ClassVar[str] = "registration.commands.NodeRegistrationAcked"

    node_id: NodeId
    registration_id: UUID


class DeregisterNodeRequested(_Said):
    """A node leaves, or somebody sends it away."""

    message_type: ClassVar[str] = "registration.commands.DeregisterNodeRequested"

    node_id: NodeId
    reason: Reason | None = None


class ReplayRegistrationRequested(_Said):
    """An operator replays a dead letter of that registration, whose attempt is over."""

    message_type: ClassVar[str] = "registration.commands.ReplayRegistrationRequested"

    node_id: NodeId
    registration_id: UUID


class _Attempt(_Said):
    registration_id: UUID
    generation: Annotated[int, Field(ge=1)]


class NodeRegistrationInitiated(_Attempt):
    """An attempt begins, with what the node said; a reason means that it will be refused."""

    message_type: ClassVar[str] = "registration.events.NodeRegistrationInitiated"

    offer: dict[str, JsonValue]
    rejection_reason: Reason | None = None


class NodeRegistrationAccepted(_Node, _Attempt):
    """The node may be registered."""

    message_type: ClassVar[str] = "registration.events.NodeRegistrationAccepted"

    payload: Name
    correlation_id: UUID


class NodeRegistrationRejected(_Attempt):
    """The node may not be registered."""

    message_type: ClassVar[str] = "registration.events.NodeRegistrationRejected"

    rejection_reason: Reason


class NodeRegistrationAckReceived(_Attempt):
    """The node's answer was taken; `ack_correlation_id` is the node's own."""

    message_type: ClassVar[str] = "registration.events.NodeRegistrationAckReceived"

    acknowledged: bool
    ack_correlation_id: UUID


class _Plain(_Said):
    """A fact that needs no more words than its name."""


class NodeRegistrationAckTimedOut(_Plain):
    """No answer came in time."""

    message_type: ClassVar[str] = "registration.events.NodeRegistrationAckTimedOut"


class NodeLivenessExpired(_Plain):
    """No heartbeat came in time."""

    message_type: ClassVar[str] = "registration.events.NodeLivenessExpired"


class NodeDeparted(_Plain):
    """The node left, was sent away, or its registration ended."""

    message_type: ClassVar[str] = "registration.events.NodeDeparted"


class NodeDeregistrationStarted(_Plain):
    """Both systems are to forget the node."""

    message_type: ClassVar[str] = "registration.events.NodeDeregistrationStarted"


class NodeDeregistrationCompleted(_Plain):
    """Both systems forgot the node, or had their time to."""

    message_type: ClassVar[str] = "registration.events.NodeDeregistrationCompleted"


class NodeRegistrationRetried(_Plain):
    """The part that failed is tried again."""

    message_type: ClassVar[str] = "registration.events.NodeRegistrationRetried"


class NodePostgresRetried(_Plain):
    """PostgreSQL is tried again."""

    message_type: ClassVar[str] = "registration.events.NodePostgresRetried"


class NodeRegistrationAbandoned(_Plain):
    """A failed registration was given up."""

    message_type: ClassVar[str] = "registration.events.NodeRegistrationAbandoned"


class NodeRegistrationRetriesExhausted(_Plain):
    """Consul was tried often enough."""

    message_type: ClassVar[str] = "registration.events.NodeRegistrationRetriesExhausted"


class _Registered(_Said):
    registered: Literal[True]


class NodeRegistered(_Registered):
    """Both systems know the node; it is asked to answer."""

    message_type: ClassVar[str] = "registration.events.NodeRegistered"


class NodeBecameActive(_Registered):
    """The node is registered and answered."""

    message_type: ClassVar[str] = "registration.events.NodeBecameActive"


class NodeRegistrationRecovered(_Said):
    """Consul had been given up and did it after all."""

    message_type: ClassVar[str] = "registration.events.NodeRegistrationRecovered"

    postgres_applied: Literal[True]
    consul_applied: Literal[True]
