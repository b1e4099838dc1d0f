"""Dead letters on a real database: kept once, found, done again once, and closed."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy.orm import Session

from models.envelope import Envelope
from tasks import batch
from tasks.dead_letters import discard, replay
from tasks.settings import Settings
from tasks.store import letters
from tasks.store.dead_letters import (
    DeadLetter,
    EffectKey,
    EffectLetter,
    close_for,
    put,
    put_effects,
)
from tasks.store.letters import Filter
from tests.runtime_kit import Kit, kit_of, press
from tests.unit.test_registration_orchestrator import NODE


@pytest.fixture
def kit(settings: Settings) -> Iterator[Kit]:
    yield from kit_of(settings)


def given_up(entity_id: str = "n1", **said: Any) -> EffectLetter:
    """An intent that the executor gave up."""
    fields: dict[str, Any] = {
        "domain": "registration",
        "machine": "registration",
        "kind": "consul.register",
        "entity_id": entity_id,
        "intent_id": uuid4(),
        "registration_id": "r1",
        "payload": {"node_id": entity_id, "registration_id": "r1", "service_id": "s"},
        "correlation_id": uuid4(),
        "causation_id": uuid4(),
        "reason": "attempts used up",
        "error": "connection refused",
        "attempts": 5,
        "history": [{"attempt": 5, "error": "connection refused"}],
        "at": datetime.now(UTC),
        "sequence": 4,
    }
    return EffectLetter(**fields | said)


def keep(kit: Kit, *letters: EffectLetter) -> None:
    with Session(kit.engine) as session, session.begin():
        put_effects(session, letters)


def test_giving_up_the_same_thing_again_refreshes_its_letter(kit: Kit) -> None:
    keep(kit, given_up(), given_up("n2"))
    again = given_up(attempts=9, error="500", reason="permanent", history=[{"attempt": 9}])
    keep(kit, given_up(attempts=7), again)
    rows = kit.sql(
        "SELECT entity_id, message_type, attempts, error, reason, history,"
        " CAST(message_id AS text), envelope, created_at FROM dead_letters ORDER BY entity_id"
    )
    assert len(rows) == 2
    (entity_id, message_type, attempts, error, reason, history, message_id, envelope, _) = rows[0]
    assert (entity_id, message_type) == ("n1", "registration.intents.ConsulRegisterIntent")
    assert (attempts, error, reason, history) == (9, "500", "permanent", [{"attempt": 9}])
    assert UUID(message_id) == again.intent_id
    assert (envelope["payload"], envelope["sequence"]) == (dict(again.payload), 4)


def test_what_has_no_registration_is_one_thing_for_each_intent(kit: Kit) -> None:
    bare = [given_up(registration_id=None, kind="http.request") for _ in range(2)]
    keep(kit, *bare)
    assert kit.count("dead_letters") == 2


def test_a_later_success_closes_the_letter_of_the_same_thing(kit: Kit) -> None:
    keep(kit, given_up(), given_up(registration_id="r2"), given_up(kind="consul.deregister"))
    with Session(kit.engine) as session, session.begin():
        keys = [EffectKey("n1", "consul.register", "r1"), EffectKey("n9", "consul.register", None)]
        assert close_for(session, keys, "succeeded") == 1
        assert close_for(session, keys, "succeeded") == 0
    closed = kit.sql("SELECT kind, registration_id, closed_as FROM dead_letters ORDER BY 1, 2")
    assert closed == [
        ("consul.deregister", "r1", None),
        ("consul.register", "r1", "succeeded"),
        ("consul.register", "r2", None),
    ]
    keep(kit, given_up())
    assert kit.count("dead_letters") == 4


def numbers(kit: Kit, **which: Any) -> list[int]:
    with Session(kit.engine) as session:
        return letters.ids(session, Filter(**which))


def bury(kit: Kit, number: int) -> None:
    with Session(kit.engine) as session, session.begin():
        dead = (press(f"l{each}") for each in range(number))
        put(session, [DeadLetter("lamp", each, {}, "handler failed", "oops", 0) for each in dead])


def test_a_poison_message_is_folded_once_its_handler_is_mended(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise 8: inspectable, replayable; and behind what came meanwhile (ruling 10)."""

    def failing(*said: Any) -> Any:
        raise ValueError("a bug, and password=hunter22")

    poison = press("l1", "RELEASE")
    with monkeypatch.context() as broken:
        broken.setattr(batch, "step", failing)
        kit.submit(poison)
        kit.drain()
    assert (kit.count("dead_letters"), kit.states()) == (1, {})
    kit.submit(poison)
    kit.submit(press("l1"))
    kit.drain()
    assert kit.states() == {"l1": "lit"}
    (letter,) = numbers(kit)
    kit.rung.clear()
    assert [each.outcome for each in replay(kit.process, [letter])] == ["replayed"]
    assert kit.rung
    kit.drain()
    assert kit.states() == {"l1": "dark"}
    assert kit.results()[poison.message_id] == "OK"
    assert kit.sql("SELECT closed_as FROM dead_letters") == [("replayed",)]
    assert "hunter22" not in str(kit.sql("SELECT error FROM dead_letters"))
    kit.audit()


