"""Settings: one frozen object, wrong values told by name, secrets never shown."""

import dataclasses
import json
from pathlib import Path

import pytest

from models.errors import ConfigurationError, SettingError
from tasks.secrets import Secret, SecretUrl
from tasks.settings import LogFormat, LogLevel, Settings, tick_interval, unknown_variables

PASSWORD = "correct-horse/battery"
SECRETS = {
    "ROLLCALL_DATABASE_URL": "postgresql://u:correct-horse%2Fbattery@db.example:5432/fleet",
    "ROLLCALL_BROKER_URL": "redis://:hunter22@broker.example:6379/1",
    "ROLLCALL_CONSUL_TOKEN": "b1gs3cr3t-t0ken",
    "ROLLCALL_FLOWER_BASIC_AUTH": "admin:flowerpower",
}


def test_defaults_leave_every_server_to_the_embedded_stack() -> None:
    settings = Settings.from_environment({})
    assert (settings.database_url, settings.broker_url, settings.consul_url) == (None, None, None)
    assert settings.flower_address == "127.0.0.1"
    assert settings.tick_interval_ms == 1000


def test_the_settings_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().workers = 9  # type: ignore[misc]


@pytest.mark.parametrize(
    ("variable", "value", "takes"),
    [
        ("ROLLCALL_WORKERS", "none", "1 to 64"),
        ("ROLLCALL_WORKERS", "0", "1 to 64"),
        ("ROLLCALL_WORKERS", "65", "1 to 64"),
        ("ROLLCALL_FLOWER_PORT", "99999", "1 to 65535"),
        ("ROLLCALL_LOG_FORMAT", "xml", "json or console"),
        ("ROLLCALL_LOG_LEVEL", "loud", "debug, info, warning, error"),
        ("ROLLCALL_RUNTIME_NAME", "a name/with a slash", "letters, digits"),
    ],
)
def test_a_wrong_value_names_the_variable_what_it_got_and_what_it_takes(
    variable: str, value: str, takes: str
) -> None:
    with pytest.raises(SettingError) as caught:
        Settings.from_environment({variable: value})
    assert caught.value.variable == variable
    assert repr(value) in str(caught.value)
    assert takes in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("ROLLCALL_DATABASE_URL", "mysql://u:s3cr3t@h/db"),
        ("ROLLCALL_DATABASE_URL", "postgresql://u:s3cr3t/x@h/db"),
        ("ROLLCALL_DATABASE_URL", "s3cr3t"),
        ("ROLLCALL_BROKER_URL", "redis://:s3cr3t@h:99999/0"),
        ("ROLLCALL_CONSUL_URL", "ftp://s3cr3t@h"),
        ("ROLLCALL_FLOWER_BASIC_AUTH", "s3cr3t"),
    ],
)
def test_a_wrong_secret_is_told_without_its_value(variable: str, value: str) -> None:
    with pytest.raises(SettingError) as caught:
        Settings.from_environment({variable: value})
    assert variable in str(caught.value)
    assert "s3cr3t" not in str(caught.value)


def test_every_wrong_value_is_told_at_once() -> None:
    with pytest.raises(ConfigurationError) as caught:
        Settings.from_environment({"ROLLCALL_WORKERS": "x", "ROLLCALL_REDIS_PORT": "-1"})
    assert "ROLLCALL_WORKERS" in str(caught.value)
    assert "ROLLCALL_REDIS_PORT" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "interval", "level"),
    [
        (None, 1000, None),
        ("", 1000, None),
        ("250", 250, None),
        ("100", 100, None),
        ("60000", 60000, None),
        ("99", 100, LogLevel.WARNING),
        ("-5", 100, LogLevel.WARNING),
        ("60001", 60000, LogLevel.WARNING),
        ("fast", 1000, LogLevel.ERROR),
        ("1e3", 1000, LogLevel.ERROR),
        ("12.5", 1000, LogLevel.ERROR),
    ],
)
def test_the_tick_interval_is_clamped_with_a_warning_or_defaults_with_an_error(
    text: str | None, interval: int, level: LogLevel | None
) -> None:
    found, notices = tick_interval(text)
    assert found == interval
    assert [notice.level for notice in notices] == ([level] if level else [])


