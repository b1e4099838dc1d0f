"""The contract commands: one line a finding, exit codes that mean it, pictures on stdout."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from rollcall.contracts import UnknownMachineError, contract_app, machines

MACHINES = Path(__file__).parents[2] / "fsm" / "machines"
BROKEN_ONES = sorted((Path(__file__).parent / "broken_contracts").glob("*.yaml"))

BROKEN = """\
state_machine_name: door
initial_state: ajar
states:
  - state_name: open
    state_type: initial
  - state_name: shut
    state_type: terminal
    is_terminal: true
transitions:
  - transition_name: close
    from_state: open
    to_state: shut
    trigger: CLOSE
    conditions:
      - condition_name: locked
        expression: "bolts like 3"
"""


@pytest.fixture
def runner() -> CliRunner:
    return CliRunner()


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    path = tmp_path / "door.yaml"
    path.write_text(BROKEN)
    return path


@pytest.fixture
def listing() -> typer.Typer:
    app = typer.Typer()
    app.command()(machines)
    return app


def test_the_five_are_clean(runner: CliRunner) -> None:
    files = [str(path) for path in sorted(MACHINES.glob("*.yaml"))]
    assert len(files) == 5
    result = runner.invoke(contract_app, ["check", *files])
    assert result.exit_code == 0, result.output
    assert [line.split(": ", 1)[1] for line in result.stdout.splitlines()] == [
        "clean (action 1.0.0, 4 states, 3 transitions)",
        "clean (command 1.0.0, 6 states, 6 transitions)",
        "clean (handshake 1.0.0, 10 states, 10 transitions)",
        "clean (manifest 1.0.0, 5 states, 8 transitions)",
        "clean (registration 1.0.0, 10 states, 17 transitions)",
    ]


def test_findings_are_one_line_each_and_exit_one(runner: CliRunner, broken: Path) -> None:
    good = MACHINES / "action.yaml"
    result = runner.invoke(contract_app, ["check", str(broken), str(good)])
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    guard = next(line for line in lines if "GUARD_INVALID_OPERATOR" in line)
    assert guard.startswith(f"{broken}:16 GUARD_INVALID_OPERATOR ")
    for line in lines[:-1]:
        where, code, place, *message = line.split(" ")
        assert where.startswith(f"{broken}:")
        assert code.isupper()
        assert place
        assert message
    assert lines[-1].startswith(f"{good}: clean")


@pytest.mark.parametrize("path", BROKEN_ONES, ids=lambda path: path.stem)
def test_every_broken_contract_exits_one_with_its_code_and_line(
    runner: CliRunner, path: Path
) -> None:
    """Each file's first line says what it expects: `# expect: CODE line N`."""
    first = path.read_bytes().split(b"\n", 1)[0].decode()
    code, line = first.removeprefix("# expect: ").split(" line ")
    result = runner.invoke(contract_app, ["check", str(path)])
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    for found in result.stdout.splitlines():
        assert found.startswith(f"{path}:{line} {code} ")


def test_findings_as_json(runner: CliRunner, broken: Path) -> None:
    result = runner.invoke(contract_app, ["check", str(broken), "--json"])
    assert result.exit_code == 1
    report = json.loads(result.stdout)
    assert report["files"] == 1
    found = {each["code"]: each for each in report["findings"]}
    guard = found["GUARD_INVALID_OPERATOR"]
    assert set(guard) == {"file", "line", "code", "place", "message"}
    assert (guard["file"], guard["line"]) == (str(broken), 16)

    clean = runner.invoke(contract_app, ["check", str(MACHINES / "action.yaml"), "--json"])
    assert clean.exit_code == 0
    assert json.loads(clean.stdout) == {"files": 1, "findings": []}


@pytest.mark.parametrize("text", ["\t- x", "{", "- 1", "", "a: [\x00]", "name: &a [*a]"])
def test_what_is_no_contract_is_a_finding(runner: CliRunner, tmp_path: Path, text: str) -> None:
    path = tmp_path / "odd.yaml"
    path.write_text(text)
    result = runner.invoke(contract_app, ["check", str(path)])
    assert result.exit_code == 1
    assert isinstance(result.exception, SystemExit)
    assert result.stdout.startswith(f"{path}:")


