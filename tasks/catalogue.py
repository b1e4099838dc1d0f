"""Every message and handler of a set of machines, registered and checked before anything runs."""

from collections import defaultdict
from collections.abc import Mapping
from types import MappingProxyType

from pydantic import BaseModel

from fsm.contract import Contract
from fsm.machines import Machines, domain_of
from fsm.orchestrators.machines import MachineOrchestrator
from fsm.orchestrators.registration import (
    HANDSHAKE,
    REGISTRATION,
    RegistrationOrchestrator,
    RollCallPolicy,
)
from fsm.reducer import MachineReducer
from models.messages.effect_results import REMOVALS, RESULTS
from models.messages.registration import (
    DeregisterNodeRequested,
    NodeBecameActive,
    NodeDeparted,
    NodeDeregistrationCompleted,
    NodeDeregistrationStarted,
    NodeIntrospected,
    NodeLivenessExpired,
    NodePostgresRetried,
    NodeRegistered,
    NodeRegistrationAbandoned,
    NodeRegistrationAccepted,
    NodeRegistrationAcked,
    NodeRegistrationAckReceived,
    NodeRegistrationAckTimedOut,
    NodeRegistrationInitiated,
    NodeRegistrationRecovered,
    NodeRegistrationRejected,
    NodeRegistrationRetried,
    NodeRegistrationRetriesExhausted,
    RegisterNodeRequested,
    ReplayRegistrationRequested,
)
from models.messages.runtime import TriggerPulled
from models.output import Role
from models.registry import (
    HandlerSpec,
    MessageRegistry,
    MessageSpec,
    MessageType,
    OpenPayload,
    machine_message_specs,
    parse_message_type,
)
from models.topics import Category

EVERYBODY = RollCallPolicy()
_ASKED = (NodeIntrospected, RegisterNodeRequested, NodeRegistrationAcked, DeregisterNodeRequested)
_PAYLOADS: Mapping[str, type[BaseModel]] = MappingProxyType(
    {
        str(each.message_type): each
        for each in (
            NodeRegistrationInitiated,
            NodeRegistrationAccepted,
            NodeRegistrationRejected,
            NodeRegistered,
            NodeRegistrationAckReceived,
            NodeRegistrationAckTimedOut,
            NodeBecameActive,
            NodeLivenessExpired,
            NodeDeparted,
            NodeRegistrationRecovered,
            NodeDeregistrationStarted,
            NodeDeregistrationCompleted,
            NodeRegistrationRetried,
            NodePostgresRetried,
            NodeRegistrationAbandoned,
            NodeRegistrationRetriesExhausted,
            *RESULTS,
        )
    }
)


def catalogue(machines: Machines, policy: RollCallPolicy = EVERYBODY) -> MessageRegistry:
    """The registry of these machines; what is wrong with it is told all at once."""
    specs = [spec for domain in machines.domains for spec in machine_message_specs(domain)]
    specs += _domain_events(machines)
    handlers = [MachineOrchestrator(domain, machines).spec() for domain in machines.domains]
    handlers += [_reducer(contract) for contract in machines]
    if machines.named(REGISTRATION) and machines.named(HANDSHAKE):
        specs += [
            MessageSpec(parse_message_type(each.message_type), each, external=True)
            for each in _ASKED
        ]
        specs += [MessageSpec(parse_message_type(each.message_type), each) for each in REMOVALS]
        asked_again = parse_message_type(ReplayRegistrationRequested.message_type)
        specs.append(MessageSpec(asked_again, ReplayRegistrationRequested))
        handlers.append(RegistrationOrchestrator(policy, _folded(machines)).spec())
    return MessageRegistry(specs, handlers)


def _domain_events(machines: Machines) -> list[MessageSpec]:
    """The events that contracts name. One comes from outside only if every machine that folds it
    lets an outsider pull its trigger."""
    folded: defaultdict[str, list[tuple[Contract, str]]] = defaultdict(list)
    for contract in machines:
        for message_type, trigger in contract.messages:
            folded[message_type].append((contract, trigger))
    return [
        MessageSpec(
            parse_message_type(message_type),
            _PAYLOADS.get(message_type, OpenPayload),
            external=all(contract.accepts_from_outside(trigger) for contract, trigger in pulls),
        )
        for message_type, pulls in folded.items()
    ]


def _folded(machines: Machines) -> tuple[MessageType, ...]:
    """Every event that moves one of a node's two machines."""
    named = {
        name: None
        for contract in machines
        if contract.name in (REGISTRATION, HANDSHAKE)
        for name, _ in contract.messages
    }
    pulled = MessageType(REGISTRATION, Category.EVENTS, TriggerPulled.name)
    return (*(parse_message_type(name) for name in named), pulled)


def _reducer(contract: Contract) -> HandlerSpec:
    domain = domain_of(contract.name)
    named = tuple(parse_message_type(message_type) for message_type, _ in contract.messages)
    return HandlerSpec(
        name=contract.name,
        role=Role.REDUCER,
        domain=domain,
        consumes=(*named, MessageType(domain, Category.EVENTS, TriggerPulled.name)),
        run=MachineReducer(contract),
    )
