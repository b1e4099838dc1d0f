"""`rollcall dlq` as an operator runs it."""

import json
from collections.abc import Iterator

import pytest
from sqlalchemy.orm import Session

from tasks.settings import Settings
from tasks.store.dead_letters import DeadLetter, put
from tests.conftest import Rollcall
from tests.integration.test_dead_letters import given_up, keep
from tests.runtime_kit import MACHINES, Kit, kit_of, press


@pytest.fixture
def lamps(settings: Settings) -> Settings:
    return settings.at(contracts_dir=MACHINES)


@pytest.fixture
def kit(lamps: Settings) -> Iterator[Kit]:
    for kit in kit_of(lamps):
        said = press("l1", data={"token": "s3cret-token", "colour": "red"})
        with Session(kit.engine) as session, session.begin():
            put(session, [DeadLetter("lamp", said, {}, "handler failed", "KeyError: 'x'", 0)])
        keep(kit, given_up("n1", payload={"service_id": "s", "password": "hunter22"}))
        keep(kit, given_up("n2", kind="consul.deregister"))
        yield kit


def test_letters_are_listed_by_filter(rollcall: Rollcall, lamps: Settings, kit: Kit) -> None:
    told = json.loads(rollcall("dlq", "list", "--json", settings=lamps).stdout)
    assert (told["total"], [each["id"] for each in told["letters"]]) == (3, [3, 2, 1])
    assert told["letters"][2]["kind"] == "message"
    for words, number in (
        (("--entity", "n1"), 1),
        (("--machine", "registration"), 2),
        (("--machine", "lamp"), 1),
        (("--kind", "consul.deregister"), 1),
        (("--reason", "handler"), 1),
        (("--since", "1h"), 3),
        (("--since", "2100-01-01"), 0),
        (("--closed",), 0),
    ):
        done = rollcall("dlq", "list", *words, "--json", settings=lamps)
        assert json.loads(done.stdout)["total"] == number, words
    shown = rollcall("dlq", "list", "--limit", "1", settings=lamps)
    assert "3 open dead letters" in shown.stdout
    assert rollcall("dlq", "list", "--since", "often", settings=lamps).returncode == 2


def test_a_letter_is_shown_whole_without_secrets(
    rollcall: Rollcall, lamps: Settings, kit: Kit
) -> None:
    """Promise 12."""
    told = json.loads(rollcall("dlq", "show", "2", "--json", settings=lamps).stdout)
    assert told["envelope"]["payload"] == {"service_id": "s", "password": "[redacted]"}
    assert (told["history"][0]["attempt"], told["attempts"]) == (5, 5)
    assert told["replaying"] == {"action": "refused", "why": "n1 has no registration"}
    for number in ("1", "2"):
        shown = rollcall("dlq", "show", number, settings=lamps)
        assert shown.returncode == 0, shown.stderr
        assert "correlation_id: " in shown.stdout
        assert not {"hunter22", "s3cret-token"} & {*shown.stdout.replace('"', " ").split()}
    unknown = rollcall("dlq", "show", "99", settings=lamps)
    assert (unknown.returncode, unknown.stderr) == (1, "rollcall: there is no dead letter 99\n")


def test_a_letter_is_replayed_once(rollcall: Rollcall, lamps: Settings, kit: Kit) -> None:
    done = rollcall("dlq", "replay", "1", "3", "--json", settings=lamps)
    assert (done.returncode, json.loads(done.stdout)) == (0, {"replayed": 2, "left": []})
    assert (kit.count("inbox"), kit.count("intents")) == (1, 1)
    again = rollcall("dlq", "replay", "1", "2", "77", settings=lamps)
    assert again.returncode == 1
    assert "1 closed: it is closed: replayed" in again.stdout
    assert "2 refused: n1 has no registration" in again.stdout
    assert "77 unknown: there is no such letter" in again.stdout
    assert "0 replayed, 3 left as they are" in again.stdout
    kit.drain()
    assert kit.states() == {"l1": "lit"}


def test_many_are_worked_on_only_when_that_was_said(
    rollcall: Rollcall, lamps: Settings, kit: Kit
) -> None:
    for words in ((), ("1", "--all"), ("1", "--entity", "n1"), ("--entity", "n1")):
        assert rollcall("dlq", "replay", *words, settings=lamps).returncode == 2, words
    asked = rollcall("dlq", "discard", "--all", "--reason", "old", settings=lamps)
    assert (asked.returncode, "say --yes" in asked.stderr) == (2, True)
    assert "3 dead letters" in asked.stderr
    assert rollcall("dlq", "discard", "--all", "--yes", settings=lamps).returncode == 2
    filtered = ("--all", "--machine", "registration", "--reason", "password=hunter22", "--yes")
    done = rollcall("dlq", "discard", *filtered, "--json", settings=lamps)
    assert json.loads(done.stdout) == {"discarded": 2, "left": []}
    closed = rollcall("dlq", "list", "--closed", "--json", settings=lamps).stdout
    assert json.loads(closed)["total"] == 2
    assert "hunter22" not in str(kit.sql("SELECT closed_as FROM dead_letters"))
    done = rollcall("dlq", "replay", "--all", "--yes", settings=lamps)
    assert (done.returncode, "1 replayed, 0 left" in done.stdout) == (0, True)
