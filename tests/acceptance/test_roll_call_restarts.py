"""Workers, beats, Redis and Consul that die at the worst time: nothing is lost, nothing doubled."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from rollcall.devstack import throwaway_home
from tasks.settings import Settings
from tests.polling import eventually
from tests.roll_call_kit import OwnConsul, RollCall, roll_call


@pytest.fixture(scope="module")
def own_consul(consul: Path) -> Iterator[OwnConsul]:
    with throwaway_home("trial-consul") as home, home.owned():
        made = OwnConsul(consul, home).start()
        yield made
        made.stop()


@pytest.fixture(scope="module")
def calls(servers: Settings, template: str, own_consul: OwnConsul) -> Iterator[RollCall]:
    ours = servers.at(consul_url=own_consul.url, consul_timeout_ms=1500)
    with roll_call(ours, template, ack_seconds=3) as made:
        yield made
        made.verify()


def flush(calls: RollCall) -> None:
    assert calls.settings.broker_url
    with redis.Redis.from_url(calls.settings.broker_url.reveal()) as broker:
        broker.flushdb()


def restart(calls: RollCall) -> None:
    for name in ("worker", "beat"):
        calls.kill(name)
    flush(calls)
    for name in ("worker", "beat"):
        calls.start(name)


def offered(calls: RollCall, nodes: list[str]) -> bool:
    return calls.contexts("handshake", "registration_id").keys() >= {*nodes}


def test_deadlines_that_pass_while_nothing_runs_fire_once(calls: RollCall) -> None:
    """Promises 6 and 10: restarted after the deadline, one timeout each, out of both systems."""
    nodes = [f"late-{at}" for at in range(108)]
    calls.introduce(*nodes)
    calls.until("awaiting_ack", *nodes, machine="handshake")
    for name in ("worker", "beat"):
        calls.kill(name)
    flush(calls)
    due = "SELECT count(*) FROM entities WHERE next_deadline > clock_timestamp()"
    eventually(lambda: calls.kit.sql(due) == [(0,)], "the deadlines pass")
    assert calls.states(nodes, "handshake") == {"awaiting_ack"}
    for name in ("worker", "beat"):
        calls.start(name)
    calls.until("deregistered", *nodes)
    assert calls.in_consul() & {f"trial-{each}" for each in nodes} == set()
    rows = calls.kit.sql(
        "SELECT entity_id FROM event_log"
        " WHERE trigger = 'ACK_TIMED_OUT' AND entity_id LIKE 'late-%'"
    )
    assert (len(rows), len({*rows})) == (108, 108)


def test_108_late_acknowledgements_leave_nobody_stuck(calls: RollCall) -> None:
    """Promise 9: each late answer is a new offer, and answered in time it leads to `active`."""
    nodes = [f"late-{at}" for at in range(108)]
    calls.acknowledge(*nodes)
    calls.until("registered", *nodes)
    calls.acknowledge(*nodes)
    calls.until("active", *nodes, machine="handshake")
    assert set(calls.contexts("registration", "generation").values()) == {"2"}


def test_everything_killed_in_the_middle_of_it_all_activates_each_node_once(
    calls: RollCall,
) -> None:
    """Promises 1, 3 and 7."""
    nodes = [f"killed-{at}" for at in range(60)]
    for at in range(0, 60, 20):
        share = nodes[at : at + 20]
        calls.introduce(*share)
        eventually(lambda: offered(calls, nodes[: at + 20]), "each has its offer")  # noqa: B023
        calls.acknowledge(*share)
        if at == 20:
            restart(calls)
    flush(calls)
    calls.until("active", *nodes, machine="handshake")
    for each in nodes:
        assert calls.triggers(each, "handshake").count("BECAME_ACTIVE") == 1, each
    assert calls.in_consul() >= {f"trial-{each}" for each in nodes}


def test_a_lease_whose_worker_was_killed_runs_out_and_is_done_once(
    calls: RollCall, own_consul: OwnConsul
) -> None:
    """Promise 7: the tick rings for it again, without any new message."""
    own_consul.send(signal.SIGSTOP)
    calls.introduce("leased")
    held = "SELECT 1 FROM intents WHERE entity_id = 'leased' AND leased_until IS NOT NULL"
    eventually(lambda: calls.kit.sql(held), "somebody holds it")
    calls.kill("worker")
    own_consul.send(signal.SIGCONT)
    calls.start("worker")
    calls.until("registered", "leased")
    rows = calls.kit.sql(
        "SELECT status, attempts FROM effect_ledger"
        " WHERE entity_id = 'leased' AND kind = 'consul.register'"
    )
    assert rows == [("succeeded", 2)]
    assert calls.triggers("leased").count("CONSUL_SUCCEEDED") == 1


def test_a_killed_consul_loses_nobody(calls: RollCall, own_consul: OwnConsul) -> None:
    nodes = [f"down-{at}" for at in range(5)]
    own_consul.send(signal.SIGKILL)
    own_consul.stop()
    calls.introduce(*nodes)
    eventually(lambda: calls.kit.sql("SELECT 1 FROM circuits WHERE failures > 0"), "it is missed")
    own_consul.start()
    calls.until("registered", *nodes)
    assert calls.in_consul() >= {f"trial-{each}" for each in nodes}
