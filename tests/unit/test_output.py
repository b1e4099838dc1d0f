"""What a handler may return and is given, by its role, enforced while it runs."""

import dataclasses
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import get_type_hints
from uuid import UUID

import pytest

from fsm.contract_terms import Level, Log, Metric
from models.envelope import Envelope
from models.errors import MessageError, ShapeError
from models.output import (
    Context,
    EffectContext,
    HandlerOutput,
    IntentRequest,
    OrchestratorContext,
    ReducerContext,
    Role,
    check_context,
    check_output,
)
from models.projection import Projection
from models.registry import HandlerSpec, parse_message_type

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SOME_ID = UUID(int=1)


def envelope(message_type: str = "registration.events.NodeBecameActive") -> Envelope:
    return Envelope(
        message_id=SOME_ID,
        correlation_id=SOME_ID,
        causation_id=None,
        emitted_at=NOON,
        entity_id="node-1",
        message_type=message_type,
        payload={},
    )


EVENT = envelope()
INTENT = IntentRequest(SOME_ID, "consul.register", {"service_id": "s"})
PROJECTION = Projection(
    machine="registration",
    entity_id="node-1",
    state="registered",
    context={"retry_count": 0},
    deadlines={},
    sequence=7,
    last_event_id=UUID(int=7),
    last_trigger="CONSUL_SUCCEEDED",
    correlation_id=UUID(int=1),
    contract_hash="0" * 64,
)
METRIC = Metric("registration_started")
LOG = Log(Level.INFO, "started")

EVENTS = HandlerOutput(events=(EVENT,))
INTENTS = HandlerOutput(intents=(INTENT,))
PROJECTIONS = HandlerOutput(projections=(PROJECTION,))


def handler(role: Role, run: Callable[..., HandlerOutput]) -> HandlerSpec:
    return HandlerSpec("h", role, "registration", (parse_message_type(EVENT.message_type),), run)


def context(role: Role) -> Context:
    match role:
        case Role.ORCHESTRATOR:
            return OrchestratorContext(NOON, {"registration": PROJECTION})
        case Role.REDUCER:
            return ReducerContext({"registration": PROJECTION})
        case Role.EFFECT:
            return EffectContext(NOON)


def returned(role: Role, output: HandlerOutput) -> HandlerOutput:
    return handler(role, lambda message, given: output).handle(EVENT, context(role))


def test_reducer_returning_events_rejected() -> None:
    with pytest.raises(ShapeError, match="a reducer returned events") as caught:
        returned(Role.REDUCER, EVENTS)
    assert "intents and projections only" in caught.value.remedy


@pytest.mark.parametrize(("output", "part"), [(INTENTS, "intents"), (PROJECTIONS, "projections")])
def test_orchestrator_returning_more_than_events_rejected(output: HandlerOutput, part: str) -> None:
    with pytest.raises(ShapeError, match=f"an orchestrator returned {part}"):
        returned(Role.ORCHESTRATOR, output)


def test_effect_returning_projections_rejected() -> None:
    with pytest.raises(ShapeError, match="an effect returned projections"):
        returned(Role.EFFECT, PROJECTIONS)


def test_effect_returning_intents_rejected() -> None:
    with pytest.raises(ShapeError, match="an effect returned intents"):
        returned(Role.EFFECT, INTENTS)


def test_reducer_returning_projections_and_intents_accepted() -> None:
    output = HandlerOutput(projections=(PROJECTION,), intents=(INTENT,))
    assert returned(Role.REDUCER, output) is output


def test_orchestrator_returning_events_only_accepted() -> None:
    assert returned(Role.ORCHESTRATOR, EVENTS) is EVENTS


@pytest.mark.parametrize("output", [HandlerOutput(), EVENTS])
def test_effect_returning_optional_events_accepted(output: HandlerOutput) -> None:
    assert returned(Role.EFFECT, output) is output


