"""Differential tests of the array family: one table of expressions, run by tfmini and by TensorFlow."""

from __future__ import annotations

import json
import os
import subprocess
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tfmini.graph.building
from tests.ops.evaluate import evaluate
from tfmini import dtypes
from tfmini.graph.default_graph import as_default
from tfmini.graph.graph import Graph
from tfmini.ops import (
    array_blocks,
    array_diagonals,
    array_filling,
    array_gather,
    array_identity,
    array_joining,
    array_layout,
    array_masking,
    array_padding,
    array_partition,
    array_scatter,
    array_sets,
    array_shape,
    array_slicing,
    array_transpose,
    casting,
    constant,
    gradients,
    indexed_slices,
    math_comparison,
    math_elementwise,
    math_reductions,
    math_segments,
    math_sums,
    operators,
    reduce_functions,
)

_MODULES = (
    array_blocks, array_diagonals, array_filling, array_gather, array_identity, array_joining, array_layout,
    array_masking, array_padding, array_partition, array_scatter, array_sets, array_shape, array_slicing,
    array_transpose, casting, constant, gradients, indexed_slices, math_comparison, math_elementwise,
    math_reductions, math_segments, math_sums, operators, reduce_functions,
)  # fmt: skip

# x is float32 [2, 3], v float32 [4], c float32 [2, 3, 4], i int32 [2]; all fed through placeholders of partial shape.
CASES = """
tf.reshape(x, [3, -1])
tf.reshape(x, tf.shape(v)[:1] * 0 + 6)
tf.reshape(c, [-1, tf.shape(c)[2]])
tf.expand_dims(x, -2)
tf.expand_dims(x, dim=0)
tf.squeeze(tf.expand_dims(x, 1))
tf.squeeze(tf.expand_dims(x, 1), squeeze_dims=[-2])
tf.broadcast_to(v, [3, 4])
tf.shape(c, out_type=tf.int64)
tf.size(c)
tf.rank(c)
tf.shape_n([x, v])
tf.concat([x, x * 2.], 1)
tf.concat([x, x], -2)
tf.concat([x], 0)
tf.stack([x, x + 1.], axis=-1)
tf.stack([1, 2])
tf.unstack(c, num=3, axis=1)
tf.split(v, 2)
tf.split(v, [1, 3])
tf.split(c, [1, -1, 2], axis=2)
tf.slice(c, [0, 1, 0], [-1, 2, 3])
c[1]
c[-1, ..., 1:3]
c[:, ::-1, tf.newaxis, ::2]
c[..., i[0]]
c[:, 5:]
c[0, 1, 2]
c[i[0]:, :i[1]]
v[3:0:-2]
tf.strided_slice(v, [1], [3], [1])
tf.gather(x, [1, 0, 1])
tf.gather(x, [[2, 0]], axis=1)
tf.gather(c, [[0, 1], [2, 0]], axis=1, batch_dims=1)
tf.batch_gather(x, [[0, 2], [1, 1]])
tf.gather_nd(c, [[0, 1], [1, 2]])
tf.gather_nd(c, [[0, 1, 3]])
tf.scatter_nd([[1], [3], [1]], v[:3], [5])
tf.tensor_scatter_update(v, [[1], [3]], [9., 8.])
tf.tensor_scatter_add(v, [[1], [1]], [9., 8.])
tf.tensor_scatter_sub(v, [[1], [1]], [9., 8.])
tf.dynamic_partition(v, [0, 1, 1, 0], 2)
tf.dynamic_stitch([[0, 2], [1, 2]], [x, x * 10.])
tf.boolean_mask(x, [True, False])
tf.boolean_mask(c, x > 2.)
tf.boolean_mask(c, [True, False, True], axis=1)
tf.where(x > 2.)
tf.where(x > 2., x, -x)
tf.unique([3, 1, 3, 2, 1])
tf.unique_with_counts([b'b', b'a', b'b'])
tf.setdiff1d([1, 2, 3, 4], [2, 4])
tf.one_hot([0, 2, -1, 5], 3)
tf.one_hot([[0, 2]], 3, on_value=5, off_value=1, axis=1)
tf.invert_permutation([2, 0, 1])
tf.unravel_index([5, 2], [2, 3])
tf.sequence_mask([1, 0, 3])
tf.sequence_mask([[1, 3]], 4, tf.float32)
tf.transpose(c)
tf.transpose(c, [1, 0, 2])
tf.matrix_transpose(c)
tf.tile(x, [2, 1])
tf.pad(x, [[1, 0], [0, 2]])
tf.pad(x, [[1, 0], [0, 2]], constant_values=7.)
tf.pad(x, [[1, 1], [0, 2]], 'REFLECT')
tf.pad(x, [[1, 1], [0, 2]], 'SYMMETRIC')
tf.reverse(c, [0, -1])
tf.reverse_sequence(x, [2, 3], seq_axis=1, batch_axis=0)
tf.roll(c, [1, -1], [0, 2])
tf.space_to_depth(tf.reshape(c, [1, 4, 6, 1]), 2)
tf.depth_to_space(tf.reshape(c, [1, 2, 3, 4]), 2)
tf.space_to_batch(tf.reshape(c, [1, 4, 6, 1]), [[0, 0], [1, 1]], 2)
tf.batch_to_space(tf.reshape(c, [4, 2, 3, 1]), [[0, 1], [1, 0]], 2)
tf.space_to_batch_nd(c, [2], [[1, 0]])
tf.matrix_band_part(c, 1, 0)
tf.matrix_band_part(c, -1, 1)
tf.diag(v)
tf.diag_part(tf.diag(x))
tf.matrix_diag(x)
tf.matrix_diag_part(c)
tf.matrix_set_diag(c, x)
tf.eye(3)
tf.eye(2, 3, batch_shape=[2])
tf.fill([2, 2], 3)
tf.zeros([2, 3], tf.int32)
tf.zeros(tf.shape(x))
tf.ones([2], tf.bool)
tf.zeros([2], tf.string)
tf.zeros_like(x)
tf.zeros_like(x, dtype=tf.int64)
tf.ones_like(x)
tf.range(5)
tf.range(3, 0, -1)
tf.range(0., 1., 0.25)
tf.range(1, 4, dtype=tf.float64)
tf.linspace(0., 1., 5)
tf.meshgrid([1, 2, 3], [4, 5])
tf.meshgrid(v, [4., 5.], indexing='ij')
tf.repeat(v, 2)
tf.repeat(x, [1, 2], axis=0)
tf.cast(x * 1.7, tf.int32)
tf.cast(x, tf.bool)
tf.to_double(x)
tf.saturate_cast(x * 100., tf.uint8)
tf.saturate_cast(x * 1e18, tf.int32)
tf.bitcast(x, tf.int32)
tf.bitcast(x, tf.uint8)
tf.identity([[1, 2]])
tf.convert_to_tensor([v[0], 2., [v[1]][0]])
tf.stop_gradient(x)
""".strip().splitlines()

