"""Optimizers on tables that grow, against the same optimizer on a variable of which every step uses all rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tfmini as tf

OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: tf.train.GradientDescentOptimizer(0.1),
    "momentum": lambda: tf.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True),
    "adagrad": lambda: tf.train.AdagradOptimizer(0.1, initial_accumulator_value=0.3),
    "adam": lambda: tf.train.AdamOptimizer(0.1),
    "ftrl": lambda: tf.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
    "ftrl_shrinking": lambda: tf.train.FtrlOptimizer(0.1, l2_shrinkage_regularization_strength=0.1),
    "rms_prop": lambda: tf.train.RMSPropOptimizer(0.1, centered=True),
    "adadelta": lambda: tf.train.AdadeltaOptimizer(0.1),
    "proximal_adagrad": lambda: tf.train.ProximalAdagradOptimizer(0.1, l2_regularization_strength=0.1),
    "lazy_adam": lambda: tf.contrib.opt.LazyAdamOptimizer(0.1),
}
ROWS, WIDTH = 10, 4


def trained(optimizer: Callable[[], Any], parts: int) -> Any:
    """The rows after some steps of a table in parts, or of a variable (0)."""
    random = np.random.default_rng(0)
    init = np.random.default_rng(5).standard_normal((ROWS, WIDTH)).astype(np.float32)
    with tf.Graph().as_default(), tf.Session() as session:
        table: Any
        if parts:
            partitioner = tf.fixed_size_partitioner(parts)
            table = tf.get_embedding_variable("t", WIDTH, initializer=init, partitioner=partitioner)
        else:
            table = tf.get_variable("t", initializer=init)
        ids, wanted = tf.placeholder(tf.int64, [None]), tf.placeholder(tf.float32, [None, WIDTH])
        rows = tf.nn.embedding_lookup(table, ids)
        train = optimizer().minimize(tf.reduce_sum(tf.square(rows - wanted)))
        session.run(tf.global_variables_initializer())
        for _ in range(5):
            order = random.permutation(ROWS)
            feed = np.concatenate([order, order[:3]])  # some repeat
            session.run(train, {ids: feed, wanted: random.standard_normal((len(feed), WIDTH))})
        return session.run(rows, {ids: np.arange(ROWS)})


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_table_learns_as_a_variable(name: str) -> None:
    expected = trained(OPTIMIZERS[name], 0)
    for parts in (1, 3):
        np.testing.assert_allclose(trained(OPTIMIZERS[name], parts), expected, rtol=2e-6, atol=1e-6)


def test_rows_without_a_gradient_stay() -> None:
    """Adam leaves them alone, unlike those of a variable, whose decayed means go on."""
    with tf.Graph().as_default(), tf.Session() as session:
        table = tf.get_embedding_variable("t", 2)
        ids = tf.placeholder(tf.int64, [None])
        rows = tf.nn.embedding_lookup(table, ids)
        train = tf.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(rows))
        session.run(tf.global_variables_initializer())
        session.run(train, {ids: [1, 2]})
        before = session.run(rows, {ids: [1]})
        session.run(train, {ids: [2]})
        np.testing.assert_array_equal(session.run(rows, {ids: [1]}), before)


def test_refusals_name_the_table() -> None:
    class Own(tf.train.Optimizer):
        def __init__(self) -> None:
            super().__init__(False, "Own")

    with tf.Graph().as_default():
        table = tf.get_embedding_variable("t", 2)
        loss = tf.reduce_sum(tf.nn.embedding_lookup(table, tf.constant([1], tf.int64)))
        with pytest.raises(NotImplementedError, match="Own cannot update the table 't', which grows"):
            Own().minimize(loss)
        with pytest.raises(NotImplementedError, match="AdagradDAOptimizer cannot update the table 't'"):
            tf.train.AdagradDAOptimizer(0.1, tf.train.get_or_create_global_step()).minimize(loss)
        with pytest.raises(ValueError, match="must be IndexedSlices of ids"):
            tf.train.GradientDescentOptimizer(0.1).apply_gradients([(tf.zeros([1, 2]), table)])
