"""The durable runtime: inbox, entities, the append-only log, intents, dead letters, snapshots."""

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

# Rows come and go: without a small threshold the dead ones would outnumber the living.
_BUSY = """
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 10000
"""

_STEPS = (
    """
    CREATE TABLE runtime_layout (
        singleton boolean CONSTRAINT runtime_layout_pkey PRIMARY KEY
            CONSTRAINT runtime_layout_singleton_check CHECK (singleton),
        partitions smallint NOT NULL
            CONSTRAINT runtime_layout_partitions_check CHECK (partitions BETWEEN 1 AND 1024)
    )
    """,
    """
    INSERT INTO runtime_layout VALUES (true, 16)
    """,
    """
    CREATE TABLE partitions (
        domain text NOT NULL,
        partition smallint NOT NULL,
        holder_pid integer,
        holder_started timestamptz,
        CONSTRAINT partitions_pkey PRIMARY KEY (domain, partition)
    )
    """,
    """
    CREATE TABLE contracts (
        content_hash text CONSTRAINT contracts_pkey PRIMARY KEY,
        machine text NOT NULL,
        version text NOT NULL,
        document text NOT NULL,
        loaded_at timestamptz NOT NULL DEFAULT now()
    )
    """,
    f"""
    CREATE TABLE inbox (
        domain text NOT NULL,
        partition smallint NOT NULL,
        position bigint GENERATED ALWAYS AS IDENTITY,
        message_id uuid NOT NULL,
        correlation_id uuid NOT NULL,
        causation_id uuid,
        emitted_at timestamptz NOT NULL,
        entity_id text NOT NULL,
        message_type text NOT NULL,
        payload json NOT NULL,
        attempts smallint NOT NULL DEFAULT 0,
        CONSTRAINT inbox_pkey PRIMARY KEY (domain, partition, position)
    ) WITH ({_BUSY})
    """,
    """
    CREATE INDEX inbox_message_id_idx ON inbox (message_id)
    """,
    """
    CREATE TABLE processed (
        message_id uuid CONSTRAINT processed_pkey PRIMARY KEY,
        result text NOT NULL,
        processed_at timestamptz NOT NULL DEFAULT now()
    )
    """,
    """
    CREATE TABLE entities (
        entity_id text NOT NULL,
        machine text NOT NULL,
        domain text NOT NULL,
        partition smallint NOT NULL,
        state text NOT NULL,
        context json NOT NULL,
        deadlines json NOT NULL,
        next_deadline timestamptz,
        timeouts_emitted json NOT NULL DEFAULT '{}',
        last_applied_sequence bigint NOT NULL,
        last_applied_event_id uuid NOT NULL,
        last_trigger text NOT NULL,
        correlation_id uuid NOT NULL,
        contract_hash text NOT NULL,
        digest bytea NOT NULL,
        created_at timestamptz NOT NULL,
        updated_at timestamptz NOT NULL,
        CONSTRAINT entities_pkey PRIMARY KEY (entity_id, machine)
    ) WITH (fillfactor = 80)
    """,
    """
    CREATE INDEX entities_next_deadline_idx ON entities (next_deadline)
        WHERE next_deadline IS NOT NULL
    """,
    """
    CREATE TABLE state_counts (
        domain text NOT NULL,
        partition smallint NOT NULL,
        machine text NOT NULL,
        state text NOT NULL,
        entities bigint NOT NULL,
        CONSTRAINT state_counts_pkey PRIMARY KEY (domain, partition, machine, state)
    ) WITH (fillfactor = 50)
    """,
    """
    CREATE TABLE event_log (
        entity_id text NOT NULL,
        machine text NOT NULL,
        sequence bigint NOT NULL,
        applied_at timestamptz NOT NULL,
        domain text NOT NULL,
        message_id uuid NOT NULL,
        message_type text NOT NULL,
        correlation_id uuid NOT NULL,
        message_correlation_id uuid NOT NULL,
        causation_id uuid,
        emitted_at timestamptz NOT NULL,
        trigger text NOT NULL,
        data json NOT NULL,
        path text NOT NULL,
        contract_hash text NOT NULL,
        digest bytea NOT NULL,
        CONSTRAINT event_log_pkey PRIMARY KEY (entity_id, machine, sequence, applied_at)
    ) PARTITION BY RANGE (applied_at)
    """,
    """
    CREATE FUNCTION event_log_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        RAISE EXCEPTION 'the event log is append-only: % is refused', TG_OP
            USING ERRCODE = 'restrict_violation';
    END $$
    """,
    """
    CREATE TRIGGER event_log_append_only BEFORE UPDATE OR DELETE ON event_log
        FOR EACH ROW EXECUTE FUNCTION event_log_is_append_only()
    """,
    """
    CREATE TRIGGER event_log_no_truncate BEFORE TRUNCATE ON event_log
        FOR EACH STATEMENT EXECUTE FUNCTION event_log_is_append_only()
    """,
    # A TRUNCATE trigger is not inherited: every partition gets its own when it is made.
    """
    CREATE FUNCTION event_log_add_partition(name text, bounds text) RETURNS void
        LANGUAGE plpgsql AS $$
    BEGIN
        EXECUTE format('CREATE TABLE IF NOT EXISTS %I PARTITION OF event_log %s', name, bounds);
        EXECUTE format('CREATE OR REPLACE TRIGGER event_log_no_truncate BEFORE TRUNCATE ON %I
            FOR EACH STATEMENT EXECUTE FUNCTION event_log_is_append_only()', name);
    END $$
    """,
    """
    SELECT event_log_add_partition('event_log_default', 'DEFAULT')
    """,
    # One partition a month, made ahead of time; the default one is there so that none is missed.
    """
    CREATE FUNCTION event_log_add_months(ahead integer) RETURNS void LANGUAGE plpgsql AS $$
    DECLARE
        start date;
    BEGIN
        FOR month IN 0..ahead LOOP
            start := date_trunc('month', now() AT TIME ZONE 'UTC') + make_interval(months => month);
            PERFORM event_log_add_partition(
                'event_log_' || to_char(start, 'YYYYMM'),
                format('FOR VALUES FROM (%L) TO (%L)', start || ' 00:00+00',
                       (start + interval '1 month')::date || ' 00:00+00'));
        END LOOP;
    END $$
    """,
    """
    SELECT event_log_add_months(2)
    """,
    f"""
    CREATE TABLE intents (
        intent_id uuid CONSTRAINT intents_pkey PRIMARY KEY,
        domain text NOT NULL,
        partition smallint NOT NULL,
        entity_id text NOT NULL,
        machine text NOT NULL,
        kind text NOT NULL,
        service text NOT NULL,
        payload json NOT NULL,
        correlation_id uuid NOT NULL,
        causation_id uuid NOT NULL,
        created_at timestamptz NOT NULL,
        due_at timestamptz NOT NULL,
        attempt integer NOT NULL DEFAULT 0,
        leased_until timestamptz,
        not_after timestamptz
    ) WITH ({_BUSY})
    """,
    """
    CREATE INDEX intents_due_idx ON intents (service, due_at)
    """,
    """
    CREATE TABLE dead_letters (
        dead_letter_id bigint GENERATED ALWAYS AS IDENTITY
            CONSTRAINT dead_letters_pkey PRIMARY KEY,
        domain text NOT NULL,
        message_id uuid NOT NULL,
        entity_id text NOT NULL,
        message_type text NOT NULL,
        correlation_id uuid NOT NULL,
        reason text NOT NULL,
        error text NOT NULL,
        envelope json NOT NULL,
        projections json NOT NULL,
        attempts integer NOT NULL,
        created_at timestamptz NOT NULL DEFAULT now(),
        closed_at timestamptz,
        closed_as text
    )
    """,
    """
    CREATE INDEX dead_letters_entity_id_idx ON dead_letters (entity_id)
    """,
    """
    CREATE TABLE log_bases (
        entity_id text NOT NULL,
        machine text NOT NULL,
        sequence bigint NOT NULL,
        projection json NOT NULL,
        digest bytea NOT NULL,
        CONSTRAINT log_bases_pkey PRIMARY KEY (entity_id, machine, sequence)
    )
    """,
    # A month that is taken off the log is kept as it is, and stays as unchangeable as before.
    """
    CREATE FUNCTION event_log_detach(name text) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        EXECUTE format('ALTER TABLE event_log DETACH PARTITION %I', name);
        EXECUTE format('CREATE OR REPLACE TRIGGER event_log_append_only
            BEFORE UPDATE OR DELETE ON %I
            FOR EACH ROW EXECUTE FUNCTION event_log_is_append_only()', name);
    END $$
    """,
    """
    CREATE TABLE snapshots (
        entity_id text NOT NULL,
        machine text NOT NULL,
        sequence bigint NOT NULL,
        projection json NOT NULL,
        digest bytea NOT NULL,
        taken_at timestamptz NOT NULL,
        CONSTRAINT snapshots_pkey PRIMARY KEY (entity_id, machine)
    )
    """,
)


def upgrade() -> None:
    for step in _STEPS:
        op.execute(step)


def downgrade() -> None:
    op.execute(
        "DROP TABLE log_bases, snapshots, dead_letters, intents, event_log, state_counts, entities,"
        " processed, inbox, contracts, partitions, runtime_layout"
    )
    op.execute("DROP FUNCTION event_log_detach(text)")
    op.execute("DROP FUNCTION event_log_add_months(integer)")
    op.execute("DROP FUNCTION event_log_add_partition(text, text)")
    op.execute("DROP FUNCTION event_log_is_append_only()")
