"""What is wrong with a contract, where, and in words: every finding at once."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from models.errors import ConfigurationError


class FindingCode(StrEnum):
    """Every reason a contract is refused: the file, its fields, its guards, then the machine."""

    UNREADABLE_FILE = "UNREADABLE_FILE"
    NOT_YAML = "NOT_YAML"
    TAB_INDENTATION = "TAB_INDENTATION"
    TOO_LARGE = "TOO_LARGE"
    ALIAS_BOMB = "ALIAS_BOMB"
    UNSUPPORTED_TAG = "UNSUPPORTED_TAG"
    MULTIPLE_DOCUMENTS = "MULTIPLE_DOCUMENTS"
    DUPLICATE_KEY = "DUPLICATE_KEY"
    UNKNOWN_FIELD = "UNKNOWN_FIELD"
    MISSING_FIELD = "MISSING_FIELD"
    WRONG_TYPE = "WRONG_TYPE"
    INVALID_VALUE = "INVALID_VALUE"

    GUARD_SYNTAX_ERROR = "GUARD_SYNTAX_ERROR"
    GUARD_INVALID_FIELD = "GUARD_INVALID_FIELD"
    GUARD_INVALID_OPERATOR = "GUARD_INVALID_OPERATOR"
    GUARD_INVALID_VALUE = "GUARD_INVALID_VALUE"
    VALIDATION_RULE_SYNTAX = "VALIDATION_RULE_SYNTAX"

    UNKNOWN_INITIAL_STATE = "UNKNOWN_INITIAL_STATE"
    UNKNOWN_SUCCESS_STATE = "UNKNOWN_SUCCESS_STATE"
    UNKNOWN_TERMINAL_STATE = "UNKNOWN_TERMINAL_STATE"
    UNKNOWN_ERROR_STATE = "UNKNOWN_ERROR_STATE"
    ORPHAN_STATE = "ORPHAN_STATE"
    TERMINAL_STATE_EXIT = "TERMINAL_STATE_EXIT"
    DUPLICATE_TRANSITION_NAME = "DUPLICATE_TRANSITION_NAME"
    UNKNOWN_STATE = "UNKNOWN_STATE"

    DUPLICATE_STATE_NAME = "DUPLICATE_STATE_NAME"
    STATE_CLASS_MISMATCH = "STATE_CLASS_MISMATCH"
    UNREACHABLE_STATE = "UNREACHABLE_STATE"
    DEAD_END = "DEAD_END"
    NON_DETERMINISTIC = "NON_DETERMINISTIC"
    SHADOWED_TRANSITION = "SHADOWED_TRANSITION"
    CONTRADICTORY_GUARDS = "CONTRADICTORY_GUARDS"
    AUTOMATIC_CYCLE = "AUTOMATIC_CYCLE"
    TIMEOUT_NOT_TAKEN = "TIMEOUT_NOT_TAKEN"
    UNKNOWN_ACTION = "UNKNOWN_ACTION"
    UNKNOWN_INTENT = "UNKNOWN_INTENT"
    UNKNOWN_TRIGGER = "UNKNOWN_TRIGGER"
    UNUSED_RETRY_RULE = "UNUSED_RETRY_RULE"
    TRIGGER_NEVER_EMITTED = "TRIGGER_NEVER_EMITTED"


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where to look: the file (or `<text>`), the line, and the state or transition if it is one."""

    file: str
    line: int
    name: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" + (f" ({self.name})" if self.name else "")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong."""

    code: FindingCode
    place: Place
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.code}: {self.message}"


class ContractError(ConfigurationError):
    """A contract that cannot work, with every reason."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.findings = tuple(
            sorted(set(findings), key=lambda each: (each.place, each.code, each.message))
        )
        listed = "\n".join(str(each) for each in self.findings)
        super().__init__(f"The contract is refused:\n{listed}", "correct what is listed")
