"""Alembic's entry: runs on the connection it is handed, within the caller's transaction."""

from alembic import context

from models.tables import metadata

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=metadata)
context.run_migrations()
