"""The loop on a real database: submit, drain, and what is in the tables afterwards."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import text

from fsm.library import all_machines
from models.errors import MessageError
from models.messages.runtime import RuntimeTick
from tasks.redaction import Redactor
from tasks.runtime import Runtime
from tasks.settings import Settings
from tasks.store import deadlines
from tasks.ticks import run_tick
from tasks.worker_process import WorkerProcess
from tests.runtime_kit import MACHINES, Kit, kit_of, press, rooms_of


@pytest.fixture
def kit(settings: Settings) -> Iterator[Kit]:
    yield from kit_of(settings)


def test_a_message_becomes_a_transition(kit: Kit) -> None:
    assert kit.submit(press("l1")) == 1
    assert kit.count("inbox") == 1
    assert kit.rung
    (drained,) = kit.drain()
    assert (drained.applied, drained.outcome) == (1, "drained")
    assert kit.states() == {"l1": "lit"}
    assert kit.sequences("l1") == [1]
    assert kit.count("inbox") == 0


def test_deadlines_are_searched_by_their_index(kit: Kit) -> None:
    """A tick must cost the same with ten thousand entities and with a million."""
    with kit.engine.connect() as connection:
        connection.execute(text("SET enable_seqscan = off"))
        values = {"most": 10, "machines": ["registration"], "services": ["consul"]}
        plan = connection.execute(text(f"EXPLAIN {deadlines._DUE.text}"), values).scalars()
        assert "Index Cond: (next_deadline <= now())" in "\n".join(plan)


def test_the_same_message_in_one_submit_and_in_two_is_applied_once(kit: Kit) -> None:
    """Promise 3."""
    twice = press("l1")
    kit.submit(twice, twice)
    kit.submit(twice)
    (drained,) = kit.drain()
    assert (drained.applied, drained.duplicates) == (1, 2)
    kit.submit(twice)
    (drained,) = [kit.runtime.drain("lamp", room) for room in rooms_of(["l1"])]
    assert (drained.applied, drained.duplicates) == (0, 1)
    assert kit.sequences("l1") == [1]
    assert kit.results() == {twice.message_id: "OK"}


def test_one_message_id_for_two_entities_is_applied_to_the_first(kit: Kit) -> None:
    """Promise 3: the id is the message's, whatever else it says."""
    first = press("l1")
    second = press("l2", message_id=first.message_id)
    kit.submit(first, second)
    kit.drain()
    assert len(kit.states()) == 1
    assert kit.count("inbox") == 0
    assert kit.count("dead_letters") == 0


def test_what_a_machine_refuses_is_remembered_and_changes_nothing(kit: Kit) -> None:
    """Ruling 3: the memory of duplicates covers refused messages too."""
    smash, late = press("l1", "SMASH"), press("l1", "PRESS")
    forbidden, unknown = press("l1", "TIMEOUT"), press("l2", "DANCE")
    kit.submit(smash, late, forbidden, unknown)
    kit.drain()
    results = kit.results()
    assert results[smash.message_id] == "OK"
    assert results[late.message_id] == "TERMINAL"
    assert results[forbidden.message_id] == "REFUSED"
    assert results[unknown.message_id] == "REFUSED"
    assert kit.states() == {"l1": "broken"}
    assert kit.sequences("l1") == [1]


def test_a_long_inbox_is_folded_in_batches_and_in_order(kit: Kit) -> None:
    """Promise 4: one order, gapless."""
    kit.submit(*[press("l1", "PRESS" if at % 2 == 0 else "RELEASE") for at in range(1201)])
    kit.drain()
    assert kit.sequences("l1") == list(range(1, 1202))
    assert kit.states() == {"l1": "lit"}
    paths = kit.sql("SELECT path FROM event_log ORDER BY sequence")
    assert paths == [("dark > lit",) if at % 2 == 0 else ("lit > dark",) for at in range(1201)]


def test_every_result_of_a_submit_is_durable_or_there_is_none(kit: Kit) -> None:
    """Promise 2: of ten thousand with a bad one nothing is stored, and the bad one is named."""
    many = [press(f"l{at}") for at in range(9_999)]
    bad = press("l1", machine="lamp", payload={"machine": "lamp"})
    with pytest.raises(MessageError, match=r"message 5000: payload.trigger: Field required"):
        kit.submit(*many[:5000], bad, *many[5000:])
    assert kit.count("inbox") == 0
    assert kit.submit(*many, press("last")) == 10_000
    assert kit.count("inbox") == 10_000
    with pytest.raises(MessageError, match="10001 messages at once"):
        kit.submit(*many, press("a"), press("b"))


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"message_type": "lamp.commands.PullTriger"}, "did you mean lamp.commands.PullTrigger"),
        ({"message_type": "lamps.commands.PullTrigger"}, "is not registered"),
        ({"message_type": "lamp.events.TriggerPulled"}, "is not accepted from outside"),
        ({"message_type": "lamp.events.DeadlinePassed"}, "payload.deadline: Field required"),
        ({"payload": {"machine": "lamp", "trigger": "PRESS", "data": {"x": "y" * 10_000_000}}},
         "takes at most 262144 bytes"),
        ({"emitted_at": datetime.now(UTC) + timedelta(days=1)}, "emitted_at"),
        ({"emitted_at": datetime.now(UTC) - timedelta(days=31)}, "emitted_at"),
        ({"causation_id": uuid4()}, "is no known message"),
    ],
    ids=["type", "domain", "internal", "deadline", "10 MB", "future", "ancient", "causation"],
)  # fmt: skip
def test_bad_input_is_refused_with_its_place_and_nothing_is_stored(
    kit: Kit, said: dict[str, Any], why: str
) -> None:
    with pytest.raises(MessageError, match=f"message 1: .*{re.escape(why)}"):
        kit.submit(press("l1"), press("l2", **said))
    assert kit.count("inbox") == 0
    assert kit.rung == []


