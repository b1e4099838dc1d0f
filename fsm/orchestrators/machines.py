"""The orchestrator that every machine has: triggers asked for from outside, and deadlines."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from fsm.contract import Contract, Level
from fsm.contract_terms import Log
from fsm.emission import caused
from fsm.machines import Machines, domain_of
from fsm.reducer import GENERATION, RETRY
from models.envelope import Envelope
from models.messages.runtime import DeadlinePassed, PullTrigger, TriggerPulled
from models.output import HandlerOutput, OrchestratorContext, Role
from models.projection import Projection
from models.registry import HandlerSpec, MessageType
from models.topics import Category


class MachineOrchestrator:
    """Decides for the machines of one domain by their contracts alone."""

    def __init__(self, domain: str, machines: Machines) -> None:
        self.domain = domain
        self.name = f"{domain}.machines"
        self._machines = machines

    def spec(self) -> HandlerSpec:
        return HandlerSpec(
            name=self.name,
            role=Role.ORCHESTRATOR,
            domain=self.domain,
            consumes=(
                MessageType(self.domain, Category.COMMANDS, PullTrigger.name),
                MessageType(self.domain, Category.EVENTS, DeadlinePassed.name),
            ),
            run=self.decide,
        )

    def decide(self, message: Envelope, context: OrchestratorContext) -> HandlerOutput:
        if message.message_type.endswith(PullTrigger.name):
            return self._pull(message, context)
        return self._deadline(message, context)

    def _pull(self, message: Envelope, context: OrchestratorContext) -> HandlerOutput:
        """Grant what outsiders may ask for; the contract says what that is."""
        asked = message.payload
        contract = self._contract(asked["machine"])
        trigger = str(asked["trigger"])
        if contract is None or not contract.accepts_from_outside(trigger):
            return HandlerOutput()
        if not self._for_outsiders(contract, trigger):
            return HandlerOutput()
        given = asked.get("data")
        data = given if isinstance(given, dict) else {}
        if owned := sorted(_owned(contract) & data.keys()):
            told = "; ".join(f"data.{name}: is the machine's own" for name in owned)
            return HandlerOutput(logs=(Log(Level.WARNING, f"{trigger} refused: {told}"),))
        return self._emit(message, context, contract, trigger, data)

    def _for_outsiders(self, contract: Contract, trigger: str) -> bool:
        """Whether every machine that folds the trigger's event lets an outsider pull it."""
        named = self._machines.message_type(contract, trigger)
        pulls = self._machines.pulls(named, {}) if named else ()
        return all(each.contract.accepts_from_outside(each.trigger) for each in pulls)

    def _deadline(self, message: Envelope, context: OrchestratorContext) -> HandlerOutput:
        """A deadline counts only while it stands: what was folded before it may have ended it. It
        is due if it was for the tick, even when the database's clock was set back since."""
        passed = message.payload
        contract = self._contract(passed["machine"])
        projection = context.projections.get(str(passed["machine"]))
        if contract is None or projection is None:
            return HandlerOutput()
        contract = self._machines.of_hash(projection.contract_hash)
        deadline = projection.deadlines.get(str(passed["deadline"]))
        state = contract.state(projection.state)
        if (
            deadline is None
            or deadline.set_by != passed["set_by"]
            or deadline.at > max(context.now, datetime.fromisoformat(str(passed["now"])))
            or state is None
        ):
            return HandlerOutput()
        if passed["deadline"] == RETRY and (trigger := _next_try(contract, projection)):
            return self._emit(message, context, contract, trigger, {})
        if state.timeout is None:
            return HandlerOutput()
        return self._emit(
            message, context, contract, state.timeout.trigger, dict(state.timeout.data)
        )

    def _emit(
        self,
        message: Envelope,
        context: OrchestratorContext,
        contract: Contract,
        trigger: str,
        data: Mapping[str, Any],
    ) -> HandlerOutput:
        """As the domain event the contract names for the trigger, else as a plain TriggerPulled."""
        named = self._machines.message_type(contract, trigger)
        plain = f"{self.domain}.{Category.EVENTS.value}.{TriggerPulled.name}"
        payload = data if named else {"machine": contract.name, "trigger": trigger, "data": data}
        return HandlerOutput(
            events=(caused(message, context, self.name, 0, named or plain, payload),)
        )

    def _contract(self, machine: object) -> Contract | None:
        found = self._machines.named(str(machine))
        return found if found is not None and domain_of(found.name) == self.domain else None


def _owned(contract: Contract) -> frozenset[str]:
    """Fields no outsider may bring: who begins anew and how often was tried is the machine's to
    know, and what a deadline says of an effect is the effect's to say."""
    counter = {contract.retry_counter.field} if contract.retry_counter else set()
    told = {
        name
        for state in contract.states
        if state.timeout and not contract.accepts_from_outside(state.timeout.trigger)
        for name in dict(state.timeout.data)
    }
    return frozenset({GENERATION, "registration_id", *counter, *told})


def _next_try(contract: Contract, projection: Projection) -> str | None:
    """What a state that is retried by itself pulls now; nothing if it is not such a state."""
    counter = contract.retry_counter
    for retry in contract.auto_retry:
        if retry.state == projection.state:
            count = projection.context.get(counter.field) if counter else 0
            spent = counter is not None and isinstance(count, int) and count >= counter.max_value
            return retry.exhausted if spent and retry.exhausted else retry.trigger
    return None
