"""What is kept in PostgreSQL, one module a table. Takes a Session, never commits."""
