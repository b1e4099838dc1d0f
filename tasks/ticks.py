"""RuntimeTick: how it is made by a beat, and what a worker does with it."""

import os
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from time import monotonic
from types import MappingProxyType
from typing import Any, TypedDict

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from fsm.liveness import LivenessPolicy
from models.messages.runtime import RuntimeTick
from tasks.doorbell import Room
from tasks.liveness import LivenessWatch
from tasks.store import event_log, inbox
from tasks.store.clock import take_tick
from tasks.store.deadlines import take_due

# How often the log's next partitions are looked after.
_TICKS_A_LOOK_AHEAD = 3600


class TickResult(TypedDict):
    """What Flower shows of a tick."""

    won: bool
    runtime_id: str
    tick_sequence: int
    ticks: int | None
    timeouts: int
    rung: int


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


def run_tick(
    engine: Engine,
    tick: RuntimeTick,
    interval: timedelta,
    ring: Callable[[Iterable[Room]], int],
    most: int = 1000,
    services: Sequence[str] = (),
    policy: LivenessPolicy = LivenessPolicy(),
    retried: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> TickResult:
    """Take the tick if it is the first of its interval; the others stop here. Then put the timeout
    of every deadline that came due into the inbox, and ring wherever something waits."""
    result = TickResult(
        won=False,
        runtime_id=tick.runtime_id,
        tick_sequence=tick.tick_sequence,
        ticks=None,
        timeouts=0,
        rung=0,
    )
    with engine.connect() as connection, Session(connection) as session:
        with session.begin():
            taken = take_tick(session, tick, interval)
            if taken is None:
                return result
            if taken.ticks % _TICKS_A_LOOK_AHEAD == 1:
                event_log.add_months(session)
        result["won"], result["ticks"] = True, taken.ticks
        watch = LivenessWatch(policy)
        if taken.braked:
            with session.begin():
                watch.look_at_brake(session, taken.at)
        until = monotonic() + interval.total_seconds()
        while True:
            with session.begin():
                due = take_due(session, tick, most, retried)
                messages = watch.sift(session, due.messages)
                inbox.put(session, messages)
            result["timeouts"] += len(messages)
            if due.entities < most or monotonic() > until:
                break
        with session.begin():
            waiting = inbox.waiting_rooms(session, services)
    result["rung"] = ring(waiting)
    return result
