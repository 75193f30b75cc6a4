"""The graph of k-means (``tf.contrib.factorization.KMeans``): first centers, distances, and the steps of training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tfmini import dtypes
from tfmini.core_types import TensorLike
from tfmini.export import export, export_names
from tfmini.graph import raw_ops
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import colocate_with, control_dependencies, count_ops, get_seed
from tfmini.ops.array.constant import constant
from tfmini.ops.array.filling import ones, ones_like, zeros, zeros_like
from tfmini.ops.array.gather import gather
from tfmini.ops.array.identity import cast, identity, placeholder_with_default
from tfmini.ops.array.joining import concat
from tfmini.ops.array.layout import transpose
from tfmini.ops.array.partition import unique
from tfmini.ops.array.shape import rank, reshape, size, squeeze
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.checks import assert_equal, assert_greater_equal, assert_positive
from tfmini.ops.control import group, no_op
from tfmini.ops.flow.cond import cond
from tfmini.ops.flow.while_loop import while_loop
from tfmini.ops.math.comparison import equal, less
from tfmini.ops.math.elementwise import maximum, minimum
from tfmini.ops.math.matmul import matmul
from tfmini.ops.math.reductions import reduce_sum
from tfmini.ops.math.segments import unsorted_segment_sum
from tfmini.ops.math.sums import add_n
from tfmini.ops.math.unary import reciprocal, square
from tfmini.ops.nn.embedding import embedding_lookup
from tfmini.ops.nn.normalization import l2_normalize
from tfmini.ops.random_functions import random_uniform
from tfmini.ops.variables.assignment import assign, assign_sub, scatter_add
from tfmini.ops.variables.base import Variable

SQUARED_EUCLIDEAN_DISTANCE = "squared_euclidean"
COSINE_DISTANCE = "cosine"
RANDOM_INIT = "random"
KMEANS_PLUS_PLUS_INIT = "kmeans_plus_plus"
KMC2_INIT = "kmc2"
CLUSTERS_VAR_NAME = "clusters"
export_names("tf.contrib.factorization", "SQUARED_EUCLIDEAN_DISTANCE COSINE_DISTANCE RANDOM_INIT KMEANS_PLUS_PLUS_INIT")

# What names a way to choose first centers, or the centers, or a function of (inputs, number) that returns some.
InitialClusters = str | TensorLike | Callable[[Any, Any], Any]


def check_arguments(initial_clusters: object, distance_metric: str, *ways: str) -> None:
    """Raises ValueError for a name of first centers that is not among the ways, or for an unknown distance."""
    if isinstance(initial_clusters, str) and initial_clusters not in ways:
        raise ValueError(f"Unsupported initialization algorithm '{initial_clusters}': use one of {', '.join(ways)}.")
    if distance_metric not in (SQUARED_EUCLIDEAN_DISTANCE, COSINE_DISTANCE):
        raise ValueError(
            f"Unsupported distance metric '{distance_metric}': use {SQUARED_EUCLIDEAN_DISTANCE} or {COSINE_DISTANCE}."
        )


def _beside(value: Any) -> Any:
    """The scope of ops that are where a tensor is; an array is made one, as in TensorFlow."""
    near = value if value is None or hasattr(value, "op") else convert_to_tensor(value)
    return colocate_with(near, ignore_existing=True)


def _normalized(rows: Any) -> Tensor:
    with _beside(rows):
        return l2_normalize(rows, 1)


class _State(NamedTuple):
    """The variables: ``updated`` is ``centers``, unless steps change a copy that is taken over from time to time."""

    centers: Variable
    initialized: Variable
    updated: Variable
    steps_left: Variable | None
    counts: Variable | None


@export("tf.contrib.factorization.KMeans")
class KMeans:
    """Makes the graph of k-means (``tf.contrib.factorization.KMeans``).

    A full batch moves each center to the mean of its points. With mini-batches a center moves towards the mean of
    the points that it ever had; all steps of an iteration find the nearest centers among those before it.

    Args:
      inputs: float32 [points, size], or a list of such tensors, which may be on several devices.
      num_clusters: how many clusters; ignored if ``initial_clusters`` are the centers.
      initial_clusters: the centers [clusters, size]; a function of the list of inputs and the number of missing centers
        that returns so many of them or fewer; or ``random``, ``kmeans_plus_plus`` or ``kmc2``.
      distance_metric: ``squared_euclidean`` or ``cosine``.
      use_mini_batch: steps see a part of the points.
      mini_batch_steps_per_iteration: so many steps make an iteration.
      random_seed: of the draws of first centers.
      kmeans_plus_plus_num_retries: further draws for each center, of which the best is taken; below 0: about
        ``2 + log(num_clusters)``.
      kmc2_chain_length: points that are candidates for one center.

    Raises:
      ValueError: for an unknown name of first centers or of a distance.
    """

    def __init__(
        self, inputs: TensorLike, num_clusters: TensorLike, initial_clusters: InitialClusters = RANDOM_INIT,
        distance_metric: str = SQUARED_EUCLIDEAN_DISTANCE, use_mini_batch: bool = False,
        mini_batch_steps_per_iteration: int = 1, random_seed: int | None = 0, kmeans_plus_plus_num_retries: int = 2,
        kmc2_chain_length: int = 200,
    ) -> None:  # fmt: skip
        check_arguments(initial_clusters, distance_metric, RANDOM_INIT, KMEANS_PLUS_PLUS_INIT, KMC2_INIT)
        self._inputs: list[Any] = inputs if isinstance(inputs, list) else [inputs]
        self._num_clusters = num_clusters
        self._initial_clusters = initial_clusters
        self._cosine = distance_metric == COSINE_DISTANCE
        self._mini_batch = use_mini_batch
        self._steps = int(mini_batch_steps_per_iteration)
        self._seed = self._seed_of(random_seed)
        self._retries = kmeans_plus_plus_num_retries
        self._chain_length = kmc2_chain_length

    _seed_of = staticmethod(lambda seed: seed)

    def _no_centers(self) -> Tensor:
        return constant([], dtypes.float32)

    @property
    def _copies(self) -> bool:
        """Whether steps change a copy of the centers."""
        return self._mini_batch and self._steps > 1

    @property
    def _stay_normalized(self) -> bool:
        """Whether the centers have length 1 after each step."""
        return self._cosine and (not self._mini_batch or self._steps > 1)

    def training_graph(self) -> tuple[Any, ...]:
        """Adds variables and ops, and returns what drives them.

        One worker runs ``init_op`` until ``initialized`` is true; then any number of workers run ``training_op``.

        Returns:
          (all_scores, cluster_idx, scores, initialized, init_op, training_op). The first three are tuples with a tensor
          for each input: float32 [points, clusters] distances, int64 [points] nearest centers, float32 [points]
          distances from these. ``initialized`` is a bool variable.
        """
        number, initial = self._num_clusters, self._initial_clusters
        if isinstance(initial, str) or callable(initial):
            number = convert_to_tensor(number)
        else:
            initial = convert_to_tensor(initial)
            number = shape_of(initial)[0]
        state = self._state(number)
        init_op = _Initialization(self, number, initial, state).op()
        inputs: list[Any] = self._inputs
        centers: Any = state.centers
        if self._cosine:
            inputs = [_normalized(rows) for rows in inputs]
            centers = centers if self._stay_normalized else l2_normalize(centers, 1)
        all_scores, scores, indices = self._nearest(inputs, centers)
        if self._mini_batch:
            with control_dependencies(indices):  # these are of the centers before the step, so that runs are alike
                take_over = self._take_over(state)
            with control_dependencies([take_over]):
                training_op = self._train_on_part(inputs, indices, state)
        else:
            training_op = self._train_on_all(inputs, number, indices, state.centers)
        return all_scores, indices, scores, state.initialized, init_op, training_op

    def _state(self, number: Tensor) -> _State:
        nothing = self._no_centers()
        count_ops(2 if self._mini_batch else 0)  # TensorFlow compares the number of counts with 1000
        centers = Variable(nothing, name=CLUSTERS_VAR_NAME, validate_shape=False)
        initialized = Variable(False, dtype=dtypes.bool, name="initialized")
        if self._copies:
            updated = Variable(nothing, name="clusters_updated", validate_shape=False)
            steps_left = Variable(self._steps, dtype=dtypes.int64, name="update_in_steps")
            return _State(centers, initialized, updated, steps_left, Variable(zeros([number], dtypes.int64)))
        counts = Variable(ones([number], dtypes.int64)) if self._mini_batch else None
        return _State(centers, initialized, centers, None, counts)

    # ---- distances --------------------------------------------------------------------------

    def _distances(self, rows: Tensor, centers: Any) -> Any:
        products = matmul(rows, centers, transpose_b=True)
        if self._cosine:
            return 1 - products
        count_ops(-1)  # `transpose` makes one op more
        norms = (reduce_sum(square(of), 1, keepdims=True) for of in (rows, centers))
        return next(norms) - 2 * products + transpose(next(norms))

    def _nearest(self, inputs: Sequence[Tensor], centers: Any) -> list[tuple[Any, ...]]:
        """[distances from all centers, distances from the nearest, the nearest], a tuple of tensors each."""
        all_scores, found = [], []
        for rows in inputs:
            with _beside(rows):
                all_scores.append(self._distances(rows, centers))
        if self._cosine and not self._stay_normalized:
            centers = _normalized(centers)
        for rows in inputs:
            with _beside(rows):
                indices, distances = raw_ops.NearestNeighbors(rows, centers, 1)
                # Of vectors of length 1, the squared distance is twice the cosine distance.
                distances = distances * 0.5 if self._cosine else distances
                found.append((squeeze(distances, [-1]), squeeze(indices, [-1])))
        return [tuple(all_scores), *zip(*found)]

    # ---- steps ------------------------------------------------------------------------------

    def _train_on_all(
        self, inputs: Sequence[Tensor], number: Tensor, indices: Sequence[Tensor], centers: Variable
    ) -> Any:
        """Moves each center to the mean of its points, and one without points to 0."""
        sums, counts, epsilon = [], [], constant(1e-6, inputs[0].dtype)
        for rows, nearest in zip(inputs, indices):
            with _beside(rows):
                sums.append(unsorted_segment_sum(rows, nearest, number))
                each = reshape(ones(reshape(shape_of(rows)[0], [-1])), [-1, 1])
                counts.append(unsorted_segment_sum(each, nearest, number))
        with _beside(centers):
            means = add_n(sums) / (cast(add_n(counts), sums[0].dtype) + epsilon)
            means = l2_normalize(means, 1) if self._stay_normalized else means
        return assign(centers, means)

    def _train_on_part(self, inputs: Sequence[Tensor], indices: Sequence[Tensor], state: _State) -> Operation:
        """Moves each center by ``(sum of its new points - k * center) / (n + k)``, if it had n points and gets k."""
        updates: list[Any] = []
        counts, centers = state.counts, state.updated
        assert counts is not None
        for rows, nearest in zip(inputs, indices):
            with _beside(rows):
                ids, places = unique(reshape(nearest, [-1]))
                number = size(ids)
                with _beside(counts):
                    old_counts = gather(counts, ids)
                with _beside(centers):
                    old_centers = gather(centers, ids)
                more = unsorted_segment_sum(ones_like(places, dtype=counts.dtype), places, number)
                sums = unsorted_segment_sum(rows, places, number)
                column = concat([reshape(number, [1]), ones(reshape(rank(rows) - 1, [1]), dtypes.int32)], 0)
                change = sums - cast(reshape(more, column), rows.dtype) * old_centers
                change *= reshape(reciprocal(cast(old_counts + more, rows.dtype)), column)
            # Only when all is read: in TensorFlow the old counts may have the new points already, or not.
            with control_dependencies([change]):
                updates += [scatter_add(counts, ids, more), scatter_add(centers, ids, change)]
        return group(*updates)

    def _take_over(self, state: _State) -> Any:
        """Before the first step of each iteration: the centers become what the steps have made of their copy."""
        left, counts = state.steps_left, state.counts
        if left is None or counts is None:
            return no_op()

        def start() -> Tensor:
            # Other workers see at once that somebody does it. The counts fall to 0 only when all read the new centers.
            with control_dependencies([assign(left, self._steps - 1)]), _beside(state.updated):
                centers = l2_normalize(state.updated, 1) if self._cosine else state.updated
                with _beside(state.centers):
                    taken = assign(state.centers, centers)
                with control_dependencies([taken]), _beside(None):
                    cleared = assign(counts, zeros_like(counts))
                with control_dependencies([cleared]), _beside(None):
                    return identity(left)

        with _beside(left):
            return cond(left <= 0, start, lambda: assign_sub(left, 1))


class SeededKMeans(KMeans):
    """``KMeans`` of ``tensorflow.python.ops.clustering_ops``: a seed of the graph is the seed of its draws."""

    _seed_of = staticmethod(lambda seed: get_seed(seed)[0])

    def _no_centers(self) -> Tensor:
        return placeholder_with_default(constant([], dtypes.float32), shape=None)


export_names("tensorflow.python.ops.clustering_ops", "KMeans=SeededKMeans")


class _Initialization:
    """The op that chooses centers: as many as a batch has of those that are missing, until none is."""

    def __init__(self, model: KMeans, number: Tensor, initial: Any, state: _State) -> None:
        self._inputs, self._cosine, self._seed = model._inputs, model._cosine, model._seed
        self._retries, self._chain_length = model._retries, model._chain_length
        self._number, self._initial, self._state = number, initial, state
        self._selected = shape_of(state.centers)[0]
        self._missing = number - self._selected
        self._points = add_n([shape_of(rows)[0] for rows in self._inputs])

    def op(self) -> Any:
        """The op: it fails if there are more centers than there should be."""
        count_ops(3)  # constants of the two checks
        return cond(equal(self._missing, 0), lambda: assert_equal(self._state.initialized, True), self._add)

    def _add(self) -> Any:
        with control_dependencies([assert_positive(self._missing)]):
            by_chains = isinstance(self._initial, str) and self._initial == KMC2_INIT
            still_missing = self._add_by_chains() if by_chains else self._add_some()
            return cond(equal(still_missing, 0), lambda: assign(self._state.initialized, True), no_op)

    def _add_some(self) -> Tensor:
        new = self._chosen()
        new = l2_normalize(new, 1) if self._cosine else new
        first = equal(self._selected, 0)  # then the variable's value is no matrix
        return self._store(cond(first, lambda: new, lambda: concat([self._state.centers, new], 0)))

    def _store(self, centers: Tensor) -> Tensor:
        """Stores all centers; returns how many are missing."""
        stored = assign(self._state.centers, centers, validate_shape=False)
        if self._state.updated is not self._state.centers:
            stored = assign(self._state.updated, stored, validate_shape=False)
        return self._number - shape_of(stored)[0]

    def _chosen(self) -> Any:
        if callable(self._initial):
            return self._initial(self._inputs, self._missing)
        if not isinstance(self._initial, str):
            count_ops(2)  # constants of a check, less the identity
            with control_dependencies([assert_equal(self._missing, shape_of(self._initial)[0])]):
                return identity(self._initial)
        if self._initial == RANDOM_INIT:
            return cond(self._points <= self._missing, lambda: concat(self._inputs, 0), self._random)
        count_ops(3)  # constants of a check
        with control_dependencies([assert_greater_equal(self._points, self._missing)]):
            return self._plus_plus()

    def _random(self) -> Tensor:
        """Any points; the same one may be drawn twice."""
        count, limit = reshape(self._missing, [-1]), cast(self._points, dtypes.int64)
        rows = random_uniform(count, minval=0, maxval=limit, seed=self._seed, dtype=dtypes.int64)
        return embedding_lookup(self._inputs, rows, partition_strategy="div")

    def _plus_plus(self) -> Any:
        """By k-means++, of the first input."""
        if self._seed is None:
            raise ValueError(
                "Draws of k-means++ need a seed: give one to KMeans, or to the graph by tf.set_random_seed."
            )
        rows = l2_normalize(self._inputs[0], 1) if self._cosine else self._inputs[0]
        return raw_ops.KmeansPlusPlusInitialization(rows, cast(self._missing, dtypes.int64), self._seed, self._retries)

    # ---- k-MC2 (Bachem et al., 2016): a Markov chain over candidates for each center ----------

    def _add_by_chains(self) -> Tensor:
        """Adds a center from ``kmc2_chain_length`` points of the first input; returns how many are missing.

        As in TensorFlow each chain begins with the centers before the step, and the last one decides.
        """
        rows, before = self._inputs[0], identity(self._state.centers)
        chains = cast(shape_of(rows)[0] / self._chain_length, dtypes.int32)
        count = maximum(minimum(self._missing, chains), 1)

        def body(i: Tensor, _: Tensor) -> list[Any]:
            centers = cond(
                equal(self._selected, 0), lambda: self._center(rows[0]), lambda: self._by_chain(rows, before, i)
            )
            return [i + 1, self._store(centers)]

        return while_loop(lambda i, _: less(i, count), body, [0, 0])[1]  # type: ignore[no-any-return]

    def _center(self, row: Tensor) -> Tensor:
        center = reshape(row, [1, -1])
        return l2_normalize(center, 1) if self._cosine else center

    def _by_chain(self, rows: Tensor, before: Tensor, i: Tensor) -> Tensor:
        """The centers before, and one of the candidates of chain ``i``."""
        start = i * self._chain_length
        candidates = rows[start : start + self._chain_length]
        _, distances = raw_ops.NearestNeighbors(candidates, before, 1)
        at = raw_ops.KMC2ChainInitialization(squeeze(distances), self._seed)
        return concat([before, self._center(candidates[at])], 0)
