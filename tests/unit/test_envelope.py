"""The one envelope: strict, frozen, the same for commands, events and intents."""

import json
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from models.canonical import canonical
from models.envelope import LONGEST_ENTITY_ID, Envelope
from models.errors import MessageError
from models.topics import Category

GOOD: dict[str, object] = {
    "message_id": "00000000-0000-0000-0000-000000000001",
    "correlation_id": "00000000-0000-0000-0000-000000000002",
    "causation_id": None,
    "emitted_at": "2026-01-01T12:00:00Z",
    "entity_id": "node-1",
    "message_type": "registration.events.NodeIntrospected",
    "payload": {"a": [1, {"b": None}]},
}
FIELDS = tuple(GOOD)


def refused(**changes: object) -> str:
    with pytest.raises(MessageError) as caught:
        Envelope.read(json.dumps(GOOD | changes))
    return caught.value.message


def test_an_envelope_has_exactly_its_fields() -> None:
    assert tuple(Envelope.model_fields) == FIELDS
    assert Envelope.read(json.dumps(GOOD)).message_id == UUID(int=1)


@pytest.mark.parametrize("field", FIELDS)
def test_a_missing_field_is_refused_by_its_path(field: str) -> None:
    without = {name: value for name, value in GOOD.items() if name != field}
    with pytest.raises(MessageError) as caught:
        Envelope.read(json.dumps(without))
    assert caught.value.message == f"{field}: Field required"


def test_every_missing_field_is_told_at_once() -> None:
    with pytest.raises(MessageError) as caught:
        Envelope.read("{}")
    told = caught.value.message.split("; ")
    assert [each.partition(":")[0] for each in told] == list(FIELDS)


def test_an_extra_field_is_refused_by_its_path() -> None:
    assert refused(plane="ingestion") == "plane: Extra inputs are not permitted"


@pytest.mark.parametrize("field", ["message_id", "correlation_id", "causation_id"])
@pytest.mark.parametrize("wrong", ["", "node-1", 7, True, [], "0000-1", {"id": 1}])
def test_a_wrong_id_is_refused_by_its_path(field: str, wrong: object) -> None:
    assert refused(**{field: wrong}).startswith(f"{field}: ")


@pytest.mark.parametrize("field", ["message_id", "correlation_id"])
def test_only_the_cause_may_be_missing_on_purpose(field: str) -> None:
    assert refused(**{field: None}).startswith(f"{field}: ")


@pytest.mark.parametrize(
    "wrong",
    [
        "2026-01-01T12:00:00",
        "2026-01-01",
        "12:00:00Z",
        "yesterday",
        "",
        1767268800,
        1.5,
        None,
        True,
    ],
)
def test_a_naive_or_made_up_time_is_refused_by_its_path(wrong: object) -> None:
    assert refused(emitted_at=wrong).startswith("emitted_at: ")


@pytest.mark.parametrize(
    "wrong",
    ["", " node", "node ", "a\0b", "a\nb", "\x7f", "x" * (LONGEST_ENTITY_ID + 1), 7, None, ["n"]],
)
def test_a_wrong_entity_id_is_refused_by_its_path(wrong: object) -> None:
    assert refused(entity_id=wrong).startswith("entity_id: ")


@pytest.mark.parametrize("wrong", [None, [], "text", 1, True])
def test_a_payload_is_an_object(wrong: object) -> None:
    assert refused(payload=wrong).startswith("payload: ")


@pytest.mark.parametrize("wrong", [None, 1, ["a"], {}])
def test_a_message_type_is_text(wrong: object) -> None:
    assert refused(message_type=wrong).startswith("message_type: ")


@pytest.mark.parametrize("junk", ["", "{", "[]", "null", "1", '"x"', b"\xff"])
def test_what_is_no_object_is_refused_as_a_whole(junk: str | bytes) -> None:
    with pytest.raises(MessageError, match=r"^envelope: "):
        Envelope.read(junk)


def test_an_error_shows_no_value() -> None:
    assert "hunter2" not in refused(message_id={"password": "hunter2"}, entity_id=["hunter2"])


@pytest.mark.parametrize("category", Category)
def test_commands_events_and_intents_have_one_structure(category: Category) -> None:
    envelope = Envelope.read(json.dumps(GOOD | {"message_type": f"node.{category.value}.Go"}))
    assert type(envelope) is Envelope
    assert tuple(json.loads(envelope.model_dump_json())) == FIELDS


def test_an_envelope_is_frozen() -> None:
    envelope = Envelope.read(json.dumps(GOOD))
    for field in FIELDS:
        with pytest.raises(ValidationError, match="frozen"):
            setattr(envelope, field, None)


def test_text_is_not_taken_for_ids_and_times_inside_the_process() -> None:
    with pytest.raises(ValidationError) as caught:
        Envelope.model_validate(GOOD)
    fields = {each["loc"][0] for each in caught.value.errors()}
    assert fields == {"message_id", "correlation_id", "emitted_at"}


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=4)
    ),
    max_leaves=12,
)
zones = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
envelopes = st.builds(
    Envelope,
    message_id=st.uuids(),
    correlation_id=st.uuids(),
    causation_id=st.none() | st.uuids(),
    emitted_at=st.datetimes(datetime(1970, 1, 2), datetime(9999, 1, 1), timezones=zones),
    entity_id=st.from_regex(r"[!-~]([ -~]{0,198}[!-~])?", fullmatch=True),
    message_type=st.sampled_from(["a.events.B", "a.commands.B", "a.intents.B"]),
    payload=st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), plain, max_size=4),
)


@given(envelopes)
def test_an_envelope_survives_the_wire(envelope: Envelope) -> None:
    read = Envelope.read(envelope.model_dump_json())
    assert read == envelope
    assert read.emitted_at.astimezone(UTC) == envelope.emitted_at.astimezone(UTC)
    assert canonical(read.payload) == canonical(envelope.payload)


@given(envelopes)
def test_a_trusted_envelope_equals_one_that_was_validated(envelope: Envelope) -> None:
    assert Envelope.trusted(**dict(envelope)) == envelope
