"""Snapshots on a real database: the bytes of the projections, and nothing taken that is wrong."""

from collections.abc import Iterator

import pytest

from tasks.replay import verify
from tasks.settings import Settings
from tasks.snapshots import take_snapshots
from tests.runtime_kit import Kit, kit_of, press

DIFFERS = """
    SELECT s.entity_id FROM snapshots AS s
      JOIN event_log AS l USING (entity_id, machine, sequence)
     WHERE sha256(convert_to(CAST(s.projection AS text), 'UTF8')) <> l.digest
        OR s.digest <> l.digest
"""
NAMES = ["l1", 'a "quoted" \\ lamp', "Lampe für Ä / 灯", "del"]


@pytest.fixture
def kit(settings: Settings) -> Iterator[Kit]:
    for kit in kit_of(settings):
        kit.submit(*[press(name) for name in NAMES])
        kit.drain()
        yield kit


def test_a_snapshot_has_the_bytes_that_were_logged(kit: Kit) -> None:
    assert take_snapshots(kit.engine, page=2) == (4, 0)
    assert kit.sql("SELECT count(*) FROM snapshots JOIN event_log USING (sequence)") == [(16,)]
    assert kit.sql(DIFFERS) == []
    kit.submit(press("l1", "RELEASE"))
    kit.drain()
    assert take_snapshots(kit.engine) == (4, 0)
    assert kit.sql("SELECT sequence FROM snapshots WHERE entity_id = 'l1'") == [(2,)]
    assert kit.sql(DIFFERS) == []
    assert kit.count("event_log") == 5


def test_one_machine_only(kit: Kit) -> None:
    assert take_snapshots(kit.engine, "egg") == (0, 0)
    assert take_snapshots(kit.engine, "lamp") == (4, 0)


def test_a_row_that_was_tampered_with_is_passed_over(kit: Kit) -> None:
    kit.sql("UPDATE entities SET state = 'broken' WHERE entity_id = 'l1'")
    assert take_snapshots(kit.engine) == (3, 1)
    assert kit.sql("SELECT sequence FROM snapshots WHERE entity_id = 'l1'") == []


def test_verify_names_a_snapshot_that_does_not_hold(kit: Kit) -> None:
    take_snapshots(kit.engine)
    assert verify(kit.engine, kit.process.machines).clean
    kit.sql("UPDATE snapshots SET projection = '{}' WHERE entity_id = 'l1'")
    (found,) = verify(kit.engine, kit.process.machines).mismatches
    assert found == ("l1", "lamp", 1, "the snapshot is not what the log folds to")
