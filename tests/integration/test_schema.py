"""The database's schema on a real PostgreSQL: up, down, twice, at once, and newer than the code."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine

from models.errors import ConfigurationError, SchemaAheadError, SchemaBehindError
from models.tables import metadata
from tasks import schema
from tasks.database import open_engine
from tasks.settings import Settings
from tests.conftest import sql


def engine_of(settings: Settings) -> Engine:
    return open_engine(settings, "test", pooled=False)


def revisions() -> list[str]:
    scripts = ScriptDirectory.from_config(schema._config())
    return [script.revision for script in scripts.walk_revisions()][::-1]


def test_every_step_goes_up_and_down_and_up_again(empty_database: Settings) -> None:
    engine = engine_of(empty_database)
    assert schema.current(engine) is None
    for revision in revisions():
        before = _tables(empty_database)
        assert schema.upgrade(engine, revision) == revision
        after = _tables(empty_database)
        schema.downgrade(engine, "-1")
        assert _tables(empty_database) - {"alembic_version"} == before - {"alembic_version"}
        schema.upgrade(engine, revision)
        assert _tables(empty_database) == after
    assert schema.current(engine) == schema.head()
    assert schema.downgrade(engine, "base") == "base"
    assert _tables(empty_database) == {"alembic_version"}


def test_the_migrations_make_exactly_the_tables_of_the_code(settings: Settings) -> None:
    def is_ours(_: object, name: str, kind: str, *rest: object) -> bool:
        return not (kind == "table" and re.fullmatch(r"event_log_(default|\d{6})", name))

    with engine_of(settings).connect() as connection:
        context = MigrationContext.configure(connection, opts={"include_object": is_ours})
        assert compare_metadata(context, metadata) == []


def test_upgrading_twice_and_from_eight_places_at_once_is_one_upgrade(
    empty_database: Settings,
) -> None:
    with ThreadPoolExecutor(8) as pool:
        ran = list(pool.map(lambda _: schema.upgrade(engine_of(empty_database)), range(8)))
    assert ran == [schema.head()] * 8
    assert sql(empty_database.database_url, "SELECT count(*) FROM runtime_clock") == [(1,)]


def test_a_newer_database_than_the_code_is_refused(settings: Settings) -> None:
    sql(settings.database_url, "UPDATE alembic_version SET version_num = '9999'")
    engine = engine_of(settings)
    for refuse in (schema.upgrade, schema.require_current):
        with pytest.raises(SchemaAheadError, match="9999"):
            refuse(engine)
    with pytest.raises(SchemaAheadError):
        schema.downgrade(engine, "base")


def test_an_older_database_is_refused_until_it_is_upgraded(empty_database: Settings) -> None:
    engine = engine_of(empty_database)
    with pytest.raises(SchemaBehindError, match="rollcall db upgrade"):
        schema.require_current(engine)
    schema.upgrade(engine)
    schema.require_current(engine)


def test_an_unknown_revision_is_an_error_that_lists_the_known_ones(settings: Settings) -> None:
    with pytest.raises(ConfigurationError, match="0001"):
        schema.upgrade(engine_of(settings), "nonsense")
    assert schema.current(engine_of(settings)) == schema.head()


def _tables(settings: Settings) -> set[object]:
    rows = sql(settings.database_url, "SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    return {row[0] for row in rows}