# Functions whose gradient with respect to x, v, c is compared: sum of squares of the result.
GRADIENT_CASES = """
tf.reshape(x, [3, -1])
tf.expand_dims(x, 1)
tf.squeeze(tf.expand_dims(x, 1))
tf.broadcast_to(v, [3, 4])
tf.concat([x, x * 2.], 1)
tf.concat([c, c[:, :1]], 1)
tf.stack([x, x + 1.], axis=1)
tf.unstack(c, num=3, axis=1)[1]
tf.split(v, 2)[0]
tf.split(v, [1, 3])[1]
tf.slice(c, [0, 1, 0], [-1, 2, 3])
c[:, ::-1, tf.newaxis, ::2]
c[1, 1:]
tf.gather(x, [1, 0, 1])
tf.gather(c, [[2, 0, 2]], axis=1)
tf.gather_nd(c, [[0, 1], [0, 1]])
tf.gather_nd(v, [[0], [2]])
tf.scatter_nd([[1], [3], [1]], v[:3], [5])
tf.tensor_scatter_update(v, [[1], [3]], v[:2])
tf.tensor_scatter_add(v, [[1], [1]], v[:2])
tf.dynamic_partition(v, [0, 1, 1, 0], 2)[1]
tf.dynamic_stitch([[0, 1], [2, 3]], [x, x * 10.])
tf.boolean_mask(x, [True, False])
tf.transpose(c, [1, 2, 0])
tf.tile(x, [2, 3])
tf.pad(x, [[1, 0], [0, 2]])
tf.pad(x, [[1, 1], [0, 2]], 'REFLECT')
tf.pad(x, [[1, 1], [0, 2]], 'SYMMETRIC')
tf.reverse(c, [0, -1])
tf.roll(c, [1, -1], [0, 2])
tf.space_to_depth(tf.reshape(c, [1, 4, 6, 1]), 2)
tf.space_to_batch_nd(c, [2], [[1, 0]])
tf.matrix_band_part(c, 1, 0)
tf.matrix_diag(x)
tf.matrix_set_diag(c, x)
tf.matrix_diag_part(c)
tf.cast(x, tf.float64)
tf.identity(x)
tf.fill([2, 2], v[0])
""".strip().splitlines()

