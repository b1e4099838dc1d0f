"""`rollcall nodes` and `rollcall node …`: where nodes stand, and what may be asked of them."""

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, NoReturn
from uuid import UUID, uuid4

import typer
from rich.console import Console
from rich.table import Table
from sqlalchemy.orm import Session
from typer.core import TyperGroup

from fsm.delta import delta
from models.errors import MessageError
from models.messages.registration import (
    DeregisterNodeRequested,
    NodeIntrospected,
    NodeRegistrationAcked,
    RegisterNodeRequested,
)
from rollcall import node_insights
from rollcall.insights import timeline
from rollcall.ready import ready_settings
from rollcall.submit import read_input
from tasks.database import open_engine
from tasks.store import processed
from tasks.wiring import producer
from tasks.worker_process import WorkerProcess

_OUT = Console()
_WAIT_SECONDS = 10.0
_ERRORS = ("rejection_reason", "validation_error", "postgres_error", "consul_error")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Do not wait for what becomes of it.")]
NodeId = Annotated[str, typer.Argument(metavar="ID", help="The node's id.")]


class _NodeGroup(TyperGroup):
    """A word that is no command is a node's id: `rollcall node ID` shows it."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = ["show", *args]
        return super().resolve_command(ctx, args)


node_commands = typer.Typer(cls=_NodeGroup, help="One node.", no_args_is_help=True)


def nodes(
    state: Annotated[str, typer.Option(help="Registrations in this state only.")] = "",
    handshake: Annotated[str, typer.Option(help="Handshakes in this state only.")] = "",
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many.")] = 100,
    as_json: AsJson = False,
) -> None:
    """Where the nodes stand."""
    engine = open_engine(ready_settings(), "nodes", pooled=False)
    found = node_insights.nodes(engine, state, handshake, limit)
    if as_json:
        _json([each._asdict() for each in found])
        return
    table = Table()
    for column in node_insights.Node._fields:
        table.add_column(column.replace("_", " "), overflow="fold")
    for each in found:
        table.add_row(*(_text(value) for value in each))
    _OUT.print(table)


@node_commands.command()
def show(node_id: NodeId, as_json: AsJson = False) -> None:
    """A node's machines and timeline, what it waits for, and what went wrong."""
    engine = open_engine(ready_settings(), "node", pooled=False)
    found = timeline(engine, node_id)
    pending, letters = (
        node_insights.pending(engine, node_id),
        node_insights.letters(engine, node_id),
    )
    contexts = node_insights.contexts(engine, node_id)
    outcomes = node_insights.outcomes(engine, node_id)
    errors = {
        key: context[key] for context in contexts.values() for key in _ERRORS if context.get(key)
    }
    if not found.known and not letters:
        typer.echo(f"rollcall: nothing is known of {node_id!r}", err=True)
        raise typer.Exit(1)
    if as_json:
        _json(
            {
                "node_id": node_id,
                "machines": [each._asdict() for each in found.machines],
                "contexts": contexts,
                "errors": errors,
                "outcomes": [each._asdict() for each in outcomes],
                "events": [each._asdict() for each in found.events],
                "waiting": [each._asdict() for each in found.waiting],
                "pending": [each._asdict() for each in pending],
                "dead_letters": [each._asdict() for each in letters],
            }
        )
        return
    for event in found.events:
        when = event.applied_at.isoformat(timespec="milliseconds")
        typer.echo(f"{when} {event.machine} {event.sequence} {event.trigger}: {event.path}")
    for each in found.machines:
        due = "".join(f", {name} until {set_['at']}" for name, set_ in each.deadlines.items())
        generation = contexts.get(each.machine, {}).get("generation", 0)
        typer.echo(f"{each.machine}: {each.state}, generation {generation}{due}")
    for attempt in outcomes:
        applied = f"postgres {attempt.postgres_applied}, consul {attempt.consul_applied}"
        typer.echo(f"outcome of generation {attempt.generation}: {attempt.status} ({applied})")
    for message in found.waiting:
        typer.echo(f"waits: {message.message_type} {message.message_id}")
    for intent in pending:
        last = f", last {json.dumps(intent.history[-1])}" if intent.history else ""
        typer.echo(f"pending: {intent.kind}, attempt {intent.attempt}, due {intent.due_at}{last}")
    for key, error in errors.items():
        typer.echo(f"{key}: {error}")
    for letter in letters:
        closed = f", {letter.closed_as}" if letter.closed_as else ""
        typer.echo(f"dead letter {letter.dead_letter_id}: {letter.reason}: {letter.error}{closed}")


