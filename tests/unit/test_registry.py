"""The registry of messages: names, fail-fast at the start, and the one decoder."""

import json
from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsm.catalogue import KNOWN_INTENTS
from models.envelope import Envelope
from models.errors import MessageError
from models.messages.runtime import DeadlinePassed, PullTrigger, RuntimeTick
from models.output import HandlerOutput
from models.registry import (
    LARGEST_PAYLOAD,
    HandlerSpec,
    MessageRegistry,
    MessageSpec,
    MessageType,
    Role,
    intent_spec,
    machine_message_specs,
    parse_message_type,
)
from models.topics import Category, topic

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

VALID = [
    "registration.events.NodeRegistrationAccepted",
    "registration.events.NodeRegistrationRejected",
    "registration.commands.RegisterNodeRequested",
    "registration.intents.ConsulRegisterIntent",
    "registration.intents.PostgresUpsertRegistrationIntent",
    "discovery.events.NodeDiscovered",
    "discovery.events.NodeLost",
    "discovery.intents.ScanNetworkIntent",
    "discovery.commands.TriggerDiscovery",
    "health.commands.CheckNodeHealth",
    "health.events.HealthCheckCompleted",
    "health.events.HealthCheckFailed",
    "health.intents.PingNodeIntent",
    "health.intents.ProbeServiceIntent",
    "provisioning.intents.ProvisionResourceIntent",
    "provisioning.events.ResourceProvisioned",
    "provisioning.events.ResourceProvisioningFailed",
    "provisioning.commands.RequestResourceProvisioning",
    "provisioning.commands.DecommissionResource",
    "runtime.events.RuntimeTick",
    "runtime.events.RuntimeStarted",
    "runtime.events.RuntimeShutdown",
    "runtime.commands.ShutdownRuntime",
    "runtime.intents.ScheduleTask",
]

INVALID = {
    "NodeRegistrationAccepted": "has 1 of the 3 segments",
    "events.NodeRegistrationAccepted": "has 2 of the 3 segments",
    "registration.NodeRegistrationAccepted": "has 2 of the 3 segments",
    "registration.invalid.NodeRegistrationAccepted": "none of commands/events/intents",
    "Registration.events.NodeRegistrationAccepted": "not lower-case",
    "registration.Events.NodeRegistrationAccepted": "none of commands/events/intents",
    "registration.events.node_registration_accepted": "not PascalCase",
    "my-domain.events.MyEvent": "not lower-case",
    "": "has 1 of the 3 segments",
    "registration.events.NodeLost.More": "has 4 of the 3 segments",
    "registration.events.": "not PascalCase",
    ".events.NodeLost": "not lower-case",
    "registration.events.NodeLost\n": "not PascalCase",
    "registration.events.nodeLost": "not PascalCase",
    "registration.snapshots.NodeLost": "none of commands/events/intents",
    "registrätion.events.NodeLost": "not lower-case",
}


@pytest.mark.parametrize("text", VALID)
def test_a_valid_message_type_is_read_and_given_back(text: str) -> None:
    found = parse_message_type(text)
    assert str(found) == text
    assert [found.domain, found.category.value, found.name] == text.split(".")


@pytest.mark.parametrize(("text", "why"), INVALID.items())
def test_an_invalid_message_type_is_refused_and_told_why(text: str, why: str) -> None:
    with pytest.raises(MessageError, match="message_type: ") as caught:
        parse_message_type(text)
    assert why in caught.value.message


@given(st.text())
def test_whatever_is_read_is_given_back_and_all_else_is_a_message_error(text: str) -> None:
    try:
        found = parse_message_type(text)
    except MessageError:
        return
    assert str(found) == text


def done(message: Envelope, context: object) -> HandlerOutput:
    return HandlerOutput()


def handler(
    role: Role, *consumes: str, domain: str = "node", name: str = "h", opted: tuple[str, ...] = ()
) -> HandlerSpec:
    types = tuple(parse_message_type(text) for text in consumes)
    return HandlerSpec(name, role, domain, types, done, opted)


def spec(text: str, *, external: bool = False) -> MessageSpec:
    return MessageSpec(parse_message_type(text), external=external)


