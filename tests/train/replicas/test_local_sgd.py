"""Local SGD and DiLoCo against numpy, by workers in processes of their own, and what they send."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.test_examples import launch
from tfmini.launch.supervision import TaskId
from tfmini.show.inspection.text import show
from tfmini.testing import ProcessCluster

WORKERS, STEPS, PERIOD, RATE, MOMENTUM = 3, 14, 4, 0.1, 0.9
LATE_S = 120.0

_PROGRAM = """
import json, sys
import numpy as np
import tfmini as tf

spec, rank, settings = json.loads(sys.argv[1]), int(sys.argv[3]), json.loads(sys.argv[4])
server = tf.train.Server(spec, job_name="worker", task_index=rank)
print("ready", flush=True)
w = tf.get_variable("w", initializer=np.full([2, 3], rank, np.float32))  # the hook gives all the chief's
b = tf.get_variable("b", initializer=np.zeros([3], np.float32), use_resource=True)
x = tf.placeholder(tf.float32, [None, 2])
loss = tf.reduce_mean(tf.square(tf.matmul(x, w) + b - float(rank + 1))) / 2
inner = tf.train.MomentumOptimizer(settings["rate"], settings["momentum"])
kind = getattr(tf.train, settings["kind"])
bucket = {"bucket_bytes": settings["bucket_bytes"]}
optimizer = kind(inner, len(spec["worker"]), rank, period=settings["period"], **bucket)
update = optimizer.minimize(loss, tf.train.get_or_create_global_step())
rows = np.random.RandomState(rank).randn(settings["steps"], 4, 2).astype(np.float32)
with tf.train.MonitoredTrainingSession(server.target, hooks=[optimizer.make_session_run_hook()]) as session:
    for each in rows:
        before = server.collective_traffic().bytes
        session.run(update, {x: each})
        sent = server.collective_traffic().bytes - before
        print(json.dumps([*(value.tolist() for value in session.run([w, b])), sent]), flush=True)
