"""`rollcall events` and `rollcall replay`: what the log tells, and whether it still holds."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from fsm.machines import Machines
from models.errors import ConfigurationError
from rollcall.insights import Timeline, timeline
from rollcall.ready import ready_settings
from tasks.database import open_engine
from tasks.replay import Replayed, rebuild, verify
from tasks.snapshots import take_snapshots
from tasks.wiring import producer

_OUT = Console()
_ERR = Console(stderr=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def log_commands(app: typer.Typer) -> None:
    """Mount the commands."""
    app.command()(events)
    app.command()(replay)
    snapshots = typer.Typer(help="Projections kept beside the log.", no_args_is_help=True)
    snapshots.command("take")(take)
    # One command alone would take the group's place.
    snapshots.callback()(lambda: None)
    app.add_typer(snapshots, name="snapshots")


def events(
    entity: Annotated[str, typer.Argument(help="The entity's id.")],
    machine: Annotated[str, typer.Option(help="This machine only.")] = "",
    as_json: AsJson = False,
) -> None:
    """An entity's timeline, where its machines stand, and what still waits for it."""
    found = timeline(open_engine(ready_settings(), "events", pooled=False), entity, machine)
    if not found.known:
        on = f" on {machine}" if machine else ""
        typer.echo(f"rollcall: nothing is known of {entity!r}{on}", err=True)
        raise typer.Exit(1)
    if as_json:
        typer.echo(json.dumps(_plain(entity, found), indent=2, default=str, ensure_ascii=False))
    else:
        _show(entity, found)


def replay(
    verify_: Annotated[bool, typer.Option("--verify", help="Compare, and change nothing.")] = False,
    rebuild_: Annotated[
        str, typer.Option("--rebuild", metavar="MACHINE", help="Write its projections again.")
    ] = "",
    machine: Annotated[str, typer.Option(help="Verify this machine only.")] = "",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Fold the log again, while workers go on. Exit code 1 on any mismatch."""
    if verify_ == bool(rebuild_):
        raise ConfigurationError("replay needs one thing to do", "say --verify or --rebuild")
    process = producer(ready_settings())
    _refuse_unknown(process.machines, rebuild_ or machine)
    if rebuild_ and not yes:
        typer.confirm(f"Write the projections of {rebuild_} again from the log?", abort=True)
    with progress() as told:
        if rebuild_:
            seen = rebuild(process.engine, process.machines, rebuild_, told)
        else:
            seen = verify(process.engine, process.machines, machine, told)
    if as_json:
        typer.echo(json.dumps(seen.as_dict(), indent=2, ensure_ascii=False))
    else:
        _tell(seen, bool(rebuild_))
    raise typer.Exit(0 if seen.clean else 1)


def take(
    machine: Annotated[str, typer.Option(help="This machine only.")] = "",
    as_json: AsJson = False,
) -> None:
    """Keep every projection as it is now. Exit code 1 when one is not what its digest says."""
    process = producer(ready_settings())
    _refuse_unknown(process.machines, machine)
    found = take_snapshots(process.engine, machine)
    if as_json:
        typer.echo(json.dumps(found._asdict()))
    else:
        typer.echo(f"{found.taken} snapshots taken, {found.passed_over} passed over")
    raise typer.Exit(1 if found.passed_over else 0)


def _refuse_unknown(machines: Machines, machine: str) -> None:
    if machine and machines.named(machine) is None:
        known = ", ".join(contract.name for contract in machines)
        raise ConfigurationError(f"there is no machine {machine!r}", f"name one of {known}")


@contextmanager
def progress() -> Iterator[Callable[[int], None]]:
    """Counts events on a terminal; silent elsewhere."""
    columns = (
        TextColumn("folding"),
        BarColumn(),
        TextColumn("{task.completed:.0f} events"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=_ERR, transient=True, disable=not _ERR.is_terminal) as shown:
        task = shown.add_task("folding", total=None)
        yield lambda number: shown.update(task, advance=number)


def _tell(seen: Replayed, rebuilt: bool) -> None:
    for each in seen.mismatches:
        typer.echo(f"{each.entity_id} {each.machine} {each.sequence}: {each.what}")
    typer.echo(f"{seen.events} events folded into {seen.projections} projections")
    if rebuilt:
        typer.echo(f"{seen.changed} projections written again")
    typer.echo("the log holds" if seen.clean else "the log and what is kept disagree")


def _plain(entity: str, found: Timeline) -> dict[str, object]:
    return {
        "entity_id": entity,
        "events": [each._asdict() for each in found.events],
        "machines": [each._asdict() for each in found.machines],
        "waiting": [each._asdict() for each in found.waiting],
    }


def _show(entity: str, found: Timeline) -> None:
    table = Table(title=Text(entity))
    for column in ("applied at", "machine", "sequence", "trigger", "path", "message", "cause"):
        table.add_column(column, overflow="fold")
    for each in found.events:
        table.add_row(
            each.applied_at.isoformat(timespec="milliseconds"),
            each.machine,
            str(each.sequence),
            each.trigger,
            each.path,
            f"{each.message_type} {each.message_id}",
            each.causation_id or "",
        )
    _OUT.print(table)
    for standing in found.machines:
        due = "".join(f", {name} at {set_['at']}" for name, set_ in standing.deadlines.items())
        typer.echo(f"{standing.machine}: {standing.state} at {standing.sequence}{due}")
    for waits in found.waiting:
        typer.echo(f"waits: {waits.message_type} {waits.message_id} ({waits.attempts} attempts)")
