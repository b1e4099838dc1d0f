"""The tables, and nothing they do."""

from sqlalchemy import BigInteger, Boolean, CheckConstraint, Column, DateTime, MetaData, Table, Text

metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
        "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
    }
)

# One row: when the last RuntimeTick was taken, and whose it was. Any number of beats may emit;
# the tick that moves `at` is the winner.
runtime_clock = Table(
    "runtime_clock",
    metadata,
    Column("singleton", Boolean, CheckConstraint("singleton", name="singleton"), primary_key=True),
    Column("at", DateTime(timezone=True), nullable=False),
    Column("emitted_at", DateTime(timezone=True)),
    Column("tick_sequence", BigInteger),
    Column("runtime_id", Text),
    Column("ticks", BigInteger, nullable=False),
)
