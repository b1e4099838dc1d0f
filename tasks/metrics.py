"""Every metric: its name, kind, labels and buckets, in one table; and how they are shown.

Names are the registration contract's own. A label takes one of a few known values, anything else
is `other`: ids of nodes, deployments and workflows are for log lines.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

Labels = tuple[tuple[str, str], ...]
Row = tuple[str, str, Labels]
"""A metric, which of its samples (`""`, `_bucket`, `_sum`), and its labels."""

OTHER, UNKNOWN = "other", "unknown"
_STATE_MS = (10, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000)
_GC_MS = (100, 500, 1000, 5000, 10000, 30000, 60000)
_FAILURES = frozenset({"timeout", "permanent", "transient"})
_STATES = frozenset(
    [
        "unregistered",
        "validating",
        "registering_postgres",
        "postgres_registered",
        "registering_consul",
        "registered",
        "partial_registered",
        "deregistering",
        "deregistered",
        "failed",
    ]
)

# What a label may say. Environments are those the deployment allows, or the usual ones.
ENVIRONMENTS = frozenset(
    ["prod", "production", "staging", "stage", "test", "qa", "dev", "development", "local"]
)
_VALUES: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "state": _STATES,
        "from_state": _STATES,
        "last_state": _STATES,
        "outcome": frozenset({"success", "timeout", "failure"}),
        "error_type": _FAILURES
        | frozenset(["PayloadError", "DataError", "KeyError", "TypeError", "ValueError", "fatal"]),
        "consul_error_type": _FAILURES,
        "validation_error_type": frozenset({"payload"}),
        "failed_component": frozenset({"consul", "postgres"}),
        "recovered_component": frozenset({"consul", "postgres"}),
        "phase": frozenset({"continue_processing", "intents"}),
        "trigger_emitted": frozenset(
            {"VALIDATION_FAILED", "POSTGRES_FAILED", "CONSUL_FAILED", "DEREGISTRATION_COMPLETE"}
        ),
        "timeout_ms": frozenset({"5000", "10000", "15000"}),
        "gc_type": frozenset({"postgres", "consul"}),
        "resource_type": frozenset(
            [
                "node_record",
                "service",
                "consul_service",
                "postgres_node_record",
                "consul_session",
                "consul_health_check",
            ]
        ),
        "detection_method": frozenset(
            ["stale_heartbeat", "critical_health_check", "orphan_session", "missing_node"]
        ),
    }
)


@dataclass(frozen=True, slots=True)
class Family:
    """One metric."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str
    buckets: tuple[int, ...] = ()


def _counter(name: str, labels: str, told: str) -> Family:
    return Family(name, "counter", tuple(labels.split()), told)


FAMILIES: tuple[Family, ...] = (
    _counter("registration_postgres_success", "environment", "PostgreSQL upserts that succeeded"),
    _counter(
        "registration_postgres_failure", "environment error_type", "PostgreSQL upserts failed"
    ),
    _counter("registration_complete", "environment", "Nodes registered in both systems"),
    _counter(
        "registration_partial", "environment failed_component", "Consul failed after PostgreSQL"
    ),
    _counter(
        "registration_recovery_success",
        "environment recovered_component",
        "Partial registrations that recovered",
    ),
    _counter("deregistration_complete", "environment", "Deregistrations that ended"),
    _counter(
        "registration_internal_error",
        "environment phase error_type",
        "Errors of our own while registering",
    ),
    _counter(
        "registration_state_timeout_total",
        "state trigger_emitted",
        "States that took too long, by what was pulled",
    ),
    Family(
        "registration_state_duration_ms",
        "histogram",
        ("state", "outcome"),
        "Time spent in each state",
        _STATE_MS,
    ),
    _counter(
        "registration_validation_error_total",
        "environment validation_error_type",
        "Payloads that were refused",
    ),
    _counter(
        "registration_consul_error_total",
        "environment consul_error_type",
        "Consul registrations that failed",
    ),
    _counter(
        "registration_retry_exhausted_total",
        "environment last_state",
        "Registrations whose retries were used up",
    ),
    _counter(
        "registration_timeout_total",
        "environment state timeout_ms",
        "States that took too long, by where",
    ),
    _counter(
        "registration_fatal_error_total",
        "environment from_state error_type",
        "FATAL_ERROR from any state",
    ),
    _counter("registration_gc_run_total", "gc_type", "Runs of the garbage collection"),
    _counter("registration_gc_cleaned_total", "gc_type resource_type", "Orphans taken away"),
    Family(
        "registration_gc_duration_ms",
        "histogram",
        ("gc_type",),
        "How long the garbage collection ran",
        _GC_MS,
    ),
    _counter("registration_gc_errors_total", "gc_type error_type", "Runs that failed"),
    _counter(
        "consul_gc_deregistered_total",
        "environment datacenter",
        "Services of Consul that were taken away",
    ),
    _counter("deregistration_consul_timeout_total", "environment", "Removals from Consul too late"),
    _counter(
        "deregistration_postgres_timeout_total", "environment", "Removals from PostgreSQL too late"
    ),
    _counter(
        "deregistration_consul_failure_total",
        "environment error_type",
        "Removals from Consul that failed",
    ),
    _counter(
        "deregistration_postgres_failure_total",
        "environment error_type",
        "Removals from PostgreSQL that failed",
    ),
    _counter(
        "deregistration_partial_cleanup_total",
        "environment failed_component",
        "Deregistrations that left one system behind",
    ),
    _counter(
        "orphan_resource_detected_total",
        "resource_type detection_method environment",
        "Orphans found",
    ),
    Family(
        "orphan_resource_age_seconds",
        "gauge",
        ("resource_type", "environment"),
        "Age of the oldest orphan of each type",
    ),
    _counter("orphan_cleanup_success_total", "resource_type environment", "Orphans taken away"),
    _counter(
        "orphan_cleanup_failure_total",
        "resource_type error_type environment",
        "Orphans that could not be taken away",
    ),
)
BY_NAME: Mapping[str, Family] = MappingProxyType({each.name: each for each in FAMILIES})


