"""Direct transitions on a real database: conflicts, repetitions, retries and the circuit."""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from threading import Barrier, Lock
from typing import Any

import pytest
from sqlalchemy import Connection, event, text
from sqlalchemy.orm import Session

from fsm.breaker import BreakerPolicy
from fsm.emission import caused
from fsm.library import all_machines
from fsm.machines import Machines, partition_of
from fsm.reducer import fold, unborn
from models.envelope import Envelope
from models.errors import (
    ContentionError,
    InfraUnavailableError,
    MessageError,
    VersionConflictError,
)
from models.output import HandlerOutput, OrchestratorContext, Role
from models.registry import (
    HandlerSpec,
    MessageRegistry,
    machine_message_specs,
)
from tasks.catalogue import catalogue
from tasks.contention import Conflict, Contention, Counted
from tasks.optimistic import Transitions
from tasks.settings import Settings
from tasks.store import entities, event_log
from tests.runtime_kit import MACHINES, PARTITIONS, Kit, kit_of, press

DATA: dict[str, dict[str, Any]] = {
    "submit_for_review": {"manifest": {"urn": "urn:a"}, "urn": "urn:a"},
    "approve": {"reviewer": "ann", "notes": "fine"},
    "reject": {"reason": "no"},
    "register": {"manifest": {"urn": "urn:a"}, "urn": "urn:a"},
    "revert_to_draft": {},
}


def ask(trigger: str, entity_id: str = "m1", **said: Any) -> Envelope:
    return press(
        entity_id,
        trigger,
        "manifest",
        DATA[trigger],
        message_type="manifests.commands.PullTrigger",
        **said,
    )


@pytest.fixture
def kit(settings: Settings) -> Iterator[Kit]:
    yield from kit_of(settings)


def transitions(
    kit: Kit,
    contention: Contention | None = None,
    registry: MessageRegistry | None = None,
    **more: Any,
) -> Transitions:
    kit.runtime  # noqa: B018 - prepares contracts and partitions
    machines = Machines(contract for contract, _ in all_machines(MACHINES).values())
    return Transitions(
        kit.engine,
        machines,
        registry or catalogue(machines),
        kit.process.doorbell,
        contention or Contention(),
        **more,
    )


def all_at_once(calls: list[Callable[[], Any]]) -> list[Any]:
    start = Barrier(len(calls))

    def run(call: Callable[[], Any]) -> Any:
        start.wait(30)
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return [each.result(60) for each in [pool.submit(run, call) for call in calls]]


def log_is_whole(kit: Kit, entity_id: str = "m1") -> int:
    """Promises 4 and 5: no gap, and the log folded again is the row."""
    contract = all_machines(MACHINES)["manifest"].contract
    with Session(kit.engine) as session:
        rows = event_log.of_entity(session, entity_id)
        row = entities.read(session, [entity_id])[entity_id]["manifest"]
    rows.sort(key=lambda each: each.sequence)
    assert [each.sequence for each in rows] == [*range(1, len(rows) + 1)]
    now = unborn(contract, entity_id, rows[0].correlation_id)
    for each in rows:
        now = fold(
            contract, now, each.message_id, each.trigger, each.data, each.applied_at
        ).projection
        assert now.digest() == each.digest
    assert now == row
    counted = kit.sql(
        "SELECT state, sum(entities) FROM state_counts WHERE machine = 'manifest'"
        " GROUP BY state HAVING sum(entities) <> 0"
    )
    assert counted == [(row.state, 1)]
    return row.sequence


def together(times: int, parties: int = 2) -> Callable[[], datetime]:
    """A clock, asked for after the read, at which the first `times` readers meet."""
    barrier, lock, asked = Barrier(parties), Lock(), Counter[str]()

    def clock() -> datetime:
        with lock:
            asked["times"] += 1
            meet = asked["times"] <= times
        if meet:
            barrier.wait(30)
        return datetime.now(UTC)

    return clock


def test_a_direct_transition_is_what_a_drain_would_have_written(kit: Kit) -> None:
    direct = transitions(kit)
    made = direct.apply(ask("submit_for_review"))
    assert (made.result, made.state, made.version) == ("OK", "REVIEWED", 1)
    assert direct.apply(ask("approve"), expected_version=1).version == 2
    assert log_is_whole(kit) == 2
    assert direct.apply(ask("approve")).result == "INVALID_STATE"
    kit.submit(ask("submit_for_review", "m2"))
    kit.drain("manifests")
    rows = kit.sql(
        "SELECT trigger, path, contract_hash, message_type, data::text FROM event_log"
        " WHERE sequence = 1"
    )
    assert len(rows) == 2
    assert rows[0] == rows[1]


def test_a_hundred_identical_submits_are_one_step(kit: Kit) -> None:
    contention = Contention()
    direct = transitions(kit, contention)
    made = all_at_once([lambda: direct.apply(ask("submit_for_review"))] * 100)
    assert Counter(each.result for each in made) == {"OK": 1, "ALREADY_APPLIED": 99}
    assert {(each.state, each.version) for each in made} == {("REVIEWED", 1)}
    assert contention.counted("manifest", Counted.ALREADY_APPLIED) == 99
    assert Counter(kit.results().values())["ALREADY_APPLIED"] == 99
    assert log_is_whole(kit) == 1