@pytest.mark.parametrize("role", Role)
def test_metrics_and_logs_are_allowed_to_every_role(role: Role) -> None:
    output = HandlerOutput(metrics=(METRIC,), logs=(LOG,))
    assert returned(role, output) is output


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("wrong", [None, {}, [EVENT], EVENT, (EVENT,), "events"])
def test_what_is_no_output_is_rejected(role: Role, wrong: object) -> None:
    with pytest.raises(ShapeError, match="returned a value of type"):
        check_output(role, wrong)


def test_a_part_that_could_still_change_is_rejected() -> None:
    changing = HandlerOutput(events=[EVENT])  # type: ignore[arg-type]
    with pytest.raises(ShapeError, match="events is a value of type list"):
        check_output(Role.EFFECT, changing)


@pytest.mark.parametrize(
    ("role", "parts", "path"),
    [
        (Role.EFFECT, {"events": (EVENT, {"message_type": "x"})}, "events.1"),
        (Role.ORCHESTRATOR, {"events": (INTENT,)}, "events.0"),
        (Role.REDUCER, {"intents": (INTENT, EVENT)}, "intents.1"),
        (Role.REDUCER, {"projections": ({},)}, "projections.0"),
        (Role.EFFECT, {"events": (envelope("registration.commands.Go"),)}, "events.0"),
        (Role.ORCHESTRATOR, {"events": (envelope("registration.intents.Go"),)}, "events.0"),
    ],
)
def test_a_wrong_element_is_rejected_by_its_path(
    role: Role, parts: Mapping[str, tuple[object, ...]], path: str
) -> None:
    given: dict[str, object] = dict(parts)
    with pytest.raises(ShapeError, match=path):
        check_output(role, HandlerOutput(**given))  # type: ignore[arg-type]


def test_a_shape_error_is_a_message_error() -> None:
    assert issubclass(ShapeError, MessageError)


def test_outputs_come_as_projections_then_intents_then_events_in_the_handlers_order() -> None:
    later = dataclasses.replace(INTENT, kind="consul.deregister")
    output = HandlerOutput(events=(EVENT,), intents=(INTENT, later), projections=(PROJECTION,))
    assert list(output.in_order()) == [PROJECTION, INTENT, later, EVENT]


def test_an_output_and_its_elements_are_frozen() -> None:
    for thing, name in ((EVENTS, "events"), (INTENT, "kind"), (PROJECTION, "state")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(thing, name, ())


def test_only_orchestrators_and_effects_have_now_by_type() -> None:
    assert get_type_hints(OrchestratorContext)["now"] is datetime
    assert get_type_hints(EffectContext)["now"] is datetime
    assert not any(hint is datetime for hint in get_type_hints(ReducerContext).values())
    reducer = ReducerContext({})
    assert not hasattr(reducer, "now")
    with pytest.raises((AttributeError, TypeError)):
        object.__setattr__(reducer, "now", NOON)
    with pytest.raises(TypeError, match="now"):
        ReducerContext({}, now=NOON)  # type: ignore[call-arg]


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("other", Role)
def test_dispatch_hands_a_handler_the_context_of_its_role_only(role: Role, other: Role) -> None:
    seen: list[object] = []

    def run(message: Envelope, given: object) -> HandlerOutput:
        seen.append(given)
        return HandlerOutput()

    if role is other:
        handler(role, run).handle(EVENT, context(role))
        assert seen == [context(role)]
    else:
        with pytest.raises(ShapeError, match="was given a value of type"):
            handler(role, run).handle(EVENT, context(other))
        assert seen == []


def test_a_reducers_context_cannot_be_dressed_up_with_a_clock() -> None:
    @dataclasses.dataclass(frozen=True)
    class Clocked(ReducerContext):
        now: datetime = NOON

    with pytest.raises(ShapeError, match="Clocked"):
        check_context(Role.REDUCER, Clocked({}))
