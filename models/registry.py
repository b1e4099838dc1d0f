"""Every message type, its payload and its handlers: built once, checked as a whole, then fixed."""

import difflib
import math
import re
from collections import defaultdict
from collections.abc import Iterable
from types import MappingProxyType

from pydantic import BaseModel, ValidationError

from models.canonical import canonical
from models.envelope import Envelope
from models.errors import MessageError
from models.message_types import (
    HandlerSpec,
    MessageSpec,
    MessageType,
    OpenPayload,
    parse_message_type,
    problems,
    shown,
)
from models.messages.runtime import DeadlinePassed, PullTrigger, TriggerPulled
from models.output import Role
from models.topics import Category, parse_topic, topic

__all__ = [
    "LARGEST_PAYLOAD",
    "HandlerSpec",
    "MessageRegistry",
    "MessageSpec",
    "MessageType",
    "OpenPayload",
    "Role",
    "intent_spec",
    "machine_message_specs",
    "parse_message_type",
]

LARGEST_PAYLOAD = 256 * 1024
_ESCAPED = 4  # escapes and white space make a text that much longer than its canonical form
_DEEPEST = 200  # what the decoder of JSON follows
_REST = 4096  # what an envelope is without its payload
_KIND = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+\Z")
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def machine_message_specs(domain: str) -> tuple[MessageSpec, MessageSpec, MessageSpec]:
    """What every domain with machines can say: pull, pulled, and a deadline that passed."""
    return (
        MessageSpec(
            MessageType(domain, Category.COMMANDS, PullTrigger.name), PullTrigger, external=True
        ),
        MessageSpec(MessageType(domain, Category.EVENTS, TriggerPulled.name), TriggerPulled),
        MessageSpec(MessageType(domain, Category.EVENTS, DeadlinePassed.name), DeadlinePassed),
    )


def intent_spec(domain: str, kind: str, payload: type[BaseModel] = OpenPayload) -> MessageSpec:
    """The intent of a kind: `consul.register` is `<domain>.intents.ConsulRegisterIntent`."""
    if not _KIND.match(kind):
        raise MessageError(f"intent kind {shown(kind)} is malformed", "write it like http.post")
    name = "".join(word.capitalize() for word in re.split(r"[._]", kind))
    message_type = MessageType(domain, Category.INTENTS, f"{name}Intent")
    return MessageSpec(message_type, payload, kind=kind)


