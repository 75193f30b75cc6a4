"""The math families: values and gradients, against numpy and against TensorFlow itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tfmini as tf
import tfmini.ops.session_tensors  # noqa: F401 - both act by being imported
from tests.expressions import check, outcome
from tests.ops.evaluate import evaluate
from tfmini.graph.op_types import GRADIENTS

_BINARY = (
    "add subtract multiply divide realdiv maximum minimum squared_difference atan2 div_no_nan floormod floordiv pow"
)
_UNARY = (
    "negative abs square sqrt exp expm1 log log1p sin cos tan asin atan sinh cosh asinh tanh sigmoid reciprocal rsqrt"
    " floor ceil round rint erf erfc lgamma digamma sign is_nan math.log_sigmoid"
)
_REDUCE = "sum mean prod max min logsumexp"
X = "tf.constant([[.1,.5,.9],[.3,.7,.2]])"
Y = "tf.constant([[.4,.6,.8]])"
IMAGE = "tf.sin(tf.reshape(tf.range(60.), [2, 5, 3, 2]))"
EXACT_CASES = [
    *(f"tf.{n}({X}, {Y})" for n in _BINARY.split()),
    *(f"tf.{n}({X})" for n in _UNARY.split()),
    *(f"tf.{n}(tf.constant([-1.5,-.3,2.5,12.,30.], tf.float64))" for n in ("erf", "erfc", "lgamma", "digamma")),
    *(f"tf.reduce_{n}({X}, {a}, keepdims={k})" for n in _REDUCE.split()
      for a in (None, 0, [1], [0, 1], []) for k in (False, True)),
    *(f"tf.{n}(tf.constant([7,-7,7,-7]), tf.constant([2,2,-2,-2]))"
      for n in ["div", "truediv", "floordiv", "floormod", "truncatediv", "truncatemod"]),
    "tf.argmax(tf.constant([[1,5,2],[7,0,3]]), 1)", "tf.argmin(tf.constant([[1,5,2],[7,0,3]]))",
    *(f"tf.{n}({X}, 1, exclusive={e}, reverse={r})" for n in ("cumsum", "cumprod")
      for e in (False, True) for r in (False, True)),
    f"tf.matmul({X}, {X}, transpose_b=True)", f"tf.matmul({X}, {X}, True)",
    f"tf.matmul(tf.complex(1., .1)*tf.cast({X}, tf.complex64), tf.cast({X}, tf.complex64), adjoint_b=True)",
    "tf.matmul(tf.ones([2,3,4]), tf.ones([4,5])+0.5)",
    "tf.matmul(tf.ones([2,3,4]), tf.ones([2,5,4])+0.5, transpose_b=True)",
    f"tf.tensordot({X}, {Y}, [[1],[1]])", "tf.tensordot(tf.ones([2,3,4]), tf.ones([4,3,5]), [[1,2],[1,0]])",
    f"tf.einsum('ij,kj->ki', {X}, {X})", "tf.einsum('bij,bjk->bik', tf.ones([2,3,4]), tf.ones([2,4,5]))",
    f"tf.einsum('ij->j', {X})", f"tf.einsum('ij,ij->', {X}, {X})",
    "tf.cross(tf.constant([1.,2,3]), tf.constant([4.,5,7]))",
    *(f"tf.segment_{n}({X}, [0, 2])" for n in ["sum", "mean", "max", "min", "prod"]),
    *(f"tf.unsorted_segment_{n}({X}, [[1,0,1],[-1,3,0]], 4)" for n in ["sum", "mean", "prod", "sqrt_n"]),
    "tf.unsorted_segment_max(tf.constant([1,5,2]), [1,0,1], 3)",
    *(f"tf.sparse_segment_{n}({X}, [0,1,0], [0,0,2])" for n in ["sum", "mean", "sqrt_n"]),
    f"tf.sparse_segment_sum({X}, [0,1,0], [0,0,2], num_segments=5)",
    f"tf.add_n([{X},{X},{X}])", f"tf.accumulate_n([{X},{X}])",
    f"tf.clip_by_value({X}, .2, .6)", f"tf.clip_by_norm({X}, .5)", f"tf.clip_by_average_norm({X}, .01)",
    f"tf.global_norm([{X},{Y}])", f"tf.clip_by_global_norm([{X},None,{Y}], .5)[0][2]",
    f"tf.where({X} > .4, {X}, -{X})", f"tf.where_v2({X} > .4, {Y}, 1.)", f"tf.count_nonzero({X} > .4, 0)",
    "tf.bincount([1,2,2,5])", f"1. - {X} / 3 + 2 * {X} ** 2", "tf.constant([5, 7]) // 2 % 2", "tf.constant([5,7]) / 2",
    "tf.constant([b'a', b'b']) + b'c'", "tf.equal(tf.constant(['a', 'b']), 'a')",
    "tf.logical_xor([True, False], [True, True])", f"abs(-{X}) <= .5",
    "~tf.constant([True]) | (tf.constant([False]) & True)",
    "tf.reduce_mean(tf.constant([7,-8,-2]))", "tf.bitwise.left_shift(tf.constant([1,-3]), [2,1])",
    "tf.polygamma(tf.constant([1.,2.]), tf.constant([.5, 3.]))", "tf.zeta(tf.constant(3.), tf.constant(.7))",
    "tf.complex(1., 2.)", "tf.abs(tf.complex(3., 4.))", "tf.angle(tf.complex(3., 4.))",
    "tf.reduce_max(tf.constant([], tf.float32))",
    "tf.math.reduce_std(tf.constant([1.,3.,8.]))", "tf.math.xlogy(0., 0.)", "tf.math.xdivy(0., 0.)", "tf.pow(2, 10)",
    f"tf.cast(tf.sigmoid(tf.cast({X}, tf.bfloat16)), tf.float32)",
    f"tf.cast(tf.reduce_sum(tf.cast({X}, tf.float16)), tf.float32)",
]  # fmt: skip


# Special functions, and Fourier transforms of float32.
ROUGH_CASES = [
    "tf.igamma([.5, 3., 20.], [.2, 4., 15.])", "tf.igammac([.5, 3., 20.], [.2, 4., 35.])",
    "tf.betainc([.5, 3., 20.], [2., .7, 15.], [.2, .9, .6])", "tf.lbeta([[.5, 2.], [3., 4.]])",
    "(lambda x: tf.gradients(tf.igamma(tf.constant([.5, 3.]), x), x)[0])(tf.constant([.2, 4.]))",
    "tf.math.bessel_i0e([-3., 0., 40.])", "tf.math.bessel_i1e([-3., .1, 40.])",
    "tf.math.cumulative_logsumexp([1., -2., 30., 5.], reverse=True, exclusive=True)",
    "tf.searchsorted([[1, 3, 3, 9]], [[0, 3, 10]])", "tf.searchsorted([1, 3, 3, 9], [3], side='right')",
    "tf.sort([[3, 1, 2], [9, 7, 8]], axis=0, direction='DESCENDING')", "tf.argsort([3., 1., 2.])",
    "tf.histogram_fixed_width([0., 1., 9., 4.], [0., 8.], nbins=4)", "tf.math.polyval([1., 2., 3.], 2.)",
    "tf.tensordot(tf.ones([2, 3]), tf.ones([3, 4]), 1)",
    "tf.raw_ops.UniqueV2(x=[[1, 1], [2, 2], [1, 1]], axis=[0])[0]",
    "tf.raw_ops.Einsum(inputs=[[[1., 2.], [3., 4.]]], equation='ii->i')",
    "tf.raw_ops.Einsum(inputs=[tf.ones([2, 3, 4]), tf.ones([4, 5])], equation='...ij,jk->...ik')",
    "tf.log_sigmoid([-100., 0., 3.])",
    *(f"(lambda x: tf.gradients(tf.{n}(x), x)[0])(tf.constant([-1., 0., 2.]))" for n in ("log_sigmoid", "sign")),
    f"tf.abs(tf.signal.rfft({IMAGE}))", f"tf.abs(tf.signal.rfft2d({IMAGE}, [3, 2]))",
    f"tf.signal.irfft(tf.signal.rfft({IMAGE}, [2]), [2])", f"tf.abs(tf.fft3d(tf.cast({IMAGE}, tf.complex64)))",
    f"tf.imag(tf.ifft2d(tf.cast({IMAGE}, tf.complex64)))",
    "(lambda x: tf.gradients(tf.reduce_sum(tf.abs(tf.signal.rfft(x)) ** 2), x)[0])(tf.sin(tf.range(7.)))",
    "(lambda x: tf.gradients(tf.reduce_sum(tf.abs(tf.signal.rfft2d(x)) ** 2), x)[0])"
    "(tf.sin(tf.reshape(tf.range(12.), [3, 4])))",
    "(lambda x: tf.gradients(tf.reduce_sum(tf.signal.irfft(tf.complex(x, x)) ** 3), x)[0])(tf.sin(tf.range(5.)))",
]  # fmt: skip


CASES = EXACT_CASES + ROUGH_CASES


@pytest.mark.oracle
@pytest.mark.parametrize("case", EXACT_CASES)
def test_values_are_tensorflows(case: str, theirs: dict[str, Any]) -> None:
    ours = outcome(tf, case)
    tolerance = 1e-12 if ours["dtypes"] == ["float64"] else 1e-2 if "16" in case else 3e-6
    check(ours, theirs[case], tolerance, tolerance)


@pytest.mark.oracle
@pytest.mark.parametrize("case", ROUGH_CASES)
def test_values_are_nearly_tensorflows(case: str, theirs: dict[str, Any]) -> None:
    check(outcome(tf, case), theirs[case], rtol=1e-4, atol=2e-5)


# ---- gradients: projections against central differences --------------------------------------

P = [[0.31, 0.52, 0.93], [0.34, 0.75, 0.26]]
Q = [[0.44, 0.65, 0.86]]
GRADIENT_CASES = [
    *(f"tf.{n}(p, q)"
      for n in ["add", "subtract", "multiply", "realdiv", "maximum", "minimum", "squared_difference", "atan2",
                "div_no_nan", "pow"]),
    "tf.math.xlogy(p, q)", "tf.math.xdivy(p, q)",
    *(f"tf.{n}(p)"
      for n in ["negative", "abs", "square", "sqrt", "exp", "expm1", "log", "log1p", "sin", "cos", "tan", "asin",
                "acos", "atan", "sinh", "cosh", "asinh", "atanh", "tanh", "sigmoid",
                "reciprocal", "rsqrt", "erf", "erfc", "lgamma", "digamma"]),
    "tf.acosh(p + 1.)",
    *(f"tf.reduce_{n}(p, {a}, keepdims={k})" for n in _REDUCE.split() for a in (None, 0, [0, 1])
      for k in (False, True)),
    "tf.cumsum(p, 1)", "tf.cumprod(p, 1, True, True)", "tf.math.reduce_euclidean_norm(p, 1)",
    *(f"tf.matmul(p, p, {a}, {not a})" for a in (True, False)), "tf.matmul(p, tf.reshape(p, [3, 2]))",
    "tf.matmul(tf.reshape(p, [3, 2]), p, True, True)", "tf.matmul(tf.reshape(p, [2, 3, 1]), q)",
    "tf.segment_sum(p, [0, 0])", "tf.segment_mean(p, [0, 0])", "tf.segment_max(p, [0, 1])",
    "tf.unsorted_segment_sum(p, [1, -1], 3)", "tf.unsorted_segment_max(p, [1, 0], 2)",
    "tf.unsorted_segment_prod(p, [1, 1], 3)",
    "tf.sparse_segment_mean(p, [1, 0, 1], [0, 0, 1])", "tf.sparse_segment_sum(p, [1, 0, 1], [0, 0, 1])",
    "tf.add_n([p, p])", "tf.clip_by_norm(p, .5)", "tf.where(p > .4, p * p, p)", "tf.where_v2(p > .4, q, p)",
    "tf.abs(tf.complex(p, p * 2.))", "tf.angle(tf.complex(p, q))", "tf.cross(p, p * p)",
]  # fmt: skip


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("case", GRADIENT_CASES)
def test_the_gradient_is_the_slope(case: str, static: bool) -> None:
    rng = np.random.default_rng(0)
    shapes = ([2, 3], [1, 3]) if static else ([None, 3], [None, 3])
    p, q = (tf.placeholder(tf.float64, shape) for shape in shapes)
    feeds = {p: np.array(P), q: np.array(Q)}
    y = eval(case, {"tf": tf, "p": p, "q": q})
    weight = tf.constant(rng.normal(size=np.shape(evaluate(y, feeds))))
    loss = tf.reduce_sum(y * weight)
    for x, gradient in zip((p, q), tf.gradients(y, [p, q], weight)):
        if gradient is None:
            continue
        value = evaluate(gradient, feeds)
        assert np.shape(value) == feeds[x].shape
        direction, step = rng.normal(size=feeds[x].shape), 1e-5
        ahead = evaluate(loss, {**feeds, x: feeds[x] + step * direction})
        behind = evaluate(loss, {**feeds, x: feeds[x] - step * direction})
        np.testing.assert_allclose(np.sum(value * direction), (ahead - behind) / (2 * step), rtol=1e-6, atol=1e-7)


# ---- names, types and errors -----------------------------------------------------------------


def test_operators_make_ops_with_tensorflows_names() -> None:
    a = tf.placeholder(tf.float64, [2])
    total = a + 1.0
    assert (total.op.name, total.op.type) == ("add", "Add")
    assert total.graph.get_operation_by_name("add/y").type == "Const"
    reflected = 1.0 - a
    assert [t.op.name for t in reflected.op.inputs] == ["sub/x", "Placeholder"]
    assert reflected.dtype is tf.float64
    assert (-a).op.name == "Neg" and (a < 1).op.name == "Less"


def test_the_gradient_of_equal_static_shapes_has_no_reduction() -> None:
    a = tf.placeholder(tf.float32, [2])
    product = a * a
    before = product.graph.version
    GRADIENTS["Mul"](product.op, a)  # type: ignore[misc]
    assert product.graph.version - before == 2


@pytest.mark.parametrize("function", ["floordiv", "floormod", "truncatediv", "truncatemod"])
def test_integer_division_by_zero_is_an_error(function: str) -> None:
    with pytest.raises(tf.errors.InvalidArgumentError, match="Integer division by zero"):
        evaluate(getattr(tf, function)(tf.constant([1, 2]), tf.constant([1, 0])))


def test_operands_of_different_types_are_refused() -> None:
    with pytest.raises(TypeError, match="Input 'y' of 'Add' Op has type float32"):
        tf.constant([1]) + 1.5


X0 = np.arange(6.0, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize(
    ("build", "wanted"),
    [
        (lambda x: tf.clip_by_average_norm(x, 1), X0 * 6 / np.sqrt(np.float32(55))),
        (lambda x: tf.divide(1, x + 1), 1 / (X0 + 1)),
        (lambda x: tf.divide([1, 2, 3], x + 1), np.array([1, 2, 3], np.float32) / (X0 + 1)),
    ],
)
def test_python_numbers_take_the_type_of_the_tensor_beside_them(build: Callable[[Any], Any], wanted: Any) -> None:
    found = evaluate(build(tf.constant(X0)))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_where_gives_the_coordinates_of_what_is_true() -> None:
    np.testing.assert_array_equal(evaluate(tf.where(tf.constant([[True, False], [False, True]]))), [[0, 0], [1, 1]])


def test_sums_of_indexed_slices_are_dense() -> None:
    rows = tf.IndexedSlices(tf.constant([[1.0], [2.0], [3.0]]), tf.constant([2, 0, 2]), tf.constant([4, 1]))
    np.testing.assert_array_equal(evaluate(tf.add_n([rows, rows])), [[4.0], [0.0], [8.0], [0.0]])


def test_a_global_norm_that_is_not_finite_makes_all_gradients_nan() -> None:
    clipped, norm = tf.clip_by_global_norm([tf.constant([np.inf]), tf.constant([1.0])], 1.0)
    assert np.isinf(evaluate(norm)) and np.isnan(evaluate(clipped[1])).all()


def test_a_histogram_refuses_wrong_arguments() -> None:
    for ends, bins, text in (([0.0, 5.0, 6.0], 5, "Dimension must be 2 but is 3"), ([0.0, 5.0], [5, 3], "rank 0")):
        with pytest.raises(ValueError, match=text):
            tf.histogram_fixed_width([1.0], ends, bins)
    wrong = {"must not contain NaN": ([np.nan], [0.0, 5.0]), "got '\\[5, 0]'": ([1.0], [5.0, 0.0]),
             "got '\\[0, nan]'": ([1.0], [0.0, np.nan])}  # fmt: skip
    with tf.Session() as session:
        for text, (values, ends) in wrong.items():
            with pytest.raises(tf.errors.InvalidArgumentError, match=text):
                session.run(tf.histogram_fixed_width(values, ends, 5))


def test_the_sigmoid_of_a_constant_of_rank_0() -> None:
    assert evaluate(tf.sigmoid(tf.constant(0.0))) == 0.5


@pytest.mark.parametrize(
    ("condition", "x", "y", "result"),
    [([2], [None, 3], [None, 3], [None, 3]), ([2], [None, 3], [2, None], [2, 3])],
)
def test_a_vector_that_selects_rows_tells_nothing_about_their_number(
    condition: list[int], x: list[Any], y: list[Any], result: list[Any]
) -> None:
    """TensorFlow 1.15.5 gave these shapes; Tensor2Tensor's beam search expects them."""
    chosen = tf.where(tf.placeholder(tf.bool, condition), tf.placeholder("float32", x), tf.placeholder("float32", y))
    assert chosen.shape.as_list() == result


