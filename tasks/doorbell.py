"""The doorbell that wakes a worker for a partition: it may be lost, repeated or late."""

from collections.abc import Callable, Iterable

import redis
import redis.exceptions
from kombu.exceptions import OperationalError

from tasks.logs import logger

# How long a bell that was rung and not answered keeps others from ringing the same door.
_WAITING_MS = 2000

Room = tuple[str, int]
"""A partition of a domain, or a service that effects reach."""

_EFFECTS = "effects."


def service_room(service: str) -> Room:
    """Where the intents of a service wait."""
    return f"{_EFFECTS}{service}", 0


def service_of(room: Room) -> str | None:
    """The service of such a room; None for a partition."""
    return room[0].removeprefix(_EFFECTS) if room[0].startswith(_EFFECTS) else None


class Doorbell:
    """At most one bell waits for each partition; a drain takes it down before it looks."""

    def __init__(self, client: redis.Redis, send: Callable[[str, int], None]) -> None:
        self._client = client
        self._send = send

    def ring(self, rooms: Iterable[Room]) -> int:
        """Wake a worker for each partition. After a commit only; a failure to ring is made good by
        the next tick and must not look like a failure of what was committed."""
        wanted = sorted(set(rooms))
        if not wanted:
            return 0
        try:
            with self._client.pipeline(transaction=False) as pipe:
                for room in wanted:
                    pipe.set(_key(room), 1, nx=True, px=_WAITING_MS)
                silent = [room for room, new in zip(wanted, pipe.execute(), strict=True) if new]
            for domain, partition in silent:
                self._send(domain, partition)
        except (redis.exceptions.RedisError, OperationalError, OSError) as error:
            logger("doorbell").warning("not rung, the next tick will", reason=type(error).__name__)
            return 0
        return len(silent)

    def answered(self, room: Room) -> None:
        """Let the next message ring again; before the look, so that none is missed."""
        try:
            self._client.delete(_key(room))
        except redis.exceptions.RedisError:
            logger("doorbell").warning("not taken down, it will expire")


def _key(room: Room) -> str:
    return f"rollcall:doorbell:{room[0]}:{room[1]}"
