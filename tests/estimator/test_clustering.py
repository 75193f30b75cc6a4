"""Estimators of k-means: a cluster of real processes, and the waiting for the chief's first centers."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import pytest

import tfmini as tf
from tests.estimator import clustering_task
from tests.estimator.test_cluster_training import run_cluster


@pytest.mark.cluster
def test_tasks_train_together_from_the_centers_that_the_chief_chose(tmp_path: Path) -> None:
    printed = run_cluster({"ps": 2, "chief": 1, "worker": 1}, tmp_path, clustering_task.__file__)
    model = tf.contrib.factorization.KMeansClustering(3, str(tmp_path / "model"))
    assert np.allclose(sorted(model.cluster_centers().tolist()), sorted(clustering_task.CENTERS.tolist()), atol=0.5)
    assert model.score(clustering_task.points) < 12 * 2
    assert all("placed /job:ps/task:" in text and "steps" in text for text in printed.values())


class _Session:
    """Says after some time that the centers are there."""

    def __init__(self, answers: list[bool]) -> None:
        self.answers, self.ran = answers, []

    def run(self, fetch: object) -> bool:
        self.ran.append(fetch)
        return self.answers.pop(0)


class _Coordinator:
    """Its waits take no time; it stops after a number of them."""

    def __init__(self, waits: int) -> None:
        self.waits = waits

    def wait_for_stop(self, timeout: float) -> bool:
        self.waits -= 1
        return self.waits <= 0


@pytest.mark.parametrize(("waits", "asked"), [(9, 3), (2, 2)])
def test_a_worker_waits_for_the_chief_until_it_is_stopped(
    waits: int, asked: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = {"chief": ["localhost:1"], "ps": ["localhost:2"], "worker": ["localhost:3"]}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0}}))
    caplog.set_level(logging.INFO, "tensorflow")
    model = tf.contrib.factorization.KMeansClustering(2, initial_clusters=[[0.0], [1.0]])
    tf.train.create_global_step()
    spec = model.model_fn(tf.constant([[0.5]]), None, tf.estimator.ModeKeys.TRAIN, model.config)
    session = _Session([False, False, True])
    spec.training_hooks[0].after_create_session(session, _Coordinator(waits))
    assert len(session.ran) == asked and "Waiting for the chief" in caplog.text


def test_the_chief_chooses_centers_from_as_many_batches_as_it_takes() -> None:
    taken = []

    def two_more(inputs: list[tf.Tensor], missing: tf.Tensor) -> tf.Tensor:
        taken.append(inputs)
        return inputs[0][: tf.minimum(missing, 2)]

    model = tf.contrib.factorization.KMeansClustering(5, initial_clusters=two_more)
    model.train(lambda: tf.data.Dataset.range(100).map(lambda i: tf.cast([i], tf.float32)).batch(10), steps=1)
    # Three batches for centers, 0, 1, 10, 11 and 20, and one that moved the nearest.
    assert model.cluster_centers().ravel()[:4].tolist() == [0, 1, 10, 11] and len(taken) == 1


def test_transform_of_the_newer_estimator_gives_distances() -> None:
    def points() -> tf.data.Dataset:
        return tf.data.Dataset.from_tensors([[0.0, 0.0], [3.0, 4.0]])

    older = tf.contrib.factorization.KMeansClustering(1, initial_clusters=[[0.0, 0.0]])
    older.train(lambda: points().repeat(), steps=1)
    newer = tf.estimator.experimental.KMeans(1, older.model_dir, initial_clusters=[[0.0, 0.0]])
    distances = np.array(list(newer.transform(points)))
    assert np.allclose(distances**2, list(older.transform(points)), atol=1e-5)
