"""What holds for any contract text, any context and any sequence of triggers."""

import copy
from collections.abc import Mapping
from importlib import resources
from uuid import UUID

from hypothesis import example, given, settings
from hypothesis import strategies as st

from fsm.canonical import canonical_json
from fsm.contract import Contract
from fsm.contract_yaml import ContractError, Finding, load_contract
from fsm.delta import Steps, delta
from fsm.library import Machine, load_library
from fsm.outcome import Outcome
from fsm.results import Result

LIBRARY = load_library()
REGISTRATION = LIBRARY[Machine.REGISTRATION]

FIELDS = (
    "payload",
    "node_id",
    "deployment_id",
    "environment",
    "network_id",
    "consul_service_id",
    "consul_service_name",
    "postgres_record",
    "postgres_applied",
    "consul_applied",
    "retry_count",
    "validation_result",
    "registered",
    "reviewer",
    "notes",
    "reason",
    "manifest",
    "urn",
    "conflicting_urn",
)
finite = st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | st.integers(-5, 9) | finite | st.text()
values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=5
)
contexts = st.dictionaries(st.sampled_from(FIELDS), values)
machines = st.sampled_from(Machine)

KEYS = (
    "state_machine_name",
    "initial_state",
    "states",
    "transitions",
    "state_name",
    "state_type",
    "transition_name",
    "from_state",
    "to_state",
    "trigger",
    "conditions",
    "expression",
    "actions",
    "entry_actions",
    "action_config",
    "retry_counter",
    "triggers",
    "trigger_sources",
    "auto_retry",
    "timeout_ms",
    "on_timeout",
    "version",
    "fsm_subcontract",
)
WORDS = (
    "idle",
    "done",
    "*",
    "initial",
    "terminal",
    "true",
    "on",
    "~",
    "9",
    "-1",
    "1e999",
    "&a",
    "*a",
    "!!x",
    "'",
    "<<",
)
scribbles = st.recursive(
    st.sampled_from(WORDS) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda items: f"[{', '.join(items)}]")
        | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5).map(
            lambda entries: (
                "{" + ", ".join(f"{key}: {value}" for key, value in entries.items()) + "}"
            )
        )
    ),
    max_leaves=12,
)
documents = st.dictionaries(st.sampled_from(KEYS), scribbles, max_size=8).map(
    lambda entries: "\n".join(f"{key}: {value}" for key, value in entries.items())
)


def assert_loads_or_finds(text: str) -> None:
    findings: tuple[Finding, ...] | None = None
    try:
        assert isinstance(load_contract(text), Contract)
    except ContractError as refused:
        findings = refused.findings
    assert findings != ()
    assert all(each.place.line >= 1 for each in findings or ())


@given(st.text() | documents)
@example("\t- a")
@example("&a [*a]")
@example("{{a: b}: c}")
@example("a: !!python/name:os.system x")
@example("\x00")
@example("\ud800")
@example("? [1]\n: 2")
@example("[" * 5000)
@example("- " * 5000)
@example("a: &a\n b: *a")
@example("%YAML 9.9\n---\na: b")
@example("states: 9" + "9" * 5000)
def test_any_text_loads_or_gives_findings(text: str) -> None:
    assert_loads_or_finds(text)


def shipped_texts() -> list[str]:
    folder = resources.files("fsm") / "machines"
    return [(folder / f"{machine}.yaml").read_text() for machine in Machine]


TEXTS = shipped_texts()


@given(st.data())
@settings(max_examples=150)
def test_a_shipped_contract_with_any_line_changed_loads_or_gives_findings(
    data: st.DataObject,
) -> None:
    text = data.draw(st.sampled_from(TEXTS))
    lines = text.split("\n")
    at = data.draw(st.integers(0, len(lines) - 1))
    change = data.draw(st.sampled_from(["drop", "double", "scribble", "truncate"]))
    if change == "drop":
        del lines[at]
    elif change == "double":
        lines.insert(at, lines[at])
    elif change == "scribble":
        key, colon, _ = lines[at].partition(":")
        lines[at] = f"{key}{colon} {data.draw(scribbles)}"
    else:
        del lines[at:]
    assert_loads_or_finds("\n".join(lines))