def test_of_different_operations_the_contract_decides(kit: Kit) -> None:
    direct = transitions(kit)
    direct.apply(ask("submit_for_review"))
    triggers = ["approve"] * 4 + ["reject"] * 4
    made = all_at_once([partial(direct.apply, ask(each)) for each in triggers])
    steps = [(t, m) for t, m in zip(triggers, made, strict=True) if m.result == "OK"]
    assert {m.result for m in made} <= {"OK", "INVALID_STATE"}
    assert sorted(m.version for _, m in steps) == [*range(2, 2 + len(steps))]
    order = [t for t, _ in sorted(steps, key=lambda each: each[1].version)]
    assert order in (["reject"], ["approve", "reject"])
    assert log_is_whole(kit) == 1 + len(steps)


def test_both_read_the_same_version_and_the_second_finds_it_done(kit: Kit) -> None:
    contention = Contention()
    direct = transitions(kit, contention, clock=together(2), sleep=lambda _: None)
    made = all_at_once([lambda: direct.apply(ask("submit_for_review"))] * 2)
    assert sorted((m.result, m.attempts) for m in made) == [("ALREADY_APPLIED", 2), ("OK", 1)]
    assert contention.counted("manifest", Counted.CONFLICT, Conflict.STALE) == 1
    assert log_is_whole(kit) == 1


# What somebody else does between our read and our write; never back to a state we cannot revert.
MEDDLING = {
    "REVIEWED": ["approve"],
    "APPROVED": ["reject"],
    "REJECTED": ["revert_to_draft", "submit_for_review"],
}


def meddled(kit: Kit, times: int, **more: Any) -> Transitions:
    """Transitions whose first `times` reads are each followed by somebody else's write."""
    other = transitions(kit)
    other.apply(ask("submit_for_review"))
    left = [times]

    def clock() -> datetime:
        if left[0]:
            left[0] -= 1
            for trigger in MEDDLING[kit.states("manifest")["m1"]]:
                assert other.apply(ask(trigger)).result == "OK"
        return datetime.now(UTC)

    return transitions(kit, clock=clock, **more)


def test_retries_wait_longer_each_time_and_end(kit: Kit) -> None:
    contention, waits = Contention(), list[float]()
    direct = meddled(kit, 5, contention=contention, sleep=waits.append, jitter=lambda: 0.5)
    late = ask("revert_to_draft")
    with pytest.raises(ContentionError, match="5 attempts"):
        direct.apply(late)
    assert waits == [0.005, 0.025, 0.125, 0.5]
    assert contention.counted("manifest", Counted.CONFLICT) == 5
    assert contention.counted("manifest", Counted.RETRY, Conflict.STALE) == 4
    assert contention.counted("manifest", Counted.EXHAUSTED) == 1
    assert late.message_id not in kit.results()
    assert direct.apply(late).result == "OK"
    log_is_whole(kit)


def test_the_circuit_opens_and_one_call_closes_it(kit: Kit) -> None:
    time = [0.0]
    policy = BreakerPolicy(threshold=2, reset_timeout=timedelta(seconds=10))
    contention = Contention(policy, lambda: time[0])
    direct = meddled(kit, 15, contention=contention, sleep=lambda _: None)
    for _ in range(2):
        with pytest.raises(ContentionError):
            direct.apply(ask("revert_to_draft"))
    with pytest.raises(InfraUnavailableError, match=r"10\.0 s"):
        direct.apply(ask("revert_to_draft"))
    time[0] = 10.0
    with pytest.raises(ContentionError):
        direct.apply(ask("revert_to_draft"))
    with pytest.raises(InfraUnavailableError):
        direct.apply(ask("revert_to_draft"))
    time[0] = 20.0
    assert direct.apply(ask("revert_to_draft")).result == "OK"
    assert direct.apply(ask("submit_for_review")).result == "OK"
    assert contention.counted("manifest", Counted.BARRED) == 2


def test_another_version_than_expected_is_refused_unless_it_is_done(kit: Kit) -> None:
    direct = transitions(kit)
    first = ask("submit_for_review")
    with pytest.raises(VersionConflictError) as told:
        direct.apply(first, expected_version=3)
    assert (told.value.expected, told.value.actual) == (3, 0)
    assert direct.apply(first, expected_version=0).version == 1
    done = direct.apply(ask("submit_for_review"), expected_version=0)
    assert (done.result, done.idempotent, done.version) == ("ALREADY_APPLIED", True, 1)
    with pytest.raises(VersionConflictError):
        direct.apply(ask("approve"), expected_version=0)
    assert log_is_whole(kit) == 1


