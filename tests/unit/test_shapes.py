"""The execution shapes, read from the source: one known-bad handler for every rule."""

import subprocess
import sys
from pathlib import Path

import pytest

from fsm.shapes import Rule, Violation, violations
from models.errors import ConfigurationError
from models.output import Role
from rollcall.shapes import handler_sources, main, source_violations

REPOSITORY = Path(__file__).parent.parent.parent
PURE = (Role.ORCHESTRATOR, Role.REDUCER)


def rules(source: str, role: Role) -> set[Rule]:
    return {each.rule for each in violations(source, role)}


def test_orchestrator_performing_io_rejected() -> None:
    source = (
        "import socket\n\ndef decide(message, context):\n    socket.create_connection(('x', 1))\n"
    )
    (found,) = violations(source, Role.ORCHESTRATOR, "fsm/orchestrators/bad.py")
    assert found == Violation(
        "fsm/orchestrators/bad.py", 1, Rule.IO, "imports socket, which is not known to be pure"
    )
    assert str(found).startswith("fsm/orchestrators/bad.py:1 io imports socket")


def test_reducer_accessing_system_time_rejected() -> None:
    source = (
        "from datetime import UTC, datetime\n\n"
        "def fold(message, context):\n    return datetime.now(UTC)\n"
    )
    assert Rule.CLOCK in rules(source, Role.REDUCER)
    assert {each.line for each in violations(source, Role.REDUCER)} == {4}


def test_reducer_mentioning_injected_time_rejected() -> None:
    assert rules("def fold(message, context):\n    return context.now\n", Role.REDUCER) == {
        Rule.NOW
    }


@pytest.mark.parametrize("role", Role)
def test_handler_direct_publish_rejected(role: Role) -> None:
    source = "def handle(message, context):\n    context.task.apply_async()\n"
    assert rules(source, role) == {Rule.PUBLISH}


def test_reducer_source_building_events_rejected() -> None:
    source = "def fold(message, context):\n    return HandlerOutput(events=(message,))\n"
    assert rules(source, Role.REDUCER) == {Rule.OUTPUT}


@pytest.mark.parametrize("part", ["intents", "projections"])
def test_orchestrator_source_building_more_than_events_rejected(part: str) -> None:
    source = f"def decide(message, context):\n    return HandlerOutput({part}=found)\n"
    assert rules(source, Role.ORCHESTRATOR) == {Rule.OUTPUT}


@pytest.mark.parametrize("part", ["intents", "projections"])
def test_effect_source_building_more_than_events_rejected(part: str) -> None:
    source = f"def execute(message, context):\n    return HandlerOutput({part}=found)\n"
    assert rules(source, Role.EFFECT) == {Rule.OUTPUT}


@pytest.mark.parametrize("role", PURE)
@pytest.mark.parametrize(
    "module",
    [
        "os", "sys", "io", "pathlib", "socket", "ssl", "subprocess", "threading", "asyncio",
        "multiprocessing", "urllib.request", "http.client", "logging", "importlib", "ctypes",
        "requests", "httpx", "sqlalchemy", "psycopg2", "celery", "kombu", "redis", "consul",
        "structlog", "a_library_of_tomorrow", "tasks.runtime", "rollcall.cli", "beat_schedule",
        "models.tables", "fsm.contract_yaml",
    ],
)  # fmt: skip
def test_a_module_that_does_io_is_refused_however_it_is_imported(module: str, role: Role) -> None:
    assert rules(f"import {module} as hidden\n", role) == {Rule.IO}
    assert rules(f"from {module} import something\n", role) == {Rule.IO}
    assert rules(f"def late():\n    import {module}\n", role) == {Rule.IO}


@pytest.mark.parametrize("role", PURE)
@pytest.mark.parametrize(
    "line",
    [
        "open('x')", "reader = open", "input()", "print(1)", "eval('1')", "exec('1')",
        "compile('1', '', 'eval')", "__import__('os')", "breakpoint()", "from . import other",
        "from models import tables", "from fsm.library import load_machine",
    ],
)  # fmt: skip
def test_io_without_a_tell_tale_import_is_refused(line: str, role: Role) -> None:
    assert Rule.IO in rules(line, role)


@pytest.mark.parametrize("role", PURE)
@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "from time import monotonic as tick\nx = tick()",
        "import datetime\nx = datetime.datetime.now()",
        "import datetime as d\nx = d.datetime.utcnow()",
        "from datetime import datetime as dt\nread = dt.now",
        "from datetime import date\nx = date.today()",
        "x = context.clock.now()",
        "x = getattr(thing, 'utcnow')()",
    ],
)
def test_a_clock_is_refused_by_whatever_name(source: str, role: Role) -> None:
    assert Rule.CLOCK in rules(source, role)


