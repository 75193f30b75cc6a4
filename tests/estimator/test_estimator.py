"""An estimator trains, evaluates, predicts and exports; its arguments are checked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tfmini as tf
from tests.estimator import models, programs
from tests.estimator.agreement import assert_same
from tests.oracle import sent


def constant_model(features, labels, mode):
    """Predicts a variable; its loss is the variable's square."""
    v = tf.get_variable("v", initializer=3.0)
    step = tf.train.get_or_create_global_step()
    with tf.control_dependencies([features]):
        train = tf.group(tf.assign_sub(v, 0.5), tf.assign_add(step, 1))
    return tf.estimator.EstimatorSpec(mode, predictions=features * v, loss=v * v, train_op=train)


def numbers(epochs=1):
    return lambda: tf.data.Dataset.from_tensor_slices([1.0, 2.0, 3.0]).repeat(epochs).batch(2)


@pytest.mark.oracle_1x
@pytest.mark.parametrize("program", ["trained_evaluated_predicted", "exported"])
def test_it_does_what_tensorflow_does(oracle_1x, program: str) -> None:
    run = getattr(programs, program)
    arguments = (20,) if program == "trained_evaluated_predicted" else ()
    assert_same(sent(run(tf, *arguments)), oracle_1x.call(run, *arguments))


def test_a_model_is_trained_from_its_latest_checkpoint_on(tmp_path: Path) -> None:
    made = tf.estimator.Estimator(constant_model, str(tmp_path))
    assert made.train(numbers(None), steps=3) is made
    assert made.get_variable_value("v") == 1.5 and made.latest_checkpoint().endswith("model.ckpt-3")
    made.train(numbers(None), max_steps=2)  # reached before
    assert made.get_variable_value("global_step") == 3
    tf.estimator.Estimator(constant_model, str(tmp_path)).train(numbers(1))  # to the end of the input: two batches
    assert made.get_variable_value("v") == 0.5 and sorted(made.get_variable_names()) == ["global_step", "v"]


def test_evaluation_counts_batches_and_writes_summaries(tmp_path: Path) -> None:
    made = models.estimator(tf, tmp_path)
    before = made.evaluate(models.inputs(tf))
    assert before["global_step"] == 0  # without a checkpoint: the initial values
    made.train(models.inputs(tf, epochs=3))
    after = made.evaluate(models.inputs(tf), name="small", steps=1)
    assert after["global_step"] == 23 and isinstance(after["loss"], np.float32) and after["loss"] < before["loss"]
    found = tf.contrib.estimator.read_eval_metrics(made.eval_dir("small"))
    assert found[23]["accuracy"] == pytest.approx(after["accuracy"])


def test_a_model_may_give_the_op_that_initializes_what_evaluation_adds(tmp_path: Path) -> None:
    def model(features, labels, mode):
        spec = constant_model(features, labels, mode)
        own = tf.train.Scaffold(local_init_op=tf.group(tf.train.Scaffold.default_local_init_op()))  # as AdaNet's
        return spec._replace(scaffold=own)

    assert tf.estimator.Estimator(model, str(tmp_path)).evaluate(numbers(), steps=1)["loss"] == 9.0


def test_predictions_come_one_by_one_or_in_batches(tmp_path: Path) -> None:
    made = models.estimator(tf, tmp_path)
    rows = list(made.predict(models.inputs(tf, batch=50), predict_keys=["class"]))
    assert len(rows) == 120 and list(rows[0]) == ["class"] and rows[0]["class"].shape == ()
    batches = list(made.predict(models.inputs(tf, batch=50), yield_single_examples=False))
    assert [len(batch["class"]) for batch in batches] == [50, 50, 20]
    with pytest.raises(ValueError, match="at least one output"):
        next(made.predict(models.inputs(tf), predict_keys=["nothing"]))
    plain = tf.estimator.Estimator(constant_model, str(tmp_path / "plain"))
    assert list(plain.predict(numbers())) == [3.0, 6.0, 9.0]


