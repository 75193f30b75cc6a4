"""Programs on fake GPUs: the numbers of the CPU, through conditionals, loops, checkpoints and towers."""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.graph.device_types import FAKE_ENV
from tfmini.graph.op_types import OPS

jax = pytest.importorskip("jax")

SOFT = tf.ConfigProto(allow_soft_placement=True)


@pytest.fixture(autouse=True)
def _fake_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FAKE_ENV, "2")


def on_both(program: Callable[[str], list[Any]]) -> None:
    """Runs a program that builds and runs a graph, on the CPU and on a GPU, and compares what it returns."""
    found = []
    for device in ("/cpu:0", "/gpu:0"):
        with tf.Graph().as_default(), tf.device(device):
            tf.set_random_seed(5)
            found.append(program(device))
    for ours, theirs in zip(*found):
        np.testing.assert_allclose(theirs, ours, rtol=1e-5, atol=1e-6)


def test_training_with_dropout_and_batch_normalization() -> None:
    rng = np.random.RandomState(0)
    pixels, labels = rng.rand(100, 64).astype(np.float32), rng.randint(0, 10, 100)

    def program(device: str) -> list[Any]:
        x, y = tf.placeholder(tf.float32, [None, 64]), tf.placeholder(tf.int64, [None])
        step = tf.train.get_or_create_global_step()
        image = tf.layers.conv2d(tf.reshape(x, [tf.shape(x)[0], 8, 8, 1]), 4, 3, padding="same", activation=tf.nn.relu)
        flat = tf.layers.dropout(tf.layers.flatten(tf.layers.max_pooling2d(image, 2, 2)), 0.3, training=True, seed=3)
        logits = tf.layers.dense(tf.layers.batch_normalization(flat, training=True), 10)
        loss = tf.losses.sparse_softmax_cross_entropy(y, logits)
        with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):
            train = tf.train.MomentumOptimizer(0.01, 0.9).minimize(loss, global_step=step)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            losses = [session.run([loss, train, step], {x: pixels, y: labels})[0] for _ in range(4)]
            return [*losses, session.run(step), session.run(loss, {x: pixels[:7], y: labels[:7]})]

    on_both(program)


def test_conditionals() -> None:
    def program(device: str) -> list[Any]:
        x, v = tf.placeholder(tf.float32, [3]), tf.get_variable("v", [3], initializer=tf.ones_initializer())
        y = tf.cond(tf.reduce_sum(x) > 0, lambda: tf.assign_add(v, x) * 2.0, lambda: x * v - 1.0)
        slope = tf.gradients(y, [x])[0]
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            found = [session.run(y, {x: [1, 2, 3]}), session.run(y, {x: [-1, -2, -3]}), session.run(v)]
            return found + session.run([y, slope], {x: [-1.0, -2.0, -3.0]})

    on_both(program)


def test_loops_and_their_gradients_stay_on_the_device() -> None:
    inputs = np.random.RandomState(1).rand(5, 4, 3)

    def program(device: str) -> list[Any]:
        x = tf.placeholder(tf.float32, [5, 4, 3])
        cell = tf.nn.rnn_cell.LSTMCell(6, initializer=tf.random_uniform_initializer(-0.5, 0.5, seed=1))
        outputs, _ = tf.nn.dynamic_rnn(cell, x, dtype=tf.float32, sequence_length=[4, 3, 2, 1, 4])
        loss = tf.reduce_sum(outputs * outputs)
        train = tf.train.GradientDescentOptimizer(0.1).minimize(loss)
        squares = tf.map_fn(lambda row: row * row, x)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            return [*(session.run([loss, train], {x: inputs})[0] for _ in range(3)), session.run(squares, {x: inputs})]

    on_both(program)


