"""Mode `agent`: a node is a service of a Consul agent, which runs the node's own health check."""

import json
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from fsm.breaker import CallOutcome
from fsm.retry import FailureKind
from tasks.effects.consul_client import ConsulClient, Reply
from tasks.effects.consul_entries import OURS, Registration, Removal
from tasks.effects.handler import Done, Failed

Told = tuple[dict[str, Done | Failed], list[CallOutcome]]


def register(
    client: ConsulClient, entries: Mapping[str, Registration], now: datetime, until: float
) -> Told:
    """An agent has one name space for all its services: another node's is not overwritten."""
    outcomes: dict[str, Done | Failed] = {}
    calls: list[CallOutcome] = []
    for key, entry in entries.items():
        if time.monotonic() >= until:
            break
        if not _is_one_segment(entry.service_id):
            outcomes[key] = Failed(FailureKind.PERMANENT, "the service_id cannot stand in a path")
            continue
        found = _service(client, entry, entry.service_id, until)
        calls.append(found.outcome)
        if found.status not in (200, 404):
            outcomes[key] = Failed(found.kind, found.said)
            continue
        meta = _meta(found)
        if found.status == 200 and (meta.get("managed-by"), meta.get("node_id")) != (
            OURS,
            entry.node_id,
        ):
            said = f"the service id {entry.service_id} belongs to somebody else on this agent"
            outcomes[key] = Failed(FailureKind.PERMANENT, said)
            continue
        reply = client.ask(
            "put",
            "/v1/agent/service/register",
            until,
            body=json.dumps(_definition(entry, now)).encode(),
            params={"replace-existing-checks": "true"},
            correlation_ids=[entry.correlation_id],
        )
        calls.append(reply.outcome)
        outcomes[key] = _outcome(reply)
    return outcomes, calls


def deregister(client: ConsulClient, entries: Mapping[str, Removal], until: float) -> Told:
    outcomes: dict[str, Done | Failed] = {}
    calls: list[CallOutcome] = []
    for key, entry in entries.items():
        if time.monotonic() >= until:
            break
        if entry.service_id is None or not _is_one_segment(entry.service_id):
            outcomes[key] = Failed(FailureKind.PERMANENT, "the service_id cannot stand in a path")
            continue
        found = _service(client, entry, entry.service_id, until)
        calls.append(found.outcome)
        meta = _meta(found)
        if found.status == 404:
            outcomes[key] = Done()
        elif found.status != 200:
            outcomes[key] = Failed(found.kind, found.said)
        elif (meta.get("managed-by"), meta.get("registration_id")) != (OURS, entry.registration_id):
            outcomes[key] = Done()
        else:
            path = f"/v1/agent/service/deregister/{entry.service_id}"
            reply = client.ask("put", path, until, correlation_ids=[entry.correlation_id])
            calls.append(reply.outcome)
            outcomes[key] = _outcome(reply)
    return outcomes, calls


def _is_one_segment(service_id: str) -> bool:
    """The id is a part of the address that is called: it must not lead elsewhere."""
    return "/" not in service_id and service_id not in (".", "..")


def _service(
    client: ConsulClient, entry: Registration | Removal, service_id: str, until: float
) -> Reply:
    path = f"/v1/agent/service/{service_id}"
    return client.ask("get", path, until, correlation_ids=[entry.correlation_id])


def _meta(found: Reply) -> Mapping[str, Any]:
    meta = found.body.get("Meta") if isinstance(found.body, dict) else None
    return meta if isinstance(meta, dict) else {}


def _definition(entry: Registration, now: datetime) -> dict[str, Any]:
    said: dict[str, Any] = {
        "ID": entry.service_id,
        "Name": entry.service_name,
        "Tags": list(entry.tags),
        "Address": entry.reached_at,
        "Port": entry.port or 0,
        "Meta": entry.meta(now),
    }
    return said | ({"Check": entry.health_check} if entry.health_check else {})


def _outcome(reply: Reply) -> Done | Failed:
    if reply.outcome is CallOutcome.SUCCESS:
        return Done()
    return Failed(reply.kind, reply.said)
