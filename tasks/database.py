"""Connections to PostgreSQL on which a frozen process holds nothing for long."""

from typing import Any

from sqlalchemy import Engine, NullPool, create_engine, event
from sqlalchemy.engine import make_url

from models.errors import ConfigurationError
from tasks.settings import Settings

_TRANSACTION_TIMEOUT_SINCE = 170_000


def open_engine(settings: Settings, name: str, *, pooled: bool = True) -> Engine:
    """An engine for this process alone: never built at import, never carried over a fork."""
    if settings.database_url is None:
        raise ConfigurationError(
            "ROLLCALL_DATABASE_URL is not set and no stack runs here",
            "set it, or start the embedded servers with `rollcall up`",
        )
    url = make_url(settings.database_url.reveal()).set(drivername="postgresql+psycopg2")
    engine = create_engine(
        url,
        connect_args={"application_name": f"rollcall {name}"[:63], "connect_timeout": 5},
        pool_pre_ping=pooled,
        hide_parameters=True,
        **({} if pooled else {"poolclass": NullPool}),
    )
    event.listen(engine, "connect", lambda connection, _: _bound(connection, settings))
    return engine


def _bound(connection: Any, settings: Settings) -> None:
    """Let the server itself end what this connection forgets."""
    limits = {
        "statement_timeout": settings.statement_timeout_ms,
        "lock_timeout": settings.lock_timeout_ms,
        "idle_in_transaction_session_timeout": settings.idle_transaction_timeout_ms,
    }
    if connection.server_version >= _TRANSACTION_TIMEOUT_SINCE:
        limits["transaction_timeout"] = 2 * settings.statement_timeout_ms
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT set_config('TimeZone', 'UTC', false)"
            + "".join(
                f", set_config('{name}', '{limit:d}', false)" for name, limit in limits.items()
            )
        )
    connection.commit()
