"""The statements an operator is told to run are true of the schema."""

import re

import pytest
from sqlalchemy import Engine, text

from tests.conftest import REPOSITORY

STATEMENTS = re.findall(
    r"^```sql\n(.*?)^```$",
    (REPOSITORY / "docs" / "runbook.md").read_text(),
    re.DOTALL | re.MULTILINE,
)


def test_there_are_statements() -> None:
    assert len(STATEMENTS) >= 8


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda statement: statement.split("\n")[0])
def test_a_statement_of_the_runbook_runs(statement: str, engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text(statement))