UP, DOWN, GO = "node.events.Up", "node.events.Down", "node.commands.Go"
TICK = MessageSpec(parse_message_type(RuntimeTick.message_type), RuntimeTick)
MACHINES = machine_message_specs("node")


def small() -> MessageRegistry:
    orchestrator = handler(
        Role.ORCHESTRATOR,
        UP,
        GO,
        RuntimeTick.message_type,
        *(str(each.message_type) for each in MACHINES),
        name="decide",
        opted=("runtime.*",),
    )
    return MessageRegistry(
        [spec(UP), spec(GO, external=True), TICK, *MACHINES, intent_spec("node", "http.post")],
        [
            orchestrator,
            handler(Role.REDUCER, UP, name="fold"),
            handler(Role.REDUCER, UP, name="fold_too"),
            handler(Role.EFFECT, "node.intents.HttpPostIntent", name="post"),
        ],
        ["http.post"],
    )


def problem(
    specs: list[MessageSpec], handlers: list[HandlerSpec], kinds: tuple[str, ...] = ()
) -> str:
    with pytest.raises(MessageError) as caught:
        MessageRegistry(specs, handlers, kinds)
    return caught.value.message


def test_a_type_that_is_consumed_and_not_registered_is_named() -> None:
    assert problem([spec(UP)], [handler(Role.REDUCER, UP, DOWN)]) == (
        "reducer h consumes node.events.Down, which is not registered"
    )


@pytest.mark.parametrize("text", [UP, GO])
def test_an_event_or_command_that_nobody_consumes_is_named(text: str) -> None:
    assert problem([spec(text)], []) == f"{text} is registered and no handler consumes it"


def test_an_intent_kind_that_no_effect_handles_is_named() -> None:
    missing = "intent kind http.post is emitted and no effect handles it"
    assert problem([], [], ("http.post",)) == missing
    assert problem([intent_spec("node", "http.post")], [], ("http.post",)) == missing
    assert problem([spec("node.intents.HttpPostIntent")], [], ("http.post",)) == missing


def test_every_intent_kind_of_the_machines_can_be_served() -> None:
    specs = [intent_spec("registration", kind) for kind in sorted(KNOWN_INTENTS)]
    types = tuple(each.message_type for each in specs)
    effect = HandlerSpec("io", Role.EFFECT, "registration", types, done)
    registry = MessageRegistry(specs, [effect], KNOWN_INTENTS)
    assert {str(registry.intent(kind).message_type) for kind in KNOWN_INTENTS} >= {
        "registration.intents.ConsulRegisterIntent",
        "registration.intents.ConsulDeregisterIntent",
        "registration.intents.PostgresUpsertRegistrationIntent",
        "registration.intents.PostgresDeleteRegistrationIntent",
    }


def test_a_handler_consumes_its_own_domain_only() -> None:
    wrong = handler(Role.ORCHESTRATOR, RuntimeTick.message_type)
    assert problem([TICK], [wrong]) == (
        "orchestrator h of domain node consumes runtime.events.RuntimeTick "
        "without opting in to runtime.*"
    )


@pytest.mark.parametrize("opted", ["runtime.*", "runtime.events.*", "runtime.events.RuntimeTick"])
def test_opting_in_opens_another_domain(opted: str) -> None:
    registry = MessageRegistry(
        [TICK], [handler(Role.ORCHESTRATOR, RuntimeTick.message_type, opted=(opted,))]
    )
    assert registry.handlers(RuntimeTick.message_type, Role.ORCHESTRATOR)


@pytest.mark.parametrize(
    "opted", ["health.*", "runtime.commands.*", "runtime.events.Other", "run.*"]
)
def test_opting_in_to_something_else_does_not(opted: str) -> None:
    found = problem([TICK], [handler(Role.ORCHESTRATOR, RuntimeTick.message_type, opted=(opted,))])
    assert "without opting in" in found


@pytest.mark.parametrize(
    "opted", ["*", "*.*", "runtime", "Runtime.*", "runtime.e*.*", "runtime.*.*", "", "my-x.*"]
)
def test_a_malformed_opt_in_is_named(opted: str) -> None:
    found = problem([spec(UP)], [handler(Role.REDUCER, UP, opted=(opted,))])
    assert f"reducer h opts in to {opted!r}" in found