def test_no_way_of_printing_the_settings_shows_a_secret() -> None:
    settings = Settings.from_environment(SECRETS)
    shown = [repr(settings), str(settings), f"{settings}", str(dataclasses.asdict(settings))]
    shown += [str(vars(settings)), json.dumps(dataclasses.asdict(settings), default=str)]
    shown += [repr(settings.database_url), f"{settings.consul_token}", f"{settings.broker_url!r}"]
    for text in shown:
        for secret in (PASSWORD, "correct-horse%2Fbattery", "hunter22", "b1gs3cr3t", "flowerpower"):
            assert secret not in text


def test_the_settings_know_what_must_not_be_seen() -> None:
    known = Settings.from_environment(SECRETS).secrets
    assert {PASSWORD, "hunter22", "b1gs3cr3t-t0ken", "flowerpower"} <= set(known)


def test_a_url_shows_where_it_leads() -> None:
    assert str(SecretUrl("postgresql://u:p@db.example:5432/fleet")) == (
        "postgresql://db.example:5432/fleet"
    )


def test_a_secret_may_live_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("from-a-file\n")
    settings = Settings.from_environment({"ROLLCALL_CONSUL_TOKEN_FILE": str(file)})
    assert settings.consul_token == Secret("from-a-file")


def test_a_secret_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="ROLLCALL_CONSUL_TOKEN_FILE"):
        Settings.from_environment({"ROLLCALL_CONSUL_TOKEN_FILE": str(tmp_path / "missing")})


def test_a_child_process_reads_the_very_same_settings() -> None:
    settings = Settings.from_environment(
        SECRETS | {"ROLLCALL_LOG_FORMAT": "json", "ONEX_RUNTIME_TICK_INTERVAL_MS": "250"}
    )
    assert Settings.from_environment(settings.environment()) == settings
    assert settings.log_format is LogFormat.JSON


def test_misspelt_variables_are_found() -> None:
    environ = SECRETS | {"ROLLCALL_WORKRES": "3", "ROLLCALL_CONSUL_TOKEN_FILE": "x", "PATH": "/"}
    assert unknown_variables(environ) == ("ROLLCALL_WORKRES",)


@pytest.mark.parametrize(
    ("address", "local"),
    [("127.0.0.1", True), ("localhost", True), ("0.0.0.0", False), ("flower.example", False)],
)
def test_flower_knows_whether_strangers_can_reach_it(address: str, local: bool) -> None:
    assert Settings(flower_address=address).flower_is_local is local


def test_the_policy_is_read_and_handed_on() -> None:
    said = {
        "ROLLCALL_ALLOWED_ENVIRONMENTS": "prod, test",
        "ROLLCALL_DENIED_NODES": "n1",
        "ROLLCALL_REGISTER_ON_REQUEST": "on",
    }
    read = Settings.from_environment(said)
    assert read.allowed_environments == frozenset({"prod", "test"})
    assert read.denied_nodes == frozenset({"n1"})
    assert read.register_on_request is True
    assert Settings.from_environment(read.environment()) == read
    assert Settings.from_environment({}).allowed_environments is None


@pytest.mark.parametrize(
    ("variable", "text"),
    [("ALLOWED_ENVIRONMENTS", "prod,,test"), ("REGISTER_ON_REQUEST", "perhaps")],
)
def test_a_wrong_policy_is_told_by_name(variable: str, text: str) -> None:
    with pytest.raises(SettingError, match=f"ROLLCALL_{variable}"):
        Settings.from_environment({f"ROLLCALL_{variable}": text})
