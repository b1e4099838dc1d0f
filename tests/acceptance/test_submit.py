"""`rollcall submit`: what goes in, and every way in which nothing goes in."""

import json
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from rollcall.submit import LARGEST_INPUT
from tasks.settings import Settings
from tests.conftest import Rollcall, StartRole, sql
from tests.polling import eventually
from tests.runtime_kit import MACHINES


def message(entity_id: str = "l1", **said: Any) -> dict[str, Any]:
    return {
        "message_id": str(uuid4()),
        "correlation_id": str(uuid4()),
        "causation_id": None,
        "emitted_at": datetime.now(UTC).isoformat(),
        "entity_id": entity_id,
        "message_type": "lamp.commands.PullTrigger",
        "payload": {"machine": "lamp", "trigger": "PRESS", "data": {}},
    } | said


@pytest.fixture
def lamps(settings: Settings) -> Settings:
    return settings.at(contracts_dir=MACHINES)


def waiting(settings: Settings) -> int:
    return int(str(sql(settings.database_url, "SELECT count(*) FROM inbox")[0][0]))


def refusal(done: subprocess.CompletedProcess[str], settings: Settings) -> str:
    """The one line of a refusal that stored nothing."""
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.strip().splitlines()
    assert waiting(settings) == 0
    return line


def test_an_array_an_object_and_lines(rollcall: Rollcall, lamps: Settings, tmp_path: Path) -> None:
    forms = {
        json.dumps([message(), message()], indent=2): 2,
        json.dumps(message(), indent=2): 1,
        "\n\n".join(json.dumps(message()) for _ in range(3)) + "\n": 3,
    }
    for text, number in forms.items():
        file = tmp_path / "messages.json"
        file.write_text(text)
        done = rollcall("submit", str(file), "--json", settings=lamps)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == {"submitted": number, "repeated": 0}
    assert waiting(lamps) == 6


def test_a_repeated_message_id_is_stored_and_told(
    rollcall: Rollcall, lamps: Settings, tmp_path: Path
) -> None:
    twice = message()
    (tmp_path / "m").write_text(json.dumps([twice, twice]))
    done = rollcall("submit", str(tmp_path / "m"), settings=lamps)
    assert done.stdout == "submitted 2, 1 of them with a message_id said before\n"
    assert waiting(lamps) == 2


def test_a_worker_folds_at_once_what_was_submitted(
    rollcall: Rollcall, lamps: Settings, start_role: StartRole, tmp_path: Path
) -> None:
    folder = str(MACHINES)
    start_role("worker", "worker", ROLLCALL_CONTRACTS_DIR=folder)
    (tmp_path / "m").write_text(json.dumps(message("l7")))
    assert rollcall("submit", str(tmp_path / "m"), settings=lamps).returncode == 0
    states = "SELECT state FROM entities WHERE entity_id = 'l7'"
    assert eventually(lambda: sql(lamps.database_url, states), "the fold") == [("lit",)]


LONG_AGO = (datetime.now(UTC) - timedelta(days=400)).isoformat()
AHEAD = (datetime.now(UTC) + timedelta(days=1)).isoformat()


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ({"message_type": "lamp.commands.PullTriger"}, "did you mean lamp.commands.PullTrigger?"),
        ({"message_type": "lump.commands.PullTrigger"}, "message_type"),
        ({"message_type": "lamp.events.TriggerPulled"}, "not accepted from outside"),
        ({"payload": {"machine": "lamp", "data": {}}}, "payload.trigger"),
        (
            {"payload": {"machine": "lamp", "trigger": "PRESS", "data": {"x": "y" * 10_000_000}}},
            "payload: takes at most",
        ),
        ({"emitted_at": "2026-01-01T00:00:00"}, "emitted_at"),
        ({"emitted_at": LONG_AGO}, "emitted_at"),
        ({"emitted_at": AHEAD}, "emitted_at"),
        ({"causation_id": str(uuid4())}, "causation_id"),
        ({"message_id": "not-an-id"}, "message_id"),
        ({"extra": 1}, "extra"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_one_bad_message_is_named_and_nothing_is_stored(
    rollcall: Rollcall, lamps: Settings, tmp_path: Path, said: dict[str, Any], named: str
) -> None:
    file = tmp_path / "messages.jsonl"
    file.write_text("\n".join(json.dumps(each) for each in (message(), message(**said))))
    line = refusal(rollcall("submit", str(file), settings=lamps), lamps)
    assert named in line
    assert "message 1" in line


def test_one_bad_of_ten_thousand_and_one_too_many(
    rollcall: Rollcall, lamps: Settings, tmp_path: Path
) -> None:
    lines = [json.dumps(message(f"l{number}")) for number in range(10_000)]
    file = tmp_path / "messages.jsonl"
    file.write_text("\n".join([*lines[:7_000], json.dumps(message(payload=[])), *lines[7_001:]]))
    line = refusal(rollcall("submit", str(file), settings=lamps), lamps)
    assert "message 7000 (line 7001): payload" in line
    file.write_text("\n".join([*lines, lines[0]]))
    assert "more than 10000" in refusal(rollcall("submit", str(file), settings=lamps), lamps)
    file.write_text("\n".join(lines))
    assert rollcall("submit", str(file), settings=lamps).stdout == "submitted 10000\n"


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"", "there is no message"),
        (b"[]", "there is no message"),
        (b"hello", "line 1 is not JSON"),
        (b'{}\n{"a": ', "line 2 is not JSON"),
        (b"[{},]", "line 1 is not JSON"),
        (b"[{}", "line 1 is not JSON"),
        (b"[{}] 1", "line 1 is not JSON"),
        (b"[" * 200_000, "line 1 is not JSON"),
        (b"\xff\xfe{", "no UTF-8"),
        (b"3", "message 0 (line 1)"),
    ],
    ids=range(10),
)
def test_what_is_no_list_of_messages_is_refused_with_its_line(
    rollcall: Rollcall, lamps: Settings, tmp_path: Path, content: bytes, named: str
) -> None:
    file = tmp_path / "messages"
    file.write_bytes(content)
    assert named in refusal(rollcall("submit", str(file), settings=lamps), lamps)


def test_missing_folders_and_endless_files_are_refused(
    rollcall: Rollcall, lamps: Settings, tmp_path: Path
) -> None:
    missing = refusal(rollcall("submit", str(tmp_path / "none"), settings=lamps), lamps)
    assert "cannot be read" in missing
    assert "cannot be read" in refusal(rollcall("submit", str(tmp_path), settings=lamps), lamps)
    endless = refusal(rollcall("submit", "/dev/zero", settings=lamps), lamps)
    assert f"larger than {LARGEST_INPUT} bytes" in endless
