"""Bad set-ups: each is found by `lint` or refused by an error, with the culprits. The examples raise no alarm."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tfmini as tf
from tfmini.show.inspection.api import inspect
from tfmini.show.inspection.clusters import short
from tfmini.show.inspection.findings import overview

EXAMPLES = Path(__file__).parents[3] / "examples"
PS0, WORKER0 = "/job:ps/task:0", "/job:worker/task:0"
Case = Callable[[], tuple[dict[str, object], str, tuple[str, ...]]]
CASES: list[Case] = []


def case(function: Case) -> Case:
    """A set-up: the arguments of `inspect` for the default graph, the kind of warning (or the error), the culprits."""
    CASES.append(function)
    return function


def setter(ps: int = 1):
    return tf.device(tf.train.replica_device_setter(ps_tasks=ps, worker_device=WORKER0))


def train(loss: tf.Tensor, optimizer=None, **options) -> tf.Operation:
    return (optimizer or tf.train.GradientDescentOptimizer(0.1)).minimize(loss, **options)


@case
def variables_without_a_setter():
    train(tf.reduce_sum(tf.get_variable("mine", [3])))
    return {"ps": 1, "workers": 2}, "state on a worker", ("mine", "/job:worker/replica:0/task:0")


@case
def one_ps_has_it_all():
    with setter(2):
        train(tf.reduce_sum(tf.get_variable("large", [1000, 1000])) + tf.get_variable("small", []))
    return {"ps": 2, "workers": 1}, "ps imbalance", ("/job:ps/replica:0/task:0", "/job:ps/replica:0/task:1")


@case
def more_ps_than_variables():
    with setter(1):
        train(tf.reduce_sum(tf.get_variable("only", [3])))
    return {"ps": 2, "workers": 1}, "idle ps", ("/job:ps/replica:0/task:1",)


@case
def a_tensor_comes_back():
    with tf.device(WORKER0):
        value = tf.add(tf.placeholder(tf.float32, [4]), 1.0, name="value")
    with tf.device(PS0):
        same = tf.identity(value, name="same")
    with tf.device(WORKER0):
        used = tf.add(same, value, name="used")
    return {"ps": 1, "workers": 1, "fetches": used}, "round trip", ("value:0", "same:0")


@case
def data_in_the_graph():
    fetched = tf.reduce_sum(tf.constant(np.zeros((2000, 1000), np.float64), name="data"))
    return {"workers": 1, "fetches": fetched}, "large constant", ("data",)


@case
def a_gpu_that_nobody_has():
    with tf.device("/job:worker/task:0/device:GPU:0"):
        fetched = tf.add(tf.placeholder(tf.float32, [4]), 1.0, name="fast")
    return {"workers": 1, "fetches": fetched}, "cpu fallback", ("fast", "GPU:0")


@case
def colocated_with_a_gpu_that_nobody_has():
    with tf.device("/device:GPU:0"):
        variable = tf.get_variable("mine", [4])
    text = "no task has the device '/device:GPU:0' for mine/Initializer"
    return {"workers": 1, "fetches": variable}, "cpu fallback", (text,)


@case
def left_out_of_var_list():
    with setter():
        a, b = tf.get_variable("a", [3]), tf.get_variable("b", [3])
        train(tf.reduce_sum(a * b), var_list=[a])
    return {"ps": 1, "workers": 1}, "never updated", ("b",)


@case
def more_gradients_than_workers():
    with setter():
        loss = tf.reduce_sum(tf.get_variable("W", [3]))
        sync = tf.train.SyncReplicasOptimizer(tf.train.AdagradOptimizer(0.1), replicas_to_aggregate=3)
        train(loss, sync, global_step=tf.train.get_or_create_global_step())
    return {"ps": 1, "workers": 2}, "sync deadlock", ("TakeGradient", "3 gradients", "2 worker")


@case
def more_ranks_than_workers():
    train(tf.reduce_sum(tf.get_variable("W", [3])), tf.train.AllReduceOptimizer(tf.train.AdagradOptimizer(0.1), 3, 0))
    return {"ps": 0, "workers": 2}, "sync deadlock", ("CollectiveReduce", "3 members", "2 worker")


@case
def fewer_ranks_than_workers():
    train(tf.reduce_sum(tf.get_variable("W", [3])), tf.train.AllReduceOptimizer(tf.train.AdagradOptimizer(0.1), 2, 0))
    return {"ps": 0, "workers": 3}, "collective group", ("CollectiveReduce", "2 members", "3 worker")


@case
def back_and_forth():
    value = tf.placeholder(tf.float32, [4])
    for i in range(120):
        with tf.device((PS0, WORKER0)[i % 2]):
            value = tf.tanh(value)
    tasks = ("ps/replica:0/task:0", "worker/replica:0/task:0")
    return {"ps": 1, "workers": 1, "fetches": value}, "many messages", tasks


@case
def the_model_on_the_ps():
    with tf.device(PS0):
        fetched = tf.matmul(tf.placeholder(tf.float32, [4, 4]), tf.get_variable("W", [4, 4]), name="product")
    return {"ps": 1, "workers": 1, "fetches": fetched}, "work on a ps", ("product", "/job:ps/replica:0/task:0")


@case
def a_table_sent_for_its_rows():
    with setter():
        table = tf.identity(tf.get_variable("table", [10000, 64]), name="whole")
    with tf.device(PS0):
        table = tf.get_variable("other", [10000, 64]).value()
    with tf.device(WORKER0):
        fetched = tf.gather(table, tf.placeholder(tf.int32, [3]), name="rows")
    return {"ps": 1, "workers": 1, "fetches": fetched}, "whole table sent", ("other", "rows")


@case
def only_some_rows_are_set():
    with tf.device(PS0):
        holder = tf.raw_ops.VariableV2(dtype=tf.float32, shape=[3], name="bare")
        tf.raw_ops.ScatterUpdate(ref=holder, indices=[0], updates=[1.0])
    return {"ps": 1, "workers": 1, "fetches": tf.identity(holder)}, "never initialised", ("bare",)


@case
def scattered_into_a_new_tensor():
    with setter():
        a, b = tf.get_variable("a", [3]), tf.get_variable("b", [3])
        train(tf.reduce_sum(a * tf.scatter_nd([[0], [1], [2]], b, [3])), var_list=[a])
    return {"ps": 1, "workers": 1}, "never updated", ("b",)


@case
def no_initializer():
    with tf.device(PS0):
        holder = tf.raw_ops.VariableV2(dtype=tf.float32, shape=[3], name="bare")
    return {"ps": 1, "workers": 1, "fetches": tf.identity(holder)}, "never initialised", ("bare",)


@case
def an_initial_value_that_is_computed_elsewhere():
    with setter():
        first = tf.get_variable("first", [3])
        second = tf.Variable(first * 2.0, name="second")  # TensorFlow refuses it as well
        train(tf.reduce_sum(first * second))
    return {"ps": 1, "workers": 1}, "placement", ("first/read_second", "first/Initializer", PS0, WORKER0)


@case
def a_local_variable_for_all():
    with setter():
        tf.get_variable("count", [], collections=[tf.GraphKeys.LOCAL_VARIABLES], trainable=False)
        train(tf.reduce_sum(tf.get_variable("W", [3])))
    return {"ps": 1, "workers": 2}, "shared local variable", ("count", "/job:ps/replica:0/task:0")


@case
def one_name_for_two_queues():
    with tf.device(PS0):
        tf.FIFOQueue(10, tf.float32, shared_name="jobs", name="first")
        tf.FIFOQueue(20, tf.float32, shared_name="jobs", name="second")
    return {"ps": 1, "workers": 1, "fetches": tf.no_op()}, "shared name", ("first", "second", "'jobs'", "capacity")


@case
def a_queue_that_nobody_fills():
    fetched = tf.FIFOQueue(10, tf.float32, name="work").dequeue(name="take")
    return {"workers": 1, "fetches": fetched}, "empty queue", ("work", "take")


@case
def a_forgotten_feed():
    fetched = tf.placeholder(tf.float32, [], name="x") + tf.placeholder(tf.float32, [], name="y")
    return {"workers": 1, "fetches": fetched, "feeds": "x:0"}, "not fed", ("y",)


@case
def a_colocation_that_contradicts():
    with tf.device(PS0):
        first = tf.constant(1.0, name="first")
    with tf.colocate_with(first.op, ignore_existing=True):
        second = tf.constant(1.0, name="second")
    second.op._set_device(WORKER0)
    return {"ps": 1, "workers": 1, "fetches": second}, "placement", ("first", "second", PS0, WORKER0)


@case
def two_homes_for_one_op():
    with tf.device(PS0):
        first = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], name="first")
    with tf.device("/job:ps/task:1"):
        second = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[], name="second")
    fetched = tf.raw_ops.ResourceApplyAdagrad(var=first, accum=second, lr=0.1, grad=1.0, name="both")
    return {"ps": 2, "workers": 1, "fetches": fetched}, "InvalidArgumentError", ("first", "second", "both")


@case
def a_job_that_is_not_there():
    with tf.device("/job:trainer/task:0"):
        fetched = tf.add(tf.placeholder(tf.float32, []), 1.0, name="lost")
    return {"ps": 1, "workers": 1, "fetches": fetched}, "InvalidArgumentError", ("Placeholder", "trainer", "worker")


@case
def a_task_too_many():
    with tf.device("/job:ps/task:5"):
        fetched = tf.add(tf.placeholder(tf.float32, []), 1.0, name="lost")
    return {"ps": 2, "workers": 1, "fetches": fetched}, "InvalidArgumentError", ("Placeholder", "ps/task:5", "task:1")


@case
def a_fetch_that_does_not_exist():
    tf.constant(1.0, name="there")
    return {"workers": 1, "fetches": "their:0"}, "ValueError", ("their", "there")


@case
def a_feed_that_does_not_exist():
    fetched = tf.add(tf.placeholder(tf.float32, [], name="input"), 1.0)
    return {"workers": 1, "fetches": fetched, "feeds": "inputs:0"}, "ValueError", ("inputs", "input")


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 20


@pytest.mark.parametrize("setup", CASES, ids=lambda c: c.__name__)
def test_a_mistake_is_found_with_its_ops(setup: Case) -> None:
    arguments, kind, culprits = setup()
    try:
        warnings = inspect(**arguments).warnings
    except (tf.errors.OpError, ValueError) as error:
        assert type(error).__name__ == kind
        text = str(error)
    else:
        assert kind in {w.kind for w in warnings}
        text = " ".join(str(w) for w in warnings if w.kind == kind)
        assert all(w.remedy for w in warnings if w.kind == kind)
    assert all(culprit in text for culprit in culprits), text


@pytest.mark.parametrize("rows", [10, 2_000])
def test_lint_warns_of_the_tasks_that_the_page_marks(rows: int) -> None:
    """The README's example ended with "no warnings" while its page said "ps/0 is overloaded"."""
    with setter(2):
        train(tf.reduce_sum(tf.get_variable("large", [rows, 1000])) + tf.get_variable("small", []))
    found = inspect(ps=2, workers=1)
    marked = [short(load.device) for load, _ in overview(found).overloaded]
    warned = [w.text.partition(" is overloaded")[0] for w in found.warnings if w.kind == "overloaded task"]
    assert marked == warned == (["ps/0"] if rows > 1000 else [])
    assert any(w.kind == "ps imbalance" for w in found.warnings) == (rows > 1000)


