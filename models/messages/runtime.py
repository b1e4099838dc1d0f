"""The runtime domain's messages."""

from typing import Annotated, ClassVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field


class RuntimeTick(BaseModel):
    """Time itself, as one runtime instance tells it."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    message_type: ClassVar[str] = "runtime.events.RuntimeTick"

    now: AwareDatetime
    tick_sequence: Annotated[int, Field(ge=1)]
    runtime_id: Annotated[str, Field(min_length=1, max_length=128)]
