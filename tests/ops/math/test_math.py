"""The math families: values and gradients, against numpy and against TensorFlow itself."""

from __future__ import annotations

import json
import os
import subprocess
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tfmini.graph.building
import tfmini.ops.operators  # noqa: F401 - both act by being imported
from tests.ops.evaluate import evaluate
from tfmini import dtypes
from tfmini.errors import InvalidArgumentError
from tfmini.graph.graph import Graph
from tfmini.graph.operation import Tensor
from tfmini.graph.registry import GRADIENTS
from tfmini.ops import (
    array_filling,
    array_identity,
    array_shape,
    clip,
    math_bitwise,
    math_comparison,
    math_complex,
    math_contraction,
    math_elementwise,
    math_matmul,
    math_powers,
    math_reductions,
    math_segments,
    math_sparse_segments,
    math_sums,
    math_unary,
    reduce_functions,
)
from tfmini.ops.casting import cast
from tfmini.ops.constant import constant

MODULES = (
    array_filling, array_identity, array_shape, math_bitwise, math_comparison, math_elementwise, math_unary,
    math_complex, math_powers, math_reductions, reduce_functions, math_matmul, math_contraction, math_segments,
    math_sparse_segments, math_sums, clip,
)  # fmt: skip


def _namespace() -> SimpleNamespace:
    names: dict[str, Any] = {}
    for module in MODULES:
        names.update({k: v for k, v in vars(module).items() if not k.startswith("_")})
    names.update({d.name: d for d in (dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64, dtypes.complex64)})
    names.update(constant=constant, cast=cast, bfloat16=dtypes.bfloat16, float16=dtypes.float16)
    tf = SimpleNamespace(**names)
    tf.math = tf.bitwise = tf.linalg = tf
    return tf


