"""What goes wrong on the way, on purpose, and only to the demo's own processes."""

import time
from collections.abc import Callable

import redis

from rollcall.supervisor import Supervisor

_CONSUL_IS_AWAY = 6.0


class Chaos:
    """Each trouble comes once, at its second."""

    def __init__(self, stack: Supervisor, say: Callable[[str], None]) -> None:
        self._stack = stack
        self._say = say
        self._left: list[tuple[float, Callable[[], None]]] = [
            (2.0, self._stop_consul),
            (4.0, self._kill_a_worker),
            (6.0, self._flush_redis),
        ]
        self._quiet_from = 0.0

    @property
    def over(self) -> bool:
        """Whether all of it happened, and whatever was stopped was started again."""
        return not self._left and time.monotonic() >= self._quiet_from

    def at(self, seconds: float) -> None:
        """Do what is due so long after the beginning."""
        while self._left and seconds >= self._left[0][0]:
            _, trouble = self._left.pop(0)
            trouble()

    def _stop_consul(self) -> None:
        self._say(f"chaos: Consul stops for {_CONSUL_IS_AWAY:.0f} s")
        self._quiet_from = time.monotonic() + _CONSUL_IS_AWAY + 1.0
        self._stack.pause("consul", _CONSUL_IS_AWAY)

    def _kill_a_worker(self) -> None:
        self._say("chaos: worker-1 is killed")
        self._stack.kill("worker-1")

    def _flush_redis(self) -> None:
        self._say("chaos: Redis is flushed whole")
        broker = self._stack.settings.broker_url
        assert broker is not None  # noqa: S101
        with redis.Redis.from_url(broker.reveal()) as client:
            client.flushall()
