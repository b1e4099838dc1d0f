"""The table of error codes, against the one written down by hand."""

from fsm.codes import CODES, ErrorCode
from fsm.contract_yaml import FindingCode
from fsm.guard import GuardCode

TABLE = {
    "VALIDATION_ERROR": ("Runtime", "Error"),
    "INVALID_TRANSITION": ("Runtime", "Error"),
    "STATE_MISMATCH": ("Runtime", "Error"),
    "RETRY_EXHAUSTED": ("Runtime", "Warning"),
    "GUARD_FAILED": ("Runtime", "Warning"),
    "GUARD_SYNTAX_ERROR": ("Contract Load", "Critical"),
    "GUARD_INVALID_OPERATOR": ("Contract Load", "Critical"),
    "GUARD_INVALID_FIELD": ("Contract Load", "Critical"),
    "GUARD_INVALID_VALUE": ("Contract Load", "Critical"),
    "GUARD_EVALUATION_ERROR": ("Runtime", "Error"),
    "GUARD_TYPE_ERROR": ("Runtime", "Error"),
    "GUARD_FIELD_UNDEFINED": ("Runtime", "Warning"),
    "TIMEOUT_EXCEEDED": ("Runtime", "Error"),
    "INTENT_EMISSION_FAILED": ("Runtime", "Error"),
    "INTENT_PAYLOAD_ERROR": ("Runtime", "Error"),
    "EFFECT_NOT_FOUND": ("Runtime", "Critical"),
    "INTENT_SERIALIZATION_ERROR": ("Runtime", "Error"),
    "INTERNAL_TRANSITION_ERROR": ("Runtime", "Critical"),
}


def test_every_code_has_its_phase_and_severity() -> None:
    found = {code.value: (row.phase.value, row.severity.value) for code, row in CODES.items()}
    assert found == TABLE
    assert set(CODES) == set(ErrorCode)


def test_a_code_of_loading_is_a_finding_and_one_of_running_is_a_result() -> None:
    for code, row in CODES.items():
        assert (row.result is None) == (code.value in set(FindingCode))
        assert row.meaning
        assert row.recovery


def test_every_code_of_a_guard_is_in_the_table() -> None:
    assert {each.value for each in GuardCode} <= {each.value for each in ErrorCode}
