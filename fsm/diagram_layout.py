"""Gives a layered graph coordinates, so that nothing covers anything.

Every label is an item of a layer like any box, and a long line keeps a free lane through each
layer it passes. Lines bend only between layers, hence no line crosses a box or a label.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import inf
from statistics import median

from fsm.diagram_layers import SIDE_GAP, Box, Chain, Item, Layers, Link, stack

_MARGIN = 24.0
_PORT_GAP = 22.0
_LAYER_GAP = 20.0
_CORNER = 16.0
_SWEEPS = 72
_STRAIGHTENINGS = 4

Point = tuple[float, float]


@dataclass(frozen=True)
class Rect:
    """A placed rectangle; x and y are its upper left corner."""

    x: float
    y: float
    width: float
    height: float

    @property
    def center(self) -> float:
        """The middle across, where text is anchored."""
        return self.x + self.width / 2

    @property
    def bottom(self) -> float:
        """The lower edge."""
        return self.y + self.height

    def overlaps(self, other: "Rect") -> bool:
        """Whether the two share any area."""
        return (
            self.x < other.x + other.width
            and other.x < self.x + self.width
            and self.y < other.bottom
            and other.y < self.bottom
        )


@dataclass(frozen=True)
class Route:
    """A link as drawn: one stroke up to its label and one from there on, in its own direction."""

    label: Rect
    before: tuple[Point, ...]
    after: tuple[Point, ...]


@dataclass(frozen=True)
class Layout:
    """The whole picture, in the order of the boxes and links that were given."""

    width: float
    height: float
    boxes: tuple[Rect, ...]
    routes: tuple[Route, ...]


def arrange(boxes: Sequence[Box], links: Sequence[Link], start: str) -> Layout:
    """Lay the graph out from top to bottom, beginning with the box named `start`."""
    stacked = stack(boxes, links, start)
    _place_across(stacked)
    bands = _place_down(stacked.layers)
    everything = [item for layer in stacked.layers for item in layer]
    left = min(item.x - item.width / 2 for item in everything) - _MARGIN
    for item in everything:
        item.x -= left
    return Layout(
        width=max(item.x + item.width / 2 for item in everything) + _MARGIN,
        height=bands[-1][1] + _MARGIN,
        boxes=tuple(_rect(stacked.boxes[box.name]) for box in boxes),
        routes=tuple(_route(chain, bands) for chain in stacked.chains),
    )


def _rect(item: Item) -> Rect:
    return Rect(item.x - item.width / 2, item.y, item.width, item.height)


def _place_across(stacked: Layers) -> None:
    """Pull every item towards its neighbours' middle, then take the kinks out of long lines."""
    for layer in stacked.layers:
        _spread(layer, [0.0 for _ in layer])
    for sweep in range(_SWEEPS):
        downward = sweep % 2 == 0
        for layer in stacked.layers if downward else reversed(stacked.layers):
            if sweep < _SWEEPS * 3 // 4:
                _spread(layer, [_wish(item, item.beside(upward=downward)) for item in layer])
            else:
                _spread(layer, [_wish(item, item.above + item.below) for item in layer])
    for _ in range(_STRAIGHTENINGS):
        for chain in sorted(stacked.chains, key=lambda chain: -len(chain.items)):
            _straighten(chain.items[1:-1], stacked.layers)
    for _ in stacked.layers:
        _close_up(stacked.layers)


def _close_up(layers: Sequence[Sequence[Item]]) -> None:
    """Push islands that nothing pulls back to the left until they touch what stands there."""
    islands: dict[str, list[Item]] = {}
    for layer in layers:
        for item in layer:
            islands.setdefault(item.island, []).append(item)
    for island, items in islands.items():
        room = min(
            (
                item.x - _room(item, layers[item.rank])[0]
                for item in items
                if item.slot > 0 and layers[item.rank][item.slot - 1].island != island
            ),
            default=0.0,
        )
        for item in items:
            item.x -= room


def _wish(item: Item, neighbours: Sequence[Item]) -> float:
    places = [near.x for near in neighbours for _ in range(near.weight)]
    return median(places) if places else item.x


