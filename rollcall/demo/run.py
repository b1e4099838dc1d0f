"""One run of the demo: a stack of its own, a fleet, perhaps trouble, and the count."""

import time
from pathlib import Path

from rollcall.demo.board import Board
from rollcall.demo.chaos import Chaos
from rollcall.demo.count import Count, judge, look, where_they_stand
from rollcall.demo.fleet import SERVICE, Fleet
from rollcall.devstack import throwaway_home
from rollcall.supervisor import Supervisor
from tasks.heartbeats import beat
from tasks.settings import Settings
from tasks.wiring import producer

_INTRODUCING_SECONDS = 8.0
_SETTLING_SECONDS = 60.0
_BEAT_SECONDS = 0.5
_LOOK_SECONDS = 0.2


def demo_settings(settings: Settings, home: Path) -> Settings:
    """Servers of its own whatever the environment names, and little patience: a node that does
    not answer or falls silent is seen to within seconds."""
    return Settings(
        home=home,
        cache=settings.cache,
        consul_bin=settings.consul_bin,
        log_level=settings.log_level,
        ack_seconds=4,
        first_heartbeat_seconds=6,
        heartbeat_interval_seconds=1,
        liveness_seconds=5,
        brake_min_nodes=3,
        tick_interval_ms=250,
    )


def run_demo(settings: Settings, nodes: int, chaos: bool, board: Board) -> Count:
    """Have the fleet do what it does, wait a bounded time until it rests, and count."""
    with (
        throwaway_home("demo") as home,
        Supervisor(demo_settings(settings, home.path), home, board.say) as stack,
    ):
        process = producer(stack.settings)
        fleet = Fleet(nodes)
        trouble = Chaos(stack, board.say) if chaos else None
        began, next_beat = time.monotonic(), 0.0
        board.say(f"{nodes} nodes introduce themselves")
        while True:
            elapsed = time.monotonic() - began
            stack.watch()
            if trouble is not None:
                trouble.at(elapsed)
            seen = where_they_stand(process.engine)
            said = fleet.introduce(min(elapsed / _INTRODUCING_SECONDS, 1.0)) + fleet.react(seen)
            if said:
                process.runtime.submit(said)
            if time.monotonic() >= next_beat:
                beat(process.engine, fleet.alive(seen), stack.settings.liveness)
                next_beat = time.monotonic() + _BEAT_SECONDS
            expected = fleet.expected
            done = sum(each.is_as(expected[node_id]) for node_id, each in seen.items())
            board.show(seen, done)
            if done == nodes and (trouble is None or trouble.over):
                break
            if elapsed > _INTRODUCING_SECONDS + _SETTLING_SECONDS:
                board.say(f"{nodes - done} nodes are not where they belong, and the time is up")
                break
            time.sleep(_LOOK_SECONDS)
        assert stack.settings.consul_url is not None  # noqa: S101
        found = look(process.engine, stack.settings.consul_url, SERVICE)
        process.engine.dispose()
        return judge(expected, fleet.introduced, found)