def test_the_same_message_is_decided_once(kit: Kit) -> None:
    """Promise 3, one after the other, at the same time, and through the inbox too."""
    contention = Contention()
    direct = transitions(kit, contention, clock=together(2), sleep=lambda _: None)
    message = ask("submit_for_review")
    made = all_at_once([partial(direct.apply, message)] * 2)
    assert [m.result for m in made] == ["OK", "OK"]
    assert sorted(m.repeated for m in made) == [False, True]
    assert direct.apply(message, expected_version=7).repeated
    kit.submit(message)
    kit.drain("manifests")
    assert kit.count("processed") == 1
    assert log_is_whole(kit) == 1


def test_a_machine_that_locks_is_not_written_this_way(kit: Kit) -> None:
    with pytest.raises(MessageError, match="optimistic"):
        transitions(kit).apply(press("l1"))


def test_a_drain_and_direct_callers_share_an_entity(kit: Kit) -> None:
    """Promise 4: nothing lost, no deadlock, whoever writes."""
    direct = transitions(kit)
    cycle = ["submit_for_review", "approve", "reject", "revert_to_draft"]

    def call() -> list[str]:
        results = []
        for trigger in cycle * 3:
            try:
                results.append(direct.apply(ask(trigger)).result)
            except (ContentionError, InfraUnavailableError):
                results.append("gave up")
        return results

    def drain() -> list[str]:
        for trigger in cycle * 3:
            kit.submit(ask(trigger))
            kit.drain("manifests")
        return []

    made = all_at_once([call, call, call, drain])
    while kit.count("inbox"):
        kit.drain("manifests")
    directly = sum(results.count("OK") for results in made)
    steps = log_is_whole(kit)
    assert 1 <= directly <= steps
    assert list(kit.results().values()).count("OK") == steps
    assert kit.count("dead_letters") == 0


def test_a_process_has_transitions_of_its_own_and_tells_why_it_refuses(kit: Kit) -> None:
    direct = kit.process.transitions
    assert direct is kit.process.transitions
    refused = direct.apply(ask("approve"))
    assert (refused.result, refused.version) == ("INVALID_STATE", 0)
    assert refused.reason is not None
    assert "does not accept approve" in refused.reason
    assert direct.apply(ask("submit_for_review")).reason is None


def test_a_decision_rests_on_all_rows_of_its_entity(kit: Kit) -> None:
    """Another machine of the entity moved between the read and the write."""
    kit.submit(press("m1"))
    kit.drain()
    contention, left = Contention(), ["RELEASE"]

    def clock() -> datetime:
        if left:
            kit.submit(press("m1", left.pop()))
            kit.drain()
        return datetime.now(UTC)

    direct = transitions(kit, contention, clock=clock, sleep=lambda _: None)
    made = direct.apply(ask("submit_for_review"))
    assert (made.result, made.attempts) == ("OK", 2)
    assert contention.counted("manifest", Counted.CONFLICT, Conflict.STALE) == 1
    assert kit.sequences("m1") == [1, 2]


def test_a_row_held_too_long_is_tried_again(kit: Kit) -> None:
    contention = Contention()
    transitions(kit).apply(ask("submit_for_review"))

    def hurry(connection: Connection) -> None:
        connection.exec_driver_sql("SET LOCAL lock_timeout = '50ms'")

    with kit.engine.connect() as holder:
        holder.execute(text("SELECT FROM entities WHERE entity_id = 'm1' FOR UPDATE"))
        event.listen(kit.engine, "begin", hurry)
        direct = transitions(kit, contention, sleep=lambda _: holder.rollback())
        made = direct.apply(ask("approve"))
    assert (made.result, made.attempts, made.version) == ("OK", 2, 2)
    assert contention.counted("manifest", Counted.RETRY, Conflict.LOCKED) == 1
    assert log_is_whole(kit) == 2


def test_what_concerns_another_entity_goes_into_its_inbox_and_is_rung(kit: Kit) -> None:
    kit.runtime  # noqa: B018 - prepares contracts and partitions

    def decide(message: Envelope, context: OrchestratorContext) -> HandlerOutput:
        pulled = "manifests.events.TriggerPulled"
        if message.message_type == pulled:
            return HandlerOutput()
        here, there = (
            caused(message, context, "strange", ordinal, pulled, message.payload)
            for ordinal in range(2)
        )
        return HandlerOutput(events=(here, there.model_copy(update={"entity_id": "m2"})))

    specs = machine_message_specs("manifests")
    consumed = tuple(each.message_type for each in specs)
    handler = HandlerSpec("strange", Role.ORCHESTRATOR, "manifests", consumed, decide)
    registry = MessageRegistry(specs, [handler])
    made = transitions(kit, registry=registry).apply(ask("submit_for_review"))
    assert (made.result, made.entity_id, made.version) == ("OK", "m1", 1)
    assert kit.states("manifest") == {"m1": "REVIEWED"}
    assert kit.sql("SELECT entity_id FROM inbox") == [("m2",)]
    assert ("manifests", partition_of("m2", PARTITIONS)) in kit.rung
    kit.drain("manifests")
    assert kit.states("manifest") == {"m1": "REVIEWED", "m2": "REVIEWED"}
