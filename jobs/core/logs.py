"""Log records of a command on stderr: lines for people, or one JSON object a line for daemons.

The loggers below `surveyor` are named like the modules below `jobs`. Records of
libraries are unchanged, with two exceptions: level debug shows all of them, cut off before a possible secret, and
the JSON format applies to them too.
"""

import json
import logging
import os
import re
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from enum import StrEnum
from types import TracebackType
from typing import Any, Final

import msgspec

from jobs.core import status_line
from jobs.core.masking import masked_text, truncate_secrets
from jobs.core.signals import set_last_line_format
from jobs.core.status_line import colored, escape_control_chars


class LogLevel(StrEnum):
    """The lowest level of the records that are written."""

    DEBUG = "debug"
    """Also the records of libraries, and the stack traces of unexpected errors."""
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    """Format of the records."""

    TEXT = "text"
    JSON = "json"


class _State:
    """The log of this process, which has one stderr."""

    format = LogFormat.TEXT
    cluster: str | None = None
    has_libraries = True
    """Whether level debug also shows the records of libraries."""
    has_hooks = False
    """Whether errors that end a thread or the process are logged."""
    quiet_loggers: Final[list[logging.Logger]] = []


_fleet_cluster: Final[ContextVar[str | None]] = ContextVar("fleet_cluster", default=None)
"""The cluster of a fleet that this thread works on."""


@contextmanager
def fleet_cluster_scope(cluster: str) -> Iterator[None]:
    """Name the cluster in each record of this thread, as other threads work on other clusters."""
    token = _fleet_cluster.set(cluster)
    try:
        yield
    finally:
        _fleet_cluster.reset(token)


def current_fleet_cluster() -> str | None:
    """Return the cluster of a fleet that this thread works on, None if a command has one cluster."""
    return _fleet_cluster.get()


class _Handler(logging.Handler):
    """Writes a record to stderr and removes the status line for it; an error in writing is the caller's."""

    def emit(self, record: logging.LogRecord) -> None:
        with status_line.suspended():
            print(_rendered(record), file=sys.stderr, flush=True)  # noqa: T201 - stderr is where the log goes


_HANDLER: Final = _Handler()
LOGGER: Final = logging.getLogger("surveyor")
LOGGER.setLevel(logging.INFO)
LOGGER.propagate = False
LOGGER.addHandler(_HANDLER)


def module_logger(module: str) -> logging.Logger:
    """Return the logger of a module, by its `__name__`.

    >>> module_logger("jobs.controller.lifecycle").name
    'surveyor.controller.lifecycle'
    """
    return LOGGER.getChild(module.removeprefix("jobs."))


def configure(
    level: LogLevel | None = None,
    log_format: LogFormat | None = None,
    *,
    cluster: str | None = None,
    with_libraries: bool | None = None,
) -> None:
    """Set what is logged from now on, and how; None leaves a setting unchanged.

    `with_libraries`: whether level debug also shows the records of libraries.
    """
    if level is not None:
        LOGGER.setLevel(level.upper())
    if with_libraries is not None:
        _State.has_libraries = with_libraries
    _State.format = log_format or _State.format
    _State.cluster = cluster or _State.cluster
    is_debug = _shows_libraries()
    _set_native_level(is_debug=is_debug)
    set_last_line_format(log_record)
    if is_json() and not _State.has_hooks:
        _State.has_hooks = True
        _log_unhandled_errors()
    status_line.allow(is_allowed=not is_json() and LOGGER.level <= logging.INFO)
    logging.captureWarnings(is_json())
    root = logging.getLogger()
    root.removeHandler(_HANDLER)
    if is_debug or is_json():  # otherwise logging itself writes the warnings of libraries
        root.addHandler(_HANDLER)
    root.setLevel(logging.DEBUG if is_debug else max(LOGGER.level, logging.WARNING))
    for logger in _State.quiet_loggers:
        _set_quiet(logger)


