"""The logger "tensorflow", to which the library itself logs, as `tf.logging` does."""

from __future__ import annotations

import contextlib
import logging
import os
import sys

from tfmini.printable import printable


class StderrHandler(logging.Handler):
    """Writes TensorFlow's format (``INFO:tensorflow:…``) to stderr, unless the program has handlers of its own."""

    def emit(self, record: logging.LogRecord) -> None:
        if any(not type(handler).__module__.startswith("absl.") for handler in logging.getLogger().handlers):
            return  # they get the record, too
        stream = sys.stdout if _is_interactive() else sys.stderr
        stream.write(self.format(record) + "\n")
        stream.flush()


def _is_interactive() -> bool:
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)


def library_logger() -> logging.Logger:
    """The logger "tensorflow", with its handler."""
    logger = logging.getLogger("tensorflow")
    if os.environ.get("TFMINI_LOG_JSON") == "1":
        from tfmini import json_log  # late, because few want it

        json_log.install()
        return logger
    if not any(isinstance(handler, StderrHandler) for handler in logger.handlers):
        handler = StderrHandler()
        handler.setFormatter(logging.Formatter(logging.BASIC_FORMAT))
        logger.addHandler(handler)
        if _is_interactive() and logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)
    return logger


_RUNTIME = ("tfmini.rpc", "tfmini.runtime", "tfmini.ops")


class _OneLine(logging.Filter):
    """Keeps a record of the runtime on one line: a peer's name or error could otherwise forge a record of its own.

    The lines of a traceback are indented, for the same reason.
    """

    _formatter = logging.Formatter()

    def filter(self, record: logging.LogRecord) -> bool:
        with contextlib.suppress(TypeError, ValueError):  # its handler reports what cannot be formatted
            text = record.getMessage()
            if not text.isprintable():
                record.msg, record.args = printable(text), ()
        if record.exc_info and not record.exc_text:
            lines = self._formatter.formatException(record.exc_info).split("\n")
            record.exc_text = "\n".join(f"  {printable(line)}" for line in lines)
        return True


_one_line = _OneLine()


def guard_runtime_logs() -> None:
    """Lets the runtime's records show what others have written without its control characters. Idempotent."""
    for name in _RUNTIME:
        logging.getLogger(name).addFilter(_one_line)


def set_level(level: int | str) -> None:
    """Sets the lowest level that the library logs; of the runtime's own messages, warnings are always logged."""
    library_logger().setLevel(level)
    runtime = logging.getLogger("tfmini")
    runtime.setLevel(level)
    runtime.setLevel(min(runtime.level, logging.WARNING))