def test_a_missing_file_is_a_finding(runner: CliRunner, tmp_path: Path) -> None:
    result = runner.invoke(contract_app, ["check", str(tmp_path / "none.yaml")])
    assert result.exit_code == 1
    assert "UNREADABLE_FILE" in result.stdout


def test_check_needs_a_file(runner: CliRunner) -> None:
    assert runner.invoke(contract_app, ["check"]).exit_code == 2


@pytest.mark.parametrize("name", ["registration", "handshake", "action", "command", "manifest"])
def test_diagrams_by_name(runner: CliRunner, name: str) -> None:
    drawn = runner.invoke(contract_app, ["diagram", name, "--format", "svg"])
    assert drawn.exit_code == 0
    assert drawn.stdout.startswith("<svg ")
    assert drawn.stdout.endswith("</svg>\n")
    written = runner.invoke(contract_app, ["diagram", name])
    assert written.stdout.startswith("stateDiagram-v2\n")


def test_a_diagram_of_a_file_with_counts_into_a_file(runner: CliRunner, tmp_path: Path) -> None:
    target = tmp_path / "action.mmd"
    result = runner.invoke(
        contract_app,
        [
            "diagram",
            str(MACHINES / "action.yaml"),
            "--format",
            "mermaid",
            "--counts",
            '{"running": 12}',
            "--output",
            str(target),
        ],
    )
    assert result.exit_code == 0
    assert result.stdout == ""
    assert 'state "running (12)" as running' in target.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1]", "not an object"),
        ('{"paused": 1}', "no state"),
        ('{"running": -1}', "needs a count"),
        ('{"running": true}', "needs a count"),
        ('{"running": 1.5}', "needs a count"),
    ],
)
def test_counts_that_make_no_sense(runner: CliRunner, counts: str, words: str) -> None:
    result = runner.invoke(contract_app, ["diagram", "action", "--counts", counts])
    assert result.exit_code == 2
    assert words in result.stderr


def test_a_diagram_of_a_broken_file(runner: CliRunner, broken: Path) -> None:
    result = runner.invoke(contract_app, ["diagram", str(broken)])
    assert result.exit_code == 1
    assert result.stdout == ""
    assert "GUARD_INVALID_OPERATOR" in result.stderr


def test_a_machine_nobody_knows(runner: CliRunner) -> None:
    result = runner.invoke(contract_app, ["diagram", "turnstile"])
    assert isinstance(result.exception, UnknownMachineError)
    assert "registration, handshake, action, command, manifest" in result.exception.remedy


def test_machines(runner: CliRunner, listing: typer.Typer) -> None:
    result = runner.invoke(listing, ["--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout) == [
        {
            "name": "registration",
            "version": "1.0.0",
            "states": 10,
            "transitions": 17,
            "initial": "unregistered",
            "terminal": ["deregistered"],
        },
        {
            "name": "handshake",
            "version": "1.0.0",
            "states": 10,
            "transitions": 10,
            "initial": "unknown",
            "terminal": ["rejected", "ack_timed_out", "liveness_expired", "departed"],
        },
        {
            "name": "action",
            "version": "1.0.0",
            "states": 4,
            "transitions": 3,
            "initial": "queued",
            "terminal": ["succeeded", "failed"],
        },
        {
            "name": "command",
            "version": "1.0.0",
            "states": 6,
            "transitions": 6,
            "initial": "RECEIVED",
            "terminal": ["EXECUTED", "REJECTED", "FAILED", "TIMEOUT"],
        },
        {
            "name": "manifest",
            "version": "1.0.0",
            "states": 5,
            "transitions": 8,
            "initial": "DRAFT",
            "terminal": ["REGISTERED"],
        },
    ]
    table = runner.invoke(listing, [])
    assert table.exit_code == 0
    for name in ("registration", "handshake", "action", "command", "manifest"):
        assert name in table.stdout
