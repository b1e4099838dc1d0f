"""Metrics by their exact names, with few labels, counted with what they count."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy.orm import Session

from tasks.metrics import FAMILIES, Tally, exposition
from tasks.settings import Settings
from tasks.store import measures
from tests.integration.test_effects import REFUSED, introduced, world_of
from tests.runtime_kit import Kit, kit_of

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"
SPECIFIED = """
registration_postgres_success counter
registration_postgres_failure counter
registration_complete counter
registration_partial counter
registration_recovery_success counter
deregistration_complete counter
registration_internal_error counter
registration_state_timeout_total counter
registration_state_duration_ms histogram
registration_validation_error_total counter
registration_consul_error_total counter
registration_retry_exhausted_total counter
registration_timeout_total counter
registration_fatal_error_total counter
registration_gc_run_total counter
registration_gc_cleaned_total counter
registration_gc_duration_ms histogram
registration_gc_errors_total counter
consul_gc_deregistered_total counter
deregistration_consul_timeout_total counter
deregistration_postgres_timeout_total counter
deregistration_consul_failure_total counter
deregistration_postgres_failure_total counter
deregistration_partial_cleanup_total counter
orphan_resource_detected_total counter
orphan_resource_age_seconds gauge
orphan_cleanup_success_total counter
orphan_cleanup_failure_total counter
"""


@pytest.fixture
def kit(settings: Settings) -> Iterator[Kit]:
    yield from kit_of(settings)


def shown(kit: Kit) -> dict[str, float]:
    with Session(kit.engine) as session:
        text = exposition(measures.read(session).items())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def test_names_and_kinds_are_exactly_the_tables() -> None:
    text = exposition([])
    described = [line.split()[2:4] for line in text.splitlines() if line.startswith("# TYPE")]
    assert described == [[each.name, each.kind] for each in FAMILIES]
    assert described == [line.split() for line in SPECIFIED.splitlines() if line]
    assert len(described) == 28
    assert "registration_complete_total" not in text


def test_the_reference_lists_every_metric_with_its_kind_and_labels() -> None:
    rows = [line.split(" | ") for line in DOCS.read_text().splitlines() if line.startswith("| `")]
    told = [(name.strip("|` "), kind, labels.replace("`", "")) for name, kind, labels, _ in rows]
    assert told == [(each.name, each.kind, ", ".join(each.labels)) for each in FAMILIES]


def test_no_id_is_a_label_and_what_is_not_known_is_other() -> None:
    for family in FAMILIES:
        assert not {"node_id", "deployment_id", "correlation_id"} & {*family.labels}
    tally = Tally()
    for hostile in (str(uuid4()), 'x"} 1\n', "prod"):
        tally.count("registration_complete", environment=hostile)
    assert {labels: value for (_, _, labels), value in tally.added.items()} == {
        (("environment", "other"),): 2,
        (("environment", "prod"),): 1,
    }


def test_transitions_are_counted_once_with_the_time_they_took(kit: Kit) -> None:
    world = world_of(kit)
    kit.submit(introduced("n1"), introduced("n2"))
    world.turn()
    world.consul.script.append(REFUSED)
    kit.submit(introduced("n3"))
    world.turn()
    found = shown(kit)
    assert found['registration_complete{environment="prod"}'] == 2
    assert found['registration_postgres_success{environment="prod"}'] == 3
    assert found['registration_partial{environment="prod",failed_component="consul"}'] == 1
    kind = 'consul_error_type="permanent"'
    assert found[f'registration_consul_error_total{{{kind},environment="prod"}}'] == 1
    spent = 'outcome="success",state="registering_consul"'
    assert found[f"registration_state_duration_ms_count{{{spent}}}"] == 2
    assert found[f"registration_state_duration_ms_sum{{{spent}}}"] > 0


def test_an_orphans_age_is_the_last_runs_and_counts_add_up(kit: Kit) -> None:
    for number, age in ((2, 50.0), (1, 9.0)):
        tally = Tally()
        tally.orphans("consul_service", number, age, "missing_node")
        with Session(kit.engine) as session, session.begin():
            measures.add(session, 0, tally)
    with Session(kit.engine) as session:
        text = exposition(measures.read(session).items())
    [*text_string_to_metric_families(text)]
    assert (
        'orphan_resource_age_seconds{environment="unknown",resource_type="consul_service"} 9'
        in (text)
    )
    assert sum(v for k, v in shown(kit).items() if k.startswith("orphan_resource_detected")) == 3
