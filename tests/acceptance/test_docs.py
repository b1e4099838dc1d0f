"""Every command in the documentation runs, and prints what the documentation says it prints."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollcall.devstack import throwaway_home
from rollcall.home import Home
from rollcall.supervisor import stop_stack
from tasks.settings import Settings, _variables
from tests.conftest import REPOSITORY, clean_environment

PAGES = sorted([REPOSITORY / "README.md", *REPOSITORY.glob("docs/**/*.md")])
# What cannot run inside a test, and why.
NOT_RUN = {
    "make test": "it is what runs this",
    "make compose": "needs a Docker engine; tests/acceptance/test_compose.py runs its commands",
}


def console_blocks(page: Path) -> Iterator[list[tuple[str, list[str]]]]:
    """Each console block as commands with the lines they print."""
    for block in re.findall(r"^```console\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        commands: list[tuple[str, list[str]]] = []
        for line in block.splitlines():
            if line.startswith("$ "):
                commands.append((line[2:], []))
            elif commands:
                commands[-1][1].append(line)
        yield commands


@pytest.fixture
def home() -> Iterator[Home]:
    with throwaway_home("docs") as home:
        yield home
        stop_stack(home)


def shape(line: str) -> str:
    """A line without what differs from run to run and from machine to machine."""
    line = re.sub(r"@[\w.-]+", "@HOST", line)
    line = re.sub(r"\([\w.-]+-\d+-[0-9a-f]{8}\)", "(RUNTIME)", line)
    return re.sub(r"\d+(\.\d+)*", "N", line).rstrip()


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if any(console_blocks(page))],
    ids=lambda page: str(page.relative_to(REPOSITORY)),
)
@pytest.mark.timeout(300)
def test_the_commands_of_a_page_run_in_order(page: Path, home: Home, consul: Path) -> None:
    environ = clean_environment() | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "ROLLCALL_HOME": str(home.path),
        "ROLLCALL_CONSUL_BIN": str(consul),
    }
    for block in console_blocks(page):
        for command, printed in block:
            if command in NOT_RUN:
                continue
            done = subprocess.run(
                ["bash", "-c", command],
                env=environ,
                cwd=REPOSITORY,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
                timeout=240,
            )
            exits = 1 if any(line.startswith("# exits 1") for line in printed) else 0
            assert done.returncode == exits, f"$ {command}\n{done.stdout}"
            said = {shape(line) for line in done.stdout.splitlines()}
            for line in printed:
                assert line.startswith("#") or shape(line) in said, f"$ {command}\n{line}"


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\((?!http)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_every_setting_is_documented_with_what_it_takes_and_its_default() -> None:
    text = (REPOSITORY / "docs" / "reference" / "settings.md").read_text()
    for variable in _variables():
        row = re.search(rf"^\| `{variable.name}` \|(.*)\|$", text, re.MULTILINE)
        assert row, f"{variable.name} is not documented"
        default = getattr(Settings(), variable.field)
        assert default is None or f"`{default}`" in row.group(1), f"{variable.name}: {default}"
    assert "ONEX_RUNTIME_TICK_INTERVAL_MS" in text


def test_every_command_is_documented() -> None:
    text = (REPOSITORY / "docs" / "reference" / "command-line.md").read_text()
    done = subprocess.run(
        [sys.executable, "-m", "rollcall", "--help"],
        env=clean_environment() | {"COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=True,
        cwd=REPOSITORY,
    )
    commands = re.findall(r"^│ ([a-z]+) ", done.stdout, re.MULTILINE)
    assert len(commands) >= 12
    for command in commands:
        assert f"`rollcall {command}" in text, f"{command} is not documented"


def test_no_page_is_left_half_written() -> None:
    for page in PAGES:
        assert not re.search(r"\b(TODO|FIXME)\b", page.read_text()), page
