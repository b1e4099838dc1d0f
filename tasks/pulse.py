"""A beat's pulse: a file it touches whenever it emits, for health checks on the same machine."""

import time

from models.errors import ConfigurationError
from tasks.settings import Settings


class Pulse:
    def __init__(self, settings: Settings) -> None:
        self._file = settings.home / "beat.pulse"
        # Beat wakes at least once an interval; three missed in a row and a margin is no accident.
        self._patience = 3 * settings.tick_interval_ms / 1000 + 5

    def felt(self) -> None:
        """Leave the sign that beat's loop goes round."""
        try:
            self._file.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
            self._file.touch()
        except OSError as error:
            raise ConfigurationError(
                f"the folder {self._file.parent.absolute()} cannot be used: {error.strerror}",
                "set ROLLCALL_HOME to a folder that can be written",
            ) from None

    def alive(self) -> bool:
        try:
            return time.time() - self._file.stat().st_mtime <= self._patience
        except OSError:
            return False
