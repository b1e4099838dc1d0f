"""The ten recovery scenarios of the registration machine, on real servers and processes."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollcall.devstack import throwaway_home
from tasks.settings import Settings
from tests.polling import eventually
from tests.roll_call_kit import EDITS, OwnConsul, RollCall, pulled, roll_call, said

# Two rules more, so that a payload which the decoder takes may still fail on its way.
_EDITS = {
    "registration": EDITS["registration"]
    | {
        '- "deployment_id != null"': '- "deployment_id != network_id"',
        "timeout_ms: 10000": "timeout_ms: 1500",
    },
}
BROKEN = """
state_machine_name: broken
initial_state: idle
states:
  - { state_name: idle, state_type: initial }
  - { state_name: done, state_type: terminal }
transitions:
  - transition_name: finish
    from_state: idle
    to_state: done
    trigger: FINISH
    conditions: [{ condition_name: broken, expression: "retry_count<3" }]
"""


@pytest.fixture(scope="module")
def own_consul(consul: Path) -> Iterator[OwnConsul]:
    with throwaway_home("trial-consul") as home, home.owned():
        made = OwnConsul(consul, home).start()
        yield made
        made.stop()


@pytest.fixture(scope="module")
def calls(servers: Settings, template: str, own_consul: OwnConsul) -> Iterator[RollCall]:
    ours = servers.at(consul_url=own_consul.url, consul_timeout_ms=2500)
    with roll_call(ours, template, edits=_EDITS) as made:
        yield made
        made.verify()


@pytest.fixture
def paused(own_consul: OwnConsul) -> Iterator[OwnConsul]:
    """A Consul that takes connections and answers nobody."""
    own_consul.send(signal.SIGSTOP)
    yield own_consul
    own_consul.send(signal.SIGCONT)


def fail_in_postgres(calls: RollCall, node_id: str) -> None:
    """The database refuses this one node's record."""
    calls.kit.sql(f"ALTER TABLE node_records ADD CONSTRAINT refuses CHECK (node_id <> '{node_id}')")


def test_scenario_1_postgres_fails_first(calls: RollCall) -> None:
    fail_in_postgres(calls, "s1")
    calls.introduce("s1", "s1-neighbour")
    calls.until("failed", "s1")
    calls.until("registered", "s1-neighbour")
    assert "trial-s1" not in calls.in_consul()
    assert "postgres_error: " in calls.command("node", "s1").stdout
    calls.kit.sql("ALTER TABLE node_records DROP CONSTRAINT refuses")
    done = calls.command("node", "retry", "s1")
    assert done.returncode == 0, done.stderr
    calls.until("registered", "s1")
    assert calls.trail("s1")[2:6] == [
        "registering_postgres",
        "failed",
        "validating",
        "registering_postgres",
    ]


def test_scenario_2_consul_fails_after_postgres(calls: RollCall, paused: OwnConsul) -> None:
    calls.introduce("s2")
    eventually(lambda: "partial_registered" in calls.trail("s2"), "Consul is given up", 20)
    paused.send(signal.SIGCONT)
    calls.until("registered", "s2")
    assert calls.trail("s2").count("registering_postgres") == 1, "only Consul is tried again"
    assert "trial-s2" in calls.in_consul()


def test_scenario_3_graceful_shutdown(calls: RollCall) -> None:
    calls.introduce("s3")
    calls.until("registered", "s3")
    calls.leave("s3")
    calls.until("deregistered", "s3")
    assert calls.trail("s3")[-3:] == ["registered", "deregistering", "deregistered"]
    assert "trial-s3" not in calls.in_consul()
    assert calls.kit.sql("SELECT 1 FROM node_records WHERE node_id = 's3'") == []