@node_commands.command()
def register(
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="What the node says, as JSON.")],
    on_request: Annotated[
        bool, typer.Option("--on-request", help="Ask as an administrator, not as the node.")
    ] = False,
    no_wait: NoWait = False,
) -> None:
    """Introduce a node. Exit code 1 when it is refused."""
    try:
        said = json.loads(read_input(file))
    except (ValueError, RecursionError):
        raise MessageError(f"{file} is not JSON", "give one JSON object") from None
    if not isinstance(said, dict) or not isinstance(said.get("node_id"), str):
        raise MessageError("node_id: is missing", "give one JSON object with a node_id")
    asked = RegisterNodeRequested if on_request else NodeIntrospected
    process = producer(ready_settings())
    result = _submit(process, asked.message_type, said["node_id"], said, no_wait)
    if result == "IGNORED":
        _refused(said["node_id"], "an attempt is under way")
    if result == "REFUSED" and on_request:
        _refused(said["node_id"], "registration on request is off, or an attempt is under way")
    _check(said["node_id"], result)
    context = node_insights.contexts(process.engine, said["node_id"]).get("handshake", {})
    if reason := context.get("rejection_reason"):
        _refused(said["node_id"], reason)


@node_commands.command()
def ack(
    node_id: NodeId,
    registration_id: Annotated[
        str, typer.Option(help="The attempt; the last one unless said.")
    ] = "",
    no_wait: NoWait = False,
) -> None:
    """Answer the offer for a node."""
    process = producer(ready_settings())
    context = node_insights.contexts(process.engine, node_id).get("handshake", {})
    named = registration_id or context.get("registration_id")
    if named is None:
        _refused(node_id, "it never introduced itself")
    said = {"node_id": node_id, "registration_id": named}
    _check(node_id, _submit(process, NodeRegistrationAcked.message_type, node_id, said, no_wait))


@node_commands.command()
def deregister(
    node_id: NodeId,
    reason: Annotated[str, typer.Option(help="Why.")] = "",
    no_wait: NoWait = False,
) -> None:
    """Send a node away."""
    said = {"node_id": node_id} | ({"reason": reason} if reason else {})
    process = producer(ready_settings())
    _check(node_id, _submit(process, DeregisterNodeRequested.message_type, node_id, said, no_wait))


@node_commands.command()
def retry(node_id: NodeId, no_wait: NoWait = False) -> None:
    """Try again what failed."""
    _pull(node_id, "RETRY", no_wait)


@node_commands.command("retry-postgres")
def retry_postgres(node_id: NodeId, no_wait: NoWait = False) -> None:
    """Try PostgreSQL again."""
    _pull(node_id, "RETRY_POSTGRES", no_wait)


@node_commands.command()
def abandon(node_id: NodeId, no_wait: NoWait = False) -> None:
    """Give a failed registration up."""
    _pull(node_id, "ABANDON", no_wait)


def _pull(node_id: str, trigger: str, no_wait: bool) -> None:
    """Ask for a trigger; when it is refused, the contract says why and what is open instead."""
    process = producer(ready_settings())
    context = node_insights.contexts(process.engine, node_id).get("registration")
    if context is None:
        _refused(node_id, "it has no registration")
    said = {"machine": "registration", "trigger": trigger, "data": {}}
    result = _submit(process, "registration.commands.PullTrigger", node_id, said, no_wait)
    contract = process.machines.named("registration")
    standing = timeline(process.engine, node_id, "registration").machines
    if result not in (None, "OK") and contract is not None and standing:
        reason = delta(contract, standing[0].state, trigger, context).reason
        _refused(node_id, f"{result}: {reason}" if reason else str(result))
    _check(node_id, result)


def _submit(
    process: WorkerProcess, message_type: str, node_id: str, said: Mapping[str, Any], no_wait: bool
) -> str | None:
    """Store the message; what became of it, or None if nobody waits for that."""
    message_id, correlation_id = uuid4(), uuid4()
    now = datetime.now(UTC)
    message = {
        "message_id": str(message_id),
        "correlation_id": str(correlation_id),
        "causation_id": None,
        "emitted_at": now.isoformat(),
        "entity_id": node_id,
        "message_type": message_type,
        "payload": dict(said),
    }
    try:
        envelope = process.registry.decode(json.dumps(message))
    except MessageError as error:  # whoever runs the command named a node, not an entity
        raise MessageError(error.message.replace("entity_id", "node_id"), error.remedy) from None
    process.runtime.submit([envelope])
    typer.echo(f"submitted {message_id}")
    return None if no_wait else _result(process, message_id)


def _result(process: WorkerProcess, message_id: UUID) -> str:
    until = time.monotonic() + _WAIT_SECONDS
    while time.monotonic() < until:
        with Session(process.engine) as session:
            if (found := processed.result(session, message_id)) is not None:
                return found
        time.sleep(0.05)
    typer.echo("rollcall: nobody took it yet: it is stored, and a worker will", err=True)
    raise typer.Exit(1)


def _check(node_id: str, result: str | None) -> None:
    if result is not None and result != "OK":
        _refused(node_id, result)
    if result is not None:
        typer.echo("done")


def _refused(node_id: str, why: str) -> NoReturn:
    typer.echo(f"rollcall: {node_id}: refused: {why}", err=True)
    raise typer.Exit(1)


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat(timespec="seconds")
    return "" if value is None else str(value)


def _json(content: object) -> None:
    typer.echo(json.dumps(content, indent=2, default=str, ensure_ascii=False))
