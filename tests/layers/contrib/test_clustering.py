"""The graph of k-means: on parameter servers, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.launch.local import reserve_cluster
from tfmini.launch.supervision import TaskId

POINTS = np.random.RandomState(2).randn(40, 3).astype(np.float32)
KINDS = [{}, {"use_mini_batch": True}, {"use_mini_batch": True, "mini_batch_steps_per_iteration": 2}]


def _centers(target: str, device: Any, **kwargs: Any) -> tuple[np.ndarray, list[str]]:
    """The centers after a few steps, and the devices of the variables."""
    with tf.Graph().as_default(), tf.device(device):
        points = tf.placeholder(tf.float32, [None, 3])
        inputs = points if "use_mini_batch" in kwargs else [points, points[3:]]
        made = tf.contrib.factorization.KMeans(inputs, 4, **kwargs).training_graph()
        variables = tf.global_variables()
        with tf.Session(target) as session:
            session.run(tf.global_variables_initializer())
            while not session.run(made[3]):
                session.run(made[4], {points: POINTS})
            for i in range(5):
                session.run(made[5], {points: POINTS[i : i + 30]})
            return session.run(variables[0]), [v.device for v in variables]


@pytest.mark.parametrize("initial", ["random", "kmeans_plus_plus", "kmc2"])
@pytest.mark.parametrize("metric", ["squared_euclidean", "cosine"])
def test_with_variables_on_ps_the_centers_are_the_same(initial: str, metric: str) -> None:
    reserved = reserve_cluster([TaskId("ps", 0), TaskId("ps", 1), TaskId("worker", 0)])
    reserved.close()
    spec = reserved.spec
    with tf.train.Server(spec, "ps", 0), tf.train.Server(spec, "ps", 1), tf.train.Server(spec, "worker", 0) as worker:
        for kind in KINDS:
            setter = tf.train.replica_device_setter(cluster=spec, worker_device="/job:worker/task:0")
            options = {"initial_clusters": initial, "distance_metric": metric, "kmc2_chain_length": 9, **kind}
            ours, devices = _centers(worker.target, setter, **options)
            alone, _ = _centers("", None, **options)
            assert np.allclose(ours, alone, atol=1e-5)
            assert devices[:2] == ["/job:ps/task:0", "/job:ps/task:1"]


def test_draws_of_kmeans_plus_plus_need_a_seed() -> None:
    model = tf.contrib.factorization.KMeans(tf.constant(POINTS), 2, "kmeans_plus_plus", random_seed=None)
    with pytest.raises(ValueError, match="need a seed"):
        model.training_graph()


def test_too_few_points_for_kmeans_plus_plus() -> None:
    made = tf.contrib.factorization.KMeans(tf.constant(POINTS[:3]), 4, "kmeans_plus_plus").training_graph()
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        with pytest.raises(tf.errors.InvalidArgumentError):
            session.run(made[4])


def test_other_models_of_contrib_factorization_say_what_to_use() -> None:
    with pytest.raises(AttributeError, match="GaussianMixture"):
        tf.contrib.factorization.GMM  # noqa: B018
    with pytest.raises(AttributeError, match="embedding"):
        tf.contrib.factorization.WALSModel  # noqa: B018
