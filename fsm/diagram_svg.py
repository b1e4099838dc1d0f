"""Draws a scene as SVG: no ids, no styles, no scripts, so that any page can hold any number."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

from fsm.contract import WILDCARD, StateType
from fsm.diagram_layers import LANE, Box, Link
from fsm.diagram_layout import Layout, Point, Rect, Route, arrange
from fsm.diagram_scene import START, Arrow, Figure, Scene, ink
from fsm.diagram_words import Line, height, sans_width, worded

_SANS = "Helvetica, Arial, 'Liberation Sans', sans-serif"
_MONO = "'DejaVu Sans Mono', Menlo, Consolas, 'Liberation Mono', monospace"
_DASHES = ' stroke-dasharray="5 4"'
_HEADER = 46.0
_LEGEND = 40.0
_STRAIGHT = 4
_FINAL = "never left"
_BY_TIME = "fires by itself in time"
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Drawing:
    """A scene with its places; what a test measures and what gets written."""

    scene: Scene
    counts: Mapping[str, int]
    layout: Layout
    width: float
    height: float


def compose(scene: Scene, counts: Mapping[str, int]) -> Drawing:
    """Measure every text and find a place for everything."""
    ends = Counter(end for arrow in scene.arrows for end in (arrow.tail, arrow.head))
    boxes = [Box(START, 16, 16)]
    boxes += [_box(figure, counts, ends[figure.name]) for figure in scene.figures]
    if _has_wildcard(scene):
        boxes.append(Box(WILDCARD, 104, 30))
    types = {figure.name: figure.type for figure in scene.figures}
    links = [Link(START, scene.initial, LANE, 0, _STRAIGHT)]
    links += [_link(arrow, types[arrow.head]) for arrow in scene.arrows]
    layout = arrange(boxes, links, START)
    heading = sans_width(scene.title, 17) + sans_width(_subtitle(scene), 12) + 72
    legend = sum(_legend_width(words) for words in _legend_words(scene)) + 48
    return Drawing(
        scene, counts, layout, max(layout.width, heading, legend), layout.height + _HEADER + _LEGEND
    )


def draw(drawing: Drawing) -> str:
    """Write the picture down."""
    scene, layout = drawing.scene, drawing.layout
    width, tall = _n(drawing.width), _n(drawing.height)
    title = f"State machine {scene.title} {scene.version}"
    types = {figure.name: figure.type for figure in scene.figures}
    figures = layout.boxes[1 : len(scene.figures) + 1]
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="fsm-diagram" role="img"'
        f" aria-label={_attribute(title)} width="
        f'"{width}" height="{tall}" viewBox="0 0 {width} {tall}">',
        f"<title>{_words(title)}</title>",
        '<rect class="fsm-ground" width="100%" height="100%" fill="#ffffff"/>',
        *_header(scene),
        f'<g transform="translate({_n((drawing.width - layout.width) / 2)} {_n(_HEADER)})">',
        *_start(layout.boxes[0], layout.routes[0]),
    ]
    for arrow, route in zip(scene.arrows, layout.routes[1:], strict=True):
        lines += _arrow(arrow, route, types[arrow.head])
    for figure, rect in zip(scene.figures, figures, strict=True):
        lines += _figure(figure, rect, drawing.counts.get(figure.name))
    if _has_wildcard(scene):
        lines += _any_state(layout.boxes[-1])
    lines += ["</g>", *_legend(scene, drawing.height - _LEGEND + 6), "</svg>"]
    return "\n".join(lines) + "\n"


def _has_wildcard(scene: Scene) -> bool:
    return any(arrow.tail == WILDCARD for arrow in scene.arrows)


def _box(figure: Figure, counts: Mapping[str, int], ends: int) -> Box:
    """As wide as its words need, and so that the arrows that touch it stay apart."""
    count = _pill(counts[figure.name]) + 12 if figure.name in counts else 0
    loops = worded(figure.loops)
    words = max([sans_width(figure.name, 14) + count, *(line.width for line in loops)])
    width = max(words + 32, 18 * ends + 24)
    return Box(figure.name, width, 38 + (height(loops) + 6 if loops else 0))


def _link(arrow: Arrow, head: StateType) -> Link:
    lines = worded(arrow.captions)
    forward = head is not StateType.ERROR and arrow.tail != WILDCARD
    width = max(line.width for line in lines) + 8
    return Link(arrow.tail, arrow.head, width, height(lines) + 6, _STRAIGHT if forward else 1)


def _subtitle(scene: Scene) -> str:
    return (
        f"version {scene.version} · {len(scene.figures)} states · {scene.transitions} transitions"
    )


def _pill(count: int) -> float:
    return sans_width(f"{count:,}", 12) + 14


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")


def _words(text: str) -> str:
    return escape(_NOT_XML.sub("\ufffd", text))


def _attribute(text: str) -> str:
    return quoteattr(_NOT_XML.sub("\ufffd", text))


def _text(
    x: float, y: float, words: str, style: str, *, anchor: str = "middle", family: str = _SANS
) -> str:
    return (
        f'<text x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}" font-family="{family}"'
        f' xml:space="preserve" {style}>{_words(words)}</text>'
    )


def _header(scene: Scene) -> list[str]:
    return [
        f'<text x="24" y="32" font-family="{_SANS}">'
        f'<tspan font-size="17" font-weight="700" fill="#1c222b">{_words(scene.title)}</tspan>'
        f'<tspan dx="14" font-size="12" fill="#68727f">{_words(_subtitle(scene))}</tspan></text>'
    ]


def _legend(scene: Scene, y: float) -> list[str]:
    lines = ['<g class="fsm-legend">']
    x = 24.0
    for words in _legend_words(scene):
        swatch = Rect(x, y, 18, 13)
        if words == _BY_TIME:
            path = f"M{_n(x)} {_n(y + 6.5)}h18"
            lines.append(f'<path d="{path}" stroke="#5b6675" stroke-width="1.4"{_DASHES}/>')
        elif words == _FINAL:
            inner = Rect(x + 3, y + 3, 12, 7)
            lines.append(_rounded(swatch, 4, 'fill="#ffffff" stroke="#737d8b"', 1.4))
            lines.append(_rounded(inner, 2, 'fill="none" stroke="#737d8b"', 0.9))
        else:
            colours = ink(StateType(words))
            paint = f'fill="{colours.fill}" stroke="{colours.stroke}"'
            lines.append(_rounded(swatch, 4, paint, 1.4))
        style = 'font-size="11" fill="#4d5766"'
        lines.append(_text(x + 24, y + 10.5, words, style, anchor="start"))
        x += _legend_width(words)
    return [*lines, "</g>"]


def _legend_words(scene: Scene) -> list[str]:
    """Only what the picture shows needs explaining."""
    present = {figure.type for figure in scene.figures}
    words = [str(type_) for type_ in StateType if type_ in present]
    if any(figure.is_terminal for figure in scene.figures):
        words.append(_FINAL)
    if any(caption.after_ms is not None for arrow in scene.arrows for caption in arrow.captions):
        words.append(_BY_TIME)
    return words


def _legend_width(words: str) -> float:
    return sans_width(words, 11) + 38


def _start(dot: Rect, route: Route) -> list[str]:
    radius = dot.width / 2
    return [
        f'<circle cx="{_n(dot.center)}" cy="{_n(dot.y + radius)}" r="{_n(radius)}"'
        ' fill="#262c35"/>',
        f'<path d="{_stroke(route.before + route.after)}" fill="none" stroke="#262c35"'
        ' stroke-width="1.4"/>',
        _head(route.after, "#262c35"),
    ]


def _arrow(arrow: Arrow, route: Route, head: StateType) -> list[str]:
    by_time = any(caption.after_ms is not None for caption in arrow.captions)
    colour = "#c0392f" if head is StateType.ERROR else "#5b6675"
    style = f'fill="none" stroke="{colour}" stroke-width="1.4"{_DASHES if by_time else ""}'
    return [
        f'<g class="fsm-arrow" data-from={_attribute(arrow.tail)}'
        f" data-to={_attribute(arrow.head)}>",
        f'<path d="{_stroke(route.before)}" {style}/>',
        f'<path d="{_stroke(route.after)}" {style}/>',
        _head(route.after, colour),
        *_block(worded(arrow.captions), route.label.center, route.label.y + 3),
        "</g>",
    ]


def _block(lines: Iterable[Line], x: float, y: float) -> list[str]:
    texts: list[str] = []
    for line in lines:
        y += line.height
        weight = ' font-weight="700"' if line.bold else ""
        style = f'font-size="{_n(line.size)}"{weight} fill="{line.colour}"'
        texts.append(_text(x, y - 4, line.text, style, family=_MONO))
    return texts


def _stroke(points: Sequence[Point]) -> str:
    """Straight down the layers, an S between them."""
    (x, y), *rest = points
    path = [f"M{_n(x)} {_n(y)}"]
    for to_x, to_y in rest:
        middle = _n((y + to_y) / 2)
        path.append(
            f"V{_n(to_y)}"
            if _n(to_x) == _n(x)
            else f"C{_n(x)} {middle} {_n(to_x)} {middle} {_n(to_x)} {_n(to_y)}"
        )
        x, y = to_x, to_y
    return "".join(path)


def _head(points: Sequence[Point], colour: str) -> str:
    x, y = points[-1]
    back = -9 if y > points[0][1] else 9
    return f'<path d="M{_n(x)} {_n(y)}l-4.5 {back}h9z" fill="{colour}"/>'


def _figure(figure: Figure, rect: Rect, count: int | None) -> list[str]:
    colours = ink(figure.type)
    dashes = _DASHES if figure.type is StateType.SNAPSHOT else ""
    style = f'font-size="14" font-weight="700" fill="{colours.text}"'
    pill = 0.0 if count is None else _pill(count) + 12
    lines = [
        f'<g class="fsm-state fsm-{figure.type}" data-state={_attribute(figure.name)}>',
        _rounded(rect, 9, f'fill="{colours.fill}" stroke="{colours.stroke}"{dashes}', 1.6),
        _text(rect.center - pill / 2, rect.y + 24, figure.name, style),
    ]
    if figure.is_terminal:
        inner = Rect(rect.x + 3.5, rect.y + 3.5, rect.width - 7, rect.height - 7)
        lines.insert(2, _rounded(inner, 6, f'fill="none" stroke="{colours.text}"', 0.9))
    if count is not None:
        place = Rect(rect.x + rect.width - pill, rect.y + 9, pill - 12, 20)
        bold = 'class="fsm-count" font-size="12" font-weight="700" fill="#1c222b"'
        lines += [
            _rounded(place, 10, f'fill="#ffffff" stroke="{colours.stroke}"', 1),
            _text(place.center, place.y + 14.5, f"{count:,}", bold),
        ]
    return [*lines, *_block(worded(figure.loops), rect.center, rect.y + 34), "</g>"]


def _any_state(rect: Rect) -> list[str]:
    style = 'font-size="12.5" font-style="italic" fill="#262c35"'
    return [
        _rounded(rect, 15, 'fill="#ffffff" stroke="#737d8b" stroke-dasharray="3 3"', 1.4),
        _text(rect.center, rect.y + 19.5, "any state", style),
    ]


def _rounded(rect: Rect, radius: float, paint: str, stroke_width: float) -> str:
    return (
        f'<rect x="{_n(rect.x)}" y="{_n(rect.y)}" width="{_n(rect.width)}"'
        f' height="{_n(rect.height)}" rx="{_n(radius)}" {paint}'
        f' stroke-width="{_n(stroke_width)}"/>'
    )
