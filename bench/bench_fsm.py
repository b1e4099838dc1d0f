"""How fast the pure core is: `delta` on registration with its guards, and loading every machine."""

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable, Mapping
from uuid import UUID

from fsm.contract import Contract
from fsm.delta import delta
from fsm.library import Machine, load_library

ROUNDS = 4_000
LOADS = 20
MEDIAN_US, P99_US, LOAD_MS = 10.0, 50.0, 300.0
CAUSE = UUID(int=1)

NODE: Mapping[str, object] = {
    "payload": {"node": "n-1"},
    "node_id": "n-1",
    "deployment_id": "d-1",
    "environment": "prod",
    "network_id": "net-1",
    "consul_service_id": "svc-1",
    "consul_service_name": "svc",
    "consul_tags": ["a", "b"],
    "postgres_record": {"node_id": "n-1", "host": "10.0.0.1", "port": 8080},
    "registration_id": "r-1",
    "correlation_id": "c-1",
    "retry_count": 0,
    "postgres_applied": False,
    "consul_applied": False,
}
HALF = {"postgres_applied": True}
BOTH = {"postgres_applied": True, "consul_applied": True}
ROWS: tuple[tuple[str, str, Mapping[str, object]], ...] = (
    ("unregistered", "REGISTER", {}),
    ("validating", "VALIDATION_PASSED", {"validation_result": "passed"}),
    ("validating", "VALIDATION_FAILED", {"validation_result": "failed"}),
    ("registering_postgres", "POSTGRES_SUCCEEDED", HALF),
    ("registering_postgres", "POSTGRES_FAILED", {}),
    ("registering_consul", "CONSUL_SUCCEEDED", BOTH),
    ("registering_consul", "CONSUL_FAILED", HALF),
    ("partial_registered", "RETRY", HALF),
    ("partial_registered", "RETRY", {**HALF, "retry_count": 3}),
    ("partial_registered", "RETRY_POSTGRES", {"consul_applied": True}),
    ("partial_registered", "RECOVERY_COMPLETE", BOTH),
    ("partial_registered", "RETRY_EXHAUSTED", {"retry_count": 3}),
    ("registered", "DEREGISTER", BOTH),
    ("deregistering", "DEREGISTRATION_COMPLETE", BOTH),
    ("failed", "RETRY", {}),
    ("failed", "ABANDON", {}),
    ("registering_consul", "FATAL_ERROR", HALF),
    ("registered", "REGISTER", BOTH),
)


def timed(call: Callable[[], object]) -> int:
    begin = time.perf_counter_ns()
    call()
    return time.perf_counter_ns() - begin


def p99(samples: list[int]) -> float:
    return statistics.quantiles(samples, n=100)[98]


def bench_rows(contract: Contract) -> dict[str, list[int]]:
    """Every row in turn, round after round, so that none profits from its own echo."""
    calls = {
        f"{state} {trigger} #{at}": _call(contract, state, trigger, {**NODE, **extra})
        for at, (state, trigger, extra) in enumerate(ROWS, 1)
    }
    samples: dict[str, list[int]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            samples[name].append(timed(call))
    return samples


def _call(
    contract: Contract, state: str, trigger: str, context: Mapping[str, object]
) -> Callable[[], object]:
    return lambda: delta(contract, state, trigger, context, cause=CAUSE)


def measure() -> dict[str, object]:
    """The numbers, and whether each keeps its budget."""
    loads = [timed(load_library) / 1e6 for _ in range(LOADS)]
    contract = load_library()[Machine.REGISTRATION]
    gc.collect()
    samples = bench_rows(contract)
    everything = [each for row in samples.values() for each in row]
    median_us, p99_us = statistics.median(everything) / 1e3, p99(everything) / 1e3
    load_ms = statistics.median(loads)
    return {
        "delta_median_us": round(median_us, 2),
        "delta_p99_us": round(p99_us, 2),
        "load_all_machines_ms": round(load_ms, 2),
        "load_all_machines_worst_ms": round(max(loads), 2),
        "within_budget": median_us <= MEDIAN_US and p99_us <= P99_US and load_ms < LOAD_MS,
        "rows_us": {
            name: {
                "median": round(statistics.median(row) / 1e3, 2),
                "p99": round(p99(row) / 1e3, 2),
            }
            for name, row in samples.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    numbers = measure()
    if arguments.json:
        print(json.dumps(numbers))
        return
    print(
        f"delta, registration with guards: median {numbers['delta_median_us']} µs "
        f"(budget {MEDIAN_US:.0f}), p99 {numbers['delta_p99_us']} µs (budget {P99_US:.0f})"
    )
    print(
        f"load and analyse all {len(Machine)} machines: {numbers['load_all_machines_ms']} ms, "
        f"worst {numbers['load_all_machines_worst_ms']} ms (budget {LOAD_MS:.0f})"
    )
    rows = numbers["rows_us"]
    assert isinstance(rows, dict)
    for name, row in rows.items():
        print(f"  {name:<48} median {row['median']:>6} µs   p99 {row['p99']:>6} µs")


if __name__ == "__main__":
    main()
