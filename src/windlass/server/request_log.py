"""Logs as lines of JSON or text: who asked for what, with ids of runs, and never their content."""

import logging
import sys
import time
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, cast

import msgspec
from typing_extensions import override

from windlass.logs import get_logger

_encode_json = msgspec.json.Encoder().encode
STARTED_SESSION: ContextVar[str] = ContextVar("started_session", default="")
"""The session of the run that the present request started, so that its log line can name it."""


class JsonFormatter(logging.Formatter):
    """Writes a record as one JSON object."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        fields: dict[str, Any] = {
            "time": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_fields_of(record),
        }
        error = _error_of(self, record)
        if error:
            fields["error"] = error
        return _encode_json(fields).decode()


class TextFormatter(logging.Formatter):
    """Writes a record as a line for people."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%H:%M:%S", time.localtime(record.created))
        fields = _fields_of(record).items()
        more = "".join(f" {name}={_to_word(value)}" for name, value in fields if value != "")
        error = "\n".join(map(_to_line, _error_of(self, record).splitlines()))
        return f"{stamp} {_to_line(record.getMessage())}{more}" + (f"\n{error}" if error else "")


def _to_line(text: str) -> str:
    """Return text without what ends a line or commands a terminal: clients choose some of it."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def _to_word(value: object) -> str:
    """Return a value that cannot be taken for several fields."""
    text = str(value)
    return text if text.isprintable() and " " not in text else repr(text)


def _fields_of(record: logging.LogRecord) -> Mapping[str, Any]:
    """Return what was logged besides the message, by `extra={"windlass": …}`."""
    fields = getattr(record, "windlass", None)
    return cast("Mapping[str, Any]", fields) if isinstance(fields, Mapping) else {}


def _error_of(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    if record.exc_text:
        return record.exc_text
    return formatter.formatException(record.exc_info) if record.exc_info else ""


def set_up_logs(kind: str, level: int = logging.INFO) -> None:
    """Write the logs of Windlass to standard error, as `json` or as `text`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if kind == "json" else TextFormatter())
    logger = get_logger("windlass")
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False
