"""How contended each machine is: counters, and a circuit that stops callers who only conflict.

Both live in this process's memory. The circuit protects the process's own threads and connections
from callers that can only wait for each other; another process finds out by itself, and nothing
durable depends on it. Circuits of effects protect a service from all workers: those are rows.
"""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from threading import Lock
from time import monotonic

from fsm.breaker import Admitted, BreakerPolicy, CallId, CallOutcome, Circuit, admit, settle
from models.errors import InfraUnavailableError

PATIENCE = BreakerPolicy(threshold=5, reset_timeout=timedelta(seconds=10))
_START = datetime(1970, 1, 1, tzinfo=UTC)


class Conflict(StrEnum):
    """Why an attempt has to be made again."""

    STALE = "stale"  # the row moved between the read and the write
    LOCKED = "locked"  # the row was held too long, or two waited for each other
    SAME_MESSAGE = "same_message"  # the same message was decided elsewhere at the same time


class Counted(StrEnum):
    """What is counted for each machine; CONFLICT and RETRY by their reason."""

    CONFLICT = "conflict"
    RETRY = "retry"
    ALREADY_APPLIED = "already_applied"
    REPEATED = "repeated"
    EXHAUSTED = "exhausted"
    BARRED = "barred"


class Contention:
    """Shared by all threads of a process. Labels are machines and enums: few, whoever calls."""

    def __init__(
        self, policy: BreakerPolicy = PATIENCE, clock: Callable[[], float] = monotonic
    ) -> None:
        self._policy = policy
        self._clock = clock
        self._lock = Lock()
        self._circuits: dict[str, Circuit] = {}
        self._counts: Counter[tuple[str, Counted, str]] = Counter()

    def count(self, machine: str, what: Counted, reason: Conflict | None = None) -> None:
        with self._lock:
            self._counts[machine, what, reason.value if reason else ""] += 1

    def counted(self, machine: str, what: Counted, reason: Conflict | None = None) -> int:
        """How often, for one reason or for all of them."""
        with self._lock:
            return sum(
                number
                for (name, kind, why), number in self._counts.items()
                if (name, kind) == (machine, what) and reason in (None, why)
            )

    def enter(self, machine: str, call: CallId) -> None:
        """Let the call through, or refuse it at once while the machine's circuit is open."""
        now = self._now()
        with self._lock:
            answer = admit(self._policy, self._circuits.get(machine, Circuit()), call, now)
            if isinstance(answer, Admitted):
                self._circuits[machine] = answer.circuit
                return
        self.count(machine, Counted.BARRED)
        wait = max(0.0, (answer.until - now).total_seconds())
        raise InfraUnavailableError(
            f"writers of {machine} keep conflicting: its circuit is open",
            f"try again in {wait:.1f} s",
        )

    def leave(self, machine: str, call: CallId, outcome: CallOutcome) -> None:
        now = self._now()
        with self._lock:
            circuit = self._circuits.get(machine, Circuit())
            self._circuits[machine] = settle(self._policy, circuit, call, outcome, now)

    def _now(self) -> datetime:
        return _START + timedelta(seconds=self._clock())
