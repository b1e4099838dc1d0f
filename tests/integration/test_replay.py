"""The log, folded again, gives every projection byte for byte."""

from collections.abc import Iterator

import pytest
from psycopg2.errors import RestrictViolation
from sqlalchemy import text

from fsm.machines import Machines
from tasks.replay import Mismatch, rebuild, verify
from tasks.settings import Settings
from tests.runtime_kit import Kit, kit_of, press

PRESSES = ("PRESS", "RELEASE", "PRESS", "PRESS", "SMASH")


@pytest.fixture
def kit(settings: Settings) -> Iterator[Kit]:
    for kit in kit_of(settings):
        kit.submit(*[press(f"l{at}", trigger) for at in range(30) for trigger in PRESSES])
        kit.drain()
        yield kit


def machines(kit: Kit) -> Machines:
    return kit.process._own().machines


def mismatches(kit: Kit) -> list[Mismatch]:
    return verify(kit.engine, machines(kit)).mismatches


def tamper(kit: Kit, statement: str) -> None:
    """Do what only a superuser can, and only by switching the triggers off."""
    with kit.engine.begin() as connection:
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        connection.execute(text(statement))


def test_an_honest_log_is_clean(kit: Kit) -> None:
    """Promise 5."""
    told: list[int] = []
    seen = verify(kit.engine, machines(kit), told=told.append)
    assert seen.clean
    assert (seen.events, seen.projections, sum(told)) == (150, 30, 150)


def test_an_entity_longer_than_a_page_is_folded_over_pages(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.replay._PAGE", 7)
    assert (verify(kit.engine, machines(kit)).events, mismatches(kit)) == (150, [])
    monkeypatch.setattr("tasks.replay._PAGE", 5)  # every entity ends with a page
    assert (verify(kit.engine, machines(kit)).projections, mismatches(kit)) == (30, [])


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ("state = 'dark'", "the row differs"),
        ("context = '{\"x\": 1}'", "the row differs"),
        ("last_trigger = 'PRESS'", "the row differs"),
        ("digest = 'x'", "digest"),
        ("last_applied_sequence = 4", "the row is at 4, the log ends at 5"),
    ],
)
def test_a_row_that_was_tampered_with_is_named_and_rebuilt(
    kit: Kit, change: str, what: str
) -> None:
    kit.sql(f"UPDATE entities SET {change} WHERE entity_id = 'l7'")
    ((entity_id, machine, sequence, told),) = mismatches(kit)
    assert (entity_id, machine, sequence) == ("l7", "lamp", 5)
    assert what in told
    assert rebuild(kit.engine, machines(kit), "lamp").changed == 1
    assert mismatches(kit) == []
    assert rebuild(kit.engine, machines(kit), "lamp").changed == 0


def test_a_row_that_is_gone_is_named_and_rebuilt(kit: Kit) -> None:
    kit.sql("DELETE FROM entities WHERE entity_id IN ('l7', 'l8')")
    assert [each.entity_id for each in mismatches(kit)] == ["l7", "l8"]
    assert rebuild(kit.engine, machines(kit), "lamp").changed == 2
    assert mismatches(kit) == []
    assert len(kit.states()) == 30


def test_a_row_the_log_does_not_know_is_named(kit: Kit) -> None:
    tamper(kit, "DELETE FROM event_log WHERE entity_id = 'l7'")
    ((entity_id, _, _, told),) = mismatches(kit)
    assert (entity_id, told) == ("l7", "there is a row, and the log does not know it")


@pytest.mark.parametrize(
    ("statement", "sequence", "what"),
    [
        ("UPDATE event_log SET trigger = 'SMASH' WHERE entity_id = 'l7' AND sequence = 3", 3,
         "other bytes"),
        ("UPDATE event_log SET digest = 'x' WHERE entity_id = 'l7' AND sequence = 2", 2,
         "other bytes"),
        ("DELETE FROM event_log WHERE entity_id = 'l7' AND sequence = 3", 4, "goes from 2 to 4"),
        ("UPDATE event_log SET contract_hash = 'none' WHERE entity_id = 'l7' AND sequence = 1", 1,
         "no contract with hash none"),
        ("UPDATE event_log SET trigger = 'DANCE' WHERE entity_id = 'l7' AND sequence = 5", 5,
         "DANCE changes nothing"),
    ],
)  # fmt: skip
def test_a_log_that_was_tampered_with_is_named_by_entity_and_sequence(
    kit: Kit, statement: str, sequence: int, what: str
) -> None:
    tamper(kit, statement)
    ((entity_id, _, found, told),) = mismatches(kit)
    assert (entity_id, found) == ("l7", sequence)
    assert what in told


def test_a_rebuild_goes_on_while_an_entity_moves(kit: Kit) -> None:
    kit.sql("UPDATE entities SET context = '{}', state = 'dark' WHERE entity_id = 'l7'")
    kit.submit(*[press(f"new{at}") for at in range(40)])

    def meanwhile(_: int) -> None:
        kit.drain()

    seen = rebuild(kit.engine, machines(kit), "lamp", told=meanwhile)
    assert seen.changed == 1
    assert mismatches(kit) == []
    assert len(kit.states()) == 70


@pytest.mark.parametrize("table", ["event_log", "event_log_default", "the month"])
@pytest.mark.parametrize(
    "statement", ["UPDATE {} SET trigger = 'x'", "DELETE FROM {}", "TRUNCATE {}"]
)
def test_the_database_refuses_to_change_the_log(kit: Kit, table: str, statement: str) -> None:
    """Promise 5: append-only, on the log itself and on each of its partitions."""
    ((month,),) = kit.sql("SELECT 'event_log_' || to_char(now() AT TIME ZONE 'UTC', 'YYYYMM')")
    if table == "event_log_default":
        kit.sql(
            'INSERT INTO event_log SELECT (jsonb_populate_record(e, \'{"applied_at":'
            ' "2001-01-01T00:00:00Z"}\')).* FROM event_log AS e LIMIT 1'
        )
    before = kit.count("event_log")
    with pytest.raises(RestrictViolation, match="append-only"):
        kit.sql(statement.format(month if table == "the month" else table))
    assert kit.count("event_log") == before
