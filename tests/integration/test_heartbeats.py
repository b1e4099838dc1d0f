"""Heartbeats: a fresh one wins over an expiry, none shortens a deadline, silence brakes."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import uuid4

import pytest

from models.envelope import Envelope
from models.errors import MessageError
from models.messages.runtime import RuntimeTick
from tasks.heartbeats import beat
from tasks.settings import Settings
from tasks.ticks import run_tick
from tests.runtime_kit import Kit, kit_of

numbers = count(1)


@pytest.fixture
def kit(settings: Settings) -> Iterator[Kit]:
    yield from kit_of(settings)


def said(node: str, name: str, **payload: Any) -> Envelope:
    return Envelope(
        message_id=uuid4(),
        correlation_id=uuid4(),
        causation_id=None,
        emitted_at=datetime.now(UTC),
        entity_id=node,
        message_type=f"registration.{name}",
        payload=payload,
    )


def activate(kit: Kit, *nodes: str) -> None:
    """Bring nodes to `active`, with the effects' results put in by hand."""
    kit.submit(
        *(
            said(
                node,
                "events.NodeIntrospected",
                node_id=node,
                deployment_id="d1",
                environment="prod",
                network_id="net",
                consul_service_id=f"svc-{node}",
                consul_service_name="svc",
                postgres_record={"role": "web"},
            )
            for node in nodes
        )
    )
    kit.drain("registration")
    for name, applied in (
        ("PostgresUpsertSucceeded", "postgres_applied"),
        ("ConsulRegisterSucceeded", "consul_applied"),
    ):
        kit.feed(*(said(node, f"events.{name}", **{applied: True}) for node in nodes))
        kit.drain("registration")
    attempts = dict(
        kit.sql(
            "SELECT entity_id, context->>'registration_id' FROM entities"
            " WHERE machine = 'handshake'"
        )
    )
    kit.submit(
        *(
            said(
                node,
                "commands.NodeRegistrationAcked",
                node_id=node,
                registration_id=attempts[node],
            )
            for node in nodes
        )
    )
    kit.drain("registration")
    assert {kit.states("handshake")[node] for node in nodes} == {"active"}


def fall_silent(kit: Kit, number: int) -> None:
    """The first so many nodes were last heard ten minutes ago; the others beat just now."""
    kit.sql("UPDATE heartbeats SET last_seen = now(), deadline = now() + interval '90 s'")
    kit.sql(
        "UPDATE heartbeats SET last_seen = now() - interval '10 min',"
        " deadline = now() - interval '1 s'"
        f" WHERE node_id IN (SELECT node_id FROM heartbeats ORDER BY node_id LIMIT {number})"
    )
    come_due(kit)


def come_due(kit: Kit) -> None:
    """Every liveness deadline was set ten minutes ago, as far as the entities know."""
    kit.sql(
        "UPDATE entities SET next_deadline = now() - interval '1 s', deadlines = CAST(replace("
        "CAST(deadlines AS text), deadlines->'liveness'->>'at', '2020-01-01T00:00:00+00:00')"
        " AS json) WHERE machine = 'handshake' AND state = 'active'"
    )


def tick(kit: Kit) -> int:
    kit.sql("UPDATE runtime_clock SET at = 'epoch'")
    told = RuntimeTick(now=datetime.now(UTC), tick_sequence=next(numbers), runtime_id="rt-1")
    return run_tick(kit.engine, told, timedelta(seconds=5), lambda rooms: 0)["timeouts"]


def handshakes(kit: Kit, state: str) -> int:
    return [*kit.states("handshake").values()].count(state)


def test_only_a_live_node_is_heard(kit: Kit) -> None:
    activate(kit, "n1")
    answers = beat(kit.engine, ["n1", "stranger", "n1"])
    assert answers == (["n1"], ["stranger"])
    assert kit.count("heartbeats") == 1


@pytest.mark.parametrize("ids", [[""], ["x" * 129], ["a\0b"], ["n"] * 10_001])
def test_what_cannot_be_a_heartbeat_is_refused(kit: Kit, ids: list[str]) -> None:
    with pytest.raises(MessageError):
        beat(kit.engine, ids)


