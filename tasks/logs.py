"""Structured logs: one line an event, with its correlation id, past the redactor."""

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TextIO

import structlog
from structlog.stdlib import BoundLogger
from structlog.types import Processor

from tasks.redaction import Redactor
from tasks.settings import LogFormat, LogLevel, Settings

_LEVELS = {
    LogLevel.DEBUG: logging.DEBUG,
    LogLevel.INFO: logging.INFO,
    LogLevel.WARNING: logging.WARNING,
    LogLevel.ERROR: logging.ERROR,
}


class _Handler(logging.StreamHandler[TextIO]):
    """A stream handler that never prints the record it failed on: it might hold a secret."""

    def handleError(self, record: logging.LogRecord) -> None:
        kind = sys.exc_info()[0]
        sys.stderr.write(
            f"a line of {record.name} was not logged: {kind.__name__ if kind else '?'}\n"
        )


def configure_logging(settings: Settings, stream: TextIO | None = None) -> None:
    """Send structlog and the standard library through the same processors, redaction last."""
    stream = stream or sys.stderr
    before: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.stdlib.PositionalArgumentsFormatter(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    after: list[Processor] = [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
        structlog.processors.format_exc_info,
        Redactor(settings.secrets),
        _renderer(settings.log_format, stream),
    ]
    handler = _Handler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(foreign_pre_chain=before, processors=after)
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(_LEVELS[settings.log_level])
    logging.getLogger("alembic").setLevel(logging.WARNING)
    logging.captureWarnings(True)
    structlog.configure(
        processors=[*before, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=BoundLogger,
        cache_logger_on_first_use=False,
    )
    sys.excepthook = _log_uncaught
    threading.excepthook = lambda told: _log_uncaught(
        told.exc_type, told.exc_value or told.exc_type(), told.exc_traceback
    )
    for notice in settings.notices:
        logger("settings").log(_LEVELS[notice.level], notice.message)


def logger(name: str) -> BoundLogger:
    """A logger of our own tree."""
    bound: BoundLogger = structlog.stdlib.get_logger(f"rollcall.{name}")
    return bound


@contextmanager
def correlated(correlation_id: str, **more: str) -> Iterator[None]:
    """Every line logged within carries the correlation id, whoever logs it."""
    with structlog.contextvars.bound_contextvars(correlation_id=correlation_id, **more):
        yield


def _renderer(wanted: LogFormat, stream: TextIO) -> Processor:
    match wanted:
        case LogFormat.JSON:
            return structlog.processors.JSONRenderer(sort_keys=True)
        case LogFormat.CONSOLE:
            return structlog.dev.ConsoleRenderer(colors=stream.isatty())


def _log_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.exit(130)
    logger("crash").critical("uncaught", exc_info=(kind, error, trace))