@dataclass
class Tally:
    """What is to be added to the metrics, and what gauges are set to."""

    environments: frozenset[str] = ENVIRONMENTS
    datacenters: frozenset[str] = frozenset()
    added: Counter[Row] = field(default_factory=Counter)
    set_to: dict[Row, float] = field(default_factory=dict)

    def count(self, name: str, value: float = 1, **labels: str) -> None:
        if value:
            self.added[name, "", self._labels(BY_NAME[name], labels)] += value  # type: ignore[assignment]

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Into the first bucket that holds it; they are added up when they are shown."""
        family = BY_NAME[name]
        bound = next((str(each) for each in family.buckets if value <= each), "+Inf")
        known = self._labels(family, labels)
        self.added[name, "_bucket", (*known, ("le", bound))] += 1
        self.added[name, "_sum", known] += max(value, 0)  # type: ignore[assignment]

    def orphans(self, kind: str, count: int, oldest_age: float, method: str = "") -> None:
        """What a run of the garbage collection found of one type."""
        self.count(
            "orphan_resource_detected_total", count, resource_type=kind, detection_method=method
        )
        family = BY_NAME["orphan_resource_age_seconds"]
        labels = self._labels(family, {"resource_type": kind})
        self.set_to[family.name, "", labels] = oldest_age if count else 0.0

    def _labels(self, family: Family, said: Mapping[str, str]) -> Labels:
        return tuple((name, self._bounded(name, said.get(name))) for name in family.labels)

    def _bounded(self, name: str, value: str | None) -> str:
        if not value:
            return UNKNOWN
        if name == "environment":
            known = self.environments
        elif name == "datacenter":
            known = self.datacenters
        else:
            known = _VALUES[name]
        return value if value in known else OTHER


class _Stored(Collector):
    """Hands stored values to prometheus_client."""

    def __init__(self, values: Mapping[Row, float]) -> None:
        self._values = values

    def collect(self) -> Iterator[Metric]:
        for family in FAMILIES:
            # The library adds `_total` to a counter's name by itself.
            metric = Metric(family.name.removesuffix("_total"), family.help, family.kind)
            mine = {row[1:]: value for row, value in self._values.items() if row[0] == family.name}
            if family.kind == "histogram":
                _cumulated(metric, family, mine)
            else:
                for (_, labels), value in sorted(mine.items()):
                    metric.add_sample(family.name, dict(labels), value)
            yield metric


def _cumulated(metric: Metric, family: Family, mine: Mapping[tuple[str, Labels], float]) -> None:
    for labels in sorted({each for part, each in mine if part == "_sum"}):
        total = 0.0
        for bound in (*map(str, family.buckets), "+Inf"):
            total += mine.get(("_bucket", (*labels, ("le", bound))), 0)
            metric.add_sample(f"{family.name}_bucket", {**dict(labels), "le": bound}, total)
        metric.add_sample(f"{family.name}_count", dict(labels), total)
        metric.add_sample(f"{family.name}_sum", dict(labels), mine["_sum", labels])


def exposition(values: Iterable[tuple[Row, float]]) -> str:
    """The text Prometheus reads. The library insists on `_total` in the lines that describe a
    counter; seven of ours are called otherwise."""
    registry = CollectorRegistry()
    registry.register(_Stored(dict(values)))
    text = generate_latest(registry).decode()
    for family in FAMILIES:
        if family.kind == "counter" and not family.name.endswith("_total"):
            for word in ("HELP", "TYPE"):
                text = text.replace(f"# {word} {family.name}_total ", f"# {word} {family.name} ")
    return text