@pytest.mark.parametrize("exponent", [2.0, 3.0, 5.0, 8.0, 9.0, -3.0, 0.5])
def test_powers_of_float32_are_right_to_the_last_bit_but_one(exponent: float) -> None:
    values = np.array([0.0, -0.0, 1.0, -1.5, 3.25, 1e-20, 3e38, np.inf, -np.inf, np.nan], np.float32)
    values = np.concatenate([values, np.random.default_rng(0).normal(size=20_000).astype(np.float32)])  # in blocks
    with np.errstate(all="ignore"):
        expected = np.power(values.astype(np.float64), exponent).astype(np.float32)
        found = evaluate(tf.pow(tf.constant(values), tf.constant(exponent)))
    np.testing.assert_array_max_ulp(found, expected, 0 if exponent in (3, 5, 8) else 2)
    assert np.signbit(found[:2]).tolist() == np.signbit(expected[:2]).tolist()


def test_inverse_hyperbolic_functions_are_exact_up_to_the_end_of_the_range() -> None:
    greatest = np.finfo(np.float64).max
    x = tf.asinh(tf.constant([greatest, -greatest, 1.0, np.inf], tf.float64))
    with tf.Session() as session:
        found = session.run([tf.cosh(x), tf.sinh(x)])
        large = session.run([tf.asinh(tf.constant([-1e38, 1e30])), tf.acosh(tf.constant([1e38, -2e30]))])
    np.testing.assert_allclose(found, [[greatest, greatest, 2**0.5, np.inf], [greatest, -greatest, 1, np.inf]], 1e-12)
    np.testing.assert_allclose(large, [[-88.191376, 69.7707], [88.191376, np.nan]], 1e-7)


def test_comparisons_are_packed_from_the_highest_bit_on() -> None:
    with tf.Graph().as_default(), tf.Session() as session:
        numbers = np.arange(16.0).reshape(2, 8)
        packed = tf.raw_ops.CompareAndBitpack(input=numbers, threshold=np.float64(5))
        flags = tf.raw_ops.CompareAndBitpack(input=np.arange(8) % 3 == 0, threshold=False)
        assert [value.tolist() for value in session.run([packed, flags])] == [[[3], [255]], [146]]


def test_the_axes_of_a_sort_and_the_type_of_bins() -> None:
    tf.sort(tf.placeholder(tf.float32, [None] * 5), axis=1)
    order = tf.get_default_graph().get_tensor_by_name("sort/transposition:0")
    assert tf.contrib.util.constant_value(order).tolist() == [0, 4, 2, 3, 1]
    bins = tf.histogram_fixed_width_bins([-1.0, 0.0, 1.5], [0.0, 5.0], 5, dtype=tf.int64)
    assert bins.dtype is tf.int32  # as in 1.15
