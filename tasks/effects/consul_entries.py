"""What an intent asks of Consul, checked, and what of it is written there."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from models.messages.registration import MOST_TAGS, Address, Name, NodeId, Port, Record

OURS = "rollcall"
CHECK_NAME = "Rollcall liveness"


class CheckStatus(StrEnum):
    CRITICAL = "critical"
    PASSING = "passing"


class Malformed(ValueError):
    """An intent's payload cannot be carried out, whoever tries."""


class _Asked(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    node_id: NodeId
    registration_id: Annotated[str, Field(min_length=1, max_length=128)]


class Registration(_Asked):
    """A node as Consul is to show it. `active` is said by who repairs what was acknowledged."""

    correlation_id: Annotated[str, Field(max_length=128)] = ""
    generation: Annotated[int, Field(ge=0)] = 0
    service_id: Name
    service_name: Name
    tags: Annotated[tuple[Name, ...], Field(max_length=MOST_TAGS)] = ()
    health_check: Record | None = None
    address: Address | None = None
    port: Port | None = None
    active: bool = False

    @property
    def reached_at(self) -> str:
        """A node that names no address is looked for under its own id."""
        return self.address or self.node_id

    def meta(self, now: datetime) -> dict[str, str]:
        """What makes it ours, and tells whose it is."""
        return {
            "managed-by": OURS,
            "node_id": self.node_id,
            "registration_id": self.registration_id,
            "correlation_id": self.correlation_id,
            "generation": str(self.generation),
            "service_id": self.service_id,
            "service_name": self.service_name,
            "written_at": now.isoformat(timespec="seconds"),
        }


class Removal(_Asked):
    """A node that is to go, if this registration wrote it."""

    correlation_id: Annotated[str, Field(max_length=128)] = ""
    service_id: Name | None = None


def registration(payload: Mapping[str, Any]) -> Registration:
    return _checked(Registration, payload)


def removal(payload: Mapping[str, Any]) -> Removal:
    return _checked(Removal, payload)


def node_name(prefix: str, node_id: str) -> str:
    """The node's name in Consul: whatever its id is made of, this is a name DNS takes."""
    return prefix + hashlib.sha256(node_id.encode()).hexdigest()[:32]


def set_node(name: str, entry: Registration, now: datetime) -> list[dict[str, Any]]:
    """The operations that write a node. What stood there goes first: an earlier registration may
    have had another service. They are one transaction, so nobody sees it gone."""
    node = {"Node": name, "Address": entry.reached_at, "Meta": entry.meta(now)}
    service = {
        "ID": entry.service_id,
        "Service": entry.service_name,
        "Tags": list(entry.tags),
        "Address": entry.reached_at,
        "Port": entry.port or 0,
        "Meta": {"node_id": entry.node_id, "registration_id": entry.registration_id},
    }
    status = CheckStatus.PASSING if entry.active else CheckStatus.CRITICAL
    return [
        {"Node": {"Verb": "delete", "Node": {"Node": name}}},
        {"Node": {"Verb": "set", "Node": node}},
        {"Service": {"Verb": "set", "Node": name, "Service": service}},
        set_check(name, entry.service_id, entry.service_name, status, now),
    ]


def set_check(
    name: str, service_id: str, service_name: str, status: CheckStatus, now: datetime
) -> dict[str, Any]:
    check = {
        "Node": name,
        "CheckID": f"{OURS}:{service_id}",
        "Name": CHECK_NAME,
        "Status": status.value,
        "Output": f"{status} since {now.isoformat(timespec='seconds')}",
        "ServiceID": service_id,
        "ServiceName": service_name,
    }
    return {"Check": {"Verb": "set", "Check": check}}


@dataclass(frozen=True, slots=True)
class Standing:
    """A node as it stands in Consul. `index` moves whenever the node is written."""

    name: str
    address: str
    meta: Mapping[str, str]
    index: int

    @classmethod
    def read(cls, node: Mapping[str, Any]) -> "Standing":
        return cls(
            str(node["Node"]),
            str(node.get("Address") or ""),
            dict(node.get("Meta") or {}),
            int(node["ModifyIndex"]),
        )

    @property
    def registration_id(self) -> str | None:
        return self.meta.get("registration_id") if self.meta.get("managed-by") == OURS else None

    def delete(self) -> dict[str, Any]:
        node = {"Node": self.name, "ModifyIndex": self.index}
        return {"Node": {"Verb": "delete-cas", "Node": node}}

    def unchanged(self) -> dict[str, Any]:
        """Writes it as it stands; refused if somebody wrote it since."""
        node = {"Node": self.name, "Address": self.address, "Meta": dict(self.meta)}
        return {"Node": {"Verb": "cas", "Node": node | {"ModifyIndex": self.index}}}


Kind = TypeVar("Kind", bound=_Asked)


def _checked(kind: type[Kind], payload: Mapping[str, Any]) -> Kind:
    try:
        return kind.model_validate(payload)
    except ValidationError as error:
        told = error.errors(include_url=False, include_input=False, include_context=False)
        said = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in told[:3])
        raise Malformed(f"the intent cannot be carried out: {said}") from None
