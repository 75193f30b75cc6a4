"""The ops of k-means: nearest centers by hand, and the distributions of the draws."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import tfmini as tf
from tests.ops.session_run import run

rng = np.random.RandomState(5)


def _nearest(points: np.ndarray, centers: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    return run(tf.raw_ops.NearestNeighbors(points=points, centers=centers, k=k))


@pytest.mark.parametrize("k", [1, 3, 1500])
def test_the_nearest_of_many_centers_are_those_of_all_distances(k: int) -> None:
    points, centers = (rng.randint(-9, 9, [n, 3]).astype(np.float32) for n in (4100 if k == 1 else 50, 2060))
    indices, distances = _nearest(points, centers, k)
    every = (points**2).sum(1)[:, None] - 2 * points @ centers.T + (centers**2).sum(1)
    wanted = np.argsort(every, axis=1, kind="stable")[:, :k]
    assert np.array_equal(distances, np.take_along_axis(every, wanted, 1)) and np.array_equal(indices, wanted)


def _drawn(seed: int, points: np.ndarray, count: int, retries: int = 0) -> list[list[float]]:
    return run(
        tf.raw_ops.KmeansPlusPlusInitialization(
            points=points, num_to_sample=count, seed=seed, num_retries_per_sample=retries
        )
    ).tolist()


def test_a_point_is_drawn_with_its_squared_distance_as_weight() -> None:
    points, seed = np.float32([[0], [1], [3]]), tf.placeholder(tf.int64, [])
    draw = tf.raw_ops.KmeansPlusPlusInitialization(points=points, num_to_sample=2, seed=seed, num_retries_per_sample=0)
    tries, shares = 3000, {(0, 1): 1 / 10, (0, 3): 9 / 10, (1, 0): 1 / 5, (1, 3): 4 / 5, (3, 0): 9 / 13, (3, 1): 4 / 13}
    with tf.Session() as session:
        found = Counter(tuple(session.run(draw, {seed: i}).ravel().tolist()) for i in range(tries))
    assert found.keys() == shares.keys()
    for pair, share in shares.items():
        p = share / 3
        assert abs(found[pair] - tries * p) < 4 * np.sqrt(tries * p * (1 - p)), pair


def test_of_more_draws_the_best_is_taken() -> None:
    points = np.float32([[0], [0.1], [0.2], [10], [10.1], [10.2], [20]])
    clusters = [sorted(row[0] // 10 for row in _drawn(seed, points, 3, 20)) for seed in range(20)]
    assert clusters == [[0.0, 1.0, 2.0]] * 20


def test_points_without_weight_are_drawn_too() -> None:
    assert _drawn(1, np.ones([4, 2], np.float32), 4, 2) == [[1.0, 1.0]] * 4
    far = np.float32([[3e7, 1], [3e7, 2], [3e7, 3]])  # all distances are 0 in float32, or below
    assert len(_drawn(0, far, 3)) == 3
    assert len(_drawn(0, np.float32([[np.nan], [1.0], [np.inf]]), 3, 1)) == 3


def test_a_chain_moves_on_with_the_ratio_of_distances() -> None:
    seed, tries = tf.placeholder(tf.int64, []), 3000
    draw = tf.raw_ops.KMC2ChainInitialization(distances=np.float32([4, 1, 0]), seed=seed)
    with tf.Session() as session:
        found = Counter(int(session.run(draw, {seed: i})) for i in range(tries))
    assert found.keys() == {0, 1} and abs(found[1] - tries / 4) < 4 * np.sqrt(tries * 3 / 16)


def test_what_would_not_end_is_refused() -> None:
    ones = np.ones([3, 2], np.float32)
    with pytest.raises(tf.errors.InvalidArgumentError, match="num_retries_per_sample is 9999999"):
        _drawn(1, ones, 2, 9999999)
    with pytest.raises(tf.errors.InvalidArgumentError, match="k is the number of centers to find, but it is -1"):
        _nearest(ones, ones, -1)
