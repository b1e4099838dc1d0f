"""What effects answer to a registration's intents. They never come from outside."""

from typing import Annotated, ClassVar, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from models.messages.registration import Count, Error


class _Result(BaseModel):
    """Which intent was carried out, at which attempt, and how many others of its step are not done.

    `asked_at` is the sequence at which the machine asked for it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    intent_id: UUID
    attempt: Annotated[int, Field(ge=1)]
    asked_at: Count
    registration_id: UUID | None
    outstanding: Count


class _Failure(BaseModel):
    """Why something was not done. A deadline says so without an intent."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    intent_id: UUID | None = None
    attempt: Annotated[int, Field(ge=1)] | None = None
    asked_at: Count | None = None
    registration_id: UUID | None = None
    outstanding: Count | None = None
    permanent: bool = False


class PostgresUpsertSucceeded(_Result):
    """PostgreSQL holds the node."""

    message_type: ClassVar[str] = "registration.events.PostgresUpsertSucceeded"

    postgres_applied: Literal[True]


class PostgresUpsertFailed(_Failure):
    """PostgreSQL does not hold the node."""

    message_type: ClassVar[str] = "registration.events.PostgresUpsertFailed"

    postgres_applied: Literal[False]
    postgres_error: Error


class ConsulRegisterSucceeded(_Result):
    """Consul advertises the node."""

    message_type: ClassVar[str] = "registration.events.ConsulRegisterSucceeded"

    consul_applied: Literal[True]


class ConsulRegisterFailed(_Failure):
    """Consul does not advertise the node."""

    message_type: ClassVar[str] = "registration.events.ConsulRegisterFailed"

    consul_applied: Literal[False]
    consul_error: Error


class PostgresDeleteSucceeded(_Result):
    """PostgreSQL forgot the node."""

    message_type: ClassVar[str] = "registration.events.PostgresDeleteSucceeded"


class PostgresDeleteFailed(_Result):
    """PostgreSQL may still hold the node."""

    message_type: ClassVar[str] = "registration.events.PostgresDeleteFailed"

    postgres_error: Error
    permanent: bool


class ConsulDeregisterSucceeded(_Result):
    """Consul forgot the node."""

    message_type: ClassVar[str] = "registration.events.ConsulDeregisterSucceeded"


class ConsulDeregisterFailed(_Result):
    """Consul may still advertise the node."""

    message_type: ClassVar[str] = "registration.events.ConsulDeregisterFailed"

    consul_error: Error
    permanent: bool


REMOVALS = (
    PostgresDeleteSucceeded,
    PostgresDeleteFailed,
    ConsulDeregisterSucceeded,
    ConsulDeregisterFailed,
)
RESULTS = (
    PostgresUpsertSucceeded,
    PostgresUpsertFailed,
    ConsulRegisterSucceeded,
    ConsulRegisterFailed,
    *REMOVALS,
)
