"""Promise 12: no secret, credential or connection string passes the redactor. These tests try."""

import base64
import json
import time
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.redaction import REDACTED, Redactor

SECRET = "sw0rdf1sh-42"


class Leaky:
    """An object whose repr tells everything."""

    def __repr__(self) -> str:
        return f"Leaky(password='{SECRET}', port=5432)"


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://user:{SECRET}@host:5432/db",
        f"postgresql+psycopg2://user:{SECRET}@host/db?sslmode=require",
        f"redis://:{SECRET}@host:6379/0",
        f"rediss://default:{SECRET}@host",
        f"amqp://u:{SECRET}@[::1]:5672//",
        f"could not connect to 'postgresql://u:{SECRET}@h/db': timeout",
        f"postgresql://u:p@ss{SECRET}@h/db",
        f"postgresql://u:a/b{SECRET}@h/db",
        f"https://{SECRET}@git.example/repo.git",
        f"host=db user=u password={SECRET} dbname=x",
        f"password = '{SECRET}'",
        f'{{"password": "{SECRET}"}}',
        f"{{'api_key': '{SECRET}'}}",
        f"PGPASSWORD={SECRET} psql",
        f"--consul-token={SECRET}",
        f"X-Consul-Token: {SECRET}",
        f"Authorization: Bearer {SECRET}abcdef",
        f"authorization: Basic {base64.b64encode(SECRET.encode()).decode()}",
        f"curl -H 'Authorization: Bearer {SECRET}'",
        f"secret_key={SECRET}&user=1",
        f"AWS_SECRET_ACCESS_KEY={SECRET}",
        f"Cookie: session={SECRET}",
        f"session_id={SECRET}",
        f"client_secret: {SECRET}, grant_type: x",
        f"passphrase:{SECRET}",
        f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----",
        f"-----BEGIN PRIVATE KEY-----\n{SECRET} and the end was cut off",
    ],
)
def test_a_secret_in_text_does_not_pass(text: str) -> None:
    shown = Redactor().text(text)
    assert SECRET not in shown
    assert base64.b64encode(SECRET.encode()).decode() not in shown
    assert REDACTED in shown


@pytest.mark.parametrize(
    "token",
    [
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9",
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
        "xoxb-263594206564-FGqddMF8t08v8N7Oq4i57vs1",
    ],
)
def test_tokens_are_known_by_their_shape(token: str) -> None:
    assert token not in Redactor().text(f"the call with {token} was refused")


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        quote(SECRET, safe=""),
        base64.b64encode(SECRET.encode()).decode(),
        base64.b64encode(SECRET.encode()).decode().rstrip("="),
        f"in the middle{SECRET}of a word",
    ],
)
def test_a_known_secret_is_hidden_wherever_it_stands(form: str) -> None:
    shown = Redactor([SECRET]).text(f"nothing around it says what it is: {form}")
    assert form not in shown


@pytest.mark.parametrize(
    "value",
    [
        {"password": SECRET},
        {"Password": SECRET},
        {"db": {"consul-token": [SECRET, SECRET]}},
        {"headers": [("x", {"authorization": SECRET})]},
        {"token": {"nested": {"deeply": SECRET}}},
        {"api_key": SECRET.encode()},
        {"error": Leaky()},
        {"error": ValueError(f"bad dsn postgresql://u:{SECRET}@h/d")},
        {"raw": f"token={SECRET}".encode()},
        {f"postgresql://u:{SECRET}@h/d": "as a key"},
        [{"a": [{"b": ({"secret": SECRET},)}]}],
        {"connection_string": f"Server=h;Uid=u;Pwd={SECRET}"},
    ],
)
def test_a_secret_in_data_does_not_pass(value: Any) -> None:
    assert SECRET not in json.dumps(Redactor().value(value))


def test_deep_data_is_cut_and_still_redacted() -> None:
    deep: Any = {"password": SECRET}
    for _ in range(50):
        deep = {"next": deep}
    assert SECRET not in json.dumps(Redactor().value(deep))


def test_data_that_holds_itself_ends() -> None:
    loop: dict[str, Any] = {"password": SECRET}
    loop["self"] = loop
    assert SECRET not in json.dumps(Redactor().value(loop))


def test_a_value_that_cannot_be_shown_does_not_take_the_line_with_it() -> None:
    class Hostile:
        def __repr__(self) -> str:
            raise RuntimeError(SECRET)

    shown = Redactor()(None, "info", {"event": "x", "value": Hostile()})
    assert "could not be shown" in shown["event"]
    assert SECRET not in str(shown)


@pytest.mark.parametrize(
    "text",
    [
        "registered node-7 in 12 ms",
        "http://127.0.0.1:8500/v1/txn",
        "postgresql://db.example:5432/fleet",
        "natural_key=(node, consul.register, 7)",
        "author@example.org wrote",
        "Token count: see docs",
    ],
)
def test_what_is_no_secret_stays_readable(text: str) -> None:
    shown = Redactor([SECRET]).text(text)
    assert shown == text or text.startswith("Token")


def test_what_is_no_secret_in_data_keeps_its_type() -> None:
    value = {"attempt": 3, "ok": True, "none": None, "ratio": 0.5, "nodes": ["a", "b"]}
    assert Redactor().value(value) == value


def test_a_huge_hostile_line_is_redacted_in_bounded_time() -> None:
    text = "a://b:" * 200_000 + "password=" * 100_000 + f" password={SECRET} "
    began = time.perf_counter()
    shown = Redactor([SECRET]).text(text)
    assert time.perf_counter() - began < 10
    assert SECRET not in shown
    assert len(shown) < 20_000


def test_cutting_a_long_line_leaves_no_half_of_a_secret() -> None:
    text = "x" * 16_370 + f" postgresql://u:{SECRET}@h/d"
    assert SECRET[:6] not in Redactor().text(text)


passwords = st.text(
    alphabet=st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="'\""),
    min_size=6,
    max_size=40,
).filter(lambda text: text not in REDACTED)


@given(password=passwords, user=st.from_regex(r"[a-z]{1,8}", fullmatch=True))
def test_any_password_in_any_url_is_hidden(password: str, user: str) -> None:
    raw = Redactor().text(f"at postgresql://{user}:{password}@host:5432/db now")
    assert password not in raw.replace(REDACTED, "")
    encoded = quote(password, safe="")
    assert encoded not in Redactor().text(f"at redis://:{encoded}@host/0 now").replace(REDACTED, "")


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=20)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(value=json_values, secret=passwords)
def test_a_known_secret_put_anywhere_into_any_data_is_hidden(value: Any, secret: str) -> None:
    holder = {"data": value, "where": [f"before {secret} after", {"deep": secret}]}
    shown = json.dumps(Redactor([secret]).value(holder)["where"])
    assert json.dumps(secret)[1:-1] not in shown.replace(REDACTED, "")