@pytest.mark.parametrize("resource", [False, True])
def test_a_read_between_two_updates_gives_the_value_between_them(resource: bool) -> None:
    def program(device: str) -> list[Any]:
        v = tf.get_variable("v", [2], initializer=tf.zeros_initializer(), use_resource=resource)
        with tf.control_dependencies([v.assign_add([1.0, 2.0])]):
            between = tf.identity(v)
        with tf.control_dependencies([between]), tf.control_dependencies([v.assign_add([10.0, 10.0])]):
            double = between * 2
        with tf.Session() as session:
            session.run(v.initializer)
            return session.run([between, double]) + [session.run(v)]

    on_both(program)


def test_sparse_updates_and_repeated_rows() -> None:
    def program(device: str) -> list[Any]:
        ids = tf.placeholder(tf.int32, [None])
        table = tf.get_variable("table", [20, 4], initializer=tf.random_normal_initializer(seed=1))
        loss = tf.reduce_sum(tf.nn.embedding_lookup(table, ids) ** 2)
        trains = [o.minimize(loss) for o in (tf.train.AdagradOptimizer(0.1), tf.train.AdamOptimizer(0.1))]
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for train in trains * 2:
                session.run(train, {ids: [1, 1, 3, 19]})
            return session.run([table, loss], {ids: [3]})

    on_both(program)


def test_random_streams_are_those_of_the_cpu() -> None:
    def program(device: str) -> list[Any]:
        drawn = [
            tf.random_uniform([5], seed=1), tf.random_normal([7], seed=2), tf.truncated_normal([9], seed=3),
            tf.random_uniform([5], 0, 100, tf.int32, seed=4), tf.random_shuffle(tf.range(6), seed=5),
            tf.multinomial(tf.zeros([2, 4]), 5, seed=6), tf.random_normal([4], dtype=tf.float64, seed=7),
        ]  # fmt: skip
        with tf.Session() as session:
            first = session.run(drawn)
            return first + session.run(drawn) + session.run(drawn[::2])

    on_both(program)


def test_shapes_that_depend_on_values() -> None:
    def program(device: str) -> list[Any]:
        n, x = tf.placeholder(tf.int32, []), tf.placeholder(tf.float32, [None])
        tiled = tf.reshape(tf.tile(x, [n]), [n, -1]) + tf.zeros([n, 1])
        chosen = tf.boolean_mask(x, x > 1)
        filled = tf.fill([tf.cast(tf.reduce_max(x), tf.int32)], 2.0)
        with tf.Session() as session:
            return session.run([tiled, chosen, filled], {n: 3, x: [1, 2, 3.0]}) + session.run([filled], {x: [5.0]})

    on_both(program)


def test_slices_whose_place_the_device_computes(caplog: pytest.LogCaptureFixture) -> None:
    """One program serves all places, also inside of loops; a number out of range gives zeros on a device."""
    values = np.arange(60).reshape(3, 4, 5)

    def program(device: str) -> list[Any]:
        x, i = tf.placeholder(tf.float32, [3, 4, 5]), tf.placeholder(tf.int32, [])
        j = tf.argmax(x[0, 0], output_type=tf.int32) - 2
        parts = [x[i], x[i, 1:3], x[..., i], x[i, tf.newaxis, j], x[-i], x[1:, i, ::-1]]
        slopes = [tf.gradients(part * part, x)[0] for part in parts]
        rows = tf.while_loop(lambda k, _: k < 3, lambda k, rows: (k + 1, rows + x[k] * x[k]), [0, tf.zeros([4, 5])])[1]
        fetches = [*parts, *slopes, rows, *tf.gradients(rows, x), tf.slice(x, [i, 0, j], [1, 2, 2])]
        with tf.Session() as session:
            return session.run(fetches, {x: values, i: 1}) + session.run(fetches, {x: values, i: 2})

    with caplog.at_level(logging.INFO, "tensorflow"):
        on_both(program)
    assert sum("Compiled" in text for text in caplog.messages) == 1
    with tf.Graph().as_default(), tf.device("/gpu:0"), tf.Session() as session:
        x, i = tf.constant(values), tf.placeholder(tf.int32, [])
        assert session.run(x[i, 0], {i: 3}).tolist() == [0] * 5


