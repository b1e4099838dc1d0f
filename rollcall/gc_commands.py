"""`rollcall gc`: take away what no live registration stands behind, and mend what was forgotten."""

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from models.errors import InfraUnavailableError
from rollcall.ready import ready_settings
from tasks.collected import Collected
from tasks.wiring import producer

_ERR = Console(stderr=True)
_SHOWN = 20

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    as_json: AsJson = False,
) -> None:
    """Collect garbage now. Exit code 1 when it could not run or something was left."""
    process = producer(ready_settings())
    columns = (
        TextColumn("looking at nodes"),
        BarColumn(),
        TextColumn("{task.completed:.0f}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=_ERR, transient=True, disable=not _ERR.is_terminal) as shown:
        task = shown.add_task("nodes", total=None)
        done = process.collector.run(
            process.doorbell.ring,
            dry_run=dry_run,
            told=lambda number: shown.update(task, advance=number),
        )
    if as_json:
        typer.echo(json.dumps(done.as_dict(), indent=2, ensure_ascii=False))
    else:
        _tell(done)
    if done.consul_trouble:
        raise InfraUnavailableError(
            f"Consul was not cleaned: {done.consul_trouble}", "the next run tries again"
        )
    raise typer.Exit(0 if done.well and not done.more else 1)


def _tell(done: Collected) -> None:
    if done.skipped:
        typer.echo(f"rollcall: nothing was collected: {done.skipped}", err=True)
        return
    would = "would be " if done.dry_run else ""
    for what, node_ids in (
        ("removed from Consul", done.consul_removed),
        ("removed from PostgreSQL", done.records_removed),
        ("registered in Consul again", done.repaired),
        ("sent away for silence", done.sent_away),
    ):
        named = ", ".join(node_ids[:_SHOWN]) + (", …" if len(node_ids) > _SHOWN else "")
        typer.echo(f"{would}{what}: {len(node_ids)}" + (f" ({named})" if named else ""))
    if done.consul_left_alone:
        typer.echo("Consul was left alone: none is set, or its mode is `agent`", err=True)
    for node_id, error in done.failed.items():
        typer.echo(f"left: {node_id}: {error}", err=True)
    if done.more:
        typer.echo("the time was up: run it again for the rest", err=True)
