"""Circuits: rows that every worker reads in its claim and moves when it settles."""

from datetime import datetime

from sqlalchemy import text
from sqlalchemy.orm import Session

from fsm.breaker import CallId, Circuit, CircuitState

_READ = text(
    "SELECT state, failures, opened_at, probe_holder, probe_since FROM circuits"
    " WHERE service = :service"
)
_LOCK = text(
    "SELECT state, failures, opened_at, probe_holder, probe_since FROM circuits"
    " WHERE service = :service FOR UPDATE"
)
_CREATE = text("INSERT INTO circuits (service) VALUES (:service) ON CONFLICT DO NOTHING")
_SAVE = text(
    """
    UPDATE circuits
       SET state = :state, failures = :failures, opened_at = :opened_at,
           probe_holder = :probe_holder, probe_since = :probe_since, barred_until = :barred_until,
           changed_at = CASE WHEN state = :state THEN changed_at ELSE :now END
     WHERE service = :service
    """
)


def read(session: Session, service: str) -> Circuit:
    """The circuit as it is; nobody else waits."""
    row = session.execute(_READ, {"service": service}).one_or_none()
    return Circuit() if row is None else _circuit(*row)


def lock(session: Session, service: str) -> Circuit:
    """The circuit, the caller's until it commits: of many probes one goes."""
    row = session.execute(_LOCK, {"service": service}).one_or_none()
    if row is None:
        session.execute(_CREATE, {"service": service})
        row = session.execute(_LOCK, {"service": service}).one()
    return _circuit(*row)


def save(
    session: Session, service: str, circuit: Circuit, barred_until: datetime | None, now: datetime
) -> None:
    session.execute(
        _SAVE,
        {
            "service": service,
            "state": circuit.state.value,
            "failures": circuit.failures,
            "opened_at": circuit.opened_at,
            "probe_holder": circuit.probe_holder,
            "probe_since": circuit.probe_since,
            "barred_until": barred_until,
            "now": now,
        },
    )


def _circuit(
    state: str,
    failures: int,
    opened_at: datetime | None,
    probe_holder: str | None,
    probe_since: datetime | None,
) -> Circuit:
    holder = None if probe_holder is None else CallId(probe_holder)
    return Circuit(CircuitState(state), failures, opened_at, holder, probe_since)
