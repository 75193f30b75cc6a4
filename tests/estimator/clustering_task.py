"""A task of a cluster that trains k-means, run as a process with TF_CONFIG. Argument: the model's directory."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import tfmini as tf

CENTERS = np.float32([[0, 0], [10, 0], [0, 10]])


def points() -> Any:
    """Sixty points around three centers: a dataset of batches of a dozen, without end."""
    rows = CENTERS[np.arange(60) % 3] + np.random.RandomState(1).uniform(-1, 1, [60, 2]).astype(np.float32)
    return tf.data.Dataset.from_tensor_slices(rows).repeat().batch(12)


class Watch(tf.train.SessionRunHook):
    """Prints where the centers are, and the number of steps of this task."""

    def begin(self) -> None:
        self._steps = 0
        print("placed", {v.op.name: v.device for v in tf.global_variables()}["clusters"], flush=True)

    def before_run(self, run_context: Any) -> None:
        self._steps += 1

    def end(self, session: Any) -> None:
        print("steps", self._steps, flush=True)


def main(directory: str) -> None:
    """Trains until a step of all tasks."""
    config = tf.estimator.RunConfig(model_dir=directory, experimental_max_worker_delay_secs=0)
    model = tf.contrib.factorization.KMeansClustering(3, initial_clusters="kmeans_plus_plus", config=config)
    train = tf.estimator.TrainSpec(points, max_steps=40, hooks=[Watch()])
    tf.estimator.train_and_evaluate(model, train, tf.estimator.EvalSpec(points, steps=2, start_delay_secs=0))


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.INFO)
    main(sys.argv[1])
