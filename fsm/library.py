"""The machines that come with Rollcall, and those a user keeps in a folder."""

import re
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from fsm.contract import Contract
from fsm.contract_yaml import load_contract
from models.errors import ConfigurationError
from models.topics import Domain, is_domain


class Machine(StrEnum):
    """Every machine in the box."""

    REGISTRATION = "registration"
    HANDSHAKE = "handshake"
    ACTION = "action"
    COMMAND = "command"
    MANIFEST = "manifest"


def load_machine(machine: Machine | str) -> Contract:
    """The machine of that name, read and analysed anew: the caller keeps it, nobody else does."""
    with resources.as_file(_shipped(machine)) as path:
        return load_contract(Path(path))


def load_library() -> dict[Machine, Contract]:
    """Every machine in the box."""
    return {machine: load_machine(machine) for machine in Machine}


class Loaded(NamedTuple):
    """A contract, and the text it was read from."""

    contract: Contract
    document: str


def all_machines(
    folder: Path | None = None, patience: Mapping[str, timedelta] = MappingProxyType({})
) -> dict[str, Loaded]:
    """Every machine to run: those in the box, and the contracts of a folder beside them.
    `patience` is how long the handshake stays in a state, where that is not what its file says."""
    machines = {
        str(machine): Loaded(load_machine(machine), _shipped(machine).read_text("utf-8"))
        for machine in Machine
    }
    handshake = machines[Machine.HANDSHAKE].document
    patient = _with_timeouts(handshake, patience)
    if patient != handshake:
        machines[Machine.HANDSHAKE] = Loaded(load_contract(patient), patient)
    for path in _contract_files(folder):
        contract = load_contract(path)
        name = contract.name
        if name in machines or name in tuple(Domain) or not is_domain(name):
            raise ConfigurationError(
                f"{path} declares {name!r}, which cannot be a machine's name here",
                "name it with lower-case letters, digits and underscores, unlike any other",
            )
        machines[name] = Loaded(contract, path.read_text("utf-8-sig"))
    return machines


def _shipped(machine: Machine | str) -> Traversable:
    return resources.files("fsm") / "machines" / f"{Machine(machine)}.yaml"


def _with_timeouts(document: str, patience: Mapping[str, timedelta]) -> str:
    """The contract's text with other timeouts: another contract, which is kept as it ran."""
    for state, time in patience.items():
        place = rf"(- state_name: {state}\n(?:    \w.*\n)*?    timeout_ms: )\d+"
        milliseconds = int(time / timedelta(milliseconds=1))
        document, places = re.subn(place, rf"\g<1>{milliseconds}", document)
        if places != 1:
            raise ConfigurationError(f"{state} has no timeout to be changed", "name another state")
    return document


def _contract_files(folder: Path | None) -> list[Path]:
    if folder is None:
        return []
    if not folder.is_dir():
        raise ConfigurationError(
            f"ROLLCALL_CONTRACTS_DIR is {folder}, which is no folder", "name a folder of contracts"
        )
    return sorted(path for path in folder.iterdir() if path.suffix in (".yaml", ".yml"))
