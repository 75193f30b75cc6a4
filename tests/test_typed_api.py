"""Tools see the public names: mypy and pyright accept a script and find a misspelt name; jedi completes; help helps.

A tool that is not installed (`pip install -e '.[all]'` has all of them) skips its test.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import pydoc
import subprocess
import sys
from pathlib import Path

import pytest

import tfmini as tf

ROOT = Path(__file__).parents[1]
# What mypy knows of tfmini's sources: kept beside its own cache, so that only the first run takes a minute.
CACHE = ROOT / ".mypy_cache" / "scripts"
SCRIPT = '''
"""Trains a classifier with synchronous replicas: the part that each worker runs."""

import numpy as np
import tfmini as tf
from tfmini.contrib import slim
from tfmini.contrib.layers import l2_regularizer, xavier_initializer

flags = tf.app.flags
flags.DEFINE_string("job_name", "worker", "ps or worker")
flags.DEFINE_integer("task_index", 0, "index of the task")
flags.DEFINE_float("learning_rate", 0.1, "of the optimizer")
FLAGS = flags.FLAGS


def input_fn(batch_size: int) -> tuple[tf.Tensor, tf.Tensor]:
    images = np.zeros([100, 28, 28, 1], np.float32)
    labels = np.zeros([100], np.int64)
    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    dataset = dataset.shuffle(100).repeat().batch(batch_size).prefetch(tf.data.experimental.AUTOTUNE)
    image, label = dataset.make_one_shot_iterator().get_next()
    return image, label


def model(images: tf.Tensor, training: bool) -> tf.Tensor:
    with tf.variable_scope("model", initializer=xavier_initializer()):
        net = tf.layers.conv2d(images, 8, [3, 3], padding="same", activation=tf.nn.relu, name="conv")
        net = tf.nn.max_pool(net, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="SAME")
        net = tf.layers.batch_normalization(net, training=training)
        net = slim.conv2d(net, 16, [3, 3], weights_regularizer=l2_regularizer(1e-4))
        net = tf.contrib.layers.flatten(net)
        net = tf.layers.dropout(tf.layers.dense(net, 32, activation=tf.nn.relu), rate=0.5, training=training)
        weights = tf.get_variable("weights", [32, 10], tf.float32, initializer=tf.zeros_initializer())
        biases = tf.Variable(tf.zeros([10]), name="biases")
        return tf.nn.bias_add(tf.matmul(net, weights), biases)


def build(cluster: tf.train.ClusterSpec, workers: int) -> tuple[tf.Operation, tf.train.SessionRunHook]:
    setter = tf.train.replica_device_setter(cluster=cluster, worker_device=f"/job:worker/task:{FLAGS.task_index}")
    with tf.device(setter):
        global_step = tf.train.get_or_create_global_step()
        images, labels = input_fn(32)
        logits = model(images, training=True)
        loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
        loss += tf.losses.get_regularization_loss()
        accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), labels), tf.float32))
        tf.summary.scalar("accuracy", tf.raw_ops.Identity(input=accuracy))
        rate = tf.train.exponential_decay(FLAGS.learning_rate, global_step, 1000, 0.96, staircase=True)
        optimizer = tf.train.SyncReplicasOptimizer(
            tf.train.MomentumOptimizer(rate, 0.9), replicas_to_aggregate=workers, total_num_replicas=workers
        )
        clipped = [(tf.clip_by_norm(g, 5.0), v) for g, v in optimizer.compute_gradients(loss) if g is not None]
        with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
            train_op = optimizer.apply_gradients(clipped, global_step=global_step)
        return train_op, optimizer.make_session_run_hook(FLAGS.task_index == 0)


def main(_: list[str]) -> None:
    cluster = tf.train.ClusterSpec({"ps": ["localhost:2222"], "worker": ["localhost:2223", "localhost:2224"]})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()
    train_op, sync_hook = build(cluster, cluster.num_tasks("worker"))
    hooks = [sync_hook, tf.train.StopAtStepHook(last_step=1000), tf.train.LoggingTensorHook(["model/biases"], 100)]
    config = tf.ConfigProto(allow_soft_placement=True, log_device_placement=False)
    with tf.train.MonitoredTrainingSession(
        master=server.target, is_chief=FLAGS.task_index == 0, checkpoint_dir="/tmp/model", hooks=hooks, config=config
    ) as session:
        while not session.should_stop():
            try:
                session.run(train_op)
            except tf.errors.OutOfRangeError:
                break
    tf.logging.info("done, version %s", tf.__version__)


if __name__ == "__main__":
    tf.app.run(main)
'''
# What each line should be told.
MISSPELT = """
import tfmini as tf
import tfmini.compat.v1 as v1
from tfmini import nn
from tfmini.train import SyncReplicaOptimizer

