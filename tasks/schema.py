"""The database's schema: where it stands, and moving it up and down."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, Engine, text

from models.errors import ConfigurationError, SchemaAheadError, SchemaBehindError

# Two migrations at once must wait for each other, whoever starts them.
_LOCK = 7_655_255_270_001


def head() -> str:
    """The revision this code was written for."""
    revision = _scripts().get_current_head()
    assert revision is not None, "there is always a first migration"  # noqa: S101
    return revision


def current(engine: Engine) -> str | None:
    """The revision the database is at; None when it was never migrated."""
    with engine.connect() as connection:
        return _current(connection)


def require_current(engine: Engine) -> None:
    """Refuse to run against a database this code does not fit."""
    at = current(engine)
    _refuse_newer(at)
    if at != head():
        raise SchemaBehindError(
            f"the database is at {at or 'no revision'}, this code needs {head()}",
            "run `rollcall db upgrade`",
        )


def upgrade(engine: Engine, to: str = "head") -> str:
    """Bring the database forward, all steps in one transaction."""
    with _migration(engine) as connection:
        at = _current(connection)
        _refuse_newer(at)
        _run(command.upgrade, connection, to)
        return _current(connection) or "base"


def downgrade(engine: Engine, to: str) -> str:
    """Take the database back; the tables of the steps undone are dropped with their rows."""
    with _migration(engine) as connection:
        _refuse_newer(_current(connection))
        _run(command.downgrade, connection, to)
        return _current(connection) or "base"


@contextmanager
def _migration(engine: Engine) -> Iterator[Connection]:
    with engine.begin() as connection:
        # A migration may take longer than any statement of the runtime is allowed to.
        connection.execute(
            text(
                "SELECT set_config(name, '0', true) FROM pg_settings"
                " WHERE name IN ('statement_timeout', 'transaction_timeout')"
            )
        )
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        yield connection


def _run(step: Callable[[Config, str], None], connection: Connection, to: str) -> None:
    config = _config()
    config.attributes["connection"] = connection
    try:
        step(config, to)
    except CommandError as error:
        known = ", ".join(script.revision for script in _scripts().walk_revisions())
        raise ConfigurationError(str(error), f"revisions are {known}, base and head") from None


def _refuse_newer(at: str | None) -> None:
    known = {script.revision for script in _scripts().walk_revisions()}
    if at is not None and at not in known:
        raise SchemaAheadError(
            f"the database is at {at}, which this code (at {head()}) does not know",
            "it was upgraded by a newer Rollcall: run that version",
        )


def _current(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(files("models.migrations")))
    config.set_main_option("path_separator", "os")
    return config
