"""Small pure things everything stands on: topics, the error tree, ticks and the beat schedule."""

import ast
import json
import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from celery.beat import BeatLazyFunc
from pydantic import ValidationError

from beat_schedule import beat_schedule
from models import errors
from models.messages.runtime import RuntimeTick
from models.topics import Category, all_topics, topic
from tasks.app import TASK_SECONDS, VISIBILITY_SECONDS
from tasks.settings import Settings
from tasks.stall import Stall
from tasks.ticks import TickSource
from tasks.wiring import celery_app
from tests.conftest import REPOSITORY

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SETTINGS = Settings.from_environment({"ROLLCALL_BROKER_URL": "redis://127.0.0.1:1/0"})


def test_topics_follow_the_taxonomy() -> None:
    assert topic("registration", Category.EVENTS) == "onex.registration.events"
    assert "onex.runtime.events" in all_topics()
    assert all(re.fullmatch(r"onex\.[a-z_]+\.(commands|events|intents)", x) for x in all_topics())


@pytest.mark.parametrize("domain", ["Registration", "my-domain", "", "a.b", "1st", "a\n"])
def test_a_domain_outside_the_taxonomy_is_refused(domain: str) -> None:
    with pytest.raises(ValueError, match="domain"):
        topic(domain, Category.EVENTS)


def drawn_tree(drawing: str) -> dict[str, tuple[str, str]]:
    """Each error of a drawing with its parent and the module named beside it."""
    tree: dict[str, tuple[str, str]] = {}
    above: list[str] = []
    for line in drawing.splitlines():
        found = re.match(r"    ([│├└─ ]*)(\w+Error)\b(.*)", line)
        if found is None:
            continue
        depth = len(found[1]) // 4
        above[depth:] = [found[2]]
        module = re.search(r"\(((?:fsm|tasks|rollcall|models)\.[\w.]+)\)$", found[3])
        tree[found[2]] = (above[depth - 1] if depth else "", module[1] if module else "")
    return tree


def defined_tree() -> dict[str, tuple[str, str]]:
    """The same from the sources: every class that descends from RollcallError, in any package."""
    bases: dict[str, tuple[str, str]] = {}
    for package in ("models", "fsm", "tasks", "rollcall"):
        for path in sorted((REPOSITORY / package).rglob("*.py")):
            module = ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef) and node.bases:
                    parent = ast.unparse(node.bases[0]).rpartition(".")[2]
                    bases[node.name] = (parent, "" if module == "models.errors" else module)
    tree = {"RollcallError": ("", "")}
    while found := {
        name: told for name, told in bases.items() if told[0] in tree and name not in tree
    }:
        tree |= found
    return tree


def test_the_error_tree_is_drawn_as_it_is() -> None:
    assert drawn_tree(errors.__doc__ or "") == defined_tree()


def test_ticks_of_one_instance_are_numbered_upwards_and_in_utc() -> None:
    source = TickSource("rt", lambda: NOON.astimezone(timezone(timedelta(hours=3))))
    ticks = [RuntimeTick.model_validate(source()) for _ in range(3)]
    assert [tick.tick_sequence for tick in ticks] == [1, 2, 3]
    assert {tick.runtime_id for tick in ticks} == {source.runtime_id}
    assert ticks[0].now == NOON
    assert json.loads(ticks[0].model_dump_json())["now"] == "2026-01-01T12:00:00Z"


def test_a_restart_is_another_instance_so_that_numbers_never_fall() -> None:
    first, second = (TickSource("rt", lambda: NOON).runtime_id for _ in range(2))
    assert first != second


@pytest.mark.parametrize(
    "payload",
    [
        {"now": "2026-01-01T12:00:00", "tick_sequence": 1, "runtime_id": "r"},
        {"now": "2026-01-01T12:00:00Z", "tick_sequence": 0, "runtime_id": "r"},
        {"now": "2026-01-01T12:00:00Z", "tick_sequence": 1, "runtime_id": ""},
        {"now": "2026-01-01T12:00:00Z", "tick_sequence": 1},
        {"now": "2026-01-01T12:00:00Z", "tick_sequence": 1, "runtime_id": "r", "more": 1},
    ],
)
def test_a_malformed_tick_is_refused(payload: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        RuntimeTick.model_validate(payload)


def test_beat_emits_a_fresh_tick_that_expires_within_its_interval() -> None:
    source = TickSource("rt", lambda: NOON)
    schedule = beat_schedule(timedelta(milliseconds=250), source, timedelta(minutes=5))
    entry, collect = schedule["runtime-tick"], schedule["collect-garbage"]
    assert collect["options"] == {"queue": "onex.registration.intents", "expires": 300}
    lazy = entry["args"][0]
    assert isinstance(lazy, BeatLazyFunc)
    assert [lazy()["tick_sequence"], lazy()["tick_sequence"]] == [1, 2]
    assert entry["options"] == {"queue": "onex.runtime.events", "expires": 0.25}
    assert entry["schedule"] == timedelta(milliseconds=250)


def test_the_app_has_its_immunities() -> None:
    conf = celery_app(SETTINGS).conf
    assert conf.accept_content == ["json"]
    assert {conf.task_serializer, conf.event_serializer, conf.result_serializer} == {"json"}
    assert conf.task_acks_late
    assert conf.task_reject_on_worker_lost
    assert conf.task_time_limit == TASK_SECONDS
    assert conf.broker_transport_options["visibility_timeout"] == VISIBILITY_SECONDS
    assert conf.broker_transport_options["visibility_timeout"] > conf.task_time_limit
    assert conf.worker_soft_shutdown_timeout > 0
    assert conf.worker_prefetch_multiplier == 1
    assert not conf.task_create_missing_queues
    assert {queue.name for queue in conf.task_queues} == set(all_topics())


def test_the_app_knows_exactly_its_tasks() -> None:
    app = celery_app(SETTINGS)
    app.finalize()
    assert {name for name in app.tasks if not name.startswith("celery.")} == {
        "runtime.events.RuntimeTick",
        "runtime.DrainPartition",
        "runtime.RunEffects",
        "runtime.CollectGarbage",
    }


def test_a_worker_is_stalled_only_when_messages_wait_and_it_takes_none() -> None:
    stall = Stall(limit=60)
    assert not stall.seen(0, taken=5, busy=False, waiting=True)
    assert not stall.seen(10, taken=5, busy=False, waiting=True)
    assert not stall.seen(69, taken=5, busy=False, waiting=True)
    assert stall.seen(70, taken=5, busy=False, waiting=True)


@pytest.mark.parametrize(
    ("taken", "busy", "waiting"), [(6, False, True), (5, True, True), (5, False, False)]
)
def test_progress_work_in_hand_or_nothing_to_do_is_no_stall(
    taken: int, busy: bool, waiting: bool
) -> None:
    stall = Stall(limit=60)
    stall.seen(0, taken=5, busy=False, waiting=True)
    stall.seen(1, taken=5, busy=False, waiting=True)
    assert not stall.seen(100, taken=taken, busy=busy, waiting=waiting)
    assert not stall.seen(101, taken=taken, busy=False, waiting=True)
    assert not stall.seen(150, taken=taken, busy=False, waiting=True)
