"""Layers of ``tf.contrib`` that scripts use now and then: values worked out by hand or by numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf

layers, slim = tf.contrib.layers, tf.contrib.slim


def values(*tensors: Any) -> Any:
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        return session.run(tensors)


@pytest.fixture(autouse=True)
def fresh_graph() -> Any:
    with tf.Graph().as_default():
        yield


X = np.random.default_rng(0).normal(size=(2, 4, 3, 6)).astype(np.float32)


def test_instance_norm_normalises_each_channel_of_each_example() -> None:
    mean, variance = X.mean(axis=(1, 2), keepdims=True), X.var(axis=(1, 2), keepdims=True)
    last, first = values(
        layers.instance_norm(X), layers.instance_norm(X.transpose(0, 3, 1, 2), data_format="NCHW", scope="first")
    )
    np.testing.assert_allclose(last, (X - mean) / np.sqrt(variance + 1e-6), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(first.transpose(0, 2, 3, 1), last, rtol=1e-4, atol=1e-4)
    assert [v.op.name for v in slim.get_model_variables("first")] == ["first/beta", "first/gamma"]


def test_group_norm_normalises_groups_of_channels() -> None:
    grouped = X.reshape(2, 4, 3, 2, 3)
    mean, variance = grouped.mean(axis=(1, 2, 4), keepdims=True), grouped.var(axis=(1, 2, 4), keepdims=True)
    (found,) = values(layers.group_norm(X, groups=2))
    np.testing.assert_allclose(
        found, ((grouped - mean) / np.sqrt(variance + 1e-6)).reshape(X.shape), rtol=1e-4, atol=1e-4
    )
    with pytest.raises(ValueError, match="6 channels is not commensurate with 4 groups."):
        layers.group_norm(X, groups=4)
    with pytest.raises(ValueError, match="Invalid groups 32 for 6 channels."):
        layers.group_norm(X)


def test_convolutions_and_pooling_over_one_and_three_axes() -> None:
    ones = tf.ones_initializer()
    line, volume = np.ones((1, 5, 2), np.float32), np.ones((1, 4, 4, 4, 1), np.float32)
    with slim.arg_scope([slim.conv1d, slim.conv3d], weights_initializer=ones, activation_fn=None):
        found = values(
            slim.conv1d(line, 3, 2, padding="VALID"), slim.conv3d(volume, 1, 2, padding="VALID"),
            slim.max_pool3d(volume, 2), slim.avg_pool3d(volume, 2, stride=1), slim.pool(line, 3, "AVG"),
        )  # fmt: skip
    assert [f.shape for f in found] == [(1, 4, 3), (1, 3, 3, 3, 1), (1, 2, 2, 2, 1), (1, 3, 3, 3, 1), (1, 3, 2)]
    assert [f.ravel()[0] for f in found] == [4, 8, 1, 1, 1]
    with pytest.raises(ValueError, match="expects input with rank 3, got 5"):
        slim.conv1d(volume, 3, 2)


def test_embeddings_of_sequences() -> None:
    table = tf.constant_initializer(np.arange(8, dtype=np.float32).reshape(4, 2))
    ids = [[1, 3], [2, 0]]
    plain = layers.embed_sequence(ids, 4, 2, initializer=table)
    once = layers.embed_sequence(ids, 4, 2, unique=True, initializer=table)
    bag = layers.bow_encoder(ids, 4, 2, initializer=table)
    dense = layers.bow_encoder(ids, 4, 2, sparse_lookup=False, initializer=table)
    found = values(plain, once, bag, dense)
    np.testing.assert_array_equal(found[0], [[[2, 3], [6, 7]], [[4, 5], [0, 1]]])
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], [[4, 5], [4, 5]])  # 0 is padding
    np.testing.assert_array_equal(found[3], [[4, 5], [2, 3]])
    with pytest.raises(ValueError, match="Must specify vocab size and embedding dimension"):
        layers.embed_sequence(ids)


def test_maxout_and_the_scale_of_a_gradient() -> None:
    x = tf.reshape(tf.range(12.0), [2, 6])
    (gradient,) = tf.gradients(layers.scale_gradient(x, 0.25), x)
    found = values(layers.maxout(x, 3), gradient)
    np.testing.assert_array_equal(found[0], [[1, 3, 5], [7, 9, 11]])
    np.testing.assert_array_equal(found[1], np.full((2, 6), 0.25))
    with pytest.raises(ValueError, match=r"number of features\(6\) is not a multiple of num_units\(4\)"):
        layers.maxout(x, 4)


def test_summaries_are_collected_under_the_names_of_their_tensors() -> None:
    x = tf.nn.relu6([-1.0, 2.0, 7.0], name="six")
    layers.summarize_activation(x)
    layers.summarize_tensor(tf.constant(1.0, name="one"))
    slim.summaries.add_scalar_summary(tf.constant(2.0), "two", prefix="eval")
    slim.summaries.add_zero_fraction_summary(tf.zeros([4]), "zeros")
    assert layers.summarize_tensor(tf.constant("text")) is None
    merged = tf.Summary.FromString(values(tf.summary.merge_all())[0])
    found = {v.tag: v.simple_value for v in merged.value}
    assert found["six/zeros"] == pytest.approx(1 / 3) and found["six/sixes"] == pytest.approx(1 / 3)
    assert "six/activation" in found and found["one_summary"] == 1 and found["eval/two"] == 2
    assert found["zeros/Fraction_of_Zero_Values"] == 1


def test_the_sizes_of_variables(capsys: pytest.CaptureFixture[str]) -> None:
    tf.get_variable("v", [2, 3], tf.float64)
    assert slim.model_analyzer.analyze_vars(tf.global_variables(), print_info=True) == (6, 48)
    assert "v:0 (float64 2x3) [6, bytes: 48]" in capsys.readouterr().out.replace("float64_ref", "float64")
    assert slim.model_analyzer.analyze_ops(tf.get_default_graph()) > 0


def test_a_stack_of_bidirectional_networks() -> None:
    cells = [[tf.contrib.rnn.LSTMBlockCell(n) for n in (3, 2)] for _ in range(2)]
    outputs, forward, backward = tf.contrib.rnn.stack_bidirectional_dynamic_rnn(*cells, X[:, :, 0], dtype=tf.float32)
    assert values(outputs)[0].shape == (2, 4, 4) and len(forward) == len(backward) == 2
    assert "stack_bidirectional_rnn/cell_1/bidirectional_rnn/fw/lstm_cell/kernel" in {
        v.op.name for v in tf.global_variables()
    }
    with pytest.raises(ValueError, match="must have the same depth"):
        tf.contrib.rnn.stack_bidirectional_dynamic_rnn(cells[0], cells[1][:1], X[:, :, 0], dtype=tf.float32)


def test_wrappers_of_cells() -> None:
    rnn = tf.contrib.rnn
    cell = rnn.InputProjectionWrapper(rnn.OutputProjectionWrapper(rnn.GRUBlockCellV2(3), 5), 4)
    outputs, state = tf.nn.dynamic_rnn(cell, X[:, :, 0], dtype=tf.float32)
    reader = rnn.EmbeddingWrapper(rnn.BasicRNNCell(2), 7, 3)
    words, _ = tf.nn.static_rnn(reader, [tf.constant([1, 6])], dtype=tf.float32)
    normed, _ = tf.nn.dynamic_rnn(rnn.LayerNormBasicLSTMCell(3), X[:, :, 0], dtype=tf.float32)
    assert [v.shape for v in values(outputs, state, words[0], normed)] == [(2, 4, 5), (2, 3), (2, 2), (2, 4, 3)]
    assert "rnn/layer_norm_basic_lstm_cell/forget/gamma" in {v.op.name for v in tf.global_variables()}


def test_losses_of_sequences() -> None:
    logits = np.log(np.array([[[0.5, 0.5], [0.25, 0.75]]], np.float32))
    weights = np.array([[1.0, 0.5]], np.float32)
    each = -np.log([0.5, 0.25]) * weights[0]
    loss = tf.contrib.seq2seq.sequence_loss
    found = values(
        loss(logits, [[0, 0]], weights),
        loss(logits, [[0, 0]], weights, average_across_timesteps=False),
        loss(logits, [[0, 0]], weights, False, False, True, True),
        loss(logits, [[0, 0]], weights, False, False),
        tf.contrib.legacy_seq2seq.sequence_loss_by_example([logits[:, 0], logits[:, 1]], [[0], [0]], list(weights.T)),
    )
    wanted = [each.sum() / 1.5, each / weights[0], each.sum() / 2, each[None], [each.sum() / 1.5]]
    for value, expected in zip(found, wanted, strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-5)
    with pytest.raises(ValueError, match=r"Targets must be a \[batch_size x sequence_length\] tensor"):
        loss(logits, [0], weights)


def test_a_decoder_feeds_itself() -> None:
    cell = tf.contrib.rnn.BasicRNNCell(2)
    steps = [tf.ones([1, 2])] * 3
    outputs, _ = tf.contrib.legacy_seq2seq.rnn_decoder(steps, tf.zeros([1, 2]), cell, lambda last, i: last * 0)
    assert len(outputs) == 3 and len(tf.trainable_variables()) == 2
    assert not np.allclose(*values(outputs[0], outputs[1]))


def test_metrics_with_the_predictions_first() -> None:
    metrics = tf.contrib.metrics
    names = {
        "right": metrics.streaming_accuracy([1, 0, 1, 1], [1, 0, 0, 1]),
        "recall": slim.metrics.streaming_recall([True, False], [True, True]),
        "less": metrics.streaming_percentage_less([1.0, 3.0], 2.0),
    }
    found, updates = metrics.aggregate_metric_map(names)
    with tf.Session() as session:
        session.run(tf.local_variables_initializer())
        session.run(updates)
        assert session.run(found) == {"right": 0.75, "recall": 0.5, "less": 0.5}
        assert session.run(metrics.accuracy(tf.constant([1, 2]), tf.constant([1, 3]), [3.0, 1.0])) == 0.75
    with pytest.raises(ValueError, match="Dtypes of predictions and labels should match"):
        metrics.accuracy(tf.constant([1]), tf.constant([True]))
