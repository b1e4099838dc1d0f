"""The command line: JSON where data is printed, exit codes that mean something, and for every
bad input one clear line with the remedy, nothing lost and no secret shown."""

import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from rollcall.devstack import throwaway_home
from tasks.schema import head
from tasks.settings import Settings
from tests.conftest import REPOSITORY, Rollcall, clean_environment, sql

WRONG = "wr0ng-passw0rd"


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    """What a person sees of a failure."""
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert WRONG not in done.stderr + done.stdout
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("rollcall: ")
    return line


def test_doctor_tries_the_embedded_servers_where_none_run(rollcall: Rollcall, consul: Path) -> None:
    done = rollcall("doctor", "--json", ROLLCALL_CONSUL_BIN=str(consul))
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["ok"] is True
    versions = {check["name"]: check["version"] for check in report["checks"]}
    assert versions["postgres"].startswith("18.")
    assert versions["redis"].startswith("6.2")
    assert versions["consul"] >= "1.8"
    assert {"python", "settings", "folder", "port", "clock", "migrations", "ticks"} <= set(versions)


def test_doctor_looks_at_the_servers_that_are_set(rollcall: Rollcall, settings: Settings) -> None:
    done = rollcall("doctor", "--json", settings=settings)
    assert done.returncode == 0, done.stderr
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert checks["migrations"]["version"] == head()
    assert "running" in checks["postgres"]["detail"]
    assert rollcall("doctor", settings=settings).stdout.count("✓") == len(checks)


def test_doctor_says_for_each_what_to_do(rollcall: Rollcall, settings: Settings, port: int) -> None:
    sql(settings.database_url, "UPDATE alembic_version SET version_num = '9999'")
    done = rollcall(
        *("doctor", "--json"),
        settings=settings,
        ROLLCALL_CONSUL_URL=f"http://127.0.0.1:{port}",
        ROLLCALL_WROKERS="3",
    )
    assert done.returncode == 1
    report = json.loads(done.stdout)
    checks = {check["name"]: check for check in report["checks"]}
    assert report["ok"] is False
    assert checks["consul"]["status"] == "failed"
    assert "ROLLCALL_CONSUL_URL" in checks["consul"]["remedy"]
    assert checks["migrations"]["status"] == "failed"
    assert "newer Rollcall" in checks["migrations"]["remedy"]
    assert checks["settings"]["status"] == "warning"
    assert "ROLLCALL_WROKERS" in checks["settings"]["detail"]
    assert checks["postgres"]["status"] == "ok"
    for secret in settings.secrets:
        assert secret not in done.stdout + done.stderr


def test_db_commands(rollcall: Rollcall, empty_database: Settings) -> None:
    current = rollcall("db", "current", "--json", settings=empty_database)
    assert current.returncode == 1
    assert json.loads(current.stdout) == {"current": "base", "head": head()}
    refused = rollcall("worker", settings=empty_database)
    assert refused.returncode == 4
    assert "rollcall db upgrade" in one_line(refused)
    assert rollcall("db", "upgrade", settings=empty_database).returncode == 0
    assert rollcall("db", "current", settings=empty_database).returncode == 0
    assert rollcall("db", "downgrade", "base", settings=empty_database).returncode == 1
    down = rollcall("db", "downgrade", "base", "--yes", "--json", settings=empty_database)
    assert json.loads(down.stdout)["current"] == "base"
    wrong = rollcall("db", "upgrade", "nonsense", settings=empty_database)
    assert wrong.returncode == 2
    assert "nonsense" in one_line(wrong)


def test_a_newer_database_is_refused_by_everything_that_would_touch_it(
    rollcall: Rollcall, settings: Settings
) -> None:
    sql(settings.database_url, "UPDATE alembic_version SET version_num = '9999'")
    for command in (("worker",), ("db", "upgrade"), ("up",)):
        done = rollcall(*command, settings=settings)
        assert done.returncode == 4
        assert "9999" in one_line(done)


@pytest.mark.parametrize(
    ("variable", "value", "code"),
    [
        ("ROLLCALL_DATABASE_URL", f"postgresql:/u:{WRONG}@h", 2),
        ("ROLLCALL_BROKER_URL", f"http://:{WRONG}@h", 2),
        ("ROLLCALL_WORKERS", "many", 2),
        ("ROLLCALL_HOME", "/proc/nowhere", 5),
        ("ROLLCALL_CONSUL_BIN", "/no/such/consul", 2),
        ("ROLLCALL_DATABASE_URL_FILE", "/no/such/file", 2),
    ],
)
def test_bad_settings_are_one_line_that_names_the_variable(
    rollcall: Rollcall, variable: str, value: str, code: int
) -> None:
    done = rollcall("up", **{variable: value})
    assert done.returncode == code
    assert variable in one_line(done)