def test_a_reducer_never_consumes_commands() -> None:
    assert problem([spec(GO)], [handler(Role.REDUCER, GO)]) == (
        "reducer h consumes node.commands.Go; reducers consume events only"
    )


@pytest.mark.parametrize(
    ("role", "text"),
    [
        (Role.ORCHESTRATOR, "node.intents.Ping"),
        (Role.REDUCER, "node.intents.Ping"),
        (Role.EFFECT, UP),
        (Role.EFFECT, GO),
    ],
)
def test_a_role_consumes_its_categories_only(role: Role, text: str) -> None:
    assert f"{role.value} h consumes {text}; {role.value}s consume" in problem(
        [spec(text)], [handler(role, text)]
    )


def test_names_are_registered_once() -> None:
    fold = handler(Role.REDUCER, UP)
    assert (
        problem([spec(UP), spec(UP)], [fold]) == "message type node.events.Up is registered 2 times"
    )
    assert problem([spec(UP)], [fold, fold]) == "handler h is registered 2 times"
    assert "h consumes node.events.Up 2 times" in problem(
        [spec(UP)], [handler(Role.REDUCER, UP, UP)]
    )
    twice = [intent_spec("node", "http.post"), intent_spec("other", "http.post")]
    assert problem(twice, []) == "intent kind http.post is registered 2 times"


def test_a_spec_that_contradicts_itself_is_named() -> None:
    assert "cannot come from outside" in problem([spec("node.intents.Ping", external=True)], [])
    kind = MessageSpec(parse_message_type(UP), kind="http.post")
    assert "no intent and has the intent kind" in problem([kind], [handler(Role.REDUCER, UP)])
    malformed = MessageSpec(MessageType("my-domain", Category.INTENTS, "Ping"))
    assert "'my-domain.intents.Ping' has a domain" in problem([malformed], [])


def test_all_problems_are_told_at_once() -> None:
    found = problem(
        [spec(UP), spec(GO)],
        [handler(Role.REDUCER, GO, DOWN), handler(Role.EFFECT, UP, domain="other", name="io")],
        ("a.b", "c.d"),
    )
    for part in (
        "node.events.Down, which is not registered",
        "reducer h consumes node.commands.Go",
        "effect io consumes node.events.Up",
        "without opting in to node.*",
        "intent kind a.b",
        "intent kind c.d",
    ):
        assert part in found


def test_handlers_are_found_by_type_and_role_in_their_order() -> None:
    registry = small()
    assert [each.name for each in registry.handlers(UP, Role.REDUCER)] == ["fold", "fold_too"]
    assert [each.name for each in registry.handlers(UP, Role.ORCHESTRATOR)] == ["decide"]
    assert registry.handlers(parse_message_type(GO), Role.REDUCER) == ()
    assert registry.handlers("no.events.Such", Role.REDUCER) == ()


def test_the_machine_messages_of_a_domain_and_who_may_send_them() -> None:
    assert {str(each.message_type): each.external for each in machine_message_specs("control")} == {
        "control.commands.PullTrigger": True,
        "control.events.TriggerPulled": False,
        "control.events.DeadlinePassed": False,
    }


def test_a_registry_does_not_change() -> None:
    registry = small()
    with pytest.raises(AttributeError):
        registry.more = 1  # type: ignore[attr-defined]
    assert isinstance(registry.specs, tuple)


def test_an_unknown_type_is_refused_with_its_neighbour() -> None:
    with pytest.raises(MessageError, match=r"did you mean node\.events\.Up\?"):
        small().spec("node.events.Upp")
    with pytest.raises(MessageError, match="not PascalCase"):
        small().spec("node.events.upp")
    with pytest.raises(MessageError, match=r"http\.get is not registered|'http\.get'"):
        small().intent("http.get")
    with pytest.raises(MessageError, match="malformed"):
        intent_spec("node", "HttpPost")