def test_a_cause_may_come_along_or_wait_or_have_been_folded_before(kit: Kit) -> None:
    """Promise 11: a broken chain is refused, a whole one is kept."""
    first = press("l1")
    second = press("l1", "RELEASE", causation_id=first.message_id)
    kit.submit(first, second)
    kit.drain()
    waiting = press("l2")
    kit.submit(waiting)
    kit.submit(press("l3", causation_id=waiting.message_id))
    third = press("l1", causation_id=second.message_id)
    kit.submit(third)
    kit.drain()
    rows = kit.sql(
        "SELECT CAST(causation_id AS text), CAST(correlation_id AS text),"
        " CAST(message_correlation_id AS text) FROM event_log WHERE entity_id = 'l1'"
        " ORDER BY sequence"
    )
    assert [cause for cause, _, _ in rows] == [
        str(each.message_id) for each in (first, second, third)
    ]
    assert {workflow for _, workflow, _ in rows} == {str(first.correlation_id)}


def test_the_counters_of_states_add_up(kit: Kit) -> None:
    kit.submit(*[press(f"l{at}") for at in range(40)])
    kit.submit(*[press(f"l{at}", "RELEASE") for at in range(15)])
    kit.submit(*[press(f"l{at}", "SMASH") for at in range(5)])
    kit.drain()
    rows = kit.sql("SELECT state, sum(entities) FROM state_counts GROUP BY state")
    assert {state: int(number) for state, number in rows} == {"lit": 25, "dark": 10, "broken": 5}


def test_an_entity_that_somebody_holds_waits_and_the_others_do_not(kit: Kit) -> None:
    """Ruling 9: a drain defers what it cannot lock."""
    held = "l1"
    other = next(
        name for name in (f"x{at}" for at in range(999)) if rooms_of([name]) == rooms_of([held])
    )
    kit.submit(press(held), press(other))
    kit.drain()
    kit.submit(press(held, "RELEASE"), press(other, "RELEASE"), press(held, "SMASH"))
    (room,) = rooms_of([held])
    with kit.engine.connect() as connection:
        connection.execute(
            text("SELECT * FROM entities WHERE entity_id = :held FOR UPDATE"), {"held": held}
        )
        assert kit.runtime.drain("lamp", room).outcome == "more"
        assert kit.states() == {held: "lit", other: "dark"}
        rung = len(kit.rung)
        assert kit.runtime.drain("lamp", room).outcome == "busy"
        assert len(kit.rung) == rung, "whoever waits for a lock must not ring in circles"
    assert kit.runtime.drain("lamp", room).applied == 2
    assert kit.states()[held] == "broken"


def test_a_locked_partition_is_left_alone(kit: Kit) -> None:
    kit.submit(press("l1"))
    (room,) = rooms_of(["l1"])
    with kit.engine.connect() as connection:
        connection.execute(
            text("SELECT pg_advisory_xact_lock(hashtext('lamp'), :room)"), {"room": room}
        )
        assert kit.runtime.drain("lamp", room).outcome == "busy"
    assert kit.runtime.drain("lamp", room).applied == 1


def test_an_entity_born_under_a_contract_that_came_later_is_folded_with_it(
    kit: Kit, settings: Settings, tmp_path: Path
) -> None:
    """A worker that was started before a deploy meets what the new ones made."""
    newer = tmp_path / "lamp.yaml"
    newer.write_text((MACHINES / "lamp.yaml").read_text().replace("600000", "700000"))
    kit.submit(press("old"))
    kit.drain()  # this process has its contracts by now
    process = WorkerProcess(settings, all_machines(tmp_path), lambda *room: None)
    process.runtime.submit([press("new")])
    for room in range(16):
        process.runtime.drain("lamp", room)
    process.engine.dispose()
    kit.submit(press("new", "RELEASE"), press("old", "RELEASE"))
    kit.drain()
    assert kit.states() == {"old": "dark", "new": "dark"}
    assert kit.count("dead_letters") == 0
    assert len(kit.sql("SELECT DISTINCT contract_hash FROM entities")) == 2


def test_a_clock_that_was_set_back_after_the_tick_does_not_lose_a_deadline(kit: Kit) -> None:
    """Promise 6: the tick saw it due, and nothing ended it since."""
    held = kit.process._own()
    parts = (held.engine, held.machines, kit.process.registry, held.doorbell, Redactor(()))
    early = datetime.now(UTC) - timedelta(minutes=11)
    past = Runtime(*parts, clock=lambda: early)
    past.submit([press("l1", emitted_at=early)])
    (room,) = rooms_of(["l1"])
    past.drain("lamp", room)
    tick = RuntimeTick(now=datetime.now(UTC), tick_sequence=1, runtime_id="rt")
    assert run_tick(kit.engine, tick, timedelta(seconds=1), lambda _: 0)["timeouts"] == 1
    past.drain("lamp", room)
    assert kit.states() == {"l1": "dark"}
