"""The sections of a contract beside its states and transitions, read into frozen values."""

import re

from fsm.contract import AutoRetry, RetryCounter, Source
from fsm.fields import Fields
from fsm.findings import FindingCode
from fsm.yaml_tree import Mapped, Scalar, Sequence

_VERSION = re.compile(r"[0-9]{1,9}\.[0-9]{1,9}\.[0-9]{1,9}")


def read_retry_counter(top: Fields) -> RetryCounter | None:
    """The counter, its field named by the last part of `storage`."""
    fields = top.group("retry_counter")
    if fields is None:
        return None
    usable = fields.required("storage", "increment_on", "max_value")
    counter = RetryCounter(
        field=fields.text("storage").rpartition(".")[2],
        increment_on=fields.names("increment_on"),
        reset_on=fields.names("reset_on"),
        max_value=fields.whole("max_value", 1, least=1),
    )
    fields.finish()
    return counter if usable else None


def read_auto_retry(fields: Fields) -> AutoRetry | None:
    """One state the runtime retries by itself."""
    usable = fields.required("state", "trigger")
    retry = AutoRetry(
        state=fields.text("state"),
        trigger=fields.text("trigger"),
        exhausted=fields.text("exhausted") or None,
        base_ms=fields.whole("base_ms", 1000, least=1),
        max_ms=fields.whole("max_ms", 60_000, least=1),
    )
    if retry.base_ms > retry.max_ms:
        message = f"'base_ms' is {retry.base_ms}, above 'max_ms' {retry.max_ms}"
        fields.note(FindingCode.INVALID_VALUE, fields.line_of("base_ms"), message)
    fields.finish()
    return retry if usable else None


def read_messages(top: Fields) -> tuple[tuple[str, str], ...]:
    """Which message pulls which trigger."""
    fields = top.group("triggers")
    return () if fields is None else tuple((key, fields.text(key)) for key in fields.written())


def read_sources(top: Fields) -> tuple[tuple[str, tuple[Source, ...]], ...]:
    """Who may pull which trigger."""
    fields = top.group("trigger_sources")
    if fields is None:
        return ()
    return tuple((trigger, _source(fields, trigger)) for trigger in fields.written())


def _source(fields: Fields, trigger: str) -> tuple[Source, ...]:
    node = fields.node(trigger)
    listed = node.items if isinstance(node, Sequence) else [node]
    found = []
    for each in listed:
        text = each.text if isinstance(each, Scalar) else ""
        if text in Source.__members__.values():
            found.append(Source(text))
        else:
            message = f"the source of {trigger!r} takes {', '.join(Source)}"
            fields.note(FindingCode.INVALID_VALUE, fields.line_of(trigger), message)
    return tuple(found)


def read_version(top: Fields, key: str) -> str:
    """A version, from its parts or from text."""
    node = top.node(key)
    if isinstance(node, Mapped):
        fields = Fields(node, top.ledger, repr(key))
        parts = [fields.whole(part, 0) for part in ("major", "minor", "patch")]
        fields.finish()
        return ".".join(str(each) for each in parts)
    text = node.text if isinstance(node, Scalar) else "1.0.0"
    if (node is not None and not isinstance(node, Scalar)) or not _VERSION.fullmatch(text):
        message = f"{key!r} takes major, minor and patch, or text like 1.0.0"
        top.note(FindingCode.INVALID_VALUE, top.line_of(key), message)
    return text


def read_lines(top: Fields) -> tuple[tuple[str, int], ...]:
    """Where the sections and their entries are, for findings that no state or transition owns."""
    lines = [(key, top.line_of(key)) for key in top.written()]
    for section in ("triggers", "trigger_sources", "retry_counter"):
        fields = top.group(section)
        if fields is not None:
            lines += [(f"{section}.{key}", fields.line_of(key)) for key in fields.written()]
    return tuple(lines)