def test_a_message_belongs_on_the_topic_of_its_domain_and_category() -> None:
    registry = small()
    for each in registry.specs:
        name = topic(each.message_type.domain, each.message_type.category)
        registry.check_topic(each.message_type, name)
    for wrong in ("onex.node.commands", "onex.other.events"):
        with pytest.raises(MessageError, match="does not belong") as caught:
            registry.check_topic(UP, wrong)
        assert caught.value.remedy == "its topic is onex.node.events"
    for malformed in (
        "",
        "node.events",
        "onex.node.snapshots",
        "onex.node.events.x",
        "onex.N.events",
    ):
        with pytest.raises(MessageError, match="must be onex"):
            registry.check_topic(UP, malformed)


def raw(message_type: str = UP, **changes: object) -> str:
    fields: dict[str, object] = {
        "message_id": str(UUID(int=1)),
        "correlation_id": str(UUID(int=2)),
        "causation_id": None,
        "emitted_at": "2026-01-01T12:00:00Z",
        "entity_id": "node-1",
        "message_type": message_type,
        "payload": {},
    }
    return json.dumps(fields | changes)


def trusted(payload: object, message_type: str = UP, emitted_at: datetime = NOON) -> Envelope:
    assert isinstance(payload, dict)
    ids = UUID(int=1), UUID(int=2)
    return Envelope.trusted(*ids, None, emitted_at, "node-1", message_type, payload)


def refusal(payload: object, message_type: str = UP) -> str:
    with pytest.raises(MessageError) as caught:
        small().check(trusted(payload, message_type))
    return caught.value.message


def test_bytes_and_text_are_decoded_alike() -> None:
    text = raw(payload={"größe": [1, None, {"x": 1.5}]})
    decoded = small().decode(text)
    assert decoded == small().decode(text.encode())
    assert decoded.payload == {"größe": [1, None, {"x": 1.5}]}
    assert small().check(decoded).message_type == parse_message_type(UP)


@pytest.mark.parametrize(
    "junk", ["", "[]", "null", "{", "\ud800", b"\xff\xfe", b"\xef\xbb\xbf{}", "1e5", '"text"']
)
def test_what_is_no_envelope_is_a_message_error(junk: str | bytes) -> None:
    with pytest.raises(MessageError, match="envelope: "):
        small().decode(junk)


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_decoding_anything_at_all_raises_message_errors_only(junk: str | bytes) -> None:
    with pytest.raises(MessageError):
        small().decode(junk)


@pytest.mark.parametrize(
    ("payload", "where"),
    [
        ({"a": ["\0"]}, "payload.a.0: has a NUL character"),
        ({"a\0": 1}, "payload: has a NUL character"),
        ({"a": float("nan")}, "payload.a: is nan"),
        ({"a": {"b": float("-inf")}}, "payload.a.b: is -inf"),
        ({"a": 10**5000}, "payload: "),
    ],
)
def test_what_the_store_cannot_hold_is_refused_by_its_path(
    payload: dict[str, object], where: str
) -> None:
    assert refusal(payload).startswith(where)
    if "a" not in payload or not isinstance(payload["a"], int):
        with pytest.raises(MessageError) as caught:
            small().decode(raw(payload=payload))
        assert caught.value.message.startswith(where)


@pytest.mark.parametrize(
    ("payload", "where"),
    [
        ({"a": "\ud800"}, "payload.a: "),
        ({"a": {"b": object()}}, "payload.a.b: is a object"),
        ({"a": [(1,)]}, "payload.a.0: is a tuple"),
        ({"a": NOON}, "payload.a: is a datetime"),
        ({1: 2}, "payload: has the key 1"),
    ],
)
def test_an_envelope_object_is_held_to_plain_json(payload: dict[str, object], where: str) -> None:
    assert refusal(payload).startswith(where)


def test_text_that_only_looks_like_a_nul_is_fine() -> None:
    for text in ("\\u0000", "\\\\u0000", "a\\\\\\u0000"):
        small().check(trusted({"a": text}))
        assert small().decode(raw(payload={"a": text})).payload == {"a": text}


def test_a_trusted_envelope_is_checked_like_any_other() -> None:
    with pytest.raises(MessageError, match="emitted_at: Input should have timezone info"):
        small().check(trusted({}, emitted_at=NOON.replace(tzinfo=None)))


