"""The promises of the loop, each broken at if it can be: in this process, on real servers."""

import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import event
from sqlalchemy.orm import Session

import tasks.batch
from fsm.machines import Machines, partition_of
from fsm.step import Step, step
from models.envelope import Envelope
from models.messages.runtime import RuntimeTick
from models.registry import MessageRegistry
from tasks.settings import Settings
from tasks.store import inbox
from tasks.store.deadlines import take_due
from tasks.ticks import run_tick
from tests.polling import eventually
from tests.runtime_kit import PARTITIONS, Kit, kit_of, press

INTERVAL = timedelta(milliseconds=100)
TICK = RuntimeTick(now=datetime.now(UTC), tick_sequence=1, runtime_id="test")


@pytest.fixture
def kit(settings: Settings) -> Iterator[Kit]:
    yield from kit_of(settings)


def in_one_room(number: int, prefix: str = "lamp") -> list[str]:
    """Entities that live in one partition."""
    names = (f"{prefix}-{each}" for each in count())
    found = (name for name in names if partition_of(name, PARTITIONS) == 3)
    return [next(found) for _ in range(number)]


def tick(kit: Kit) -> int:
    """The timeouts of a tick that nobody else took."""
    return run_tick(kit.engine, TICK, INTERVAL, lambda rooms: len([*rooms]))["timeouts"]


def find_due(kit: Kit) -> int:
    """What a tick does once it has won."""
    with Session(kit.engine) as session, session.begin():
        due = take_due(session, TICK, most=10)
        inbox.put(session, due.messages)
    return len(due.messages)


def deadlines_pass(kit: Kit) -> None:
    due = "SELECT count(*) FROM entities WHERE next_deadline > clock_timestamp()"
    eventually(lambda: kit.sql(due) == [(0,)], "the deadlines pass")


def test_a_message_delivered_fifty_times_at_once_is_applied_once(kit: Kit) -> None:
    """Promise 3: the same message_id is applied once, whoever delivers it how often."""
    message = press("l1")
    with ThreadPoolExecutor(50) as crowd:
        waits = [crowd.submit(kit.submit, message) for _ in range(50)]
        waits += [crowd.submit(lambda: len(kit.drain())) for _ in range(8)]
        for each in waits:
            each.result()
    eventually(lambda: not kit.drain() and kit.count("inbox") == 0, "the inbox is empty")
    assert kit.sequences("l1") == [1]
    assert kit.results() == {message.message_id: "OK"}
    kit.audit()


def test_the_same_message_id_sent_to_two_entities_is_applied_to_one(kit: Kit) -> None:
    """Promise 3, across partitions: two drains at once must not both take it."""
    for _ in range(20):
        same = uuid4()
        one, other = f"a-{same}", f"b-{same}"
        kit.submit(press(one, message_id=same), press(other, message_id=same))
        rooms = [partition_of(each, PARTITIONS) for each in (one, other)]
        with ThreadPoolExecutor(2) as pair:
            for each in [pair.submit(kit.runtime.drain, "lamp", room) for room in rooms]:
                each.result()
    assert kit.count("event_log") == 20
    assert kit.count("dead_letters") == 0
    kit.audit()


def test_what_waited_already_beats_a_timeout_that_came_due_later(kit: Kit) -> None:
    """Promise 6 with ruling 15: the deadline passed, but the acknowledgement was there first."""
    kit.submit(*(press(f"e{each}", "BOIL", "egg") for each in range(4)))
    kit.drain("egg")
    kit.submit(press("e0", "TAKE_OUT", "egg"), press("e1", "TAKE_OUT", "egg"))
    deadlines_pass(kit)
    assert eventually(lambda: tick(kit), "a tick is taken") == 4
    kit.submit(press("e2", "TAKE_OUT", "egg"))
    kit.drain("egg")
    assert kit.states("egg") == {
        "e0": "taken_out",
        "e1": "taken_out",
        "e2": "done",
        "e3": "done",
    }
    assert kit.sequences("e0", "egg") == [1, 2]
    results = Counter(kit.results().values())
    assert (results["OK"], results.total()) == (8, 11), "two timeouts and one TAKE_OUT came late"
    assert kit.count("event_log") == 8
    kit.audit()


