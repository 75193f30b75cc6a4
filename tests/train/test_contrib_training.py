"""Training and evaluation loops of ``tf.contrib.slim`` and ``tf.contrib.training``, `optimize_loss` and HParams."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tfmini as tf

slim, training = tf.contrib.slim, tf.contrib.training


@pytest.fixture(autouse=True)
def fresh_graph() -> Any:
    with tf.Graph().as_default():
        yield


def square() -> tuple[Any, Any]:
    """(a variable that is 2, its square)."""
    x = slim.model_variable("x", [], initializer=tf.constant_initializer(2.0))
    return x, x * x


def trained(directory: Path, steps: int = 4) -> float:
    _, loss = square()
    train_op = slim.learning.create_train_op(loss, tf.train.GradientDescentOptimizer(0.1))
    return float(slim.learning.train(train_op, str(directory), number_of_steps=steps, trace_every_n_steps=2))


def test_slim_trains_until_the_last_step_and_saves(tmp_path: Path) -> None:
    assert trained(tmp_path) == pytest.approx(4 * 0.64**3)
    assert tf.train.latest_checkpoint(str(tmp_path)).endswith("model.ckpt-4")
    assert [file.name for file in tmp_path.glob("tf_trace-*.json")]


def test_slim_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
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


def test_the_train_op_runs_updates_scales_and_clips() -> None:
    x, loss = square()
    count = tf.get_variable("count", initializer=0, trainable=False)
    tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, tf.assign_add(count, 1))
    optimizer = tf.train.GradientDescentOptimizer(1.0)
    op = slim.learning.create_train_op(
        loss, optimizer, clip_gradient_norm=0.5, gradient_multipliers={"x": 10.0}, summarize_gradients=True
    )
    assert tf.get_collection(tf.GraphKeys.TRAIN_OP)[-1] is op
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(op) == 4
        assert session.run([x, count, tf.train.get_global_step()]) == [1.5, 1, 1]
    with pytest.raises(ValueError, match="Requested multiple of `None` gradient."):
        training.multiply_gradients([(None, x)], {x: 2.0})


def test_a_loss_that_is_not_finite_is_an_error() -> None:
    x, _ = square()
    op = training.create_train_op(x / 0.0, tf.train.GradientDescentOptimizer(1.0))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        with pytest.raises(tf.errors.InvalidArgumentError, match="LossTensor is inf or nan"):
            session.run(op)


def test_training_in_a_monitored_session(tmp_path: Path) -> None:
    _, loss = square()
    op = training.create_train_op(loss, tf.train.GradientDescentOptimizer(0.1))
    last = training.train(op, str(tmp_path), hooks=[tf.train.StopAtStepHook(3)])
    assert last == pytest.approx(4 * 0.64**2)
    with pytest.raises(ValueError, match="logdir cannot be None when save_summaries_steps is not None"):
        training.train(op, None)


def test_evaluation_of_a_checkpoint(tmp_path: Path) -> None:
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


def test_evaluation_of_what_is_in_a_directory(tmp_path: Path) -> None:
    trained(tmp_path)
    with tf.Graph().as_default():
        _, loss = square()
        runs = tf.assign_add(tf.get_variable("runs", initializer=0, collections=["local_variables"]), 1)
        found = slim.evaluation.evaluation_loop(
            "", str(tmp_path), str(tmp_path / "eval"), num_evals=2, eval_op=runs, final_op=[loss, runs],
            max_number_of_evaluations=1, eval_interval_secs=0,
        )  # fmt: skip
        assert found[0] == pytest.approx(4 * 0.64**4, rel=1e-5) and found[1] == 3


def test_variables_get_values_from_python_and_from_a_checkpoint(tmp_path: Path) -> None:
    trained(tmp_path)
    checkpoint = tf.train.latest_checkpoint(str(tmp_path))
    with tf.Graph().as_default():
        x, _ = square()
        other = tf.get_variable("other", [2], initializer=tf.zeros_initializer())
        with pytest.raises(ValueError, match=r"Checkpoint is missing variable \[other\]"):
            slim.assign_from_checkpoint(checkpoint, [x, other])
        restore = slim.assign_from_checkpoint_fn(checkpoint, [x, other], ignore_missing_vars=True)
        put = slim.assign_from_values_fn({"other": np.array([[3.0], [4.0]])})
        with pytest.raises(ValueError, match="Variable nothing wasn't found"):
            slim.assign_from_values({"nothing": 1})
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            restore(session)
            put(session)
            assert session.run(x) == pytest.approx(2 * 0.8**4, rel=1e-5)
            assert session.run(other).tolist() == [3, 4]
    assert ("x", []) in tf.contrib.framework.list_variables(checkpoint)


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "Momentum", "RMSProp", "Adagrad", "Ftrl"])
def test_a_loss_is_optimized_by_the_name_of_the_optimizer(optimizer: str) -> None:
    _, loss = square()
    step = tf.train.get_or_create_global_step()
    op = tf.contrib.layers.optimize_loss(
        loss, step, 0.1, optimizer, clip_gradients=1.0, summaries=tf.contrib.layers.OPTIMIZER_SUMMARIES,
        learning_rate_decay_fn=lambda rate, at: tf.train.exponential_decay(rate, at, 10, 0.5),
    )  # fmt: skip
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(op) == 4 and session.run(op) < 4
        assert session.run(step) == 2
        tags = {v.tag for v in tf.Summary.FromString(session.run(tf.summary.merge_all())).value}
    assert {"OptimizeLoss/loss", "OptimizeLoss/gradients/x_0", "OptimizeLoss/global_norm/gradient_norm"} <= tags


def test_what_optimize_loss_refuses() -> None:
    _, loss = square()
    optimize = tf.contrib.layers.optimize_loss
    tf.train.get_or_create_global_step()
    for arguments, told in (
        ((tf.ones([2]), None, 0.1, "SGD"), "Expected scalar shape"),
        ((loss, None, "fast", "SGD"), "Learning rate should be 0d Tensor or float"),
        ((loss, None, None, "SGD"), "Learning rate is None, but should be specified if optimizer is string"),
        ((loss, None, 0.1, "Best"), "Optimizer name should be one of"),
        ((loss, None, 0.1, 7), "Unrecognized optimizer"),
    ):
        with pytest.raises(ValueError, match=told):
            optimize(*arguments)


def test_hyperparameters_keep_their_types() -> None:
    given = training.HParams(rate=0.1, layers=2, sizes=[1, 2, 3], name="a", flag=True)
    assert given.parse("rate=1,layers=3,sizes[1]=9,name=b,flag=false") is given
    assert given.values() == {"rate": 1.0, "layers": 3, "sizes": [1, 9, 3], "name": "b", "flag": False}
    assert isinstance(given.rate, float) and "rate" in given and given.get("none", 5) == 5
    assert given.parse_json('{"sizes": [4]}').sizes == [4]
    assert training.HParams(**{"a": 1}).to_json() == '{"a": 1}'
    for text, told in (
        ("other=1", "Unknown hyperparameter type for other"), ("layers=x", "Could not parse hparam 'layers'"),
        ("layers=1,layers=2", "Multiple assignments"), ("layers", "Malformed hyperparameter value: layers"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=told):
            given.parse(text)
    for name, value, told in (
        ("layers", 1.5, "Could not cast hparam 'layers'"), ("layers", [1], "Must not pass a list"),
        ("sizes", 1, "Must pass a list"), ("flag", 1, "Could not cast"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=told):
            given.set_hparam(name, value)
    with pytest.raises(ValueError, match="reserved: parse"):
        training.HParams(parse=1)
    given.del_hparam("rate")
    assert "rate" not in given


def test_variables_may_be_given_as_a_view_of_a_dictionary() -> None:
    variables = {"b": tf.Variable(1.0), "a": tf.Variable(2.0)}
    loss = variables["a"] * variables["b"]
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    assert [v for _, v in optimizer.compute_gradients(loss, variables.values())] == list(variables.values())


@pytest.mark.parametrize("shrinkage", [0.0, 0.1])
def test_ftrl_updates_a_scalar(shrinkage: float) -> None:
    x = tf.Variable(3.0)
    l1 = 0.1 if shrinkage else 0.0
    optimizer = tf.train.FtrlOptimizer(
        0.1, l1_regularization_strength=l1, l2_shrinkage_regularization_strength=shrinkage
    )
    op = optimizer.minimize(x * x)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(op)
        session.run(op)
        assert session.run(x) == pytest.approx(2.656606 if shrinkage else 2.674826)  # TensorFlow's values
