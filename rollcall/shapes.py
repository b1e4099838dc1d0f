"""`python -m rollcall.shapes`: the execution shapes of every handler's source, as a gate."""

import sys
from collections.abc import Iterator
from pathlib import Path

import typer

from fsm.shapes import Violation, violations
from models.errors import ConfigurationError
from models.output import Role

HANDLERS: tuple[tuple[str, Role], ...] = (
    ("fsm/orchestrators/*.py", Role.ORCHESTRATOR),
    ("fsm/delta.py", Role.REDUCER),
    ("fsm/hop.py", Role.REDUCER),
    ("fsm/refusals.py", Role.REDUCER),
    ("tasks/effects/*.py", Role.EFFECT),
)
RUNTIME = frozenset(f"tasks/effects/{name}.py" for name in ("execute", "settle", "circuit"))
"""The runtime's own half of an effect: it claims, settles and rings, and handles nothing."""


def handler_sources(root: Path) -> Iterator[tuple[Path, Role]]:
    """Every source that holds handlers; one that is gone must not pass for one that is clean."""
    for pattern, role in HANDLERS:
        found = sorted(root.glob(pattern))
        if not found:
            raise ConfigurationError(f"{root / pattern} does not exist", "correct HANDLERS")
        yield from (
            (path, role) for path in found if path.relative_to(root).as_posix() not in RUNTIME
        )


def source_violations(root: Path) -> tuple[Violation, ...]:
    """What the handlers under a repository's root break."""
    return tuple(
        violation
        for path, role in handler_sources(root)
        for violation in violations(
            path.read_text(encoding="utf-8"), role, path.relative_to(root).as_posix()
        )
    )


def main(root: Path) -> int:
    """Print every violation as file:line rule message; 1 if there is one."""
    found = source_violations(root)
    for violation in found:
        typer.echo(str(violation))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(__file__).parent.parent))
