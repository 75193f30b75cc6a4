"""The declarations of messages."""

from __future__ import annotations

import re
from pathlib import Path

import tfmini
from tfmini import errors
from tfmini.launch import agent_messages  # noqa: F401 - it registers its kinds
from tfmini.rpc import messages as m
from tfmini.rpc.records import REGISTRY, Retry


def test_every_request_has_a_reply_and_a_retry_rule() -> None:
    for cls in REGISTRY.values():
        if cls.row.direction in (m.MASTER, m.WORKER) and not cls.row.is_reply:
            assert cls.row.reply is not None and cls.row.reply.row.is_reply
            assert cls.row.retry in (Retry.SAFE, Retry.NEVER)
    assert m.RunGraph.row.retry is Retry.NEVER


def test_every_kind_is_sent() -> None:
    sources = [path.read_text() for path in Path(tfmini.__file__).parent.rglob("*.py")]
    built = {name for text in sources for name in re.findall(r"(?<!class )\b([A-Z]\w+)\(", text)}
    assert {cls.__name__ for cls in REGISTRY.values()} - built == set()


def test_an_error_is_the_same_after_its_status() -> None:
    error = errors.AbortedError.of("gone", device="/device:CPU:0", task="/job:a", derived=True)
    error.node_name = "n"
    again = m.error_of(m.status_of(error, "/job:b"))
    assert type(again) is errors.AbortedError
    assert (again.message, again.device, again.task, again.derived, again.node_name) == (
        "gone", "/device:CPU:0", "/job:a", True, "n",
    )  # fmt: skip
    status = m.status_of(ValueError("bug"), "/job:b")
    assert (status.code, status.message, status.task) == (errors.INTERNAL, "ValueError: bug", "/job:b")
