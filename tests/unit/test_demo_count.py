"""The demo's count says so when a promise is broken, whichever it is."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from rollcall.demo.count import Count, Entry, Expected, Found, Seen, judge
from rollcall.demo.fleet import Fleet, Part

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
EXPECTED = {
    "stays": Expected("active"),
    "late": Expected("active", 2),
    "dies": Expected("liveness_expired"),
}
ENTRIES = [Entry("stays", "r1"), Entry("late", "r3")]
WELL = Found(
    seen={
        "stays": Seen("active", "registered", 1, "r1"),
        "late": Seen("active", "registered", 2, "r3"),
        "dies": Seen("liveness_expired", "deregistered", 1, "r4"),
    },
    records=ENTRIES,
    consul=ENTRIES,
    activations={("stays", 1): 1, ("late", 2): 1, ("dies", 1): 1},
    registered={"stays": NOON + timedelta(milliseconds=40), "late": NOON + timedelta(seconds=2)},
)


def count(found: Found) -> Count:
    return judge(EXPECTED, dict.fromkeys(EXPECTED, NOON), found)


def stands(node_id: str, seen: Seen) -> Found:
    return replace(WELL, seen={**WELL.seen, node_id: seen})


def test_kept_promises_are_counted_as_kept() -> None:
    assert count(WELL).ok
    assert count(WELL).as_dict() == {
        "nodes": 3,
        "active": 2,
        "in_postgres": 2,
        "in_consul": 2,
        "lost": 0,
        "doubled": 0,
        "stuck": 0,
        "p50_ms": 2000.0,
        "p99_ms": 2000.0,
    }


def test_a_node_missing_from_consul_or_postgresql_is_lost() -> None:
    for broken in (replace(WELL, consul=ENTRIES[1:]), replace(WELL, records=ENTRIES[1:])):
        found = count(broken)
        assert (found.ok, found.lost, found.doubled, found.stuck) == (False, 1, 0, 0)
        assert "stays" in found.broken[0]


def test_an_entry_of_another_registration_is_no_entry() -> None:
    found = count(replace(WELL, consul=[Entry("stays", "r0"), ENTRIES[1]]))
    assert (found.ok, found.lost) == (False, 1)


def test_a_dead_node_that_is_still_shown_is_lost() -> None:
    found = count(replace(WELL, consul=[*ENTRIES, Entry("dies", "r4")]))
    assert (found.ok, found.lost, found.in_consul) == (False, 1, 3)


def test_a_node_that_nobody_knows_is_lost() -> None:
    seen = {key: each for key, each in WELL.seen.items() if key != "dies"}
    assert count(replace(WELL, seen=seen)).lost == 1


def test_another_outcome_than_the_promised_is_lost() -> None:
    assert count(stands("stays", Seen("departed", "deregistered", 1, "r1"))).lost == 1
    assert count(stands("late", Seen("active", "registered", 1, "r3"))).lost == 1


def test_a_second_activation_of_a_generation_is_doubled() -> None:
    found = count(replace(WELL, activations={("stays", 1): 2, ("late", 2): 1}))
    assert (found.ok, found.doubled, found.lost) == (False, 1, 0)


def test_a_second_entry_in_consul_is_doubled() -> None:
    found = count(replace(WELL, consul=[*ENTRIES, Entry("stays", "r1")]))
    assert (found.ok, found.doubled) == (False, 1)


def test_a_machine_that_does_not_rest_is_stuck() -> None:
    for seen in (
        Seen("awaiting_ack", "registered", 1, "r1"),
        Seen("active", "partial_registered", 1, "r1"),
        Seen("liveness_expired", "deregistering", 1, "r1"),
        Seen("departed", "failed", 1, "r1"),
    ):
        found = count(stands("stays", seen))
        assert (found.ok, found.stuck, found.lost) == (False, 1, 0), seen


def test_five_nodes_are_one_of_each_part_and_introduce_themselves_once() -> None:
    fleet = Fleet(5)
    assert [each.part for each in fleet.nodes] == [*Part]
    said = fleet.introduce(0.5) + fleet.introduce(1.0) + fleet.introduce(1.0)
    assert {each.entity_id for each in said} == {each.node_id for each in fleet.nodes}
    assert len({each.message_id for each in said}) == 5


def test_a_late_node_answers_when_its_time_is_over_and_then_at_once() -> None:
    fleet = Fleet(2)
    late = fleet.nodes[1].node_id

    def answers(seen: Seen) -> int:
        return len(fleet.react({late: seen}))

    assert answers(Seen("awaiting_ack", "registered", 1, "r1")) == 0
    assert answers(Seen("ack_timed_out", "deregistered", 1, "r1")) == 1
    assert answers(Seen("ack_timed_out", "deregistered", 1, "r1")) == 0
    assert answers(Seen("awaiting_ack", "registered", 2, "r2")) == 1
