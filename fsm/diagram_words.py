"""The words of a picture and the room they need, without asking a font."""

from collections.abc import Iterable
from dataclasses import dataclass
from textwrap import wrap
from unicodedata import east_asian_width

from fsm.diagram_scene import Caption, duration

_LONGEST = 34
_MOST_LINES = 6


@dataclass(frozen=True)
class Line:
    """One line of small monospaced text."""

    text: str
    size: float
    colour: str
    bold: bool = False

    @property
    def width(self) -> float:
        """A little more than monospaced fonts need."""
        return sum(1.1 if _is_wide(char) else 0.62 for char in self.text) * self.size

    @property
    def height(self) -> float:
        """The text and the space to the next line."""
        return self.size + 3.5


def worded(captions: Iterable[Caption]) -> list[Line]:
    """The words of an arrow: triggers strong, their timeouts and guards below them."""
    lines: list[Line] = []
    for caption in captions:
        lines += [Line(text, 11, "#1c222b", bold=True) for text in _broken(caption.trigger)]
        if caption.after_ms is not None:
            lines.append(Line(f"after {duration(caption.after_ms)}", 10.5, "#96580a"))
        for guard in caption.guards:
            lines += [Line(text, 10.5, "#4d5766") for text in _broken(f"[{guard}]")]
    return lines


def height(lines: Iterable[Line]) -> float:
    """How tall lines are together."""
    return sum(line.height for line in lines)


def sans_width(text: str, size: float) -> float:
    """A little more than usual sans-serif fonts need, even in bold."""
    return sum(_sans_em(char) for char in text) * size


def _sans_em(char: str) -> float:
    if _is_wide(char) or char in "mwMW@%":
        return 1.1 if _is_wide(char) else 0.95
    if char in "iljtf.,:;|!'()[] ":
        return 0.42
    return 0.78 if char.isupper() else 0.64


def _is_wide(char: str) -> bool:
    return east_asian_width(char) in "WF"


def _broken(text: str) -> list[str]:
    """Lines short enough for a label; what is far too long ends in an ellipsis."""
    lines = wrap(text, _LONGEST, subsequent_indent=" ") or [text]
    return lines if len(lines) <= _MOST_LINES else [*lines[: _MOST_LINES - 1], " …"]
