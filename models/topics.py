"""The topic taxonomy `onex.<domain>.<category>`: the only place where a topic's name is made."""

import re
from enum import StrEnum

PREFIX = "onex"
_DOMAIN = re.compile(r"[a-z][a-z0-9_]*\Z")


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


def topic(domain: str, category: Category) -> str:
    """The topic of a domain's category; a domain is lower-case with underscores, no hyphens."""
    if not _DOMAIN.match(domain):
        raise ValueError(f"domain {domain!r} must match {_DOMAIN.pattern}")
    return f"{PREFIX}.{domain}.{category.value}"


def parse_topic(name: str) -> tuple[str, Category]:
    """The domain and the category of a topic's name; whatever is no topic is a ValueError."""
    prefix, _, rest = name.partition(".")
    domain, _, category = rest.partition(".")
    if prefix != PREFIX or not _DOMAIN.match(domain) or category not in tuple(Category):
        raise ValueError(f"topic {name!r} must be {PREFIX}.<domain>.<{'|'.join(Category)}>")
    return domain, Category(category)


def all_topics() -> tuple[str, ...]:
    """Every topic of Rollcall's own domains, in a stable order."""
    return tuple(topic(domain, category) for domain in Domain for category in Category)
