"""``tf.estimator.tpu``: a TPUEstimator without a TPU does what it does in TensorFlow 1.15."""

from __future__ import annotations

from pathlib import Path

import pytest

import tfmini as tf
from tests.estimator import tpu_programs
from tests.estimator.agreement import assert_same
from tests.oracle import Oracle, sent
from tfmini.compat import internals


@pytest.mark.oracle_1x
def test_a_tpu_estimator_trains_evaluates_and_predicts_on_cpus(oracle_1x: Oracle) -> None:
    ours = sent(tpu_programs.trained_evaluated_predicted(tf))
    assert_same(ours, oracle_1x.call(tpu_programs.trained_evaluated_predicted))


def test_model_and_input_functions_get_the_batch_size() -> None:
    found = tpu_programs.trained_evaluated_predicted(tf)
    assert [(mode, size) for mode, size, _ in found["called"]][:3] == [("train", 4), ("eval", 8), ("infer", 2)]
    assert found["host_calls"] == 10
    assert found["metrics"]["global_step"] == 10


def test_the_model_function_learns_that_it_runs_on_no_tpu() -> None:
    seen = []

    def model(features: tf.Tensor, labels: object, mode: str, params: dict[str, object]) -> object:
        seen.append(sorted(params))
        step = tf.assign_add(tf.train.get_or_create_global_step(), 1)
        return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=tf.reduce_sum(features), train_op=step)

    def rows(params: dict[str, object]) -> tf.data.Dataset:
        seen.append(sorted(params))
        return tf.data.Dataset.from_tensors(tf.ones([2]))

    config = tf.estimator.tpu.RunConfig()
    estimator = tf.estimator.tpu.TPUEstimator(model, config=config, use_tpu=False, train_batch_size=2, params={"x": 1})
    estimator.train(rows, max_steps=1)
    assert seen == [["batch_size", "x"], ["batch_size", "use_tpu", "x"]]


def test_a_host_call_writes_summaries_of_contrib(tmp_path: Path) -> None:
    summary = tf.contrib.summary

    def model(features: tf.Tensor, labels: object, mode: str, params: dict[str, object]) -> object:
        loss = tf.reduce_sum(features)

        def written(step: tf.Tensor, losses: tf.Tensor) -> object:
            with summary.create_file_writer(str(tmp_path)).as_default(), summary.always_record_summaries():
                summary.scalar("loss", losses[0], step=step[0])
                return summary.all_summary_ops()

        step = tf.train.get_or_create_global_step()
        call = (written, [tf.reshape(step, [1]), tf.reshape(loss, [1])])
        return tf.estimator.tpu.TPUEstimatorSpec(mode, loss=loss, train_op=tf.assign_add(step, 1), host_call=call)

    config = tf.estimator.tpu.RunConfig()
    estimator = tf.estimator.tpu.TPUEstimator(model, config=config, use_tpu=False, train_batch_size=2)
    estimator.train(lambda params: tf.data.Dataset.from_tensors(tf.ones([2])).repeat(), max_steps=3)
    events = [event for path in tmp_path.glob("events*") for event in tf.train.summary_iterator(str(path))]
    assert [value.simple_value for event in events for value in event.summary.value] == [2.0] * 3


def test_a_tpu_is_refused_with_the_remedy() -> None:
    config = tf.estimator.tpu.RunConfig()
    with pytest.raises(NotImplementedError, match="Give use_tpu=False"):
        tf.contrib.tpu.TPUEstimator(lambda features, params: None, config=config)
    with pytest.raises(ValueError, match=r"`config` must be provided with type `tpu_config.RunConfig`"):
        tf.contrib.tpu.TPUEstimator(lambda features: None, config=tf.estimator.RunConfig(), use_tpu=False)
    with pytest.raises(ValueError, match="reserved keys"):
        tf.contrib.tpu.TPUEstimator(lambda features: None, config=config, use_tpu=False, params={"batch_size": 1})
    with pytest.raises(NotImplementedError, match="tfmini has no TPUs"):
        tf.contrib.cluster_resolver.TPUClusterResolver("grpc://10.0.0.1:8470")


def test_settings_are_replaced_with_those_of_the_run() -> None:
    config = tf.estimator.tpu.RunConfig(tpu_config=tf.estimator.tpu.TPUConfig(7), master="here", save_summary_steps=3)
    other = config.replace(tpu_config=tf.estimator.tpu.TPUConfig(8), save_summary_steps=4)
    assert (config.tpu_config.iterations_per_loop, other.tpu_config.iterations_per_loop) == (7, 8)
    assert (config.save_summary_steps, other.save_summary_steps, other.master) == (3, 4, "here")


def test_bfloat16_variables_are_stored_as_float32() -> None:
    with tf.contrib.tpu.bfloat16_scope():
        value = tf.get_variable("v", [2], tf.bfloat16, initializer=tf.ones_initializer())
        plain = tf.get_variable("w", [2])
    assert (value.dtype, plain.dtype.base_dtype) == (tf.bfloat16, tf.float32)
    assert [v.dtype.base_dtype for v in tf.global_variables()] == [tf.float32, tf.float32]


def test_private_paths_name_the_same_classes() -> None:
    internals.install()
    try:
        from tensorflow.contrib.tpu.python.tpu import tpu_config, tpu_estimator, tpu_optimizer  # type: ignore
        from tensorflow.python.tpu.tpu_estimator import TPUEstimator  # type: ignore
    finally:
        internals.uninstall()
    assert TPUEstimator is tpu_estimator.TPUEstimator is tf.contrib.tpu.TPUEstimator
    assert tpu_config.TPUConfig is tf.estimator.tpu.TPUConfig
    assert tpu_optimizer.CrossShardOptimizer is tf.contrib.tpu.CrossShardOptimizer
