"""The error codes of a machine: when they arise, how grave they are, and which result they give."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from fsm.results import Result


class Phase(StrEnum):
    """When a code arises."""

    CONTRACT_LOAD = "Contract Load"
    RUNTIME = "Runtime"


class Severity(StrEnum):
    """A warning is watched, an error corrected and tried again, a critical one investigated."""

    WARNING = "Warning"
    ERROR = "Error"
    CRITICAL = "Critical"


class ErrorCode(StrEnum):
    """Why a trigger did not do what it usually does."""

    VALIDATION_ERROR = "VALIDATION_ERROR"
    INVALID_TRANSITION = "INVALID_TRANSITION"
    STATE_MISMATCH = "STATE_MISMATCH"
    RETRY_EXHAUSTED = "RETRY_EXHAUSTED"
    GUARD_FAILED = "GUARD_FAILED"
    GUARD_SYNTAX_ERROR = "GUARD_SYNTAX_ERROR"
    GUARD_INVALID_OPERATOR = "GUARD_INVALID_OPERATOR"
    GUARD_INVALID_FIELD = "GUARD_INVALID_FIELD"
    GUARD_INVALID_VALUE = "GUARD_INVALID_VALUE"
    GUARD_EVALUATION_ERROR = "GUARD_EVALUATION_ERROR"
    GUARD_TYPE_ERROR = "GUARD_TYPE_ERROR"
    GUARD_FIELD_UNDEFINED = "GUARD_FIELD_UNDEFINED"
    TIMEOUT_EXCEEDED = "TIMEOUT_EXCEEDED"
    INTENT_EMISSION_FAILED = "INTENT_EMISSION_FAILED"
    INTENT_PAYLOAD_ERROR = "INTENT_PAYLOAD_ERROR"
    EFFECT_NOT_FOUND = "EFFECT_NOT_FOUND"
    INTENT_SERIALIZATION_ERROR = "INTENT_SERIALIZATION_ERROR"
    INTERNAL_TRANSITION_ERROR = "INTERNAL_TRANSITION_ERROR"


@dataclass(frozen=True, slots=True)
class CodeEntry:
    """One row of the table. No result means the contract never loads: it is a ContractError.

    Codes that end in FATAL_ERROR, and timeouts, do move the machine, so their result is OK.
    """

    phase: Phase
    severity: Severity
    meaning: str
    recovery: str
    result: Result | None


def _load(meaning: str, recovery: str) -> CodeEntry:
    return CodeEntry(Phase.CONTRACT_LOAD, Severity.CRITICAL, meaning, recovery, None)


def _run(severity: Severity, result: Result, meaning: str, recovery: str) -> CodeEntry:
    return CodeEntry(Phase.RUNTIME, severity, meaning, recovery, result)


CODES: Mapping[ErrorCode, CodeEntry] = MappingProxyType(
    {
        ErrorCode.VALIDATION_ERROR: _run(
            Severity.ERROR,
            Result.GUARD_BLOCKED,
            "the data does not satisfy the state to be entered",
            "correct the payload and try again",
        ),
        ErrorCode.INVALID_TRANSITION: _run(
            Severity.ERROR,
            Result.INVALID_STATE,
            "the state has no transition for the trigger",
            "look at the state and at what it accepts",
        ),
        ErrorCode.STATE_MISMATCH: _run(
            Severity.ERROR,
            Result.UNKNOWN,
            "the entity is in a state the machine does not have",
            "start a new generation of the entity",
        ),
        ErrorCode.RETRY_EXHAUSTED: _run(
            Severity.WARNING,
            Result.GUARD_BLOCKED,
            "the retry counter is at its maximum",
            "an operator decides",
        ),
        ErrorCode.GUARD_FAILED: _run(
            Severity.WARNING,
            Result.GUARD_BLOCKED,
            "a required condition does not hold",
            "correct the context and try again",
        ),
        ErrorCode.GUARD_SYNTAX_ERROR: _load(
            "a guard is not three tokens", "write field, operator and value with blanks between"
        ),
        ErrorCode.GUARD_INVALID_OPERATOR: _load(
            "a guard's operator is unknown", "use an operator of the guard language"
        ),
        ErrorCode.GUARD_INVALID_FIELD: _load(
            "a guard's field is no identifier", "use letters, digits and underscores"
        ),
        ErrorCode.GUARD_INVALID_VALUE: _load(
            "a guard's value cannot be read", "use a boolean, a number, a word or an array"
        ),
        ErrorCode.GUARD_EVALUATION_ERROR: _run(
            Severity.ERROR,
            Result.GUARD_BLOCKED,
            "a guard could not be evaluated",
            "correct the guard in the contract",
        ),
        ErrorCode.GUARD_TYPE_ERROR: _run(
            Severity.ERROR,
            Result.GUARD_BLOCKED,
            "a field's type does not fit the guard's operator",
            "correct what fills the field",
        ),
        ErrorCode.GUARD_FIELD_UNDEFINED: _run(
            Severity.WARNING,
            Result.GUARD_BLOCKED,
            "a guard asks for a field the context lacks, and the machine is strict",
            "fill the field before the transition",
        ),
        ErrorCode.TIMEOUT_EXCEEDED: _run(
            Severity.ERROR,
            Result.OK,
            "a state lasted longer than its timeout, and its timeout trigger was applied",
            "look at what the state waited for, or lengthen the timeout",
        ),
        ErrorCode.INTENT_EMISSION_FAILED: _run(
            Severity.ERROR,
            Result.OK,
            "an intent could not be built",
            "look at the intent's payload and at its effect",
        ),
        ErrorCode.INTENT_PAYLOAD_ERROR: _run(
            Severity.ERROR,
            Result.OK,
            "an intent's payload lacks a field or has a wrong one",
            "fill the field before the transition",
        ),
        ErrorCode.EFFECT_NOT_FOUND: _run(
            Severity.CRITICAL,
            Result.OK,
            "no effect handles the intent",
            "register the effect, or correct the intent's kind",
        ),
        ErrorCode.INTENT_SERIALIZATION_ERROR: _run(
            Severity.ERROR,
            Result.OK,
            "an intent cannot be written down",
            "keep the context to plain data",
        ),
        ErrorCode.INTERNAL_TRANSITION_ERROR: _run(
            Severity.CRITICAL,
            Result.OK,
            "an automatic step of the machine failed",
            "investigate, then RETRY or ABANDON",
        ),
    }
)