@pytest.mark.parametrize("saved_on, restored_on", [("/gpu:0", "/cpu:0"), ("/cpu:0", "/gpu:1")])
def test_checkpoints_go_between_kinds_of_devices(saved_on: str, restored_on: str, tmp_path: Path) -> None:
    def variable() -> tuple[Any, Any]:
        v = tf.get_variable("v", [3], initializer=tf.random_normal_initializer(seed=2))
        return v, tf.train.Saver()

    with tf.Graph().as_default(), tf.device(saved_on), tf.Session(config=SOFT) as session:
        v, saver = variable()
        session.run(v.initializer)
        path, wanted = saver.save(session, str(tmp_path / "model")), session.run(v)
    with tf.Graph().as_default(), tf.device(restored_on), tf.Session(config=SOFT) as session:
        v, saver = variable()
        saver.restore(session, path)
        np.testing.assert_array_equal(session.run(v), wanted)


def test_towers_on_two_gpus() -> None:
    rows = np.random.RandomState(1).rand(8, 4)

    def program(device: str) -> list[Any]:
        optimizer, x = tf.train.MomentumOptimizer(0.1, 0.9), tf.placeholder(tf.float32, [8, 4])
        towers = []
        for i, part in enumerate(tf.split(x, 2)):
            with tf.device(f"/gpu:{i}" if "gpu" in device else device), tf.variable_scope("model", reuse=i > 0):
                y = tf.layers.dense(part, 3, kernel_initializer=tf.random_normal_initializer(seed=3))
                towers.append(optimizer.compute_gradients(tf.reduce_mean(y * y)))
        means = [((g + h) / 2, v) for (g, v), (h, _) in zip(*towers)]
        train = optimizer.apply_gradients(means)
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            for _ in range(3):
                session.run(train, {x: rows})
            return list(session.run(tf.trainable_variables()))

    on_both(program)