TF = _namespace()

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
CASES = [
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


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    value = np.asarray(value)
    if value.dtype == object:
        return [v.decode() for v in value.ravel()]
    return ["complex", value.real.tolist(), value.imag.tolist()] if value.dtype.kind == "c" else value.tolist()


_ORACLE_SCRIPT = """
import json, sys, numpy as np
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
def plain(value):
    if isinstance(value, bytes): return value.decode()
    value = np.asarray(value)
    if value.dtype == object: return [v.decode() for v in value.ravel()]
    return ["complex", value.real.tolist(), value.imag.tolist()] if value.dtype.kind == "c" else value.tolist()
found = []
with tf.Session() as session:
    for case in json.load(sys.stdin):
        try:
            tensor = eval(case)
        except Exception as error:  # the case is at fault: say which
            raise SystemExit(f"{case}: {error!r}")
        shape = tensor.shape.as_list() if tensor.shape.ndims is not None else None
        found.append([tensor.dtype.base_dtype.name, plain(session.run(tensor)), shape])
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    python = os.environ.get("TFMINI_ORACLE")
    if not python:
        pytest.skip("TFMINI_ORACLE names no Python with TensorFlow")
    env = dict(os.environ, CUDA_VISIBLE_DEVICES="", TF_CPP_MIN_LOG_LEVEL="3")
    done = subprocess.run(  # noqa: PLW1510 - checked below, with its output
        [python, "-c", _ORACLE_SCRIPT], input=json.dumps(CASES), capture_output=True, text=True, env=env, timeout=900
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return dict(zip(CASES, json.loads(done.stdout.splitlines()[-1])))


@pytest.mark.oracle
@pytest.mark.parametrize("case", CASES)
def test_matches_tensorflow(case: str, answers: dict[str, Any]) -> None:
    with Graph().as_default():
        tensor = eval(case, {"tf": TF, "abs": abs})
        value = evaluate(tensor)
    dtype, expected, shape = answers[case]
    assert tensor.dtype.base_dtype.name == dtype
    if dtype == "string":
        assert _plain(value) == expected
        return
    assert np.asarray(value).dtype == tensor.dtype.base_dtype.numpy
    if isinstance(expected, list) and expected[:1] == ["complex"]:
        expected = np.array(expected[1]) + 1j * np.array(expected[2])
    tolerance = 1e-12 if dtype == "float64" else 1e-2 if "16" in case else 3e-6
    np.testing.assert_allclose(np.asarray(value), np.array(expected), rtol=tolerance, atol=tolerance)
    assert np.shape(value) == np.shape(expected)
    if shape is not None and tensor._shape is not None:
        assert all(a == b for a, b in zip(tensor._shape, shape) if a is not None and b is not None)


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


def _gradients(y: Tensor, grad: Tensor, xs: list[Tensor]) -> list[Any]:
    """Reverse accumulation, the least that these tests need."""
    found: dict[Any, Any] = {y: grad}
    for operation in sorted(y.graph.get_operations(), key=lambda o: -o._id):
        if operation._id > grad.op._id or not operation._outputs or found.get(operation._outputs[0]) is None:
            continue
        function = GRADIENTS.get(operation.type)
        if function is None:
            continue
        for x, g in zip(operation._inputs, function(operation, found[operation._outputs[0]])):
            if g is not None:
                found[x] = g if found.get(x) is None else math_elementwise.add(found[x], g)
    return [found.get(x) for x in xs]


@pytest.mark.parametrize("static", [True, False])
@pytest.mark.parametrize("case", GRADIENT_CASES)
def test_gradient(case: str, static: bool) -> None:
    rng = np.random.default_rng(0)
    with Graph().as_default():
        shapes = ([2, 3], [1, 3]) if static else ([None, 3], [None, 3])
        p, q = (array_identity.placeholder(dtypes.float64, s) for s in shapes)
        feeds = {p: np.array(P), q: np.array(Q)}
        y = eval(case, {"tf": TF, "p": p, "q": q})
        weight = constant(rng.normal(size=np.shape(evaluate(y, feeds))))
        loss = reduce_functions.reduce_sum(y * weight)
        found = _gradients(y, weight, [p, q])
        for x, g in zip((p, q), found):
            if g is None:
                continue
            value = evaluate(g, feeds)
            assert np.shape(value) == feeds[x].shape
            direction, step = rng.normal(size=feeds[x].shape), 1e-5
            ahead = evaluate(loss, {**feeds, x: feeds[x] + step * direction})
            behind = evaluate(loss, {**feeds, x: feeds[x] - step * direction})
            np.testing.assert_allclose(np.sum(value * direction), (ahead - behind) / (2 * step), rtol=1e-6, atol=1e-7)


# ---- names, shapes and errors ----------------------------------------------------------------


def test_operator_names() -> None:
    with Graph().as_default() as graph:
        a = array_identity.placeholder(dtypes.float64, [2])
        total = a + 1.0
        assert (total.op.name, total.op.type) == ("add", "Add")
        assert graph.get_operation_by_name("add/y").type == "Const"
        reflected = 1.0 - a
        assert [t.op.name for t in reflected.op.inputs] == ["sub/x", "Placeholder"]
        assert reflected.dtype is dtypes.float64
        assert (-a).op.name == "Neg" and (a < 1).op.name == "Less"


def test_equal_static_shapes_add_no_reduction() -> None:
    with Graph().as_default() as graph:
        a = array_identity.placeholder(dtypes.float32, [2])
        product = a * a
        before = graph.version
        GRADIENTS["Mul"](product.op, a)  # type: ignore[misc]
        assert graph.version - before == 2


@pytest.mark.parametrize("function", ["floordiv", "floormod", "truncatediv", "truncatemod"])
def test_integer_division_by_zero(function: str) -> None:
    with Graph().as_default(), pytest.raises(InvalidArgumentError, match="Integer division by zero"):
        evaluate(getattr(TF, function)(constant([1, 2]), constant([1, 0])))


def test_refuses_mixed_types() -> None:
    with Graph().as_default(), pytest.raises(TypeError, match="Input 'y' of 'Add' Op has type float32"):
        constant([1]) + 1.5


def test_out_of_range_segment() -> None:
    with (
        Graph().as_default(),
        pytest.raises(InvalidArgumentError, match=r"segment_ids\[1\] = 5 is out of range \[0, 3\)"),
    ):
        evaluate(TF.unsorted_segment_sum([1.0, 2.0], [0, 5], 3))


def test_where_gives_coordinates() -> None:
    with Graph().as_default():
        np.testing.assert_array_equal(evaluate(TF.where(constant([[True, False], [False, True]]))), [[0, 0], [1, 1]])


def test_indexed_slices_become_dense() -> None:
    from tfmini.graph.conversion import IndexedSlices

    with Graph().as_default():
        rows = IndexedSlices(constant([[1.0], [2.0], [3.0]]), constant([2, 0, 2]), constant([4, 1]))
        np.testing.assert_array_equal(evaluate(TF.add_n([rows, rows])), [[4.0], [0.0], [8.0], [0.0]])


def test_global_norm_that_is_not_finite_spoils_all() -> None:
    with Graph().as_default():
        clipped, norm = TF.clip_by_global_norm([constant([np.inf]), constant([1.0])], 1.0)
        assert np.isinf(evaluate(norm)) and np.isnan(evaluate(clipped[1])).all()


def test_special_functions_match_python() -> None:
    import math

    from tfmini.ops import special_functions

    x = np.linspace(-4.6, 25.3, 997)
    for ours, exact in ((special_functions.erf, math.erf), (special_functions.erfc, math.erfc)):
        np.testing.assert_allclose(ours(x), [exact(v) for v in x], rtol=5e-13)
    np.testing.assert_allclose(special_functions.lgamma(x), [math.lgamma(v) for v in x], rtol=1e-12, atol=1e-13)
