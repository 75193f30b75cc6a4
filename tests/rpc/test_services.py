"""The service tables, the protocol table and the error messages."""

from __future__ import annotations

import pytest

from tfmini import errors
from tfmini.rpc import messages as m
from tfmini.rpc import services
from tfmini.rpc.records import REGISTRY, Retry


def test_method_names_are_tensorflows() -> None:
    # The last of each is our own.
    assert list(services.MASTER) == [
        "create_session", "extend_session", "run_step", "make_callable", "run_callable",
        "release_callable", "close_session", "list_devices", "reset", "describe_wait",
    ]  # fmt: skip
    assert list(services.WORKER) == [
        "get_status", "create_worker_session", "delete_worker_session", "register_graph", "deregister_graph",
        "run_graph", "cleanup_graph", "cleanup_all", "logging", "describe_step",
    ]  # fmt: skip


def test_every_method_has_a_reply_and_a_retry_rule() -> None:
    for method in (*services.MASTER.values(), *services.WORKER.values()):
        assert method.reply is not None
        assert method.reply.row.is_reply
        assert method.retry in (Retry.SAFE, Retry.NEVER)
    assert services.method_of(services.WORKER, "run_graph").retry is Retry.NEVER


def test_unknown_method_is_refused() -> None:
    with pytest.raises(errors.UnimplementedError, match="unknown method 'fly'; the service has: cleanup_all"):
        services.method_of(services.WORKER, "fly")


def test_protocol_table_lists_every_kind() -> None:
    rows = services.protocol_table()
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
