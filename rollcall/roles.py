"""`rollcall worker|beat|flower`: what each process of a deployment runs, and how it is checked."""

import os
import socket
from typing import Annotated

import typer

from models.errors import ConfigurationError, InfraUnavailableError
from models.topics import all_topics
from rollcall.supervisor import FLOWER_PORT, flower_answers, running_settings
from tasks.database import open_engine
from tasks.logs import configure_logging
from tasks.pulse import Pulse
from tasks.reachability import postgres_version, redis_version
from tasks.schema import require_current
from tasks.settings import Settings
from tasks.wiring import celery_app


def roles(app: typer.Typer) -> None:
    """Mount the commands."""
    health = typer.Typer(help="Health checks for orchestrators: exit code 0 is well.")
    for command in (worker, beat, flower):
        app.command()(command)
    for name, check in (
        ("worker", worker_health),
        ("beat", beat_health),
        ("flower", flower_health),
    ):
        health.command(name)(check)
    app.add_typer(health, name="health", no_args_is_help=True)


def worker(
    name: Annotated[str, typer.Option(help="The worker's name; its host is added.")] = "worker",
    queues: Annotated[
        str | None, typer.Option(help="Topics to consume; all of them if unset.")
    ] = None,
) -> None:
    """Run a worker on this machine, in the foreground."""
    settings = _checked(database=True)
    unknown = [queue for queue in (queues or "").split(",") if queue and queue not in all_topics()]
    if unknown:
        raise ConfigurationError(
            f"--queues names {', '.join(unknown)}", f"topics are {', '.join(all_topics())}"
        )
    celery_app(settings).worker_main(
        [
            *("worker", "--hostname", f"{name}@{socket.gethostname()}", "--without-gossip"),
            *("--concurrency", str(settings.worker_concurrency), "--without-mingle"),
            *("--loglevel", settings.log_level.value),
            *(("--queues", queues) if queues else ()),
        ]
    )


def beat() -> None:
    """Run a beat, in the foreground. More than one may run: one tick per interval wins."""
    settings = _checked(database=False)
    Pulse(settings).felt()
    celery_app(settings).start(["beat", "--pidfile", "", "--loglevel", settings.log_level.value])


def flower() -> None:
    """Run Flower, in the foreground; on loopback unless it asks for a password."""
    settings = _checked(database=False)
    port = settings.flower_port or FLOWER_PORT
    if settings.flower_basic_auth is not None:
        # By the environment, since arguments can be read by everybody on the machine.
        os.environ["FLOWER_BASIC_AUTH"] = settings.flower_basic_auth.reveal()
    elif not settings.flower_is_local:
        raise ConfigurationError(
            f"Flower would listen on {settings.flower_address} without a password",
            "set ROLLCALL_FLOWER_BASIC_AUTH, or leave ROLLCALL_FLOWER_ADDRESS on loopback",
        )
    celery_app(settings).start(
        [
            *("flower", f"--address={settings.flower_address}", f"--port={port}"),
            *("--enable_events=true", "--purge_offline_workers=60"),
        ]
    )


def worker_health(
    name: Annotated[str, typer.Option(help="The name the worker was given.")] = "worker",
) -> None:
    """Whether the worker answers a ping through the broker."""
    address = f"{name}@{socket.gethostname()}"
    control = celery_app(_checked(database=False)).control
    if not control.broadcast("ping", destination=[address], reply=True, timeout=5.0, limit=1):
        raise InfraUnavailableError(f"{address} does not answer", "restart it")


def beat_health() -> None:
    """Whether this machine's beat emitted a tick of late."""
    if not Pulse(Settings.from_environment()).alive():
        raise InfraUnavailableError("beat has emitted no tick of late", "restart it")


def flower_health() -> None:
    """Whether Flower answers."""
    settings = running_settings(Settings.from_environment())
    local = settings.at(flower_address="127.0.0.1", flower_port=settings.flower_port or FLOWER_PORT)
    flower_answers(local)


def _checked(database: bool) -> Settings:
    """Settings whose servers answer: a process that starts and then fails is harder to read."""
    settings = running_settings(Settings.from_environment())
    configure_logging(settings)
    if settings.broker_url is not None:
        redis_version(settings.broker_url)
    if database and settings.database_url is not None:
        postgres_version(settings.database_url)
    if database:
        require_current(open_engine(settings, "worker", pooled=False))
    return settings
