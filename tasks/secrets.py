"""Text that must not be seen, and shows itself only when asked by name."""

from urllib.parse import unquote, urlsplit


class Secret:
    """Text that shows itself only when asked to by name."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "Secret([redacted])"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


class SecretUrl(Secret):
    """A URL that prints where it leads, and never the credentials it carries."""

    __slots__ = ()

    def __repr__(self) -> str:
        parts = urlsplit(self._text)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname or ''}{port}{parts.path}"

    __str__ = __repr__

    @property
    def credentials(self) -> tuple[str, ...]:
        """What must never be seen of this URL, encoded and decoded."""
        raw = self._text.partition("://")[2].rpartition("@")[0].partition(":")[2]
        return tuple(dict.fromkeys(text for text in (raw, unquote(raw)) if text))