_ORACLE = r"""
import json, sys
import numpy as np
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
def plain(v):
    v = np.asarray(v)
    kind = v.dtype.name
    return [kind, list(v.shape), [e.decode() if isinstance(e, bytes) else e for e in v.ravel().tolist()]]
values, grads = json.load(sys.stdin)
out = []
for text, wants_gradient in [(t, False) for t in values] + [(t, True) for t in grads]:
    with tf.Graph().as_default(), tf.Session() as s:
        x = tf.placeholder(tf.float32, [None, 3]); v = tf.placeholder(tf.float32, [None])
        c = tf.placeholder(tf.float32, [2, None, None]); i = tf.placeholder(tf.int32, [2])
        feeds = {x: np.arange(1, 7).reshape(2, 3), v: np.arange(1, 5), c: np.arange(24).reshape(2, 3, 4), i: [1, 2]}
        r = eval(text)
        if wants_gradient:
            r = [tf.convert_to_tensor(g) for g in tf.gradients(tf.reduce_sum(r * r), [x, v, c]) if g is not None]
        r = list(r) if isinstance(r, (list, tuple)) else [r]
        out.append([plain(e) for e in s.run(r, feeds)])
print(json.dumps(out))
"""


class _Namespace:
    float32, float64, int32, int64, bool, string, uint8 = (
        dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64, dtypes.bool, dtypes.string, dtypes.uint8,
    )  # fmt: skip
    newaxis = None

    def __getattr__(self, name: str) -> Any:
        return next(getattr(m, name) for m in (*_MODULES, tfmini.graph.conversion) if hasattr(m, name))


tf = _Namespace()
DATA = SimpleNamespace(
    x=np.arange(1, 7, dtype=np.float32).reshape(2, 3), v=np.arange(1, 5, dtype=np.float32),
    c=np.arange(24, dtype=np.float32).reshape(2, 3, 4), i=np.array([1, 2], np.int32),
)  # fmt: skip


def _compute(text: str, wants_gradient: bool = False) -> tuple[list[Any], list[Any]]:
    """The result tensors of an expression and their values."""
    with as_default(Graph()):
        names = {
            "x": tf.placeholder(tf.float32, [None, 3]), "v": tf.placeholder(tf.float32, [None]),
            "c": tf.placeholder(tf.float32, [2, None, None]), "i": tf.placeholder(tf.int32, [2]),
        }  # fmt: skip
        result = eval(text, {"tf": tf, **names})
        if wants_gradient:
            total = tf.reduce_sum(result * result)
            found = tf.gradients(total, [names[n] for n in "xvc"])
            result = [tf.convert_to_tensor(g) for g in found if g is not None]
        tensors = list(result) if isinstance(result, (list, tuple)) else [result]
        return tensors, evaluate(tensors, {names[n]: getattr(DATA, n) for n in names})


@pytest.mark.parametrize("text", CASES)
def test_values_have_the_declared_type_and_shape(text: str) -> None:
    tensors, values = _compute(text)
    for tensor, value in zip(tensors, values):
        assert np.asarray(value).dtype == tensor.dtype.numpy
        assert tensor.shape.is_compatible_with(np.shape(value))


@pytest.fixture(scope="module")
def expected() -> list[Any]:
    python = os.environ.get("TFMINI_ORACLE")
    if not python:
        pytest.skip("TFMINI_ORACLE is not set")
    done = subprocess.run(
        [python, "-c", _ORACLE], input=json.dumps([CASES, GRADIENT_CASES]), capture_output=True, text=True, timeout=900,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "3"}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


@pytest.mark.oracle
@pytest.mark.parametrize(
    "number", range(len(CASES) + len(GRADIENT_CASES)), ids=CASES + ["grad " + c for c in GRADIENT_CASES]
)
def test_same_as_tensorflow(number: int, expected: list[Any]) -> None:
    text = (CASES + GRADIENT_CASES)[number]
    _, values = _compute(text, wants_gradient=number >= len(CASES))
    assert len(values) == len(expected[number])
    for value, (kind, shape, flat) in zip(values, expected[number]):
        array = np.asarray(value)
        assert array.dtype.name == kind and list(array.shape) == shape
        if kind == "object":
            assert [e.decode() for e in array.ravel()] == flat
        else:
            np.testing.assert_allclose(array.ravel(), flat, rtol=1e-6)
