"""RuntimeTick: how it is made by a beat, and what a worker does with it."""

import os
import secrets
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, TypedDict

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from models.messages.runtime import RuntimeTick
from tasks.logs import logger
from tasks.store.clock import take_tick


class TickResult(TypedDict):
    """What Flower shows of a tick."""

    won: bool
    runtime_id: str
    tick_sequence: int
    ticks: int | None


class TickSource:
    """One runtime instance's ticks, numbered from 1. Each start is an instance of its own, so
    that the numbers of one `runtime_id` only ever rise."""

    def __init__(self, runtime_name: str, clock: Callable[[], datetime]) -> None:
        self.runtime_id = f"{runtime_name}-{os.getpid()}-{secrets.token_hex(4)}"
        self._clock = clock
        self._numbers = count(1)

    def __call__(self) -> dict[str, Any]:
        tick = RuntimeTick(
            now=self._clock().astimezone(UTC),
            tick_sequence=next(self._numbers),
            runtime_id=self.runtime_id,
        )
        return tick.model_dump(mode="json")


def run_tick(engine: Engine, tick: RuntimeTick, interval: timedelta) -> TickResult:
    """Take the tick if it is the first of its interval; the others stop here."""
    with Session(engine) as session, session.begin():
        taken = take_tick(session, tick, interval)
    logger("ticks").debug(
        "tick taken" if taken else "tick already taken",
        runtime_id=tick.runtime_id,
        tick_sequence=tick.tick_sequence,
    )
    return TickResult(
        won=taken is not None,
        runtime_id=tick.runtime_id,
        tick_sequence=tick.tick_sequence,
        ticks=taken.ticks if taken else None,
    )
