"""The machines a runtime knows: each in its domain, with every version entities still need."""

import zlib
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from fsm.contract import Contract, EmitIntent
from models.errors import ConfigurationError
from models.messages.runtime import TriggerPulled
from models.topics import Domain

_DOMAINS: Mapping[str, str] = MappingProxyType(
    {
        "registration": Domain.REGISTRATION.value,
        "handshake": Domain.REGISTRATION.value,
        "action": Domain.CONTROL.value,
        "command": Domain.COMMANDS.value,
        "manifest": Domain.MANIFESTS.value,
    }
)


class Pull(NamedTuple):
    """A trigger that a message pulls on a machine, and what it brings."""

    contract: Contract
    trigger: str
    data: Mapping[str, Any]


class Machines:
    """Contracts by name, and by the hash an entity was last folded with."""

    def __init__(
        self, current: Iterable[Contract], former: Mapping[str, Contract] = MappingProxyType({})
    ) -> None:
        self._by_name = {contract.name: contract for contract in current}
        newest = {contract.content_hash: contract for contract in self._by_name.values()}
        self._by_hash = {**former, **newest}
        self._of_type: dict[str, tuple[tuple[Contract, str], ...]] = {}
        for contract in self._by_name.values():
            for message_type, trigger in contract.messages:
                pulls = (*self._of_type.get(message_type, ()), (contract, trigger))
                self._of_type[message_type] = pulls

    def __iter__(self) -> Iterator[Contract]:
        return iter(self._by_name.values())

    def named(self, machine: str) -> Contract | None:
        return self._by_name.get(machine)

    def of_hash(self, content_hash: str) -> Contract:
        """The very contract an entity was folded with."""
        found = self._by_hash.get(content_hash)
        if found is None:
            raise ConfigurationError(
                f"no contract with hash {content_hash[:12]} is known",
                "it was loaded by another version of this deployment: keep its file",
            )
        return found

    def unknown(self, hashes: set[str]) -> set[str]:
        """Which of these contracts were never read here."""
        return hashes - self._by_hash.keys()

    def learn(self, content_hash: str, contract: Contract) -> None:
        """Know one more contract, for entities that were folded with it elsewhere."""
        self._by_hash[content_hash] = contract

    @property
    def domains(self) -> tuple[str, ...]:
        return tuple(sorted({domain_of(contract.name) for contract in self._by_name.values()}))

    @property
    def retried_services(self) -> dict[str, tuple[str, ...]]:
        """Whom a machine's automatic retries need, by machine."""
        return {
            contract.name: tuple(sorted(set(_needed_by_retries(contract))))
            for contract in self._by_name.values()
            if contract.auto_retry
        }

    def pulls(self, message_type: str, payload: Mapping[str, Any]) -> Iterable[Pull]:
        """What an event pulls, on which machines of its domain, in a fixed order."""
        if message_type.endswith(_PULLED):
            contract = self._by_name.get(payload["machine"])
            return [] if contract is None else [Pull(contract, payload["trigger"], payload["data"])]
        return [
            Pull(contract, trigger, payload)
            for contract, trigger in self._of_type.get(message_type, ())
        ]

    def message_type(self, contract: Contract, trigger: str) -> str | None:
        """The type of the domain event that pulls the trigger, where the contract names one."""
        return next((name for name, pulled in contract.messages if pulled == trigger), None)


_PULLED = f".events.{TriggerPulled.__name__}"


def _needed_by_retries(contract: Contract) -> Iterator[str]:
    retries = {(each.state, each.trigger) for each in contract.auto_retry}
    for each in contract.transitions:
        entered = contract.state(each.to_state)
        if (each.from_state, each.trigger) in retries and entered is not None:
            for action in entered.entry:
                if isinstance(action, EmitIntent):
                    yield action.intent_kind.partition(".")[0]


def domain_of(machine: str) -> str:
    """The domain a machine lives in; one that a user wrote is a domain of its own."""
    return _DOMAINS.get(machine, machine)


def partition_of(entity_id: str, partitions: int) -> int:
    """Where an entity is written, the same on every machine and in every process."""
    return zlib.crc32(entity_id.encode()) % partitions
