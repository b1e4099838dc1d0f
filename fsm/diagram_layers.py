"""Puts a graph's boxes, labels and passing lines into layers, in an order with few crossings."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

LANE = 10.0
SIDE_GAP = 22.0
_SWEEPS = 24
_SWAPPINGS = 8


@dataclass(frozen=True)
class Box:
    """A node to be placed: only its size matters here."""

    name: str
    width: float
    height: float


@dataclass(frozen=True)
class Link:
    """An edge to be drawn, the size of its label, and how much it wants to be straight."""

    tail: str
    head: str
    width: float
    height: float
    weight: int = 1


@dataclass(eq=False)
class Item:
    """What occupies a place in a layer: a box, a label, or the lane of a passing line.

    `island` is the same for everything that lines connect.
    """

    rank: int
    width: float
    height: float
    weight: int
    island: str
    above: list["Item"] = field(default_factory=list)
    below: list["Item"] = field(default_factory=list)
    x: float = 0.0
    y: float = 0.0
    slot: int = 0

    def beside(self, *, upward: bool) -> list["Item"]:
        """The items its lines lead to in one direction."""
        return self.above if upward else self.below


@dataclass(frozen=True)
class Chain:
    """A link as the items it passes from top to bottom; `upward` when it points the other way."""

    items: tuple[Item, ...]
    label: Item
    upward: bool


@dataclass(frozen=True)
class Layers:
    """The graph cut into layers, before any coordinate is known."""

    layers: Sequence[Sequence[Item]]
    boxes: Mapping[str, Item]
    chains: Sequence[Chain]


def stack(boxes: Sequence[Box], links: Sequence[Link], start: str) -> Layers:
    """Rank the boxes below `start`, thread the links through, and order every layer."""
    names = [box.name for box in boxes]
    upward = _upward(names, links, start)
    arcs = [
        (link.head, link.tail) if index in upward else (link.tail, link.head)
        for index, link in enumerate(links)
    ]
    islands = _islands(names, arcs)
    ranks = _ranks(names, arcs)
    _sink(ranks, islands, islands[start])
    items = {
        box.name: Item(ranks[box.name] * 2, box.width, box.height, 1, islands[box.name])
        for box in boxes
    }
    layers: list[list[Item]] = [[] for _ in range(max(ranks.values()) * 2 + 1)]
    for item in items.values():
        layers[item.rank].append(item)
    load = [sum(item.width + SIDE_GAP for item in layer) for layer in layers]
    chains: dict[int, Chain] = {}
    for index in sorted(range(len(arcs)), key=lambda i: abs(ranks[arcs[i][1]] - ranks[arcs[i][0]])):
        upper, lower = (items[name] for name in arcs[index])
        passed, label = _thread(upper, lower, links[index], load)
        for item in passed:
            layers[item.rank].append(item)
        chains[index] = Chain((upper, *passed, lower), label, index in upward)
        for above, below in pairwise(chains[index].items):
            above.below.append(below)
            below.above.append(above)
    return Layers(_ordered(layers), items, [chains[index] for index in range(len(links))])


def _upward(names: Iterable[str], links: Sequence[Link], start: str) -> frozenset[int]:
    """The links that close a cycle when walked depth first."""
    exits: dict[str, list[tuple[int, str]]] = {name: [] for name in names}
    for index, link in enumerate(links):
        exits[link.tail].append((index, link.head))
    entered: set[str] = set()
    left: set[str] = set()
    closing: set[int] = set()
    for root in (start, *exits):
        trail = [(root, iter(exits[root]))] if root not in entered else []
        entered.add(root)
        while trail:
            name, remaining = trail[-1]
            step = next(remaining, None)
            if step is None:
                left.add(name)
                trail.pop()
                continue
            index, head = step
            if head not in entered:
                entered.add(head)
                trail.append((head, iter(exits[head])))
            elif head not in left:
                closing.add(index)
    return frozenset(closing)


def _ranks(names: Sequence[str], arcs: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Longest path from the top, then every box moves where its lines become shortest."""
    ranks = dict.fromkeys(names, 0)
    for _ in names:
        for tail, head in arcs:
            ranks[head] = max(ranks[head], ranks[tail] + 1)
    for _ in names:
        for name in names:
            above = [ranks[tail] for tail, head in arcs if head == name]
            below = [ranks[head] for tail, head in arcs if tail == name]
            if len(below) > len(above):
                ranks[name] = min(below) - 1
            elif len(above) > len(below):
                ranks[name] = max(above) + 1
    return ranks


