"""Ports on loopback."""

import socket
from contextlib import ExitStack

from models.errors import PortInUseError

LOOPBACK = "127.0.0.1"


def free_ports(number: int) -> list[int]:
    """Ports that nobody listens on now, all different."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(number)]
        for item in sockets:
            item.bind((LOOPBACK, 0))
        return [item.getsockname()[1] for item in sockets]


def require_free(port: int, wanted_by: str, variable: str) -> None:
    """Refuse a port that somebody else listens on, before a server fails on it in its own words."""
    with socket.socket() as attempt:
        attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            attempt.bind((LOOPBACK, port))
        except OSError as error:
            raise PortInUseError(
                f"port {port} for {wanted_by} cannot be used: {error.strerror}",
                f"free it, or set {variable} to another port or to 0 for a free one",
            ) from None


def preferred_port(port: int) -> int:
    """The port a user would expect, or a free one when it is taken."""
    try:
        require_free(port, "", "")
    except PortInUseError:
        return free_ports(1)[0]
    return port
