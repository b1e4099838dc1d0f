"""The two machines of a node together: what each makes of the other, and where they may rest."""

from collections.abc import Iterator, Mapping

from fsm.composition import Agency, Composition, Goal, Move, Reaction, Where
from fsm.contract import FATAL_ERROR, Contract, Pairs

_REGISTRATION = "registration"
_HANDSHAKE = "handshake"
_OVER = frozenset({"rejected", "ack_timed_out", "liveness_expired", "departed"})
_BEGUN = frozenset({"accepted", "awaiting_ack", "ack_received", "active"})
_RUNNING = _BEGUN | {"unknown", "pending_registration"}

_NODE: Mapping[str, object] = {
    "payload": "introspection",
    "node_id": "n",
    "deployment_id": "d",
    "environment": "e",
    "network_id": "w",
    "consul_service_id": "s",
    "consul_service_name": "s",
    "postgres_record": "record",
}

_POSTGRES_UP: Pairs = (("postgres_applied", True),)
_POSTGRES_DOWN: Pairs = (("postgres_applied", False),)
_CONSUL_UP: Pairs = (("consul_applied", True),)
_CONSUL_DOWN: Pairs = (("consul_applied", False),)
_BOTH_UP: Pairs = (*_POSTGRES_UP, *_CONSUL_UP)


def roll_call(
    registration: Contract, handshake: Contract, *, node: Mapping[str, object] = _NODE
) -> Composition:
    """Registration and handshake of one node, whose introspection says `node`."""
    return Composition(
        contracts=(registration, handshake),
        contexts=({**registration.new_context(), **node}, handshake.new_context()),
        moves=(*_world(), *_operator(registration)),
        reactions=_REACTIONS,
        goals=_GOALS,
    )


def _world() -> Iterator[Move]:
    """What effects may answer, what a node may do, and that anything may break at any time."""
    for trigger, data in (
        ("POSTGRES_SUCCEEDED", _POSTGRES_UP),
        ("POSTGRES_FAILED", _POSTGRES_DOWN),
        ("CONSUL_SUCCEEDED", _CONSUL_UP),
        ("CONSUL_FAILED", _CONSUL_DOWN),
        ("RECOVERY_COMPLETE", _BOTH_UP),
        ("DEREGISTRATION_COMPLETE", ()),
    ):
        yield Move(Agency.WORLD, _REGISTRATION, trigger, data)
    yield Move(Agency.WORLD, _REGISTRATION, FATAL_ERROR, when=((_HANDSHAKE, _BEGUN),))
    for trigger in ("INITIATED", "ACCEPTED", "REJECTED", "ACK_RECEIVED", "DEPARTED"):
        yield Move(Agency.WORLD, _HANDSHAKE, trigger)


def _operator(registration: Contract) -> Iterator[Move]:
    """What people may ask for. They do not register a node behind its handshake's back."""
    for trigger in registration.triggers:
        if registration.accepts_from_outside(trigger) and trigger != "REGISTER":
            yield Move(Agency.OPERATOR, _REGISTRATION, trigger)
    yield Move(Agency.OPERATOR, _HANDSHAKE, "DEPARTED")


def _when(registration: set[str], handshake: frozenset[str]) -> Where:
    return ((_REGISTRATION, frozenset(registration)), (_HANDSHAKE, handshake))


_ACCEPTED = frozenset({"accepted"})
_ACKNOWLEDGED = frozenset({"ack_received"})

_REACTIONS = (
    Reaction(_when({"unregistered"}, _ACCEPTED), _REGISTRATION, "REGISTER"),
    Reaction(_when({"registered"}, _ACCEPTED), _HANDSHAKE, "REGISTERED", (("registered", True),)),
    Reaction(
        _when({"registered"}, _ACKNOWLEDGED),
        _HANDSHAKE,
        "BECAME_ACTIVE",
        (("registered", True),),
    ),
    Reaction(_when({"registered"}, _OVER), _REGISTRATION, "DEREGISTER"),
    Reaction(_when({"partial_registered"}, _OVER), _REGISTRATION, FATAL_ERROR),
    Reaction(_when({"failed"}, _OVER), _REGISTRATION, "ABANDON"),
    Reaction(_when({"deregistered"}, _RUNNING), _HANDSHAKE, "DEPARTED"),
)

_GOALS = (
    Goal(_when({"registered"}, frozenset({"active"}))),
    Goal(_when({"deregistered"}, _OVER)),
    Goal(_when({"unregistered"}, _OVER)),
)
