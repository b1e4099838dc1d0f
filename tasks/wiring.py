"""The composition root: the only place that knows the clock and puts the parts together."""

import socket
from datetime import UTC, datetime, timedelta
from typing import Any

from celery import Celery, signals

from beat_schedule import beat_schedule
from fsm.library import all_machines
from fsm.machines import domain_of
from models.errors import ConfigurationError
from tasks.app import create_app, send_drain
from tasks.effects.services import refuse_unhandled
from tasks.logs import configure_logging
from tasks.pulse import Pulse
from tasks.settings import Settings
from tasks.stall import StallWatch
from tasks.ticks import TickSource
from tasks.worker_process import WorkerProcess


def system_clock() -> datetime:
    return datetime.now(UTC)


def celery_app(settings: Settings) -> Celery:
    """The app that workers, beat, Flower and producers use."""
    app, _ = _parts(settings)
    source = TickSource(settings.runtime_name or socket.gethostname(), system_clock)
    pulse = Pulse(settings)

    def next_tick() -> dict[str, Any]:
        pulse.felt()
        return source()

    interval = timedelta(milliseconds=settings.tick_interval_ms)
    app.conf.beat_schedule = beat_schedule(
        interval, next_tick, timedelta(seconds=settings.gc_interval_seconds)
    )
    app.steps["worker"].add(StallWatch)
    app.conf.rollcall_stall_seconds = settings.stall_seconds
    signals.setup_logging.connect(
        lambda **_: configure_logging(settings), weak=False, dispatch_uid="rollcall.logs"
    )
    return app


def producer(settings: Settings) -> WorkerProcess:
    """What a process needs that submits messages and runs no tasks."""
    _, process = _parts(settings)
    return process


def _parts(settings: Settings) -> tuple[Celery, WorkerProcess]:
    if settings.broker_url is None:
        raise ConfigurationError(
            "ROLLCALL_BROKER_URL is not set and no stack runs here",
            "set it, or start the embedded servers with `rollcall up`",
        )
    library = all_machines(settings.contracts_dir, _patience(settings))
    refuse_unhandled(loaded.contract for loaded in library.values())
    process = WorkerProcess(settings, library, lambda *room: send_drain(app, *room))
    app = create_app(settings, process, [domain_of(machine) for machine in library])
    return app, process


def _patience(settings: Settings) -> dict[str, timedelta]:
    """How long a node may take to answer, and to send its first heartbeat."""
    return {
        "awaiting_ack": timedelta(seconds=settings.ack_seconds),
        "active": timedelta(seconds=settings.first_heartbeat_seconds),
    }
