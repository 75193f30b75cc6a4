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
# What users pass besides tensors: numpy's arrays and numbers, lists, variables, dimensions, shapes, mixtures of them.
ARGUMENTS = """
import numpy as np
import tfmini as tf

x = tf.placeholder(tf.float32, [None, 28, 28, 1])
v = tf.Variable(np.zeros([3, 4]), name="v")
w = tf.get_variable("w", shape=(3, 3, 1, 8), dtype=np.float32)
ids = tf.placeholder("int32", shape=[None])
n = tf.shape(x)[0]
static, dim = x.get_shape(), x.shape[1]
slices = tf.SparseTensor(indices=[[0, 0]], values=[1.0], dense_shape=[1, 1])

tf.constant([b"a", "b"]), tf.constant(np.eye(2), dtype=tf.float32, shape=[2, 2]), tf.constant(range(3))
tf.constant(dim)
tf.zeros([n, dim]), tf.zeros(static), tf.zeros(np.array([2, 3])), tf.ones(5, "float32"), tf.fill([n, 2], np.float32(1))
tf.reshape(x, [-1, dim * dim]), tf.reshape(x, [n, *static.as_list()[1:]]), tf.reshape(np.zeros(4), (2, 2))
tf.reshape(x, shape=[n, tf.Dimension(784)]), tf.reshape(v, static), tf.reshape([1, 2], np.array([-1]))
tf.concat([x, x], 3), tf.concat(axis=-1, values=[v, np.zeros([3, 4])]), tf.concat([[n], [2, 3]], tf.constant(0))
tf.stack([n, 3, dim]), tf.unstack(x, axis=1, num=28), tf.split(x, 2, axis=0), tf.split(v, [1, n], 0)
tf.transpose(v, perm=np.array([1, 0])), tf.expand_dims([1, 2], np.int64(0)), tf.squeeze(x, axis=(1, 2))
tf.squeeze(x, [1])
tf.gather(v, [0, 1], axis=1), tf.gather_nd(v, [[0, 1]]), tf.boolean_mask(v, mask=np.ones(3, bool), axis=0)
tf.slice(x, [0, 0, 0, 0], [n, -1, -1, -1]), x[:, 1:3, ..., tf.newaxis], x[0, n - 1], v[ids[0] :], v[0]
tf.tile(v, [n, 1]), tf.pad(v, [[0, 0], [1, n]]), tf.pad(v, np.zeros([2, 2], np.int32), "REFLECT", constant_values=1.0)
tf.cast(dim, tf.float32), tf.cast(n, "float32"), tf.cast([True, False], float), tf.cast(slices, np.float64)
tf.one_hot([1, 2], depth=n, on_value=1.0), tf.sequence_mask(ids, 10, dtype=tf.float32), tf.eye(n, batch_shape=[n, 2])
tf.range(0, n, 2), tf.range(dim), tf.linspace(0.0, 1.0, 5), tf.where([True], [1.0], v), tf.zeros_like(v, dtype=tf.int32)
tf.placeholder(tf.string, []), tf.placeholder(tf.float32, shape=(None, dim)), tf.placeholder_with_default(0.5, [])
tf.scatter_nd(ids, x, shape=static), tf.reverse(x, axis=np.array([1])), tf.roll(v, shift=[1], axis=[0])
tf.dynamic_stitch([[0], [1]], [x, x]), tf.space_to_batch(x, np.zeros([2, 2], int), block_size=2), tf.unique([1, 1])

tf.add([1.0], v), tf.multiply(x, np.float32(2)), tf.divide(x, 2), tf.mod(n, dim), tf.scalar_mul(0.5, v)
tf.pow(2.0, [1.0])
tf.equal(ids, 3), tf.logical_and(x > 0, True), tf.not_equal("a", tf.constant("b")), tf.abs(slices), tf.square(v)
tf.exp(1)
tf.matmul(np.eye(3), v), tf.matmul([[1.0]], v, transpose_b=True), tf.tensordot(x, w, axes=[[3], [0]])
tf.tensordot(v, v, 1)
tf.reduce_sum(x, [1, 2, 3], keepdims=True), tf.reduce_mean(v, axis=(0,)), tf.reduce_max(v, np.int64(0))
tf.reduce_sum(x, axis=[tf.rank(x) - 1]), tf.reduce_sum(v, axis=range(1)), tf.reduce_mean(v, reduction_indices=[1])
tf.argmax(v, axis=-1, output_type=tf.int32), tf.argmin(np.eye(2), dimension=0), tf.cumsum(v, axis=1)
tf.bincount([1, 2])
tf.add_n([v, x]), tf.add_n(tf.get_collection("losses")), tf.clip_by_value(v, -n, 1.0)
tf.clip_by_global_norm(tf.gradients(x, [v]), 5.0), tf.clip_by_norm(x, tf.constant(5.0)), tf.global_norm([v, x, None])
tf.nn.top_k(v, k=n), tf.nn.in_top_k(predictions=v, targets=[1, 2, 3], k=1), tf.sort([3, 1]), tf.searchsorted([[1.0]], v)
tf.unsorted_segment_sum(v, ids, n), tf.segment_sum(v, [0, 0, 1]), tf.spectral.rfft(v, [4])
tf.math.polyval([1.0, x, 2], x)
-v, 2 - v, v * 2, v @ v, abs(v), x / v, np.float32(2) * x, x**2, n // 2, x > 0.5

tf.nn.leaky_relu(v, alpha=0.1), tf.nn.softmax(logits=[[1.0]], dim=-1), tf.nn.l2_loss(v), tf.nn.bias_add(x, [1.0])
tf.nn.softmax_cross_entropy_with_logits_v2(labels=np.eye(2), logits=[[2.0, 1.0]])
tf.nn.weighted_cross_entropy_with_logits(targets=x, logits=x, pos_weight=2.0)
tf.nn.conv2d(x, filter=w, strides=(1, 2, 2, 1), padding="VALID")
tf.nn.conv2d(x, w, 2, [[0, 0], [1, 1], [1, 1], [0, 0]])
tf.nn.conv2d_transpose(x, w, output_shape=[n, 28, dim, 1], strides=[1, 1, 1, 1])
tf.nn.conv1d(x, w, stride=1, padding="SAME")
tf.nn.conv2d_backprop_input(tf.shape(x), filter=w, out_backprop=x, strides=[1, 1, 1, 1], padding="SAME")
tf.nn.convolution(x, w, "SAME", dilation_rate=[2, 2]), tf.nn.pool(x, (2, 2), "MAX", "SAME", strides=[2, 2])
tf.nn.separable_conv2d(x, w, w, [1, 1, 1, 1], "SAME", rate=[1, 1])
tf.nn.max_pool(x, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")
tf.nn.moments(x, axes=0, keep_dims=True), tf.nn.batch_normalization(x, [0.0], v, None, None, 1e-3)
tf.nn.dropout(x, keep_prob=tf.placeholder(tf.float32)), tf.nn.dropout(x, rate=0.1, noise_shape=[n, 1, 1, 1])
tf.nn.dropout(v, 0.5, noise_shape=tf.shape(v)), tf.nn.l2_normalize(x, axis=[1, 2]), tf.nn.lrn(x, 4, bias=1.0)
tf.nn.embedding_lookup([v, v], [0, 1]), tf.nn.nce_loss(v, [0.0], x, x, 5, 10), tf.nn.ctc_loss(slices, x, ids)
"""
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
@pytest.mark.parametrize("script", [SCRIPT, ARGUMENTS], ids=["training", "arguments"])
def test_mypy_accepts_a_script(tmp_path: Path, script: str) -> None:
    assert mypy(script, tmp_path) == []


@pytest.mark.slow
@needs("mypy")
def test_mypy_finds_each_misspelt_name(tmp_path: Path) -> None:
    complaints = mypy(MISSPELT, tmp_path)
    assert sorted({int(line.split(":")[1]) for line in complaints}) == WRONG_LINES, complaints


@pytest.mark.slow
@needs("pyright")
@pytest.mark.parametrize("script", [SCRIPT, ARGUMENTS], ids=["training", "arguments"])
def test_pyright_accepts_a_script(tmp_path: Path, script: str) -> None:
    assert pyright(script, tmp_path) == []


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
