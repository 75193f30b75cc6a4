"""Scripts for the tests: they build a graph and end at their first run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from tests.show.simulation.profiles import plain
from tfmini.show.planning.models import Models, Script
from tfmini.show.simulation.prediction import Topology

SETTER = "tf.train.replica_device_setter(ps_tasks=2)"
MLP = """
import tensorflow as tf
with tf.device({scope}):
    x, y = tf.placeholder(tf.float32, [8, 20]), tf.placeholder(tf.float32, [8, 4])
    for width in {widths}:
        x = tf.layers.dense(x, width, tf.nn.relu)
    loss = tf.losses.mean_squared_error(y, tf.layers.dense(x, 4))
    train = tf.train.MomentumOptimizer(0.1, 0.9).minimize(loss, tf.train.get_or_create_global_step())
tf.Session().run(train)
"""
LOOKUP = """
import tensorflow as tf
with tf.device(tf.train.replica_device_setter(ps_tasks=2)):
    ids = tf.placeholder(tf.int32, [6])
    rows = {lookup}
    weights = tf.get_variable("weights", [8, 2])
    train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(tf.matmul(rows, weights)))
tf.Session().run(train)
"""
SMALL = """
import tensorflow as tf
with tf.device(tf.train.replica_device_setter(ps_tasks=2)):
    x = tf.matmul(tf.ones([8, 20]), tf.get_variable("first", [20, {sizes[0]}]))
    for before, size in zip({sizes}, {sizes}[1:]):
        x = tf.matmul(x, tf.Variable(tf.ones([before, size]), name="next"))
    train = tf.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(x))
tf.Session().run(train)
"""
SYNC = """
import tensorflow as tf
with tf.device(tf.train.replica_device_setter(ps_tasks=2)):
    w, v = tf.get_variable("w", [50, 4]), tf.get_variable("v", [4, 2])
    loss = tf.reduce_sum(tf.matmul(tf.matmul(tf.ones([3, 50]), w), v))
    optimizer = tf.train.SyncReplicasOptimizer(tf.train.AdagradOptimizer(0.1), 2)
    train = optimizer.minimize(loss, tf.train.get_or_create_global_step())
with tf.train.MonitoredTrainingSession(hooks=[optimizer.make_session_run_hook(True)]) as session:
    session.run(train)
"""


def mlp(scope: str = SETTER, widths: tuple[int, ...] = (64, 16)) -> str:
    return MLP.format(scope=scope, widths=widths)


def models_of(
    tmp_path: Path, text: str, *, ps: int = 2, workers: int = 1, link: str = "100Mbit", limits: Any = None
) -> Models:
    """The models of a script on machines of their own."""
    file = tmp_path / "model.py"
    file.write_text(text)
    script = Script(str(file), {"ps": list(range(ps)), "worker": list(range(workers))})
    profile = plain()
    return Models(
        script, profile, lambda tasks: Topology.on_own_machines(tasks, profile, link), workers,
        limits or [math.inf] * ps,
    )  # fmt: skip
