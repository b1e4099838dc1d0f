"""What beat emits, and how often."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from celery.beat import BeatLazyFunc

from models.messages.runtime import RuntimeTick
from models.topics import Category, Domain, topic

COLLECT = "runtime.CollectGarbage"


def beat_schedule(
    tick_interval: timedelta, next_tick: Callable[[], dict[str, Any]], gc_interval: timedelta
) -> dict[str, dict[str, Any]]:
    """RuntimeTick, each with its own `now` and number. One that nobody took before the next is
    due expires: after an outage the worker finds one tick to run, not an hour of them. The
    garbage collection likewise."""
    return {
        "runtime-tick": {
            "task": RuntimeTick.message_type,
            "schedule": tick_interval,
            "args": (BeatLazyFunc(next_tick),),
            "options": {
                "queue": topic(Domain.RUNTIME, Category.EVENTS),
                "expires": tick_interval.total_seconds(),
            },
        },
        "collect-garbage": {
            "task": COLLECT,
            "schedule": gc_interval,
            "options": {
                "queue": topic(Domain.REGISTRATION, Category.INTENTS),
                "expires": gc_interval.total_seconds(),
            },
        },
    }
