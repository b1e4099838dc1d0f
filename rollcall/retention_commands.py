"""`rollcall log …`: the months of the log, and taking old ones off it."""

import json
from typing import Annotated

import typer

from models.errors import ConfigurationError
from rollcall.log_commands import progress
from rollcall.ready import ready_settings
from tasks.database import open_engine
from tasks.retention import attached, detach, due
from tasks.store.event_log import Month
from tasks.wiring import producer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

retention_commands = typer.Typer(help="The months of the log.", no_args_is_help=True)


@retention_commands.command()
def partitions(as_json: AsJson = False) -> None:
    """The months that are on the log, oldest first, and how large each is."""
    found = attached(open_engine(ready_settings(), "log", pooled=False))
    if as_json:
        typer.echo(json.dumps([_plain(month) for month in found], indent=2))
        return
    for month in found:
        typer.echo(f"{month.name}  {month.begins} to {month.ends}  {month.bytes / 1024:.0f} KiB")


@retention_commands.command("detach")
def detach_command(
    older_than: Annotated[
        int | None,
        typer.Option(min=1, help="Whole months to keep besides this one.", show_default=False),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Take old months off the log; their tables stay. What is left folds onto kept bases."""
    settings = ready_settings()
    keep = older_than or settings.log_retention_months
    if not keep:
        raise ConfigurationError(
            "everything is kept", "say --older-than MONTHS or set ROLLCALL_LOG_RETENTION_MONTHS"
        )
    process = producer(settings)
    wanted = due(process.engine, keep)
    names = ", ".join(month.name for month in wanted)
    if dry_run or not wanted:
        if as_json:
            typer.echo(json.dumps({"due": [month.name for month in wanted], "detached": []}))
        else:
            typer.echo(f"to be detached: {names or 'nothing'}")
        return
    if not yes:
        typer.confirm(f"Take {names} off the log?", abort=True)
    with progress() as told:
        done = [detach(process.engine, process.machines, month, told) for month in wanted]
    if as_json:
        report = {"due": [m.name for m in wanted], "detached": [each.as_dict() for each in done]}
        typer.echo(json.dumps(report, indent=2))
    else:
        for each in done:
            typer.echo(f"{each.name} is off: {each.events} events of {each.entities} entities")


def _plain(month: Month) -> dict[str, object]:
    return {
        "name": month.name,
        "begins": month.begins.isoformat(),
        "ends": month.ends.isoformat(),
        "bytes": month.bytes,
    }
