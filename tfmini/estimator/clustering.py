"""Estimators of k-means: ``tf.contrib.factorization.KMeansClustering`` and ``tf.estimator.experimental.KMeans``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from tfmini.core_types import Array, TensorLike
from tfmini.estimator.column_layers import input_layer
from tfmini.estimator.columns import Column
from tfmini.estimator.estimator import Estimator
from tfmini.estimator.model_spec import EstimatorSpec, PredictOutput
from tfmini.estimator.run_config import RunConfig
from tfmini.export import export
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import colocate_with
from tfmini.layers.contrib import clustering
from tfmini.layers.contrib.clustering import InitialClusters
from tfmini.layers.metrics import mean
from tfmini.ops.array.joining import concat
from tfmini.ops.control import with_dependencies
from tfmini.ops.math.reductions import reduce_sum
from tfmini.ops.summary import scalar
from tfmini.ops.variables.assignment import assign_add
from tfmini.ops.variables.base import Variable
from tfmini.train.checkpointing.saved_model import DEFAULT_SERVING_SIGNATURE_DEF_KEY
from tfmini.train.coordinator import Coordinator
from tfmini.train.global_steps import get_global_step
from tfmini.train.session_run_hook import SessionRunArgs, SessionRunContext, SessionRunHook, SessionRunValues
from tfmini.train.sessions.monitored_session import BaseSession

_log = logging.getLogger("tensorflow")
_POLL_S = 1.0


class _ChooseCentersHook(SessionRunHook):
    """Before training, the chief chooses the first centers, from as many batches as it takes; the others wait."""

    def __init__(self, init_op: Any, initialized: Variable, is_chief: bool) -> None:
        self._init_op, self._initialized, self._is_chief = init_op, initialized, is_chief

    def after_create_session(self, session: BaseSession, coord: Coordinator) -> None:
        while not session.run(self._initialized):
            if self._is_chief:
                session.run(self._init_op)
            else:
                _log.info("Waiting for the chief, which chooses the first cluster centers.")
                if coord.wait_for_stop(_POLL_S):
                    return


class _StopWhenSteadyHook(SessionRunHook):
    """Stops when the loss changes by less than a share of it."""

    def __init__(self, loss: Tensor, tolerance: float) -> None:
        self._loss, self._tolerance, self._before = loss, tolerance, 0.0

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(self._loss)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        loss, before = float(run_values.results), self._before
        if before and abs(loss - before) / (1 + abs(before)) < self._tolerance:
            run_context.request_stop()
        self._before = loss


def _points(features: Any, feature_columns: Iterable[Column] | None) -> Any:
    """The input points [points, size]: features by name stand side by side, in the order of their names."""
    if not isinstance(features, dict):
        return features
    if feature_columns:
        return input_layer(features, feature_columns)
    names = sorted(features)
    with colocate_with(features[names[0]]):
        return concat([features[name] for name in names], axis=1)


@export("tf.contrib.factorization.KMeansClustering")
class KMeansClustering(Estimator):
    """An estimator of k-means (``tf.contrib.factorization.KMeansClustering``).

    Its input functions return the points, float32 [points, size], or features by name; labels are not used.

    Args:
      num_clusters: how many clusters; ignored if ``initial_clusters`` are the centers.
      model_dir, config: see `Estimator`.
      initial_clusters: the centers; a function of the list of inputs and the number of missing centers that returns so
        many of them or fewer; ``RANDOM_INIT``, of as many batches as it takes; or ``KMEANS_PLUS_PLUS_INIT``, of one.
      distance_metric: ``SQUARED_EUCLIDEAN_DISTANCE`` or ``COSINE_DISTANCE``.
      random_seed: of the draws of first centers.
      use_mini_batch: a step sees a part of the points; False: all of them.
      mini_batch_steps_per_iteration: after so many steps the centers are those that the steps have moved.
      kmeans_plus_plus_num_retries: further draws for each center, of which the best is taken.
      relative_tolerance: training stops when the loss changes by less than this share of it.
      feature_columns: make the points of features by name; None: the features side by side.

    Raises:
      ValueError: for an unknown name of first centers or of a distance.
    """

    SQUARED_EUCLIDEAN_DISTANCE = clustering.SQUARED_EUCLIDEAN_DISTANCE
    COSINE_DISTANCE = clustering.COSINE_DISTANCE
    RANDOM_INIT = clustering.RANDOM_INIT
    KMEANS_PLUS_PLUS_INIT = clustering.KMEANS_PLUS_PLUS_INIT
    SCORE = "score"
    CLUSTER_INDEX = "cluster_index"
    ALL_DISTANCES = "all_distances"
    CLUSTER_CENTERS_VAR_NAME = clustering.CLUSTERS_VAR_NAME

    _graph: type[clustering.KMeans] = clustering.KMeans

    def __init__(
        self, num_clusters: TensorLike, model_dir: str | None = None, initial_clusters: InitialClusters = RANDOM_INIT,
        distance_metric: str = SQUARED_EUCLIDEAN_DISTANCE, random_seed: int | None = 0, use_mini_batch: bool = True,
        mini_batch_steps_per_iteration: int = 1, kmeans_plus_plus_num_retries: int = 2,
        relative_tolerance: float | None = None, config: RunConfig | None = None,
        feature_columns: Iterable[Column] | None = None,
    ) -> None:  # fmt: skip
        clustering.check_arguments(initial_clusters, distance_metric, self.RANDOM_INIT, self.KMEANS_PLUS_PLUS_INIT)
        self._distance_metric = distance_metric

        def model_fn(features: Any, mode: str, config: RunConfig) -> EstimatorSpec:
            all_distances, indices, losses, initialized, init_op, step = self._graph(
                _points(features, feature_columns), num_clusters, initial_clusters, distance_metric, use_mini_batch,
                mini_batch_steps_per_iteration, random_seed, kmeans_plus_plus_num_retries,
            ).training_graph()  # fmt: skip
            loss = reduce_sum(losses)
            scalar("loss/raw", loss)
            train_op: Any = with_dependencies([step, assign_add(get_global_step(), 1)], loss)
            hooks: list[SessionRunHook] = [_ChooseCentersHook(init_op, initialized, config.is_chief)]
            if relative_tolerance is not None:
                hooks.append(_StopWhenSteadyHook(loss, relative_tolerance))
            found = {self.ALL_DISTANCES: all_distances[0], self.CLUSTER_INDEX: indices[0]}
            served = {**found, DEFAULT_SERVING_SIGNATURE_DEF_KEY: indices[0]}
            return EstimatorSpec(
                mode, found, loss, train_op, {self.SCORE: mean(loss)}, training_hooks=hooks,
                export_outputs={name: PredictOutput(output) for name, output in served.items()},
            )  # fmt: skip

        super().__init__(model_fn, model_dir, config)

    def _predictions(self, input_fn: Callable[..., Any], key: str) -> Iterator[Any]:
        return (found[key] for found in self.predict(input_fn, predict_keys=[key]))

    def predict_cluster_index(self, input_fn: Callable[..., Any]) -> Iterator[Any]:
        """Yields the number of the nearest center of each point."""
        return self._predictions(input_fn, self.CLUSTER_INDEX)

    def score(self, input_fn: Callable[..., Any]) -> Any:
        """The sum of the (squared) distances of the points of one batch from the nearest centers."""
        return self.evaluate(input_fn, steps=1)[self.SCORE]

    def transform(self, input_fn: Callable[..., Any]) -> Iterator[Array]:
        """Yields the distances of each point from all centers: squared, if they are Euclidean."""
        return self._predictions(input_fn, self.ALL_DISTANCES)

    def cluster_centers(self) -> Any:
        """The centers in the latest checkpoint, float32 [clusters, size]."""
        return self.get_variable_value(self.CLUSTER_CENTERS_VAR_NAME)


@export("tf.estimator.experimental.KMeans")
class SeededKMeansClustering(KMeansClustering):
    """An estimator of k-means (``tf.estimator.experimental.KMeans``): `KMeansClustering` with another default seed.

    Args:
      num_clusters, model_dir, initial_clusters, distance_metric: see `KMeansClustering`.
      seed: of the draws of first centers; those of an estimator's graph are seeded by its config as well.
      use_mini_batch, mini_batch_steps_per_iteration, kmeans_plus_plus_num_retries: see `KMeansClustering`.
      relative_tolerance, config, feature_columns: see `KMeansClustering`.
    """

    _graph = clustering.SeededKMeans

    def __init__(
        self, num_clusters: TensorLike, model_dir: str | None = None,
        initial_clusters: InitialClusters = KMeansClustering.RANDOM_INIT,
        distance_metric: str = KMeansClustering.SQUARED_EUCLIDEAN_DISTANCE, seed: int | None = None,
        use_mini_batch: bool = True, mini_batch_steps_per_iteration: int = 1, kmeans_plus_plus_num_retries: int = 2,
        relative_tolerance: float | None = None, config: RunConfig | None = None,
        feature_columns: Iterable[Column] | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            num_clusters, model_dir, initial_clusters, distance_metric, seed, use_mini_batch,
            mini_batch_steps_per_iteration, kmeans_plus_plus_num_retries, relative_tolerance, config, feature_columns,
        )  # fmt: skip

    def transform(self, input_fn: Callable[..., Any]) -> Iterator[Array]:
        """Yields the distances of each point from all centers, Euclidean or cosine."""
        plain = self._distance_metric != self.SQUARED_EUCLIDEAN_DISTANCE
        return (distances if plain else np.sqrt(distances) for distances in super().transform(input_fn))
