"""When a node counts as silent, and when so many are that we doubt our own network."""

from dataclasses import dataclass
from datetime import timedelta

HANDSHAKE = "handshake"
ACTIVE = "active"
LIVENESS = "liveness"


@dataclass(frozen=True, slots=True)
class LivenessPolicy:
    """How often nodes tell that they live, how long one tale holds, and when to brake."""

    interval: timedelta = timedelta(seconds=30)
    liveness: timedelta = timedelta(seconds=90)
    brake_share_percent: int = 55
    brake_min_nodes: int = 10

    @property
    def quiet(self) -> timedelta:
        """A node that was not heard for so long is silent."""
        return self.interval * 1.5

    def holds(self, silent: int, live: int) -> bool:
        """Whether expiring must wait. A small fleet is never held; a share of 0 turns it off."""
        return (
            self.brake_share_percent > 0
            and live >= self.brake_min_nodes
            and silent * 100 >= self.brake_share_percent * live
        )