def test_a_client_that_feeds_all_workers_is_told_so() -> None:
    """Its task holds no variable that could be partitioned."""
    losses = []
    for worker in range(4):
        with tf.device(f"/job:worker/task:{worker}"):
            losses.append(tf.reduce_mean(tf.placeholder(tf.float32, [64, 4096], name=f"x{worker}")))
    with tf.device("/job:worker/task:0"):
        total = tf.add_n(losses)
    found = inspect(fetches=total, ps=0, workers=4)
    [warning] = [w for w in found.warnings if w.kind == "overloaded task"]
    assert warning.text.startswith("worker/0 is overloaded") and "let each worker read its own input" in warning.remedy


@pytest.mark.slow
@pytest.mark.parametrize("script", sorted(path.name for path in EXAMPLES.glob("*_*.py")))
def test_the_examples_have_no_warnings(script: str) -> None:
    if "digits" in script:
        pytest.importorskip("sklearn")
    ps = {"digits_in_graph.py": 1, "digits_allreduce.py": 0, "digits_local.py": 0, "factors_numpy.py": 1}.get(script, 2)
    found = inspect(EXAMPLES / script, ps=ps, workers=2, batch=100)
    # An example without a training op gets a note about the default step, which is no mistake.
    assert [str(w) for w in found.warnings if w.kind != "step"] == []
