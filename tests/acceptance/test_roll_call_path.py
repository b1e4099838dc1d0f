"""The roll call's ordinary way, through real workers, a real beat and a real Consul."""

import json
from collections.abc import Iterator

import pytest

from tasks.settings import Settings
from tests.polling import eventually
from tests.roll_call_kit import RollCall, offer, roll_call, said


@pytest.fixture(scope="module")
def calls(servers: Settings, template: str) -> Iterator[RollCall]:
    with roll_call(servers, template, allowed_environments=frozenset({"prod"})) as made:
        yield made
        made.verify()


def test_a_node_becomes_active_in_both_systems_with_its_chain_unbroken(calls: RollCall) -> None:
    """Promise 11 with the whole way: introspection, registered, awaiting, answered, active."""
    (first,) = calls.introduce("happy")
    calls.until("awaiting_ack", "happy", machine="handshake")
    assert calls.kit.sql(
        "SELECT status, environment, generation FROM node_registrations WHERE node_id = 'happy'"
    ) == [("registered", "prod", 1)]
    assert "trial-happy" in calls.in_consul()
    assert calls.check("happy") == "critical"
    (ack,) = calls.acknowledge("happy")
    calls.until("active", "happy", machine="handshake")
    assert calls.trail("happy") == [
        "unregistered",
        "validating",
        "registering_postgres",
        "postgres_registered",
        "registering_consul",
        "registered",
    ]
    rows = calls.kit.sql(
        "SELECT CAST(message_id AS text), CAST(causation_id AS text), CAST(correlation_id AS text)"
        " FROM event_log WHERE entity_id = 'happy'"
    )
    known = {str(first.message_id), str(ack.message_id)} | {row[0] for row in rows}
    assert [row for row in rows if row[1] not in known] == []
    assert {row[2] for row in rows} == {str(first.correlation_id)}
    eventually(lambda: calls.check("happy") == "passing", "the check is passing")
    eventually(calls.quiet, "nothing waits")
    shown = calls.command("node", "happy", "--json")
    assert shown.returncode == 0, shown.stderr
    node = json.loads(shown.stdout)
    assert {each["machine"]: each["state"] for each in node["machines"]} == {
        "handshake": "active",
        "registration": "registered",
    }
    assert (node["pending"], node["dead_letters"], node["errors"]) == ([], [], {})


def test_every_message_delivered_again_changes_nothing(calls: RollCall) -> None:
    """Promise 3: no duplicate activation, whoever delivers what how often."""
    nodes = [f"twice-{at}" for at in range(20)]
    sent = calls.introduce(*nodes)
    calls.until("awaiting_ack", *nodes, machine="handshake")
    sent += calls.acknowledge(*nodes)
    calls.until("active", *nodes, machine="handshake")
    eventually(calls.quiet, "nothing waits")
    before = calls.kit.count("event_log")
    calls.kit.submit(*sent, *sent)
    eventually(calls.quiet, "nothing waits")
    assert calls.kit.count("event_log") == before
    assert calls.triggers("twice-7", "handshake").count("BECAME_ACTIVE") == 1
    assert len(calls.in_consul() & {f"trial-{each}" for each in nodes}) == 20


def test_a_node_that_leaves_while_it_registers_is_out_of_both_systems(calls: RollCall) -> None:
    """Promise 10 with ruling 27."""
    nodes = [f"leaver-{at}" for at in range(40)]
    for each in nodes:
        calls.introduce(each)
        calls.leave(each)
    calls.until("deregistered", *nodes)
    calls.until("departed", *nodes, machine="handshake")
    eventually(calls.quiet, "nothing waits")
    assert calls.in_consul() & {f"trial-{each}" for each in nodes} == set()
    assert calls.kit.sql("SELECT node_id FROM node_records WHERE node_id LIKE 'leaver-%'") == []


def test_an_unknown_environment_is_rejected_and_told(calls: RollCall) -> None:
    calls.introduce("stranger", environment="moon")
    calls.until("rejected", "stranger", machine="handshake")
    shown = calls.command("node", "stranger")
    assert "rejection_reason: environment: is not on the allow-list" in shown.stdout
    assert "trial-stranger" not in calls.in_consul()
    calls.introduce("stranger")
    calls.until("registered", "stranger")


@pytest.mark.parametrize(
    "changes",
    [
        {"port": 99999},
        {"consul_tags": ["t"] * 10_000},
        {"postgres_record": {"x": "y" * 5_000_000}},
        {"consul_service_name": ""},
    ],
    ids=["port", "tags", "record", "name"],
)
def test_what_no_node_may_say_never_reaches_a_machine(
    calls: RollCall, changes: dict[str, object]
) -> None:
    """Bad input that came past the decoder is a rejection which `rollcall node` tells."""
    node_id = f"bad-{next(iter(changes)).replace('_', '-')}"
    calls.kit.feed(said(node_id, "events.NodeIntrospected", offer(node_id, **changes)))
    calls.until("rejected", node_id, machine="handshake")
    shown = calls.command("node", node_id)
    (told,) = [each for each in shown.stdout.splitlines() if each.startswith("rejection_reason: ")]
    assert next(iter(changes)) in told
    assert calls.kit.states("registration").get(node_id) is None
