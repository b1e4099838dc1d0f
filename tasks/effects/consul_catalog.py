"""What of Consul's catalog is ours: read whole, and taken away entry by entry."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from fsm.breaker import CallOutcome
from tasks.effects.consul_chunks import Job, Sent, send
from tasks.effects.consul_client import ConsulClient, Reply
from tasks.effects.consul_entries import OURS, CheckStatus, Standing, node_name

_OURS = {"node-meta": f"managed-by:{OURS}"}
_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Entry:
    """A node of ours in Consul. `complete`: its service and its check stand as well."""

    standing: Standing
    node_id: str
    registration_id: str
    written_at: datetime | None
    critical_since: datetime | None
    complete: bool


@dataclass(frozen=True, slots=True)
class Catalog:
    """Everything of ours, or why it could not be read."""

    entries: Sequence[Entry] = ()
    trouble: str | None = None


def read_catalog(client: ConsulClient, prefix: str) -> Catalog:
    """An entry is ours by its mark, our prefix, and a name that is made of its node's id."""
    until = time.monotonic() + _SECONDS
    nodes = client.ask("get", "/v1/catalog/nodes", until, params=_OURS)
    if trouble := _trouble(nodes):
        return Catalog(trouble=trouble)
    checks = client.ask("get", "/v1/health/state/any", until, params=_OURS)
    if trouble := _trouble(checks):
        return Catalog(trouble=trouble)
    stated = {
        str(each.get("Node")): each
        for each in checks.body or ()
        if str(each.get("CheckID", "")).startswith(f"{OURS}:")
    }
    standing = (Standing.read(each) for each in nodes.body or ())
    return Catalog(
        [
            _entry(each, stated.get(each.name))
            for each in standing
            if each.registration_id is not None
            and each.name == node_name(prefix, each.meta.get("node_id", ""))
        ]
    )


def remove(client: ConsulClient, entries: Sequence[Entry], until: float) -> Sent:
    """Take entries away, each only if nobody wrote it since it was read."""
    jobs = [
        Job(each.node_id, [each.standing.delete()], each.standing.meta.get("correlation_id", ""))
        for each in entries
    ]
    return send(client, jobs, until)


def _trouble(reply: Reply) -> str | None:
    if reply.outcome is not CallOutcome.SUCCESS:
        return reply.said
    if not isinstance(reply.body or [], list):
        return "Consul's answer is no list"
    return None


def _entry(standing: Standing, check: dict[str, Any] | None) -> Entry:
    critical = check is not None and check.get("Status") == CheckStatus.CRITICAL
    said = str(check.get("Output") or "") if check else ""
    return Entry(
        standing,
        standing.meta.get("node_id", ""),
        standing.registration_id or "",
        _time(standing.meta.get("written_at", "")),
        _time(said.rpartition(" since ")[2]) if critical else None,
        check is not None,
    )


def _time(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
