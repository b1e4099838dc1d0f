"""Old months are taken off the log only with a base, and what is left still folds."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from psycopg2.errors import RestrictViolation

from fsm.machines import Machines
from models.envelope import Envelope
from tasks.redaction import Redactor
from tasks.replay import rebuild, verify
from tasks.retention import LogError, attached, detach, due
from tasks.runtime import Runtime
from tasks.settings import Settings
from tasks.snapshots import take_snapshots
from tests.runtime_kit import Kit, kit_of, press

NOW = datetime.now(UTC)
THIS = NOW.replace(day=15, hour=12)


def months_ago(number: int) -> datetime:
    then = THIS
    for _ in range(number):
        then = then.replace(day=1) - timedelta(days=1)
    return then.replace(day=15)


def name(when: datetime) -> str:
    return f"event_log_{when:%Y%m}"


@pytest.fixture
def kit(settings: Settings) -> Iterator[Kit]:
    """A log of four months: `old` ends in the first, `long` goes through all of them."""
    for kit in kit_of(settings):
        for at in (3, 2, 1):
            first = months_ago(at).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
            following = (first + timedelta(days=32)).replace(day=1)
            kit.sql(
                f"SELECT event_log_add_partition('{name(first)}',"
                f" 'FOR VALUES FROM (''{first:%Y-%m-%d} 00:00+00'')"
                f" TO (''{following:%Y-%m-%d} 00:00+00'')')"
            )
        fold_at(kit, months_ago(3), press("old"), press("long"), press("old", "SMASH"))
        fold_at(kit, months_ago(2), press("long", "RELEASE"), press("middle"))
        fold_at(kit, months_ago(1), press("long"))
        kit.submit(press("long", "RELEASE"), press("young"))
        kit.drain()
        yield kit


def fold_at(kit: Kit, when: datetime, *messages: Envelope) -> None:
    process = kit.process
    runtime = Runtime(
        process.engine,
        machines(kit),
        process.registry,
        process.doorbell,
        Redactor(()),
        clock=lambda: when,
    )
    runtime.submit([each.model_copy(update={"emitted_at": when}) for each in messages])
    for room in range(16):
        runtime.drain("lamp", room)


def machines(kit: Kit) -> Machines:
    return kit.process.machines


def clean(kit: Kit) -> bool:
    return verify(kit.engine, machines(kit)).mismatches == []


def test_nothing_is_due_unless_months_are_older_than_what_is_kept(kit: Kit) -> None:
    assert [month.name for month in due(kit.engine, 1)] == [name(months_ago(at)) for at in (3, 2)]
    assert [month.name for month in due(kit.engine, 2)] == [name(months_ago(3))]
    assert due(kit.engine, 3) == []


def test_a_detached_month_is_kept_and_what_is_left_still_folds(kit: Kit) -> None:
    """Promise 5 outlives the oldest months; the table stays, and stays unchangeable."""
    assert clean(kit)
    take_snapshots(kit.engine)
    for month in due(kit.engine, 1):
        told = detach(kit.engine, machines(kit), month)
        assert told.events > 0
        assert clean(kit)
        assert kit.count(month.name) > 0
        with pytest.raises(RestrictViolation):
            kit.sql(f"DELETE FROM {month.name}")
        with pytest.raises(RestrictViolation):
            kit.sql(f"TRUNCATE {month.name}")
    assert kit.sequences("long") == [3, 4]
    kit.submit(press("long"), press("middle", "RELEASE"))
    kit.drain()
    assert clean(kit)
    bases = kit.sql("SELECT entity_id, sequence FROM log_bases ORDER BY entity_id")
    assert bases == [("long", 2), ("middle", 1), ("old", 2)]


@pytest.mark.parametrize("entity", ["old", "long", "middle"])
def test_after_a_detach_a_tampered_row_is_still_found(kit: Kit, entity: str) -> None:
    for month in due(kit.engine, 1):
        detach(kit.engine, machines(kit), month)
    kit.sql(f"UPDATE entities SET context = '{{\"x\": 1}}' WHERE entity_id = '{entity}'")
    (found,) = verify(kit.engine, machines(kit)).mismatches
    assert found.entity_id == entity
    if entity == "long":
        assert rebuild(kit.engine, machines(kit), "lamp").changed == 1
        assert clean(kit)


def test_a_month_that_does_not_fold_stays(kit: Kit) -> None:
    with kit.engine.begin() as connection:
        connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
        connection.exec_driver_sql("UPDATE event_log SET trigger = 'X' WHERE entity_id = 'old'")
    month = due(kit.engine, 1)[0]
    with pytest.raises(LogError, match="does not fold: lamp old at 1"):
        detach(kit.engine, machines(kit), month)
    assert month in attached(kit.engine)


def test_only_the_oldest_month_can_go(kit: Kit) -> None:
    with pytest.raises(LogError, match="not the oldest"):
        detach(kit.engine, machines(kit), due(kit.engine, 1)[1])


def test_killed_after_the_bases_it_is_simply_done_again(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = due(kit.engine, 1)
    detach(kit.engine, machines(kit), first)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("tasks.store.event_log.detach", killed)
        with pytest.raises(KeyboardInterrupt):
            detach(kit.engine, machines(kit), second)
    assert clean(kit)
    detach(kit.engine, machines(kit), second)
    assert clean(kit)
