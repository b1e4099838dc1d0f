"""The statements an operator is told to run are true of the schema."""

import re

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session

from tasks.store import partitions
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


def test_the_holder_of_a_partition_is_found(engine: Engine) -> None:
    (statement,) = (each for each in STATEMENTS if "pg_locks" in each)
    with Session(engine) as holder, holder.begin(), engine.begin() as onlooker:
        for domain in ("lamp", "registration"):
            onlooker.execute(text("INSERT INTO partitions VALUES (:d, 3)"), {"d": domain})
            assert partitions.lock(holder, domain, 3)
        found = onlooker.execute(text(statement)).all()
        pid = holder.execute(text("SELECT pg_backend_pid()")).scalar_one()
    assert {tuple(row[:3]) for row in found} == {("lamp", 3, pid), ("registration", 3, pid)}
