"""`rollcall db …`: the database's schema."""

import json
import sys
from typing import Annotated

import typer
from sqlalchemy import Engine

from rollcall.supervisor import running_settings
from tasks.database import open_engine
from tasks.reachability import postgres_version
from tasks.schema import current, downgrade, head, upgrade
from tasks.settings import Settings

schema_commands = typer.Typer(help="The database's schema.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@schema_commands.command("upgrade")
def upgrade_command(
    to: Annotated[str, typer.Argument(help="A revision, or head.")] = "head",
    as_json: AsJson = False,
) -> None:
    """Bring the database forward. Safe to run twice, and from two places at once."""
    _tell(upgrade(_engine(), to), as_json)


@schema_commands.command("downgrade")
def downgrade_command(
    to: Annotated[str, typer.Argument(help="A revision, -1, or base.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Take the database back; tables made by the steps undone are dropped with their rows."""
    if not yes:
        typer.confirm(f"Go back to {to}? Rows in tables made later are lost.", abort=True)
    _tell(downgrade(_engine(), to), as_json)


@schema_commands.command("current")
def current_command(as_json: AsJson = False) -> None:
    """Where the database stands, and where this code wants it. Exit code 1 when they differ."""
    at = current(_engine()) or "base"
    _tell(at, as_json)
    raise typer.Exit(0 if at == head() else 1)


def _engine() -> Engine:
    settings = running_settings(Settings.from_environment())
    engine = open_engine(settings, "schema", pooled=False)
    if settings.database_url is not None:
        postgres_version(settings.database_url)
    return engine


def _tell(at: str, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps({"current": at, "head": head()}) + "\n")
    else:
        sys.stdout.write(f"database {at}, code {head()}\n")
