"""Effects: what they did and where, circuits, a node's record and heartbeats, cleaning."""

from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

# Rows that change often: vacuumed by number, not by share, and updated in place where possible.
_BUSY = (
    "fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,"
    " autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 10000"
)

_STEPS = (
    # `sequence` is the machine's step that asked for it: a machine that moved on asks no more.
    # `tries` are the attempts that count against its budget; those of an open circuit do not.
    """
    ALTER TABLE intents
        ADD COLUMN position bigint GENERATED ALWAYS AS IDENTITY,
        ADD COLUMN sequence bigint NOT NULL DEFAULT 0,
        ADD COLUMN registration_id text,
        ADD COLUMN tries integer NOT NULL DEFAULT 0,
        ADD COLUMN history json NOT NULL DEFAULT '[]'
    """,
    # Intents of one entity for one service are carried out one after the other.
    """
    CREATE INDEX intents_order_idx ON intents (entity_id, service, position)
    """,
    """
    CREATE TABLE effect_ledger (
        intent_id uuid CONSTRAINT effect_ledger_pkey PRIMARY KEY,
        entity_id text NOT NULL,
        machine text NOT NULL,
        domain text NOT NULL,
        kind text NOT NULL,
        registration_id text,
        status text NOT NULL,
        payload_digest bytea NOT NULL,
        attempts integer NOT NULL,
        error text,
        settled_at timestamptz NOT NULL,
        sequence bigint NOT NULL DEFAULT 0,
        envelope json,
        history json,
        CONSTRAINT effect_ledger_status_check CHECK
            (status IN ('succeeded', 'undone', 'failed', 'cancelled', 'conflict'))
    )
    """,
    # The natural key holds among the successes that are still in force.
    """
    CREATE UNIQUE INDEX effect_ledger_in_force_idx
        ON effect_ledger (entity_id, kind, registration_id) WHERE status = 'succeeded'
    """,
    # What was given up: its step goes on waiting for it, and `envelope` has yet to become a letter.
    """
    CREATE INDEX effect_ledger_given_up_idx
        ON effect_ledger (entity_id) WHERE status IN ('failed', 'conflict')
    """,
    """
    CREATE TABLE circuits (
        service text CONSTRAINT circuits_pkey PRIMARY KEY,
        state text NOT NULL DEFAULT 'CLOSED',
        failures integer NOT NULL DEFAULT 0,
        opened_at timestamptz,
        probe_holder text,
        probe_since timestamptz,
        barred_until timestamptz,
        changed_at timestamptz NOT NULL DEFAULT now(),
        CONSTRAINT circuits_state_check CHECK (state IN ('CLOSED', 'OPEN', 'HALF_OPEN'))
    )
    """,
    # What the PostgreSQL effect writes. `node_registrations` shows it with what follows from it.
    """
    CREATE TABLE node_records (
        node_id text CONSTRAINT node_records_pkey PRIMARY KEY,
        registration_id text NOT NULL,
        generation integer NOT NULL,
        deployment_id text NOT NULL,
        environment text NOT NULL,
        network_id text NOT NULL,
        consul_service_id text NOT NULL,
        record json NOT NULL,
        correlation_id uuid NOT NULL,
        registered_at timestamptz NOT NULL,
        updated_at timestamptz NOT NULL
    )
    """,
    f"""
    CREATE TABLE heartbeats (
        node_id text CONSTRAINT heartbeats_pkey PRIMARY KEY,
        last_seen timestamptz NOT NULL,
        deadline timestamptz NOT NULL
    ) WITH ({_BUSY})
    """,
    # One row: since when so many nodes are silent at once that we doubt our own network.
    """
    CREATE TABLE brake (
        singleton boolean CONSTRAINT brake_pkey PRIMARY KEY DEFAULT true
            CONSTRAINT brake_singleton_check CHECK (singleton),
        held_since timestamptz,
        silent integer NOT NULL DEFAULT 0,
        live integer NOT NULL DEFAULT 0,
        measured_at timestamptz
    )
    """,
    """
    INSERT INTO brake DEFAULT VALUES
    """,
    # Nodes to be looked at in Consul again: somebody may have written after losing its lease.
    """
    CREATE TABLE consul_rechecks (
        node_id text CONSTRAINT consul_rechecks_pkey PRIMARY KEY,
        due_at timestamptz NOT NULL,
        reason text NOT NULL
    )
    """,
    """
    CREATE TABLE registration_gc_log (
        run_id bigint GENERATED ALWAYS AS IDENTITY CONSTRAINT registration_gc_log_pkey PRIMARY KEY,
        run_timestamp timestamptz NOT NULL DEFAULT now(),
        nodes_cleaned integer NOT NULL,
        node_ids json NOT NULL,
        details json NOT NULL DEFAULT '{}'
    )
    """,
    # How each attempt to register a node went, the newest outcome of each generation.
    """
    CREATE TABLE registration_outcomes (
        node_id text NOT NULL,
        generation integer NOT NULL,
        registration_id text NOT NULL,
        status text NOT NULL,
        postgres_applied boolean NOT NULL,
        consul_applied boolean NOT NULL,
        error text,
        correlation_id uuid NOT NULL,
        recorded_at timestamptz NOT NULL,
        CONSTRAINT registration_outcomes_pkey PRIMARY KEY (node_id, generation),
        CONSTRAINT registration_outcomes_status_check
            CHECK (status IN ('success', 'partial', 'failed'))
    )
    """,
    # Metrics, added to in the transaction of what they count.
    f"""
    CREATE TABLE metric_values (
        slot smallint NOT NULL,
        name text NOT NULL,
        part text NOT NULL,
        labels text NOT NULL,
        value double precision NOT NULL,
        CONSTRAINT metric_values_pkey PRIMARY KEY (slot, name, part, labels)
    ) WITH ({_BUSY})
    """,
    """
    CREATE VIEW node_registrations AS
    SELECT r.node_id, r.registration_id, r.generation, r.deployment_id, r.environment,
           r.network_id, r.consul_service_id, r.record, r.correlation_id,
           e.state AS status, h.state AS handshake, b.last_seen AS last_heartbeat,
           r.registered_at, r.updated_at
      FROM node_records AS r
      LEFT JOIN entities AS e ON e.entity_id = r.node_id AND e.machine = 'registration'
      LEFT JOIN entities AS h ON h.entity_id = r.node_id AND h.machine = 'handshake'
      LEFT JOIN heartbeats AS b ON b.node_id = r.node_id
    """,
    # A dead letter of an effect has the intent's identity and the history of its attempts; there
    # is one open letter for one thing to be done.
    """
    ALTER TABLE dead_letters
        ADD COLUMN machine text,
        ADD COLUMN kind text,
        ADD COLUMN registration_id text,
        ADD COLUMN history json NOT NULL DEFAULT '[]'
    """,
    """
    CREATE UNIQUE INDEX dead_letters_open_effect_idx
        ON dead_letters (entity_id, kind, registration_id)
        WHERE closed_at IS NULL AND kind IS NOT NULL
    """,
)


def upgrade() -> None:
    for step in _STEPS:
        op.execute(step)


def downgrade() -> None:
    op.execute("DROP VIEW node_registrations")
    op.execute(
        "DROP TABLE metric_values, registration_outcomes, registration_gc_log, consul_rechecks,"
        " brake, heartbeats, node_records, circuits, effect_ledger"
    )
    op.execute("DROP INDEX dead_letters_open_effect_idx")
    op.execute("DELETE FROM dead_letters WHERE kind IS NOT NULL")
    op.execute(
        "ALTER TABLE dead_letters DROP COLUMN machine, DROP COLUMN kind,"
        " DROP COLUMN registration_id, DROP COLUMN history"
    )
    op.execute("DROP INDEX intents_order_idx")
    op.execute(
        "ALTER TABLE intents DROP COLUMN position, DROP COLUMN sequence,"
        " DROP COLUMN registration_id, DROP COLUMN tries, DROP COLUMN history"
    )
