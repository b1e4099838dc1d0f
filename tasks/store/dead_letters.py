"""Messages that could not be folded, with all that is needed to understand and replay them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import text
from sqlalchemy.orm import Session

from models.canonical import canonical
from models.envelope import Envelope
from models.projection import Projection


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
