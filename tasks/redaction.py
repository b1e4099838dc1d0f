"""What no secret passes: the last thing every log line, error and printed message goes through."""

import base64
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

REDACTED = "[redacted]"
_DEEPEST = 8
_LONGEST = 16_384

_WORDS = (
    r"pass(?:word|wd|phrase)|pwd|secret|token|credential|authorization|cookie|session_?id"
    r"|(?:api|access|private|secret|encryption|signing)[-_. ]?key"
)
_SENSITIVE_KEY = re.compile(rf"{_WORDS}|dsn|connection_?string|basic_?auth", re.IGNORECASE)
_QUOTED_OR_BARE = r"(\"[^\"]{0,2048}\"?|'[^']{0,2048}'?|[^\s,;&}\]]{1,2048})"
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(
            r"-----BEGIN [A-Z ]{0,32}PRIVATE KEY-----.*?(-----END [A-Z ]{0,32}KEY-----|\Z)", re.S
        ),
        REDACTED,
    ),
    # Greedy to the last @: a password may hold an @ or a slash that nobody encoded.
    (
        re.compile(r"([a-z][a-z0-9+.-]{0,31}://[^\s:/@'\"]{0,256}):[^\s'\"]{1,1024}@", re.I),
        rf"\1:{REDACTED}@",
    ),
    (re.compile(r"([a-z][a-z0-9+.-]{0,31}://)[^\s:/@'\"]{1,1024}@", re.I), rf"\1{REDACTED}@"),
    (re.compile(r"\b(bearer|basic|token)\s+[A-Za-z0-9._~+/=-]{8,}", re.I), rf"\1 {REDACTED}"),
    (
        re.compile(
            rf"((?:{_WORDS})[\w.-]{{0,32}}[\"']?\s{{0,4}}[:=]\s{{0,4}}){_QUOTED_OR_BARE}",
            re.IGNORECASE,
        ),
        rf"\1{REDACTED}",
    ),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]{0,}"), REDACTED),
    (
        re.compile(
            r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|\bgh[pousr]_[A-Za-z0-9]{20,}|\bxox[abprs]-[\w-]{8,}"
        ),
        REDACTED,
    ),
)


class Redactor:
    """Hides secrets by the key they stand under, by their shape, and the ones we know by value."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        forms = {form for secret in known if len(secret) >= 4 for form in _forms(secret)}
        longest_first = sorted(forms, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, longest_first))) if forms else None

    def text(self, text: str) -> str:
        """The text without secrets, cut to a length a log can bear (after, so no half is left)."""
        if self._known is not None:
            text = self._known.sub(REDACTED, text)
        for pattern, instead in _PATTERNS:
            text = pattern.sub(instead, text)
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… [{len(text)} characters]"

    def value(self, value: object, depth: int = 0) -> Any:
        """Any value without secrets; what is not plain data is shown as its redacted repr."""
        match value:
            case None | bool() | int() | float():
                return value
            case str():
                return self.text(value)
            case Mapping() if depth < _DEEPEST:
                return {
                    self.text(str(key)): self._under(str(key), item, depth)
                    for key, item in value.items()
                }
            case list() | tuple() | set() | frozenset() if depth < _DEEPEST:
                return [self.value(item, depth + 1) for item in value]
            case bytes() | bytearray():
                return self.text(bytes(value).decode("utf-8", "replace"))
            case _:
                return self.text(repr(value))

    def __call__(self, logger: object, method: str, event: Mapping[str, Any]) -> dict[str, Any]:
        """A structlog processor; a value that cannot be shown must not take the line with it."""
        try:
            shown: dict[str, Any] = self.value(event)
        except Exception as error:  # a hostile __repr__ may raise anything; the line still goes out
            shown = {"event": f"[a line that could not be shown: {type(error).__name__}]"}
        return shown

    def _under(self, key: str, value: object, depth: int) -> Any:
        if _SENSITIVE_KEY.search(key) and not (value is None or isinstance(value, bool)):
            return REDACTED
        return self.value(value, depth + 1)


def _forms(secret: str) -> set[str]:
    """A secret as it may be written: plain, in a URL, in base64 and as a repr escapes it."""
    return {
        secret,
        quote(secret, safe=""),
        quote(secret),
        base64.b64encode(secret.encode()).decode().rstrip("="),
        base64.urlsafe_b64encode(secret.encode()).decode().rstrip("="),
        repr(secret)[1:-1],
    }
