"""A stack's folder: one owner at a time, closed to others, and what was written in it before."""

import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import psutil

from models.errors import AlreadyRunningError, StackError
from rollcall.processes import reap


class Home:
    """Where a stack keeps its logs, its pid files, its secrets and what it told last."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.log = self.path / "log"
        self.run = self.path / "run"
        self._state = self.path / "state.json"
        self._secrets = self.path / "secrets.json"
        self._lock = self.path / "lock"

    def create(self) -> None:
        """Make the folder, or say in one line why it cannot be used."""
        try:
            self.path.mkdir(mode=0o711, parents=True, exist_ok=True)
            for folder in (self.log, self.run):
                folder.mkdir(mode=0o700, exist_ok=True)
            probe = self.run / f"probe-{os.getpid()}"
            probe.touch()
            probe.unlink()
        except OSError as error:
            raise StackError(
                f"the folder {self.path} cannot be used: {error.strerror}",
                "set ROLLCALL_HOME to a folder that can be written",
            ) from None

    @contextmanager
    def owned(self) -> Iterator[None]:
        """Hold the folder. The lock ends with the process, however it ends; what a killed owner
        left running is ended before anything new starts."""
        self.create()
        with self._lock.open("a+") as lock:
            if not _locks(lock, seconds=0.5):
                raise AlreadyRunningError(
                    f"a stack already runs in {self.path} (pid {self.owner() or 'unknown'})",
                    "see `rollcall status`, end it with `rollcall down`",
                )
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            reap(self.leftovers())
            yield
            lock.truncate(0)

    def held(self) -> bool:
        """Whether a living process holds the folder."""
        try:
            with self._lock.open("r") as lock:
                return not _locks(lock)
        except OSError:
            return False

    def owner(self) -> int | None:
        """The pid of the process that holds the folder, once it has said so."""
        if not self.held():
            return None
        text = self._lock.read_text()
        return int(text) if text.isdigit() and psutil.pid_exists(int(text)) else None

    def leftovers(self) -> list[Path]:
        """Pid files that an owner who did not stop cleanly left behind."""
        return sorted(self.run.glob("*.pid"))

    def tell(self, state: dict[str, Any]) -> None:
        """Write what `rollcall status` reads, in one step."""
        _write(self._state, state)

    def told(self) -> dict[str, Any]:
        """What the owner last wrote; empty if nothing can be read."""
        return _read(self._state)

    def forget(self) -> None:
        self._state.unlink(missing_ok=True)

    def secret(self, name: str) -> str:
        """A password of this stack: made at random once, kept in a file only its owner reads."""
        known = _read(self._secrets)
        if name not in known:
            known[name] = secrets.token_urlsafe(24)
            _write(self._secrets, known)
        return str(known[name])


def _locks(file: TextIO, seconds: float = 0.0) -> bool:
    """Try to lock; waiting a moment tells a living owner from somebody who only looked."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.02)


def _read(path: Path) -> dict[str, Any]:
    try:
        loaded = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return loaded if isinstance(loaded, dict) else {}


def _write(path: Path, content: dict[str, Any]) -> None:
    half = path.with_name(f"{path.name}.{os.getpid()}")
    with open(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(content, file)
    half.replace(path)
