"""Guards: compiled when a contract is loaded, asked on every transition, never `eval`ed."""

import dataclasses
from collections.abc import Callable, Mapping

from fsm import guard_grammar
from fsm.guard_predicates import Predicate, predicate
from fsm.guard_terms import GuardCode, GuardError, Operator, Scalar, Value

__all__ = ["Guard", "GuardCode", "GuardError", "Operator", "Scalar", "Value", "parse_guard"]


@dataclasses.dataclass(frozen=True, slots=True)
class Guard:
    """One question to a context, made by `parse_guard`; `text` keeps `1` from equalling `true`."""

    field: str
    operator: Operator
    value: Value
    text: str = dataclasses.field(init=False, repr=False)
    _holds: Predicate = dataclasses.field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        text = f"{self.field} {self.operator} {guard_grammar.printed(self.value)}"
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "_holds", predicate(self.field, self.operator, self.value))

    def __str__(self) -> str:
        return self.text

    def __reduce__(self) -> tuple[Callable[[str], "Guard"], tuple[str]]:
        return parse_guard, (self.text,)

    def evaluate(self, context: Mapping[str, object], strict: bool = False) -> bool:
        """Whether the context satisfies the guard; raises a GuardError where the types forbid it.

        An absent or null field satisfies nothing but the existence operators; strict, it raises.
        """
        seen = context.get(self.field)
        if seen is not None:
            return self._holds(seen)
        if self.operator is Operator.EXISTS or self.operator is Operator.NOT_EXISTS:
            return self._holds(None)
        if strict:
            raise GuardError(
                GuardCode.GUARD_FIELD_UNDEFINED,
                f"Field '{self.field}' is not in the context",
                "set it before the transition",
            )
        return False


def parse_guard(text: str) -> Guard:
    """The guard that a text means, or a GuardError with the code of its first mistake."""
    return Guard(*guard_grammar.read(text))
