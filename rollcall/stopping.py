"""Polite requests to stop, told to whoever runs in the foreground."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from rollcall.supervisor import STOP_SIGNALS


@contextmanager
def stoppable() -> Iterator[None]:
    """Within it, every polite request to stop is a KeyboardInterrupt."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
