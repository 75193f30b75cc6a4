"""The protocol table and the error messages."""

from __future__ import annotations

from tfmini import errors
from tfmini.rpc import messages as m
from tfmini.rpc.protocol_page import protocol_table
from tfmini.rpc.records import REGISTRY, Retry


def test_every_request_has_a_reply_and_a_retry_rule() -> None:
    for cls in REGISTRY.values():
        if cls.row.direction in (m.MASTER, m.WORKER) and not cls.row.is_reply:
            assert cls.row.reply is not None and cls.row.reply.row.is_reply
            assert cls.row.retry in (Retry.SAFE, Retry.NEVER)
    assert m.RunGraph.row.retry is Retry.NEVER


def test_protocol_table_lists_every_kind() -> None:
    rows = protocol_table()
    assert [row["kind"] for row in rows] == sorted(REGISTRY)
    run_graph = next(row for row in rows if row["name"] == "RunGraph")
    assert run_graph["reply"] == "RunGraphReply"
    assert run_graph["direction"] == "master->worker"
    assert ("feed_values", "tensors") in run_graph["fields"]


def test_errors_survive_as_status() -> None:
    error = errors.AbortedError(None, None, "gone", device="/device:CPU:0", task="/job:a", derived=True)
    error.node_name = "n"
    again = m.error_of(m.status_of(error, "/job:b"))
    assert type(again) is errors.AbortedError
    assert (again.message, again.device, again.task, again.derived, again.node_name) == (
        "gone", "/device:CPU:0", "/job:a", True, "n",
    )  # fmt: skip
    status = m.status_of(ValueError("bug"), "/job:b")
    assert (status.code, status.message, status.task) == (errors.INTERNAL, "ValueError: bug", "/job:b")
