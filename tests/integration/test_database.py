"""Connections on which a frozen process holds nothing for long, and the clock row's one winner."""

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine, event, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from models.errors import ConfigurationError
from models.messages.runtime import RuntimeTick
from rollcall.insights import clock
from tasks.database import open_engine
from tasks.doorbell import Room
from tasks.settings import Settings
from tasks.store.clock import take_tick
from tasks.ticks import run_tick
from tasks.worker_process import WorkerProcess
from tests.conftest import sql
from tests.polling import eventually

SECOND = timedelta(seconds=1)


def silent(rooms: Iterable[Room]) -> int:
    return 0


def tick(number: int = 1, runtime_id: str = "rt-1") -> RuntimeTick:
    return RuntimeTick(now=datetime.now(UTC), tick_sequence=number, runtime_id=runtime_id)


def test_every_connection_sets_the_limits_that_free_what_it_forgets(engine: Engine) -> None:
    with engine.connect() as connection:
        for limit in (
            "statement_timeout",
            "lock_timeout",
            "idle_in_transaction_session_timeout",
            "transaction_timeout",
        ):
            assert connection.execute(text(f"SHOW {limit}")).scalar_one() not in ("0", "")
        assert connection.execute(text("SHOW TimeZone")).scalar_one() == "UTC"
        assert connection.execute(text("SHOW fsync")).scalar_one() == "on"


def test_a_frozen_transaction_loses_its_locks(settings: Settings) -> None:
    """Promise 6, ruling 11: whoever sleeps in a transaction does not stop the clock for ever."""
    frozen = open_engine(settings.at(idle_transaction_timeout_ms=200), "frozen", pooled=False)
    other = open_engine(settings, "other", pooled=False)
    with frozen.connect() as connection:
        connection.execute(text("SELECT * FROM runtime_clock FOR UPDATE"))

        def taken() -> bool:
            return run_tick(other, tick(), SECOND, silent)["won"]

        assert eventually(taken, "the other one gets the row")
        with pytest.raises(DBAPIError):
            connection.execute(text("SELECT 1"))


def test_a_forked_process_does_not_use_its_parents_connection(settings: Settings) -> None:
    process = WorkerProcess(settings, {}, lambda *_: None)
    parents = process.engine
    assert process.engine is parents
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:  # the child reports whether its engine is its own, and nothing else
        os.write(writer, b"1" if process.engine is not parents else b"0")
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(reader, 1) == b"1"
    with parents.connect() as connection:
        assert connection.execute(text("SELECT 1")).scalar_one() == 1


def test_without_a_database_the_error_says_what_to_set() -> None:
    with pytest.raises(ConfigurationError, match="ROLLCALL_DATABASE_URL"):
        open_engine(Settings(), "test")


def test_an_error_shows_neither_the_parameters_nor_the_password(settings: Settings) -> None:
    engine = open_engine(settings, "test", pooled=False)
    with engine.connect() as connection, pytest.raises(DBAPIError) as caught:
        connection.execute(text("SELECT 1 / 0 WHERE :token = 'x'"), {"token": "t0p-s3cr3t"})
    assert "t0p-s3cr3t" not in str(caught.value)
    assert settings.database_url is not None
    assert settings.database_url.credentials[0] not in repr(engine)


def test_of_twenty_ticks_at_once_one_wins(settings: Settings) -> None:
    """Promise 6: any number of beats costs one tick an interval."""

    def take(number: int) -> bool:
        return run_tick(open_engine(settings, "test", pooled=False), tick(number), SECOND, silent)[
            "won"
        ]

    with ThreadPoolExecutor(20) as pool:
        assert sum(pool.map(take, range(1, 21))) == 1
    assert clock(open_engine(settings, "test", pooled=False)).ticks == 1


def test_a_tick_is_taken_again_after_half_an_interval(engine: Engine, settings: Settings) -> None:
    assert run_tick(engine, tick(1), SECOND, silent)["won"]
    assert not run_tick(engine, tick(2), SECOND, silent)["won"]
    sql(settings.database_url, "UPDATE runtime_clock SET at = now() - interval '501 ms'")
    result = run_tick(engine, tick(3, "rt-2"), SECOND, silent)
    assert result == {
        "won": True,
        "runtime_id": "rt-2",
        "tick_sequence": 3,
        "ticks": 2,
        "timeouts": 0,
        "rung": 0,
    }
    reading = clock(engine)
    assert (reading.ticks, reading.tick_sequence, reading.runtime_id) == (2, 3, "rt-2")
    assert reading.age < timedelta(seconds=30)


def test_the_time_that_counts_is_the_databases(engine: Engine) -> None:
    late = RuntimeTick(now=datetime(1999, 1, 1, tzinfo=UTC), tick_sequence=1, runtime_id="slow")
    with Session(engine) as session, session.begin():
        taken = take_tick(session, late, SECOND)
    assert taken is not None
    assert abs(taken.at - datetime.now(UTC)) < timedelta(minutes=5)


def test_an_idle_tick_is_three_small_statements(engine: Engine, settings: Settings) -> None:
    """What an idle system costs PostgreSQL: at most three statements a second."""
    run_tick(engine, tick(), SECOND, silent)  # the first one also looks after the log's months
    sql(settings.database_url, "UPDATE runtime_clock SET at = 'epoch'")
    statements: list[str] = []
    event.listen(
        engine, "before_cursor_execute", lambda *call: statements.append(" ".join(call[2].split()))
    )
    run_tick(engine, tick(), SECOND, silent)
    assert [each.split()[0] for each in statements] == ["UPDATE", "SELECT", "SELECT"]
    assert statements[0].startswith("UPDATE runtime_clock")
