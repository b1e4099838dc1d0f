"""What one worker process holds open: made on first use, after the fork, never carried over one."""

import os

from sqlalchemy import Engine

from tasks.database import open_engine
from tasks.settings import Settings


class WorkerProcess:
    """The connections of the process that asks; a forked child gets its own."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._owner = 0
        self._engine: Engine | None = None

    @property
    def engine(self) -> Engine:
        if self._engine is None or self._owner != os.getpid():
            if self._engine is not None:
                self._engine.dispose(close=False)
            self._engine = open_engine(self._settings, "worker")
            self._owner = os.getpid()
        return self._engine
