"""The machines that come with Rollcall, by name."""

from enum import StrEnum
from importlib import resources
from pathlib import Path

from fsm.contract import Contract
from fsm.contract_yaml import load_contract


class Machine(StrEnum):
    """Every machine in the box."""

    REGISTRATION = "registration"
    HANDSHAKE = "handshake"
    ACTION = "action"
    COMMAND = "command"
    MANIFEST = "manifest"


def load_machine(machine: Machine | str) -> Contract:
    """The machine of that name, read and analysed anew: the caller keeps it, nobody else does."""
    shipped = resources.files("fsm") / "machines" / f"{Machine(machine)}.yaml"
    with resources.as_file(shipped) as path:
        return load_contract(Path(path))


def machine_document(machine: Machine | str) -> str:
    """The YAML text of a machine, to be kept beside what it was applied to."""
    return (resources.files("fsm") / "machines" / f"{Machine(machine)}.yaml").read_text()


def load_library() -> dict[Machine, Contract]:
    """Every machine in the box."""
    return {machine: load_machine(machine) for machine in Machine}
