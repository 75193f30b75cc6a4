from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.expressions import check, outcome
from tests.ops.evaluate import evaluate
from tfmini import dtypes, errors
from tfmini.graph.graph import Graph
from tfmini.graph.scoping import set_random_seed
from tfmini.ops import random_functions as r


@pytest.fixture(autouse=True)
def graph():
    with Graph().as_default() as g:
        yield g


# What TensorFlow 2.21 gives for graph seed 5 and op seed 7, in two successive runs.
STREAMS = {
    "uniform": (
        lambda: r.random_uniform([5], seed=7),
        [0.4474637508392334, 0.620756983757019, 0.2590693235397339, 0.3007798194885254, 0.20554816722869873],
        [0.10432112216949463, 0.2523384094238281, 0.22782588005065918, 0.4933655261993408, 0.9311661720275879],
    ),
    "normal": (
        lambda: r.random_normal([5], seed=7),
        [-0.8725267648696899, -0.9203349947929382, 1.560619592666626, -0.5155436396598816, -0.8886659741401672],
        [2.125931978225708, -0.031237946823239326, 0.0716780573129654, -1.718490481376648, -0.37533119320869446],
    ),
    "truncated": (
        lambda: r.truncated_normal([5], seed=7),
        [-0.8725267648696899, -0.9203349947929382, 1.560619592666626, -0.5155436396598816, -1.2513312101364136],
        [-0.031237946823239326, 0.0716780573129654, -1.718490481376648, -0.37533119320869446, 0.18880179524421692],
    ),
    "uniform64": (
        lambda: r.random_uniform([3], dtype=dtypes.float64, seed=7),
        [0.5797102984427605, 0.07255541961785372, 0.6443857207582466],
        [0.24492409351071154, 0.7974241546875145, 0.679744948984663],
    ),
    "normal64": (
        lambda: r.random_normal([3], dtype=dtypes.float64, seed=7),
        [0.4597320444091908, 0.9376033376020686, 0.5180844659693208],
        [-1.6034658581737222, 0.49245417996632074, -0.8268848221003668],
    ),
    "int32": (lambda: r.random_uniform([3], 0, 10, dtype=dtypes.int32, seed=7), [0, 5, 9], [5, 1, 7]),
    "int64": (lambda: r.random_uniform([3], 0, 10, dtype=dtypes.int64, seed=7), [0, 1, 5], [1, 1, 6]),
    "half": (
        lambda: r.random_uniform([3], dtype=dtypes.float16, seed=7),
        [0.623046875, 0.2412109375, 0.2958984375],
        [0.8017578125, 0.0947265625, 0.5615234375],
    ),
    "shuffle": (
        lambda: r.random_shuffle(np.arange(10, dtype=np.int32), seed=7),
        [0, 2, 9, 4, 5, 6, 3, 7, 8, 1],
        [9, 5, 6, 8, 4, 3, 1, 2, 0, 7],
    ),
    "multinomial": (
        lambda: r.multinomial([[1.0, 2.0, 3.0]], 8, seed=7),
        [[2, 0, 2, 1, 1, 2, 0, 2]],
        [[2, 1, 2, 1, 2, 0, 2, 2]],
    ),
}


@pytest.mark.parametrize("name", STREAMS)
def test_seeded_streams_are_tensorflows(name):
    build, first, second = STREAMS[name]
    set_random_seed(5)
    out = build()
    for expected in (first, second):
        value = evaluate(out)
        assert value.dtype == out.dtype.numpy
        np.testing.assert_allclose(value, expected, rtol=2e-7 if value.dtype != np.float64 else 1e-15)


CASES = [
    "tf.random.stateless_uniform([5], [1, 2])",
    "tf.random.stateless_normal([5], [-1, 2**40], dtype=tf.float64)",
    "tf.random.stateless_truncated_normal([5], [3, 4])",
    "tf.random.stateless_uniform([5], [3, 4], -5, 9, tf.int32)",
]


@pytest.mark.oracle
@pytest.mark.parametrize("case", CASES)
def test_stateless_values_are_tensorflows(case: str, theirs: dict[str, Any]) -> None:
    check(outcome(tf, case), theirs[case], rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64])
@pytest.mark.parametrize("seed", [None, 3])
def test_values_have_the_bounds_and_moments_of_their_distribution(dtype, seed):
    shape = [100, 50]
    uniform, normal, truncated = evaluate(
        [f(shape, dtype=dtype, seed=seed) for f in (r.random_uniform, r.random_normal, r.truncated_normal)]
    )
    for value in (uniform, normal, truncated):
        assert value.shape == (100, 50)
        assert value.dtype == dtype.numpy
    uniform, normal, truncated = (v.astype(np.float64) for v in (uniform, normal, truncated))
    assert uniform.min() >= 0 and uniform.max() < 1 and abs(uniform.mean() - 0.5) < 0.03
    assert abs(normal.mean()) < 0.08 and abs(normal.std() - 1) < 0.06
    assert abs(truncated).max() <= 2 and abs(truncated.std() - 0.88) < 0.05


