"""A worker that takes nothing while messages wait exits, so that its supervisor starts a new one.

Celery workers are known to stop consuming after a broker reconnects, alive and idle for ever.
"""

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

import psutil
import redis
import redis.exceptions
from celery import bootsteps
from celery.worker import state

from tasks.logs import logger

EXIT_CODE = 75  # EX_TEMPFAIL: start me again


@dataclass
class Stall:
    """How long nothing has moved although something waits."""

    limit: float
    since: float | None = None
    taken: int = -1

    def seen(self, now: float, taken: int, busy: bool, waiting: bool) -> bool:
        """True once messages have waited for `limit` seconds and this worker took none."""
        if taken != self.taken or busy or not waiting:
            self.taken, self.since = taken, None
            return False
        self.since = now if self.since is None else self.since
        return now - self.since >= self.limit


class StallWatch(bootsteps.StartStopStep):
    """The thread that looks, beside the worker's own loop, which may be what is stuck."""

    requires = ("celery.worker.components:Pool",)

    def __init__(self, worker: Any, **kwargs: Any) -> None:
        super().__init__(worker, **kwargs)
        self._done = threading.Event()

    def start(self, parent: Any) -> None:
        conf = parent.app.conf
        watch = threading.Thread(
            target=_watch,
            args=(
                Stall(conf.rollcall_stall_seconds),
                lambda: tuple(parent.app.amqp.queues.consume_from),
                redis.Redis.from_url(conf.broker_url, socket_timeout=5, socket_connect_timeout=5),
                self._done,
            ),
            name="stall-watch",
            daemon=True,
        )
        watch.start()

    def stop(self, parent: Any) -> None:
        self._done.set()

    terminate = stop


def _watch(
    stall: Stall,
    queues: Callable[[], Sequence[str]],
    client: redis.Redis,
    done: threading.Event,
) -> None:
    while not done.wait(min(stall.limit / 4, 5.0)):
        try:
            waiting = _any_waiting(client, queues())
        except redis.exceptions.RedisError:
            waiting = False  # a broker that is away is not a stall; Celery itself reconnects
        if stall.seen(monotonic(), state.all_total_count[0], bool(state.active_requests), waiting):
            logger("stall").critical("messages wait and none was taken", seconds=stall.limit)
            for child in psutil.Process().children(recursive=True):
                child.kill()
            os._exit(EXIT_CODE)


def _any_waiting(client: redis.Redis, queues: Sequence[str]) -> bool:
    with client.pipeline(transaction=False) as pipe:
        for name in queues:
            pipe.llen(name)
        return any(pipe.execute())
