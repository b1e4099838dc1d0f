"""What a batch adds to the metrics of the registration."""

from collections.abc import Mapping
from datetime import datetime

from fsm.step import Fold
from models.messages.runtime import DeadlinePassed
from tasks.batch import Batch
from tasks.metrics import BY_NAME, Tally

REGISTRATION = "registration"
_ERRORS = frozenset({"partial_registered", "failed"})
_REMOVALS = {
    "registration.events.ConsulDeregisterFailed": "deregistration_consul_failure_total",
    "registration.events.PostgresDeleteFailed": "deregistration_postgres_failure_total",
}


def count(batch: Batch, tally: Tally) -> Tally:
    """Each transition once: the tally is written by the transaction that writes the transition."""
    since = dict(batch.since)
    for message, made in batch.steps:
        late = message.message_type.endswith(f".{DeadlinePassed.name}")
        late = late and message.payload.get("deadline") != "retry"
        for fold in made.folds:
            if fold.folded.projection.machine == REGISTRATION:
                _transition(tally, fold, late, since, batch.now)
        if (name := _REMOVALS.get(message.message_type)) and REGISTRATION in made.projections:
            environment = str(made.projections[REGISTRATION].context.get("environment") or "")
            tally.count(name, environment=environment, error_type=_failure(message.payload))
    return tally


def _transition(
    tally: Tally, fold: Fold, late: bool, since: dict[str, datetime], now: datetime
) -> None:
    outcome, entity_id = fold.folded.outcome, fold.folded.projection.entity_id
    environment = str(outcome.context.get("environment") or "")
    failure = "timeout" if late else _failure(fold.pull.data)
    left = fold.state_before
    said = {
        "environment": environment,
        "error_type": failure,
        "consul_error_type": failure,
        "validation_error_type": "payload",
        "failed_component": "consul",
        "recovered_component": "consul",
        "last_state": left,
        "from_state": outcome.path[-2],
    }
    for metric in outcome.metrics:
        if metric.name in BY_NAME:
            fatal = {"error_type": "fatal"} if "fatal" in metric.name else {}
            tally.count(metric.name, metric.value, **said | fatal | dict(metric.labels))
    state = fold.pull.contract.state(left)
    if late and state is not None and state.timeout is not None:
        pulled, after = fold.pull.trigger, str(state.timeout.after_ms)
        tally.count("registration_state_timeout_total", state=left, trigger_emitted=pulled)
        tally.count(
            "registration_timeout_total", environment=environment, state=left, timeout_ms=after
        )
    ended = "timeout" if late else "failure" if outcome.state in _ERRORS else "success"
    spent = (now - since.get(entity_id, now)).total_seconds() * 1000
    since[entity_id] = now
    for at, passed in enumerate(outcome.path[:-1]):
        tally.observe(
            "registration_state_duration_ms", 0 if at else spent, state=passed, outcome=ended
        )


def _failure(data: Mapping[str, object]) -> str:
    return "permanent" if data.get("permanent") is True else "transient"