def test_no_heartbeat_shortens_a_deadline_also_when_the_clock_is_set_back(kit: Kit) -> None:
    activate(kit, "n1")
    beat(kit.engine, ["n1"])
    before = kit.sql("SELECT last_seen, deadline FROM heartbeats")
    beat(kit.engine, ["n1"], now=datetime.now(UTC) - timedelta(hours=1))
    assert kit.sql("SELECT last_seen, deadline FROM heartbeats") == before


def test_a_fresh_heartbeat_moves_the_deadline_and_a_silent_node_expires(kit: Kit) -> None:
    activate(kit, "n1", "n2")
    fall_silent(kit, 1)
    assert tick(kit) == 1
    kit.drain("registration")
    states = kit.states("handshake")
    assert states == {"n1": "liveness_expired", "n2": "active"}
    assert kit.sql("SELECT node_id FROM heartbeats") == [("n2",)]
    ((due, until, emitted),) = kit.sql(
        "SELECT next_deadline, deadline, CAST(timeouts_emitted AS text) FROM entities"
        " JOIN heartbeats ON node_id = entity_id WHERE machine = 'handshake'"
    )
    assert (due, emitted) == (until, "{}")


def test_a_heartbeat_between_the_tick_and_the_fold_wins_and_the_next_silence_counts(
    kit: Kit,
) -> None:
    """Ruling 17. What was dropped comes again: nothing is lost."""
    activate(kit, "n1")
    fall_silent(kit, 1)
    assert tick(kit) == 1
    beat(kit.engine, ["n1"])
    kit.drain("registration")
    assert kit.states("handshake") == {"n1": "active"}
    assert kit.count("inbox") == 0
    fall_silent(kit, 1)
    assert tick(kit) == 1
    kit.drain("registration")
    assert kit.states("handshake") == {"n1": "liveness_expired"}


def test_the_brake_holds_tells_once_and_lets_go_by_itself(
    kit: Kit, capfd: pytest.CaptureFixture[str]
) -> None:
    """Ruling 18."""
    nodes = [f"n{at:03}" for at in range(100)]
    activate(kit, *nodes)
    fall_silent(kit, 60)
    assert [tick(kit) for _ in range(3)] == [0, 0, 0]
    said_so = "".join(capfd.readouterr())
    assert said_so.count("brake held") == 1
    assert kit.sql("SELECT held_since IS NOT NULL, silent, live FROM brake") == [(True, 60, 100)]
    kit.drain("registration")
    assert handshakes(kit, "active") == 100
    beat(kit.engine, nodes)
    kit.sql("UPDATE heartbeats SET deadline = now() - interval '1 s'")
    ((asked_at,),) = kit.sql("SELECT now()")
    assert tick(kit) == 0
    assert kit.sql("SELECT held_since FROM brake") == [(None,)]
    ((least,),) = kit.sql("SELECT min(deadline) FROM heartbeats")
    assert least >= asked_at + timedelta(seconds=90)


@pytest.mark.parametrize(("fleet", "silent"), [(50, 20), (9, 9)])
def test_a_smaller_share_and_a_small_fleet_expire(kit: Kit, fleet: int, silent: int) -> None:
    activate(kit, *[f"n{at:03}" for at in range(fleet)])
    fall_silent(kit, silent)
    assert tick(kit) == silent
    kit.drain("registration")
    assert handshakes(kit, "liveness_expired") == silent
    assert kit.count("heartbeats") == fleet - silent


def test_heartbeats_stay_on_their_page(kit: Kit) -> None:
    """HOT: no index is written for a heartbeat."""
    activate(kit, *[f"n{at:03}" for at in range(20)])
    for _ in range(3):
        beat(kit.engine, [f"n{at:03}" for at in range(20)])
    kit.engine.dispose()
    indexes = kit.sql("SELECT indexdef FROM pg_indexes WHERE tablename = 'heartbeats'")
    assert len(indexes) == 1
    kit.sql("SELECT pg_stat_force_next_flush()")
    ((updated, hot),) = kit.sql(
        "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'heartbeats'"
    )
    assert updated == hot == 60
