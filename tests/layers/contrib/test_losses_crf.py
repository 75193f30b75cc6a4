"""Conditional random fields, against the enumeration of all tag sequences."""

from __future__ import annotations

import itertools

import numpy as np

import tfmini as tf

STEPS, TAGS = 4, 3
_rng = np.random.RandomState(0)
INPUTS = _rng.randn(3, STEPS, TAGS).astype(np.float32)
TRANSITIONS = _rng.randn(TAGS, TAGS).astype(np.float32)
LENGTHS, TAG_SEQUENCES = np.array([4, 2, 1]), _rng.randint(0, TAGS, [3, STEPS])


def score(row: int, tags: tuple[int, ...]) -> float:
    unary = sum(INPUTS[row, step, tag] for step, tag in enumerate(tags))
    return float(unary + sum(TRANSITIONS[a, b] for a, b in itertools.pairwise(tags)))


def test_likelihoods_and_best_sequences_are_those_of_all_sequences() -> None:
    log_likelihood, transitions = tf.contrib.crf.crf_log_likelihood(INPUTS, TAG_SEQUENCES, LENGTHS, TRANSITIONS)
    decoded, best = tf.contrib.crf.crf_decode(INPUTS, TRANSITIONS, LENGTHS)
    with tf.Session() as session:
        found, tags, scores = session.run([log_likelihood, decoded, best])
    for row, length in enumerate(LENGTHS):
        every = {tags: score(row, tags) for tags in itertools.product(range(TAGS), repeat=length)}
        norm = np.log(np.sum(np.exp(list(every.values()))))
        assert np.isclose(found[row], every[tuple(TAG_SEQUENCES[row, :length].tolist())] - norm, atol=1e-4)
        winner = max(every, key=every.__getitem__)
        assert tags[row].tolist() == [*winner, *[0] * (STEPS - length)] and np.isclose(scores[row], every[winner])
        viterbi, value = tf.contrib.crf.viterbi_decode(INPUTS[row, :length], TRANSITIONS)
        assert tuple(viterbi) == winner and np.isclose(value, every[winner])


def test_transitions_are_learned() -> None:
    inputs = tf.placeholder_with_default(INPUTS, [None, None, TAGS])
    log_likelihood, transitions = tf.contrib.crf.crf_log_likelihood(inputs, TAG_SEQUENCES, LENGTHS)
    loss = -tf.reduce_mean(log_likelihood)
    train = tf.train.GradientDescentOptimizer(0.5).minimize(loss)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        first = session.run(loss)
        for _ in range(10):
            session.run(train)
        assert session.run(loss) < first and transitions.op.name == "transitions"


def test_a_sequence_of_one_step_has_no_transition() -> None:
    with tf.Session() as session:
        norm, (tags, _) = session.run([
            tf.contrib.crf.crf_log_norm(INPUTS[:, :1], [1, 1, 0], TRANSITIONS),
            tf.contrib.crf.crf_decode(INPUTS[:, :1], TRANSITIONS, [1, 1, 1]),
        ])  # fmt: skip
    assert np.allclose(norm[:2], np.log(np.exp(INPUTS[:2, 0]).sum(1))) and norm[2] == 0
    assert tags[:, 0].tolist() == INPUTS[:, 0].argmax(1).tolist()


def test_lengths_may_be_int64() -> None:
    """1.15.5 takes them, as `tf.count_nonzero` gives them."""
    potentials, tags, transitions = tf.ones([2, 3, 2]), tf.zeros([2, 3], tf.int32), tf.zeros([2, 2])
    found = []
    for dtype in (tf.int32, tf.int64):
        lengths = tf.constant([3, 1], dtype)
        likelihood, _ = tf.contrib.crf.crf_log_likelihood(potentials, tags, lengths, transitions)
        found.append([likelihood, *tf.contrib.crf.crf_decode(potentials, transitions, lengths)])
    with tf.Session() as session:
        narrow, wide = session.run(found)
    assert [each.tolist() for each in narrow] == [each.tolist() for each in wide]
