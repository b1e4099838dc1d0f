"""How attempts to register went is kept, in the transaction that decided it."""

from collections.abc import Iterator

import pytest

from tasks.settings import Settings
from tests.integration.test_effects import REFUSED, introduced, said, world_of
from tests.runtime_kit import Kit, kit_of

OUTCOMES = (
    "SELECT node_id, generation, status, postgres_applied, consul_applied"
    " FROM registration_outcomes ORDER BY node_id, generation"
)


@pytest.fixture
def kit(settings: Settings) -> Iterator[Kit]:
    yield from kit_of(settings)


def test_every_attempt_has_one_outcome(kit: Kit) -> None:
    world = world_of(kit)
    kit.submit(*(introduced(node_id) for node_id in ("n1", "n2", "n3")))
    world.turn()
    assert kit.sql(OUTCOMES) == [(each, 1, "success", True, True) for each in ("n1", "n2", "n3")]


def test_a_partial_outcome_becomes_a_success_when_it_recovers(kit: Kit) -> None:
    world = world_of(kit)
    world.consul.script.append(REFUSED)
    kit.submit(introduced("n1"))
    world.turn()
    assert kit.sql(OUTCOMES) == [("n1", 1, "partial", True, False)]
    assert kit.sql("SELECT error FROM registration_outcomes") == [("no luck",)]
    pulled = {"machine": "registration", "trigger": "RETRY", "data": {}}
    kit.submit(said("n1", "commands.PullTrigger", pulled))
    world.turn()
    assert kit.sql(OUTCOMES) == [("n1", 1, "success", True, True)]
    assert kit.sql("SELECT error FROM registration_outcomes") == [(None,)]


def test_status_and_last_heartbeat_are_columns_of_the_view(kit: Kit) -> None:
    world = world_of(kit)
    kit.submit(introduced("n1"))
    world.turn()
    found = kit.sql(
        "SELECT node_id FROM node_registrations"
        " WHERE status = 'registered' AND last_heartbeat IS NULL"
    )
    assert found == [("n1",)]
