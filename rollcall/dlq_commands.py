"""`rollcall dlq …`: what could not be done, why, and having it done again."""

import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text
from sqlalchemy.orm import Session

from fsm.machines import domain_of
from models.errors import ConfigurationError
from rollcall.ready import ready_settings
from tasks.database import open_engine
from tasks.dead_letters import Fate, discard, find, plan, replay
from tasks.redaction import Redactor
from tasks.settings import Settings
from tasks.store import letters
from tasks.store.letters import MESSAGE, Filter, Letter
from tasks.wiring import producer

_OUT = Console()
_ERR = Console(stderr=True)
_AGO = re.compile(r"(\d{1,6})([smhd])\Z")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_SHOWN_FATES = 20

Ids = Annotated[list[int] | None, typer.Argument(metavar="[ID]...", help="The letters' numbers.")]
All = Annotated[bool, typer.Option("--all", help="Every open letter the filters let through.")]
Entity = Annotated[str, typer.Option(help="Of this entity only.")]
Machine = Annotated[str, typer.Option(help="Of this machine only; messages by its domain.")]
Kind = Annotated[str, typer.Option(help=f"Of this kind of intent only, or {MESSAGE!r}.")]
Reason = Annotated[str, typer.Option(help="Whose reason holds this text.")]
Since = Annotated[str, typer.Option(help="Not older: 90s, 30m, 2h, 7d, or a time in ISO 8601.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

dlq_commands = typer.Typer(help="What could not be done: dead letters.", no_args_is_help=True)


@dlq_commands.command("list")
def list_letters(
    entity: Entity = "",
    machine: Machine = "",
    kind: Kind = "",
    reason: Reason = "",
    since: Since = "",
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="At most so many.")] = 50,
    closed: Annotated[bool, typer.Option("--closed", help="Those that are closed.")] = False,
    as_json: AsJson = False,
) -> None:
    """The newest dead letters, and how many there are."""
    which = _filter(entity, machine, kind, reason, since)._replace(closed=closed)
    settings = ready_settings()
    redactor = Redactor(settings.secrets)
    with Session(open_engine(settings, "dlq", pooled=False)) as session:
        total = letters.count(session, which)
        found = find(session, which, limit)
    if as_json:
        _print_json({"total": total, "letters": [_row(each, redactor) for each in found]})
    else:
        if found:
            _OUT.print(_table(found, redactor))
        typer.echo(f"{total} {'closed' if closed else 'open'} dead letters")


@dlq_commands.command()
def show(
    number: Annotated[int, typer.Argument(metavar="ID", help="The letter's number.")],
    as_json: AsJson = False,
) -> None:
    """One letter whole, and what replaying it would do. Exit code 1 when there is none."""
    settings = ready_settings()
    process, redactor = producer(settings), Redactor(settings.secrets)
    with Session(process.engine) as session:
        found = letters.read(session, [number])
        standings = letters.standings(session, found)
    if not found:
        typer.echo(f"rollcall: there is no dead letter {number}", err=True)
        raise typer.Exit(1)
    letter = found[0]
    if letter.closed_at is None:
        made = plan(letter, standings, process.machines)
        would = {"action": made.again.value, "why": made.why}
    else:
        would = {"action": "refused", "why": f"it is closed: {letter.closed_as}"}
    told = _row(letter, redactor) | {
        "history": redactor.value(letter.history),
        "envelope": redactor.value(letter.envelope),
        "projections": redactor.value(letter.projections),
        "replaying": redactor.value(would),
    }
    if as_json:
        _print_json(told)
        return
    for name, value in told.items():
        plain = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if value is not None:
            typer.echo(f"{name}: {plain}")


