"""The topic taxonomy `onex.<domain>.<category>`: the only place where a topic's name is made."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

PREFIX = "onex"
PARTITION_KEY = "entity_id"
"""The envelope's field that decides the partition of a message, on every topic."""

_DOMAIN = re.compile(r"[a-z][a-z0-9_]*\Z")
_SNAPSHOTS = "snapshots"


class Category(StrEnum):
    """What kind of message a topic carries."""

    COMMANDS = "commands"
    EVENTS = "events"
    INTENTS = "intents"


class Domain(StrEnum):
    """The domains Rollcall itself owns."""

    RUNTIME = "runtime"
    REGISTRATION = "registration"
    CONTROL = "control"
    COMMANDS = "commands"
    MANIFESTS = "manifests"


class Cleanup(StrEnum):
    """How a topic loses rows: by age alone, or also because a newer one replaces them."""

    DELETE = "delete"
    COMPACT_DELETE = "compact,delete"


class Retention(StrEnum):
    """How long a topic keeps a row."""

    UNTIL_HANDLED = "until handled"
    UNTIL_DETACHED = "until its partition is detached"
    LATEST = "the latest of each entity"


@dataclass(frozen=True, slots=True)
class Policy:
    """What happens to the rows of a topic in time."""

    cleanup: Cleanup
    retention: Retention


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One topic of a domain; one without a category carries no messages, only state for reading."""

    name: str
    category: Category | None
    policy: Policy
    partition_key: str = PARTITION_KEY


POLICIES: Mapping[Category, Policy] = MappingProxyType(
    {
        Category.COMMANDS: Policy(Cleanup.DELETE, Retention.UNTIL_HANDLED),
        Category.EVENTS: Policy(Cleanup.DELETE, Retention.UNTIL_DETACHED),
        Category.INTENTS: Policy(Cleanup.DELETE, Retention.UNTIL_HANDLED),
    }
)
SNAPSHOT_POLICY = Policy(Cleanup.COMPACT_DELETE, Retention.LATEST)


def topic(domain: str, category: Category) -> str:
    """The topic of a domain's category; a domain is lower-case with underscores, no hyphens."""
    return _named(domain, category.value)


def snapshot_topic(domain: str) -> str:
    """Where a domain's projections are kept for reading; they never replace the events."""
    return _named(domain, _SNAPSHOTS)


def parse_topic(name: str) -> tuple[str, Category]:
    """The domain and the category of a topic's name; whatever is no topic is a ValueError."""
    prefix, _, rest = name.partition(".")
    domain, _, category = rest.partition(".")
    if prefix != PREFIX or not _DOMAIN.match(domain) or category not in tuple(Category):
        raise ValueError(f"topic {name!r} must be {PREFIX}.<domain>.<{'|'.join(Category)}>")
    return domain, Category(category)


def manifest(domain: str) -> tuple[ManifestEntry, ...]:
    """Every topic of a domain, and what happens to its rows."""
    carried = (ManifestEntry(topic(domain, each), each, POLICIES[each]) for each in Category)
    return (*carried, ManifestEntry(snapshot_topic(domain), None, SNAPSHOT_POLICY))


def all_topics(domains: Iterable[str] = ()) -> tuple[str, ...]:
    """Every topic that carries messages, of Rollcall's own domains and of others beside them."""
    every = dict.fromkeys((*map(str, Domain), *domains))
    return tuple(topic(domain, category) for domain in every for category in Category)


def is_domain(name: str) -> bool:
    """Whether a topic can carry the name."""
    return _DOMAIN.match(name) is not None


def _named(domain: str, last: str) -> str:
    if not is_domain(domain):
        raise ValueError(f"domain {domain!r} must match {_DOMAIN.pattern}")
    return f"{PREFIX}.{domain}.{last}"
