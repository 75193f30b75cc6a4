"""Sparse messages, image patches, morphology, spectra, argmax pooling, checks of numbers, metrics at k, raw loops."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import numpy as np
import pytest

import tfmini as tf

IMAGE = "tf.sin(tf.reshape(tf.range(60.), [2, 5, 3, 2]))"
CASES = [
    f"tf.extract_image_patches({IMAGE}, [1, 3, 2, 1], [1, 2, 1, 1], [1, 2, 1, 1], 'SAME')",
    f"tf.extract_image_patches({IMAGE}, [1, 3, 2, 1], [1, 2, 1, 1], [1, 1, 1, 1], 'VALID')",
    f"tf.nn.dilation2d({IMAGE}, tf.cos(tf.reshape(tf.range(12.), [3, 2, 2])), [1, 2, 1, 1], [1, 1, 2, 1], 'SAME')",
    f"tf.nn.erosion2d({IMAGE}, tf.cos(tf.reshape(tf.range(12.), [3, 2, 2])), [1, 1, 1, 1], [1, 1, 1, 1], 'VALID')",
    f"tf.nn.max_pool_with_argmax({IMAGE}, [1, 2, 2, 1], [1, 1, 2, 1], 'SAME')[1]",
    f"tf.nn.max_pool_with_argmax({IMAGE}, [1, 3, 2, 1], [1, 1, 2, 1], 'VALID', include_batch_in_index=True)[1]",
    f"tf.abs(tf.signal.rfft({IMAGE}))", f"tf.abs(tf.signal.rfft2d({IMAGE}, [3, 2]))",
    f"tf.signal.irfft(tf.signal.rfft({IMAGE}, [2]), [2])", f"tf.abs(tf.fft3d(tf.cast({IMAGE}, tf.complex64)))",
    f"tf.imag(tf.ifft2d(tf.cast({IMAGE}, tf.complex64)))",
    "tf.gradients(tf.reduce_sum(tf.abs(tf.signal.rfft(x)) ** 2), x)[0] for x in [tf.sin(tf.range(7.))]",
    "tf.gradients(tf.reduce_sum(tf.abs(tf.signal.rfft2d(x)) ** 2), x)[0]"
    " for x in [tf.sin(tf.reshape(tf.range(12.), [3, 4]))]",
    "tf.gradients(tf.reduce_sum(tf.signal.irfft(tf.complex(x, x)) ** 3), x)[0] for x in [tf.sin(tf.range(5.))]",
    f"tf.gradients(tf.extract_image_patches(x, [1, 3, 2, 1], [1, 2, 1, 1], [1, 1, 1, 1], 'SAME') ** 2, x)[0]"
    f" for x in [{IMAGE}]",
    f"tf.gradients(tf.nn.max_pool_with_argmax(x, [1, 2, 2, 1], [1, 1, 1, 1], 'SAME')[0] ** 2, x)[0] for x in [{IMAGE}]",
    f"tf.gradients(tf.nn.dilation2d({IMAGE}, f, [1, 1, 1, 1], [1, 1, 1, 1], 'SAME') ** 2, f)[0]"
    " for f in [tf.cos(tf.reshape(tf.range(12.), [3, 2, 2]))]",
    f"tf.nn.batch_norm_with_global_normalization({IMAGE},"
    " *map(tf.constant, [[1., 2.], [.5, 3.], [1., 0.], [2., 3.]]), 1e-3, True)",
    "tf.parallel_stack([[1, 2], [3, 4]])",
    "tf.nn.safe_embedding_lookup_sparse(tf.reshape(tf.range(8.), [4, 2]),"
    " tf.SparseTensor([[0, 0], [0, 1], [2, 0], [2, 1]], tf.constant([1, -1, 3, 0], tf.int64), [4, 2]))",
    "tf.nn.safe_embedding_lookup_sparse([tf.reshape(tf.range(8.), [4, 2])],"
    " tf.SparseTensor([[0, 0, 0], [1, 0, 1]], tf.constant([1, 3], tf.int64), [2, 2, 2]),"
    " tf.SparseTensor([[0, 0, 0], [1, 0, 1]], [2., 0.], [2, 2, 2]), default_id=2)",
]  # fmt: skip
SCRIPT = """
import json, sys, numpy as np
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
with tf.Session() as session:
    print(json.dumps([np.asarray(session.run(list(eval("[" + c + "]")))).tolist() for c in json.load(sys.stdin)]))
