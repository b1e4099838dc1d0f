"""Child processes that can always be found again, also by the successor of who started them."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from models.errors import RollcallError, StackError
from rollcall.account import Account

_ROTATE_BYTES = 10 * 1024 * 1024

# The child writes its own pid before it becomes the program, so that there is no moment in which
# it runs and nobody could know. The pid file is its standard input until then.
_ENROL = 'echo $$ >&0; exec "$@" </dev/null'


@dataclass(frozen=True)
class Program:
    """What to run, and how it is told to stop."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    account: Account | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    stop_seconds: float = 15.0


class Child:
    """One run of a program in a stack's folder."""

    def __init__(self, program: Program, home: Path) -> None:
        self.program = program
        self.log = home / "log" / f"{program.name}.log"
        self._pid_file = home / "run" / f"{program.name}.pid"
        self._popen: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return self._popen.pid if self._popen else None

    def start(self) -> None:
        """Run the program in a session of its own: the terminal's Ctrl-C is ours to pass on."""
        reap([self._pid_file])
        if self.log.exists() and self.log.stat().st_size > _ROTATE_BYTES:
            self.log.replace(self.log.with_suffix(".log.1"))
        account = self.program.account
        with self.log.open("ab") as log, self._pid_file.open("wb") as pid_file:
            self._popen = subprocess.Popen(
                ["/bin/sh", "-c", _ENROL, "sh", *self.program.argv],
                stdin=pid_file,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=dict(self.program.env),
                cwd="/" if account else None,
                start_new_session=True,
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=() if account else None,
            )

    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._popen.poll() if self._popen else None

    def running(self) -> bool:
        return self._popen is not None and self._popen.poll() is None

    def ask_to_stop(self) -> None:
        if self.running() and self._popen is not None:
            self._popen.send_signal(self.program.stop_signal)

    def stop(self) -> None:
        """Ask, wait, insist; afterwards neither it nor what it started is left."""
        if self._popen is None:
            return
        self.ask_to_stop()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(self.program.stop_seconds)
        _kill_group(self._popen.pid)
        self._popen.wait()
        self._pid_file.unlink(missing_ok=True)

    def last_words(self, lines: int = 3) -> str:
        """The end of its log: why it died, most likely."""
        try:
            written = self.log.read_text(errors="replace").strip().splitlines()
        except OSError:
            return "it left no log"
        return " / ".join(written[-lines:]) or "it said nothing"


def wait_until_ready(child: Child, probe: Callable[[], object], seconds: float) -> None:
    """Poll the probe until it answers; a child that dies meanwhile is told with its last words."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            probe()
            return
        except RollcallError as error:
            reason = error.message
        if not child.running():
            ended = f"{child.program.name} ended with {child.exit_code()} while starting"
            raise StackError(f"{ended}: {child.last_words()}", f"its whole log is {child.log}")
        if time.monotonic() > deadline:
            raise StackError(
                f"{child.program.name} is not ready after {seconds:.0f} s: {reason}",
                f"its log is {child.log}",
            )
        time.sleep(0.05)


def stop_together(children: Sequence[Child]) -> None:
    """Ask them all before waiting for any: stopping takes as long as the slowest."""
    for child in children:
        child.ask_to_stop()
    for child in children:
        child.stop()


def recorded(pid_file: Path) -> psutil.Process | None:
    """The process a pid file speaks of; None if it is gone or its pid is somebody else's now."""
    try:
        pid, written = int(pid_file.read_text()), pid_file.stat().st_mtime
        process = psutil.Process(pid)
        ours = process.create_time() <= written + 0.1 and process.status() != psutil.STATUS_ZOMBIE
    except (OSError, ValueError, psutil.NoSuchProcess):
        return None
    return process if ours else None


def reap(pid_files: Sequence[Path], seconds: float = 3.0) -> None:
    """End what an earlier supervisor left behind. It is asked once, for PostgreSQL's sake (SIGINT
    is its fast shutdown); nothing here minds being killed."""
    left = [process for pid_file in pid_files if (process := recorded(pid_file)) is not None]
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGINT)
    psutil.wait_procs(left, timeout=seconds)
    for process in left:
        _kill_group(process.pid)
    psutil.wait_procs(left, timeout=seconds)
    for pid_file in pid_files:
        pid_file.unlink(missing_ok=True)


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
