"""The tables, and nothing they do."""

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    Uuid,
    text,
)

metadata = MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
        "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
    }
)

Time = DateTime(timezone=True)

# One row: when the last RuntimeTick was taken, and whose it was. Any number of beats may emit;
# the tick that moves `at` is the winner.
runtime_clock = Table(
    "runtime_clock",
    metadata,
    Column("singleton", Boolean, CheckConstraint("singleton", name="singleton"), primary_key=True),
    Column("at", Time, nullable=False),
    Column("emitted_at", Time),
    Column("tick_sequence", BigInteger),
    Column("runtime_id", Text),
    Column("ticks", BigInteger, nullable=False),
)

# One row: how many partitions every domain has. It changes only when nothing waits.
runtime_layout = Table(
    "runtime_layout",
    metadata,
    Column("singleton", Boolean, CheckConstraint("singleton", name="singleton"), primary_key=True),
    Column(
        "partitions",
        SmallInteger,
        CheckConstraint("partitions BETWEEN 1 AND 1024", name="partitions"),
        nullable=False,
    ),
)

# Who folds a partition now; a mark whose session is gone tells of a death in the middle of it.
partitions = Table(
    "partitions",
    metadata,
    Column("domain", Text, primary_key=True),
    Column("partition", SmallInteger, primary_key=True, autoincrement=False),
    Column("holder_pid", Integer),
    Column("holder_started", Time),
)

# Every contract that was ever run, by the hash that events and entities name.
contracts = Table(
    "contracts",
    metadata,
    Column("content_hash", Text, primary_key=True),
    Column("machine", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("document", Text, nullable=False),
    Column("loaded_at", Time, nullable=False, server_default=text("now()")),
)

# Messages that wait to be folded: inserted, taken in order, deleted.
inbox = Table(
    "inbox",
    metadata,
    Column("domain", Text, primary_key=True),
    Column("partition", SmallInteger, primary_key=True, autoincrement=False),
    Column("position", BigInteger, Identity(always=True), primary_key=True),
    Column("message_id", Uuid, nullable=False, index=True),
    Column("correlation_id", Uuid, nullable=False),
    Column("causation_id", Uuid),
    Column("emitted_at", Time, nullable=False),
    Column("entity_id", Text, nullable=False),
    Column("message_type", Text, nullable=False),
    Column("payload", JSON, nullable=False),
    Column("attempts", SmallInteger, nullable=False, server_default=text("0")),
)

# What became of every message that was folded or refused: nothing is done twice.
processed = Table(
    "processed",
    metadata,
    Column("message_id", Uuid, primary_key=True),
    Column("result", Text, nullable=False),
    Column("processed_at", Time, nullable=False, server_default=text("now()")),
)

# Where every entity of every machine stands: the projection, and its version.
entities = Table(
    "entities",
    metadata,
    Column("entity_id", Text, primary_key=True),
    Column("machine", Text, primary_key=True),
    Column("domain", Text, nullable=False),
    Column("partition", SmallInteger, nullable=False),
    Column("state", Text, nullable=False),
    Column("context", JSON, nullable=False),
    Column("deadlines", JSON, nullable=False),
    Column("next_deadline", Time),
    Column("timeouts_emitted", JSON, nullable=False, server_default=text("'{}'")),
    Column("last_applied_sequence", BigInteger, nullable=False),
    Column("last_applied_event_id", Uuid, nullable=False),
    Column("last_trigger", Text, nullable=False),
    Column("correlation_id", Uuid, nullable=False),
    Column("contract_hash", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("created_at", Time, nullable=False),
    Column("updated_at", Time, nullable=False),
)
Index(
    "entities_next_deadline_idx",
    entities.c.next_deadline,
    postgresql_where=entities.c.next_deadline.is_not(None),
)

# How many entities are in which state, kept by the drains so that nobody counts rows.
state_counts = Table(
    "state_counts",
    metadata,
    Column("domain", Text, primary_key=True),
    Column("partition", SmallInteger, primary_key=True, autoincrement=False),
    Column("machine", Text, primary_key=True),
    Column("state", Text, primary_key=True),
    Column("entities", BigInteger, nullable=False),
)

# Every event that was applied. Append-only: the database refuses anything else. Partitioned by
# month; the key has to hold the time for that.
event_log = Table(
    "event_log",
    metadata,
    Column("entity_id", Text, primary_key=True),
    Column("machine", Text, primary_key=True),
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("applied_at", Time, primary_key=True),
    Column("domain", Text, nullable=False),
    Column("message_id", Uuid, nullable=False),
    Column("message_type", Text, nullable=False),
    Column("correlation_id", Uuid, nullable=False),
    Column("message_correlation_id", Uuid, nullable=False),
    Column("causation_id", Uuid),
    Column("emitted_at", Time, nullable=False),
    Column("trigger", Text, nullable=False),
    Column("data", JSON, nullable=False),
    Column("path", Text, nullable=False),
    Column("contract_hash", Text, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    postgresql_partition_by="RANGE (applied_at)",
)

# I/O that should happen: seen by effects only after the commit that wrote it.
intents = Table(
    "intents",
    metadata,
    Column("intent_id", Uuid, primary_key=True),
    Column("domain", Text, nullable=False),
    Column("partition", SmallInteger, nullable=False),
    Column("entity_id", Text, nullable=False),
    Column("machine", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("service", Text, nullable=False),
    Column("payload", JSON, nullable=False),
    Column("correlation_id", Uuid, nullable=False),
    Column("causation_id", Uuid, nullable=False),
    Column("created_at", Time, nullable=False),
    Column("due_at", Time, nullable=False),
    Column("attempt", Integer, nullable=False, server_default=text("0")),
    Column("leased_until", Time),
    Column("not_after", Time),
)
Index("intents_due_idx", intents.c.service, intents.c.due_at)

# What could not be done, with all that is needed to understand it and to do it again.
dead_letters = Table(
    "dead_letters",
    metadata,
    Column("dead_letter_id", BigInteger, Identity(always=True), primary_key=True),
    Column("domain", Text, nullable=False),
    Column("message_id", Uuid, nullable=False),
    Column("entity_id", Text, nullable=False, index=True),
    Column("message_type", Text, nullable=False),
    Column("correlation_id", Uuid, nullable=False),
    Column("reason", Text, nullable=False),
    Column("error", Text, nullable=False),
    Column("envelope", JSON, nullable=False),
    Column("projections", JSON, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("created_at", Time, nullable=False, server_default=text("now()")),
    Column("closed_at", Time),
    Column("closed_as", Text),
)

# Projections as they were, for reads; the newest of each entity.
snapshots = Table(
    "snapshots",
    metadata,
    Column("entity_id", Text, primary_key=True),
    Column("machine", Text, primary_key=True),
    Column("sequence", BigInteger, nullable=False),
    Column("projection", JSON, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("taken_at", Time, nullable=False),
)

# Where each entity stood when a month of its log was taken away: what the rest is folded onto.
log_bases = Table(
    "log_bases",
    metadata,
    Column("entity_id", Text, primary_key=True),
    Column("machine", Text, primary_key=True),
    Column("sequence", BigInteger, primary_key=True, autoincrement=False),
    Column("projection", JSON, nullable=False),
    Column("digest", LargeBinary, nullable=False),
)