"""


@pytest.fixture(autouse=True)
def _fresh_graph() -> Any:
    with tf.Graph().as_default():
        yield


def run(value: Any, feeds: Any = None) -> Any:
    with tf.Session() as session:
        session.run(tf.local_variables_initializer())
        return session.run(value, feeds)


@pytest.mark.oracle
def test_against_tensorflow(oracle: str) -> None:
    environment = {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3", "PATH": "/usr/bin"}
    answer = subprocess.run(
        [oracle, "-c", SCRIPT], input=json.dumps(CASES), capture_output=True, text=True, timeout=900, env=environment
    )
    assert answer.returncode == 0, answer.stderr[-2000:]
    for case, theirs in zip(CASES, json.loads(answer.stdout.splitlines()[-1])):
        ours = run(eval("[" + case + "]", {"tf": tf}))
        np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-4, atol=2e-5, err_msg=case)


@pytest.mark.parametrize("kind", [tf.string, tf.variant])
def test_sparse_tensors_go_through_messages(kind: Any) -> None:
    sparse = tf.SparseTensor([[0, 1], [2, 0]], ["a", "b"], [3, 2])
    back = run(tf.io.deserialize_sparse(tf.serialize_sparse(sparse, out_type=kind), tf.string))
    assert back.indices.tolist() == [[0, 1], [2, 0]] and list(back.values) == [b"a", b"b"]
    rows = run(tf.deserialize_many_sparse(tf.serialize_many_sparse(sparse), tf.string))
    assert rows.indices.tolist() == [[0, 1], [2, 0]] and rows.dense_shape.tolist() == [3, 2]


def test_what_is_no_message_is_refused() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="Could not parse serialized proto"):
        run(tf.io.deserialize_sparse(["x", "y", "z"], tf.int32))


def test_numbers_are_checked_in_order() -> None:
    value = tf.placeholder(tf.float32)
    check = tf.debugging.assert_all_finite(tf.log(value), "logarithm")
    assert run(check, {value: 1.0}) == 0
    with pytest.raises(tf.errors.InvalidArgumentError, match="logarithm"):
        run(check, {value: -1.0})
    with pytest.raises(tf.errors.InvalidArgumentError, match="Inf"):
        run(tf.add_check_numerics_ops(), {value: 0.0})


def test_metrics_at_k() -> None:
    predictions = [[0.1, 0.3, 0.2, 0.4], [0.1, 0.2, 0.3, 0.4]]
    labels = np.array([[3, 1], [0, 1]], np.int64)
    for metric, wanted in ((tf.metrics.precision_at_k, 0.5), (tf.metrics.recall_at_k, 0.5),
                           (tf.metrics.average_precision_at_k, 0.5)):  # fmt: skip
        assert run(metric(labels, predictions, 2)[1]) == pytest.approx(wanted)
    assert run(tf.metrics.recall_at_k(labels, predictions, 2, class_id=1)[1]) == 0.5
    assert np.isnan(run(tf.metrics.precision_at_k(labels, predictions, 2, class_id=0)[1]))


def test_weights_of_unknown_rank_are_checked_in_the_step() -> None:
    weights = tf.placeholder(tf.float32)
    loss = tf.losses.absolute_difference(tf.ones([3, 2]), tf.zeros([3, 2]), weights)
    assert run(loss, {weights: [[2.0], [2.0], [2.0]]}) == 2
    with pytest.raises(tf.errors.InvalidArgumentError, match="weights can not be broadcast"):
        run(loss, {weights: [[2.0], [2.0]]})


def test_raw_loop_of_a_cell() -> None:
    cell = tf.nn.rnn_cell.BasicRNNCell(2, activation=tf.identity)
    inputs = tf.ones([3, 1, 2])

    def step(time: Any, output: Any, state: Any, loop_state: Any) -> Any:
        state = cell.zero_state(1, tf.float32) if output is None else state
        return tf.fill([1], time >= 3), inputs[0], state, output, loop_state

    with tf.variable_scope("", initializer=tf.ones_initializer()):
        emitted, state, loop_state = tf.nn.raw_rnn(cell, step)
    assert loop_state is None
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        values, last = session.run([emitted.stack(), state])
    assert values.shape == (3, 1, 2) and np.array_equal(values[2], last)


def test_volume_layers() -> None:
    volume = tf.ones([1, 4, 4, 4, 2])
    assert tf.layers.conv3d(volume, 3, 2, dilation_rate=1).shape.as_list() == [1, 3, 3, 3, 3]
    assert tf.layers.conv3d_transpose(volume, 3, 2, strides=2).shape.as_list() == [1, 8, 8, 8, 3]
    assert run(tf.layers.average_pooling3d(volume, 2, 2)).tolist() == np.ones([1, 2, 2, 2, 2]).tolist()
    assert tf.layers.max_pooling3d(volume, 2, 2, data_format="channels_first").shape.as_list() == [1, 4, 2, 2, 1]


def test_the_deprecated_normalisation_has_the_gradients_of_the_new_one() -> None:
    inputs = [tf.sin(tf.reshape(tf.range(24.0), [2, 3, 2, 2])),
              *(tf.constant(v) for v in ([1.0, 2.0], [0.5, 3.0], [1.0, 0.0], [2.0, 3.0]))]  # fmt: skip
    old = tf.raw_ops.BatchNormWithGlobalNormalization(
        **dict(zip(("t", "m", "v", "beta", "gamma"), inputs)), variance_epsilon=1e-3, scale_after_normalization=True
    )
    new = tf.nn.batch_normalization(*inputs, 1e-3)
    ours, theirs = run([[y, *tf.gradients(y**2, inputs)] for y in (old, new)])
    for one, other in zip(ours, theirs):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_lengths_are_a_vector() -> None:
    cell = tf.nn.rnn_cell.BasicRNNCell(2)
    for run_cell, inputs in ((tf.nn.dynamic_rnn, tf.ones([3, 4, 2])), (tf.nn.static_rnn, [tf.ones([3, 2])])):
        with pytest.raises(ValueError, match="must be a vector"):
            run_cell(cell, inputs, sequence_length=[[3], [2], [1]], dtype=tf.float32)


def test_state_saving_loop() -> None:
    class Saver:
        saved: list[str] = []

        def state(self, name: str) -> Any:
            return tf.ones([1, 2])

        def save_state(self, name: str, value: Any) -> Any:
            self.saved.append(name)
            return tf.identity(value)

    cell = tf.nn.rnn_cell.BasicRNNCell(2, activation=tf.identity)
    outputs, state = tf.nn.static_state_saving_rnn(cell, [tf.ones([1, 2])], Saver(), "state")
    assert Saver.saved == ["state"] and outputs[0].shape.as_list() == [1, 2] == state.shape.as_list()
    with pytest.raises(ValueError, match="same type"):
        tf.nn.static_state_saving_rnn(cell, [tf.ones([1, 2])], Saver(), ("a", "b"))
