"""`rollcall nodes` and `rollcall node …` as an operator runs them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from models.errors import InfraUnavailableError
from tasks.settings import Settings
from tests.conftest import Rollcall, StartRole
from tests.integration.test_roll_call_generations import answer, introspect, pass_deadlines
from tests.runtime_kit import Kit, kit_of


@pytest.fixture
def kit(settings: Settings) -> Iterator[Kit]:
    for kit in kit_of(settings):
        introspect(kit, "n1", "n2")
        yield kit


def test_nodes_are_listed_and_shown(rollcall: Rollcall, settings: Settings, kit: Kit) -> None:
    done = rollcall("nodes", "--state", "registering_postgres", "--json", settings=settings)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [(each["node_id"], each["generation"]) for each in told] == [("n1", 1), ("n2", 1)]
    assert "n1" in rollcall("nodes", settings=settings).stdout
    for words in (("node", "n1"), ("node", "show", "n1")):
        shown = rollcall(*words, "--json", settings=settings)
        assert shown.returncode == 0, shown.stderr
        node = json.loads(shown.stdout)
        assert [each["state"] for each in node["machines"]] == ["accepted", "registering_postgres"]
        assert [each["kind"] for each in node["pending"]] == ["postgres.upsert_registration"]
    assert "registration: registering_postgres" in rollcall("node", "n1", settings=settings).stdout
    assert rollcall("node", "nobody", settings=settings).returncode == 1


def test_a_failure_is_shown(rollcall: Rollcall, settings: Settings, kit: Kit) -> None:
    answer(kit, "PostgresUpsertFailed", postgres_applied=False, postgres_error="disk full")
    assert "postgres_error: disk full" in rollcall("node", "n1", settings=settings).stdout


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ({"port": 99999}, "payload.port"),
        ({"consul_tags": ["t"] * 10_000}, "payload.consul_tags"),
        ({"node_id": "a/b"}, "payload.node_id"),
        ({"node_id": "a\nc"}, "node_id"),
        ({"postgres_record": {"x": "y" * 5_000_000}}, "payload"),
    ],
    ids=["port", "tags", "slash", "newline", "record"],
)
def test_a_wrong_field_is_named(
    rollcall: Rollcall, settings: Settings, tmp_path: Path, said: dict[str, Any], named: str
) -> None:
    node = {
        "node_id": "n9",
        "deployment_id": "d",
        "environment": "prod",
        "network_id": "w",
        "consul_service_id": "s",
        "consul_service_name": "s",
        "postgres_record": {},
    }
    (tmp_path / "node.json").write_text(json.dumps(node | said))
    done = rollcall("node", "register", str(tmp_path / "node.json"), settings=settings)
    assert done.returncode == 2
    assert named in done.stderr


def test_an_exhausted_retry_is_refused_and_abandon_is_open(
    rollcall: Rollcall, settings: Settings, kit: Kit, start_role: StartRole
) -> None:
    """Ruling 28."""
    answer(kit, "PostgresUpsertSucceeded", postgres_applied=True)
    for _ in range(4):
        answer(kit, "ConsulRegisterFailed", consul_applied=False, consul_error="no")
        pass_deadlines(kit, "registration")
    assert kit.states("registration")["n1"] == "failed"

    def answers() -> None:
        if rollcall("health", "worker", settings=settings).returncode:
            raise InfraUnavailableError("no answer yet", "wait")

    start_role("worker", "worker", probe=answers)
    blocked = rollcall("node", "retry", "n1", settings=settings)
    assert blocked.returncode == 1
    assert "GUARD_BLOCKED" in blocked.stderr
    assert "ABANDON is open" in blocked.stderr
    done = rollcall("node", "abandon", "n1", settings=settings)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "done"), done.stderr
    assert (kit.states("registration")["n1"], kit.states("handshake")["n1"]) == (
        "deregistered",
        "departed",
    )


@pytest.mark.parametrize("command", ["ack", "retry", "retry-postgres", "abandon"])
def test_an_unknown_node_is_refused(
    rollcall: Rollcall, settings: Settings, kit: Kit, command: str
) -> None:
    done = rollcall("node", command, "nobody", settings=settings)
    assert done.returncode == 1
    assert "nobody: refused: it " in done.stderr


@pytest.mark.parametrize("command", ["ack", "deregister", "retry", "retry-postgres", "abandon"])
def test_who_does_not_wait_is_told_what_was_stored(
    rollcall: Rollcall, settings: Settings, kit: Kit, command: str
) -> None:
    done = rollcall("node", command, "n1", "--no-wait", settings=settings)
    assert done.returncode == 0, done.stderr
    word, message_id = done.stdout.split()
    assert word == "submitted"
    assert kit.sql("SELECT entity_id, CAST(message_id AS text) FROM inbox") == [("n1", message_id)]
