"""``tf.ConditionalAccumulator`` and ``tf.SparseConditionalAccumulator``."""

from __future__ import annotations

from typing import Any

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph.families import IndexedSlices, Operation, Tensor, convert_to_tensor
from tfmini.ops.array.casting import cast
from tfmini.ops.queues import accumulator_ops
from tfmini.shapes import TensorShape


@export("tf.ConditionalAccumulatorBase")
class ConditionalAccumulatorBase:
    """Collects gradients and returns their mean when there are enough (``tf.ConditionalAccumulatorBase``).

    Args:
      dtype: of the gradients.
      shape: of the gradients, possibly partial.
      accumulator_ref: the handle.
    """

    def __init__(self, dtype: Any, shape: Any, accumulator_ref: Tensor) -> None:
        self._dtype = dtypes.as_dtype(dtype)
        self._shape = TensorShape(shape)
        self._accumulator_ref = accumulator_ref
        self._name = accumulator_ref.op.name.split("/")[-1]

    @property
    def accumulator_ref(self) -> Tensor:
        """The handle."""
        return self._accumulator_ref

    @property
    def name(self) -> str:
        """The last part of the handle's name."""
        return self._name

    @property
    def dtype(self) -> dtypes.DType:
        """The type of the gradients."""
        return self._dtype

    def _op(self, name: str) -> Any:
        is_resource = self._accumulator_ref.dtype.base_dtype is dtypes.resource
        return getattr(accumulator_ops, name if is_resource else f"{name}_v1")

    def num_accumulated(self, name: str | None = None) -> Tensor:
        """The number of gradients in it, an int32 scalar."""
        return self._op("num_accumulated")(self._accumulator_ref, name=name or f"{self._name}_NumAccumulated")  # type: ignore[no-any-return]

    def set_global_step(self, new_global_step: Any, name: str | None = None) -> Operation:
        """Sets the step before which gradients are stale."""
        return self._op("set_global_step")(self._accumulator_ref, _as_int64(new_global_step), name=name)  # type: ignore[no-any-return]


def _as_int64(value: Any) -> Tensor:
    return cast(convert_to_tensor(value), dtypes.int64)


@export("tf.ConditionalAccumulator")
class ConditionalAccumulator(ConditionalAccumulatorBase):
    """Collects dense gradients (``tf.ConditionalAccumulator``).

    Args:
      dtype: float16, float32 or float64.
      shape: of the gradients; None if it is unknown.
      shared_name: the name by which other sessions find it.
      name: of the handle.
      reduction_type: ``MEAN`` or ``SUM``.
    """

    def __init__(
        self, dtype: Any, shape: Any = None, shared_name: str | None = None, name: str = "conditional_accumulator",
        reduction_type: str = "MEAN",
    ) -> None:  # fmt: skip
        handle = accumulator_ops.accumulator(
            dtype=dtype, shape=shape, shared_name=shared_name or "", name=name, reduction_type=reduction_type
        )
        super().__init__(dtype, shape, handle)

    def apply_grad(self, grad: Any, local_step: Any = 0, name: str | None = None) -> Operation:
        """Adds a gradient, or drops it if its ``local_step`` is before the global step.

        Raises:
          ValueError: when its static shape does not match the accumulator's.
        """
        tensor = convert_to_tensor(grad, self._dtype)
        tensor.shape.assert_is_compatible_with(self._shape)
        return self._op("apply_gradient")(self._accumulator_ref, _as_int64(local_step), tensor, name=name)  # type: ignore[no-any-return]

    def take_grad(self, num_required: Any, name: str | None = None) -> Tensor:
        """Waits for ``num_required`` gradients; returns the mean (or sum) of all gradients so far and removes them."""
        out: Tensor = self._op("take_gradient")(self._accumulator_ref, num_required, dtype=self._dtype, name=name)
        out.set_shape(self._shape)
        return out


@export("tf.SparseConditionalAccumulator", "tf.sparse.SparseConditionalAccumulator")
class SparseConditionalAccumulator(ConditionalAccumulatorBase):
    """Collects indexed slices (``tf.SparseConditionalAccumulator``); arguments like `ConditionalAccumulator`.

    The mean of a row is over the gradients that have this row.
    """

    def __init__(
        self, dtype: Any, shape: Any = None, shared_name: str | None = None,
        name: str = "sparse_conditional_accumulator", reduction_type: str = "MEAN",
    ) -> None:  # fmt: skip
        handle = accumulator_ops.sparse_accumulator(
            dtype=dtype, shape=shape, shared_name=shared_name or "", name=name, reduction_type=reduction_type
        )
        super().__init__(dtype, shape, handle)

    def apply_indexed_slices_grad(self, grad: Any, local_step: Any = 0, name: str | None = None) -> Operation:
        """`apply_grad` of an ``IndexedSlices``."""
        return self.apply_grad(grad.indices, grad.values, grad.dense_shape, local_step, name)

    def apply_grad(
        self, grad_indices: Any, grad_values: Any, grad_shape: Any = None, local_step: Any = 0, name: str | None = None
    ) -> Operation:
        """Adds a gradient, or drops it if its ``local_step`` is before the global step.

        Args:
          grad_indices: [N], rows in increasing order.
          grad_values: [N, …].
          grad_shape: of the dense gradient, if known.
        """
        return accumulator_ops.sparse_apply_gradient(
            self._accumulator_ref,
            _as_int64(local_step),
            cast(grad_indices, dtypes.int64),
            grad_values,
            cast([] if grad_shape is None else grad_shape, dtypes.int64),
            has_known_shape=grad_shape is not None,
            name=name,
        )

    def take_grad(self, num_required: Any, name: str | None = None) -> Any:
        """Waits for ``num_required`` gradients; returns (indices, values, shape) of their mean (or sum)."""
        return accumulator_ops.sparse_take_gradient(self._accumulator_ref, num_required, dtype=self._dtype, name=name)

    def take_indexed_slices_grad(self, num_required: Any, name: str | None = None) -> IndexedSlices:
        """`take_grad` as an ``IndexedSlices``."""
        found = self.take_grad(num_required, name)
        return IndexedSlices(values=found.values, indices=found.indices, dense_shape=found.shape)
