"""Logs as one JSON object per line, for programs that collect them (``--log-json``, `LOG_JSON_ENV`).

The fields are ``time`` (UTC, ISO 8601), ``level``, ``logger``, ``task`` (such as ``worker/0``; "" outside a cluster),
``pid``, ``message``, and for an exception ``exception``, its traceback.
"""

from __future__ import annotations

import datetime
import json
import logging
import os
import sys
from typing import Any

LOG_JSON_ENV = "TFMINI_LOG_JSON"
_START = b'{"time": '
_FIELDS = {**dict.fromkeys(("time", "level", "logger", "task", "message", "exception"), str), "pid": int}


def is_wanted() -> bool:
    """Whether this process logs as JSON."""
    return os.environ.get(LOG_JSON_ENV) == "1"


def json_line(message: str, task: str, **fields: object) -> str:
    """One line, without its end. ``fields``: replace or follow the usual ones."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
    return json.dumps({"time": now, "level": "INFO", "logger": "", "task": task, "message": message, **fields})


def relayed(line: bytes, task: str) -> str | None:
    """A line of `json_line` that a process has written, as one of ``task``; None if it is no such line.

    A script can print what looks like one. So it is read and written anew, and says whose it is.
    """
    if not (line.startswith(_START) and line.endswith(b"}")):
        return None
    try:
        found = json.loads(line, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict) or any(type(found[name]) is not _FIELDS.get(name) for name in found):
        return None
    return json.dumps({**found, "task": task}) if {"time", "level", "message"} <= found.keys() else None


def message_of(line: str) -> str:
    """The message of a line of `json_line`; any other line as it is."""
    text = relayed(line.encode(), "")
    return line if text is None else str(json.loads(text)["message"])


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")


class JsonFormatter(logging.Formatter):
    """Formats records as JSON."""

    def __init__(self) -> None:
        super().__init__()
        self._task = _task_of(os.environ.get("TF_CONFIG", ""))

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line."""
        when = datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(timespec="milliseconds")
        fields: dict[str, Any] = {
            "time": when, "level": record.levelname, "logger": record.name, "pid": record.process,
        }  # fmt: skip
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json_line(record.getMessage(), self._task, **fields)


class JsonHandler(logging.StreamHandler[Any]):
    """Writes JSON to stderr, as it is at that time."""

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(JsonFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        """Writes one record."""
        self.stream = sys.stderr
        super().emit(record)


def install() -> None:
    """Lets the library's loggers write JSON, and nothing else. Idempotent."""
    for name in ("tensorflow", "tfmini"):
        logger = logging.getLogger(name)
        if not any(isinstance(handler, JsonHandler) for handler in logger.handlers):
            logger.handlers[:] = [JsonHandler()]
            logger.propagate = False


def _task_of(config: str) -> str:
    try:
        task = json.loads(config or "{}").get("task", {})
        return f"{task['type']}/{task['index']}"
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ""
