"""The whole product in half a minute: start everything, watch time travel, ask Flower, stop."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import httpx

from models.errors import InfraUnavailableError
from models.messages.runtime import RuntimeTick
from rollcall.devstack import throwaway_home
from rollcall.supervisor import Supervisor
from tasks.settings import Settings

_SECONDS = 60.0


@dataclass(frozen=True)
class Shown:
    """What was promised and what was found, seen from outside."""

    ticks: int
    runtime_id: str
    flower_url: str
    flower_workers: tuple[str, ...]
    flower_tick_tasks: int
    seconds: float

    @property
    def ok(self) -> bool:
        return self.ticks > 0 and bool(self.flower_workers) and self.flower_tick_tasks > 0

    def as_dict(self) -> dict[str, Any]:
        return {"ok": self.ok, **asdict(self)}


def run_demo(
    settings: Settings,
    ticks: int,
    say: Callable[[str], None],
    progress: Callable[[int], None],
) -> Shown:
    """Start the stack in a folder of its own and let `ticks` RuntimeTicks go all the way."""
    began = time.monotonic()
    with (
        throwaway_home("demo") as home,
        Supervisor(settings.at(home=home.path), home, say) as stack,
    ):
        reading = stack.clock()
        deadline = time.monotonic() + _SECONDS + ticks * settings.tick_interval_ms / 1000
        while reading.ticks < ticks and time.monotonic() < deadline:
            stack.watch()
            progress(reading.ticks)
            time.sleep(0.1)
            reading = stack.clock()
        progress(min(reading.ticks, ticks))
        workers, tick_tasks = _ask_flower(stack, deadline)
        return Shown(
            ticks=reading.ticks,
            runtime_id=reading.runtime_id or "none",
            flower_url=stack.flower_url,
            flower_workers=workers,
            flower_tick_tasks=tick_tasks,
            seconds=round(time.monotonic() - began, 1),
        )


def _ask_flower(stack: Supervisor, deadline: float) -> tuple[tuple[str, ...], int]:
    """The workers and the tick tasks Flower's API knows by name, once it has seen one succeed."""
    auth = stack.settings.flower_basic_auth
    user, _, password = auth.reveal().partition(":") if auth else ("", "", "")
    with httpx.Client(base_url=stack.flower_url, auth=(user, password), timeout=10.0) as client:
        while True:
            try:
                workers = (
                    client.get("/api/workers", params={"refresh": 1}).raise_for_status().json()
                )
                tasks = client.get(
                    "/api/tasks", params={"taskname": RuntimeTick.message_type, "state": "SUCCESS"}
                )
                found = tasks.raise_for_status().json()
            except httpx.HTTPError as error:
                raise InfraUnavailableError(
                    f"Flower at {stack.flower_url} does not answer: {error}", "run the demo again"
                ) from None
            if (workers and found) or time.monotonic() > deadline:
                return tuple(sorted(workers)), len(found)
            time.sleep(0.2)
