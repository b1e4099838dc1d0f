"""`rollcall demo`: the roll call of a fleet, with trouble if asked, and what came of it."""

import json
import time
from typing import Annotated

import typer
from rich.console import Console

from rollcall.demo.board import Board
from rollcall.demo.count import Count
from rollcall.demo.run import run_demo
from rollcall.stopping import stoppable
from tasks.settings import Settings


def demo(
    nodes: Annotated[int, typer.Option(min=1, max=2000, help="Nodes to simulate.")] = 200,
    chaos: Annotated[
        bool, typer.Option("--chaos", help="Stop Consul, kill a worker, flush Redis on the way.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Start everything in a throwaway folder, call the roll of a fleet, and count from outside.
    Exit code 1 when a promise broke."""
    settings = Settings.from_environment()
    console = Console(stderr=as_json)
    began = time.monotonic()
    try:
        with stoppable(), Board(console, nodes) as board:
            count = run_demo(settings, nodes, chaos, board)
    except KeyboardInterrupt:
        typer.echo("stopped", err=True)
        raise typer.Exit(130) from None
    for line in count.broken:
        typer.echo(line, err=True)
    if as_json:
        typer.echo(json.dumps(count.as_dict()))
    else:
        _tell(count, time.monotonic() - began)
    raise typer.Exit(0 if count.ok else 1)


def _tell(count: Count, seconds: float) -> None:
    verdict = "every promise was kept" if count.ok else "a promise was broken"
    typer.echo(
        f"{count.nodes} nodes, {count.promised} promised to be active: {count.active} are,"
        f" PostgreSQL has {count.in_postgres}, Consul has {count.in_consul}"
    )
    typer.echo(f"lost {count.lost}, doubled {count.doubled}, stuck {count.stuck}")
    typer.echo(f"introspection to registered: p50 {count.p50_ms} ms, p99 {count.p99_ms} ms")
    typer.echo(f"{verdict}, in {seconds:.1f} s")