def test_a_nest_without_a_floor_is_refused() -> None:
    deep: dict[str, object] = {}
    for _ in range(5000):
        deep = {"a": deep}
    assert refusal(deep) == "payload: is nested more than 200 deep"
    with pytest.raises(MessageError, match="recursion"):
        small().decode(raw(payload={}).replace("{}", '{"a":' * 5000 + "1" + "}" * 5000))


def test_a_payload_is_bounded_in_bytes() -> None:
    frame = len('{"a":""}')
    small().check(trusted({"a": "x" * (LARGEST_PAYLOAD - frame)}))
    small().decode(raw(payload={"a": "é" * ((LARGEST_PAYLOAD - frame) // 2)}))
    over = "x" * (LARGEST_PAYLOAD - frame + 1)
    assert refusal({"a": over}) == "payload: takes at most 262144 bytes, this is 262145"
    assert "at most 262144" in refusal({"a": "é" * (LARGEST_PAYLOAD // 2)})
    for size in (LARGEST_PAYLOAD, 10_000_000):
        with pytest.raises(MessageError, match="payload: takes at most 262144 bytes"):
            small().decode(raw(payload={"a": "x" * size}))


def test_the_bound_can_be_set() -> None:
    registry = MessageRegistry([spec(UP)], [handler(Role.REDUCER, UP)], largest_payload=10)
    with pytest.raises(MessageError, match="at most 10 bytes"):
        registry.decode(raw(payload={"a": "0123456789"}))


DEADLINE: dict[str, object] = {
    "machine": "handshake",
    "deadline": "ack",
    "set_by": 3,
    "tick_sequence": 9,
    "runtime_id": "r",
    "now": "2026-01-01T12:00:00Z",
}


@pytest.mark.parametrize(
    ("message_type", "payload", "where"),
    [
        ("node.commands.PullTrigger", {"trigger": "GO"}, "payload.machine: Field required"),
        ("node.commands.PullTrigger", {"machine": "m", "trigger": 1}, "payload.trigger: "),
        ("node.events.TriggerPulled", {"machine": "", "trigger": "G"}, "payload.machine: "),
        (
            "node.events.TriggerPulled",
            {"machine": "m", "trigger": "G", "data": [1]},
            "payload.data: ",
        ),
        ("node.events.TriggerPulled", {"machine": "m", "trigger": "G", "x": 1}, "payload.x: Extra"),
        ("node.events.DeadlinePassed", DEADLINE | {"set_by": -1}, "payload.set_by: "),
        ("node.events.DeadlinePassed", DEADLINE | {"set_by": "3"}, "payload.set_by: "),
        ("node.events.DeadlinePassed", DEADLINE | {"now": "2026-01-01T12:00:00"}, "payload.now: "),
        ("runtime.events.RuntimeTick", {}, "payload.now: Field required; payload.tick_sequence: "),
    ],
)
def test_a_payload_is_held_to_its_class_by_its_path(
    message_type: str, payload: dict[str, object], where: str
) -> None:
    assert refusal(payload, message_type).startswith(where)
    with pytest.raises(MessageError) as caught:
        small().decode(raw(message_type, payload=payload))
    assert caught.value.message.startswith(where)


def test_a_payload_is_had_as_its_class() -> None:
    found = small().payload(trusted(DEADLINE, "node.events.DeadlinePassed"))
    assert isinstance(found, DeadlinePassed)
    assert (found.now, found.set_by) == (NOON, 3)
    pulled = small().payload(
        trusted({"machine": "m", "trigger": "GO"}, "node.commands.PullTrigger")
    )
    assert pulled == PullTrigger(machine="m", trigger="GO", data={})
    with pytest.raises(MessageError, match=r"payload\.machine"):
        small().payload(trusted({}, "node.commands.PullTrigger"))


def test_an_error_shows_no_value_of_the_payload() -> None:
    payload: dict[str, object] = {"machine": ["hunter2"], "trigger": {"password": "hunter2"}}
    assert "hunter2" not in refusal(payload, "node.commands.PullTrigger")
