"""The database's history, one reversible step a file."""
