"""``tf.logging``: the logger "tensorflow", which writes to stderr in TensorFlow's format (``INFO:tensorflow:…``)."""

from __future__ import annotations

import logging
import sys
import traceback
from collections import Counter
from logging import DEBUG, ERROR, FATAL, INFO, WARN  # noqa: F401 - names of tf.logging
from types import FrameType
from typing import Any

from tfmini.export import export, export_names
from tfmini.library_log import library_logger, set_level

_calls: Counter[tuple[str, int]] = Counter()


@export("tf.get_logger")
def get_logger() -> logging.Logger:
    """The logger "tensorflow" (``tf.get_logger``); it writes to stderr unless the root logger has handlers."""
    logger = library_logger()
    logger.findCaller = _find_caller  # type: ignore[method-assign] # reports the user's line, not one of this file
    return logger


def _caller() -> FrameType | None:
    """The innermost frame outside this file and Python's logging module."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename in (__file__, logging.__file__):
        frame = frame.f_back
    return frame


def _find_caller(stack_info: bool = False, stacklevel: int = 1) -> tuple[str, int, str, str | None]:
    stack = "".join(traceback.format_stack()) if stack_info else None
    frame = _caller()
    if frame is None:
        return "(unknown file)", 0, "(unknown function)", stack
    return frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name, stack


@export("tf.logging.log")
def log(level: int, msg: object, *args: object, **kwargs: Any) -> None:
    """Logs ``msg % args`` at ``level`` (``tf.logging.log``)."""
    get_logger().log(level, msg, *args, **kwargs)


vlog = log


@export("tf.logging.debug")
def debug(msg: object, *args: object, **kwargs: Any) -> None:
    """Logs at the level debug (``tf.logging.debug``)."""
    get_logger().debug(msg, *args, **kwargs)


@export("tf.logging.info")
def info(msg: object, *args: object, **kwargs: Any) -> None:
    """Logs at the level info (``tf.logging.info``)."""
    get_logger().info(msg, *args, **kwargs)


@export("tf.logging.warning")
def warning(msg: object, *args: object, **kwargs: Any) -> None:
    """Logs at the level warning (``tf.logging.warning``)."""
    get_logger().warning(msg, *args, **kwargs)


warn = warning


@export("tf.logging.error")
def error(msg: object, *args: object, **kwargs: Any) -> None:
    """Logs at the level error (``tf.logging.error``)."""
    get_logger().error(msg, *args, **kwargs)


@export("tf.logging.fatal")
def fatal(msg: object, *args: object, **kwargs: Any) -> None:
    """Logs at the highest level; the program continues, as in TensorFlow (``tf.logging.fatal``)."""
    get_logger().fatal(msg, *args, **kwargs)


@export("tf.logging.TaskLevelStatusMessage")
def TaskLevelStatusMessage(msg: object) -> None:
    """Logs as an error (``tf.logging.TaskLevelStatusMessage``)."""
    error(msg)


@export("tf.logging.log_if")
def log_if(level: int, msg: object, condition: object, *args: object) -> None:
    """Logs if ``condition`` is true (``tf.logging.log_if``)."""
    if condition:
        log(level, msg, *args)


@export("tf.logging.log_every_n")
def log_every_n(level: int, msg: object, n: int, *args: object) -> None:
    """Logs every n-th call from the same line, beginning with the first (``tf.logging.log_every_n``)."""
    log_if(level, msg, _earlier_calls() % n == 0, *args)


@export("tf.logging.log_first_n")
def log_first_n(level: int, msg: object, n: int, *args: object) -> None:
    """Logs the first n calls from the same line (``tf.logging.log_first_n``)."""
    log_if(level, msg, _earlier_calls() < n, *args)


def _earlier_calls() -> int:
    frame = _caller()
    line = (frame.f_code.co_filename, frame.f_lineno) if frame is not None else ("", 0)
    count = _calls[line]
    _calls[line] += 1
    return count


@export("tf.logging.flush")
def flush() -> None:
    """Flushes the handlers (``tf.logging.flush``)."""
    for handler in get_logger().handlers:
        handler.flush()


@export("tf.logging.get_verbosity")
def get_verbosity() -> int:
    """The lowest level that is logged (``tf.logging.get_verbosity``)."""
    return get_logger().getEffectiveLevel()


@export("tf.logging.set_verbosity")
def set_verbosity(v: int | str) -> None:
    """Sets the lowest level that is logged (``tf.logging.set_verbosity``).

    Args:
      v: a level: ``tf.logging.DEBUG``, ``INFO``, ``WARN``, ``ERROR`` or ``FATAL``, or its name.
    """
    set_level(v)


export_names("tf.logging", "DEBUG ERROR FATAL INFO WARN vlog warn")
