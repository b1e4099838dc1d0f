"""Frozen values as plain data in its one spelling: equal things have equal bytes and hashes."""

import dataclasses
from collections.abc import Mapping
from enum import Enum
from uuid import UUID

from fsm.guard import Guard
from fsm.validation import Rule
from models.canonical import canonical


def canonical_json(value: object) -> bytes:
    """The one spelling of a frozen value: what a content hash is taken of."""
    return canonical(_plain(value)).encode("utf-8", "surrogatepass")


def _plain(value: object) -> object:
    if isinstance(value, Guard | Rule | UUID):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            each.name: _plain(getattr(value, each.name))
            for each in dataclasses.fields(value)
            if each.compare
        }
    if isinstance(value, frozenset):
        return sorted(str(each) for each in value)
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    return value
