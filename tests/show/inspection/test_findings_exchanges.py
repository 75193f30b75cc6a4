"""The messages of a step that the inspector shows, and that the documents count, are those that tasks send."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.launch.local import reserve_cluster
from tfmini.launch.supervision import TaskId
from tfmini.placement.task_graph import Route
from tfmini.rpc import codec, link, messages, peer
from tfmini.show.inspection.api import inspect
from tfmini.show.inspection.findings import overview
from tfmini.show.inspection.pictures import picture, picture_of_tasks
from tfmini.show.inspection.text import show
from tfmini.show.inspection.trace import StepTrace

STEPS = 3
_OF_CONNECTIONS = (
    *(messages.Hello, messages.HelloReply, messages.Status, messages.Acknowledged, messages.Cancel),
    *(messages.Heartbeat, messages.Goodbye, messages.LaneSwitch),
)


@contextmanager
def servers(ps: int) -> Iterator[tf.train.Server]:
    """A cluster of so many ps and one worker in this process; gives the worker's server."""
    reserved = reserve_cluster([*(TaskId("ps", i) for i in range(ps)), TaskId("worker", 0)])
    reserved.close()
    with ExitStack() as stack:
        for task in reserved.listeners:
            server = tf.train.Server(reserved.spec, job_name=task.job, task_index=task.task)
            stack.callback(server.stop)
        yield server


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of all messages that this process has sent, without those of connections (heartbeats, …)."""
    kinds: list[str] = []

    def spied(message: Any, *args: Any) -> Any:
        if not isinstance(message, _OF_CONNECTIONS):
            kinds.append(type(message).__name__)
        return codec.encode(message, *args)

    for module in (peer, link):
        monkeypatch.setattr(module, "encode", spied)
    return kinds


def training_op(ps: int, counts_steps: bool) -> tf.Operation:
    """The training op of a model with four variables; each of up to four ps has at least one."""
    with tf.device(tf.train.replica_device_setter(ps_tasks=ps, worker_device="/job:worker/task:0")):
        hidden = tf.nn.relu(tf.matmul(tf.ones([8, 3]), tf.get_variable("W1", [3, 4])) + tf.get_variable("b1", [4]))
        logits = tf.matmul(hidden, tf.get_variable("W2", [4, 2])) + tf.get_variable("b2", [2])
        global_step = tf.train.get_or_create_global_step() if counts_steps else None
        return tf.train.AdagradOptimizer(0.1).minimize(tf.reduce_mean(tf.square(logits)), global_step=global_step)


@pytest.mark.parametrize("counts_steps", [True, False], ids=["with a global step", "without"])
@pytest.mark.parametrize("ps", [1, 2, 4])
def test_a_training_step_sends_the_messages_that_are_shown(ps: int, counts_steps: bool, sent: list[str]) -> None:
    train = training_op(ps, counts_steps)
    shown = inspect(fetches=train, ps=ps, workers=1).messages()
    with servers(ps) as server, tf.Session(server.target) as session:
        session.run(tf.global_variables_initializer())
        session.run(train)
        sent.clear()
        for _ in range(STEPS):
            session.run(train)
        kinds = list(sent)  # before the tasks get the end of the session
    between_tasks = [message for message in shown if "client" not in (message.src, message.dst)]
    assert len(kinds) == STEPS * len(between_tasks)
    assert kinds.count("RunGraph") == kinds.count("RunGraphReply") == STEPS * ps
    # As docs/concepts/concepts.md says: four with one ps; with more of them five each, and one that counts the step.
    assert len(between_tasks) == (4 if ps == 1 else 5 * ps + counts_steps)


def wire_bytes(session: tf.Session, fetches: Any, feeds: dict[Any, Any]) -> int:
    """The bytes that a traced step sends between tasks."""
    metadata = tf.RunMetadata()
    options = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE)
    session.run(fetches, feeds, options=options, run_metadata=metadata)
    return sum(span.bytes for span in StepTrace.of(metadata.step_stats).of_kind("wire"))


def test_bytes_of_a_loop_are_those_of_one_iteration_and_say_so() -> None:
    with tf.device("/job:worker/task:0"):
        start, rounds = tf.placeholder(tf.float32, [10, 10], name="x"), tf.placeholder(tf.int32, [], name="rounds")

    def body(i: tf.Tensor, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.device("/job:ps/task:0"):
            x = tf.matmul(x, x)
        with tf.device("/job:worker/task:0"):
            return i + 1, x

    with tf.device("/job:worker/task:0"):
        out = tf.while_loop(lambda i, x: i < rounds, body, [tf.constant(0), start])[1]
    found = inspect(fetches=out, ps=1, workers=1)
    inside = [t for t in found.transfers if t.route is Route.SENT]
    assert {t.purpose for t in inside} == {f"{role} in each iteration of while" for role in ("tensor", "condition")}
    assert {t.bytes for t in inside} == {400, 1}
    assert "801 B an iteration" in show(found, "wire") and "one iteration" in show(found, "tasks")
    texts = [message.text for message in found.messages() if message.transfers]
    assert [text.partition(" ")[0] for text in texts] == ["tensor", "condition", "tensor"]
    with servers(1) as server, tf.Session(server.target) as session:
        sent = [wire_bytes(session, out, {start: np.zeros((10, 10)), rounds: n}) for n in (3, 4)]
    assert sent == [3 * 801 + 1, 4 * 801 + 1]  # the condition travels once more, to say that the loop ends


def test_a_value_behind_a_condition_is_shown_as_one_that_may_not_travel() -> None:
    with tf.device("/job:worker/task:0"):
        takes, value = tf.placeholder(tf.bool, [], name="takes"), tf.placeholder(tf.float32, [100], name="value")

    def doubled() -> tf.Tensor:
        with tf.device("/job:ps/task:0"):
            return value * 2.0

    with tf.device("/job:worker/task:0"):
        out = tf.cond(takes, doubled, lambda: tf.identity(value))
    found = inspect(fetches=out, ps=1, workers=1)
    there = [t for t in found.transfers if t.bytes]
    assert {t.purpose for t in there} == {"tensor if its branch is taken"}
    assert "800 B at most" in show(found, "wire")
    with servers(1) as server, tf.Session(server.target) as session:
        sent = [wire_bytes(session, out, {takes: taken, value: np.zeros(100)}) for taken in (True, False)]
    assert sent == [800, 0]


def test_the_result_of_a_conditional_always_travels() -> None:
    """Of its branches one is taken, also where it copies its predicate for values from outside."""
    with tf.device("/job:worker/task:0"):
        takes, value = tf.placeholder(tf.bool, [], name="takes"), tf.placeholder(tf.float32, [100], name="value")
        either = tf.cond(takes, lambda: value * 2.0, lambda: tf.ones([100]))
    with tf.device("/job:ps/task:0"):
        out = tf.negative(either)
    found = inspect(fetches=out.op, ps=1, workers=1)
    assert [(t.tensor, t.purpose, t.is_conditional) for t in found.transfers] == [("cond/Merge:0", "tensor", False)]
    assert "400 B\n" in show(found, "wire")
    with servers(1) as server, tf.Session(server.target) as session:
        for taken in (True, False):
            assert wire_bytes(session, out.op, {takes: taken, value: np.zeros(100)}) == 400


def test_a_branch_inside_of_a_loop_is_shown_as_one_that_an_iteration_may_not_take() -> None:
    with tf.device("/job:worker/task:0"):
        rounds = tf.placeholder(tf.int32, [], name="rounds")

    def body(i: tf.Tensor, x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        def root() -> tf.Tensor:
            with tf.device("/job:ps/task:0"):
                return tf.sqrt(x)

        with tf.device("/job:worker/task:0"):
            return i + 1, tf.cond(tf.equal(i % 2, 0), root, lambda: x + 1.0)

    with tf.device("/job:worker/task:0"):
        out = tf.while_loop(lambda i, x: i < rounds, body, [tf.constant(0), tf.ones([10])])[1]
    found = inspect(fetches=out, ps=1, workers=1)
    inside = {t.tensor: t.purpose for t in found.transfers if t.route is Route.SENT}
    assert inside["while/cond/Sqrt:0"] == "tensor in each iteration of while that takes its branch"
    assert inside["while/LoopCond:0"] == "condition in each iteration of while"
    assert "41 B an iteration at most" in show(found, "wire") and "40 B an iteration at most" in show(found, "wire")
    with servers(1) as server, tf.Session(server.target) as session:
        assert wire_bytes(session, out, {rounds: 5}) == 3 * 80 + 6  # iterations 0, 2 and 4 take the branch


def lookup_training(parts: int) -> tf.Operation:
    """The training op of a table in parts on so many ps, with a lookup of 16 ids that are fed."""
    with tf.device(tf.train.replica_device_setter(ps_tasks=parts, worker_device="/job:worker/task:0")):
        ids = tf.placeholder(tf.int64, [16], name="ids")
        table = tf.get_variable("table", [100, 4], partitioner=tf.fixed_size_partitioner(parts))
        loss = tf.reduce_sum(tf.nn.embedding_lookup(table, ids, partition_strategy="div"))
        return tf.train.GradientDescentOptimizer(0.1).minimize(loss)


def test_messages_come_after_those_that_they_wait_for() -> None:
    train = lookup_training(2)
    found = inspect(fetches=train, ps=2, workers=1)
    texts = [message.text for message in found.messages()]
    for part in ("table/part_0", "table/part_1"):
        asks = next(i for i, text in enumerate(texts) if f"ids for {part}" in text)
        assert f"ids of the gradient of {part}" in texts[asks]
        assert asks < texts.index(f"rows of {part}") < texts.index(f"gradient of {part}")


def test_a_message_that_waits_for_a_collective_comes_after_it() -> None:
    with tf.device("/job:worker/task:0"):
        total = tf.collective_ops.all_reduce(tf.ones([300_000]), 3, 1, 1, "Add", "Id")
        with tf.device("/job:ps/task:0"):
            done = tf.reduce_sum(total)
    found = inspect(fetches=done.op.name, ps=1, workers=3)
    messages = found.messages()
    texts = [message.text for message in messages]
    assert texts.index("tensor") > max(i for i, text in enumerate(texts) if text == "all-reduce")
    assert [message.count for message in messages if message.text == "all-reduce"] == [4, 4, 4]
    assert "all-reduce (1,600,000 B in 4 messages)" in show(found, "step")
    assert "all links: 4 in 13 message(s)" in show(found, "wire")


def test_a_long_list_of_feeds_is_cut() -> None:
    with tf.device("/job:worker/task:0"):
        total = tf.add_n([tf.placeholder(tf.float32, [], name=f"x{i}") for i in range(9)])
    first, *_, last = inspect(fetches=total, workers=1).messages()
    assert first.text == "run AddN:0 with x0:0, x1:0, x2:0, x3:0 and 5 more"
    assert last.text == "the answer, with AddN:0"


def test_what_has_an_unknown_size_is_no_order_without_bytes() -> None:
    with tf.device("/job:worker/task:0"):
        value = tf.placeholder(tf.float32, [None], name="value") * 2.0
    with tf.device("/job:ps/task:0"):
        out = value + 1.0
    with tf.device("/job:ps/task:1"), tf.control_dependencies([out]):
        tf.no_op("later")
    found = inspect(fetches=[out.op.name, "later"], ps=2, workers=1)
    lines = {(line.source, line.target): line for line in picture_of_tasks(found, folded=False).wires}
    assert (lines["worker/0", "ps/0"].kind, lines["worker/0", "ps/0"].label) == ("wire unknown", "? B")
    assert "dotted, ?" in picture_of_tasks(found, folded=False).svg()
    assert (lines["ps/0", "ps/1"].kind, lines["ps/0", "ps/1"].label) == ("order", "")
    assert "sends 0 B + ?" in picture_of_tasks(found, folded=False).svg()
    assert "tensor (? B)" in show(found, "step")


def test_a_condition_and_the_rows_behind_a_lookup_have_their_roles() -> None:
    with tf.device("/job:worker/task:0"):
        ids, takes = tf.placeholder(tf.int64, [16], name="ids"), tf.placeholder(tf.bool, [], name="takes")
        with tf.device("/job:ps/task:0"):
            table = tf.get_variable("table", [100, 4])
            rows = tf.nn.embedding_lookup(table, ids)
        chosen = tf.cond(takes, lambda: tf.reduce_sum(table) * 2.0, lambda: tf.reduce_sum(rows))
    found = inspect(fetches=chosen, ps=1, workers=1)
    assert {t.role for t in found.transfers if t.producer.endswith("pred_id")} == {"condition"}
    assert "rows of table" in {t.role for t in found.transfers}


def test_what_is_not_listed_is_in_the_sums_that_were_measured() -> None:
    train = lookup_training(4)
    options, metadata = tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), tf.RunMetadata()
    with servers(4) as server, tf.Session(server.target) as session:
        session.run(tf.global_variables_initializer())
        session.run(train, {"ids:0": np.arange(16)}, options=options, run_metadata=metadata)
    found = inspect(fetches=train, ps=4, workers=1, trace=metadata)
    wire = show(found, "wire")
    assert "1 more" not in wire and "ids of the gradient of table/part_3" in wire
    sent = sum(span.bytes for span in StepTrace.of(metadata.step_stats).of_kind("wire"))
    assert f"; {sent:,} B were sent" in wire.splitlines()[-1]
    assert "The busiest link by the sizes that are known is" in "".join(overview(found).sentences())


def test_the_width_of_a_line_does_not_say_that_a_few_bytes_are_the_most() -> None:
    """The lines of 8 B were the thickest, beside the rows of a table, whose number is unknown."""
    train = lookup_training(2)
    wires = [line for line in picture(inspect(fetches=train, ps=2, workers=1)).wires if line.kind.startswith("wire")]
    shares = {kind: {line.share for line in wires if line.kind == kind} for kind in ("wire", "wire unknown")}
    assert max(shares["wire"]) < min(shares["wire unknown"])
