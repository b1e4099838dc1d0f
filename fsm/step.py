"""One message's whole effect on one entity, decided in memory: what the runtime then commits.

An event is folded by its reducers first and then shown to orchestrators, who see the state it
led to; what they decide is folded in the same step. A command is shown to orchestrators only.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from fsm.machines import Machines, Pull, domain_of
from fsm.outcome import FollowUp, Outcome
from fsm.reducer import Folded, fold, unborn
from models.envelope import Envelope
from models.errors import MessageError
from models.messages.runtime import TriggerPulled
from models.output import HandlerOutput, OrchestratorContext, Role, check_output
from models.projection import Projection
from models.registry import MessageRegistry
from models.topics import Category

MOST_EVENTS = 64
IGNORED = "IGNORED"
REFUSED = "REFUSED"
NOT_GRANTED = "no handler grants this from outside"


@dataclass(frozen=True, slots=True)
class Fold:
    """One event applied to one machine."""

    event: Envelope
    pull: Pull
    state_before: str
    folded: Folded


@dataclass(slots=True)
class Step:
    """Everything that follows from one message, in the order it was decided."""

    projections: dict[str, Projection]
    asked: bool
    folds: list[Fold] = field(default_factory=list)
    elsewhere: list[Envelope] = field(default_factory=list)
    outputs: list[HandlerOutput] = field(default_factory=list)
    refusals: list[Outcome] = field(default_factory=list)
    decided: int = 0

    @property
    def result(self) -> str:
        """What is remembered of the message itself."""
        if self.folds:
            return "OK"
        if self.refusals:
            return self.refusals[0].result.value
        return REFUSED if self.asked and not self.decided else IGNORED

    @property
    def reason(self) -> str | None:
        """Why nothing moved, in a sentence for whoever asked; None if something did."""
        if not self.folds and self.refusals:
            return str(self.refusals[0].reason or "") or None
        if self.result != REFUSED:
            return None
        said = (line.message for output in self.outputs for line in output.logs)
        return next(said, NOT_GRANTED)


def step(
    machines: Machines,
    registry: MessageRegistry,
    before: Mapping[str, Projection],
    message: Envelope,
    now: datetime,
) -> Step:
    """Decide it all. Pure: the same message on the same state at the same time gives the same."""
    made = Step(dict(before), asked=f".{Category.COMMANDS.value}." in message.message_type)
    workflow = next((each.correlation_id for each in before.values()), message.correlation_id)
    waiting = deque([message])
    for _ in range(MOST_EVENTS):
        event = waiting.popleft()
        waiting.extend(_reduce(machines, made, event, workflow, now))
        waiting.extend(_orchestrate(registry, made, event, workflow, message.entity_id, now))
        if not waiting:
            return made
    raise MessageError(
        f"{message.message_type} led to more than {MOST_EVENTS} events",
        "two handlers answer each other",
    )


def _reduce(
    machines: Machines, made: Step, event: Envelope, workflow: UUID, now: datetime
) -> list[Envelope]:
    """Fold an event into every machine it concerns; give what those machines pull next."""
    if f".{Category.EVENTS.value}." not in event.message_type:
        return []
    follow_ups: list[Envelope] = []
    for pull in machines.pulls(event.message_type, event.payload):
        contract = pull.contract
        before = made.projections.get(contract.name)
        if before is None:
            before = unborn(contract, event.entity_id, workflow)
        elif before.contract_hash != contract.content_hash:
            contract = machines.of_hash(before.contract_hash)
        if _outlived(pull.data, before.sequence):
            continue
        folded = fold(contract, before, event.message_id, pull.trigger, pull.data, now)
        output = folded.output()
        check_output(Role.REDUCER, output)
        if not folded.outcome.changed:
            made.refusals.append(folded.outcome)
            continue
        made.projections[contract.name] = folded.projection
        made.folds.append(Fold(event, pull, before.state, folded))
        made.outputs.append(output)
        follow_ups += [
            _follow_up(event, contract.name, each, workflow, now)
            for each in folded.outcome.follow_ups
        ]
    return follow_ups


def _outlived(data: Mapping[str, Any], sequence: int) -> bool:
    """An answer to what the machine asked for at another step than its last one. Nothing is folded
    from it; orchestrators may still make something of it."""
    asked_at = data.get("asked_at")
    return type(asked_at) is int and asked_at != sequence


def _orchestrate(
    registry: MessageRegistry,
    made: Step,
    event: Envelope,
    workflow: UUID,
    entity_id: str,
    now: datetime,
) -> list[Envelope]:
    """Let orchestrators decide; what concerns another entity goes through its own inbox."""
    here: list[Envelope] = []
    for handler in registry.handlers(event.message_type, Role.ORCHESTRATOR):
        context = OrchestratorContext(now=now, projections=made.projections)
        output = handler.handle(event, context)
        made.outputs.append(output)
        made.decided += len(output.events)
        for emitted in output.events:
            _check_chain(handler.name, event, emitted, workflow)
            (here if emitted.entity_id == entity_id else made.elsewhere).append(emitted)
    return here


def _check_chain(name: str, cause: Envelope, emitted: Envelope, workflow: UUID) -> None:
    if emitted.causation_id != cause.message_id or emitted.correlation_id != workflow:
        raise MessageError(
            f"{name} emitted {emitted.message_type} outside the chain of {cause.message_id}",
            "emit with `caused`",
        )


def _follow_up(
    cause: Envelope, machine: str, follow_up: FollowUp, workflow: UUID, now: datetime
) -> Envelope:
    payload: dict[str, Any] = {"machine": machine, "trigger": follow_up.trigger, "data": {}}
    return Envelope.trusted(
        message_id=follow_up.id,
        correlation_id=workflow,
        causation_id=cause.message_id,
        emitted_at=now,
        entity_id=cause.entity_id,
        message_type=f"{domain_of(machine)}.{Category.EVENTS.value}.{TriggerPulled.name}",
        payload=payload,
    )
