"""How the stack's state looks in a terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from rollcall.doctor import Check, Verdict
from rollcall.insights import Clock

_COLOURS = {"running": "green", "restarting": "yellow", "died": "red"}
_MARKS = {
    Verdict.OK: ("✓", "green"),
    Verdict.WARNING: ("!", "yellow"),
    Verdict.FAILED: ("✗", "red"),
}


def stack_table(parts: Sequence[Mapping[str, Any]], reading: Clock | None) -> Table:
    """What runs where, and how old the last tick is."""
    table = Table(title="Rollcall", title_style="bold", caption=_tick_caption(reading))
    for column in ("part", "state", "pid", "where", "restarts"):
        table.add_column(column, justify="right" if column in ("pid", "restarts") else "left")
    for part in parts:
        state = str(part["state"])
        table.add_row(
            str(part["name"]),
            Text(state, style=_COLOURS.get(state, "")),
            str(part["pid"] or ""),
            str(part["where"]),
            str(part["restarts"]),
        )
    return table


def check_table(checks: Sequence[Check]) -> Table:
    table = Table(show_header=False, box=None, pad_edge=False)
    for check in checks:
        mark, colour = _MARKS[check.status]
        found = Text(" ".join(filter(None, (check.version, check.detail))))
        if check.remedy:
            found.append(f"\n→ {check.remedy}", style=colour)
        table.add_row(Text(mark, style=colour), Text(check.name, style="bold"), found)
    return table


def _tick_caption(reading: Clock | None) -> str:
    if reading is None or reading.tick_sequence is None:
        return "no RuntimeTick yet"
    age = reading.age.total_seconds()
    return f"tick {reading.tick_sequence} taken {age:.1f} s ago · {reading.ticks} so far"
