"""What became of every intent; among successes still in force, each natural key stands once."""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import text
from sqlalchemy.orm import Session

from models.canonical import canonical
from tasks.effects.handler import Claimed

_IN_FORCE = text(
    """
    SELECT l.entity_id, l.kind, l.registration_id, l.payload_digest
      FROM unnest(CAST(:entity_ids AS text[]), CAST(:kinds AS text[]),
                  CAST(:registration_ids AS text[]))
           AS rows (entity_id, kind, registration_id)
      JOIN effect_ledger AS l USING (entity_id, kind, registration_id)
     WHERE l.status = 'succeeded'
    """
)
# An intent that was given up and asked for again has one row: what became of it last.
_RECORD = text(
    """
    INSERT INTO effect_ledger (intent_id, entity_id, machine, domain, kind, registration_id, status,
                               payload_digest, attempts, error, settled_at, sequence, envelope,
                               history)
    SELECT intent_id, entity_id, machine, domain, kind, registration_id, status,
           decode(digest, 'hex'), attempts, error, :now, sequence,
           CAST(envelope AS json), CAST(history AS json)
      FROM unnest(CAST(:intent_ids AS uuid[]), CAST(:entity_ids AS text[]),
                  CAST(:machines AS text[]), CAST(:domains AS text[]), CAST(:kinds AS text[]),
                  CAST(:registration_ids AS text[]), CAST(:statuses AS text[]),
                  CAST(:digests AS text[]), CAST(:attempts AS integer[]), CAST(:errors AS text[]),
                  CAST(:sequences AS bigint[]), CAST(:envelopes AS text[]),
                  CAST(:histories AS text[]))
           AS rows (intent_id, entity_id, machine, domain, kind, registration_id, status, digest,
                    attempts, error, sequence, envelope, history)
    ON CONFLICT (intent_id) DO UPDATE
       SET status = EXCLUDED.status, attempts = EXCLUDED.attempts, error = EXCLUDED.error,
           settled_at = EXCLUDED.settled_at, envelope = EXCLUDED.envelope,
           history = EXCLUDED.history
    """
)
# What was given up and is asked for again counts among the intents.
_GIVEN_UP = text(
    """
    SELECT l.entity_id, l.machine, l.sequence, count(*)
      FROM (SELECT DISTINCT entity_id, machine, sequence
              FROM unnest(CAST(:entity_ids AS text[]), CAST(:machines AS text[]),
                          CAST(:sequences AS bigint[])) AS rows (entity_id, machine, sequence)
           ) AS steps
      JOIN effect_ledger AS l USING (entity_id, machine, sequence)
     WHERE l.status IN ('failed', 'conflict')
       AND NOT EXISTS (SELECT FROM intents AS i WHERE i.intent_id = l.intent_id)
     GROUP BY l.entity_id, l.machine, l.sequence
    """
)
_UNDO = text(
    """
    UPDATE effect_ledger AS l SET status = 'undone'
      FROM unnest(CAST(:entity_ids AS text[]), CAST(:kinds AS text[]),
                  CAST(:registration_ids AS text[]))
           AS rows (entity_id, kind, registration_id)
     WHERE l.entity_id = rows.entity_id AND l.kind = rows.kind
       AND l.registration_id = rows.registration_id AND l.status = 'succeeded'
    """
)


class Key(NamedTuple):
    """One thing to be done, whichever intent asks for it."""

    entity_id: str
    kind: str
    registration_id: str


class Entry(NamedTuple):
    """What became of an intent. With an envelope it was given up, and its machine decides whether
    that is the end: the envelope and the history are for the letter."""

    claimed: Claimed
    status: str
    error: str | None = None
    envelope: str | None = None
    history: str | None = None


def digest(payload: Mapping[str, Any]) -> bytes:
    return hashlib.sha256(canonical(payload).encode("utf-8", "surrogatepass")).digest()


def in_force(session: Session, keys: Sequence[Key]) -> dict[Key, bytes]:
    """What was done already and not undone, and with which payload."""
    if not keys:
        return {}
    rows = session.execute(_IN_FORCE, _columns(keys))
    return {Key(*key): bytes(found) for *key, found in rows}


def record(session: Session, entries: Sequence[Entry], now: datetime) -> None:
    if not entries:
        return
    claimed = [each.claimed for each in entries]
    session.execute(
        _RECORD,
        {
            "now": now,
            "intent_ids": [str(each.intent_id) for each in claimed],
            "entity_ids": [each.entity_id for each in claimed],
            "machines": [each.machine for each in claimed],
            "domains": [each.domain for each in claimed],
            "kinds": [each.kind for each in claimed],
            "registration_ids": [each.registration_id for each in claimed],
            "statuses": [each.status for each in entries],
            "digests": [digest(each.payload).hex() for each in claimed],
            "attempts": [each.attempt for each in claimed],
            "errors": [each.error for each in entries],
            "sequences": [each.sequence for each in claimed],
            "envelopes": [each.envelope for each in entries],
            "histories": [each.history for each in entries],
        },
    )


def given_up(session: Session, claimed: Sequence[Claimed]) -> dict[tuple[str, str, int], int]:
    """How many intents of the same steps were given up: what they were to do is not done."""
    rows = session.execute(
        _GIVEN_UP,
        {
            "entity_ids": [each.entity_id for each in claimed],
            "machines": [each.machine for each in claimed],
            "sequences": [each.sequence for each in claimed],
        },
    )
    return {(entity_id, machine, step): found for entity_id, machine, step, found in rows}


def undo(session: Session, keys: Sequence[Key]) -> None:
    """Their inverse succeeded: they are in force no more."""
    if keys:
        session.execute(_UNDO, _columns(keys))


def _columns(keys: Sequence[Key]) -> dict[str, list[str]]:
    return {
        "entity_ids": [key.entity_id for key in keys],
        "kinds": [key.kind for key in keys],
        "registration_ids": [key.registration_id for key in keys],
    }