@pytest.mark.parametrize("role", PURE)
@pytest.mark.parametrize(
    "source",
    [
        "import random",
        "from secrets import token_hex",
        "import uuid\nx = uuid.uuid4()",
        "from uuid import uuid4 as fresh\nx = fresh()",
        "from uuid import uuid1\nmake = uuid1",
    ],
)
def test_chance_is_refused(source: str, role: Role) -> None:
    assert Rule.CHANCE in rules(source, role)


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("name", ["delay", "apply_async", "send_task", "publish", "ring"])
def test_every_way_to_publish_is_refused_to_every_role(name: str, role: Role) -> None:
    assert rules(f"a.b.{name}(1)", role) == {Rule.PUBLISH}
    assert rules(f"{name}(1)", role) == {Rule.PUBLISH}
    assert rules(f"getattr(a, '{name}')(1)", role) == {Rule.PUBLISH}
    assert Rule.PUBLISH in rules(f"from tasks.doorbell import {name} as quietly", role)


@pytest.mark.parametrize(
    "line",
    [
        "def fold(message, now): ...",
        "fold(now=1)",
        "x = context['now']",
        "x = getattr(context, 'now')",
        "from elsewhere import now as later",
        "def fold(message, context: OrchestratorContext): ...",
        "def fold(message, context: EffectContext): ...",
        "from models.output import EffectContext",
    ],
)
def test_a_reducer_cannot_get_now_under_any_name(line: str) -> None:
    assert Rule.NOW in rules(line, Role.REDUCER)
    assert Rule.NOW not in rules(line, Role.ORCHESTRATOR)


@pytest.mark.parametrize(
    "line",
    [
        "HandlerOutput((), wanted)",
        "HandlerOutput(**parts)",
        "HandlerOutput(*parts)",
        "models.output.HandlerOutput(intents=(wanted,))",
        "dataclasses.replace(output, intents=(wanted,))",
        "from models.output import HandlerOutput as Said\nSaid(intents=wanted)",
    ],
)
def test_an_output_is_seen_through_positions_stars_and_copies(line: str) -> None:
    assert rules(line, Role.ORCHESTRATOR) == {Rule.OUTPUT}


def test_a_source_that_cannot_be_read_is_no_clean_source() -> None:
    (found,) = violations("x = 1\ndef (:\n", Role.REDUCER)
    assert (found.rule, found.line) == (Rule.SYNTAX, 2)
    assert rules("x = '\0'", Role.REDUCER) == {Rule.SYNTAX}


ORCHESTRATOR = """
from datetime import datetime, timedelta
from uuid import uuid5
from models.output import HandlerOutput, OrchestratorContext

def decide(message, context: OrchestratorContext) -> HandlerOutput:
    late = message.emitted_at + timedelta(seconds=30) < context.now
    return HandlerOutput(events=(message,) if late else (), intents=(), metrics=(1,), logs=())
"""
REDUCER = """
from datetime import timedelta
from models.output import HandlerOutput, ReducerContext

def fold(message, context: ReducerContext) -> HandlerOutput:
    deadline = message.emitted_at + timedelta(seconds=30)
    return HandlerOutput(projections=(deadline,), intents=(1,))
"""
EFFECT = """
import socket, time
from datetime import UTC, datetime
from uuid import uuid4

def execute(message, context) -> HandlerOutput:
    socket.create_connection(("localhost", 1))
    return HandlerOutput(events=(message,))
"""


@pytest.mark.parametrize(
    ("source", "role"),
    [(ORCHESTRATOR, Role.ORCHESTRATOR), (REDUCER, Role.REDUCER), (EFFECT, Role.EFFECT)],
)
def test_a_handler_of_the_right_shape_is_accepted(source: str, role: Role) -> None:
    assert violations(source, role) == ()


def test_the_handlers_of_this_repository_have_their_shapes() -> None:
    assert source_violations(REPOSITORY) == ()
    roles = {path.relative_to(REPOSITORY).as_posix(): r for path, r in handler_sources(REPOSITORY)}
    assert roles["fsm/delta.py"] is Role.REDUCER
    assert roles["fsm/orchestrators/__init__.py"] is Role.ORCHESTRATOR
    assert roles["tasks/effects/__init__.py"] is Role.EFFECT


def _repository(root: Path) -> Path:
    for name in ("fsm/orchestrators", "tasks/effects"):
        (root / name).mkdir(parents=True)
        (root / name / "__init__.py").touch()
    for name in ("delta", "hop", "refusals"):
        (root / "fsm" / f"{name}.py").touch()
    return root


def test_the_gate_prints_each_violation_and_closes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = _repository(tmp_path)
    assert main(root) == 0
    assert capsys.readouterr().out == ""
    (root / "fsm/orchestrators/bad.py").write_text("x = 1\nimport os\n")
    (root / "tasks/effects/bad.py").write_text("task.delay()\n")
    assert main(root) == 1
    assert capsys.readouterr().out.splitlines() == [
        "fsm/orchestrators/bad.py:2 io imports os, which is not known to be pure",
        "tasks/effects/bad.py:1 publish calls delay(): only the runtime publishes",
    ]


def test_the_gate_does_not_pass_over_a_handler_that_is_gone(tmp_path: Path) -> None:
    root = _repository(tmp_path)
    (root / "fsm/hop.py").unlink()
    with pytest.raises(ConfigurationError, match=r"fsm/hop\.py"):
        main(root)


def test_the_gate_runs_as_a_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "rollcall.shapes"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
