"""Diagrams: everything is there, nothing covers anything, and no name becomes markup."""

from collections.abc import Iterator
from itertools import combinations, pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fsm.contract import Condition, Contract, State, StateType, Timeout, Transition
from fsm.diagram import mermaid, svg
from fsm.diagram_layers import Box, Link
from fsm.diagram_layout import Layout, Point, Rect, Route, arrange
from fsm.diagram_scene import duration, scene
from fsm.diagram_svg import compose
from fsm.guard import parse_guard
from fsm.library import load_machine

FIVE = ["registration", "handshake", "action", "command", "manifest"]
SVG = "{http://www.w3.org/2000/svg}"


def parsed(text: str) -> ElementTree.Element:
    return ElementTree.fromstring(text)  # noqa: S314 - our own output, on purpose


def words(text: str) -> str:
    return " ".join("".join(parsed(text).itertext()).split())


def rectangles(layout: Layout) -> list[Rect]:
    return [*layout.boxes, *(route.label for route in layout.routes if route.label.height)]


def strokes(route: Route) -> Iterator[Point]:
    """Points along the lines as they are drawn: vertical, or an S between two layers."""
    for stroke in (route.before, route.after):
        for (x, y), (to_x, to_y) in pairwise(stroke):
            middle = (y + to_y) / 2
            for step in range(1, 12):
                t = step / 12
                weights = ((1 - t) ** 3, 3 * (1 - t) ** 2 * t, 3 * (1 - t) * t**2, t**3)
                across = zip(weights, (x, x, to_x, to_x), strict=True)
                down = zip(weights, (y, middle, middle, to_y), strict=True)
                yield sum(w * v for w, v in across), sum(w * v for w, v in down)


def assert_readable(layout: Layout) -> None:
    placed = rectangles(layout)
    for one, other in combinations(placed, 2):
        assert not one.overlaps(other), (one, other)
    for rect in placed:
        assert rect.x >= 0
        assert rect.y >= 0
        assert rect.x + rect.width <= layout.width
        assert rect.bottom <= layout.height
    for route in layout.routes:
        for x, y in strokes(route):
            for rect in placed:
                inside_x = rect.x + 0.1 < x < rect.x + rect.width - 0.1
                assert not (inside_x and rect.y + 0.1 < y < rect.bottom - 0.1), (rect, x, y)


@pytest.mark.parametrize("name", FIVE)
@pytest.mark.parametrize("counted", [False, True])
def test_no_label_or_box_overlaps_and_no_line_crosses_one(name: str, counted: bool) -> None:
    contract = load_machine(name)
    counts = {state.name: 1_234_567 for state in contract.states} if counted else {}
    drawing = compose(scene(contract), counts)
    assert_readable(drawing.layout)
    assert drawing.layout.width <= drawing.width < 1500


@pytest.mark.parametrize("name", FIVE)
def test_every_state_trigger_and_guard_is_written(name: str) -> None:
    contract = load_machine(name)
    shown, text = words(svg(contract)), mermaid(contract)
    for state in contract.states:
        assert state.name in shown
        assert f'state "{state.name}" as {state.name}' in text
    for transition in contract.transitions:
        assert transition.trigger in shown
        assert transition.trigger in text
        for condition in transition.conditions:
            question = f"[{condition.guard.field} {condition.guard.operator}"
            assert question in shown
            assert question in text
    for state in contract.states:
        if state.timeout:
            assert f"after {duration(state.timeout.after_ms)}" in shown


@pytest.mark.parametrize("name", FIVE)
def test_the_same_machine_gives_the_same_bytes(name: str) -> None:
    assert svg(load_machine(name)) == svg(load_machine(name))
    assert mermaid(load_machine(name)) == mermaid(load_machine(name))


COLOURS = {
    StateType.INITIAL: "#e1edff",
    StateType.OPERATIONAL: "#f3f4f6",
    StateType.SNAPSHOT: "#f0eafd",
    StateType.SUCCESS: "#dff5e4",
    StateType.ERROR: "#fde8e6",
    StateType.TERMINAL: "#3d4653",
}


@pytest.mark.parametrize("name", FIVE)
def test_states_are_coloured_by_type(name: str) -> None:
    contract = load_machine(name)
    drawn = {
        group.get("data-state"): group
        for group in parsed(svg(contract)).iter(f"{SVG}g")
        if group.get("data-state")
    }
    assert set(drawn) == {state.name for state in contract.states}
    for state in contract.states:
        rects = drawn[state.name].findall(f"{SVG}rect")
        assert rects[0].get("fill") == COLOURS[state.type]
        assert len(rects) == (2 if state.is_terminal else 1)


