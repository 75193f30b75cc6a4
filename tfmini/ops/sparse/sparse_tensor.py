"""Sparse tensors as values: ``tf.SparseTensor`` and ``tf.SparseTensorValue``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph.conversion import SparseComponents, SparseTensorValue, convert_to_tensor
from tfmini.graph.families import Tensor, name_scope
from tfmini.ops.array.constant_value import constant_value_as_shape
from tfmini.shapes import TensorShape, merge_dims, with_rank


@export("tf.SparseTensor", "tf.sparse.SparseTensor")
class SparseTensor(SparseComponents):
    """A tensor given by its nonzero elements (``tf.SparseTensor``).

    Args:
      indices: int64 [N, rank], in row-major order.
      values: [N].
      dense_shape: int64 [rank].

    Raises:
      ValueError: when the shapes contradict each other.
    """

    if TYPE_CHECKING:
        # The module `functions` defines the operators.
        def __mul__(self, other: Any) -> Any: ...
        def __truediv__(self, other: Any) -> Any: ...

    def __init__(self, indices: Any, values: Any, dense_shape: Any) -> None:
        with name_scope(None, "SparseTensor", [indices, values, dense_shape]):
            super().__init__(
                convert_to_tensor(indices, name="indices", dtype=dtypes.int64),
                convert_to_tensor(values, name="values"),
                convert_to_tensor(dense_shape, name="dense_shape", dtype=dtypes.int64),
            )
        pairs = with_rank(self._indices.raw_shape, 2)
        merge_dims(pairs[0], with_rank(self._values.raw_shape, 1)[0])
        merge_dims(pairs[1], with_rank(self._dense_shape.raw_shape, 1)[0])

    @classmethod
    def from_value(cls, sparse_tensor_value: Any) -> SparseTensor:
        """A sparse tensor of constants.

        Raises:
          TypeError: when it is neither a sparse tensor nor the value of one.
        """
        if not isinstance(sparse_tensor_value, (SparseTensor, SparseTensorValue)):
            raise TypeError(f"Neither a SparseTensor nor SparseTensorValue: {sparse_tensor_value}.")
        return cls(sparse_tensor_value.indices, sparse_tensor_value.values, sparse_tensor_value.dense_shape)

    @property
    def shape(self) -> TensorShape:
        """The static dense shape, as far as it is known."""
        return TensorShape.from_raw(constant_value_as_shape(self._dense_shape))

    def get_shape(self) -> TensorShape:
        """Same as `shape`."""
        return self.shape

    def eval(self, feed_dict: Any = None, session: Any = None) -> SparseTensorValue:
        """The value in ``session`` or the default session."""
        found = self.graph._session_hook("eval", [self._indices, self._values, self._dense_shape], feed_dict, session)
        return SparseTensorValue(*found)


def on_values(function: Callable[..., Tensor], sparse: SparseTensor, name: str | None) -> SparseTensor:
    """Applies ``function`` to the values of a sparse tensor."""
    return SparseTensor(sparse.indices, function(sparse.values, name=name), sparse.dense_shape)


@export("tf.convert_to_tensor_or_sparse_tensor")
def convert_to_tensor_or_sparse_tensor(value: Any, dtype: Any = None, name: str | None = None) -> Any:
    """A `SparseTensor` unchanged or made from its value; any other value as a tensor.

    Raises:
      RuntimeError: when a sparse tensor has another type than ``dtype``.
    """
    if isinstance(value, SparseTensorValue):
        value = SparseTensor.from_value(value)
    if not isinstance(value, SparseTensor):
        return convert_to_tensor(value, dtype=dtype, name=name)
    if dtype is not None and not dtypes.as_dtype(dtype).is_compatible_with(value.dtype):
        raise RuntimeError(f"Sparse dtype: requested = {dtypes.as_dtype(dtype).name}, actual = {value.dtype.name}")
    return value
