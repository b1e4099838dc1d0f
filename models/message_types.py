"""Message types, what is registered about them, and what can be wrong with it as a whole.

A message type is `<domain>.<category>.<PascalName>`; its first segment is the domain that owns it.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from models.envelope import Envelope
from models.errors import MessageError
from models.output import CONSUMES, Context, HandlerOutput, Role, check_context, check_output
from models.topics import Category

_SHOWN = 120
_DOMAIN = re.compile(r"[a-z][a-z0-9_]*\Z")
_NAME = re.compile(r"[A-Z][A-Za-z0-9]*\Z")
_PATTERN = re.compile(rf"[a-z][a-z0-9_]*\.(\*|({'|'.join(Category)})\.(\*|[A-Z][A-Za-z0-9]*))\Z")


@dataclass(frozen=True, slots=True, order=True)
class MessageType:
    """The name of a message, and who owns it."""

    domain: str
    category: Category
    name: str

    def __str__(self) -> str:
        return f"{self.domain}.{self.category.value}.{self.name}"


def parse_message_type(text: str) -> MessageType:
    """Read `<domain>.<category>.<PascalName>`; what is wrong with it is said."""
    segments = text.split(".")
    categories = "/".join(sorted(Category))
    if len(segments) != 3:
        wrong = f"has {len(segments)} of the 3 segments <domain>.<category>.<Name>"
    elif not _DOMAIN.match(segments[0]):
        wrong = "has a domain that is not lower-case letters, digits and underscores"
    elif segments[1] not in tuple(Category):
        wrong = f"has a category that is none of {categories}"
    elif not _NAME.match(segments[2]):
        wrong = "has a name that is not PascalCase"
    else:
        return MessageType(segments[0], Category(segments[1]), segments[2])
    raise MessageError(
        f"message_type: {shown(text)} {wrong}",
        "write it like registration.events.NodeRegistrationAccepted",
    )


class OpenPayload(BaseModel):
    """Any JSON object."""

    model_config = ConfigDict(frozen=True, extra="allow")


@dataclass(frozen=True, slots=True)
class MessageSpec:
    """A message type and its payload; `kind` is what machines call an intent."""

    message_type: MessageType
    payload: type[BaseModel] = OpenPayload
    external: bool = False
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class HandlerSpec:
    """A handler, what it consumes, and from which other domains it may."""

    name: str
    role: Role
    domain: str
    consumes: tuple[MessageType, ...]
    run: Callable[..., HandlerOutput]
    allowed_cross_domain_sources: tuple[str, ...] = ()

    def handle(self, message: Envelope, context: Context) -> HandlerOutput:
        """Run it as its role allows: the context going in, the output coming out."""
        check_context(self.role, context)
        output = self.run(message, context)
        check_output(self.role, output)
        return output

    def may_consume(self, message_type: MessageType) -> bool:
        """Whether the message is of its own domain or of one it opted in to."""
        if message_type.domain == self.domain:
            return True
        covering = {
            f"{message_type.domain}.*",
            f"{message_type.domain}.{message_type.category.value}.*",
            str(message_type),
        }
        return not covering.isdisjoint(self.allowed_cross_domain_sources)


def shown(text: str) -> str:
    """A name as an error may show it: quoted, and short."""
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")


def problems(
    specs: tuple[MessageSpec, ...],
    handlers: tuple[HandlerSpec, ...],
    intent_kinds: tuple[str, ...],
) -> Iterator[str]:
    """Everything that is wrong with a registration, each by name."""
    yield from _repeated(specs, handlers)
    for spec in specs:
        yield from _spec_problems(spec)
    registered = {spec.message_type for spec in specs}
    for handler in handlers:
        yield from _handler_problems(handler, registered)
    consumed = {each for handler in handlers for each in handler.consumes}
    for spec in specs:
        if spec.message_type.category is not Category.INTENTS and spec.message_type not in consumed:
            yield f"{spec.message_type} is registered and no handler consumes it"
    executed = {
        each for handler in handlers if handler.role is Role.EFFECT for each in handler.consumes
    }
    known = {spec.kind for spec in specs if spec.message_type in executed}
    for kind in sorted(set(intent_kinds) - known):
        yield f"intent kind {kind} is emitted and no effect handles it"


def _repeated(specs: tuple[MessageSpec, ...], handlers: tuple[HandlerSpec, ...]) -> Iterator[str]:
    named = {
        "message type": Counter(str(spec.message_type) for spec in specs),
        "intent kind": Counter(spec.kind for spec in specs if spec.kind is not None),
        "handler": Counter(handler.name for handler in handlers),
    }
    for what, counts in named.items():
        for name, times in counts.items():
            if times > 1:
                yield f"{what} {name} is registered {times} times"


def _spec_problems(spec: MessageSpec) -> Iterator[str]:
    try:
        parse_message_type(str(spec.message_type))
    except MessageError as error:
        yield error.message
    is_intent = spec.message_type.category is Category.INTENTS
    if is_intent and spec.external:
        yield f"{spec.message_type} is an intent and cannot come from outside"
    if not is_intent and spec.kind is not None:
        yield f"{spec.message_type} is no intent and has the intent kind {spec.kind}"


def _handler_problems(handler: HandlerSpec, registered: set[MessageType]) -> Iterator[str]:
    who = f"{handler.role.value} {handler.name}"
    for pattern in handler.allowed_cross_domain_sources:
        if not _PATTERN.match(pattern):
            yield f"{who} opts in to {shown(pattern)}, not like health.* or health.events.*"
    for message_type, times in Counter(handler.consumes).items():
        if times > 1:
            yield f"{who} consumes {message_type} {times} times"
        if message_type not in registered:
            yield f"{who} consumes {message_type}, which is not registered"
        if message_type.category not in CONSUMES[handler.role]:
            allowed = " and ".join(sorted(CONSUMES[handler.role]))
            yield f"{who} consumes {message_type}; {handler.role.value}s consume {allowed} only"
        if not handler.may_consume(message_type):
            yield (
                f"{who} of domain {handler.domain} consumes {message_type} "
                f"without opting in to {message_type.domain}.*"
            )
