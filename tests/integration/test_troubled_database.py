"""A database in trouble: whose fault it is decides what becomes of the messages."""

from collections.abc import Iterator

import pytest
from sqlalchemy.exc import ProgrammingError

from tasks.settings import Settings
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