class MessageRegistry:
    """The one place that knows every message; the only decoder of bytes."""

    __slots__ = ("_handlers", "_kinds", "_largest", "_specs")

    def __init__(
        self,
        specs: Iterable[MessageSpec],
        handlers: Iterable[HandlerSpec] = (),
        intent_kinds: Iterable[str] = (),
        *,
        largest_payload: int = LARGEST_PAYLOAD,
    ) -> None:
        listed, served = tuple(specs), tuple(handlers)
        wrong = tuple(problems(listed, served, tuple(intent_kinds)))
        if wrong:
            raise MessageError("; ".join(wrong), "correct the registration of messages")
        consumers: defaultdict[tuple[str, Role], list[HandlerSpec]] = defaultdict(list)
        for handler in served:
            for consumed in handler.consumes:
                consumers[str(consumed), handler.role].append(handler)
        self._specs = MappingProxyType({str(spec.message_type): spec for spec in listed})
        self._kinds = MappingProxyType({spec.kind: spec for spec in listed if spec.kind})
        self._handlers = MappingProxyType({key: tuple(each) for key, each in consumers.items()})
        self._largest = largest_payload

    @property
    def specs(self) -> tuple[MessageSpec, ...]:
        """Every registered message, in the order of registration."""
        return tuple(self._specs.values())

    def spec(self, message_type: str | MessageType) -> MessageSpec:
        """What is known of a message type; an unknown one is told with its nearest neighbour."""
        text = message_type if isinstance(message_type, str) else str(message_type)
        found = self._specs.get(text)
        if found is None:
            parse_message_type(text)
            near = difflib.get_close_matches(text, self._specs, n=1)
            remedy = f"did you mean {near[0]}?" if near else "register it, or correct its name"
            raise MessageError(f"message_type: {shown(text)} is not registered", remedy)
        return found

    def intent(self, kind: str) -> MessageSpec:
        """The message of an intent kind."""
        found = self._kinds.get(kind)
        if found is None:
            raise MessageError(f"intent kind {shown(kind)} is not registered", "register it")
        return found

    def handlers(self, message_type: str | MessageType, role: Role) -> tuple[HandlerSpec, ...]:
        """Who consumes the message in that role, in the order of registration."""
        return self._handlers.get((str(message_type), role), ())

    def decode(self, raw: str | bytes) -> Envelope:
        """Read one envelope and its payload; what is wrong is told with the field's path."""
        try:
            data = raw.encode() if isinstance(raw, str) else raw
        except UnicodeEncodeError:
            raise MessageError("envelope: is no text", "send UTF-8") from None
        if len(data) > _ESCAPED * (self._largest + _REST):
            raise self._too_large(len(data))
        envelope = Envelope.read(data)
        self._check_payload(envelope)
        return envelope

    def check(self, envelope: Envelope) -> MessageSpec:
        """What `decode` asks of bytes, asked of an envelope, however it was made."""
        try:
            Envelope.model_validate(vars(envelope))
        except ValidationError as error:
            told = _first_unspeakable(envelope.payload, "payload") or _told(error)
            raise MessageError(told, "correct the envelope") from None
        return self._check_payload(envelope)

    def payload(self, envelope: Envelope) -> BaseModel:
        """The payload as the class its type is registered with."""
        payload_class = self.spec(envelope.message_type).payload
        try:
            return payload_class.model_validate_json(canonical(envelope.payload))
        except ValidationError as error:
            raise MessageError(_told(error, "payload"), "correct the payload") from None

    def check_topic(self, message_type: str | MessageType, name: str) -> None:
        """Refuse a message on a topic of another domain or category."""
        found = self.spec(message_type).message_type
        try:
            place = parse_topic(name)
        except ValueError as error:
            raise MessageError(str(error), "use the topic taxonomy") from None
        if place != (found.domain, found.category):
            own = topic(found.domain, found.category)
            raise MessageError(f"{found} does not belong on {name}", f"its topic is {own}")

    def _check_payload(self, envelope: Envelope) -> MessageSpec:
        spec = self.spec(envelope.message_type)
        try:
            text = canonical(envelope.payload)
            size = len(text) if text.isascii() else len(text.encode())
        except (TypeError, ValueError, RecursionError) as error:
            where = _first_unspeakable(envelope.payload, "payload") or f"payload: {error}"
            raise MessageError(where, "send plain JSON") from None
        if size > self._largest:
            raise self._too_large(size)
        if "\\u0000" in text and _NUL.search(text):
            where = _first_unspeakable(envelope.payload, "payload") or "payload: has a NUL"
            raise MessageError(where, "remove the NUL character")
        if spec.payload is not OpenPayload:
            try:
                spec.payload.model_validate_json(text)
            except ValidationError as error:
                raise MessageError(_told(error, "payload"), "correct the payload") from None
        return spec

    def _too_large(self, size: int) -> MessageError:
        return MessageError(
            f"payload: takes at most {self._largest} bytes, this is {size}",
            "send a reference to what is large",
        )


def _told(error: ValidationError, root: str = "") -> str:
    return "; ".join(
        f"{'.'.join(str(step) for step in (root, *each['loc']) if step != '')}: {each['msg']}"
        for each in error.errors(include_url=False, include_input=False)
    )


def _first_unspeakable(value: object, path: str, depth: int = 0) -> str | None:
    """Where in the data the first value is that canonical JSON cannot say."""
    if depth > _DEEPEST:
        return f"{path.partition('.')[0]}: is nested more than {_DEEPEST} deep"
    match value:
        case str() if "\0" in value:
            return f"{path}: has a NUL character"
        case str() if any("\ud800" <= each <= "\udfff" for each in value):
            return f"{path}: has half a surrogate pair"
        case float() if not math.isfinite(value):
            return f"{path}: is {value}, which is no JSON number"
        case str() | float() | bool() | int() | None:
            return None
        case dict():
            for key, each in value.items():
                if not isinstance(key, str):
                    return f"{path}: has the key {key!r}, which is no text"
                found = _first_unspeakable(key, path) or _first_unspeakable(
                    each, f"{path}.{key}", depth + 1
                )
                if found is not None:
                    return found
        case list():
            for at, each in enumerate(value):
                found = _first_unspeakable(each, f"{path}.{at}", depth + 1)
                if found is not None:
                    return found
        case _:
            return f"{path}: is a {type(value).__name__}, which JSON does not have"
    return None