"""


def reference(meet: Callable[[list[Any], list[Any]], list[Any]]) -> list[list[Any]]:
    """The variables of each worker after each step, in float64; ``meet`` makes new anchors of variables and anchors."""
    anchors: list[Any] = [np.zeros([2, 3]), np.zeros(3)]
    copies = [[each.copy() for each in anchors] for _ in range(WORKERS)]
    slots = [[np.zeros_like(each) for each in anchors] for _ in range(WORKERS)]
    rows = [np.random.RandomState(rank).randn(STEPS, 4, 2).astype(np.float32) for rank in range(WORKERS)]
    found = []
    for step in range(STEPS):
        for rank in range(WORKERS):
            x, (w, b) = rows[rank][step].astype(np.float64), copies[rank]
            error = (x @ w + b - (rank + 1)) / (4 * 3)
            for value, slot, gradient in zip(copies[rank], slots[rank], (x.T @ error, error.sum(0))):
                slot *= MOMENTUM
                slot += gradient
                value -= RATE * slot
        if (step + 1) % PERIOD == 0:
            anchors = meet([np.mean(each, 0) for each in zip(*copies)], anchors)
            copies = [[each.copy() for each in anchors] for _ in range(WORKERS)]
        found.append([[each.copy() for each in copy] for copy in copies])
    return found


def _nesterov() -> Callable[[list[Any], list[Any]], list[Any]]:
    slots = [np.zeros([2, 3]), np.zeros(3)]

    def meet(means: list[Any], anchors: list[Any]) -> list[Any]:
        made = []
        for mean, anchor, slot in zip(means, anchors, slots):
            gradient = anchor - mean
            slot *= 0.9
            slot += gradient
            made.append(anchor - 0.7 * (gradient + 0.9 * slot))
        return made

    return meet


@pytest.mark.cluster
@pytest.mark.parametrize("bucket_bytes", [0, 1 << 20])
@pytest.mark.parametrize("kind", ["LocalSGDOptimizer", "DiLoCoOptimizer"])
def test_workers_reach_the_variables_of_the_reference(kind: str, bucket_bytes: int) -> None:
    expected = reference(_nesterov() if kind.startswith("DiLoCo") else lambda means, anchors: means)
    settings = {"kind": kind, "bucket_bytes": bucket_bytes, "period": PERIOD, "steps": STEPS, "rate": RATE}
    arguments = (json.dumps({**settings, "momentum": MOMENTUM}),)
    with ProcessCluster(ps=0, workers=WORKERS, program=_PROGRAM, arguments=arguments) as cluster:
        outputs = [cluster.processes[TaskId("worker", i)].communicate(timeout=LATE_S)[0] for i in range(WORKERS)]
    found = [[json.loads(line) for line in output.splitlines() if line.startswith("[")] for output in outputs]
    for step in range(STEPS):
        meets = (step + 1) % PERIOD == 0
        for rank in range(WORKERS):
            w, b, sent = found[rank][step]
            np.testing.assert_allclose(np.float64(w), expected[step][rank][0], rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(np.float64(b), expected[step][rank][1], rtol=1e-5, atol=1e-6)
            # Up to 64 KB each rank reads the whole tensors of the others.
            assert sent == ((WORKERS - 1) * 4 * (6 + 3) if meets else 0), (step, rank)
            assert not meets or (w, b) == tuple(found[0][step][:2])  # to the bit


def _problem(optimizer: Any, steps: int, **session: Any) -> list[Any]:
    """The values of a variable after each step of one worker in this process."""
    with tf.Graph().as_default():
        w = tf.get_variable("w", initializer=np.float32([1.0, -2.0]))
        step = tf.train.get_or_create_global_step()
        loss = tf.reduce_sum(tf.square(w - tf.cast(step, tf.float32)))
        update = optimizer.minimize(loss, step)
        hooks = [optimizer.make_session_run_hook()] if hasattr(optimizer, "make_session_run_hook") else []
        with tf.train.MonitoredTrainingSession(hooks=hooks, **session) as running:
            found = []
            while running.run(step) < steps:
                running.run(update)
                found.append(running.run(w))
    return found


def _adam() -> Any:
    return tf.train.AdamOptimizer(0.1)


def test_one_worker_and_an_outer_rate_of_one_change_nothing() -> None:
    plain = _problem(_adam(), 9)
    np.testing.assert_array_equal(_problem(tf.train.LocalSGDOptimizer(_adam(), 1, period=3), 9), plain)
    outer = tf.train.GradientDescentOptimizer(1.0)
    found = _problem(tf.train.DiLoCoOptimizer(_adam(), 1, period=3, outer=outer), 9)
    np.testing.assert_allclose(found, plain, rtol=1e-6)


def test_a_checkpoint_between_two_meetings_has_all_that_the_next_one_needs(tmp_path: Path) -> None:
    def optimizer() -> Any:
        return tf.train.DiLoCoOptimizer(_adam(), 1, period=4)

    whole = _problem(optimizer(), 12)
    settings = {"checkpoint_dir": str(tmp_path), "save_checkpoint_steps": 1, "log_step_count_steps": None}
    parts = [*_problem(optimizer(), 6, **settings), *_problem(optimizer(), 12, **settings)]
    np.testing.assert_array_equal(parts, whole)


def test_the_inspector_shows_that_only_some_steps_send() -> None:
    with tf.Graph().as_default() as graph:
        w = tf.get_variable("w", [10, 3])
        optimizer = tf.train.LocalSGDOptimizer(tf.train.GradientDescentOptimizer(0.1), 2, 0, period=20)
        update = optimizer.minimize(tf.reduce_sum(tf.square(w)))
        assert tf.get_collection("train_op") == [update]
        assert {v.op.name for v in optimizer.variables()} <= {v.op.name for v in tf.global_variables()}
    found = tf.inspect(graph, ps=0, workers=2)
    assert [(row.bytes, row.purpose) for row in found.transfers] == [(120, "all-reduce of w once in 20 steps")] * 2
    assert "120 B once in 20 steps" in show(found, "wire")


def test_variables_on_a_ps_are_not_averaged() -> None:
    with tf.Graph().as_default() as graph:
        with tf.device("/job:ps/task:0"):
            table = tf.get_variable("table", [10, 3])
        with tf.device("/job:worker/task:0"):
            w = tf.get_variable("w", [3])
            loss = tf.reduce_sum(tf.nn.embedding_lookup(table, [1, 2]) * w)
            tf.train.DiLoCoOptimizer(tf.train.AdagradOptimizer(0.1), 2, 0).minimize(loss)
        names = [op.get_attr("_collective_name") for op in graph.get_operations() if op.type == "CollectiveReduce"]
        anchors = [v.op.name for v in tf.global_variables() if v.op.name.endswith("anchor")]
    assert names == [b"w"] and anchors == ["w/DiLoCoAdagrad_anchor"]


def test_what_cannot_be_averaged_is_refused() -> None:
    with pytest.raises(ValueError, match="period must be at least 1, got 0"):
        tf.train.LocalSGDOptimizer(_adam(), 2, period=0)
    with pytest.raises(ValueError, match="rank must be in"):
        tf.train.DiLoCoOptimizer(_adam(), 2, rank=2)
    for place, message in (("/job:ps/task:0", "none of those with a gradient is on a worker"), ("", "put it on a ps")):
        with tf.Graph().as_default(), tf.device(place):
            table = tf.get_embedding_variable("table", 3)
            loss = tf.reduce_sum(tf.nn.embedding_lookup(table, tf.constant([1, 2], tf.int64)))
            with pytest.raises(ValueError, match=message):
                tf.train.LocalSGDOptimizer(tf.train.AdagradOptimizer(0.1), 2, 0).minimize(loss)


@pytest.mark.cluster
@pytest.mark.parametrize("options", [(), ("--outer",)])
def test_the_digits_are_learnt_with_a_tenth_of_the_bytes(options: tuple[str, ...]) -> None:
    pytest.importorskip("sklearn")
    output = launch("--ps", "0", "--workers", "2", "examples/digits_local.py", "--steps=100", *options)
    accuracies = [float(found) for found in re.findall(r"test accuracy ([\d.]+) %", output)]
    sent = [int(found) for found in re.findall(r"(\d+) bytes of tensors", output)]
    parameters = 4 * (64 * 64 + 64 + 64 * 10 + 10)
    assert len(accuracies) == 2 and min(accuracies) > 90
    # The hook sends all variables with their slots, the anchors and the outer slots once, from the chief.
    assert min(sent) == 10 * parameters and max(sent) <= 14 * parameters + 100