tf.reduce_men([1.0])
tf.nn.max_pol([1.0], 2, 2, "SAME")
tf.train.AdamOptimiser()
tf.contrib.layers.fully_conected([1.0], 2)
tf.dtypes.castt([1.0], tf.int32)
tf.float31
v1.reduce_men([1.0])
nn.reluu([1.0])
tf.errors.AbortError
tf.raw_ops.MatMull(a=1, b=2)
tf.raw_ops.MatMul(a=1, c=2)
tf.losses.mean_squared_error([1.0], prediction=[1.0])
tf.nn.relu([1.0])
"""
WRONG_LINES = [5, *range(7, 19)]


def needs(module: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(importlib.util.find_spec(module) is None, reason=f"{module} is not installed")


def run(*command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=280)


def mypy(text: str, folder: Path) -> list[str]:
    """The complaints of mypy about a script, one per line."""
    script = folder / "script.py"
    script.write_text(text)
    options = ("--follow-imports=silent", "--no-error-summary", "--config-file=", f"--cache-dir={CACHE}")
    done = run(sys.executable, "-m", "mypy", *options, str(script), folder=folder)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if ": error: " in line]


def pyright(text: str, folder: Path) -> list[tuple[int, str]]:
    """(line, message) of the errors of pyright in a script."""
    script = folder / "script.py"
    script.write_text(text)
    (folder / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(ROOT)], "pythonVersion": "3.11"}))
    options = ("--outputjson", "--pythonpath", sys.executable)
    done = run(sys.executable, "-m", "pyright", *options, str(script), folder=folder)
    if not done.stdout.startswith("{"):
        pytest.skip(f"pyright does not run here: {(done.stdout + done.stderr).strip()[-300:]}")
    found = json.loads(done.stdout)["generalDiagnostics"]
    return [(d["range"]["start"]["line"] + 1, d["message"]) for d in found if d["severity"] == "error"]


@pytest.mark.slow
@needs("mypy")
def test_mypy_accepts_a_script(tmp_path: Path) -> None:
    assert mypy(SCRIPT, tmp_path) == []


@pytest.mark.slow
@needs("mypy")
def test_mypy_finds_each_misspelt_name(tmp_path: Path) -> None:
    complaints = mypy(MISSPELT, tmp_path)
    assert sorted({int(line.split(":")[1]) for line in complaints}) == WRONG_LINES, complaints


@pytest.mark.slow
@needs("pyright")
def test_pyright_accepts_a_script(tmp_path: Path) -> None:
    assert pyright(SCRIPT, tmp_path) == []


@pytest.mark.slow
@needs("pyright")
def test_pyright_finds_each_misspelt_name(tmp_path: Path) -> None:
    complaints = pyright(MISSPELT, tmp_path)
    assert sorted({line for line, _ in complaints}) == WRONG_LINES, complaints


@needs("jedi")
@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import tfmini as tf; tf.", "reduce_mean"),
        ("import tfmini as tf; tf.", "contrib"),
        ("import tfmini as tf; tf.nn.", "max_pool"),
        ("import tfmini as tf; tf.nn.", "rnn_cell"),
        ("import tfmini as tf; tf.train.", "SyncReplicasOptimizer"),
        ("import tfmini as tf; tf.dtypes.", "cast"),
        ("import tfmini as tf; tf.dtypes.", "float32"),
        ("import tfmini as tf; tf.contrib.slim.", "conv2d"),
        ("import tfmini as tf; tf.raw_ops.", "MatMul"),
        ("import tfmini.compat.v1 as tf; tf.", "Session"),
        ("from tfmini import nn; nn.", "relu"),
    ],
)
def test_jedi_completes(text: str, name: str) -> None:
    import jedi

    environment = jedi.InterpreterEnvironment()  # another one would be a process that stays
    script = jedi.Script(text, path=ROOT / "script.py", project=jedi.Project(ROOT), environment=environment)
    assert name in [completion.name for completion in script.complete(1, len(text))]


def test_signature_and_help_are_those_of_the_definition() -> None:
    assert list(inspect.signature(tf.nn.max_pool).parameters)[:4] == ["value", "ksize", "strides", "padding"]
    assert "max_pool(" in pydoc.plain(pydoc.render_doc(tf.nn.max_pool))
    assert tf.nn.max_pool.__module__.startswith("tfmini.ops.nn")
