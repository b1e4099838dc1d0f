"""What a batch tells of attempts to register nodes."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from models.projection import Projection
from tasks.batch import Batch
from tasks.store.outcomes import Attempt

REGISTRATION = "registration"
STATUSES: Mapping[str, str] = MappingProxyType(
    {"registered": "success", "partial_registered": "partial", "failed": "failed"}
)
_ERRORS = ("validation_error", "postgres_error", "consul_error")


def attempts(batch: Batch) -> list[Attempt]:
    """Each attempt that came to something in the batch, once, as it is in the end. A state passed
    through counts too: the row must not miss an outcome because the batch was long."""
    found = {(each.node_id, each.generation): each for each in _all(batch)}
    return [found[key] for key in sorted(found)]


def _all(batch: Batch) -> Iterator[Attempt]:
    for _, made in batch.steps:
        for fold in made.folds:
            projection = fold.folded.projection
            if projection.machine == REGISTRATION and projection.state in STATUSES:
                yield _attempt(projection)


def _attempt(projection: Projection) -> Attempt:
    context, status = projection.context, STATUSES[projection.state]
    said = [str(context[key]) for key in _ERRORS if context.get(key)]
    generation = context.get("generation")
    return Attempt(
        node_id=projection.entity_id,
        generation=generation if type(generation) is int else 0,
        registration_id=str(context.get("registration_id") or ""),
        status=status,
        postgres_applied=context.get("postgres_applied") is True,
        consul_applied=context.get("consul_applied") is True,
        error="; ".join(said) if said and status != "success" else None,
        correlation_id=projection.correlation_id,
    )
