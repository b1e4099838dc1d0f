"""The topic taxonomy: its data, and the document that tells it."""

import re
from pathlib import Path

import pytest

from models.envelope import Envelope
from models.output import CONSUMES, Role
from models.topics import (
    PARTITION_KEY,
    POLICIES,
    SNAPSHOT_POLICY,
    Category,
    Cleanup,
    Domain,
    all_topics,
    manifest,
    parse_topic,
    snapshot_topic,
    topic,
)

DOCUMENT = Path(__file__).parents[2] / "docs/standards/onex_topic_taxonomy.md"


def _table(heading: str) -> list[list[str]]:
    section = DOCUMENT.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.+) \|$", section, re.MULTILINE)
    return [[cell.strip().strip("`") for cell in row.split("|")] for row in rows[1:]]


def test_a_domain_has_its_three_categories_and_snapshots() -> None:
    assert [each.name for each in manifest(Domain.REGISTRATION)] == [
        "onex.registration.commands",
        "onex.registration.events",
        "onex.registration.intents",
        "onex.registration.snapshots",
    ]


@pytest.mark.parametrize("domain", Domain)
def test_events_are_never_compacted_and_snapshots_are(domain: Domain) -> None:
    cleanups = {each.name: each.policy.cleanup for each in manifest(domain)}
    assert cleanups[topic(domain, Category.EVENTS)] is Cleanup.DELETE
    assert cleanups[snapshot_topic(domain)] is Cleanup.COMPACT_DELETE


def test_the_partition_key_is_a_field_of_the_envelope_on_every_topic() -> None:
    assert PARTITION_KEY in Envelope.model_fields
    assert {each.partition_key for domain in Domain for each in manifest(domain)} == {PARTITION_KEY}


def test_the_queues_are_the_topics_that_carry_messages() -> None:
    carried = {each.name for domain in Domain for each in manifest(domain) if each.category}
    assert carried == set(all_topics())


def test_a_topic_is_read_as_it_was_made() -> None:
    for domain in Domain:
        for category in Category:
            assert parse_topic(topic(domain, category)) == (domain, category)


@pytest.mark.parametrize(
    "name",
    ["", "onex", "onex.node", "node.events", "onex.node.snapshots", "onex.node.events.more",
     "onex.my-node.events", "onex.Node.events", "onex.node.Events", "onex.node.events\n"],
)  # fmt: skip
def test_what_is_no_topic_of_messages_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="topic"):
        parse_topic(name)


@pytest.mark.parametrize("domain", ["", "My", "my-domain", "a.b"])
def test_a_domain_outside_the_taxonomy_has_no_manifest(domain: str) -> None:
    with pytest.raises(ValueError, match="domain"):
        manifest(domain)


def test_the_document_tells_the_policies() -> None:
    policies = {category.value: policy for category, policy in POLICIES.items()}
    policies["snapshots"] = SNAPSHOT_POLICY
    told = {row[0]: (row[1], row[2]) for row in _table("Policies")}
    assert told == {name: (each.cleanup, each.retention) for name, each in policies.items()}


def test_the_document_tells_who_consumes_what() -> None:
    told = {row[0]: set(row[1].split(", ")) for row in _table("Who may consume what")}
    assert {role: told[role.value] for role in Role} == CONSUMES


def test_the_document_lists_the_manifest() -> None:
    assert [row for row in _table("The manifest") if row[0].startswith("onex.")] == [
        [each.name, each.policy.cleanup.value, each.partition_key]
        for domain in Domain
        for each in manifest(domain)
    ]