def small(**changes: object) -> Contract:
    parts: dict[str, object] = {
        "name": "door",
        "version": "1.0.0",
        "initial_state": "open",
        "states": (
            State("open", StateType.INITIAL, timeout=Timeout("open", 90_000, "CLOSE")),
            State("shut", StateType.TERMINAL, is_terminal=True),
        ),
        "transitions": (
            Transition(
                "close",
                "open",
                "shut",
                "CLOSE",
                conditions=(
                    Condition("lock", parse_guard("bolts < 3")),
                    Condition("wish", parse_guard("hinge matches ^a;b$"), required=False),
                ),
            ),
            Transition("knock", "open", "open", "KNOCK"),
            Transition("break", "*", "shut", "BREAK"),
        ),
    }
    return Contract(**{**parts, **changes})  # type: ignore[arg-type]


def test_mermaid_word_for_word() -> None:
    assert mermaid(small(), {"open": 1200}) == (
        "stateDiagram-v2\n"
        "    direction TB\n"
        '    state "open (1,200)" as open\n'
        '    state "shut" as shut\n'
        '    state "any state" as any_state\n'
        "    [*] --> open\n"
        "    open --> shut : CLOSE after 90 s [bolts < 3] [hinge matches ^a；b$, optional]\n"  # noqa: RUF001
        "    any_state --> shut : BREAK\n"
        "    open --> open : KNOCK\n"
        "    shut --> [*]\n"
        "    classDef initial_state fill:#e1edff,stroke:#2b6cd4,color:#123a78\n"
        "    class open initial_state\n"
        "    classDef terminal_state fill:#3d4653,stroke:#20262f,color:#ffffff\n"
        "    class shut terminal_state\n"
    )


def test_a_loop_is_written_into_its_box_and_a_wildcard_has_its_own() -> None:
    drawing = compose(scene(small()), {})
    assert_readable(drawing.layout)
    root = parsed(svg(small()))
    inside = [group for group in root.iter(f"{SVG}g") if group.get("data-state") == "open"]
    assert "KNOCK" in "".join(inside[0].itertext())
    assert "any state" in words(svg(small()))


def test_a_timeout_that_only_a_wildcard_takes_gets_an_arrow() -> None:
    contract = small(
        states=(
            State("open", StateType.INITIAL, timeout=Timeout("open", 5000, "BREAK")),
            State("shut", StateType.TERMINAL, is_terminal=True),
        ),
    )
    assert "open --> shut : BREAK after 5 s" in mermaid(contract)
    assert "after 5 s" in words(svg(contract))


def test_counts_are_shown_also_when_zero() -> None:
    shown = words(svg(small(), {"open": 0, "shut": 1234567}))
    assert "open 0" in shown
    assert "shut 1,234,567" in shown


HOSTILE = '<script>alert("1")</script>&amp;\'--> [*]\x01'


def test_nothing_in_a_contract_becomes_markup() -> None:
    contract = small(
        name=HOSTILE,
        initial_state=HOSTILE,
        states=(State(HOSTILE, StateType.INITIAL), State("end", StateType.ERROR)),
        transitions=(
            Transition("t", HOSTILE, "end", "a\nb --> c : d"),
            Transition("u", "end", "end", "]]>"),
        ),
    )
    root = parsed(svg(contract, {HOSTILE: 5}))
    assert not list(root.iter(f"{SVG}script"))
    assert HOSTILE.replace("\x01", "\ufffd") in "".join(root.itertext())
    text = mermaid(contract, {HOSTILE: 5})
    assert "<script" not in text
    assert " as end" not in text
    assert text.count("-->") == 3


@pytest.mark.parametrize(
    ("milliseconds", "said"),
    [
        (250, "250 ms"),
        (3000, "3 s"),
        (1500, "1.5 s"),
        (90_000, "90 s"),
        (600_000, "10 min"),
        (7_200_000, "2 h"),
        (172_800_000, "2 d"),
    ],
)
def test_durations_as_people_say_them(milliseconds: int, said: str) -> None:
    assert duration(milliseconds) == said


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Box], list[Link]]:
    count = draw(st.integers(1, 9))
    sizes = st.floats(10, 200)
    boxes = [Box(str(number), draw(sizes), draw(sizes)) for number in range(count)]
    ends = st.integers(0, count - 1)
    pairs = draw(st.lists(st.tuples(ends, ends), max_size=18))
    links = [
        Link(str(tail), str(head), draw(sizes), draw(sizes), draw(st.sampled_from([1, 4])))
        for tail, head in pairs
        if tail != head
    ]
    return boxes, links


@settings(max_examples=60, deadline=None)
@given(graphs())
def test_any_graph_is_laid_out_readably(graph: tuple[list[Box], list[Link]]) -> None:
    boxes, links = graph
    layout = arrange(boxes, links, "0")
    assert len(layout.boxes) == len(boxes)
    assert len(layout.routes) == len(links)
    assert_readable(layout)
