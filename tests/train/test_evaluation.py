"""Evaluation of checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest

import tfmini as tf
from tests.train.loops.square import square, trained

slim, training = tf.contrib.slim, tf.contrib.training


def test_a_checkpoint_is_evaluated(tmp_path: Path) -> None:
    trained(tmp_path)
    with tf.Graph().as_default():
        _, loss = square()
        value, update = tf.metrics.mean(loss)
        tf.summary.scalar("loss", value)
        found = slim.evaluation.evaluate_once(
            "", tf.train.latest_checkpoint(str(tmp_path)), str(tmp_path / "eval"), 3, eval_op=update, final_op=value
        )
        assert found == pytest.approx(4 * 0.64**4, rel=1e-5)
        (events,) = (tmp_path / "eval").glob("*")
        written = [v for e in tf.train.summary_iterator(str(events)) for v in e.summary.value]
        assert written[0].tag == "loss" and written[0].simple_value == pytest.approx(found)


def test_the_latest_checkpoint_of_a_directory_is_evaluated(tmp_path: Path) -> None:
    trained(tmp_path)
    with tf.Graph().as_default():
        _, loss = square()
        runs = tf.assign_add(tf.get_variable("runs", initializer=0, collections=["local_variables"]), 1)
        found = slim.evaluation.evaluation_loop(
            "", str(tmp_path), str(tmp_path / "eval"), num_evals=2, eval_op=runs, final_op=[loss, runs],
            max_number_of_evaluations=1, eval_interval_secs=0,
        )  # fmt: skip
        assert found[0] == pytest.approx(4 * 0.64**4, rel=1e-5) and found[1] == 3
