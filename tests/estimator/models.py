"""Model functions and input functions of the tests, for any namespace ``tf``; TensorFlow runs them as well."""

from __future__ import annotations

import numpy as np


def points():
    """(120 points of four numbers, their class of three)."""
    rng = np.random.RandomState(3)
    xs = rng.randn(120, 4).astype(np.float32)
    return xs, ((xs[:, 0] > 0).astype(np.int32) + (xs[:, 1] > 0)).astype(np.int32)


def classifier(tf):
    """A model function: a hidden layer, with initial values that do not depend on chance."""
    weights = np.random.RandomState(4).randn(200).astype(np.float32)

    def dense(inputs, units, start, **kwargs):
        shape = (int(inputs.shape[1]), units)
        initial = weights[start : start + shape[0] * shape[1]].reshape(shape) * 0.3
        return tf.layers.dense(inputs, units, kernel_initializer=tf.constant_initializer(initial), **kwargs)

    def model_fn(features, labels, mode, params):
        hidden = dense(features["x"], 5, 0, activation=tf.nn.tanh)
        logits = dense(hidden, 3, 50)
        found = tf.argmax(logits, 1)
        predictions = {"class": found, "probabilities": tf.nn.softmax(logits)}
        if mode == tf.estimator.ModeKeys.PREDICT:
            outputs = {"predict": tf.estimator.export.PredictOutput(predictions)}
            return tf.estimator.EstimatorSpec(mode, predictions=predictions, export_outputs=outputs)
        loss = tf.losses.sparse_softmax_cross_entropy(labels=labels, logits=logits)
        metrics = {"accuracy": tf.metrics.accuracy(labels, found), "mean class": tf.metrics.mean(found)}
        tf.summary.scalar("accuracy", metrics["accuracy"][1])
        optimizer = tf.train.AdagradOptimizer(params["rate"])
        train_op = optimizer.minimize(loss, global_step=tf.train.get_global_step())
        return tf.estimator.EstimatorSpec(mode, predictions, loss, train_op, metrics)

    return model_fn


def inputs(tf, batch=16, epochs=1):
    """An input function: a dataset in the order of the points."""

    def input_fn():
        xs, classes = points()
        return tf.data.Dataset.from_tensor_slices(({"x": xs}, classes)).repeat(epochs).batch(batch)

    return input_fn


def estimator(tf, directory, **config):
    """An estimator of `classifier`."""
    config = tf.estimator.RunConfig(model_dir=str(directory), **config)
    return tf.estimator.Estimator(classifier(tf), config=config, params={"rate": 0.3})