def test_scenario_4_validation_failure(calls: RollCall) -> None:
    calls.introduce("s4", network_id="d1")
    calls.until("failed", "s4")
    assert calls.trail("s4") == ["unregistered", "validating", "failed"]
    assert "deployment_id != network_id" in calls.command("node", "s4").stdout
    calls.kit.submit(pulled("s4", "RETRY", network_id="net"))
    calls.until("registered", "s4")


def test_scenario_5_retry_exhaustion_in_the_partial_state(
    calls: RollCall, paused: OwnConsul
) -> None:
    calls.introduce("s5")
    calls.until("failed", "s5", seconds=40)
    assert calls.triggers("s5").count("RETRY") == 3
    assert calls.triggers("s5")[-1] == "RETRY_EXHAUSTED"
    blocked = calls.command("node", "retry", "s5")
    assert (blocked.returncode, "ABANDON is open" in blocked.stderr) == (1, True)
    assert calls.command("node", "abandon", "s5").returncode == 0
    calls.until("deregistered", "s5")
    assert calls.kit.sql("SELECT 1 FROM node_records WHERE node_id = 's5'") == []


@pytest.mark.parametrize(("word", "state"), [("retry", "registered"), ("abandon", "deregistered")])
def test_scenario_6_fatal_error_from_any_state(calls: RollCall, word: str, state: str) -> None:
    node_id = f"s6-{word}"
    calls.introduce(node_id)
    calls.until("registered", node_id)
    fatal = {"machine": "registration", "trigger": "FATAL_ERROR", "data": {}}
    calls.kit.feed(said(node_id, "events.TriggerPulled", fatal))
    calls.until("failed", node_id)
    eventually(lambda: f"trial-{node_id}" not in calls.in_consul(), "it is compensated")
    done = calls.command("node", word, node_id)
    assert done.returncode == 0, done.stderr
    calls.until(state, node_id)


def test_scenario_7_timeout_of_consul(calls: RollCall, paused: OwnConsul) -> None:
    calls.introduce("s7")
    eventually(lambda: "partial_registered" in calls.trail("s7"), "the state's time is over", 20)
    rows = calls.kit.sql(
        "SELECT data->>'consul_error' FROM event_log WHERE entity_id = 's7'"
        " AND trigger = 'CONSUL_FAILED' ORDER BY sequence LIMIT 1"
    )
    assert rows == [("timeout",)]
    paused.send(signal.SIGCONT)
    calls.until("registered", "s7")


def test_scenario_9_a_guard_cannot_be_evaluated_at_run_time(calls: RollCall) -> None:
    fail_in_postgres(calls, "s9")
    calls.introduce("s9")
    calls.until("failed", "s9")
    calls.kit.sql("ALTER TABLE node_records DROP CONSTRAINT refuses")
    where = "WHERE entity_id = 's9' AND machine = 'registration'"
    ((kept,),) = calls.kit.sql(f"SELECT CAST(context AS text) FROM entities {where}")
    calls.kit.sql(
        "UPDATE entities SET context = CAST(regexp_replace(CAST(context AS text),"
        f""" '"retry_count": ?0', '"retry_count":"two"') AS json) {where}"""
    )
    bad = pulled("s9", "RETRY")
    calls.kit.submit(bad)
    eventually(lambda: bad.message_id in calls.kit.results(), "it is answered")
    assert calls.kit.results()[bad.message_id] == "GUARD_BLOCKED"
    assert calls.states(["s9"]) == {"failed"}
    calls.kit.sql(f"UPDATE entities SET context = '{kept}' {where}")
    calls.kit.submit(pulled("s9", "RETRY"))
    calls.until("registered", "s9")


def test_scenario_10_a_contract_with_a_broken_guard_does_not_load(
    calls: RollCall, tmp_path: Path
) -> None:
    (tmp_path / "broken.yaml").write_text(BROKEN)
    refused = calls.command("worker", ROLLCALL_CONTRACTS_DIR=str(tmp_path))
    assert refused.returncode not in (0, None)
    assert "GUARD_SYNTAX_ERROR" in refused.stdout + refused.stderr
