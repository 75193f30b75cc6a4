"""The array family: values and gradients are TensorFlow's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.expressions import check, fits, outcome

# Gradients of several reads of one tensor add slices up as a whole, and say so.
pytestmark = pytest.mark.filterwarnings("ignore:Converting sparse IndexedSlices to a dense Tensor:UserWarning")

NAMES = """
x = tf.placeholder(tf.float32, [None, 3])
v = tf.placeholder(tf.float32, [None])
c = tf.placeholder(tf.float32, [2, None, None])
i = tf.placeholder(tf.int32, [2])
feeds = {x: np.arange(1, 7).reshape(2, 3), v: np.arange(1, 5), c: np.arange(24).reshape(2, 3, 4), i: [1, 2]}

def gradients(result):
    found = tf.gradients(tf.reduce_sum(result * result), [x, v, c])
    return [tf.convert_to_tensor(g) for g in found if g is not None]
"""

VALUE_CASES = """
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
tf.parallel_stack([[1, 2], [3, 4]])
tf.reshape(tf.zeros([0, 6]), [0, -1, 3])
tf.pad([[1, 2]], [[0, 1], [1, 0]], constant_values=-3)
tf.raw_ops.MatrixDiagV2(diagonal=[[1., 2., 0.], [3., 4., 5.]], k=[0, 1], num_rows=-1, num_cols=-1, padding_value=9.)
tf.raw_ops.MatrixDiagPartV2(input=[[1., 2., 3., 4.], [5., 6., 7., 8.]], k=[-1, 2], padding_value=9.)
tf.raw_ops.MatrixSetDiagV2(input=tf.zeros([3, 3]), diagonal=[1., 2.], k=-1)
""".strip().splitlines()

# The gradient of the sum of squares of each is compared.
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
CASES = VALUE_CASES + [f"gradients({case})" for case in GRADIENT_CASES]


@pytest.mark.parametrize("case", VALUE_CASES)
def test_values_have_the_static_shape(case: str) -> None:
    found = outcome(tf, case, NAMES)
    assert all(fits(shape, value.shape) for shape, value in zip(found["shapes"], found["values"], strict=True))


@pytest.mark.oracle
@pytest.mark.parametrize("case", CASES)
def test_values_are_tensorflows(case: str, theirs: dict[str, Any]) -> None:
    check(outcome(tf, case, NAMES), theirs[case], rtol=1e-6)


def test_a_permutation_of_one_element_tells_no_rank() -> None:
    with tf.Graph().as_default():
        x = tf.placeholder(tf.int32)
        assert tf.transpose(x, [0]).shape.ndims is None  # TensorFlow: it may be a scalar, too
        assert tf.transpose(x, [1, 0]).shape.as_list() == [None, None]


@pytest.mark.parametrize("axes", [0, [[0]]])
def test_reverse_takes_a_vector_of_axes(axes: Any) -> None:
    with pytest.raises(ValueError, match="Shape must be rank 1 but is rank [02] for 'ReverseV2"):
        tf.reverse([[1, 2]], axes)
    with pytest.raises(ValueError, match="Shape must be rank 1"):  # of values that are not known, too
        tf.reverse([[1, 2]], tf.placeholder(tf.int32, tf.convert_to_tensor(axes).shape))


def test_values_of_one_hot_keep_their_type() -> None:
    with pytest.raises(TypeError, match="of on_value does not match dtype parameter"):
        tf.one_hot([0, 1], 3, on_value=np.float32(1), dtype=np.int32)
    with pytest.raises(TypeError, match="of off_value does not match dtype parameter"):
        tf.one_hot([0, 1], 3, off_value=np.float64(1), dtype=tf.float32)


def test_none_stands_for_the_usual_type_of_counts() -> None:
    x = [1.0, 2.0, 2.0]
    counts = [
        tf.shape(x, out_type=None), tf.size(x, out_type=None), tf.shape_n([x], out_type=None)[0],
        tf.unique(x, out_idx=None).idx, tf.unique_with_counts(x, out_idx=None).count,
        tf.setdiff1d(x, x, index_dtype=None).idx, tf.searchsorted(x, x, out_type=None),
    ]  # fmt: skip
    assert [count.dtype for count in counts] == [tf.int32] * 7
    assert tf.searchsorted(x, x, out_type="int64").dtype == tf.int64
