"""Ops of k-means: the nearest centers of points, and draws of first centers (``tf.raw_ops.NearestNeighbors`` …).

The draws are TensorFlow's: each call starts the stream of its seed anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini.core_types import Array
from tfmini.graph.families import op, unknown_shapes
from tfmini.memory import check_room
from tfmini.numerics import philox
from tfmini.ops.array.kernel_arguments import refuse

_nearest_op = op(
    "NearestNeighbors(points: float, centers: float, k: int64)"
    " -> nearest_center_indices: int64, nearest_center_distances: float",
    shape=unknown_shapes, differentiable=None,
)  # fmt: skip
_plus_plus_op = op(
    "KmeansPlusPlusInitialization(points: float, num_to_sample: int64, seed: int64, num_retries_per_sample: int64)"
    " -> samples: float",
    shape=unknown_shapes, differentiable=None,
)  # fmt: skip
_chain_op = op(
    "KMC2ChainInitialization(distances: float, seed: int64) -> index: int64", shape=[()], differentiable=None
)

_CENTERS = 1024  # TensorFlow compares so many centers at once, and then the best of each such block
_ROWS = 4096  # points whose distances are in memory at the same time
_MOST_RETRIES = 10_000  # each takes a pass over all points, for each center
_TRIES = 1000


def _check(rank: int, **inputs: Array) -> None:
    for name, value in inputs.items():
        if np.ndim(value) != rank:
            refuse(f"Input {name} should be a {('scalar', 'vector', 'matrix')[rank]}.")


def _half_norms(rows: Array) -> Any:
    return np.float32(0.5) * np.einsum("ij,ij->i", rows, rows)


# ---- nearest centers ------------------------------------------------------------------------


@_nearest_op.kernel("CPU")
def _nearest_kernel(points: Array, centers: Array, k: Array) -> tuple[Any, ...]:
    _check(2, points=points, centers=centers)
    _check(0, k=k)
    if not len(points):
        refuse("Expected points.rows() > 0.")
    if points.shape[1] != centers.shape[1]:
        refuse(f"Expected point_dimensions == center_dimensions: {points.shape[1]} vs {centers.shape[1]}.")
    if k < 0:
        refuse(f"k is the number of centers to find, but it is {k}.")
    count, norms = min(len(centers), int(k)), _half_norms(centers)
    check_room((len(points), count), 12)
    indices, distances = np.empty((len(points), count), np.int64), np.empty((len(points), count), np.float32)
    for first in range(0, len(points) if count else 0, _ROWS):
        rows = slice(first, first + _ROWS)
        indices[rows], distances[rows] = _nearest(points[rows], centers, norms, count)
    return indices, distances


def _nearest(points: Array, centers: Array, norms: Array, count: int) -> list[Any]:
    """[indices, squared distances] of the nearest centers of some points, nearest first: [points, count] each."""
    own, found = _half_norms(points)[:, None], [np.empty((len(points), 0), dtype) for dtype in (np.int64, np.float32)]
    for start in range(0, len(centers), _CENTERS):
        partial = norms[start : start + _CENTERS] - points @ centers[start : start + _CENTERS].T
        at = _least(partial, count)
        block = [at + start, 2 * (own + np.take_along_axis(partial, at, 1))]
        if start:
            block = [np.concatenate(pair, 1) for pair in zip(found, block)]
            at = _least(block[1], count)
            block = [np.take_along_axis(part, at, 1) for part in block]
        found = block
    return found


def _least(values: Array, count: int) -> Any:
    """The columns of the least values of each row, the first of equal ones first."""
    if count > 1:
        return np.argsort(values, axis=1, kind="stable")[:, :count]
    at = values.argmin(1)
    if np.isnan(values[np.arange(len(at)), at]).any():  # TensorFlow passes over NaN, unless it is in the first column
        at = np.where(np.isnan(values[:, 0]), 0, np.where(np.isnan(values), np.inf, values).argmin(1))
    return at[:, None]


# ---- first centers --------------------------------------------------------------------------


@_plus_plus_op.kernel("CPU")
def _plus_plus_kernel(points: Array, num_to_sample: Array, seed: Array, num_retries_per_sample: Array) -> Any:
    _check(2, points=points)
    _check(0, num_to_sample=num_to_sample, seed=seed, num_retries_per_sample=num_retries_per_sample)
    count, retries = int(num_to_sample), int(num_retries_per_sample)
    if not len(points):
        refuse("Expected points.rows() > 0.")
    if count <= 0:
        refuse("Expected num_to_sample > 0.")
    if count > len(points):
        refuse(f"Expected num_to_sample <= points.rows(). {count} vs {len(points)}.")
    if retries > _MOST_RETRIES:
        refuse(f"num_retries_per_sample is {retries}, which would take for ever; give {_MOST_RETRIES} at most.")
    return points[_plus_plus(points, count, 2 + int(math.log(count)) if retries < 0 else retries, int(seed))]


def _plus_plus(points: Array, count: int, retries: int, seed: int) -> list[int]:
    """The rows of k-means++: each is drawn with the squared distances to those before it as weights.

    Of ``1 + retries`` draws it is the one that leaves the least sum of distances.
    """
    take = philox.WordStream(philox.PhiloxGenerator(seed, 0)).take
    norms, chosen = _half_norms(points), list[int]()
    nearest = np.full(len(points), np.inf, np.float32)  # half the squared distance to the nearest chosen row
    for _ in range(count):
        sums, best = np.cumsum(nearest), (math.inf, 0, nearest)
        for i in range(1 + retries):
            row = _drawn(take, sums, chosen)
            left = np.minimum(nearest, norms - points @ points[row] + norms[row])
            potential = float(left.sum())
            if not i or potential < best[0]:
                best = (potential, row, left)
        _, row, nearest = best
        chosen.append(row)
    return chosen


def _drawn(take: Callable[[int], Array], sums: Array, chosen: list[int]) -> int:
    """A row that is not chosen, by running sums of the weights: a uniform one if it is the first."""
    if not chosen:
        return int(philox.below(take, 1, len(sums), 64)[0])
    taken = set(chosen)
    for _ in range(_TRIES):
        row = int(np.searchsorted(sums, philox.float32_of(take(1))[0] * sums[-1], "right"))
        if row == len(sums):  # all weights are 0, since all rows are equal to chosen ones
            return row - 1
        if row not in taken:
            return row
    return next(row for row in range(len(sums)) if row not in taken)  # rounding leaves it no weight


@_chain_op.kernel("CPU")
def _chain_kernel(distances: Array, seed: Array) -> Any:
    """The last state of a Markov chain over the rows: it moves on with the ratio of the distances as probability."""
    _check(1, distances=distances)
    _check(0, seed=seed)
    if not len(distances):
        refuse("Expected distances_tensor.size() > 0.")
    words = philox.WordStream(philox.PhiloxGenerator(int(seed), 0)).take(len(distances) - 1)
    at = 0
    for i, share in enumerate(philox.float32_of(words), 1):
        if distances[i] > share * distances[at]:
            at = i
    return np.int64(at)
