"""What registrations ask of PostgreSQL: a node's record, written and settled in one transaction."""

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.orm import Session

from fsm.breaker import CallOutcome
from fsm.retry import FailureKind
from models.canonical import canonical
from tasks.effects.handler import Answer, Claimed, Done, Failed

UPSERT = "postgres.upsert_registration"
DELETE = "postgres.delete_registration"
_NAMED = ("deployment_id", "environment", "network_id", "consul_service_id", "registration_id")

# An older generation never overwrites a newer one.
_UPSERT = text(
    """
    INSERT INTO node_records AS r (node_id, registration_id, generation, deployment_id, environment,
                                   network_id, consul_service_id, record, correlation_id,
                                   registered_at, updated_at)
    SELECT node_id, registration_id, generation, deployment_id, environment, network_id,
           consul_service_id, CAST(record AS json), correlation_id, now(), now()
      FROM unnest(CAST(:node_ids AS text[]), CAST(:registration_ids AS text[]),
                  CAST(:generations AS integer[]), CAST(:deployment_ids AS text[]),
                  CAST(:environments AS text[]), CAST(:network_ids AS text[]),
                  CAST(:consul_service_ids AS text[]), CAST(:records AS text[]),
                  CAST(:correlation_ids AS uuid[]))
           AS rows (node_id, registration_id, generation, deployment_id, environment, network_id,
                    consul_service_id, record, correlation_id)
     ORDER BY node_id
    ON CONFLICT (node_id) DO UPDATE
       SET registration_id = EXCLUDED.registration_id, generation = EXCLUDED.generation,
           deployment_id = EXCLUDED.deployment_id, environment = EXCLUDED.environment,
           network_id = EXCLUDED.network_id, consul_service_id = EXCLUDED.consul_service_id,
           record = EXCLUDED.record, correlation_id = EXCLUDED.correlation_id,
           updated_at = EXCLUDED.updated_at
     WHERE r.generation <= EXCLUDED.generation
    RETURNING node_id
    """
)
# A removal takes away only what its own registration wrote.
_DELETE = text(
    """
    DELETE FROM node_records AS r
     USING unnest(CAST(:node_ids AS text[]), CAST(:registration_ids AS text[]))
           AS rows (node_id, registration_id)
     WHERE r.node_id = rows.node_id AND r.registration_id = rows.registration_id
    """
)


class PostgresHandler:
    """Writes node records, one statement for many."""

    transactional = True

    def perform(self, claimed: Sequence[Claimed], until: float, session: Session | None) -> Answer:
        assert session is not None  # noqa: S101
        outcomes: dict[UUID, Done | Failed] = {}
        upserts = [each for each in claimed if each.kind == UPSERT]
        deletes = [each for each in claimed if each.kind == DELETE]
        for each in claimed:
            if wrong := _wrong(each):
                outcomes[each.intent_id] = Failed(FailureKind.PERMANENT, wrong)
        upserts = [each for each in upserts if each.intent_id not in outcomes]
        deletes = [each for each in deletes if each.intent_id not in outcomes]
        written = _upsert(session, upserts)
        if deletes:
            session.execute(
                _DELETE,
                {
                    "node_ids": [each.entity_id for each in deletes],
                    "registration_ids": [each.registration_id for each in deletes],
                },
            )
        for each in upserts:
            outcomes[each.intent_id] = (
                Done()
                if each.entity_id in written
                else Failed(FailureKind.PERMANENT, "a later generation holds the node's record")
            )
        outcomes |= {each.intent_id: Done() for each in deletes}
        return Answer(outcomes, (CallOutcome.SUCCESS,) if claimed else ())


def _upsert(session: Session, upserts: Sequence[Claimed]) -> set[str]:
    """The nodes whose record was written."""
    if not upserts:
        return set()
    said = [each.payload for each in upserts]
    rows = session.execute(
        _UPSERT,
        {
            "node_ids": [each.entity_id for each in upserts],
            "registration_ids": [each.registration_id for each in upserts],
            "generations": [int(each.get("generation") or 0) for each in said],
            "deployment_ids": [each["deployment_id"] for each in said],
            "environments": [each["environment"] for each in said],
            "network_ids": [each["network_id"] for each in said],
            "consul_service_ids": [each["consul_service_id"] for each in said],
            "records": [canonical(each["record"]) for each in said],
            "correlation_ids": [str(each.correlation_id) for each in upserts],
        },
    )
    return {node_id for (node_id,) in rows}


def _wrong(claimed: Claimed) -> str | None:
    """Why an intent can never be carried out, if so."""
    said: dict[str, Any] = dict(claimed.payload)
    if claimed.kind not in (UPSERT, DELETE):
        return f"PostgreSQL has nothing to do with {claimed.kind}"
    if claimed.registration_id is None:
        return "registration_id: is missing"
    if claimed.kind == DELETE:
        return None
    missing = [name for name in _NAMED if not isinstance(said.get(name), str)]
    if not isinstance(said.get("record"), dict):
        missing.append("record")
    if "\\u0000" in json.dumps(said):
        return "a text holds a null character, which PostgreSQL cannot keep"
    return f"{missing[0]}: is missing" if missing else None
