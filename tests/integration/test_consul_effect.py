"""Consul's side of a registration, on a real Consul: what is refused fails alone."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import count
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest

from fsm.breaker import CallOutcome
from fsm.retry import FailureKind
from tasks.effects.consul import ConsulHandler
from tasks.effects.consul_entries import CheckStatus, node_name
from tasks.effects.handler import Claimed, Done, Failed
from tasks.secrets import Secret, SecretUrl
from tasks.settings import ConsulMode, Settings

TOKEN = "s3cr3t-t0ken-0f-0urs"
_prefixes = count(1)


@pytest.fixture
def ours(servers: Settings) -> Settings:
    return servers.at(consul_node_prefix=f"effect-{next(_prefixes)}-")


@pytest.fixture
def handler(ours: Settings) -> Iterator[ConsulHandler]:
    made = ConsulHandler(ours, lambda: datetime.now(UTC))
    yield made
    made.close()


@pytest.fixture
def playing() -> Iterator[Callable[[bytes], Settings]]:
    """A server that answers everything with the same bytes, or with nothing."""
    listeners: list[socket.socket] = []

    def play(answer: bytes) -> Settings:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def serve() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    _read_request(client)
                    client.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        url = SecretUrl(f"http://127.0.0.1:{listener.getsockname()[1]}")
        return Settings(consul_url=url, consul_token=Secret(TOKEN), consul_timeout_ms=500)

    yield play
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def _read_request(client: socket.socket) -> None:
    """All of it: closing on unread bytes would take the answer back."""
    with client.makefile("rb") as stream:
        length = 0
        while (line := stream.readline().strip().lower()) != b"":
            if line.startswith(b"content-length:"):
                length = int(line.partition(b":")[2])
        stream.read(length)


def claim(kind: str, node_id: str, registration_id: str = "r1", **said: Any) -> Claimed:
    payload: dict[str, Any] = {
        "node_id": node_id,
        "registration_id": registration_id,
        "service_id": "web",
    }
    payload |= {"correlation_id": str(uuid4())}
    if kind == "consul.register":
        payload |= {"service_name": "web", "address": "10.0.0.1", "port": 80, "generation": 1}
    return Claimed(
        *(uuid4(), "registration", 0, node_id, "registration", kind, payload | said),
        *(registration_id, uuid4(), uuid4(), 1, 1, 1, None),
    )


def perform(handler: ConsulHandler, *claimed: Claimed) -> dict[UUID, Done | Failed]:
    return dict(handler.perform(claimed, time.monotonic() + 20, None).outcomes)


def shown(ours: Settings, node_id: str) -> Any:
    assert ours.consul_url
    name = node_name(ours.consul_node_prefix, node_id)
    return httpx.get(f"{ours.consul_url.reveal()}/v1/health/node/{name}").json()


def test_an_active_node_is_passing_and_only_for_its_own_registration(
    ours: Settings, handler: ConsulHandler
) -> None:
    perform(handler, claim("consul.register", "n1"), claim("consul.register", "n2", "r2"))
    own, other = claim("consul.activate", "n1"), claim("consul.activate", "n2", "r1")
    gone = claim("consul.activate", "n3")
    assert set(perform(handler, own, other, gone).values()) == {Done()}
    assert [shown(ours, each)[0]["Status"] for each in ("n1", "n2")] == ["passing", "critical"]
    assert shown(ours, "n3") == []
    perform(handler, claim("consul.deregister", "n1"))
    assert shown(ours, "n1") == []


def test_a_node_is_written_critical_and_again_without_harm(
    ours: Settings, handler: ConsulHandler
) -> None:
    first, again = claim("consul.register", "n1"), claim("consul.register", "n1")
    assert perform(handler, first) == {first.intent_id: Done()}
    assert perform(handler, again) == {again.intent_id: Done()}
    (check,) = shown(ours, "n1")
    assert (check["Status"], check["ServiceID"]) == ("critical", "web")
    answer, _ = handler.set_status({"n1": "r1"}, CheckStatus.PASSING, time.monotonic() + 5)
    assert answer == {"n1": Done()}
    assert shown(ours, "n1")[0]["Status"] == "passing"


def test_another_registrations_node_is_left_alone(ours: Settings, handler: ConsulHandler) -> None:
    other = claim("consul.deregister", "n1", "r0")
    perform(handler, claim("consul.register", "n1", "r1"))
    assert perform(handler, other) == {other.intent_id: Done()}
    assert shown(ours, "n1")
    own, gone = claim("consul.deregister", "n1", "r1"), claim("consul.deregister", "n9")
    assert perform(handler, own, gone) == {own.intent_id: Done(), gone.intent_id: Done()}
    assert shown(ours, "n1") == []


def test_a_bad_registration_fails_alone_and_chunks_keep_to_the_limit(
    ours: Settings, handler: ConsulHandler
) -> None:
    good = [claim("consul.register", f"n{each}") for each in range(40)]
    bad = claim("consul.register", "bad", service_id="")
    answer = handler.perform([*good, bad], time.monotonic() + 20, None)
    assert isinstance(failed := answer.outcomes[bad.intent_id], Failed)
    assert failed.kind is FailureKind.PERMANENT
    assert all(answer.outcomes[each.intent_id] == Done() for each in good)
    assert list(answer.calls) == [CallOutcome.SUCCESS] * 3  # 16 nodes of 4 operations in each


def test_without_time_nothing_is_tried(handler: ConsulHandler) -> None:
    answer = handler.perform([claim("consul.register", "n1")], time.monotonic() - 1, None)
    assert (dict(answer.outcomes), list(answer.calls)) == ({}, [])


@pytest.mark.parametrize(
    ("answer", "kind", "call", "words"),
    [
        (
            b"HTTP/1.1 500 X\r\n\r\n" + TOKEN.encode(),
            FailureKind.UNKNOWN,
            CallOutcome.FAILURE,
            "failed with 500",
        ),
        (b"HTTP/1.1 200 OK\r\n\r\nnot json", FailureKind.UNKNOWN, CallOutcome.FAILURE, "not JSON"),
        (b"HTTP/1.1 200 OK\r\n\r\n[]", FailureKind.UNKNOWN, CallOutcome.FAILURE, "no transaction"),
        (b"\x00garbage\r\n\r\n", FailureKind.UNKNOWN, CallOutcome.FAILURE, "cut off"),
        (b"", FailureKind.UNKNOWN, CallOutcome.FAILURE, "cut off"),
        (
            b"HTTP/1.1 403 X\r\n\r\n" + TOKEN.encode(),
            FailureKind.PERMANENT,
            CallOutcome.REFUSED,
            "refused with 403",
        ),
        (
            b"HTTP/1.1 400 X\r\n\r\nno",
            FailureKind.PERMANENT,
            CallOutcome.REFUSED,
            "refused with 400",
        ),
    ],
)
def test_what_goes_wrong_is_told_without_the_token(
    playing: Callable[[bytes], Settings],
    answer: bytes,
    kind: FailureKind,
    call: CallOutcome,
    words: str,
) -> None:
    handler = ConsulHandler(playing(answer), lambda: datetime.now(UTC))
    asked = claim("consul.register", "n1")
    said = handler.perform([asked], time.monotonic() + 5, None)
    handler.close()
    failed = said.outcomes[asked.intent_id]
    assert isinstance(failed, Failed)
    assert (failed.kind, list(said.calls)) == (kind, [call])
    assert words in failed.error
    assert TOKEN not in failed.error


def test_nobody_listening_means_that_nothing_happened(port: int) -> None:
    url = SecretUrl(f"http://127.0.0.1:{port}")
    handler = ConsulHandler(Settings(consul_url=url), lambda: datetime.now(UTC))
    asked = claim("consul.register", "n1")
    assert perform(handler, asked) == {
        asked.intent_id: Failed(FailureKind.TRANSIENT, "Consul cannot be reached")
    }
    handler.close()


def test_an_agents_service_is_removed_by_its_own_registration_only(servers: Settings) -> None:
    settings = servers.at(consul_mode=ConsulMode.AGENT)
    handler = ConsulHandler(settings, lambda: datetime.now(UTC))
    made = claim("consul.register", "n1", health_check={"TTL": "30s"})
    stolen = claim("consul.register", "n2")
    other, own = claim("consul.deregister", "n1", "r0"), claim("consul.deregister", "n1")
    assert perform(handler, made) == {made.intent_id: Done()}
    assert isinstance(perform(handler, stolen)[stolen.intent_id], Failed)
    assert perform(handler, other) == {other.intent_id: Done()}
    for kind in ("consul.register", "consul.deregister"):
        astray = claim(kind, "n1", service_id="../../kv/x")
        assert isinstance(perform(handler, astray)[astray.intent_id], Failed)
    assert settings.consul_url
    services = f"{settings.consul_url.reveal()}/v1/agent/services"
    assert "web" in httpx.get(services).json()
    assert perform(handler, own) == {own.intent_id: Done()}
    assert "web" not in httpx.get(services).json()
    handler.close()
