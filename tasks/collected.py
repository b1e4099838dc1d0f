"""What a garbage collection goes by, and what it tells of itself."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any


@dataclass(frozen=True, slots=True)
class GcPolicy:
    """How old garbage has to be, and how much is taken at once."""

    age: timedelta = timedelta(hours=1)
    critical: timedelta = timedelta(seconds=300)
    batch: int = 100
    seconds: float = 25.0

    def is_old(
        self, written_at: datetime | None, critical_since: datetime | None, now: datetime
    ) -> bool:
        """Whether an entry that nobody stands behind goes. One that says no time is old."""
        if critical_since is not None and critical_since < now - self.critical:
            return True
        return written_at is None or written_at < now - self.age


@dataclass
class Collected:
    """What a run did, or would do; `skipped` says why it did nothing at all."""

    dry_run: bool = False
    skipped: str | None = None
    consul_trouble: str | None = None
    consul_left_alone: bool = False
    consul_removed: list[str] = field(default_factory=list)
    records_removed: list[str] = field(default_factory=list)
    repaired: list[str] = field(default_factory=list)
    sent_away: list[str] = field(default_factory=list)
    rechecked: int = 0
    letters_closed: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    more: bool = False
    seconds: float = 0.0

    @property
    def cleaned(self) -> list[str]:
        return sorted({*self.consul_removed, *self.records_removed})

    @property
    def well(self) -> bool:
        return not (self.skipped or self.consul_trouble or self.failed)

    def as_dict(self) -> dict[str, Any]:
        return vars(self) | {"nodes_cleaned": len(self.cleaned)}

    def counts(self) -> dict[str, Any]:
        """For Flower and the log: no lists of nodes."""
        return {
            name: len(value) if isinstance(value, list | dict) else value
            for name, value in self.as_dict().items()
        }
