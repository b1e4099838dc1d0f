"""The runtime's clock: one row that every RuntimeTick tries to move."""

from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A half-empty page keeps the row's updates HOT: no index is touched, nothing bloats.
    op.execute(
        """
        CREATE TABLE runtime_clock (
            singleton boolean CONSTRAINT runtime_clock_pkey PRIMARY KEY
                CONSTRAINT runtime_clock_singleton_check CHECK (singleton),
            at timestamptz NOT NULL,
            emitted_at timestamptz,
            tick_sequence bigint,
            runtime_id text,
            ticks bigint NOT NULL
        ) WITH (fillfactor = 50)
        """
    )
    op.execute("INSERT INTO runtime_clock (singleton, at, ticks) VALUES (true, 'epoch', 0)")


def downgrade() -> None:
    op.execute("DROP TABLE runtime_clock")
