"""Structured logs: one line an event, correlated, redacted, whoever logs it."""

import io
import json
import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from tasks.logs import configure_logging, correlated, logger
from tasks.settings import LogFormat, LogLevel, Notice, Settings

SECRET = "sw0rdf1sh-42"
SETTINGS = Settings.from_environment(
    {
        "ROLLCALL_LOG_FORMAT": "json",
        "ROLLCALL_DATABASE_URL": f"postgresql://u:{SECRET}@db.example/fleet",
    }
)


@pytest.fixture
def lines() -> Iterator[Any]:
    """Configures the logs onto a stream and gives what was written, parsed."""
    root, hooks = logging.getLogger(), (sys.excepthook, threading.excepthook)
    before, level = root.handlers[:], root.level
    stream = io.StringIO()
    configure_logging(SETTINGS, stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    root.handlers[:] = before
    root.setLevel(level)
    logging.captureWarnings(False)
    structlog.reset_defaults()
    sys.excepthook, threading.excepthook = hooks


def test_every_line_within_carries_the_correlation_id_whoever_logs_it(lines: Any) -> None:
    with correlated("c-1", task="t"):
        logger("a").info("ours", node="n1")
        logging.getLogger("somebody.else").warning("theirs %s", 7)
    logger("a").info("outside")
    ours, theirs, outside = lines()
    assert (ours["correlation_id"], theirs["correlation_id"]) == ("c-1", "c-1")
    assert theirs["event"] == "theirs 7"
    assert ours["node"] == "n1"
    assert "correlation_id" not in outside
    assert ours["timestamp"].endswith("Z")


def test_an_exception_is_logged_without_its_secret(lines: Any) -> None:
    try:
        raise ConnectionError(f"no route to redis://:{SECRET}@h/0")
    except ConnectionError:
        logger("a").exception("failed")
        logging.getLogger("b").exception("failed too")
    text = json.dumps(lines())
    assert text.count("ConnectionError") >= 2
    assert SECRET not in text


def test_a_known_secret_without_any_context_is_hidden(lines: Any) -> None:
    logging.getLogger("celery").error("it said %r", SECRET)
    logging.getLogger("celery").error(SECRET)
    assert SECRET not in json.dumps(lines())


def test_a_bound_value_under_a_telling_name_is_hidden(lines: Any) -> None:
    logger("a").info("x", consul_token="other-secret-9", nested={"password": "other-secret-9"})
    assert "other-secret-9" not in json.dumps(lines())


def test_an_uncaught_exception_is_logged_and_redacted(lines: Any) -> None:
    try:
        raise RuntimeError(f"password={SECRET}")
    except RuntimeError as error:
        sys.excepthook(RuntimeError, error, error.__traceback__)
    (line,) = lines()
    assert line["level"] == "critical"
    assert SECRET not in json.dumps(line)


def test_a_thread_that_dies_is_logged_and_redacted(lines: Any) -> None:
    def die() -> None:
        raise RuntimeError(f"password={SECRET}")

    thread = threading.Thread(target=die)
    thread.start()
    thread.join()
    assert "RuntimeError" in json.dumps(lines())
    assert SECRET not in json.dumps(lines())


def test_warnings_go_the_same_way(lines: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(False)
        logging.captureWarnings(True)
        warnings.warn(f"old url redis://:{SECRET}@h", stacklevel=1)
    text = json.dumps(lines())
    assert "old url" in text
    assert SECRET not in text


def test_a_record_that_cannot_be_formatted_is_not_printed_raw(
    lines: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    logging.getLogger("bad").info("%d " + SECRET, "not a number")
    assert SECRET not in capsys.readouterr().err
    assert SECRET not in json.dumps(lines())


def test_what_the_settings_mended_is_said() -> None:
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    stream = io.StringIO()
    try:
        configure_logging(
            Settings(
                log_format=LogFormat.CONSOLE, notices=(Notice(LogLevel.WARNING, "clamped to 100"),)
            ),
            stream,
        )
    finally:
        root.handlers[:] = before
        root.setLevel(level)
        logging.captureWarnings(False)
        structlog.reset_defaults()
    assert "warning" in stream.getvalue()
    assert "clamped to 100" in stream.getvalue()
