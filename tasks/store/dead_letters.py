"""What could not be done, with all that is needed to understand it and to do it again.

Two sorts: messages that could not be folded, and intents that were given up (with a `kind`).
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple, cast
from uuid import UUID

from sqlalchemy import CursorResult, text
from sqlalchemy.orm import Session

from models.canonical import canonical
from models.envelope import Envelope
from models.projection import Projection
from models.registry import intent_spec

GAVE_UP = "machine_gave_up"
"""Why a letter was written for an intent whose machine may have asked again, and did not."""


class DeadLetter(NamedTuple):
    """The original message, what was known of its entity, and what went wrong."""

    domain: str
    envelope: Envelope
    projections: Mapping[str, Projection]
    reason: str
    error: str
    attempts: int


_PUT = text(
    """
    INSERT INTO dead_letters (domain, message_id, entity_id, message_type, correlation_id, reason,
                              error, envelope, projections, attempts)
    SELECT domain, message_id, entity_id, message_type, correlation_id, reason, error,
           CAST(envelope AS json), CAST(projections AS json), attempts
      FROM unnest(CAST(:domains AS text[]), CAST(:message_ids AS uuid[]),
                  CAST(:entity_ids AS text[]), CAST(:message_types AS text[]),
                  CAST(:correlation_ids AS uuid[]), CAST(:reasons AS text[]),
                  CAST(:errors AS text[]), CAST(:envelopes AS text[]),
                  CAST(:projections AS text[]), CAST(:attempts AS integer[]))
           AS rows (domain, message_id, entity_id, message_type, correlation_id, reason, error,
                    envelope, projections, attempts)
    """
)


def put(session: Session, letters: Sequence[DeadLetter]) -> None:
    """Keep messages that could not be folded."""
    if not letters:
        return
    envelopes = [letter.envelope for letter in letters]
    session.execute(
        _PUT,
        {
            "domains": [letter.domain for letter in letters],
            "message_ids": [str(each.message_id) for each in envelopes],
            "entity_ids": [each.entity_id for each in envelopes],
            "message_types": [each.message_type for each in envelopes],
            "correlation_ids": [str(each.correlation_id) for each in envelopes],
            "reasons": [letter.reason for letter in letters],
            "errors": [letter.error for letter in letters],
            "envelopes": [canonical(each.model_dump(mode="json")) for each in envelopes],
            "projections": [_texts(letter.projections) for letter in letters],
            "attempts": [letter.attempts for letter in letters],
        },
    )


def _texts(projections: Mapping[str, Projection]) -> str:
    inner = (f"{canonical(name)}:{each.text()}" for name, each in sorted(projections.items()))
    return "{" + ",".join(inner) + "}"


class EffectLetter(NamedTuple):
    """An intent that was given up. `sequence` is the step of its machine that asked for it."""

    domain: str
    machine: str
    kind: str
    entity_id: str
    intent_id: UUID
    registration_id: str | None
    payload: Mapping[str, Any]
    correlation_id: UUID
    causation_id: UUID
    reason: str
    error: str
    attempts: int
    history: Sequence[Mapping[str, Any]]
    at: datetime
    sequence: int = 0

    @property
    def message_type(self) -> str:
        return str(intent_spec(self.domain, self.kind).message_type)

    @property
    def key(self) -> "EffectKey":
        return EffectKey(self.entity_id, self.kind, self.registration_id)

    def told(self) -> str:
        """Every attempt, in its order."""
        return canonical([dict(each) for each in self.history])

    def envelope(self) -> str:
        """The intent as a message, and the step that asked for it beside."""
        return canonical(
            {
                "message_id": str(self.intent_id),
                "correlation_id": str(self.correlation_id),
                "causation_id": str(self.causation_id),
                "emitted_at": self.at.isoformat(),
                "entity_id": self.entity_id,
                "message_type": self.message_type,
                "payload": dict(self.payload),
                "sequence": self.sequence,
            }
        )


class EffectKey(NamedTuple):
    """One thing to be done, whichever intent asks for it."""

    entity_id: str
    kind: str
    registration_id: str | None


_INTO = """
    INSERT INTO dead_letters (domain, message_id, entity_id, message_type, correlation_id, reason,
                              error, envelope, projections, attempts, created_at, machine, kind,
                              registration_id, history)
"""
# One open letter for one thing to be done: giving it up once more refreshes the letter.
_ONCE = """
    ON CONFLICT (entity_id, kind, registration_id) WHERE closed_at IS NULL AND kind IS NOT NULL
        DO UPDATE SET attempts = EXCLUDED.attempts, error = EXCLUDED.error,
                      reason = EXCLUDED.reason, history = EXCLUDED.history,
                      envelope = EXCLUDED.envelope, message_id = EXCLUDED.message_id