@dlq_commands.command("replay")
def replay_letters(
    ids: Ids = None,
    every: All = False,
    entity: Entity = "",
    machine: Machine = "",
    kind: Kind = "",
    reason: Reason = "",
    since: Since = "",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Do letters again. Exit code 1 when one of them could not be."""
    which = _filter(entity, machine, kind, reason, since)
    settings = _chosen(ids, every, which)
    process = producer(settings)
    with Session(process.engine) as session:
        wanted = ids or letters.ids(session, which)
    if every:
        _confirm("replay", len(wanted), yes)
    with _progress("replaying", len(wanted)) as told:
        fates = replay(process, wanted, told)
    _tell(fates, "replayed", as_json)


@dlq_commands.command("discard")
def discard_letters(
    ids: Ids = None,
    every: All = False,
    entity: Entity = "",
    machine: Machine = "",
    kind: Kind = "",
    since: Since = "",
    reason: Annotated[
        str, typer.Option(help="Why; it is kept with the letter and is no filter here.")
    ] = "",
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Close letters without doing anything. Exit code 1 when one of them could not be."""
    if not reason.strip():
        raise ConfigurationError("nobody will know why these were discarded", "say --reason TEXT")
    which = _filter(entity, machine, kind, "", since)
    settings = _chosen(ids, every, which)
    engine = open_engine(settings, "dlq", pooled=False)
    with Session(engine) as session:
        wanted = ids or letters.ids(session, which)
    if every:
        _confirm("discard", len(wanted), yes)
    why = Redactor(settings.secrets).text(reason.strip())
    with _progress("discarding", len(wanted)) as told:
        fates = discard(engine, wanted, why, told)
    _tell(fates, "discarded", as_json)


def _chosen(ids: Sequence[int] | None, every: bool, which: Filter) -> Settings:
    """Numbers or filters, never both and never neither: nothing is done to all by oversight."""
    if bool(ids) == every or (ids and which != Filter()):
        raise ConfigurationError(
            "it is not clear which letters are meant", "name their IDs, or say --all with filters"
        )
    return ready_settings()


def _filter(entity: str, machine: str, kind: str, reason: str, since: str) -> Filter:
    domain = domain_of(machine) if machine else ""
    return Filter(entity, machine, domain, kind, reason, _time(since) if since else None)


def _time(since: str) -> datetime:
    try:
        if ago := _AGO.match(since):
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        at = datetime.fromisoformat(since)
    except (ValueError, OverflowError):
        raise ConfigurationError(
            f"--since {since[:40]!r} is no time", "say 90s, 30m, 2h, 7d, or a time in ISO 8601"
        ) from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _confirm(verb: str, number: int, yes: bool) -> None:
    typer.echo(f"{number} dead letters", err=True)
    if yes or not number:
        return
    if not sys.stdin.isatty():
        raise ConfigurationError(
            f"nobody is there to be asked whether to {verb} {number} letters", "say --yes"
        )
    typer.confirm(f"{verb.capitalize()} them?", abort=True, err=True)


@contextmanager
def _progress(what: str, number: int) -> Iterator[Callable[[int], None]]:
    """Counts letters on a terminal; silent elsewhere."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=_ERR, transient=True, disable=not _ERR.is_terminal) as shown:
        task = shown.add_task(what, total=number)
        yield lambda done: shown.update(task, advance=done)


def _tell(fates: Sequence[Fate], verb: str, as_json: bool) -> None:
    left = [each for each in fates if not each.done]
    done = len(fates) - len(left)
    if as_json:
        _print_json({verb: done, "left": [each._asdict() for each in left]})
    else:
        for each in left[:_SHOWN_FATES]:
            typer.echo(f"{each.dead_letter_id} {each.outcome}: {each.why}")
        if len(left) > _SHOWN_FATES:
            typer.echo(f"and {len(left) - _SHOWN_FATES} more")
        typer.echo(f"{done} {verb}, {len(left)} left as they are")
    raise typer.Exit(1 if left else 0)


def _row(letter: Letter, redactor: Redactor) -> dict[str, Any]:
    return {
        "id": letter.dead_letter_id,
        "entity_id": letter.entity_id,
        "domain": letter.domain,
        "machine": letter.machine,
        "kind": letter.kind or MESSAGE,
        "message_type": letter.message_type,
        "message_id": letter.message_id,
        "correlation_id": letter.correlation_id,
        "registration_id": letter.registration_id,
        "reason": redactor.text(letter.reason),
        "error": redactor.text(letter.error),
        "attempts": letter.attempts,
        "created_at": letter.created_at.isoformat(),
        "closed_at": letter.closed_at and letter.closed_at.isoformat(),
        "closed_as": letter.closed_as and redactor.text(letter.closed_as),
    }


def _table(found: Sequence[Letter], redactor: Redactor) -> Table:
    table = Table()
    for column in ("id", "since", "entity", "kind", "reason", "error", "attempts", "closed as"):
        table.add_column(column, overflow="fold")
    for each in found:
        told = _row(each, redactor)
        kind = each.kind or each.message_type
        values = (
            str(each.dead_letter_id),
            each.created_at.isoformat(timespec="seconds"),
            each.entity_id,
            kind,
            told["reason"],
            told["error"],
            str(each.attempts),
            told["closed_as"] or "",
        )
        table.add_row(*map(Text, values))
    return table


def _print_json(content: object) -> None:
    typer.echo(json.dumps(content, indent=2, default=str, ensure_ascii=False))
