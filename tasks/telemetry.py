"""What a committed batch says: its log lines and counts, once, after the commit."""

import logging

import structlog

from tasks.batch import Batch
from tasks.logs import correlated, logger


def report(batch: Batch) -> None:
    """Log what handlers asked for, each line under its message's workflow."""
    lines = logger("machines")
    _checkpoints(batch)
    for message, made in batch.steps:
        asked = [line for output in made.outputs for line in output.logs]
        if not asked:
            continue
        workflow = next((x.correlation_id for x in made.projections.values()), None)
        with correlated(str(workflow or message.correlation_id), entity_id=message.entity_id):
            for line in asked:
                level = logging.getLevelNamesMapping()[str(line.level)]
                lines.log(level, line.message, **{f"f_{k}": v for k, v in line.fields})
    for letter in batch.dead:
        with structlog.contextvars.bound_contextvars(
            correlation_id=str(letter.envelope.correlation_id)
        ):
            logger("runtime").error(
                "message put to dead letters",
                entity_id=letter.envelope.entity_id,
                message_type=letter.envelope.message_type,
                reason=letter.reason,
                error=letter.error,
            )


def _checkpoints(batch: Batch) -> None:
    """A state that was passed through in one step is never seen in the row: say it went by."""
    for message, made in batch.steps:
        for fold in made.folds:
            path, projection = fold.folded.outcome.path, fold.folded.projection
            if len(path) > 2:
                with correlated(str(projection.correlation_id), entity_id=message.entity_id):
                    logger("machines").info(
                        "checkpoint passed", machine=projection.machine, path=" -> ".join(path)
                    )
