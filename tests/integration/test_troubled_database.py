"""A database in trouble: whose fault it is decides what becomes of the messages."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import psycopg2
import pytest
from sqlalchemy import event
from sqlalchemy.exc import ProgrammingError
from sqlalchemy.orm import Session

from tasks.settings import Settings
from tasks.store import event_log
from tests.acceptance.test_durability import in_one_room
from tests.polling import eventually
from tests.runtime_kit import Kit, kit_of, press


@pytest.fixture
def kit(settings: Settings) -> Iterator[Kit]:
    yield from kit_of(settings)


def test_a_missing_table_buries_nobody(kit: Kit) -> None:
    """Promise 8: no message is to blame for a migration that is under way."""
    entities = in_one_room(5)
    kit.submit(*(press(each) for each in entities))
    kit.sql("ALTER TABLE event_log RENAME TO event_log_away")
    with pytest.raises(ProgrammingError, match="event_log"):
        kit.drain()
    kit.sql("ALTER TABLE event_log_away RENAME TO event_log")
    assert (kit.count("inbox"), kit.count("dead_letters")) == (5, 0)
    eventually(lambda: kit.drain() and kit.count("inbox") == 0, "it goes on")
    assert sorted(kit.states()) == sorted(entities)
    kit.audit()


def test_a_message_beyond_a_limit_of_the_database_is_buried_alone(kit: Kit) -> None:
    """Promise 8: psycopg2 calls it an operational error, but trying again would never help."""
    entities = in_one_room(8)
    kit.sql(
        "CREATE FUNCTION fits(text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN"
        f" IF $1 = '{entities[3]}' THEN RAISE 'too large' USING ERRCODE = '54000'; END IF;"
        " RETURN true; END $$"
    )
    kit.sql("ALTER TABLE event_log ADD CHECK (fits(entity_id))")
    kit.submit(*(press(each) for each in entities))
    (drained,) = kit.drain()
    assert (drained.applied, drained.dead) == (7, 1)
    assert kit.sql("SELECT entity_id, reason FROM dead_letters") == [
        (entities[3], "refused by the database")
    ]
    kit.audit()


def test_who_finds_the_partition_busy_leaves_no_mark(kit: Kit) -> None:
    """A mark left behind would tell of a death that never was, once this process ends."""
    (entity,) = in_one_room(1)
    kit.submit(press(entity))
    assert kit.settings.database_url
    other = psycopg2.connect(kit.settings.database_url.reveal())
    locks: list[str] = []

    def overtaken(_: Any, __: Any, statement: str, *rest: Any) -> None:
        """After the first lock, and before the second, somebody else gets it."""
        if "pg_try_advisory_xact_lock" in statement:
            locks.append(statement)
            if len(locks) == 2:
                with other.cursor() as cursor:
                    cursor.execute("SELECT pg_advisory_xact_lock(hashtext('lamp'), 3)")

    event.listen(kit.engine, "before_cursor_execute", overtaken)
    try:
        assert kit.runtime.drain("lamp", 3).outcome == "busy"
    finally:
        event.remove(kit.engine, "before_cursor_execute", overtaken)
        other.close()
    assert kit.sql("SELECT count(*) FROM partitions WHERE holder_pid IS NOT NULL") == [(0,)]
    eventually(lambda: kit.drain() and kit.count("inbox") == 0, "it goes on")
    kit.audit()


def test_processes_that_start_together_make_the_next_months_once(kit: Kit) -> None:
    """Workers start in dozens on the first of a month; none of them may fail for it."""
    kit.submit(press("l1"))
    months = kit.sql(
        "SELECT relname FROM pg_class WHERE relname ~ '^event_log_[0-9]{6}$' AND relkind = 'r'"
    )
    assert len(months) >= 3
    for (month,) in months:
        kit.sql(f"DROP TABLE {month}")

    together = Barrier(8)

    def start() -> None:
        together.wait()
        with Session(kit.engine) as session, session.begin():
            event_log.add_months(session)

    with ThreadPoolExecutor(8) as starters:
        for each in [starters.submit(start) for _ in range(8)]:
            each.result()
    kit.drain()
    kit.audit()
