"""The whole of Rollcall as one tree of processes: servers, workers, beat and Flower.

Entering starts everything and waits until it answers; `watch` starts again what died; leaving
stops everything, in the opposite order.
"""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import httpx
from sqlalchemy import Engine

from models.errors import InfraUnavailableError, StackError
from rollcall.devstack import DevStack
from rollcall.home import Home
from rollcall.insights import Clock, clock
from rollcall.ports import preferred_port, require_free
from rollcall.processes import Child, Program, stop_together, wait_until_ready
from tasks.database import open_engine
from tasks.schema import upgrade
from tasks.secrets import Secret
from tasks.settings import LogFormat, Settings
from tasks.wiring import celery_app

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
FLOWER_PORT = 5555
FLOWER_USER = "rollcall"
_READY_SECONDS = 60.0
_LONGEST_PAUSE = 10.0
_STEADY_SECONDS = 30.0


@dataclass
class Part:
    """One process under supervision, and how often it had to be started."""

    name: str
    where: str
    child: Child
    probe: Callable[[], object]
    starts: int = 1
    started: float = field(default_factory=time.monotonic)
    start_again_at: float | None = None

    @property
    def state(self) -> str:
        if self.start_again_at is not None:
            return "restarting"
        return "running" if self.child.running() else "died"

    def told(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "state": self.state,
            "pid": self.child.pid,
            "where": self.where,
            "restarts": self.starts - 1,
        }


class Supervisor:
    """Holds the stack's folder from start to stop."""

    def __init__(
        self, settings: Settings, home: Home, say: Callable[[str], None] = lambda _: None
    ) -> None:
        self.settings = settings
        self.home = home
        self._servers: list[Part] = []
        self._roles: list[Part] = []
        self._say = say
        self._holding = home.owned()
        self._stack = DevStack(settings, home)
        self._engine: Engine | None = None

    def __enter__(self) -> Self:
        self._holding.__enter__()
        try:
            self._start()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with _unstoppable():
            self._say("stopping")
            stop_together([part.child for part in self._roles])
            self._stack.stop()
            if self._engine is not None:
                self._engine.dispose()
            self.home.forget()
            self._holding.__exit__(None, None, None)

    @property
    def parts(self) -> list[Part]:
        return [*self._servers, *self._roles]

    @property
    def flower_url(self) -> str:
        return f"http://{self.settings.flower_address}:{self.settings.flower_port}"

    def clock(self) -> Clock:
        """The last tick taken: the sign of life of beat, broker, worker and database together."""
        if self._engine is None:
            self._engine = open_engine(self.settings, "status")
        return clock(self._engine)

    def watch(self) -> None:
        """One look at every part. What died is started again, each time a little later."""
        changed = False
        for part in self.parts:
            if part.start_again_at is not None and time.monotonic() >= part.start_again_at:
                part.child.start()
                part.starts += 1
                part.started, part.start_again_at = time.monotonic(), None
                changed = True
            elif part.start_again_at is None and not part.child.running():
                self._say(f"{part.name} ended with {part.child.exit_code()}, starting it again")
                part.child.stop()
                part.start_again_at = time.monotonic() + _pause(part)
                changed = True
        if changed:
            self._tell("ready")

    def pause(self, name: str, seconds: float) -> None:
        """Stop a part; `watch` starts it again after so long."""
        part = self._named(name)
        part.child.stop()
        part.start_again_at = time.monotonic() + seconds

    def kill(self, name: str) -> None:
        """End a part without asking it; `watch` finds it dead."""
        if (pid := self._named(name).child.pid) is not None:
            os.kill(pid, signal.SIGKILL)

    def _named(self, name: str) -> Part:
        return next(part for part in self.parts if part.name == name)

    def _start(self) -> None:
        self._tell("starting")
        self.settings = self._with_flower(self._stack.start())
        for server in self._stack.servers:
            self._say(f"{server.name} {server.probe()} answers at {server.url}")
            self._servers.append(Part(server.name, str(server.url), server.child, server.probe))
        engine = open_engine(self.settings, "migration", pooled=False)
        self._say(f"the database is at {upgrade(engine)}")
        workers = [self._worker(f"worker-{number + 1}") for number in range(self.settings.workers)]
        self._roles = [*workers, self._beat(), self._flower()]
        for part in self._roles:
            part.child.start()
        for part in self._roles:
            wait_until_ready(part.child, part.probe, _READY_SECONDS)
            self._say(f"{part.name} runs at {part.where}")
        self._tell("ready")

    def _with_flower(self, settings: Settings) -> Settings:
        if settings.flower_port:
            require_free(settings.flower_port, "Flower", "ROLLCALL_FLOWER_PORT")
        auth = settings.flower_basic_auth or Secret(f"{FLOWER_USER}:{self.home.secret('flower')}")
        return settings.at(
            flower_port=settings.flower_port or preferred_port(FLOWER_PORT),
            flower_basic_auth=auth,
            log_format=LogFormat.JSON,
        )

    def _worker(self, name: str) -> Part:
        host = socket.gethostname()
        app = celery_app(self.settings)

        def answers() -> None:
            if not app.control.broadcast(
                "ping", destination=[f"{name}@{host}"], reply=True, timeout=1.0, limit=1
            ):
                raise InfraUnavailableError(f"{name} does not answer", "see its log")

        return self._part(name, f"{name}@{host}", ("worker", "--name", name), answers)

    def _beat(self) -> Part:
        def ticks() -> None:
            if self.clock().tick_sequence is None:
                raise InfraUnavailableError("no RuntimeTick was taken yet", "see beat's log")

        every = f"every {self.settings.tick_interval_ms} ms"
        return self._part("beat", every, ("beat",), ticks)

    def _flower(self) -> Part:
        return self._part(
            "flower", self.flower_url, ("flower",), lambda: flower_answers(self.settings)
        )

    def _part(
        self, name: str, where: str, command: tuple[str, ...], probe: Callable[[], object]
    ) -> Part:
        program = Program(
            name,
            (sys.executable, "-m", "rollcall", *command),
            env=_environment(self.settings),
            stop_seconds=20.0,
        )
        return Part(name, where, Child(program, self.home.path), probe)

    def _tell(self, phase: str) -> None:
        self.home.tell(
            {
                "phase": phase,
                "pid": os.getpid(),
                "parts": [part.told() for part in self.parts],
                "flower": self.flower_url if self.settings.flower_port else None,
                "environment": self.settings.environment(),
            }
        )


