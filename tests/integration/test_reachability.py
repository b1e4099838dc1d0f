"""Every way a server can fail becomes one line with a remedy, and never shows a password."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.errors import AccessRefusedError, InfraUnavailableError, RollcallError
from rollcall.devstack import throwaway_home
from rollcall.ports import free_ports
from rollcall.processes import Child, Program, wait_until_ready
from tasks.reachability import consul_version, postgres_version, redis_version
from tasks.secrets import Secret, SecretUrl
from tasks.settings import Settings

WRONG = "wr0ng-passw0rd"


@pytest.fixture
def garbage() -> Iterator[int]:
    """A port where somebody answers everything with nonsense."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client:
                client.recv(1024)
                client.sendall(b"\x00garbage\r\n\r\n")

    threading.Thread(target=answer, daemon=True).start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def one_line(error: RollcallError) -> str:
    said = f"{error.message}: {error.remedy}"
    assert "\n" not in said
    assert WRONG not in said
    return said


def wrong_password(url: SecretUrl | None) -> SecretUrl:
    assert url is not None
    return SecretUrl(url.reveal().replace(url.credentials[0], WRONG))


def test_the_servers_say_their_versions(servers: Settings) -> None:
    assert servers.database_url
    assert servers.broker_url
    assert servers.consul_url
    assert postgres_version(servers.database_url).startswith("18.")
    assert redis_version(servers.broker_url).startswith("6.2")
    assert consul_version(servers.consul_url) >= "1.8"


def test_a_wrong_password_is_told_as_such(servers: Settings) -> None:
    with pytest.raises(AccessRefusedError) as caught:
        postgres_version(wrong_password(servers.database_url))
    assert "ROLLCALL_DATABASE_URL" in one_line(caught.value)
    with pytest.raises(AccessRefusedError) as caught:
        redis_version(wrong_password(servers.broker_url))
    assert "ROLLCALL_BROKER_URL" in one_line(caught.value)


def test_a_server_that_wants_a_password_and_gets_none(servers: Settings) -> None:
    assert servers.broker_url
    assert servers.database_url
    bare = servers.broker_url.reveal().partition("@")[2]
    with pytest.raises(AccessRefusedError):
        redis_version(SecretUrl(f"redis://{bare}"))
    bare = servers.database_url.reveal().partition("@")[2]
    with pytest.raises(AccessRefusedError):
        postgres_version(SecretUrl(f"postgresql://postgres@{bare}"))


def test_a_closed_port_is_told_as_such(port: int) -> None:
    for ask, scheme, variable in (
        (postgres_version, "postgresql", "ROLLCALL_DATABASE_URL"),
        (redis_version, "redis", "ROLLCALL_BROKER_URL"),
        (consul_version, "http", "ROLLCALL_CONSUL_URL"),
    ):
        with pytest.raises(InfraUnavailableError) as caught:
            ask(SecretUrl(f"{scheme}://u:{WRONG}@127.0.0.1:{port}/0"))
        assert variable in one_line(caught.value)


def test_garbage_for_an_answer_is_told_as_such(garbage: int) -> None:
    for ask, scheme in (
        (postgres_version, "postgresql"),
        (redis_version, "redis"),
        (consul_version, "http"),
    ):
        with pytest.raises(InfraUnavailableError) as caught:
            ask(SecretUrl(f"{scheme}://u:{WRONG}@127.0.0.1:{garbage}/0"))
        one_line(caught.value)


def test_a_database_that_does_not_exist_is_told_as_such(servers: Settings) -> None:
    assert servers.database_url
    url = SecretUrl(servers.database_url.reveal().rpartition("/")[0] + "/nowhere")
    with pytest.raises(InfraUnavailableError, match="create the database"):
        postgres_version(url)


def test_a_real_consul_that_denies_is_told_as_such(consul: Path) -> None:
    http, serf, server = free_ports(3)
    url = SecretUrl(f"http://127.0.0.1:{http}")
    with throwaway_home("consul") as home:
        home.create()
        acl = 'acl { enabled = true default_policy = "deny" tokens { master = "root-t0ken" } }'
        child = Child(
            Program(
                "consul",
                (
                    *(str(consul), "agent", "-dev", "-bind=127.0.0.1", f"-http-port={http}"),
                    *(f"-serf-lan-port={serf}", f"-server-port={server}", "-serf-wan-port=-1"),
                    *("-dns-port=-1", "-grpc-port=-1", "-hcl", acl),
                ),
                env={"PATH": "/usr/bin:/bin"},
            ),
            home.path,
        )
        child.start()
        try:
            wait_until_ready(child, lambda: consul_version(url, Secret("root-t0ken")), 60)
            with pytest.raises(AccessRefusedError, match="ROLLCALL_CONSUL_TOKEN"):
                consul_version(url, Secret(WRONG))
        finally:
            child.stop()