def test_ten_thousand_letters_replayed_by_four_at_once_go_back_once_each(kit: Kit) -> None:
    bury(kit, 10_000)
    wanted = numbers(kit, machine="lamp", domain="lamp", kind="message", reason="HANDLER")
    assert len(wanted) == 10_000
    with ThreadPoolExecutor(4) as pool:
        rounds = [*pool.map(lambda _: replay(kit.process, wanted), range(4))]
    assert sum(each.done for fates in rounds for each in fates) == 10_000
    assert {each.outcome for fates in rounds for each in fates} <= {"replayed", "closed", "busy"}
    assert kit.sql("SELECT count(*), count(DISTINCT message_id) FROM inbox") == [(10_000, 10_000)]
    assert numbers(kit) == []


def test_what_is_unknown_or_closed_is_left_and_told(kit: Kit) -> None:
    bury(kit, 2)
    first, second = numbers(kit)
    assert [each.outcome for each in discard(kit.engine, [first, first, 999], "a test")] == [
        "discarded",
        "unknown",
    ]
    fates = {each.dead_letter_id: each for each in replay(kit.process, [first, second, 999])}
    assert fates[first].why == "it is closed: discarded: a test"
    assert [fates[each].outcome for each in (first, second, 999)] == [
        "closed",
        "replayed",
        "unknown",
    ]
    assert kit.count("inbox") == 1


def result(node_id: str, name: str, **said: Any) -> Envelope:
    return press(node_id, message_type=f"registration.events.{name}", payload=said)


def standing(kit: Kit, machine: str = "registration") -> tuple[str, int, Mapping[str, Any]]:
    ((state, sequence, context),) = kit.sql(
        "SELECT state, last_applied_sequence, context FROM entities"
        f" WHERE entity_id = 'n1' AND machine = '{machine}'"
    )
    return state, sequence, context


def introduce(kit: Kit) -> str:
    kit.submit(press("n1", message_type="registration.events.NodeIntrospected", payload=NODE))
    kit.drain("registration")
    return str(standing(kit)[2]["registration_id"])


def test_an_intent_its_machine_still_waits_for_is_a_new_attempt(kit: Kit) -> None:
    registration_id = introduce(kit)
    _, sequence, _ = standing(kit)
    letter = given_up(registration_id=registration_id, sequence=sequence)
    keep(kit, letter)
    assert [each.done for each in replay(kit.process, numbers(kit))] == [True]
    rows = kit.sql(
        "SELECT attempt, tries, sequence, history, payload, leased_until, registration_id, service"
        f" FROM intents WHERE intent_id = '{letter.intent_id}'"
    )
    history, payload = [*letter.history], dict(letter.payload)
    assert rows == [(5, 0, sequence, history, payload, None, registration_id, "consul")]


def test_a_removal_goes_back_whatever_its_machine_does(kit: Kit) -> None:
    """Ruling 22."""
    letter = given_up(kind="consul.deregister")
    keep(kit, letter)
    assert [each.done for each in replay(kit.process, numbers(kit))] == [True]
    assert kit.count("intents") == 1


def test_an_attempt_that_is_over_is_retried_while_its_guard_allows(kit: Kit) -> None:
    """Ruling 26, first half."""
    registration_id = introduce(kit)
    kit.feed(result("n1", "PostgresUpsertFailed", postgres_applied=False, postgres_error="down"))
    kit.drain("registration")
    assert standing(kit)[0] == "failed"
    keep(kit, given_up(kind="postgres.upsert_registration", registration_id=registration_id))
    (fate,) = replay(kit.process, numbers(kit))
    assert (fate.outcome, "RETRY in failed" in fate.why) == ("replayed", True)
    kit.drain("registration")
    state, _, context = standing(kit)
    assert (state, context["registration_id"]) == ("registering_postgres", registration_id)


def test_an_attempt_that_may_not_be_retried_ends_and_the_next_begins(kit: Kit) -> None:
    """Ruling 26, second half: from the introspection that was stored."""
    registration_id = introduce(kit)
    kit.feed(result("n1", "PostgresUpsertSucceeded", postgres_applied=True))
    for _ in range(4):
        kit.feed(result("n1", "ConsulRegisterFailed", consul_applied=False, consul_error="down"))
        kit.feed(result("n1", "NodeRegistrationRetried"))
    kit.drain("registration")
    kit.feed(result("n1", "NodeRegistrationRetriesExhausted"))
    kit.drain("registration")
    state, _, context = standing(kit)
    assert (state, context["retry_count"]) == ("failed", 3)
    keep(kit, given_up(registration_id=registration_id))
    (fate,) = replay(kit.process, numbers(kit))
    assert "new generation" in fate.why
    kit.drain("registration")
    state, _, context = standing(kit)
    assert (state, context["generation"]) == ("registering_postgres", 2)
    assert context["registration_id"] != registration_id
    assert standing(kit, "handshake")[0] == "accepted"
    removed = kit.sql("SELECT payload FROM intents WHERE kind = 'postgres.delete_registration'")
    assert [each["registration_id"] for (each,) in removed] == [registration_id]
    keep(kit, given_up(registration_id=registration_id))
    (fate,) = replay(kit.process, numbers(kit))
    assert (fate.outcome, "took its place" in fate.why) == ("refused", True)
    kit.audit()


def test_a_machine_that_takes_no_retry_says_so(kit: Kit) -> None:
    kit.submit(press("l1"))
    kit.drain()
    keep(kit, given_up("l1", domain="lamp", machine="lamp", kind="http.request", sequence=9))
    (fate,) = replay(kit.process, numbers(kit))
    assert (fate.outcome, "takes no RETRY" in fate.why) == ("refused", True)
    assert len(numbers(kit)) == 1
