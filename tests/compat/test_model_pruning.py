"""``tf.contrib.model_pruning`` where 1.15.5 has no answer; what it answers is in `tests.programs.era_contrib`."""

from __future__ import annotations

import numpy as np
import pytest

import tfmini as tf


def test_a_training_loop_changes_the_masks_after_each_step_and_returns_the_loss() -> None:
    # That of 1.15.5 trains, and then fails to unpack the loss.
    pruning = tf.contrib.model_pruning
    with tf.Graph().as_default():
        net = pruning.masked_fully_connected(tf.ones([2, 3]), 4)
        step = tf.train.create_global_step()
        train = tf.contrib.slim.learning.create_train_op(tf.reduce_sum(net), tf.train.GradientDescentOptimizer(0.1))
        changed = tf.get_variable("changed", initializer=0)
        assert np.isfinite(pruning.train(train, None, changed.assign_add(1), global_step=step, number_of_steps=3))


def test_masks_of_variables_cannot_be_stripped() -> None:
    with tf.Graph().as_default() as graph:
        tf.contrib.model_pruning.masked_fully_connected(tf.ones([2, 3]), 4, scope="f")
        with pytest.raises(ValueError, match="f/mask is a VariableV2, not a constant"):
            tf.contrib.model_pruning.strip_pruning_vars_fn(graph.as_graph_def(), ["f/Relu"])


@pytest.mark.parametrize("text", ["conv", "conv:0.9:1"])
def test_a_target_without_one_name_and_value_is_refused(text: str) -> None:
    hparams = tf.contrib.model_pruning.get_pruning_hparams().override_from_dict({"weight_sparsity_map": [text]})
    with pytest.raises(ValueError, match=f"Expected name:value, got '{text}'"):
        tf.contrib.model_pruning.Pruning(hparams)
