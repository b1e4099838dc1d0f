"""A projection: where one entity of one machine stands. Equal folds have equal bytes."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self
from uuid import UUID

from models.canonical import canonical


@dataclass(frozen=True, slots=True)
class Deadline:
    """When time runs out, which step set it, and by which message."""

    at: datetime
    set_by: int
    cause: UUID


@dataclass(frozen=True, slots=True)
class Projection:
    """Everything that folding an entity's events gives."""

    machine: str
    entity_id: str
    state: str
    context: Mapping[str, Any]
    deadlines: Mapping[str, Deadline]
    sequence: int
    last_event_id: UUID
    last_trigger: str
    correlation_id: UUID
    contract_hash: str

    def text(self) -> str:
        """The canonical text that a replay must arrive at."""
        return canonical(
            {
                "machine": self.machine,
                "entity_id": self.entity_id,
                "state": self.state,
                "context": self.context,
                "deadlines": deadlines_as_json(self.deadlines),
                "sequence": self.sequence,
                "last_event_id": str(self.last_event_id),
                "last_trigger": self.last_trigger,
                "correlation_id": str(self.correlation_id),
                "contract_hash": self.contract_hash,
            }
        )

    def digest(self) -> bytes:
        return hashlib.sha256(self.text().encode("utf-8", "surrogatepass")).digest()

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read what `text` wrote."""
        said = json.loads(text)
        said["deadlines"] = deadlines_from_json(said["deadlines"])
        said["last_event_id"] = UUID(said["last_event_id"])
        said["correlation_id"] = UUID(said["correlation_id"])
        return cls(**said)

    @property
    def next_deadline(self) -> datetime | None:
        return min((each.at for each in self.deadlines.values()), default=None)


def deadlines_as_json(deadlines: Mapping[str, Deadline]) -> dict[str, Any]:
    return {
        name: {"at": each.at.isoformat(), "set_by": each.set_by, "cause": str(each.cause)}
        for name, each in deadlines.items()
    }


def deadlines_from_json(stored: Mapping[str, Any]) -> dict[str, Deadline]:
    return {
        name: Deadline(datetime.fromisoformat(each["at"]), each["set_by"], UUID(each["cause"]))
        for name, each in stored.items()
    }
