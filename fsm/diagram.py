"""Contract to picture: Mermaid for documents, SVG for pages, both of the same scene."""

import re
from collections.abc import Iterable, Mapping

from fsm.contract import WILDCARD, Contract, StateType
from fsm.diagram_scene import Arrow, Caption, Figure, Scene, duration, ink, scene
from fsm.diagram_svg import compose, draw

_PLAIN_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SYNTAX = re.compile(r"(?![\w.,=!()\[\] '/$^|~@+?-]|\\(?!n)|(?<= )[<>](?=[ =]))[!-~]")
_TO_FULL_WIDTH = 0xFEE0
_RESERVED = frozenset(
    {
        "as",
        "class",
        "classdef",
        "click",
        "default",
        "direction",
        "end",
        "fork",
        "hide",
        "join",
        "note",
        "scale",
        "state",
        "style",
    }
)


def svg(contract: Contract, counts: Mapping[str, int] | None = None) -> str:
    """The machine as a picture that stands alone, with how many entities are in each state."""
    return draw(compose(scene(contract), counts or {}))


def mermaid(contract: Contract, counts: Mapping[str, int] | None = None) -> str:
    """The machine as a Mermaid state diagram, safe whatever its names and guards contain."""
    shown = scene(contract)
    ids = _ids(shown)
    lines = ["stateDiagram-v2", "direction TB"]
    lines += [
        f'state "{_described(figure, counts or {})}" as {ids[figure.name]}'
        for figure in shown.figures
    ]
    if WILDCARD in ids:
        lines.append(f'state "any state" as {ids[WILDCARD]}')
    lines.append(f"[*] --> {ids[shown.initial]}")
    for arrow in _with_loops(shown):
        lines += [
            f"{ids[arrow.tail]} --> {ids[arrow.head]} : {_worded(caption)}"
            for caption in arrow.captions
        ]
    lines += [f"{ids[each.name]} --> [*]" for each in shown.figures if each.is_terminal]
    for type_ in StateType:
        members = [ids[figure.name] for figure in shown.figures if figure.type is type_]
        if members:
            lines.append(f"classDef {type_}_state {_style(type_)}")
            lines.append(f"class {','.join(members)} {type_}_state")
    return "\n    ".join(lines) + "\n"


def _with_loops(shown: Scene) -> Iterable[Arrow]:
    yield from shown.arrows
    for figure in shown.figures:
        if figure.loops:
            yield Arrow(figure.name, figure.name, figure.loops)


def _ids(shown: Scene) -> dict[str, str]:
    """Mermaid's name of each state: its own where Mermaid can read it, else a made-up one."""
    names = {figure.name for figure in shown.figures}
    names |= {arrow.tail for arrow in shown.arrows}
    ids: dict[str, str] = {}
    for index, name in enumerate(sorted(names)):
        plain = _PLAIN_ID.match(name) and name.lower() not in _RESERVED
        made_up = "any_state" if name == WILDCARD else f"state_{index}"
        while made_up in names:
            made_up += "_"
        ids[name] = name if plain else made_up
    return ids


def _described(figure: Figure, counts: Mapping[str, int]) -> str:
    count = f" ({counts[figure.name]:,})" if figure.name in counts else ""
    return _escaped(figure.name + count)


def _worded(caption: Caption) -> str:
    words = [caption.trigger]
    if caption.after_ms is not None:
        words.append(f"after {duration(caption.after_ms)}")
    words += [f"[{guard}]" for guard in caption.guards]
    return _escaped(" ".join(words))


def _escaped(text: str) -> str:
    """Whatever could be syntax as its full-width twin: state diagrams do not decode entities."""
    return _SYNTAX.sub(lambda found: chr(ord(found[0]) + _TO_FULL_WIDTH), " ".join(text.split()))


def _style(type_: StateType) -> str:
    colours = ink(type_)
    return f"fill:{colours.fill},stroke:{colours.stroke},color:{colours.text}"
