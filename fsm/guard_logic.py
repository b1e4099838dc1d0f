"""Whether guards can hold together: what an analyser needs to call a contract impossible.

Every answer errs on one side: guards are called contradictory only when no context can satisfy
them. Two patterns are told apart by their anchored literal prefixes alone, and numbers are taken
to be dense.
"""

import itertools
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import assert_never

from fsm.guard import Guard, GuardError, Operator, Scalar

_LITERAL_PREFIX = re.compile(r"\^([A-Za-z0-9_-]+)([*?{]?)")


def may_overlap(a: Guard, b: Guard) -> bool:
    """False only if no context satisfies both guards."""
    return not contradicts((a, b))


def contradicts(guards: Iterable[Guard]) -> bool:
    """True only if no context satisfies all the guards; fields vary freely, so one is enough."""
    by_field: defaultdict[str, list[Guard]] = defaultdict(list)
    for guard in guards:
        by_field[guard.field].append(guard)
    return not all(_satisfiable(group) for group in by_field.values())


def _satisfiable(guards: Sequence[Guard]) -> bool:
    absences = [guard for guard in guards if _asks_absence(guard)]
    if absences:
        return len(absences) == len(guards)
    for guard in guards:
        if (listed := _listed(guard)) is not None:
            return any(_all_hold(guards, value) for value in listed)
    numeric = [guard for guard in guards if _is_ordering(guard.operator)]
    patterns = [guard for guard in guards if guard.operator is Operator.MATCHES]
    arrays = [guard for guard in guards if guard.operator is Operator.CONTAINS]
    if sum(map(bool, (numeric, patterns, arrays))) > 1:
        return False
    return _has_room(numeric, guards) and _share_prefix(patterns)


def _asks_absence(guard: Guard) -> bool:
    return guard.evaluate({})


def _listed(guard: Guard) -> tuple[Scalar, ...] | None:
    """The only values that can satisfy the guard, where it names them all."""
    if guard.operator in (Operator.EQ, Operator.EQUALS, Operator.IN):
        return guard.value if isinstance(guard.value, tuple) else (guard.value,)
    return None


def _all_hold(guards: Iterable[Guard], value: Scalar) -> bool:
    try:
        return all(guard.evaluate({guard.field: value}) for guard in guards)
    except GuardError:
        return False


def _is_ordering(operator: Operator) -> bool:
    match operator:
        case Operator.LT | Operator.LE | Operator.GT | Operator.GE:
            return True
        case (
            Operator.EQ
            | Operator.NE
            | Operator.EQUALS
            | Operator.NOT_EQUALS
            | Operator.EXISTS
            | Operator.NOT_EXISTS
            | Operator.IN
            | Operator.NOT_IN
            | Operator.CONTAINS
            | Operator.MATCHES
        ):
            return False
        case _:
            assert_never(operator)


def _has_room(orderings: Iterable[Guard], guards: Iterable[Guard]) -> bool:
    """An open interval has room whatever single values others exclude; a point is tried out."""
    lower = max(_limits(orderings, Operator.GT, Operator.GE), default=None)
    upper = min(_limits(orderings, Operator.LT, Operator.LE), default=None)
    if lower is None or upper is None or lower < upper:
        return True
    return lower == upper and _all_hold(guards, lower)


def _limits(orderings: Iterable[Guard], *operators: Operator) -> list[int | float]:
    return [
        guard.value
        for guard in orderings
        if guard.operator in operators and isinstance(guard.value, int | float)
    ]


def _share_prefix(patterns: Iterable[Guard]) -> bool:
    prefixes = [_literal_prefix(str(guard.value)) for guard in patterns]
    return all(a.startswith(b) or b.startswith(a) for a, b in itertools.combinations(prefixes, 2))


def _literal_prefix(pattern: str) -> str:
    """What every match must begin with, as far as it is plain to see."""
    found = _LITERAL_PREFIX.match(pattern)
    if found is None or "|" in pattern:
        return ""
    literal, quantifier = found.groups()
    return literal[:-1] if quantifier else literal