def _islands(names: Iterable[str], arcs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Each box's island, named after one of its boxes."""
    islands = {name: name for name in names}
    for arc in arcs:
        kept, merged = (islands[name] for name in arc)
        islands.update({name: kept for name, island in islands.items() if island == merged})
    return islands


def _sink(ranks: dict[str, int], islands: Mapping[str, str], main: str) -> None:
    """Ranks from zero in every island, and the small ones down where machines end."""
    spans: dict[str, list[int]] = {}
    for name, island in islands.items():
        spans.setdefault(island, []).append(ranks[name])
    depth = max(spans[main]) - min(spans[main])
    for name, island in islands.items():
        span = spans[island]
        spare = 0 if island == main else max(0, depth - (max(span) - min(span)))
        ranks[name] += spare - min(span)


def _thread(upper: Item, lower: Item, link: Link, load: list[float]) -> tuple[list[Item], Item]:
    """One item for each layer between the ends; the label goes where the layer is emptiest."""
    between = range(upper.rank + 1, lower.rank)
    spot = min(between, key=lambda rank: load[rank])
    passed = [
        Item(rank, link.width, link.height, link.weight, upper.island)
        if rank == spot
        else Item(rank, LANE, 0.0, link.weight, upper.island)
        for rank in between
    ]
    for item in passed:
        load[item.rank] += item.width + SIDE_GAP
    return passed, passed[spot - upper.rank - 1]


def _ordered(layers: list[list[Item]]) -> list[list[Item]]:
    """The order with the fewest crossings that sweeping every layer to its medians meets."""
    best, fewest = [list(layer) for layer in layers], _count(layers)
    for sweep in range(_SWEEPS):
        upward = sweep % 2 == 0
        for layer in layers if upward else reversed(layers):
            middles = {
                item: median([near.slot for near in item.beside(upward=upward)] or [item.slot])
                for item in layer
            }
            layer.sort(key=middles.__getitem__)
            _number(layer)
        _transpose(layers)
        crossings = _count(layers)
        if crossings < fewest:
            best, fewest = [list(layer) for layer in layers], crossings
    for layer in best:
        _number(layer)
    return best


def _number(layer: Iterable[Item]) -> None:
    for slot, item in enumerate(layer):
        item.slot = slot


def _count(layers: Sequence[Sequence[Item]]) -> int:
    """All crossings, after numbering the slots anew: pairs of lines that swap sides."""
    for layer in layers:
        _number(layer)
    crossings = 0
    for layer in layers:
        ends: list[int] = []
        for item in layer:
            for slot in sorted(near.slot for near in item.below):
                place = bisect_right(ends, slot)
                crossings += len(ends) - place
                ends.insert(place, slot)
    return crossings


def _crossings(left: Item, right: Item, *, upward: bool) -> int:
    """How many lines of two items cross on one side, if `left` stands to the left."""
    return sum(
        near.slot > far.slot
        for near in left.beside(upward=upward)
        for far in right.beside(upward=upward)
    )


def _transpose(layers: Sequence[list[Item]]) -> None:
    """Swap items that stand side by side as long as that uncrosses lines, within reason."""
    for _ in range(_SWAPPINGS):
        improved = False
        for layer in layers:
            for slot in range(len(layer) - 1):
                left, right = layer[slot : slot + 2]
                now = sum(_crossings(left, right, upward=way) for way in (True, False))
                then = sum(_crossings(right, left, upward=way) for way in (True, False))
                if then < now:
                    layer[slot : slot + 2] = [right, left]
                    left.slot, right.slot = right.slot, left.slot
                    improved = True
        if not improved:
            return