"""
_PUT_EFFECTS = text(
    f"""
    {_INTO}
    SELECT domain, message_id, entity_id, message_type, correlation_id, reason, error,
           CAST(envelope AS json), '{{}}', attempts, at, machine, kind, registration_id,
           CAST(history AS json)
      FROM unnest(CAST(:domains AS text[]), CAST(:intent_ids AS uuid[]),
                  CAST(:entity_ids AS text[]), CAST(:message_types AS text[]),
                  CAST(:correlation_ids AS uuid[]), CAST(:reasons AS text[]),
                  CAST(:errors AS text[]), CAST(:envelopes AS text[]),
                  CAST(:attempts AS integer[]), CAST(:ats AS timestamptz[]),
                  CAST(:machines AS text[]), CAST(:kinds AS text[]),
                  CAST(:registration_ids AS text[]), CAST(:histories AS text[]))
           AS rows (domain, message_id, entity_id, message_type, correlation_id, reason, error,
                    envelope, attempts, at, machine, kind, registration_id, history)
     ORDER BY entity_id, kind, registration_id
    {_ONCE}
    """  # noqa: S608
)
# The last intent of the attempt that was given up and has no letter yet; once it has one, the
# ledger lets go of what only the letter needs.
_PUT_GIVEN_UP = text(
    f"""
    WITH last AS (
        SELECT DISTINCT ON (l.entity_id, l.machine) l.*
          FROM unnest(CAST(:entity_ids AS text[]), CAST(:machines AS text[]),
                      CAST(:registration_ids AS text[]))
               AS rows (entity_id, machine, registration_id)
          JOIN effect_ledger AS l USING (entity_id, machine)
         WHERE l.status IN ('failed', 'conflict')
           AND l.registration_id IS NOT DISTINCT FROM rows.registration_id
         ORDER BY l.entity_id, l.machine, l.sequence DESC, l.settled_at DESC
    ), let_go AS (
        UPDATE effect_ledger AS l SET envelope = NULL, history = NULL
          FROM last WHERE l.intent_id = last.intent_id
    )
    {_INTO}
    SELECT domain, intent_id, entity_id, envelope ->> 'message_type',
           CAST(envelope ->> 'correlation_id' AS uuid), :reason, coalesce(error, ''), envelope,
           '{{}}', attempts, :now, machine, kind, registration_id, history
      FROM last
     WHERE envelope IS NOT NULL
     ORDER BY entity_id, kind, registration_id
    {_ONCE}
    """  # noqa: S608
)
_CLOSE_FOR = text(
    """
    UPDATE dead_letters AS d SET closed_at = clock_timestamp(), closed_as = :closed_as
      FROM (SELECT DISTINCT entity_id, kind, registration_id
              FROM unnest(CAST(:entity_ids AS text[]), CAST(:kinds AS text[]),
                          CAST(:registration_ids AS text[]))
                   AS rows (entity_id, kind, registration_id)) AS k
     WHERE d.closed_at IS NULL AND d.entity_id = k.entity_id AND d.kind = k.kind
       AND d.registration_id IS NOT DISTINCT FROM k.registration_id
    """
)


def put_effects(session: Session, letters: Sequence[EffectLetter]) -> None:
    """Keep intents that were given up; of two for one thing to be done, the later one."""
    latest = {
        each.key if each.registration_id is not None else each.intent_id: each for each in letters
    }
    if not latest:
        return
    kept = [*latest.values()]
    session.execute(
        _PUT_EFFECTS,
        {
            "domains": [each.domain for each in kept],
            "intent_ids": [str(each.intent_id) for each in kept],
            "entity_ids": [each.entity_id for each in kept],
            "message_types": [each.message_type for each in kept],
            "correlation_ids": [str(each.correlation_id) for each in kept],
            "reasons": [each.reason for each in kept],
            "errors": [each.error for each in kept],
            "envelopes": [each.envelope() for each in kept],
            "attempts": [each.attempts for each in kept],
            "ats": [each.at for each in kept],
            "machines": [each.machine for each in kept],
            "kinds": [each.kind for each in kept],
            "registration_ids": [each.registration_id for each in kept],
            "histories": [each.told() for each in kept],
        },
    )


def put_given_up(session: Session, ended: Sequence[Projection], now: datetime) -> None:
    """Keep what these machines gave up over, unless there is a letter of it already."""
    if not ended:
        return
    session.execute(
        _PUT_GIVEN_UP,
        {
            "entity_ids": [each.entity_id for each in ended],
            "machines": [each.machine for each in ended],
            "registration_ids": [each.context.get("registration_id") for each in ended],
            "reason": GAVE_UP,
            "now": now,
        },
    )


def close_for(session: Session, keys: Sequence[EffectKey], closed_as: str) -> int:
    """Close the open letters of these things to be done; how many there were."""
    if not keys:
        return 0
    values = {
        "entity_ids": [each.entity_id for each in keys],
        "kinds": [each.kind for each in keys],
        "registration_ids": [each.registration_id for each in keys],
        "closed_as": closed_as,
    }
    return cast(CursorResult[Any], session.execute(_CLOSE_FOR, values)).rowcount
