"""`rollcall events` and `rollcall replay` as an operator runs them."""

import json
from collections.abc import Iterator

import pytest

from tasks.settings import Settings
from tests.conftest import Rollcall, sql
from tests.runtime_kit import MACHINES, Kit, kit_of, press


@pytest.fixture
def lamps(settings: Settings) -> Settings:
    return settings.at(contracts_dir=MACHINES)


@pytest.fixture
def kit(lamps: Settings) -> Iterator[Kit]:
    for kit in kit_of(lamps):
        kit.submit(press("l1"), press("l1", "RELEASE"), press("l1"), press("l2"))
        kit.drain()
        yield kit


def test_an_entity_is_told_with_what_waits_for_it(
    rollcall: Rollcall, lamps: Settings, kit: Kit
) -> None:
    late = press("l1", "SMASH")
    kit.submit(late)
    done = rollcall("events", "l1", "--json", settings=lamps)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [(each["sequence"], each["trigger"]) for each in told["events"]] == [
        (1, "PRESS"),
        (2, "RELEASE"),
        (3, "PRESS"),
    ]
    assert told["events"][0]["path"].endswith("lit")
    assert all(each["causation_id"] and each["correlation_id"] for each in told["events"])
    (lamp,) = told["machines"]
    assert (lamp["state"], lamp["sequence"], [*lamp["deadlines"]]) == ("lit", 3, ["burn"])
    assert [each["message_id"] for each in told["waiting"]] == [str(late.message_id)]
    shown = rollcall("events", "l1", settings=lamps).stdout
    assert "lamp: lit at 3, burn at" in shown
    assert str(late.message_id) in shown


def test_an_unknown_entity_is_one_line_and_exit_code_1(
    rollcall: Rollcall, lamps: Settings, kit: Kit
) -> None:
    for words in (("nobody",), ("l1", "--machine", "egg")):
        done = rollcall("events", *words, settings=lamps)
        assert done.returncode == 1
        assert done.stderr.startswith("rollcall: nothing is known of")
        assert done.stdout == ""


def test_verify_names_what_was_tampered_with_and_rebuild_mends_it(
    rollcall: Rollcall, lamps: Settings, kit: Kit
) -> None:
    clean = rollcall("replay", "--verify", "--json", settings=lamps)
    assert clean.returncode == 0, clean.stderr
    assert clean.stderr == ""
    assert json.loads(clean.stdout)["events"] == 4
    kit.sql("""UPDATE entities SET context = '{"a":1}' WHERE entity_id = 'l1'""")
    found = rollcall("replay", "--verify", settings=lamps)
    assert found.returncode == 1
    assert "l1 lamp 3: the row differs from what the log folds to" in found.stdout
    assert rollcall("replay", "--verify", "--machine", "egg", settings=lamps).returncode == 0
    assert rollcall("replay", "--rebuild", "lamp", settings=lamps).returncode == 1
    assert rollcall("replay", "--verify", settings=lamps).returncode == 1
    mended = rollcall("replay", "--rebuild", "lamp", "--yes", "--json", settings=lamps)
    assert json.loads(mended.stdout)["changed"] == 1
    assert rollcall("replay", "--verify", settings=lamps).returncode == 0


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((), "--verify or --rebuild"),
        (("--verify", "--rebuild", "lamp"), "--verify or --rebuild"),
        (("--verify", "--machine", "lump"), "lump"),
        (("--rebuild", "lump", "--yes"), "lump"),
    ],
)
def test_a_replay_of_nothing_is_refused(
    rollcall: Rollcall, lamps: Settings, words: tuple[str, ...], named: str
) -> None:
    done = rollcall("replay", *words, settings=lamps)
    assert done.returncode == 2
    assert named in done.stderr


def test_the_months_of_the_log_are_listed_and_nothing_is_detached_unasked(
    rollcall: Rollcall, settings: Settings
) -> None:
    listed = json.loads(rollcall("log", "partitions", "--json", settings=settings).stdout)
    assert len(listed) == 3
    assert "event_log_" in rollcall("log", "partitions", settings=settings).stdout
    kept = rollcall("log", "detach", settings=settings)
    assert (kept.returncode, "everything is kept" in kept.stderr) == (2, True)
    nothing = rollcall("log", "detach", "--older-than", "1", settings=settings)
    assert (nothing.returncode, nothing.stdout) == (0, "to be detached: nothing\n")


def test_a_month_is_detached_when_asked_and_confirmed(
    rollcall: Rollcall, settings: Settings
) -> None:
    sql(
        settings.database_url,
        "SELECT event_log_add_partition('event_log_200101',"
        " 'FOR VALUES FROM (''2001-01-01 00:00+00'') TO (''2001-02-01 00:00+00'')')",
    )
    policy = settings.at(log_retention_months=6)
    dry = rollcall("log", "detach", "--dry-run", "--json", settings=policy)
    assert json.loads(dry.stdout) == {"due": ["event_log_200101"], "detached": []}
    unconfirmed = rollcall("log", "detach", settings=policy)
    assert unconfirmed.returncode == 1
    assert len(json.loads(rollcall("log", "partitions", "--json", settings=settings).stdout)) == 4
    done = rollcall("log", "detach", "--yes", settings=policy)
    assert done.stdout == "event_log_200101 is off: 0 events of 0 entities\n"
    assert sql(settings.database_url, "SELECT count(*) FROM event_log_200101") == [(0,)]


def test_snapshots_are_taken_by_command(rollcall: Rollcall, settings: Settings) -> None:
    taken = rollcall("snapshots", "take", "--json", settings=settings)
    assert json.loads(taken.stdout) == {"taken": 0, "passed_over": 0}
    unknown = rollcall("snapshots", "take", "--machine", "nope", settings=settings)
    assert (unknown.returncode, "there is no machine 'nope'" in unknown.stderr) == (2, True)
