"""The command line: `rollcall …`. Thin: every command calls one thing and shows what it answers."""

import json
import os
import subprocess
import sys
import time
import traceback
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.live import Live
from sqlalchemy.exc import SQLAlchemyError

from models.errors import ConfigurationError, RollcallError
from rollcall.board import check_table, stack_table
from rollcall.consul_binary import find_consul
from rollcall.contracts import contract_app, machines
from rollcall.demo.command import demo
from rollcall.dlq_commands import dlq_commands
from rollcall.doctor import examine
from rollcall.gc_commands import gc
from rollcall.heartbeat_command import heartbeat
from rollcall.home import Home
from rollcall.insights import clock
from rollcall.log_commands import log_commands
from rollcall.node_commands import node_commands, nodes
from rollcall.retention_commands import retention_commands
from rollcall.roles import roles
from rollcall.schema_commands import schema_commands
from rollcall.stopping import stoppable
from rollcall.submit import submit
from rollcall.supervisor import Supervisor, running_settings, stop_stack
from tasks.database import open_engine
from tasks.redaction import Redactor
from tasks.settings import Settings

_OUT = Console()
_ERR = Console(stderr=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

app = typer.Typer(
    help="A durable state-machine runtime on Celery, and the roll call of a fleet.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(schema_commands, name="db")
app.add_typer(contract_app, name="contract")
app.command()(machines)
app.command()(submit)
app.command()(demo)
app.command()(heartbeat)
app.command()(nodes)
app.add_typer(node_commands, name="node")
app.command()(gc)
log_commands(app)
app.add_typer(retention_commands, name="log")
app.add_typer(dlq_commands, name="dlq")
roles(app)


def main() -> NoReturn:
    """Run, and turn every error into one line with its remedy and an exit code that means it."""
    try:
        app()
    except RollcallError as error:
        _complain(f"{error.message}: {error.remedy}")
        sys.exit(error.exit_code)
    except Exception:
        # A bug. Python's own traceback would pass the redactor by.
        sys.stderr.write(_redacted(traceback.format_exc()))
        _complain("this is a bug in Rollcall: please report the lines above")
        sys.exit(70)
    sys.exit(0)


@app.command()
def up(
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Run in the background.")] = False,
    workers: Annotated[int | None, typer.Option(min=1, max=64, help="Worker processes.")] = None,
    flower_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="0: a free one.")
    ] = None,
) -> None:
    """Start the embedded servers, workers, beat and Flower; stop them all with Ctrl-C."""
    said = {"workers": workers, "flower_port": flower_port}
    settings = Settings.from_environment().at(**{k: v for k, v in said.items() if v is not None})
    home = Home(settings.home)
    if home.held():
        _OUT.print(f"already running in {home.path}")
        _show_status(settings)
    elif detach:
        _detach(settings, home)
    else:
        _run_in_foreground(settings, home)


@app.command()
def down() -> None:
    """Stop what `rollcall up` started here, also what a killed one left behind."""
    home = Home(Settings.from_environment().home)
    _OUT.print("stopped" if stop_stack(home) else f"nothing runs in {home.path}", highlight=False)


@app.command()
def status(as_json: AsJson = False) -> None:
    """What runs where, and how old the last tick is. Exit code 1 when nothing runs here."""
    settings = Settings.from_environment()
    if not Home(settings.home).held():
        if as_json:
            _print_json({"running": False, "parts": []})
        else:
            _OUT.print(f"nothing runs in {Home(settings.home).path}", highlight=False)
        raise typer.Exit(1)
    _show_status(settings, as_json)


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Check versions, servers, clocks, migrations, folders and ports. Exit code 1 if one fails."""
    settings = Settings.from_environment()
    with _ERR.status("looking at the servers"):
        report = examine(settings, os.environ)
    if as_json:
        _print_json(report.as_dict())
    else:
        _OUT.print(check_table(report.checks))
    raise typer.Exit(0 if report.ok else 1)


@app.command()
def setup() -> None:
    """Fetch what the embedded servers need, once: the consul binary."""
    with _ERR.status("looking for consul"):
        found = find_consul(Settings.from_environment())
    _OUT.print(f"consul: {found}", highlight=False)


def _run_in_foreground(settings: Settings, home: Home) -> None:
    """The live board on a terminal, plain lines elsewhere."""
    with stoppable():
        try:
            with Supervisor(settings, home, _say) as stack:
                password = home.path / "secrets.json"
                _say(f"Flower: {stack.flower_url} (user rollcall, password in {password})")
                if not _OUT.is_terminal:
                    _say("everything runs")
                    while True:
                        stack.watch()
                        time.sleep(0.25)
                with Live(console=_OUT, refresh_per_second=4) as live:
                    while True:
                        stack.watch()
                        told = [part.told() for part in stack.parts]
                        live.update(stack_table(told, _reading(stack.settings)))
                        time.sleep(1.0)
        except KeyboardInterrupt:
            _say("stopped")


def _detach(settings: Settings, home: Home) -> None:
    home.create()
    log = home.log / "supervisor.log"
    with log.open("ab") as written:
        before = written.tell()
        child = subprocess.Popen(
            [sys.executable, "-m", "rollcall", "up"],
            env={**os.environ, **settings.environment()},
            stdin=subprocess.DEVNULL,
            stdout=written,
            stderr=written,
            start_new_session=True,
        )
    with _ERR.status("starting"):
        while child.poll() is None:
            told = home.told()
            if told.get("phase") == "ready" and told.get("pid") == child.pid:
                break
            time.sleep(0.05)
    if child.poll() is not None:
        last = log.read_text()[before:].strip().splitlines()[-1:]
        sys.stderr.write(
            "".join(last or [f"rollcall: it stopped while starting: see {log}"]) + "\n"
        )
        raise typer.Exit(child.returncode or 1)
    _show_status(settings)


def _show_status(settings: Settings, as_json: bool = False) -> None:
    told = Home(settings.home).told()
    parts: list[dict[str, Any]] = told.get("parts", [])
    reading = _reading(running_settings(settings))
    if as_json:
        tick = reading and {
            "age_seconds": round(reading.age.total_seconds(), 3),
            "ticks": reading.ticks,
            "tick_sequence": reading.tick_sequence,
            "runtime_id": reading.runtime_id,
        }
        flower = told.get("flower")
        running = told.get("phase") == "ready"
        _print_json({"running": running, "parts": parts, "flower": flower, "tick": tick})
    else:
        _OUT.print(stack_table(parts, reading))
        _OUT.print(f"Flower: {told.get('flower')}", highlight=False)


def _reading(settings: Settings) -> Any:
    """The last tick, or None while the database is away: the board goes on without it."""
    try:
        return clock(open_engine(settings, "status", pooled=False))
    except (SQLAlchemyError, ConfigurationError):
        return None


def _say(line: str) -> None:
    _OUT.print(line, highlight=False, soft_wrap=True)


def _print_json(content: object) -> None:
    sys.stdout.write(json.dumps(content, indent=2, default=str) + "\n")


def _complain(line: str) -> None:
    sys.stderr.write(f"rollcall: {_redacted(' '.join(line.split()))}\n")


def _redacted(line: str) -> str:
    try:
        known = Settings.from_environment().secrets
    except RollcallError:
        known = ()
    return Redactor(known).text(line)