def test_a_deadline_found_by_many_ticks_at_once_is_one_timeout(kit: Kit) -> None:
    """Promise 6: whoever finds it, how often ever, the deadline fires once."""
    kit.submit(*(press(f"e{each}", "BOIL", "egg") for each in range(50)))
    kit.drain("egg")
    deadlines_pass(kit)
    with ThreadPoolExecutor(8) as beats:
        found = [beats.submit(find_due, kit) for _ in range(16)]
        assert sum(each.result() for each in found) == 50
    kit.drain("egg")
    assert set(kit.states("egg").values()) == {"done"}
    assert kit.count("event_log") == 100
    kit.audit()


def test_a_poison_message_goes_to_dead_letters_alone(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise 8: a poison message does not take its batch down with it."""
    entities = in_one_room(20)
    poisoned = entities[7]
    kit.submit(*(press(each) for each in entities))
    kit.drain()

    def failing(
        machines: Machines, registry: MessageRegistry, before: Any, message: Envelope, now: datetime
    ) -> Step:
        if message.entity_id == poisoned and message.message_id == poison.message_id:
            raise ZeroDivisionError("a handler's bug")
        return step(machines, registry, before, message, now)

    monkeypatch.setattr(tasks.batch, "step", failing)
    poison = press(poisoned, "RELEASE", data={"n": 7})
    others = [press(each, "RELEASE") for each in entities if each != poisoned]
    kit.submit(*others[:7], poison, *others[7:], press(poisoned, data={"n": 8}))
    (drained,) = kit.drain()
    assert (drained.applied, drained.dead) == (20, 1)
    ((reason, error, envelope, projections, correlation, attempts),) = kit.sql(
        "SELECT reason, error, envelope, projections, CAST(correlation_id AS text), attempts"
        " FROM dead_letters"
    )
    assert (reason, error) == ("handler failed", "ZeroDivisionError: a handler's bug")
    assert Envelope.read(json.dumps(envelope)) == poison
    assert (projections["lamp"]["state"], projections["lamp"]["sequence"]) == ("lit", 1)
    assert (correlation, attempts) == (str(poison.correlation_id), 0)
    assert kit.results()[poison.message_id] == "DEAD_LETTER"
    assert kit.sequences(poisoned) == [1, 2], "what came after it was folded"
    kit.submit(poison)
    kit.drain()
    assert kit.count("dead_letters") == 1, "a second delivery is a duplicate"
    kit.audit()


def test_the_number_of_statements_does_not_grow_with_the_batch(kit: Kit) -> None:
    """Everything on the hot path is set-based: 500 messages cost as many statements as one."""
    counted = [statements_of_a_batch(kit, number) for number in (1, 10, 500)]
    assert counted[0] == counted[1] == counted[2]
    assert counted[0] <= 12
    kit.audit()


def statements_of_a_batch(kit: Kit, number: int) -> int:
    """How many statements the transaction of so many messages took."""
    seen: list[str] = []
    batches: list[int] = []

    def counts(_: Any, __: Any, statement: str, *rest: Any) -> None:
        if "pg_try_advisory_xact_lock" in statement:
            seen.clear()
        seen.append(statement)
        if "DELETE FROM inbox" in statement:
            batches.append(len(seen))

    kit.submit(*(press(each) for each in in_one_room(number, f"of-{number}")))
    event.listen(kit.engine, "before_cursor_execute", counts)
    drained = kit.drain()
    event.remove(kit.engine, "before_cursor_execute", counts)
    assert [each.applied for each in drained] == [number]
    (statements,) = batches
    return statements


def test_a_message_that_the_database_refuses_is_buried_alone(kit: Kit) -> None:
    """Promise 8: the batch is halved until one message is left, and that one is put away."""
    entities = in_one_room(40)
    refused = entities[25]
    kit.sql(f"ALTER TABLE event_log ADD CHECK (entity_id <> '{refused}')")
    messages = [press(each) for each in entities]
    kit.submit(*messages)
    (drained,) = kit.drain()
    assert (drained.applied, drained.dead) == (39, 1)
    ((reason, entity_id, envelope),) = kit.sql(
        "SELECT reason, entity_id, envelope FROM dead_letters"
    )
    assert (reason, entity_id) == ("refused by the database", refused)
    assert Envelope.read(json.dumps(envelope)) == messages[25]
    assert sorted(kit.states()) == sorted({*entities} - {refused})
    kit.audit()
