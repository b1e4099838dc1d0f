"""One broken contract for each finding code: refused, with that code, at that line."""

import re
from pathlib import Path

import pytest

from fsm.contract_yaml import ContractError, FindingCode, load_contract

FOLDER = Path(__file__).parent / "broken_contracts"
FILES = sorted(FOLDER.glob("*.yaml"))
EXPECTED = re.compile(rb"# expect: ([A-Z_]+) line ([0-9]+)")


def expectation(path: Path) -> tuple[str, int]:
    found = EXPECTED.fullmatch(path.read_bytes().split(b"\n", 1)[0])
    assert found is not None, f"{path.name} does not say what it expects"
    return found.group(1).decode(), int(found.group(2))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_broken_contract_is_refused_with_its_code_and_line(path: Path) -> None:
    with pytest.raises(ContractError) as refused:
        load_contract(path)
    found = {(each.code.value, each.place.line) for each in refused.value.findings}
    assert found == {expectation(path)}, str(refused.value)
    assert all(each.place.file == str(path) for each in refused.value.findings)
    assert all(each.message for each in refused.value.findings)


def test_every_finding_code_has_a_broken_contract() -> None:
    assert {expectation(path)[0] for path in FILES} == set(FindingCode)
