"""The runtime domain's messages, and the three that every domain has for its machines."""

from typing import Annotated, ClassVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field
from pydantic.types import JsonValue

Word = Annotated[str, Field(min_length=1, max_length=128)]
Count = Annotated[int, Field(ge=0)]


class RuntimeTick(BaseModel):
    """Time itself, as one runtime instance tells it."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    message_type: ClassVar[str] = "runtime.events.RuntimeTick"

    now: AwareDatetime
    tick_sequence: Annotated[int, Field(ge=1)]
    runtime_id: Annotated[str, Field(min_length=1, max_length=128)]


class _Trigger(BaseModel):
    """A trigger of one machine, and the data it brings."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    machine: Word
    trigger: Word
    data: dict[str, JsonValue] = Field(default_factory=dict)


class PullTrigger(_Trigger):
    """The request to pull a trigger: it may be refused."""

    name: ClassVar[str] = "PullTrigger"


class TriggerPulled(_Trigger):
    """The fact that a trigger was pulled: it is folded."""

    name: ClassVar[str] = "TriggerPulled"


class DeadlinePassed(BaseModel):
    """A named deadline came due, which sequence had set it, and which tick found it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
    name: ClassVar[str] = "DeadlinePassed"

    machine: Word
    deadline: Word
    set_by: Count
    tick_sequence: Count
    runtime_id: Word
    now: AwareDatetime
