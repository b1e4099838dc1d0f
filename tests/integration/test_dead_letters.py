"""Dead letters on a real database: kept once, found, done again once, and closed."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy.orm import Session

from tasks.settings import Settings
from tasks.store.dead_letters import EffectKey, EffectLetter, close_for, put_effects
from tests.runtime_kit import Kit, kit_of


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