@given(machines, st.data(), contexts, contexts, st.uuids(), st.sampled_from(Steps))
def test_delta_is_total_deterministic_and_pure(
    machine: Machine,
    data: st.DataObject,
    context: dict[str, object],
    extra: dict[str, object],
    cause: UUID,
    steps: Steps,
) -> None:
    contract = LIBRARY[machine]
    state = data.draw(st.sampled_from([each.name for each in contract.states]) | st.text())
    trigger = data.draw(st.sampled_from(contract.triggers) | st.text())
    before = copy.deepcopy((context, extra))

    def decide() -> Outcome:
        return delta(contract, state, trigger, context, data=extra, cause=cause, steps=steps)

    outcome = decide()
    assert (context, extra) == before
    assert canonical_json(decide()) == canonical_json(outcome)
    assert outcome.path[0] == state
    assert outcome.path[-1] == outcome.state
    if outcome.result is Result.OK:
        assert outcome.transition is not None
        assert contract.state(outcome.state) is not None
    else:
        assert outcome.context is context
        assert outcome.state == state
        assert not outcome.intents
        assert outcome.reason is not None
    ids = [each.id for each in outcome.intents] + [each.id for each in outcome.follow_ups]
    assert len(set(ids)) == len(ids)


NODE: Mapping[str, object] = {
    "payload": {},
    "node_id": "n",
    "deployment_id": "d",
    "environment": "e",
    "network_id": "w",
    "consul_service_id": "s",
    "consul_service_name": "s",
    "postgres_record": {"node_id": "n"},
}
facts = st.fixed_dictionaries(
    {},
    optional={"postgres_applied": st.booleans(), "consul_applied": st.booleans()},
)
walks = st.lists(st.tuples(st.sampled_from(REGISTRATION.triggers), facts), max_size=40)


def walked(walk: list[tuple[str, dict[str, object]]], steps: Steps) -> list[Outcome]:
    """The walk, with everything the machine itself pulls in between."""
    state: str = REGISTRATION.initial_state
    context: Mapping[str, object] = {**REGISTRATION.new_context(), **NODE}
    outcomes: list[Outcome] = []
    cause = UUID(int=7)
    for trigger, data in walk:
        waiting = [(trigger, data, cause)]
        while waiting:
            pulled, brought, by = waiting.pop(0)
            outcome = delta(
                REGISTRATION, state, pulled, context, data=brought, cause=by, steps=steps
            )
            state, context = outcome.state, outcome.context
            outcomes.append(outcome)
            waiting += [(each.trigger, {}, each.id) for each in outcome.follow_ups]
    return outcomes


@given(walks, st.sampled_from(Steps))
def test_the_retry_count_stays_in_bounds(
    walk: list[tuple[str, dict[str, object]]], steps: Steps
) -> None:
    for outcome in walked(walk, steps):
        count = outcome.context["retry_count"]
        assert isinstance(count, int)
        assert 0 <= count <= 3


@given(walks, st.sampled_from(Steps))
def test_the_same_triggers_give_the_same_bytes(
    walk: list[tuple[str, dict[str, object]]], steps: Steps
) -> None:
    once = [canonical_json(each) for each in walked(walk, steps)]
    again = [canonical_json(each) for each in walked(walk, steps)]
    assert once == again


@given(walks)
def test_a_walk_only_ever_follows_the_table(walk: list[tuple[str, dict[str, object]]]) -> None:
    for outcome in walked(walk, Steps.SINGLE):
        for here, there in zip(outcome.path, outcome.path[1:], strict=False):
            assert there in {each.to_state for each in REGISTRATION.exits(here)}
