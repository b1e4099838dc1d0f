"""What one transaction writes for a batch: the same for a drain and for a direct transition."""

from sqlalchemy.orm import Session

from tasks.batch import Batch
from tasks.counting import count
from tasks.liveness import follow
from tasks.metrics import Tally
from tasks.outcomes import attempts
from tasks.store import (
    counts,
    dead_letters,
    entities,
    event_log,
    inbox,
    intents,
    measures,
    outcomes,
    processed,
)


def write(session: Session, batch: Batch) -> None:
    """Projections, log, intents, events: one statement each, however long the batch is."""
    entities.save(session, batch.changes, batch.now)
    follow(session, batch)
    event_log.append(session, batch.applied)
    intents.hurry(session, batch.intents, batch.now)
    intents.put(session, batch.intents, batch.now)
    inbox.put(session, batch.elsewhere)
    dead_letters.put(session, batch.dead)
    dead_letters.put_given_up(session, [*batch.given_up.values()], batch.now)
    outcomes.record(session, attempts(batch), batch.now)
    processed.record(session, batch.results)
    counts.move(session, batch.domain, batch.partition, batch.moved)
    inbox.remove(session, batch.domain, batch.partition, batch.done)
    measures.add(session, batch.partition, count(batch, Tally(batch.environments)))
