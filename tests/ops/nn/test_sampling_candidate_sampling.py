"""Samplers of candidate classes, and the losses that use them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.ops.session_run import run
from tfmini.ops.nn import sampling


def test_a_loss_over_all_classes_equals_the_exact_loss() -> None:
    true = tf.constant([[3], [1]], tf.int64)
    sampled, true_count, _ = run(tf.nn.log_uniform_candidate_sampler(true, 1, 5, True, 8, seed=4))
    assert len(set(sampled.tolist())) == 5
    assert ((true_count > 0) & (true_count <= 1)).all()
    rows, ids, weights = run(tf.nn.compute_accidental_hits(true, tf.constant([1, 7, 3], tf.int64), 1))
    assert sorted(zip(rows.tolist(), ids.tolist())) == [(0, 2), (1, 0)]
    assert (weights < -1e30).all()
    table, bias = tf.constant(np.random.RandomState(0).randn(8, 3)), tf.zeros([8], tf.float64)
    inputs = tf.constant(np.random.RandomState(1).randn(2, 3))
    everything = tuple(tf.cast(v, t) for v, t in zip(
        (tf.range(8), tf.ones([2, 1]), tf.ones([8])), (tf.int64, tf.float64, tf.float64)
    ))  # fmt: skip
    loss = tf.nn.sampled_softmax_loss(table, bias, true, inputs, 8, 8, sampled_values=everything)
    exact = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=true[:, 0], logits=tf.matmul(inputs, table, transpose_b=True)
    )
    np.testing.assert_allclose(*run([loss, exact]), rtol=1e-6)


def test_samplers_draw_distinct_classes_as_often_as_they_say() -> None:
    true = tf.constant([[0], [3]], tf.int64)
    drawn = tf.nn.log_uniform_candidate_sampler(true, 1, 5, True, 10, seed=3)
    seen = np.zeros(10)
    expected = []
    with tf.Session() as sess:
        for _ in range(200):
            sampled, counts, _ = sess.run(drawn)
            assert len(set(sampled)) == 5
            seen[sampled] += 1
            expected.append(counts[0, 0])
    # As in TensorFlow, a draw that needed no second try counts p * n, which is more than its share of 1.
    assert seen[0] / 200 == pytest.approx(np.mean(expected), abs=0.15) and seen[0] > seen[9]


@pytest.mark.parametrize(
    "attrs, text",
    [
        ({"unigrams": [1.0, 0.0, 0.0, 1.0]}, "range is too small: num_sampled 3 > range 2"),
        ({"unigrams": [1.0, 1.0, 1.0, 1.0], "num_shards": 2}, "range is too small: num_sampled 3 > range 2"),
        ({"unigrams": [float("nan"), 1.0, 1.0, 1.0]}, "must be finite"),
        ({"unigrams": [0.0, 0.0, 0.0, 0.0]}, "must be finite, not negative, and not all 0"),
    ],
)
def test_a_sampler_that_cannot_find_enough_classes_says_so(attrs: Any, text: str) -> None:
    """It had drawn for ever."""
    drawn = tf.raw_ops.FixedUnigramCandidateSampler(
        true_classes=[[1]], num_true=1, num_sampled=3, unique=True, range_max=4, **attrs
    )
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match=text):
        session.run(drawn[0])


def test_rare_classes_are_found_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tfmini.ops.nn.sampling.MANY_TRIES", 100)
    drawn = tf.raw_ops.FixedUnigramCandidateSampler(
        true_classes=[[1]], num_true=1, num_sampled=3, unique=True, range_max=3, unigrams=[1.0, 1e-30, 1e-30], seed=1
    )
    with tf.Session() as session:
        assert sorted(session.run(drawn[0])) == [0, 1, 2]


def test_no_samples_hit_nothing() -> None:
    hits = tf.nn.compute_accidental_hits(tf.constant([[1], [2]], tf.int64), tf.constant([], tf.int64), 1)
    with tf.Session() as session:
        assert [each.tolist() for each in session.run(hits)] == [[], [], []]


def test_the_weights_of_learned_unigrams_end_where_an_int32_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "MOST_WEIGHT", 12)
    true = tf.constant([[0]] * 4, tf.int64)
    drawn = tf.nn.learned_unigram_candidate_sampler(true, 1, 2, False, 10, seed=1)
    with tf.Session() as session:
        counts = [session.run(drawn)[1][0, 0] for _ in range(4)]
    np.testing.assert_allclose(counts, [0.2, 0.5, 0.5, 0.5])  # 2 draws of weights 1 of 10, then 3 of 12


def test_samples_that_the_memory_has_no_room_to_draw_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The words from which they are drawn take as much as the samples, and more."""
    monkeypatch.setattr("tfmini.memory.free_memory", lambda: 1 << 30)
    many = tf.nn.learned_unigram_candidate_sampler([[1]], 1, 1 << 26, unique=False, range_max=9, seed=1)
    with tf.Session() as session, pytest.raises(tf.errors.ResourceExhaustedError, match="are free"):
        session.run(many.sampled_candidates)