def test_a_wrong_password_is_one_line_without_the_password(
    rollcall: Rollcall, settings: Settings
) -> None:
    assert settings.database_url
    assert settings.broker_url
    for variable, url in (
        ("ROLLCALL_DATABASE_URL", settings.database_url),
        ("ROLLCALL_BROKER_URL", settings.broker_url),
    ):
        wrong = url.reveal().replace(url.credentials[0], WRONG)
        done = rollcall("worker", settings=settings, **{variable: wrong})
        assert done.returncode == 3
        assert variable in one_line(done)


def test_a_server_that_is_away_is_one_line(
    rollcall: Rollcall, settings: Settings, port: int
) -> None:
    for command, variable, url in (
        ("worker", "ROLLCALL_DATABASE_URL", f"postgresql://u:{WRONG}@127.0.0.1:{port}/x"),
        ("beat", "ROLLCALL_BROKER_URL", f"redis://:{WRONG}@127.0.0.1:{port}/0"),
        ("flower", "ROLLCALL_BROKER_URL", f"redis://:{WRONG}@127.0.0.1:{port}/0"),
    ):
        done = rollcall(command, settings=settings, **{variable: url})
        assert done.returncode == 3
        assert variable in one_line(done)


@pytest.mark.parametrize("server", ["postgres", "redis", "consul", "flower"])
def test_a_port_in_use_is_one_line(rollcall: Rollcall, consul: Path, server: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        variable = f"ROLLCALL_{server.upper()}_PORT"
        done = rollcall("up", ROLLCALL_CONSUL_BIN=str(consul), **{variable: port})
    assert done.returncode == 5
    assert port in one_line(done)
    assert variable in done.stderr


def test_a_missing_consul_says_exactly_what_to_install(
    rollcall: Rollcall, settings: Settings, tmp_path: Path
) -> None:
    environ = settings.at(consul_url=None, consul_bin=None).environment()
    for variable in ("ROLLCALL_CACHE", "ROLLCALL_CONSUL_BIN"):
        environ.pop(variable, None)
    done = subprocess.run(
        [sys.executable, "-m", "rollcall", "up"],
        env=environ | {"PATH": str(tmp_path), "HOME": str(tmp_path)},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 5
    assert "ROLLCALL_CONSUL_BIN" in one_line(done)


@pytest.mark.skipif(os.geteuid() != 0, reason="takes the right to write away from another user")
def test_a_read_only_folder_is_one_line(consul: Path) -> None:
    with throwaway_home("readonly") as home:
        closed = home.path / "closed"
        closed.mkdir()
        closed.chmod(0o555)
        done = subprocess.run(
            [
                *("setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups"),
                *("--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"),
                *(sys.executable, "-m", "rollcall", "up"),
            ],
            env=clean_environment()
            | {
                "ROLLCALL_HOME": str(closed / "home"),
                "ROLLCALL_CONSUL_BIN": str(consul),
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 5
        assert "ROLLCALL_HOME" in one_line(done)
        assert stat.S_IMODE(closed.stat().st_mode) == 0o555


def test_flower_does_not_listen_to_strangers_without_a_password(
    rollcall: Rollcall, settings: Settings
) -> None:
    done = rollcall("flower", settings=settings, ROLLCALL_FLOWER_ADDRESS="0.0.0.0")
    assert done.returncode == 2
    assert "ROLLCALL_FLOWER_BASIC_AUTH" in one_line(done)


def test_an_unknown_queue_is_refused_with_the_topics_there_are(
    rollcall: Rollcall, settings: Settings
) -> None:
    done = rollcall("worker", "--queues", "onex.nowhere.events", settings=settings)
    assert done.returncode == 2
    assert "onex.runtime.events" in one_line(done)


@pytest.mark.parametrize("words", [("nonsense",), ("up", "--workers", "0"), ("db",)])
def test_a_wrong_command_exits_with_two_and_shows_help(
    rollcall: Rollcall, words: tuple[str, ...]
) -> None:
    done = rollcall(*words)
    assert done.returncode == 2
    assert "rollcall" in done.stderr + done.stdout


@pytest.mark.parametrize(
    ("value", "level", "said"),
    [("5", "warning", "using 100"), ("fast", "error", "using 1000")],
)
def test_a_mended_tick_interval_is_logged(
    rollcall: Rollcall, settings: Settings, value: str, level: str, said: str
) -> None:
    done = rollcall(
        *("worker", "--queues", "none"), settings=settings, ONEX_RUNTIME_TICK_INTERVAL_MS=value
    )
    line = json.loads(done.stderr.splitlines()[0])
    assert (line["level"], said in line["event"]) == (level, True)


def test_help_says_what_every_command_does(rollcall: Rollcall) -> None:
    said = rollcall("--help").stdout
    for command in ("up", "down", "status", "doctor", "demo", "db", "worker", "beat", "flower"):
        assert command in said


def test_the_makefile_alone_prints_what_there_is(tmp_path: Path) -> None:
    done = subprocess.run(["make"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    for target in ("setup", "demo", "test", "check"):
        assert target in done.stdout
