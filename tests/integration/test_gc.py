"""Garbage collection on a real PostgreSQL and a real Consul: what nobody stands behind goes, what
is not ours stays, and what Consul forgot comes back."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import uuid4

import httpx
import pytest
from sqlalchemy.orm import Session

from models.envelope import Envelope
from tasks.collected import Collected, GcPolicy
from tasks.effects.consul import ConsulHandler
from tasks.effects.consul_entries import CheckStatus, node_name
from tasks.effects.handler import Claimed
from tasks.gc import Collector
from tasks.rounds import answer, serve
from tasks.secrets import SecretUrl
from tasks.settings import ConsulMode, Settings
from tasks.store import garbage
from tests.conftest import Rollcall
from tests.runtime_kit import PARTITIONS, Kit, kit_of

_prefixes = count(1)
HOUR = timedelta(hours=1)


@pytest.fixture
def ours(settings: Settings) -> Settings:
    return settings.at(consul_node_prefix=f"gc-{next(_prefixes)}-")


@pytest.fixture
def kit(ours: Settings) -> Iterator[Kit]:
    yield from kit_of(ours)


def written(
    settings: Settings, ago: timedelta, *node_ids: str, status: CheckStatus | None = None
) -> None:
    """Entries in Consul that an installation wrote that long ago."""
    handler = ConsulHandler(settings, lambda: datetime.now(UTC) - ago)
    claims = []
    for node_id in node_ids:
        payload: dict[str, Any] = {
            "node_id": node_id,
            "registration_id": "r0",
            "service_id": f"svc-{node_id}",
            "service_name": "svc",
            "active": status is CheckStatus.PASSING,
        }
        claims.append(
            Claimed(
                *(uuid4(), "registration", 0, node_id, "registration", "consul.register", payload),
                *("r0", uuid4(), uuid4(), 1, 1, 1, None),
            )
        )
    outcomes = handler.perform(claims, threading.TIMEOUT_MAX, None).outcomes
    assert len(outcomes) == len(node_ids)
    handler.close()


def shown(settings: Settings) -> set[str]:
    """The ids of the nodes that Consul shows under a prefix."""
    assert settings.consul_url
    found = httpx.get(f"{settings.consul_url.reveal()}/v1/catalog/nodes").json()
    return {
        each["Meta"].get("node_id", "")
        for each in found
        if each["Node"].startswith(settings.consul_node_prefix)
    }


def forget(settings: Settings, node_id: str) -> None:
    assert settings.consul_url
    body = {"Node": node_name(settings.consul_node_prefix, node_id)}
    url = f"{settings.consul_url.reveal()}/v1/catalog/deregister"
    assert httpx.put(url, json=body).text.strip() == "true"


def said(node_id: str, name: str, **payload: Any) -> Envelope:
    return Envelope(
        message_id=uuid4(),
        correlation_id=uuid4(),
        causation_id=None,
        emitted_at=datetime.now(UTC),
        entity_id=node_id,
        message_type=f"registration.{name}",
        payload={"node_id": node_id} | payload,
    )


def introduce(kit: Kit, *node_ids: str) -> None:
    kit.submit(
        *(
            said(
                each,
                "events.NodeIntrospected",
                deployment_id="d1",
                environment="prod",
                network_id="net",
                consul_service_id=f"svc-{each}",
                consul_service_name="svc",
                postgres_record={"role": "web"},
            )
            for each in node_ids
        )
    )


def fold(kit: Kit) -> None:
    for room in range(PARTITIONS):
        answer(kit.runtime, kit.process.effects, kit.process.doorbell, "registration", room)


def turn(kit: Kit) -> None:
    fold(kit)
    serve(kit.process.effects, kit.process.doorbell, "consul")
    fold(kit)


def collect(kit: Kit, **said: Any) -> Collected:
    return kit.process.collector.run(kit.process.doorbell.ring, **said)


def test_an_old_entry_that_nobody_stands_behind_goes_and_the_run_is_logged(kit: Kit) -> None:
    written(kit.settings, 2 * HOUR, "orphan")
    introduce(kit, "n1")
    turn(kit)
    assert collect(kit).consul_removed == ["orphan"]
    assert shown(kit.settings) == {"n1"}
    rows = kit.sql("SELECT nodes_cleaned, CAST(node_ids AS text) FROM registration_gc_log")
    assert rows == [(1, '["orphan"]')]
    assert collect(kit).cleaned == []


def test_what_is_not_ours_is_left_alone(kit: Kit) -> None:
    """Another installation's prefix, and a node of somebody's that only looks like ours."""
    others = kit.settings.at(consul_node_prefix=f"other-{kit.settings.consul_node_prefix}")
    written(others, 2 * HOUR, "theirs")
    assert kit.settings.consul_url
    url = f"{kit.settings.consul_url.reveal()}/v1/catalog/register"
    name = f"{kit.settings.consul_node_prefix}somebody"
    meta = {"node_id": "somebody", "registration_id": "r0"}
    for marked in ({}, {"managed-by": "rollcall"}):
        body = {"Node": f"{name}{len(marked)}", "Address": "10.0.0.1", "NodeMeta": meta | marked}
        assert httpx.put(url, json=body).status_code == 200
    assert collect(kit).cleaned == []
    assert shown(others) == {"theirs"}
    assert shown(kit.settings) == {"somebody"}


def test_a_young_entry_is_kept_and_one_critical_for_long_is_not(kit: Kit) -> None:
    written(kit.settings, timedelta(minutes=2), "young")
    written(kit.settings, timedelta(minutes=10), "alive", status=CheckStatus.PASSING)
    written(kit.settings, timedelta(minutes=10), "critical")
    assert collect(kit).consul_removed == ["critical"]
    assert shown(kit.settings) == {"young", "alive"}


def test_a_dry_run_writes_nothing(kit: Kit) -> None:
    written(kit.settings, 2 * HOUR, "orphan")
    introduce(kit, "n1", "n2")
    turn(kit)
    forget(kit.settings, "n1")
    end(kit, "n2")
    told = collect(kit, dry_run=True)
    assert sorted(told.consul_removed) == ["n2", "orphan"]
    assert (told.records_removed, told.repaired) == (["n2"], ["n1"])
    assert shown(kit.settings) == {"orphan", "n2"}
    for table, rows in (("registration_gc_log", 0), ("intents", 0), ("node_records", 2)):
        assert kit.count(table) == rows


def end(kit: Kit, node_id: str) -> None:
    """A registration that ended long ago and whose removals were lost."""
    kit.sql(
        "UPDATE entities SET state = 'failed', updated_at = now() - interval '2 hours'"
        f" WHERE entity_id = '{node_id}' AND machine = 'registration' RETURNING 1"
    )
    kit.sql(
        "UPDATE node_records SET updated_at = now() - interval '2 hours'"
        f" WHERE node_id = '{node_id}' RETURNING 1"
    )
    handler = ConsulHandler(kit.settings, lambda: datetime.now(UTC) - 2 * HOUR)
    ((owner,),) = kit.sql(f"SELECT registration_id FROM node_records WHERE node_id = '{node_id}'")
    handler.set_status({node_id: owner}, CheckStatus.CRITICAL, threading.TIMEOUT_MAX)
    handler.close()


def test_a_dead_attempts_record_goes_and_may_be_written_again(kit: Kit) -> None:
    introduce(kit, "n1", "n2")
    turn(kit)
    end(kit, "n1")
    assert collect(kit).records_removed == ["n1"]
    assert kit.sql("SELECT node_id FROM node_records") == [("n2",)]
    assert shown(kit.settings) == {"n2"}
    undone = kit.sql("SELECT kind FROM effect_ledger WHERE status = 'undone' ORDER BY kind")
    assert undone == [("consul.register",), ("postgres.upsert_registration",)]


def test_a_young_dead_attempt_keeps_its_record(kit: Kit) -> None:
    introduce(kit, "n1")
    turn(kit)
    kit.sql("UPDATE entities SET state = 'failed' WHERE machine = 'registration' RETURNING 1")
    assert collect(kit).cleaned == []


def test_a_node_that_consul_forgot_is_registered_again_without_a_transition(kit: Kit) -> None:
    """Ruling 20: the effect is undone and asked for again; no machine moves."""
    introduce(kit, "n1", "n2")
    turn(kit)
    before = kit.sql("SELECT entity_id, machine, last_applied_sequence, state FROM entities")
    seen = set()
    for _ in range(2):
        forget(kit.settings, "n1")
        assert collect(kit).repaired == ["n1"]
        assert collect(kit).repaired == []  # it is on its way
        ((intent,),) = kit.sql("SELECT CAST(intent_id AS text) FROM intents")
        seen.add(intent)
        turn(kit)
        assert shown(kit.settings) == {"n1", "n2"}
    assert len(seen) == 2
    after = kit.sql("SELECT entity_id, machine, last_applied_sequence, state FROM entities")
    assert sorted(before) == sorted(after)
    assert kit.count("dead_letters") == 0
    assert collect(kit).repaired == []
    kit.audit()


def test_a_repair_that_a_departure_overtakes_is_cancelled(kit: Kit) -> None:
    introduce(kit, "n1")
    turn(kit)
    forget(kit.settings, "n1")
    assert collect(kit).repaired == ["n1"]
    kit.submit(said("n1", "commands.DeregisterNodeRequested"))
    turn(kit)
    turn(kit)
    assert kit.states("registration") == {"n1": "deregistered"}
    assert shown(kit.settings) == set()
    kit.audit()


def test_a_registration_in_flight_is_not_taken_for_an_orphan(kit: Kit) -> None:
    """It was in PostgreSQL before it was in Consul; however old its entry looks, it stays."""
    introduce(kit, "n1")
    fold(kit)
    ((owner,),) = kit.sql("SELECT registration_id FROM intents WHERE service = 'consul'")
    late = ConsulHandler(kit.settings, lambda: datetime.now(UTC) - 2 * HOUR)
    payload = {
        "node_id": "n1",
        "registration_id": owner,
        "service_id": "svc-n1",
        "service_name": "svc",
    }
    claimed = Claimed(
        *(uuid4(), "registration", 0, "n1", "registration", "consul.register", payload),
        *(owner, uuid4(), uuid4(), 1, 1, 1, None),
    )
    late.perform([claimed], threading.TIMEOUT_MAX, None)
    late.close()
    done = collect(kit)
    assert (done.cleaned, done.repaired) == ([], [])
    assert shown(kit.settings) == {"n1"}
    turn(kit)
    assert kit.states("registration") == {"n1": "registered"}


def test_a_removal_that_was_given_up_is_made_good_and_its_letter_closed(kit: Kit) -> None:
    written(kit.settings, 2 * HOUR, "n1")
    kit.sql(
        "INSERT INTO dead_letters (domain, message_id, entity_id, message_type, correlation_id,"
        " reason, error, envelope, projections, attempts, machine, kind, registration_id)"
        " VALUES ('registration', gen_random_uuid(), 'n1', 'x', gen_random_uuid(), 'gave up',"
        " 'Consul cannot be reached', '{}', '{}', 5, 'registration', 'consul.deregister', 'r0')"
        " RETURNING 1"
    )
    done = collect(kit)
    assert (done.consul_removed, done.letters_closed) == (["n1"], 1)
    assert kit.sql("SELECT closed_as FROM dead_letters") == [("garbage collected",)]


def test_a_node_to_be_looked_at_again_has_no_age_limit(kit: Kit) -> None:
    written(kit.settings, timedelta(0), "n1", "n2")
    kit.sql(
        "INSERT INTO consul_rechecks VALUES ('n1', now() - interval '1 s', 'a lease ran out'),"
        " ('n2', now() + interval '1 hour', 'a lease ran out') RETURNING 1"
    )
    assert collect(kit).consul_removed == ["n1"]
    assert shown(kit.settings) == {"n2"}
    assert kit.sql("SELECT node_id FROM consul_rechecks") == [("n2",)]


def test_many_orphans_go_in_batches(kit: Kit) -> None:
    names = [f"o{at:03}" for at in range(250)]
    written(kit.settings, 2 * HOUR, *names)
    told: list[int] = []
    done = collect(kit, told=told.append)
    assert done.cleaned == names
    assert told == [100, 100, 50]
    assert shown(kit.settings) == set()


def test_one_run_at_a_time(kit: Kit) -> None:
    written(kit.settings, 2 * HOUR, "orphan")
    with Session(kit.engine) as other, other.begin():
        assert garbage.alone(other)
        assert collect(kit).skipped == "another garbage collection is under way"
    results: list[Collected] = []
    kits = [next(kit_of(kit.settings)) for _ in range(4)]
    assert all(each.process.collector for each in kits)
    threads = [
        threading.Thread(target=lambda each=each: results.append(collect(each))) for each in kits
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [node for each in results for node in each.consul_removed] == ["orphan"]
    for each in kits:
        each.engine.dispose()


def test_a_beat_too_many_collects_nothing(kit: Kit) -> None:
    assert collect(kit, unless_since=timedelta(minutes=1)).skipped is None
    assert collect(kit, unless_since=timedelta(minutes=1)).skipped == "it ran a moment ago"


def test_the_brake_suspends_it(kit: Kit, rollcall: Rollcall) -> None:
    """Ruling 18."""
    written(kit.settings, 2 * HOUR, "orphan")
    kit.sql("UPDATE brake SET held_since = now() RETURNING 1")
    assert "the brake holds" in str(collect(kit).skipped)
    done = rollcall("gc", settings=kit.settings)
    assert (done.returncode, "the brake holds" in done.stderr) == (1, True)
    assert shown(kit.settings) == {"orphan"}


def test_while_consul_is_away_only_records_are_cleaned(
    kit: Kit, port: int, rollcall: Rollcall
) -> None:
    introduce(kit, "n1")
    turn(kit)
    end(kit, "n1")
    away = kit.settings.at(consul_url=SecretUrl(f"http://127.0.0.1:{port}"))
    done = rollcall("gc", "--json", settings=away)
    assert done.returncode == 3
    assert "Consul cannot be reached" in done.stderr
    assert kit.count("node_records") == 0
    kit.sql("INSERT INTO circuits (service, state) VALUES ('consul', 'OPEN') RETURNING 1")
    assert "circuit is open" in str(collect(kit).consul_trouble)
    assert shown(kit.settings) == {"n1"}


def test_it_stops_when_its_time_is_up(kit: Kit) -> None:
    written(kit.settings, 2 * HOUR, "orphan")
    held = kit.process.collector
    hurried = Collector(
        kit.engine, kit.process.machines, held._client, held._prefix, GcPolicy(seconds=0)
    )
    assert hurried.run(lambda _: None).more
    assert shown(kit.settings) == {"orphan"}
    assert collect(kit).consul_removed == ["orphan"]


def test_a_silent_node_whose_expiry_went_astray_is_sent_away(kit: Kit) -> None:
    introduce(kit, "n1", "n2")
    turn(kit)
    attempts = kit.sql("SELECT node_id, registration_id FROM node_records")
    for node_id, attempt in attempts:
        kit.submit(said(node_id, "commands.NodeRegistrationAcked", registration_id=attempt))
    turn(kit)
    assert set(kit.states("handshake").values()) == {"active"}
    kit.sql(
        "UPDATE heartbeats SET deadline = now() - interval '2 hours' WHERE node_id = 'n1'"
        " RETURNING 1"
    )
    assert collect(kit, dry_run=True).sent_away == ["n1"]
    assert kit.count("inbox") == 0
    assert collect(kit).sent_away == ["n1"]
    turn(kit)
    assert kit.states("handshake") == {"n1": "departed", "n2": "active"}
    assert shown(kit.settings) == {"n2"}
    forget(kit.settings, "n2")
    assert collect(kit).repaired == ["n2"]
    ((active,),) = kit.sql("SELECT payload->>'active' FROM intents")
    assert active == "true"  # it answered: it is shown as alive at once
    turn(kit)
    kit.audit()


def test_an_agents_services_are_left_alone(kit: Kit, rollcall: Rollcall) -> None:
    written(kit.settings, 2 * HOUR, "orphan")
    introduce(kit, "n1")
    turn(kit)
    end(kit, "n1")
    done = rollcall("gc", settings=kit.settings.at(consul_mode=ConsulMode.AGENT))
    assert done.returncode == 0, done.stderr
    assert "Consul was left alone" in done.stderr
    assert "removed from PostgreSQL: 1 (n1)" in done.stdout
    assert shown(kit.settings) == {"orphan", "n1"}


def test_the_command_tells_what_goes(kit: Kit, rollcall: Rollcall) -> None:
    written(kit.settings, 2 * HOUR, "orphan")
    dry = rollcall("gc", "--dry-run", settings=kit.settings)
    assert (dry.returncode, shown(kit.settings)) == (0, {"orphan"})
    assert "would be removed from Consul: 1 (orphan)" in dry.stdout
    done = rollcall("gc", settings=kit.settings)
    assert done.returncode == 0, done.stderr
    assert "removed from Consul: 1 (orphan)" in done.stdout
    assert shown(kit.settings) == set()
