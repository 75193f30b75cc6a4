"""Which values share a message: never one that may have to wait with one that another task waits for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import tfmini as tf
from tests.placement.letters import DEVICE, cut, node, world
from tfmini.graph.op_types import KERNELS, OPS, load_ops, may_wait
from tfmini.ops.queues.staging import MapStagingArea

load_ops()
_WAITING = sorted({op_type for (op_type, _), kernel in KERNELS.items() if kernel.is_async or kernel.may_block})


def _shares_a_message(op_type: str) -> bool:
    """Whether a value that needs an op of this type travels with one that does not."""
    nodes, placement = world("A1=Const", "A2=Const", "A3=Const ^A2", "B1=Gather A1 A3")
    nodes["A2"] = node("A2", op_type)
    parts = cut(nodes, placement)
    own = {p.source[0]: p.group for p in parts.pairs if p.dst.device == DEVICE["B"]}
    return own["A1"] == own["A3"]


@pytest.mark.parametrize("op_type", _WAITING)
def test_an_op_that_answers_later_holds_up_only_what_needs_it(op_type: str) -> None:
    assert may_wait(op_type)
    assert not _shares_a_message(op_type)


def test_all_kinds_of_waiting_ops_are_tested() -> None:
    some = {"QueueDequeueV2", "MapPeek", "OrderedMapPeek", "MutexLock", "CollectiveReduce", "PyFunc", "PyFuncStateless"}
    assert some <= set(_WAITING)


def test_ops_that_read_a_pipeline_in_the_thread_of_the_step_hold_up_only_what_needs_them() -> None:
    for op_type in ("IteratorGetNextSync", "ReduceDataset", "DatasetToSingleElement", "DatasetToTFRecord"):
        assert op_type in OPS and not _shares_a_message(op_type)


def test_arithmetic_delays_no_send() -> None:
    assert _shares_a_message("MatMul")


def test_an_op_that_is_not_known_here_may_wait() -> None:
    assert not _shares_a_message("SomebodyElsesOp")


# ---------------------------------------------------------------- on servers


@pytest.fixture(scope="module")
def target() -> Iterator[str]:
    """The target of the worker in a cluster of a ps and a worker in this process."""
    workers, servers = tf.test.create_local_cluster(num_workers=1, num_ps=1)
    yield workers[0].target
    for server in [*workers, *servers]:
        server.stop()


def _peeked(ordered: bool) -> tuple[Any, Any]:
    """A peek that is answered after the worker has answered another value of the same ps."""
    with tf.device("/job:ps/task:0"):
        area = MapStagingArea([tf.float32], shapes=[[]], shared_name=f"peeked_{ordered}", ordered=ordered)
        first, key = tf.identity(tf.placeholder_with_default(3.0, [])), tf.constant(5, tf.int64)
    with tf.device("/job:worker/task:0"):
        answer = first * 2.0
    with tf.device("/job:ps/task:0"):
        put = area.put(key, [answer], [0])
        second = area.peek(key)
    with tf.device("/job:worker/task:0"), tf.control_dependencies([put]):
        return first, tf.identity(second)


def _locked() -> tuple[Any, Any]:
    """A lock that is free again after the worker has answered another value of the same ps."""
    with tf.device("/job:ps/task:0"):
        mutex = tf.raw_ops.MutexV2(shared_name="flow_mutex")
        lock = tf.raw_ops.MutexLock(mutex=mutex)
        with tf.control_dependencies([lock]):
            first = tf.identity(tf.placeholder_with_default(3.0, []))
    with tf.device("/job:worker/task:0"):
        answer = first * 2.0
    with tf.device("/job:ps/task:0"):
        with tf.control_dependencies([answer]):
            release = tf.raw_ops.ConsumeMutexLock(mutex_lock=lock)
        with tf.control_dependencies([lock]):
            again = tf.raw_ops.MutexLock(mutex=mutex)
        with tf.control_dependencies([again]):
            second = tf.identity(first + 3.0)
        with tf.control_dependencies([second]):
            unlock = tf.raw_ops.ConsumeMutexLock(mutex_lock=again)
    with tf.device("/job:worker/task:0"), tf.control_dependencies([unlock, release]):
        return first, tf.identity(second)


@pytest.mark.parametrize(
    "program", [lambda: _peeked(False), lambda: _peeked(True), _locked],
    ids=["MapPeek", "OrderedMapPeek", "MutexLock"],
)  # fmt: skip
def test_a_value_that_waits_for_an_answer_does_not_hold_up_the_question(target: str, program: Any) -> None:
    """Both go from the ps to the worker: in one message each would wait for the other until the deadline."""
    first, second = program()
    with tf.device("/job:worker/task:0"):
        total = first + second
    with tf.Session(target, config=tf.ConfigProto(operation_timeout_in_ms=20000)) as session:
        assert session.run(total) == 9.0


def test_tensors_of_one_message_are_one_arrival() -> None:
    """A step that updates many variables of a ps sends their gradients in one message, as it got their values."""
    lines = [line for i in range(20) for line in (f"A{i}=Const", f"B{i}=Read A{i}", f"A{i + 50}=Read B{i}")]
    nodes, placement = world(*lines)
    parts = cut(nodes, placement)
    there = {p.group for p in parts.pairs if p.dst.device == DEVICE["B"]}
    back = {p.group for p in parts.pairs if p.dst.device == DEVICE["A"]}
    assert there == back == {0}


def test_tensors_of_several_messages_are_several_arrivals() -> None:
    """What needs the variables of one ps does not wait for those of the other."""
    nodes, placement = world("A1=Const", "C1=Const", "B1=Read A1", "B2=Add A1 C1", "A2=Read B1", "A3=Read B2")
    parts = cut(nodes, placement)
    assert len({p.group for p in parts.pairs if p.dst.device == DEVICE["A"]}) == 2
