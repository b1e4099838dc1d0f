"""The loop on a real database: submit, drain, and what is in the tables afterwards."""

from collections.abc import Iterator

import pytest

from tasks.settings import Settings
from tests.runtime_kit import Kit, kit_of, press


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
