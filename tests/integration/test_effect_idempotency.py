"""What a service is asked for twice is done once, on a real database."""

import json
from collections.abc import Iterator

import pytest

from tasks.settings import Settings
from tests.integration.test_effects import UNREACHED, introduced, world_of
from tests.runtime_kit import Kit, kit_of


@pytest.fixture
def kit(settings: Settings) -> Iterator[Kit]:
    yield from kit_of(settings)


def asked_twice(kit: Kit, intent_id: str) -> None:
    """Register a node, then put the same intent there again."""
    world = world_of(kit)
    kit.submit(introduced("n1"))
    world.turn()
    ((claimed,),) = world.consul.asked
    payload = json.dumps(dict(claimed.payload)).replace("'", "''")
    kit.sql(
        "INSERT INTO intents (intent_id, domain, partition, entity_id, machine, kind, service,"
        " payload, correlation_id, causation_id, created_at, due_at, sequence, registration_id)"
        f" SELECT {intent_id}, l.domain, e.partition, l.entity_id, l.machine, l.kind, 'consul',"
        f" CAST('{payload}' AS json), e.correlation_id, e.last_applied_event_id, now(), now(),"
        " e.last_applied_sequence, l.registration_id FROM effect_ledger AS l JOIN entities AS e"
        " USING (entity_id, machine) WHERE l.kind = 'consul.register'"
    )
    assert world.effects.run("consul").done == 1
    assert len(world.consul.asked) == 1
    assert (kit.count("intents"), kit.count("dead_letters")) == (0, 0)
    rows = kit.sql("SELECT status FROM effect_ledger WHERE kind = 'consul.register'")
    assert rows == [("succeeded",)]
    world.fold()
    assert world.state() == "registered"


def test_duplicate_intent_causes_no_additional_side_effects(kit: Kit) -> None:
    """Promise 7: the intent's own id comes first."""
    asked_twice(kit, "l.intent_id")


def test_natural_key_conflict_treated_as_duplicate(kit: Kit) -> None:
    """Promise 7: then the natural key. The second asking is answered, and nothing is done."""
    asked_twice(kit, "gen_random_uuid()")


def test_backoff_policy_applied_on_transient_failure(kit: Kit) -> None:
    """Promise 8: each wait may be twice as long as the one before it."""
    world = world_of(kit)
    world.consul.script = [UNREACHED] * 3
    kit.submit(introduced("n1"))
    world.turn()
    waits: list[float] = []
    for _ in range(3):
        ((wait,),) = kit.sql(
            "SELECT CAST(extract(epoch FROM due_at) AS float8)"
            " - extract(epoch FROM CAST(history->-1->>'at' AS timestamptz)) FROM intents"
        )
        waits.append(round(float(wait), 3))
        world.pass_by(1)
        world.turn()
    assert waits == [0.1, 0.2, 0.4]  # half of each ceiling: the test's jitter is 0.5
    assert world.state() == "registered"
