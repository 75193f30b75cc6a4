"""What tfmini and TensorFlow 1.15 run for the tests of ``tf.estimator.tpu``; see `tests.oracle`."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import numpy as np


def _model_fn(tf: Any, called: list) -> Any:
    tpu = tf.estimator.tpu

    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        called.append([mode, params.get("batch_size"), params["width"]])
        out = tf.layers.dense(features["x"], 1, kernel_initializer=tf.zeros_initializer())
        predictions = {"y": out[:, 0]}
        if mode == "infer":
            outputs = {"serving_default": tf.estimator.export.PredictOutput(predictions)}
            return tpu.TPUEstimatorSpec(mode, predictions=predictions, export_outputs=outputs)
        loss = tf.reduce_mean((out[:, 0] - labels) ** 2)
        optimizer = tpu_optimizer(tf, tf.train.GradientDescentOptimizer(0.1))
        step = tf.train.get_global_step()
        metrics = (lambda y, labels: {"error": tf.metrics.mean_absolute_error(labels, y)}, [out[:, 0], labels])
        counted = tf.get_variable("host_calls", initializer=0, trainable=False)
        call = (lambda loss: tf.assign_add(counted, 1), [loss])
        return tpu.TPUEstimatorSpec(
            mode, loss=loss, train_op=optimizer.minimize(loss, step), eval_metrics=metrics,
            host_call=call if mode == "train" else None, scaffold_fn=lambda: tf.train.Scaffold(),
        )  # fmt: skip

    return model_fn


def tpu_optimizer(tf: Any, optimizer: Any) -> Any:
    """The optimizer; that of tfmini also works in its wrapper, which needs a TPU in TensorFlow."""
    return tf.contrib.tpu.CrossShardOptimizer(optimizer) if tf.__name__ == "tfmini" else optimizer


def trained_evaluated_predicted(tf: Any) -> dict:
    """What a TPUEstimator without a TPU gives, and with which params its functions are called."""
    called: list = []

    def input_fn(params: Any) -> Any:
        x = np.arange(32, dtype=np.float32).reshape(16, 2) / 32
        data = tf.data.Dataset.from_tensor_slices(({"x": x}, x.sum(1)))
        return data.repeat(4).batch(params["batch_size"], drop_remainder=True)

    with tempfile.TemporaryDirectory() as directory:
        settings = tf.estimator.tpu.TPUConfig(iterations_per_loop=3, num_shards=8)
        config = tf.estimator.tpu.RunConfig(
            model_dir=directory, tpu_config=settings, master=None, save_checkpoints_steps=5, tf_random_seed=1
        )
        made = tf.estimator.tpu.TPUEstimator(
            _model_fn(tf, called), config=config, params={"width": 2}, use_tpu=False, train_batch_size=4,
            eval_batch_size=8, predict_batch_size=2, export_to_tpu=False,
        )  # fmt: skip
        made.train(input_fn, max_steps=10)
        found = made.evaluate(input_fn, steps=2)
        rows = [row["y"] for row, _ in zip(made.predict(input_fn), range(3))]
        serving = tf.estimator.export.build_raw_serving_input_receiver_fn({"x": tf.zeros([1, 2])})
        exported = made.export_saved_model(os.path.join(directory, "out"), serving)
        return {
            "called": called, "metrics": found, "rows": np.array(rows),
            "host_calls": made.get_variable_value("host_calls"),
            "config": [list(made.config.tpu_config)[:4], made.config.master, made.config.save_checkpoints_steps],
            "exported": sorted(os.listdir(exported)),
        }  # fmt: skip