def test_unseeded_ops_differ_and_each_call_draws_anew():
    a, b = r.random_uniform([4]), r.random_uniform([4])
    assert not np.array_equal(evaluate(a), evaluate(b))
    assert not np.array_equal(evaluate(a), evaluate(a))


def test_ops_have_tensorflows_names_and_static_shapes(graph):
    out = r.random_uniform([2, 3], 1.0, 2.0, seed=1)
    assert out.name == "random_uniform:0"
    assert out.raw_shape == (2, 3)
    assert [o.name for o in graph.get_operations()] == [
        "random_uniform/shape", "random_uniform/min", "random_uniform/max", "random_uniform/RandomUniform",
        "random_uniform/sub", "random_uniform/mul", "random_uniform",
    ]  # fmt: skip
    assert r.multinomial(np.zeros((2, 3), np.float32), 4).raw_shape == (2, 4)
    assert r.random_gamma([5], [1.0, 2.0]).raw_shape == (5, 2)


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="Must specify maxval for integer dtype tf.int32"):
        r.random_uniform([1], dtype=dtypes.int32)
    with pytest.raises(ValueError, match="Invalid dtype tf.string"):
        r.random_uniform([1], dtype=dtypes.string)
    with pytest.raises(errors.InvalidArgumentError) as info:
        evaluate(r.random_uniform([1], 3, 3, dtype=dtypes.int32))
    assert info.value.message == "Need minval < maxval, got 3 >= 3"


def test_gamma_and_poisson_have_their_moments():
    gamma = evaluate(r.random_gamma([4000], [0.5, 4.0], beta=2.0, seed=1))
    np.testing.assert_allclose(gamma.mean(axis=0), [0.25, 2.0], rtol=0.1)
    assert gamma.dtype == np.float32 and (gamma > 0).all()
    poisson = evaluate(r.random_poisson([1.0, 9.0], [4000], seed=1))
    np.testing.assert_allclose(poisson.mean(axis=0), [1.0, 9.0], rtol=0.1)


def test_shuffle_keeps_rows_and_crop_takes_a_window():
    rows = np.arange(12).reshape(6, 2)
    shuffled = evaluate(r.random_shuffle(rows))
    assert sorted(map(tuple, shuffled.tolist())) == list(map(tuple, rows.tolist()))
    image = np.arange(20, dtype=np.int32).reshape(4, 5)
    window = evaluate(r.random_crop(image, [2, 3], seed=2))
    first = window[0, 0]
    y, x = divmod(int(first), 5)
    assert np.array_equal(window, image[y : y + 2, x : x + 3])
    with pytest.raises(errors.InvalidArgumentError, match="Need value.shape >= size"):
        evaluate(r.random_crop(image, [5, 3]))


def test_many_unseeded_numbers_fill_their_interval_evenly() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        numbers = session.run(tf.random_uniform([100_001]))
    assert numbers.dtype == np.float32 and numbers.min() >= 0 and numbers.max() < 1
    counts, _ = np.histogram(numbers, 16, (0, 1))
    assert abs(counts / 6250 - 1).max() < 0.08  # six standard deviations
    assert len(np.unique(numbers)) > 98_000
    assert abs(np.corrcoef(numbers[:-1:2], numbers[1::2])[0, 1]) < 0.03


def test_seeded_gamma_and_poisson_take_what_unseeded_ones_take() -> None:
    many = [r.random_gamma([40_000], [0.5, 3.0], seed=1), r.random_poisson([3.0, 30.0], [40_000], seed=1)]
    none = [r.random_gamma([0], 1.5, seed=1), r.random_poisson(2.0, [0, 3], seed=1)]
    with tf.Session() as session:
        (gammas, counts), empty = session.run([many, none])
        np.testing.assert_allclose(gammas.mean(axis=0), [0.5, 3.0], rtol=0.02)  # in several passes
        np.testing.assert_allclose(counts.mean(axis=0), [3.0, 30.0], rtol=0.02)
        assert [each.shape for each in empty] == [(0,), (0, 3)]
        for rate, dtype in ((1e10, dtypes.int32), (1e5, dtypes.float16), (float("nan"), dtypes.float32)):
            with pytest.raises(errors.InvalidArgumentError, match="rate must be finite and at most"):
                session.run(r.random_poisson(tf.constant(rate, dtypes.float64), [2], dtype, seed=1))