def _spread(layer: Sequence[Item], wishes: Sequence[float]) -> None:
    """Put a layer's items where they wish, as far as the ones beside them allow."""
    gaps = [(left.width + right.width) / 2 + SIDE_GAP for left, right in pairwise(layer)]
    weights = [item.weight * max(1, len(item.above) + len(item.below)) for item in layer]
    for item, place in zip(layer, _apart(wishes, gaps, weights), strict=True):
        item.x = place


def _apart(wishes: Sequence[float], gaps: Sequence[float], weights: Sequence[int]) -> list[float]:
    """The places nearest to the wishes that keep order and gaps: isotonic regression."""
    offsets = list(accumulate(gaps, initial=0.0))
    blocks: list[tuple[float, int, int]] = []
    for wish, offset, weight in zip(wishes, offsets, weights, strict=True):
        blocks.append(((wish - offset) * weight, weight, 1))
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] >= blocks[-1][0] / blocks[-1][1]:
            last, before = blocks.pop(), blocks.pop()
            blocks.append((before[0] + last[0], before[1] + last[1], before[2] + last[2]))
    places = [total / weight for total, weight, count in blocks for _ in range(count)]
    return [place + offset for place, offset in zip(places, offsets, strict=True)]


def _straighten(items: Sequence[Item], layers: Sequence[Sequence[Item]]) -> None:
    """Give the longest runs of a line that have a common free column that one column."""
    run: list[Item] = []
    low, high = -inf, inf
    for item in items:
        left, right = _room(item, layers[item.rank])
        if max(low, left) > min(high, right):
            _align(run, low, high)
            run, low, high = [], -inf, inf
        run.append(item)
        low, high = max(low, left), min(high, right)
    _align(run, low, high)


def _align(run: Sequence[Item], low: float, high: float) -> None:
    place = min(max(median(item.x for item in run), low), high)
    for item in run:
        item.x = place


def _room(item: Item, layer: Sequence[Item]) -> tuple[float, float]:
    """How far an item can move without coming too near to the ones beside it."""
    low, high = -inf, inf
    if item.slot > 0:
        left = layer[item.slot - 1]
        low = left.x + (left.width + item.width) / 2 + SIDE_GAP
    if item.slot < len(layer) - 1:
        right = layer[item.slot + 1]
        high = right.x - (right.width + item.width) / 2 - SIDE_GAP
    return low, max(low, high)


def _place_down(layers: Sequence[Sequence[Item]]) -> list[tuple[float, float]]:
    """Stack the layers, with more room where lines run far to the side; top and bottom of each."""
    bands: list[tuple[float, float]] = []
    y = _MARGIN
    for layer in layers:
        height = max(item.height for item in layer)
        for item in layer:
            item.y = y + (height - item.height) / 2
        bands.append((y, y + height))
        reach = max((abs(item.x - near.x) for item in layer for near in item.below), default=0.0)
        y += height + _LAYER_GAP + min(reach * 0.12, 40.0)
    return bands


def _route(chain: Chain, bands: Sequence[tuple[float, float]]) -> Route:
    first, *passed, last = chain.items
    begin, end = _port(first, passed[0], upward=False), _port(last, passed[-1], upward=True)
    points = [(begin, first.y + first.height), (begin, bands[first.rank][1])]
    cut = 0
    for item in passed:
        points.append((item.x, bands[item.rank][0]))
        if item is chain.label:
            points += [(item.x, item.y), (item.x, item.y + item.height)]
            cut = len(points) - 1
        points.append((item.x, bands[item.rank][1]))
    points += [(end, bands[last.rank][0]), (end, last.y)]
    upper, lower = points[:cut], points[cut:]
    if chain.upward:
        upper, lower = lower[::-1], upper[::-1]
    return Route(_rect(chain.label), tuple(upper), tuple(lower))


def _port(box: Item, near: Item, *, upward: bool) -> float:
    """Where on the box's edge the line to `near` begins: straight if it can, in order always."""
    lines = sorted(box.beside(upward=upward), key=lambda item: item.slot)
    reach = box.width / 2 - min(_CORNER, box.width / 2)
    gap = min(_PORT_GAP, 2 * reach / max(1, len(lines) - 1))
    places = _apart([item.x for item in lines], [gap] * (len(lines) - 1), [1] * len(lines))
    index = lines.index(near)
    low = box.x - reach + index * gap
    high = box.x + reach - (len(lines) - 1 - index) * gap
    return min(max(places[index], low), high)
