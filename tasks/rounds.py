"""What a worker does at a door: fold, carry out what PostgreSQL can do at once, fold again.

Five doorbells for one registration would be five tasks again; what is for another service is left
to that service's own workers.
"""

from collections import defaultdict
from collections.abc import Mapping
from time import monotonic
from typing import Any
from uuid import UUID

from tasks.doorbell import Doorbell, service_room
from tasks.effects.execute import Effects
from tasks.effects.services import INLINE
from tasks.runtime import Drained, Runtime

SECONDS = 1.0


def answer(
    runtime: Runtime, effects: Effects, doorbell: Doorbell, domain: str, partition: int
) -> dict[str, Any]:
    """Go round until nothing follows or the time is up; then leave the rest to the next bell."""
    until = monotonic() + SECONDS
    told: dict[str, Any] = {"rounds": 0, "effects": 0}
    while True:
        drained = runtime.drain(domain, partition)
        told["rounds"] += 1
        told |= _summed(told, drained)
        inline = _inline(drained, effects, doorbell)
        settled = sum(
            effects.run(service, named=named).settled for service, named in inline.items()
        )
        told["effects"] += settled
        if not settled:
            return told
        if monotonic() >= until:
            doorbell.ring([(domain, partition)])
            return told


def serve(effects: Effects, doorbell: Doorbell, service: str) -> dict[str, Any]:
    """Carry out what is due at a service, and ring whoever waits for the results."""
    ran = effects.run(service)
    doorbell.answered(service_room(service))
    doorbell.ring(ran.rooms | ({service_room(service)} if ran.more else set()))
    return ran.told()


def _inline(drained: Drained, effects: Effects, doorbell: Doorbell) -> Mapping[str, list[UUID]]:
    """The intents to be carried out here; the bells of the other services are rung."""
    named: defaultdict[str, list[UUID]] = defaultdict(list)
    elsewhere = set()
    for each in drained.intents:
        if each.service in INLINE and effects.serves(each.service):
            named[each.service].append(each.intent_id)
        elif effects.serves(each.service):
            elsewhere.add(service_room(each.service))
    doorbell.ring(elsewhere)
    return named


def _summed(told: Mapping[str, Any], drained: Drained) -> dict[str, Any]:
    found = drained.told()
    counts = {
        name: told.get(name, 0) + value
        for name, value in found.items()
        if isinstance(value, int) and name != "partition"
    }
    return found | counts
