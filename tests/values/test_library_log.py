"""Records of the runtime are one line each, whoever wrote the words in them."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import numpy as np
import pytest

import tfmini.rpc  # noqa: F401 - guards the logs
from tfmini import library_log

PACKAGE = Path(library_log.__file__).parent
EVIL = "x\n2026-01-01 INFO tfmini.rpc: all peers admitted\x1b[2J"


def formatted(record: logging.LogRecord) -> str:
    return logging.Formatter("%(levelname)s %(message)s").format(record)


@pytest.mark.parametrize("name", library_log.RUNTIME_LOGGERS)
def test_an_argument_cannot_forge_a_record(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    with caplog.at_level(logging.WARNING, name):
        logging.getLogger(name).warning("%s is lost after %.1f s: %s %d", EVIL, 2.5, ValueError(EVIL), np.int64(3))
        logging.getLogger(name).warning("fine %r %d%%", EVIL, 3)
    shown = r"x\n2026-01-01 INFO tfmini.rpc: all peers admitted\x1b[2J"
    assert [formatted(record) for record in caplog.records] == [
        f"WARNING {shown} is lost after 2.5 s: {shown} 3", f"WARNING fine '{shown}' 3%",
    ]  # fmt: skip
    assert caplog.records[1].msg == "fine %r %d%%"  # as programs know it that collect records


def test_a_traceback_cannot_forge_a_record(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError(EVIL)
    except ValueError:
        logging.getLogger("tfmini.rpc").exception("a handler failed")
    head, *traceback = formatted(caplog.records[-1]).splitlines()
    assert head == "ERROR a handler failed" and any("ValueError: x" in line for line in traceback)
    assert all(line.startswith("  ") and "\x1b" not in line for line in traceback)


def test_every_logger_of_the_runtime_is_guarded() -> None:
    found = set()
    for path in PACKAGE.rglob("*.py"):
        found |= set(re.findall(r"""_log = logging\.getLogger\("(tfmini\.\w+)"\)""", path.read_text()))
    assert found == set(library_log.RUNTIME_LOGGERS)
