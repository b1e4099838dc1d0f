"""What is shown while the demo runs: a live board on a terminal, plain lines elsewhere."""

import time
from collections import Counter
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from rollcall.demo.count import Seen

_SECONDS_BETWEEN_LINES = 2.0


class Board:
    """Draws on the console it is given; lines that stay are printed above the board."""

    def __init__(self, console: Console, nodes: int) -> None:
        self._console = console
        self._nodes = nodes
        self._progress = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), console=console
        )
        self._task = self._progress.add_task("where they belong", total=nodes)
        self._live = Live(console=console, transient=True) if console.is_terminal else None
        self._next_line = 0.0
        self._last = ""

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, line: str) -> None:
        self._console.print(f"[dim]·[/dim] {line}", highlight=False, soft_wrap=True)

    def show(self, seen: Mapping[str, Seen], done: int) -> None:
        """Where the nodes stand now, and how many of them are where they belong."""
        handshakes = Counter(each.handshake for each in seen.values())
        if self._live is not None:
            registrations = Counter(each.registration or "unregistered" for each in seen.values())
            self._progress.update(self._task, completed=done)
            self._live.update(Group(_table(handshakes, registrations), self._progress))
        elif time.monotonic() >= self._next_line:
            states = ", ".join(f"{number} {state}" for state, number in sorted(handshakes.items()))
            line = f"{done} of {self._nodes} where they belong: {states or 'nobody spoke yet'}"
            if line != self._last:
                self.say(line)
            self._last, self._next_line = line, time.monotonic() + _SECONDS_BETWEEN_LINES


def _table(handshakes: Mapping[str, int], registrations: Mapping[str, int]) -> Table:
    table = Table(title="the fleet", title_style="bold")
    for column in ("handshake", "nodes", "registration", "nodes"):
        table.add_column(column, justify="right" if column == "nodes" else "left")
    left, right = sorted(handshakes.items()), sorted(registrations.items())
    for at in range(max(len(left), len(right))):
        state, number = left[at] if at < len(left) else ("", "")
        other, others = right[at] if at < len(right) else ("", "")
        table.add_row(state, str(number), other, str(others))
    return table
