"""The one envelope of commands, events and intents, in every plane: strict and frozen."""

import re
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, ValidationError
from pydantic.types import JsonValue

from models.errors import MessageError

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
LONGEST_ENTITY_ID = 200


def _entity_id(text: str) -> str:
    if not text or len(text) > LONGEST_ENTITY_ID or text != text.strip() or _CONTROL.search(text):
        raise ValueError(
            f"takes 1 to {LONGEST_ENTITY_ID} characters, no control characters, no outer spaces"
        )
    return text


EntityId = Annotated[str, AfterValidator(_entity_id)]


class Envelope(BaseModel):
    """Who said what about which entity, when, and because of what."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    message_id: UUID
    correlation_id: UUID
    causation_id: UUID | None
    emitted_at: AwareDatetime
    entity_id: EntityId
    message_type: str
    payload: dict[str, JsonValue]

    @classmethod
    def read(cls, text: str | bytes) -> "Envelope":
        """Decode one envelope; what is wrong with it is told with the field's path."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise MessageError(_told(error), "correct the envelope") from None

    @classmethod
    def trusted(
        cls,
        message_id: UUID,
        correlation_id: UUID,
        causation_id: UUID | None,
        emitted_at: datetime,
        entity_id: str,
        message_type: str,
        payload: dict[str, Any],
    ) -> "Envelope":
        """An envelope of our own making, or one that was checked before it was stored."""
        return cls.model_construct(
            message_id=message_id,
            correlation_id=correlation_id,
            causation_id=causation_id,
            emitted_at=emitted_at,
            entity_id=entity_id,
            message_type=message_type,
            payload=payload,
        )


def _told(error: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(str(step) for step in each['loc']) or 'envelope'}: {each['msg']}"
        for each in error.errors(include_url=False, include_input=False)
    )
