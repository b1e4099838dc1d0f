"""`rollcall submit`: messages from a file or a pipe into the inbox, all of them or none."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from models.envelope import Envelope
from models.errors import MessageError
from models.registry import MessageRegistry
from rollcall.ready import ready_settings
from tasks.admission import MOST_AT_ONCE
from tasks.wiring import producer

LARGEST_INPUT = 64 * 1024 * 1024
_SPACE = re.compile(r"[ \t\r\n]*")
_REMEDY = "give a JSON array, one JSON object, or one JSON object a line"


class Piece(NamedTuple):
    """The text of one message, and the line it begins on."""

    line: int
    text: str


def submit(
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="JSON or JSON lines; - is stdin.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Store messages durably, all or none. A message_id said before is stored and dropped later."""
    settings = ready_settings()
    pieces = [*pieces_of(read_input(file))]
    process = producer(settings)
    envelopes = [_decoded(process.registry, at, piece) for at, piece in enumerate(pieces)]
    stored = process.runtime.submit(envelopes)
    repeated = stored - len({each.message_id for each in envelopes})
    if as_json:
        typer.echo(json.dumps({"submitted": stored, "repeated": repeated}))
    else:
        told = f", {repeated} of them with a message_id said before" if repeated else ""
        typer.echo(f"submitted {stored}{told}")


def read_input(file: str) -> str:
    """The whole input as text, and never more of it than is allowed."""
    try:
        if file == "-":
            data = sys.stdin.buffer.read(LARGEST_INPUT + 1)
        else:
            with Path(file).open("rb") as opened:
                data = opened.read(LARGEST_INPUT + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no path"
        raise MessageError(f"{file} cannot be read: {reason}", "name a readable file") from None
    if len(data) > LARGEST_INPUT:
        raise MessageError(
            f"{file} is larger than {LARGEST_INPUT} bytes", "submit it in several parts"
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MessageError(f"{file} is no UTF-8 at byte {error.start}", "send UTF-8") from None


def pieces_of(text: str) -> Iterator[Piece]:
    """The messages of an array, or of values that follow each other."""
    walk = _Walk(text)
    number = 0
    for piece in walk.array() if walk.next_is("[") else walk.values():
        number += 1
        if number > MOST_AT_ONCE:
            raise MessageError(
                f"there are more than {MOST_AT_ONCE} messages", "submit them in several parts"
            )
        yield piece
    if not number:
        raise MessageError("there is no message", _REMEDY)


class _Walk:
    """Goes over JSON text value by value."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line = 1
        self._counted = 0
        self._scan = json.JSONDecoder().raw_decode
        self._skip()

    def next_is(self, sign: str) -> bool:
        return self._text.startswith(sign, self._at)

    def values(self) -> Iterator[Piece]:
        while self._at < len(self._text):
            yield self._value()

    def array(self) -> Iterator[Piece]:
        self._pass("[")
        while not self.next_is("]"):
            yield self._value()
            if self.next_is("]"):
                break
            self._pass(",")
            if self.next_is("]"):
                raise self._refused(self._at)
        self._pass("]")
        if self._at < len(self._text):
            raise self._refused(self._at)

    def _value(self) -> Piece:
        start = self._at
        try:
            _, self._at = self._scan(self._text, start)
        except json.JSONDecodeError as error:
            raise self._refused(error.pos) from None
        except (RecursionError, ValueError):
            raise self._refused(start) from None
        piece = Piece(self._line_of(start), self._text[start : self._at])
        self._skip()
        return piece

    def _pass(self, sign: str) -> None:
        if not self.next_is(sign):
            raise self._refused(self._at)
        self._at += 1
        self._skip()

    def _skip(self) -> None:
        found = _SPACE.match(self._text, self._at)
        self._at = found.end() if found else self._at

    def _line_of(self, position: int) -> int:
        self._line += self._text.count("\n", self._counted, position)
        self._counted = position
        return self._line

    def _refused(self, position: int) -> MessageError:
        line = self._text.count("\n", 0, position) + 1
        return MessageError(f"line {line} is not JSON", _REMEDY)


def _decoded(registry: MessageRegistry, at: int, piece: Piece) -> Envelope:
    try:
        return registry.decode(piece.text)
    except MessageError as error:
        raise MessageError(
            f"message {at} (line {piece.line}): {error.message}", error.remedy
        ) from None
