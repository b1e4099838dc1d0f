"""Waiting for a condition with a deadline: the only way tests wait."""

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")


def eventually(
    condition: Callable[[], Value | None], what: str, seconds: float = 30.0, every: float = 0.05
) -> Value:
    """The condition's first true value; fails with what was waited for."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"{what}: not within {seconds:.0f} s"
        time.sleep(every)
