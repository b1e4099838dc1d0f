"""Machines that share an entity, run against each other: is there a state nobody gets out of?

Every reachable combination is visited with `delta` itself. From each one, time alone or time and
one operator's action must lead to a goal; the first that does not is returned with its trace.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from fsm.contract import Contract, Pairs
from fsm.delta import delta
from fsm.results import Result

_MAX_REACTIONS = 32

Where = tuple[tuple[str, frozenset[str]], ...]
"""Machines and the states each must be in."""


class Agency(StrEnum):
    """Who makes a move. The world may make one or not: nobody can count on it."""

    TIME = "time"
    OPERATOR = "operator"
    WORLD = "world"


@dataclass(frozen=True, slots=True)
class Move:
    """One trigger somebody may pull on one of the machines, where `when` lets them."""

    by: Agency
    machine: str
    trigger: str
    data: Pairs = ()
    when: Where = ()


@dataclass(frozen=True, slots=True)
class Reaction:
    """What the orchestrator pulls by itself as soon as every machine named is in such a state."""

    when: Where
    machine: str
    trigger: str
    data: Pairs = ()


@dataclass(frozen=True, slots=True)
class Goal:
    """A combination that may last for ever."""

    where: Where


@dataclass(frozen=True, slots=True)
class Part:
    """One machine's share of a combination: its state and what changed in its context."""

    state: str
    changed: tuple[tuple[str, object], ...]


Combined = tuple[Part, ...]


@dataclass(frozen=True)
class Composition:
    """The machines, what they start with, and what may happen to them; time they bring along."""

    contracts: tuple[Contract, ...]
    contexts: tuple[Mapping[str, object], ...]
    moves: tuple[Move, ...]
    reactions: tuple[Reaction, ...]
    goals: tuple[Goal, ...]

    def start(self) -> Combined:
        """Every machine in its initial state."""
        return tuple(Part(each.initial_state, ()) for each in self.contracts)

    def states(self, combined: Combined) -> dict[str, str]:
        """The state of each machine by the machine's name."""
        named = zip(self.contracts, combined, strict=True)
        return {contract.name: part.state for contract, part in named}

    def is_goal(self, combined: Combined) -> bool:
        """Whether the combination may last."""
        states = self.states(combined)
        return any(_holds(goal.where, states) for goal in self.goals)


@dataclass(frozen=True, slots=True)
class Step:
    """One move of a trace and where it led."""

    move: Move
    states: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Counterexample:
    """How a combination is reached from which nothing leads on."""

    steps: tuple[Step, ...]
    stuck: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        lines = [
            f"{step.move.by}: {step.move.machine} {step.move.trigger} -> "
            + ", ".join(f"{name} {state}" for name, state in step.states)
            for step in self.steps
        ]
        stuck = ", ".join(f"{name} {state}" for name, state in self.stuck)
        return "\n".join([*lines, f"stuck: {stuck}"])


def find_stuck(composition: Composition) -> Counterexample | None:
    """The shortest way into a combination nobody gets out of, if there is one."""
    start = composition.start()
    reached_by: dict[Combined, tuple[Combined, Move] | None] = {start: None}
    waiting = deque([start])
    while waiting:
        here = waiting.popleft()
        if not _leads_on(composition, here):
            return _trace(composition, _rest(composition, here, reached_by), reached_by)
        for move in _moves(composition, here, frozenset(Agency)):
            there = _after(composition, here, move)
            if there is not None and there not in reached_by:
                reached_by[there] = (here, move)
                waiting.append(there)
    return None


def reachable_combinations(composition: Composition) -> frozenset[tuple[str, ...]]:
    """The states the machines can be in together, in the order of the contracts."""
    seen = {composition.start()}
    waiting = deque(seen)
    while waiting:
        here = waiting.popleft()
        for move in _moves(composition, here, frozenset(Agency)):
            there = _after(composition, here, move)
            if there is not None and there not in seen:
                seen.add(there)
                waiting.append(there)
    return frozenset(tuple(part.state for part in each) for each in seen)


