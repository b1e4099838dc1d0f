"""The machines to run, with the patience that the settings say."""

from datetime import timedelta

import pytest

from fsm.contract_yaml import load_contract
from fsm.library import all_machines
from models.errors import ConfigurationError


def _timeouts(patience: dict[str, timedelta]) -> dict[str, int]:
    loaded = all_machines(patience=patience)["handshake"]
    assert load_contract(loaded.document).content_hash == loaded.contract.content_hash
    return {each.name: each.timeout.after_ms for each in loaded.contract.states if each.timeout}


def test_said_patience_replaces_that_of_the_file_and_is_in_the_kept_document() -> None:
    said = {"awaiting_ack": timedelta(seconds=4), "active": timedelta(milliseconds=6500)}
    assert _timeouts(said) == _timeouts({}) | {"awaiting_ack": 4000, "active": 6500}


def test_the_same_patience_is_the_same_contract() -> None:
    said = {"awaiting_ack": timedelta(seconds=30), "active": timedelta(seconds=60)}
    assert all_machines(patience=said) == all_machines()


def test_a_state_without_a_timeout_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="ack_received has no timeout"):
        all_machines(patience={"ack_received": timedelta(seconds=1)})
