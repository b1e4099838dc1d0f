"""The reducer of every machine: folds one event into one projection, by its contract alone."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from fsm.contract import Contract
from fsm.delta import delta
from fsm.outcome import Outcome
from models.envelope import Envelope
from models.messages.runtime import TriggerPulled
from models.output import HandlerOutput, IntentRequest, ReducerContext
from models.projection import Deadline, Projection

GENERATION = "generation"
RETRY = "retry"
"""The deadline after which a state is left by its contract's `auto_retry`."""


@dataclass(frozen=True, slots=True)
class Folded:
    """What an event did to a projection; unchanged where the outcome says so."""

    projection: Projection
    outcome: Outcome

    def output(self) -> HandlerOutput:
        """The same as a reducer may say it: projections, then intents."""
        if not self.outcome.changed:
            return HandlerOutput()
        return HandlerOutput(
            projections=(self.projection,),
            intents=tuple(
                IntentRequest(each.id, each.kind, each.payload) for each in self.outcome.intents
            ),
            metrics=self.outcome.metrics,
            logs=self.outcome.logs,
        )


def fold(
    contract: Contract,
    before: Projection,
    event_id: UUID,
    trigger: str,
    data: Mapping[str, Any],
    applied_at: datetime,
) -> Folded:
    """Apply one event. `applied_at` comes from the log, never from a clock: a state's deadline
    begins with it when the state is entered, and ends when the state is left."""
    start = _renewed(contract, before, data)
    outcome = delta(
        contract,
        start.state,
        trigger,
        start.context,
        data=data,
        cause=event_id,
        last_trigger=start.last_trigger or None,
    )
    if not outcome.changed:
        return Folded(before, outcome)
    sequence = before.sequence + 1
    deadlines: dict[str, Deadline] = {}
    entered = contract.state(outcome.state)
    if entered is not None and entered.timeout is not None and not entered.is_terminal:
        at = applied_at + timedelta(milliseconds=entered.timeout.after_ms)
        deadlines[entered.timeout.name] = Deadline(at, sequence, event_id)
    if (wait := _retry_wait(contract, outcome)) is not None:
        deadlines[RETRY] = Deadline(applied_at + wait, sequence, event_id)
    after = Projection(
        machine=before.machine,
        entity_id=before.entity_id,
        state=outcome.state,
        context=outcome.context,
        deadlines=deadlines,
        sequence=sequence,
        last_event_id=event_id,
        last_trigger=trigger,
        correlation_id=before.correlation_id,
        contract_hash=contract.content_hash,
    )
    return Folded(after, outcome)


def _renewed(contract: Contract, before: Projection, data: Mapping[str, Any]) -> Projection:
    """A terminal instance is never resurrected: an event of a later generation starts anew.

    Only machines whose initial context has a `generation` know such a thing.
    """
    state, later = contract.state(before.state), data.get(GENERATION)
    if state is None or not state.is_terminal or type(later) is not int:
        return before
    fresh = contract.new_context()
    if GENERATION not in fresh or later <= int(before.context.get(GENERATION) or 0):
        return before
    return replace(before, state=contract.initial_state, context=fresh, last_trigger="")


def _retry_wait(contract: Contract, outcome: Outcome) -> timedelta | None:
    """How long a state that is retried by itself waits: twice as long each time, and not at all
    once its retries are used up."""
    counter = contract.retry_counter
    for retry in contract.auto_retry:
        if retry.state == outcome.state:
            count = outcome.context.get(counter.field) if counter else 0
            known = count if isinstance(count, int) else 0
            if counter is not None and retry.exhausted and known >= counter.max_value:
                return timedelta(0)
            grown = retry.base_ms * 2 ** min(known, 32)
            return timedelta(milliseconds=min(grown, retry.max_ms))
    return None


def unborn(contract: Contract, entity_id: str, correlation_id: UUID) -> Projection:
    """An entity before its first event."""
    return Projection(
        machine=contract.name,
        entity_id=entity_id,
        state=contract.initial_state,
        context=contract.new_context(),
        deadlines={},
        sequence=0,
        last_event_id=UUID(int=0),
        last_trigger="",
        correlation_id=correlation_id,
        contract_hash=contract.content_hash,
    )


class MachineReducer:
    """A machine's reducer as a handler of messages."""

    def __init__(self, contract: Contract) -> None:
        self._contract = contract

    def __call__(self, message: Envelope, context: ReducerContext) -> HandlerOutput:
        """Fold an event; the only time it knows is when the event was emitted."""
        contract = self._contract
        trigger, data = contract.trigger_of(message.message_type), dict(message.payload)
        if trigger is None and message.payload.get("machine") == contract.name:
            pulled = TriggerPulled.model_validate(message.payload)
            trigger, data = pulled.trigger, pulled.data
        if trigger is None:
            return HandlerOutput()
        before = context.projections.get(contract.name)
        if before is None:
            before = unborn(contract, message.entity_id, message.correlation_id)
        when = message.emitted_at
        return fold(contract, before, message.message_id, trigger, data, when).output()
