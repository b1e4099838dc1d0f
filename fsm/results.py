"""The one vocabulary of results, whatever the machine."""

from enum import StrEnum


class Result(StrEnum):
    """What became of a trigger; only OK moved anything."""

    OK = "OK"
    DUPLICATE = "DUPLICATE"
    ALREADY_APPLIED = "ALREADY_APPLIED"
    UNKNOWN = "UNKNOWN"
    INVALID_STATE = "INVALID_STATE"
    TERMINAL = "TERMINAL"
    GUARD_BLOCKED = "GUARD_BLOCKED"