_NATIVE_LEVELS: Final = "RUST_LOG"
"""Environment variable of deltalake's own log, which is not Python's; deltalake reads it once, when it is imported."""

_QUIET_NATIVE_LEVELS: Final = "warn,aws_config=error,sail=error"
"""The embedded engine warns of each hint in a query, as it ignores hints.

A machine without a role logs each attempt to find one; the error of the command says that once.
"""


def _set_native_level(*, is_debug: bool) -> None:
    """Hide what deltalake logs of its attempts to find credentials, unless the user has set levels."""
    if not is_debug:
        os.environ.setdefault(_NATIVE_LEVELS, _QUIET_NATIVE_LEVELS)
    elif os.environ.get(_NATIVE_LEVELS) == _QUIET_NATIVE_LEVELS:
        del os.environ[_NATIVE_LEVELS]


def is_json() -> bool:
    """Return whether records are JSON objects."""
    return _State.format is LogFormat.JSON


def quiet_logger(name: str) -> logging.Logger:
    """Return a logger of a library all of whose errors are raised and reported once; only level debug shows it."""
    logger = logging.getLogger(name)
    _State.quiet_loggers.append(logger)
    _set_quiet(logger)
    return logger


def _set_quiet(logger: logging.Logger) -> None:
    logger.setLevel(logging.NOTSET if _shows_libraries() else logging.CRITICAL)


def _shows_libraries() -> bool:
    return LOGGER.level == logging.DEBUG and _State.has_libraries


def attach_handler(logger: logging.Logger) -> None:
    """Write the records of a library that would write them itself."""
    logger.handlers = [_HANDLER]


def log_record(line: str) -> str:
    """Return an error as `LOGGER.error` writes it; takes no lock, as signal handlers call it."""
    return _rendered(LOGGER.makeRecord(LOGGER.name, logging.ERROR, "", 0, line, (), None))


def _log_unhandled_errors() -> None:
    """Let an error that ends the process or a thread be a JSON record, too, while records are JSON."""
    end_process, end_thread = sys.excepthook, threading.excepthook

    def log_end(kind: type[BaseException], error: BaseException | None) -> None:
        LOGGER.critical("unexpected %s: %s", kind.__name__, error, exc_info=error)

    def process_hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        log_end(kind, error) if is_json() else end_process(kind, error, trace)

    def thread_hook(ended: threading.ExceptHookArgs) -> None:
        log_end(ended.exc_type, ended.exc_value) if is_json() else end_thread(ended)

    sys.excepthook, threading.excepthook = process_hook, thread_hook


_PREFIX: Final = re.compile(r"\A(?:surveyor: (?:warning: )?| +(?:\.\.\. )?)")
"""The beginning of a line for people that a record does not need."""


def _rendered(record: logging.LogRecord) -> str:
    message, trace = record.getMessage(), ""
    if not record.name.startswith(LOGGER.name):
        message = truncate_secrets(message)
    if record.exc_info and (is_json() or LOGGER.level == logging.DEBUG):
        trace = "".join(traceback.format_exception(*record.exc_info))
        trace = "\n".join(map(masked_text, trace.rstrip().split("\n")))
    cluster = current_fleet_cluster()
    if not is_json():
        if cluster is not None:
            prefix = _PREFIX.match(message)
            message = f"{prefix[0] if prefix else ''}{cluster}: {message[prefix.end() if prefix else 0 :]}"
        name = "" if record.name.startswith(LOGGER.name) else f"{record.name}: "
        text = "\n".join([f"{name}{message}", *([trace] if trace else [])])
        return colored(escape_control_chars(text), sys.stderr)
    fields: dict[str, Any] = {
        "time": msgspec.to_builtins(datetime.fromtimestamp(record.created, UTC)),
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": _PREFIX.sub("", message, count=1),
        "cluster": cluster or _State.cluster,
        **getattr(record, "fields", {}),
        "traceback": trace,
    }
    return json.dumps({name: value for name, value in fields.items() if value is not None and value != ""}, default=str)
