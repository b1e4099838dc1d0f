"""The tables, and nothing they do."""

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    Double,
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
    Column("position", BigInteger, Identity(always=True), nullable=False),
    Column("sequence", BigInteger, nullable=False, server_default=text("0")),
    Column("registration_id", Text),
    Column("tries", Integer, nullable=False, server_default=text("0")),
    Column("history", JSON, nullable=False, server_default=text("'[]'")),
)
Index("intents_due_idx", intents.c.service, intents.c.due_at)
Index("intents_order_idx", intents.c.entity_id, intents.c.service, intents.c.position)

# What became of every intent. A natural key holds among the successes still in force.
effect_ledger = Table(
    "effect_ledger",
    metadata,
    Column("intent_id", Uuid, primary_key=True),
    Column("entity_id", Text, nullable=False),
    Column("machine", Text, nullable=False),
    Column("domain", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("registration_id", Text),
    Column("status", Text, nullable=False),
    Column("payload_digest", LargeBinary, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("error", Text),
    Column("settled_at", Time, nullable=False),
    Column("sequence", BigInteger, nullable=False, server_default=text("0")),
    Column("envelope", JSON),
    Column("history", JSON),
)
Index(
    "effect_ledger_given_up_idx",
    effect_ledger.c.entity_id,
    postgresql_where=text("status IN ('failed', 'conflict')"),
)
Index(
    "effect_ledger_in_force_idx",
    effect_ledger.c.entity_id,
    effect_ledger.c.kind,
    effect_ledger.c.registration_id,
    unique=True,
    postgresql_where=effect_ledger.c.status == text("'succeeded'"),
)

# Whether calls to a service go through.
circuits = Table(
    "circuits",
    metadata,
    Column("service", Text, primary_key=True),
    Column("state", Text, nullable=False, server_default=text("'CLOSED'")),
    Column("failures", Integer, nullable=False, server_default=text("0")),
    Column("opened_at", Time),
    Column("probe_holder", Text),
    Column("probe_since", Time),
    Column("barred_until", Time),
    Column("changed_at", Time, nullable=False, server_default=text("now()")),
)

# What the PostgreSQL effect writes of a node; the view `node_registrations` shows it with the
# states of its machines and its last heartbeat.
node_records = Table(
    "node_records",
    metadata,
    Column("node_id", Text, primary_key=True),
    Column("registration_id", Text, nullable=False),
    Column("generation", Integer, nullable=False),
    Column("deployment_id", Text, nullable=False),
    Column("environment", Text, nullable=False),
    Column("network_id", Text, nullable=False),
    Column("consul_service_id", Text, nullable=False),
    Column("record", JSON, nullable=False),
    Column("correlation_id", Uuid, nullable=False),
    Column("registered_at", Time, nullable=False),
    Column("updated_at", Time, nullable=False),
)

# When each live node was heard of last. Telemetry: no event, no part of any projection.
heartbeats = Table(
    "heartbeats",
    metadata,
    Column("node_id", Text, primary_key=True),
    Column("last_seen", Time, nullable=False),
    Column("deadline", Time, nullable=False),
)

# One row: since when so many nodes are silent at once that we doubt our own network.
brake = Table(
    "brake",
    metadata,
    Column(
        "singleton",
        Boolean,
        CheckConstraint("singleton", name="singleton"),
        primary_key=True,
        server_default=text("true"),
    ),
    Column("held_since", Time),
    Column("silent", Integer, nullable=False, server_default=text("0")),
    Column("live", Integer, nullable=False, server_default=text("0")),
    Column("measured_at", Time),
)

# Nodes to be looked at in Consul again: somebody may have written after losing its lease.
consul_rechecks = Table(
    "consul_rechecks",
    metadata,
    Column("node_id", Text, primary_key=True),
    Column("due_at", Time, nullable=False),
    Column("reason", Text, nullable=False),
)

# What each run of the garbage collection took away.
registration_gc_log = Table(
    "registration_gc_log",
    metadata,
    Column("run_id", BigInteger, Identity(always=True), primary_key=True),
    Column("run_timestamp", Time, nullable=False, server_default=text("now()")),
    Column("nodes_cleaned", Integer, nullable=False),
    Column("node_ids", JSON, nullable=False),
    Column("details", JSON, nullable=False, server_default=text("'{}'")),
)

# How each attempt to register a node went.
registration_outcomes = Table(
    "registration_outcomes",
    metadata,
    Column("node_id", Text, primary_key=True),
    Column("generation", Integer, primary_key=True, autoincrement=False),
    Column("registration_id", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("postgres_applied", Boolean, nullable=False),
    Column("consul_applied", Boolean, nullable=False),
    Column("error", Text),
    Column("correlation_id", Uuid, nullable=False),
    Column("recorded_at", Time, nullable=False),
)

# Metrics, added to in the transaction of what they count; a slot is a partition's.
metric_values = Table(
    "metric_values",
    metadata,
    Column("slot", SmallInteger, primary_key=True, autoincrement=False),
    Column("name", Text, primary_key=True),
    Column("part", Text, primary_key=True),
    Column("labels", Text, primary_key=True),
    Column("value", Double, nullable=False),
)

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
    Column("machine", Text),
    Column("kind", Text),
    Column("registration_id", Text),
    Column("history", JSON, nullable=False, server_default=text("'[]'")),
)
Index(
    "dead_letters_open_effect_idx",
    dead_letters.c.entity_id,
    dead_letters.c.kind,
    dead_letters.c.registration_id,
    unique=True,
    postgresql_where=text("closed_at IS NULL AND kind IS NOT NULL"),
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
