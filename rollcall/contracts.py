"""`rollcall contract …` and `rollcall machines`: look at contracts without running anything."""

from collections.abc import Iterable
from enum import StrEnum
from json import JSONDecodeError, dumps, loads
from pathlib import Path
from typing import Annotated, assert_never

import typer
from rich.console import Console
from rich.table import Table

from fsm.contract import Contract
from fsm.contract_yaml import load_contract
from fsm.diagram import mermaid, svg
from fsm.findings import ContractError, Finding
from fsm.library import Machine, load_library, load_machine
from models.errors import ConfigurationError

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

contract_app = typer.Typer(
    help="Check and draw contracts.", no_args_is_help=True, pretty_exceptions_enable=False
)


class Format(StrEnum):
    """How a diagram is written."""

    MERMAID = "mermaid"
    SVG = "svg"


class UnknownMachineError(ConfigurationError):
    """Neither a machine that comes with Rollcall nor a file."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"There is no machine and no file {name!r}",
            f"name one of {', '.join(Machine)}, or a contract file",
        )


@contract_app.command()
def check(
    files: Annotated[list[Path], typer.Argument(help="Contract files.", show_default=False)],
    json: AsJson = False,
) -> None:
    """Say everything that is wrong with contracts; exit 1 if anything is."""
    checked = [(file, *_examined(file)) for file in files]
    findings = [finding for _, _, found in checked for finding in found]
    if json:
        report = {"files": len(files), "findings": [_plain(each) for each in findings]}
        typer.echo(dumps(report, indent=2, ensure_ascii=False))
    else:
        for file, contract, found in checked:
            for finding in found:
                typer.echo(_line(finding))
            if contract is not None:
                size = f"{len(contract.states)} states, {len(contract.transitions)} transitions"
                typer.echo(f"{file}: clean ({contract.name} {contract.version}, {size})")
    if findings:
        raise typer.Exit(1)


@contract_app.command()
def diagram(
    machine: Annotated[
        str, typer.Argument(metavar="NAME|FILE", help="A machine of Rollcall's, or a file.")
    ],
    format: Annotated[Format, typer.Option("--format", help="What to write.")] = Format.MERMAID,
    counts: Annotated[
        str | None, typer.Option(metavar="JSON", help='Entities per state: {"active": 3}.')
    ] = None,
    output: Annotated[Path | None, typer.Option(help="Write a file instead of stdout.")] = None,
) -> None:
    """Draw a machine."""
    try:
        contract = _contract(machine)
    except ContractError as error:
        for finding in error.findings:
            typer.echo(_line(finding), err=True)
        raise typer.Exit(1) from None
    picture = _drawn(contract, format, _counts(counts, contract))
    if output is None:
        typer.echo(picture, nl=False)
        return
    try:
        output.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(
            f"{output} cannot be written: {error.strerror}", "choose another --output"
        ) from error


def machines(json: AsJson = False) -> None:
    """List the machines that come with Rollcall."""
    library = load_library().values()
    if json:
        typer.echo(dumps([_summary(each) for each in library], indent=2))
        return
    table = Table("machine", "version", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("states", "transitions"):
        table.add_column(heading, justify="right")
    for heading in ("initial", "terminal"):
        table.add_column(heading, overflow="fold")
    for contract in library:
        table.add_row(
            contract.name,
            contract.version,
            str(len(contract.states)),
            str(len(contract.transitions)),
            contract.initial_state,
            ", ".join(contract.terminal_states),
        )
    Console().print(table)


def _summary(contract: Contract) -> dict[str, object]:
    return {
        "name": contract.name,
        "version": contract.version,
        "states": len(contract.states),
        "transitions": len(contract.transitions),
        "initial": contract.initial_state,
        "terminal": list(contract.terminal_states),
    }


def _examined(file: Path) -> tuple[Contract | None, Iterable[Finding]]:
    try:
        return load_contract(file), ()
    except ContractError as error:
        return None, error.findings


def _contract(machine: str) -> Contract:
    if machine in set(Machine):
        return load_machine(machine)
    path = Path(machine)
    if not path.exists():
        raise UnknownMachineError(machine)
    return load_contract(path)


def _line(finding: Finding) -> str:
    """`file:line code place message`, on one line whatever the file contains."""
    place = finding.place
    words = f"{place.file}:{place.line} {finding.code} {place.name or '-'} {finding.message}"
    line = " ".join(words.split())
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in line)


def _plain(finding: Finding) -> dict[str, object]:
    return {
        "file": finding.place.file,
        "line": finding.place.line,
        "code": str(finding.code),
        "place": finding.place.name,
        "message": finding.message,
    }


def _drawn(contract: Contract, format_: Format, counts: dict[str, int]) -> str:
    match format_:
        case Format.MERMAID:
            return mermaid(contract, counts)
        case Format.SVG:
            return svg(contract, counts)
        case _:
            assert_never(format_)


def _counts(text: str | None, contract: Contract) -> dict[str, int]:
    """The counts as given, or a usage error that says which of them makes no sense."""
    if text is None:
        return {}
    try:
        given = loads(text)
    except (JSONDecodeError, RecursionError):
        raise typer.BadParameter("it is not JSON", param_hint="--counts") from None
    if not isinstance(given, dict):
        raise typer.BadParameter("it is not an object", param_hint="--counts")
    for state, count in given.items():
        if contract.state(state) is None:
            raise typer.BadParameter(
                f"{contract.name} has no state {state!r}", param_hint="--counts"
            )
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            raise typer.BadParameter(f"{state!r} needs a count", param_hint="--counts")
    return {str(state): int(count) for state, count in given.items()}