def test_predictions_leave_the_callers_default_graph_alone(tmp_path: Path) -> None:
    graph = tf.get_default_graph()
    for _ in models.estimator(tf, tmp_path).predict(models.inputs(tf)):
        assert tf.get_default_graph() is graph
    assert tf.get_default_graph() is graph


def test_hooks_and_listeners_are_called(tmp_path: Path) -> None:
    saved = []

    class Listener(tf.train.CheckpointSaverListener):
        def after_save(self, session, global_step_value) -> None:
            saved.append(global_step_value)

    config = tf.estimator.RunConfig(str(tmp_path), save_checkpoints_steps=2)
    made = tf.estimator.Estimator(constant_model, config=config)
    made.train(numbers(None), steps=5, saving_listeners=[Listener()], hooks=[tf.train.StopAtStepHook(last_step=4)])
    assert saved == [0, 2, 4]
    never = made.config.replace(save_checkpoints_steps=None, save_checkpoints_secs=None)
    with pytest.raises(ValueError, match="CheckpointSaverHook"):
        tf.estimator.Estimator(constant_model, config=never).train(numbers(), saving_listeners=[Listener()])
    for bad in ({"hooks": ["no hook"]}, {"saving_listeners": [3]}):
        with pytest.raises(TypeError):
            made.train(numbers(), **bad)


def test_input_functions_get_what_they_name(tmp_path: Path) -> None:
    seen = {}

    def input_fn(mode, params, config):
        seen.update(mode=mode, params=params, directory=config.model_dir)
        return tf.constant([1.0, 2.0])

    def model_fn(features, mode, params):
        return tf.estimator.EstimatorSpec(mode, predictions=features * params["factor"])

    made = tf.estimator.Estimator(model_fn, str(tmp_path), params={"factor": 2.0})
    assert next(made.predict(input_fn)) == 2.0
    assert seen == {"mode": "infer", "params": {"factor": 2.0}, "directory": str(tmp_path)}


def test_training_may_start_from_another_models_variables(tmp_path: Path) -> None:
    tf.estimator.Estimator(constant_model, str(tmp_path / "a")).train(numbers(None), steps=4)
    made = tf.estimator.Estimator(constant_model, str(tmp_path / "b"), warm_start_from=str(tmp_path / "a"))
    made.train(numbers(None), steps=1)
    assert made.get_variable_value("v") == 0.5 and made.get_variable_value("global_step") == 1
    with pytest.raises(ValueError, match="MUST be set"):
        tf.estimator.WarmStartSettings("")


@pytest.mark.parametrize(
    ("model_fn", "params", "told"),
    [
        (lambda x: x, None, "must include features"),
        (lambda features, mode: 1, {"a": 1}, "does not include params"),
        (lambda features, mood: 1, None, "not expected args: \\['mood'\\]"),
        (None, None, "must be provided"),
    ],
)
def test_model_functions_are_checked(model_fn, params, told: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=told):
        tf.estimator.Estimator(model_fn, str(tmp_path), params=params)


def test_calls_are_checked(tmp_path: Path) -> None:
    made = models.estimator(tf, tmp_path)
    with pytest.raises(ValueError, match="both steps and max_steps"):
        made.train(models.inputs(tf), steps=1, max_steps=1)
    for call in (made.train, made.evaluate):
        with pytest.raises(ValueError, match="Must specify steps > 0"):
            call(models.inputs(tf), steps=0)
    with pytest.raises(ValueError, match="find trained model"):
        made.get_variable_names()
    with pytest.raises(ValueError, match="different values"):
        tf.estimator.Estimator(constant_model, "/a", tf.estimator.RunConfig("/b"))
    no_labels = tf.estimator.Estimator(lambda features, mode: None, str(tmp_path))
    with pytest.raises(ValueError, match="does not take labels"):
        no_labels.train(models.inputs(tf))
    with pytest.raises(ValueError, match="return an EstimatorSpec"):
        next(no_labels.predict(models.inputs(tf)))