def flower_answers(settings: Settings) -> None:
    """Flower's own health check."""
    url = f"http://{settings.flower_address}:{settings.flower_port}/healthcheck"
    try:
        httpx.get(url, timeout=2.0).raise_for_status()
    except httpx.HTTPError as error:
        raise InfraUnavailableError(
            f"Flower at {url} does not answer: {error}", "see its log"
        ) from None


def running_settings(settings: Settings) -> Settings:
    """The settings, with what they leave out taken from the stack that runs in their folder."""
    home = Home(settings.home)
    if not home.held():
        return settings
    theirs = Settings.from_environment(home.told().get("environment", {}))
    wanted = ("database_url", "broker_url", "consul_url", "flower_basic_auth")
    missing = {name: getattr(theirs, name) for name in wanted if getattr(settings, name) is None}
    return settings.at(**missing, flower_port=settings.flower_port or theirs.flower_port)


def stop_stack(home: Home, seconds: float = 60.0) -> bool:
    """Ask the stack's owner to stop and wait; end what a killed owner left. False: nothing ran."""
    if not home.held():
        leftovers = home.leftovers()
        with home.owned():
            home.forget()
        return bool(leftovers)
    asked: int | None = None
    deadline = time.monotonic() + seconds
    while home.held():
        if asked is None and (asked := home.owner()) is not None:
            os.kill(asked, signal.SIGTERM)
        if time.monotonic() > deadline:
            raise StackError(
                f"the stack (pid {asked}) has not stopped in {seconds:.0f} s",
                f"see {home.log / 'supervisor.log'}, end that process, then `rollcall down` again",
            )
        time.sleep(0.05)
    return True


@contextmanager
def _unstoppable() -> Iterator[None]:
    """Whoever asks twice to stop must not stop the stopping: every step of it is bounded."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in STOP_SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _environment(settings: Settings) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("ROLLCALL_")}
    return kept | settings.environment()


def _pause(part: Part) -> float:
    """None for a part that ran well for a while; else longer with every start."""
    if time.monotonic() - part.started >= _STEADY_SECONDS:
        return 0.0
    return min(0.5 * 2.0 ** min(part.starts - 1, 10), _LONGEST_PAUSE)
