"""One HTTP call to Consul: bounded in time, told in one short sentence, without secrets."""

import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

import requests
from consul.std import HTTPClient
from urllib3.exceptions import HTTPError, NewConnectionError

from fsm.breaker import CallOutcome
from fsm.retry import FailureKind
from tasks.redaction import Redactor
from tasks.settings import Settings

_LONGEST_WORDS = 200
_SHORTEST_WAIT = 0.05
_PORTS = {"http": 80, "https": 443}

Method = Literal["get", "put"]


@dataclass(frozen=True, slots=True)
class Reply:
    """What Consul answered, if it did. `kind` says what a failure means for a later try."""

    outcome: CallOutcome
    kind: FailureKind
    said: str
    status: int | None = None
    body: Any = None


class ConsulClient:
    """Consul's HTTP interface over one kept connection. For one thread at a time.

    What the environment says of proxies, certificates and `CONSUL_…` is not heard: settings are.
    """

    def __init__(self, settings: Settings) -> None:
        assert settings.consul_url is not None  # noqa: S101
        parts = urlsplit(settings.consul_url.reveal())
        host = parts.hostname or ""
        self._http = HTTPClient(
            host=f"[{host}]" if ":" in host else host,
            port=parts.port or _PORTS[parts.scheme],
            scheme=parts.scheme,
            verify=str(settings.consul_ca_file) if settings.consul_ca_file else True,
        )
        self._http.session.trust_env = False
        # A redirect would carry the token to whom it names.
        self._http.session.max_redirects = 0
        if parts.username is not None:
            self._http.session.auth = (unquote(parts.username), unquote(parts.password or ""))
        self._path = parts.path.rstrip("/")
        self._seconds = settings.consul_timeout_ms / 1000
        self._datacenter = settings.consul_datacenter
        self._token = {"X-Consul-Token": t.reveal()} if (t := settings.consul_token) else {}
        self._redactor = Redactor(settings.secrets)

    def ask(
        self,
        method: Method,
        path: str,
        until: float,
        *,
        body: bytes = b"",
        params: Mapping[str, str] | None = None,
        correlation_ids: Iterable[str] = (),
    ) -> Reply:
        """One call; it waits no longer than the setting and than what is left until `until`."""
        wait = max(min(self._seconds, until - time.monotonic()), _SHORTEST_WAIT)
        self._http.timeout = wait
        headers = dict(self._token)
        if ids := ",".join(dict.fromkeys(correlation_ids)):
            headers["X-Correlation-ID"] = ids
        asked = dict(params or {})
        if self._datacenter and not path.startswith("/v1/agent/"):
            asked["dc"] = self._datacenter
        words: dict[str, Any] = {"params": asked, "headers": headers}
        if method == "put":
            words["data"] = body
        try:
            answer = getattr(self._http, method)(lambda given: given, self._path + path, **words)
        except requests.Timeout as error:
            kind = FailureKind.UNKNOWN
            if isinstance(error, requests.ConnectTimeout):
                kind = FailureKind.TRANSIENT
            said = f"Consul did not answer within {wait:.1f} s"
            return Reply(CallOutcome.FAILURE, kind, said)
        except (requests.RequestException, HTTPError, OSError) as error:
            return Reply(CallOutcome.FAILURE, *_unreached(error))
        return self._read(answer.code, answer.body)

    def close(self) -> None:
        self._http.session.close()

    def _read(self, status: int, text: str) -> Reply:
        if status >= 500:
            said = f"Consul failed with {status}: {self._words(text)}"
            return Reply(CallOutcome.FAILURE, FailureKind.UNKNOWN, said, status)
        parsed, body = _json(text)
        if status == 200:
            if parsed:
                return Reply(CallOutcome.SUCCESS, FailureKind.UNKNOWN, "", status, body)
            return Reply(
                CallOutcome.FAILURE, FailureKind.UNKNOWN, "Consul's answer is not JSON", status
            )
        if status < 400:
            said = f"Consul answered {status}, which it never does"
            return Reply(CallOutcome.FAILURE, FailureKind.UNKNOWN, said, status)
        # 408 and 429 are about the moment, not about what was asked.
        kind = FailureKind.TRANSIENT if status in (408, 429) else FailureKind.PERMANENT
        said = f"Consul refused with {status}: {self._words(text)}"
        return Reply(CallOutcome.REFUSED, kind, said, status, body)

    def _words(self, text: str) -> str:
        told = self._redactor.text(" ".join(text.split()))
        return told[:_LONGEST_WORDS] or "no reason given"


def _json(text: str) -> tuple[bool, Any]:
    """Whether it is JSON, and what it says; an empty body says nothing."""
    if not text.strip():
        return True, None
    try:
        return True, json.loads(text)
    except (ValueError, RecursionError):
        return False, None


def _unreached(error: Exception) -> tuple[FailureKind, str]:
    """Nobody listened, so nothing happened; or the connection broke, and nobody knows."""
    cause = error.args[0] if error.args else None
    if isinstance(getattr(cause, "reason", None), NewConnectionError):
        return FailureKind.TRANSIENT, "Consul cannot be reached"
    if isinstance(error, requests.exceptions.SSLError):
        return FailureKind.TRANSIENT, "Consul's certificate is not one we trust"
    return FailureKind.UNKNOWN, f"Consul's answer was cut off ({type(error).__name__})"
