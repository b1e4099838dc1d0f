"""How the answers of its calls move a service's circuit."""

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy.orm import Session

from fsm.breaker import CallId, CallOutcome, Circuit, CircuitState, settle
from tasks.effects.handler import Service
from tasks.logs import logger
from tasks.store import circuits, intents


def move_circuit(
    session: Session,
    service: Service,
    call: CallId,
    held: Circuit,
    calls: Sequence[CallOutcome],
    now: datetime,
) -> datetime | None:
    """Move the circuit by what the calls told; until when nothing goes, if it is not closed."""
    quiet = CallOutcome.FAILURE not in calls and held == Circuit()
    if quiet or not calls:
        return None
    before = circuit = circuits.lock(session, service.name)
    for outcome in calls:
        circuit = settle(service.breaker, circuit, call, outcome, now)
    barred: datetime | None = None
    if circuit.state is CircuitState.OPEN and circuit.opened_at is not None:
        barred = circuit.opened_at + service.breaker.reset_timeout
    elif circuit.state is CircuitState.HALF_OPEN:
        barred = now + service.breaker.probe_timeout
    if circuit != before:
        circuits.save(session, service.name, circuit, barred, now)
    if circuit.state is not before.state:
        logger("effects").warning(
            "circuit moved",
            service=service.name,
            before=before.state.value,
            after=circuit.state.value,
            failures=circuit.failures,
        )
        if circuit.state is CircuitState.CLOSED:
            intents.resume(session, service.name, now)
    return barred
