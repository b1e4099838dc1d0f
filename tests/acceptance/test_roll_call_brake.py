"""The brake, with a real beat: mass silence expires nobody, and expiring goes on by itself."""

from collections.abc import Iterator

import pytest

from tasks.heartbeats import beat
from tasks.settings import Settings
from tests.polling import eventually
from tests.roll_call_kit import RollCall, roll_call

NODES = [f"n{at:03}" for at in range(100)]


@pytest.fixture
def calls(servers: Settings, template: str) -> Iterator[RollCall]:
    with roll_call(
        servers,
        template,
        heartbeat_interval_seconds=1,
        liveness_seconds=4,
        first_heartbeat_seconds=4,
    ) as made:
        yield made
        made.verify()


def test_the_brake_holds_while_most_are_silent_and_lets_go(calls: RollCall) -> None:
    """Ruling 18."""
    policy = calls.settings.liveness

    def heard(nodes: list[str], held: bool) -> bool:
        beat(calls.kit.engine, nodes, policy)
        return calls.kit.sql("SELECT held_since IS NOT NULL FROM brake") == [(held,)]

    calls.introduce(*NODES)
    calls.until("awaiting_ack", *NODES, machine="handshake")
    calls.acknowledge(*NODES)
    # All are heard until the last is active: they fall silent together, however slow that was.
    eventually(
        lambda: heard(NODES, False) and calls.states(NODES, "handshake") == {"active"}, "all live"
    )
    eventually(lambda: heard(NODES[60:], True), "the brake holds")
    past = "SELECT count(*) FROM heartbeats WHERE deadline < clock_timestamp()"
    eventually(lambda: heard(NODES[60:], True) and calls.kit.sql(past) == [(60,)], "60 are overdue")
    assert calls.states(NODES, "handshake") == {"active"}
    eventually(lambda: heard(NODES, False), "the brake lets go")
    assert calls.states(NODES, "handshake") == {"active"}
    silent = NODES[:20]
    rest = NODES[20:]
    eventually(
        lambda: heard(rest, False) and calls.states(silent, "handshake") == {"liveness_expired"},
        "a few that are silent expire",
    )
    calls.until("deregistered", *silent)
    assert calls.in_consul() == {f"trial-{each}" for each in rest}