def test_a_read_is_a_snapshot_and_updates_are_whole() -> None:
    """A value that somebody holds does not change; updates from several threads do not get lost."""
    with tf.Graph().as_default(), tf.device("/gpu:0"), tf.Session() as session:
        v = tf.get_variable("v", [1000], initializer=tf.zeros_initializer())
        add = tf.assign_add(v, tf.ones([1000]))
        session.run(v.initializer)
        before = session.run(v)
        session.run(add.op)
        assert before.max() == 0
        run = session.make_callable(add.op)
        threads = [threading.Thread(target=lambda: [run() for _ in range(25)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert session.run(v).tolist() == [101.0] * 1000


def test_errors_name_the_op() -> None:
    with tf.Graph().as_default(), tf.device("/gpu:0"), tf.Session() as session:
        v, x = tf.get_variable("v", [2]), tf.placeholder(tf.float32)
        with pytest.raises(tf.errors.FailedPreconditionError, match="uninitialized value v"):
            session.run(v * 2)
        session.run(v.initializer)
        with pytest.raises(tf.errors.InvalidArgumentError, match="node product") as caught:
            session.run(tf.matmul(x, x, name="product"), {x: np.ones([2, 3])})
        assert caught.value.op is not None and caught.value.op.name == "product"
        with pytest.raises(tf.errors.InvalidArgumentError, match="lhs shape= "):
            session.run(tf.assign(v, x), {x: np.ones(3)})
        checked = tf.check_numerics(tf.log(x), "found")
    wrong = pytest.raises(tf.errors.InvalidArgumentError, match="found : Tensor had Inf")
    with tf.Session(graph=checked.graph, config=SOFT) as session, wrong:
        session.run(checked, {x: [0.0]})


def test_out_of_memory_names_the_variables_that_hold_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with tf.Graph().as_default(), tf.device("/gpu:0"), tf.Session() as session:
        large = tf.get_variable("large", [300_000], initializer=tf.zeros_initializer())
        more = tf.add(large, 1.0, name="more")
        session.run(large.initializer)

        def no_room(self: Any, *args: Any) -> Any:
            raise jax.errors.JaxRuntimeError(
                "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1200000 bytes."
            )

        monkeypatch.setattr("tfmini.xla.execution.CompiledStretch.trace", no_room)
        with pytest.raises(tf.errors.ResourceExhaustedError, match=r"OOM on .*GPU:0 in the ops from 'more'") as caught:
            session.run(more)
    assert "large (1.1 MiB)" in caught.value.message


def test_the_digits_end_at_the_accuracy_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "examples"))
    digits = importlib.import_module("digits")
    train_x, test_x, train_y, test_y = digits.load_data()
    accuracies = []
    for device in ("/cpu:0", "/gpu:0"):
        with tf.Graph().as_default(), tf.device(device):
            tf.set_random_seed(1)
            images, labels, loss, accuracy = digits.build_model()
            train = tf.train.AdagradOptimizer(0.1).minimize(loss)
            with tf.Session() as session:
                session.run(tf.global_variables_initializer())
                for _, (x, y) in zip(range(500), digits.batches(train_x, train_y, 50, seed=0)):
                    session.run(train, {images: x, labels: y})
                accuracies.append(session.run(accuracy, {images: test_x, labels: test_y}))
    assert min(accuracies) > 0.9 and abs(accuracies[0] - accuracies[1]) <= 0.005


def test_changing_shapes_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    with tf.Graph().as_default(), tf.device("/gpu:0"), tf.Session() as session:
        x = tf.placeholder(tf.float32, [None], name="lengths_vary")
        y = x * 2 + 1
        with caplog.at_level(logging.INFO, "tensorflow"):
            for size in range(1, 6):
                session.run(y, {x: np.ones(size)})
    said = [record.getMessage() for record in caplog.records]
    assert any("Compiling 2 ops for /job:localhost" in text for text in said)
    advice = [text for text in said if "has compiled the ops" in text]
    assert len(advice) == 1 and "'lengths_vary' has had 4 shapes" in advice[0]


def test_a_long_compilation_is_reported(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    said = threading.Event()
    monkeypatch.setattr("tfmini.xla.execution.PATIENCE_S", 0.0)
    stretch = importlib.import_module("tfmini.xla.execution").CompiledStretch
    report, trace = stretch.report_long_compilation, stretch.trace
    monkeypatch.setattr(stretch, "report_long_compilation", lambda self: (report(self), said.set()))
    monkeypatch.setattr(stretch, "trace", lambda self, *args: said.wait(60) and trace(self, *args))
    with tf.Graph().as_default(), tf.device("/gpu:0"), tf.Session() as session:
        session.run(tf.placeholder_with_default([1.0], [1]) * 2 + 1)
    assert "XLA still compiles 2 ops for /job:localhost" in caplog.text


def test_a_cpu_program_has_no_stretch() -> None:
    """The generated program of a graph on CPUs is what it was: no stretch, no copy to the host."""
    with tf.Graph().as_default(), tf.device("/cpu:0"), tf.Session() as session:
        y = tf.matmul(tf.placeholder_with_default(tf.ones([2, 2]), [2, 2]), tf.ones([2, 2]))
        metadata = tf.RunMetadata()
        session.run(y, options=tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), run_metadata=metadata)
    names = {stat.node_name for device in metadata.step_stats.dev_stats for stat in device.node_stats}
    assert "MatMul" in names and not any("stretch" in name or "to_host" in name for name in names)
    assert "_Stretch" in OPS


def test_ops_without_a_lowering_work_beside_their_variable() -> None:
    with tf.Graph().as_default(), tf.device("/gpu:0"), tf.Session() as session:
        counter = tf.get_variable("counter", [], tf.int64, initializer=tf.zeros_initializer())
        up = tf.count_up_to(counter, 3)
        session.run(counter.initializer)
        assert [session.run(up) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(tf.errors.OutOfRangeError):
            session.run(up)
        assert session.run(tf.report_uninitialized_variables()).tolist() == []