def _rest(
    composition: Composition,
    here: Combined,
    reached_by: dict[Combined, tuple[Combined, Move] | None],
) -> Combined:
    """Let time run on until nothing new happens: that is where the node would be found."""
    for move in _moves(composition, here, frozenset({Agency.TIME})):
        there = _after(composition, here, move)
        if there is not None and there not in reached_by:
            reached_by[there] = (here, move)
            return _rest(composition, there, reached_by)
    return here


def _leads_on(composition: Composition, here: Combined) -> bool:
    """Whether time, with at most one operator's action somewhere on the way, reaches a goal."""
    waiting = deque([(here, False)])
    seen = {(here, False)}
    while waiting:
        combined, acted = waiting.popleft()
        if composition.is_goal(combined):
            return True
        allowed = frozenset({Agency.TIME} if acted else {Agency.TIME, Agency.OPERATOR})
        for move in _moves(composition, combined, allowed):
            there = _after(composition, combined, move)
            then = acted or move.by is Agency.OPERATOR
            if there is not None and (there, then) not in seen:
                seen.add((there, then))
                waiting.append((there, then))
    return False


def _moves(composition: Composition, here: Combined, allowed: frozenset[Agency]) -> Iterator[Move]:
    for contract, part in zip(composition.contracts, here, strict=True):
        state = contract.state(part.state)
        if state is None or Agency.TIME not in allowed:
            continue
        if state.timeout is not None:
            timeout = state.timeout
            yield Move(Agency.TIME, contract.name, timeout.trigger, timeout.data)
        for retry in contract.auto_retry:
            if retry.state == state.name:
                yield Move(Agency.TIME, contract.name, retry.trigger)
                if retry.exhausted is not None:
                    yield Move(Agency.TIME, contract.name, retry.exhausted)
    states = composition.states(here)
    for move in composition.moves:
        if move.by in allowed and _holds(move.when, states):
            yield move


def _after(composition: Composition, here: Combined, move: Move) -> Combined | None:
    """Where a move leads once every follow-up and reaction is done; nothing if it is refused."""
    there = _pulled(composition, here, move.machine, move.trigger, move.data)
    if there is None:
        return None
    for _ in range(_MAX_REACTIONS):
        states = composition.states(there)
        for reaction in composition.reactions:
            if _holds(reaction.when, states):
                moved = _pulled(
                    composition, there, reaction.machine, reaction.trigger, reaction.data
                )
                if moved is not None:
                    there = moved
                    break
        else:
            break
    return there


def _pulled(
    composition: Composition, here: Combined, machine: str, trigger: str, data: Pairs
) -> Combined | None:
    names = [contract.name for contract in composition.contracts]
    at = names.index(machine)
    contract, fixed, part = composition.contracts[at], composition.contexts[at], here[at]
    outcome = delta(contract, part.state, trigger, {**fixed, **dict(part.changed)}, data=dict(data))
    if outcome.result is not Result.OK:
        return None
    changed = tuple(
        sorted(
            (key, value)
            for key, value in outcome.context.items()
            if isinstance(value, bool | int | str) and fixed.get(key) != value
        )
    )
    there = (*here[:at], Part(outcome.state, changed), *here[at + 1 :])
    for follow_up in outcome.follow_ups:
        there = _pulled(composition, there, machine, follow_up.trigger, ()) or there
    return there


def _holds(where: Where, states: Mapping[str, str]) -> bool:
    return all(states[machine] in allowed for machine, allowed in where)


def _trace(
    composition: Composition,
    stuck: Combined,
    reached_by: Mapping[Combined, tuple[Combined, Move] | None],
) -> Counterexample:
    steps: list[Step] = []
    here = stuck
    while (came := reached_by[here]) is not None:
        steps.append(Step(came[1], tuple(composition.states(here).items())))
        here = came[0]
    return Counterexample(tuple(reversed(steps)), tuple(composition.states(stuck).items()))
