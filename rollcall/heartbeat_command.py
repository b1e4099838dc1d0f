"""`rollcall heartbeat`: tell that nodes live."""

import json
from typing import Annotated

import typer

from rollcall.ready import ready_settings
from rollcall.submit import read_input
from tasks.database import open_engine
from tasks.heartbeats import beat


def heartbeat(
    node_ids: Annotated[
        list[str], typer.Argument(metavar="NODE_ID…|-", help="Nodes; - reads ids from stdin.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Take heartbeats of nodes. Exit code 1 when one of them must introduce itself."""
    named = read_input("-").split() if node_ids == ["-"] else node_ids
    settings = ready_settings()
    answers = beat(open_engine(settings, "heartbeat", pooled=False), named, settings.liveness)
    if as_json:
        typer.echo(json.dumps(answers._asdict()))
    else:
        typer.echo(f"heard {len(answers.alive)}")
        for node_id in answers.introduce_yourself:
            typer.echo(f"{node_id}: introduce yourself")
    raise typer.Exit(1 if answers.introduce_yourself else 0)
