"""What a picture of a contract shows: its boxes, its arrows and the words on them."""

from dataclasses import dataclass
from typing import assert_never

from fsm.contract import Contract, State, StateType, Timeout, Transition

START = "[*]"


@dataclass(frozen=True)
class Ink:
    """The colours of a box."""

    fill: str
    stroke: str
    text: str


@dataclass(frozen=True)
class Caption:
    """One way along an arrow: the trigger, the guards it needs, the time after which it fires."""

    trigger: str
    guards: tuple[str, ...] = ()
    after_ms: int | None = None


@dataclass(frozen=True)
class Arrow:
    """All that leads from one state to another; a wildcard's tail is every state not terminal."""

    tail: str
    head: str
    captions: tuple[Caption, ...]


@dataclass(frozen=True)
class Figure:
    """A state as drawn; `loops` are the ways that lead back to itself."""

    name: str
    type: StateType
    is_terminal: bool
    loops: tuple[Caption, ...] = ()


@dataclass(frozen=True)
class Scene:
    """A whole machine, ready to be drawn."""

    title: str
    version: str
    initial: str
    transitions: int
    figures: tuple[Figure, ...]
    arrows: tuple[Arrow, ...]


def scene(contract: Contract) -> Scene:
    """What there is to draw: one arrow a pair of states, however many ways lead along it."""
    ways: dict[tuple[str, str], list[Caption]] = {}
    for transition in contract.transitions:
        state = contract.state(transition.from_state)
        timeout = state.timeout if state is not None else None
        timed = timeout is not None and timeout.trigger == transition.trigger
        caption = _caption(transition, timeout if timed else None)
        ways.setdefault((transition.from_state, transition.to_state), []).append(caption)
    for state in contract.states:
        for transition in _wildcard_timeouts(contract, state):
            caption = _caption(transition, state.timeout)
            ways.setdefault((state.name, transition.to_state), []).append(caption)
    return Scene(
        title=contract.name,
        version=contract.version,
        initial=contract.initial_state,
        transitions=len(contract.transitions),
        figures=tuple(
            Figure(
                state.name,
                state.type,
                state.is_terminal,
                tuple(ways.get((state.name, state.name), ())),
            )
            for state in contract.states
        ),
        arrows=tuple(
            Arrow(tail, head, tuple(captions))
            for (tail, head), captions in ways.items()
            if tail != head
        ),
    )


def _caption(transition: Transition, timeout: Timeout | None) -> Caption:
    guards = tuple(
        str(each.guard) if each.required else f"{each.guard}, optional"
        for each in transition.conditions
    )
    return Caption(transition.trigger, guards, None if timeout is None else timeout.after_ms)


def _wildcard_timeouts(contract: Contract, state: State) -> tuple[Transition, ...]:
    """What a timeout fires when only a wildcard takes it: time deserves an arrow of its own."""
    if state.timeout is None:
        return ()
    taken = contract.candidates(state.name, state.timeout.trigger)
    return taken if all(each.is_wildcard for each in taken) else ()


def ink(type_: StateType) -> Ink:
    """The colours of a kind of state, light ones with dark words but for the end."""
    match type_:
        case StateType.INITIAL:
            return Ink("#e1edff", "#2b6cd4", "#123a78")
        case StateType.OPERATIONAL:
            return Ink("#f3f4f6", "#737d8b", "#262c35")
        case StateType.SNAPSHOT:
            return Ink("#f0eafd", "#7c5cd6", "#3d2780")
        case StateType.SUCCESS:
            return Ink("#dff5e4", "#23883f", "#0f4a20")
        case StateType.ERROR:
            return Ink("#fde8e6", "#cb3a31", "#7b1b15")
        case StateType.TERMINAL:
            return Ink("#3d4653", "#20262f", "#ffffff")
        case _:
            assert_never(type_)


def duration(milliseconds: int) -> str:
    """A timeout as a person says it."""
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    seconds = milliseconds / 1000
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size and seconds % size == 0:
            return f"{int(seconds // size)} {unit}"
    return f"{seconds:g} s"
