"""Training loops of ``tf.contrib.slim`` and ``tf.contrib.training``."""

from __future__ import annotations

from pathlib import Path

import pytest

import tfmini as tf
from tests.train.loops.square import square, trained

slim, training = tf.contrib.slim, tf.contrib.training


def test_slim_trains_until_the_last_step_and_saves(tmp_path: Path) -> None:
    assert trained(tmp_path) == pytest.approx(4 * 0.64**3)
    assert tf.train.latest_checkpoint(str(tmp_path)).endswith("model.ckpt-4")
    assert [file.name for file in tmp_path.glob("tf_trace-*.json")]


def test_slim_continues_from_its_checkpoint(tmp_path: Path) -> None:
    trained(tmp_path)
    with tf.Graph().as_default():
        assert trained(tmp_path, 6) == pytest.approx(4 * 0.64**5, rel=1e-5)


def test_slim_refuses_arguments_that_contradict_one_another() -> None:
    train = slim.learning.train
    for arguments, told in (
        ({"train_op": None}, "train_op cannot be None."),
        ({"saver": tf.train.Saver}, "Cannot provide saver because logdir=None"),
        ({"trace_every_n_steps": 1}, "Cannot provide trace_every_n_steps because logdir=None"),
        ({"number_of_steps": 0}, "must be either None or a positive number"),
        ({"sync_optimizer": 1, "startup_delay_steps": 2}, "startup_delay_steps must be zero"),
        ({"sync_optimizer": tf.train.AdamOptimizer()}, "must be a tf.train.SyncReplicasOptimizer"),
    ):
        with pytest.raises(ValueError, match=told):
            train(**{"train_op": tf.constant(1.0), "logdir": None, **arguments})


def test_slim_trains_synchronously() -> None:
    _, loss = square()
    optimizer = tf.train.SyncReplicasOptimizer(tf.train.GradientDescentOptimizer(0.1), 1)
    train_op = slim.learning.create_train_op(loss, optimizer)
    assert slim.learning.train(train_op, None, sync_optimizer=optimizer, number_of_steps=3) < 4


def test_a_train_op_runs_in_a_monitored_session(tmp_path: Path) -> None:
    _, loss = square()
    op = training.create_train_op(loss, tf.train.GradientDescentOptimizer(0.1))
    last = training.train(op, str(tmp_path), hooks=[tf.train.StopAtStepHook(3)])
    assert last == pytest.approx(4 * 0.64**2)
    with pytest.raises(ValueError, match="logdir cannot be None when save_summaries_steps is not None"):
        training.train(op, None)
