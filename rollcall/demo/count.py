"""The count from outside: what was promised to each node, and what PostgreSQL and Consul show."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import httpx
from sqlalchemy import Engine, text

from models.errors import InfraUnavailableError
from tasks.secrets import SecretUrl

ACTIVE = "active"
_OVER = frozenset({"ack_timed_out", "liveness_expired", "departed"})

_SEEN = text(
    """
    SELECT h.entity_id, h.state, r.state,
           coalesce(CAST(h.context ->> 'generation' AS integer), 0),
           h.context ->> 'registration_id'
      FROM entities AS h
      LEFT JOIN entities AS r ON r.entity_id = h.entity_id AND r.machine = 'registration'
     WHERE h.machine = 'handshake'
    """
)
_RECORDS = text("SELECT node_id, registration_id FROM node_registrations")
# Each generation begins with INITIATED.
_ACTIVATIONS = text(
    """
    SELECT entity_id, generation, count(*)
      FROM (SELECT entity_id, trigger,
                   count(*) FILTER (WHERE trigger = 'INITIATED')
                       OVER (PARTITION BY entity_id ORDER BY sequence) AS generation
              FROM event_log WHERE machine = 'handshake') AS numbered
     WHERE trigger = 'BECAME_ACTIVE'
     GROUP BY entity_id, generation
    """
)
_REGISTERED = text(
    """
    SELECT entity_id, min(applied_at) FROM event_log
     WHERE machine = 'registration' AND trigger IN ('CONSUL_SUCCEEDED', 'RECOVERY_COMPLETE')
     GROUP BY entity_id
    """
)


class Expected(NamedTuple):
    """How a node's handshake is to end, and in which generation at the earliest."""

    handshake: str
    generation: int = 1


class Seen(NamedTuple):
    """Where a node's two machines stand."""

    handshake: str
    registration: str | None
    generation: int
    registration_id: str | None

    @property
    def rests(self) -> bool:
        """Nothing more happens to it unless somebody says or stops saying something."""
        return (self.handshake == ACTIVE and self.registration == "registered") or (
            self.handshake in _OVER and self.registration in (None, "deregistered")
        )

    def is_as(self, expected: Expected) -> bool:
        ended = self.handshake == expected.handshake and self.generation >= expected.generation
        return ended and self.rests


class Entry(NamedTuple):
    """A node as PostgreSQL or Consul has it."""

    node_id: str
    registration_id: str


@dataclass(frozen=True)
class Found:
    """Everything that was looked at."""

    seen: Mapping[str, Seen]
    records: Sequence[Entry]
    consul: Sequence[Entry]
    activations: Mapping[tuple[str, int], int]
    registered: Mapping[str, datetime]


@dataclass(frozen=True)
class Count:
    """What was promised and what was found."""

    nodes: int
    active: int
    in_postgres: int
    in_consul: int
    lost: int
    doubled: int
    stuck: int
    p50_ms: float | None
    p99_ms: float | None
    promised: int = 0
    broken: tuple[str, ...] = field(default=())

    @property
    def ok(self) -> bool:
        counted = {self.active, self.in_postgres, self.in_consul}
        return not (self.lost or self.doubled or self.stuck) and counted == {self.promised}

    def as_dict(self) -> dict[str, Any]:
        """What is printed as JSON."""
        said = asdict(self)
        return {key: value for key, value in said.items() if key not in ("promised", "broken")}


def judge(
    expected: Mapping[str, Expected], introduced: Mapping[str, datetime], found: Found
) -> Count:
    """Hold what was found against what was promised."""
    stuck = {
        node_id: f"stuck in {seen.handshake}, {seen.registration}"
        for node_id, seen in found.seen.items()
        if not seen.rests
    }
    lost = {
        node_id: why
        for node_id, wanted in expected.items()
        if node_id not in stuck and (why := _lost(node_id, wanted, found)) is not None
    }
    doubled = {*_doubled(found)}
    times = sorted(
        (at - introduced[node_id]).total_seconds() * 1000
        for node_id, at in found.registered.items()
        if node_id in introduced
    )
    told = [*stuck.items(), *lost.items(), *((each, "there more than once") for each in doubled)]
    return Count(
        nodes=len(expected),
        active=sum(seen.handshake == ACTIVE for seen in found.seen.values()),
        in_postgres=len({each.node_id for each in found.records}),
        in_consul=len({each.node_id for each in found.consul}),
        lost=len(lost),
        doubled=len(doubled),
        stuck=len(stuck),
        p50_ms=_percentile(times, 50),
        p99_ms=_percentile(times, 99),
        promised=sum(wanted.handshake == ACTIVE for wanted in expected.values()),
        broken=tuple(f"{node_id}: {why}" for node_id, why in sorted(told)),
    )


def _lost(node_id: str, wanted: Expected, found: Found) -> str | None:
    seen = found.seen.get(node_id)
    if seen is None:
        return "nobody knows it"
    if not seen.is_as(wanted):
        said = f"{seen.handshake} in generation {seen.generation}"
        return f"{said}, promised was {wanted.handshake} in {wanted.generation} or later"
    should = {seen.registration_id} if wanted.handshake == ACTIVE else set()
    for where, entries in (("PostgreSQL", found.records), ("Consul", found.consul)):
        has = {each.registration_id for each in entries if each.node_id == node_id}
        if has != should:
            missing = "does not have its registration" if should else "still has it"
            return f"{where} {missing}"
    return None


def _doubled(found: Found) -> Iterator[str]:
    yield from (node_id for (node_id, _), times in found.activations.items() if times > 1)
    for entries in (found.records, found.consul):
        times = Counter(each.node_id for each in entries)
        yield from (node_id for node_id, number in times.items() if number > 1)


def _percentile(times: Sequence[float], percent: int) -> float | None:
    return round(times[min(len(times) * percent // 100, len(times) - 1)], 1) if times else None


def where_they_stand(engine: Engine) -> dict[str, Seen]:
    """Both machines of every node."""
    with engine.connect() as connection:
        return {row[0]: Seen(*row[1:]) for row in connection.execute(_SEEN)}


def look(engine: Engine, consul_url: SecretUrl, service: str) -> Found:
    """Ask PostgreSQL and Consul; neither is asked through the runtime."""
    with engine.connect() as connection:
        records = [Entry(*row) for row in connection.execute(_RECORDS)]
        activations = {(row[0], row[1]): row[2] for row in connection.execute(_ACTIVATIONS)}
        registered = {row[0]: row[1] for row in connection.execute(_REGISTERED)}
    return Found(
        where_they_stand(engine), records, _in_consul(consul_url, service), activations, registered
    )


def _in_consul(url: SecretUrl, service: str) -> list[Entry]:
    try:
        answer = httpx.get(
            f"{url.reveal()}/v1/catalog/service/{service}", params={"consistent": ""}, timeout=10.0
        )
        found = answer.raise_for_status().json()
    except httpx.HTTPError as error:
        raise InfraUnavailableError(
            f"Consul at {url} cannot be asked: {error}", "run the demo again"
        ) from None
    return [
        Entry(each["ServiceMeta"]["node_id"], each["ServiceMeta"]["registration_id"])
        for each in found
    ]
