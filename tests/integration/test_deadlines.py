"""Deadlines are columns: found by a tick, put into the inbox once, folded if they still stand."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import count

import pytest

from models.messages.runtime import RuntimeTick
from tasks.catalogue import catalogue
from tasks.database import open_engine
from tasks.doorbell import Room
from tasks.redaction import Redactor
from tasks.runtime import Limits, Runtime
from tasks.settings import Settings
from tasks.ticks import TickResult, run_tick
from tests.runtime_kit import Kit, kit_of, press

numbers = count(1)


@pytest.fixture
def kit(settings: Settings) -> Iterator[Kit]:
    yield from kit_of(settings)


def runtime_at(kit: Kit, clock: Callable[[], datetime]) -> Runtime:
    """A runtime that lives at another time; deadlines it sets count from there."""
    held = kit.process._own()
    return Runtime(
        held.engine,
        held.machines,
        catalogue(held.machines),
        held.doorbell,
        Redactor(()),
        Limits(),
        clock,
    )


def ago(**long: float) -> datetime:
    return datetime.now(UTC) - timedelta(**long)


def light(kit: Kit, *names: str, when: datetime) -> None:
    """Lamps that were lit then; a lamp burns ten minutes."""
    past = runtime_at(kit, lambda: when)
    past.submit([press(name, emitted_at=when) for name in names])
    for room in range(16):
        past.drain("lamp", room)


def tick(kit: Kit, ring: Callable[[Iterable[Room]], int] | None = None) -> TickResult:
    kit.sql("UPDATE runtime_clock SET at = 'epoch'")
    said = RuntimeTick(now=datetime.now(UTC), tick_sequence=next(numbers), runtime_id="rt-1")
    return run_tick(kit.engine, said, timedelta(seconds=1), ring or (lambda rooms: len([*rooms])))


def test_a_deadline_that_passed_becomes_one_timeout(kit: Kit) -> None:
    """Promise 6: exactly one timeout event, however many ticks look."""
    light(kit, "l1", "l2", when=ago(minutes=11))
    light(kit, "fresh", when=ago(minutes=1))
    assert tick(kit)["timeouts"] == 2
    assert [tick(kit)["timeouts"] for _ in range(3)] == [0, 0, 0]
    assert kit.count("inbox") == 2
    kit.drain()
    assert kit.states() == {"l1": "dark", "l2": "dark", "fresh": "lit"}
    assert kit.sequences("l1") == [1, 2]
    assert tick(kit)["timeouts"] == 0


def test_a_timeout_names_its_cause_and_the_tick_that_found_it(kit: Kit) -> None:
    """Ruling 1: its id comes from the deadline, its cause is what set the deadline."""
    light(kit, "l1", when=ago(minutes=11))
    tick(kit)
    ((message_id, cause, payload),) = kit.sql(
        "SELECT CAST(message_id AS text), CAST(causation_id AS text), payload FROM inbox"
    )
    ((setter,),) = kit.sql("SELECT CAST(message_id AS text) FROM event_log WHERE sequence = 1")
    assert cause == setter
    assert payload["runtime_id"] == "rt-1"
    assert (payload["deadline"], payload["set_by"]) == ("burn", 1)
    kit.drain()
    ((timeout_cause, trigger),) = kit.sql(
        "SELECT CAST(causation_id AS text), trigger FROM event_log WHERE sequence = 2"
    )
    assert (timeout_cause, trigger) == (message_id, "TIMEOUT")


def test_what_waited_first_beats_the_timeout(kit: Kit) -> None:
    """Ruling 15: a message that was in the inbox when the deadline came due is folded before it,
    and ends it."""
    light(kit, "l1", when=ago(minutes=11))
    kit.submit(press("l1", "RELEASE"))
    assert tick(kit)["timeouts"] == 1
    kit.drain()
    triggers = kit.sql("SELECT trigger FROM event_log ORDER BY sequence")
    assert triggers == [("PRESS",), ("RELEASE",)]
    assert sorted(kit.results().values()) == ["IGNORED", "OK", "OK"]


def test_a_deadline_set_anew_is_not_ended_by_the_timeout_of_the_one_before(kit: Kit) -> None:
    light(kit, "l1", when=ago(minutes=11))
    kit.submit(press("l1", "PRESS"))
    assert tick(kit)["timeouts"] == 1
    kit.drain()
    assert kit.states() == {"l1": "lit"}
    assert kit.sequences("l1") == [1, 2]
    ((emitted, due),) = kit.sql("SELECT timeouts_emitted, next_deadline FROM entities")
    assert emitted == {}
    assert due > datetime.now(UTC)


def test_ticks_of_many_beats_at_once_emit_each_deadline_once(kit: Kit, settings: Settings) -> None:
    """Promise 6, with the winner's rule taken away: even then each deadline is one message."""
    names = [f"l{at}" for at in range(60)]
    light(kit, *names, when=ago(minutes=11))

    def beat(number: int) -> int:
        engine = open_engine(settings, "beat", pooled=False)
        said = RuntimeTick(now=datetime.now(UTC), tick_sequence=number, runtime_id=f"rt-{number}")
        every_tick_wins = timedelta(0)
        return run_tick(engine, said, every_tick_wins, lambda rooms: 0, most=7)["timeouts"]

    with ThreadPoolExecutor(6) as pool:
        emitted = list(pool.map(beat, range(1, 13)))
    assert len([number for number in emitted if number]) > 1, "several took part"
    assert sum(emitted) + tick(kit)["timeouts"] == 60
    assert kit.count("inbox") == 60
    kit.drain()
    assert set(kit.states().values()) == {"dark"}
    assert kit.count("event_log") == 120


def test_overdue_entities_are_taken_in_batches_until_none_is_left(kit: Kit) -> None:
    light(kit, *[f"l{at}" for at in range(25)], when=ago(minutes=11))
    kit.sql("UPDATE runtime_clock SET at = 'epoch'")
    said = RuntimeTick(now=datetime.now(UTC), tick_sequence=1, runtime_id="rt-1")
    result = run_tick(kit.engine, said, timedelta(seconds=5), lambda rooms: 0, most=10)
    assert result["timeouts"] == 25


def test_a_tick_rings_wherever_something_waits(kit: Kit) -> None:
    """Promise 1: a doorbell that was lost is rung again."""
    kit.submit(press("l1"), press("l2"))
    rung: list[Room] = []

    def ring(rooms: Iterable[Room]) -> int:
        rung.extend(rooms)
        return len(rung)

    assert tick(kit, ring)["rung"] == len(rung) > 0
    assert {domain for domain, _ in rung} == {"lamp"}
    kit.drain()
    assert tick(kit, lambda rooms: len([*rooms]))["rung"] == 0


def test_a_locked_entity_is_left_for_the_next_tick(kit: Kit, settings: Settings) -> None:
    light(kit, "l1", "l2", when=ago(minutes=11))
    other = open_engine(settings, "other", pooled=False)
    with other.connect() as connection:
        connection.exec_driver_sql("SELECT * FROM entities WHERE entity_id = 'l1' FOR UPDATE")
        assert tick(kit)["timeouts"] == 1
    assert tick(kit)["timeouts"] == 1
