"""Accumulator ops: ``ConditionalAccumulator`` (by reference and by handle), ``SparseConditionalAccumulator``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, DTypeLike, ShapeLike, TensorLike
from tfmini.dtypes import DType, cpp_name
from tfmini.export import export
from tfmini.graph.families import (
    IndexedSlices,
    Operation,
    OpHandle,
    ShapeRule,
    Tensor,
    all_of,
    convert_to_tensor,
    unknown_shapes,
)
from tfmini.graph.node import Node
from tfmini.graph.op_types import DeviceResources, Traits, Wait
from tfmini.ops.array.identity import cast
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.queues.accumulator_state import AccumulatorState, DenseAccumulatorState, SparseAccumulatorState
from tfmini.ops.waiting_line import find_or_create, state_op
from tfmini.shapes import RawShape, TensorShape, format_raw

_ATTRS = """dtype: numbertype
    shape: shape
    container: string = ''
    shared_name: string = ''
    reduction_type: {'MEAN', 'SUM'} = 'MEAN'"""


def _access(
    name: str, inputs: str, output: str, shape: ShapeRule, attrs: str = "", old: str = "", **traits: Unpack[Traits]
) -> tuple[OpHandle[Any], OpHandle[Any]]:
    """Declares an op on an accumulator by handle and, as ``old``, by reference."""
    rest = f"{inputs}){output}{attrs}"
    new = state_op(f"{name}(handle: resource{rest}", shape, **traits)
    return new, state_op(f"{old or name.replace('Resource', '')}(handle: Ref(string){rest}", shape, **traits)


accumulator = state_op(
    f"ResourceConditionalAccumulator() -> handle: resource\n{_ATTRS}", [(2,)], on_ps=True, meeting=True
)
accumulator_v1 = state_op(f"ConditionalAccumulator() -> handle: Ref(string)\n{_ATTRS}", [(2,)], meeting=True)
sparse_accumulator = state_op(f"SparseConditionalAccumulator() -> handle: Ref(string)\n{_ATTRS}", [(2,)], meeting=True)
apply_gradient, apply_gradient_v1 = _access(
    "ResourceAccumulatorApplyGradient", ", local_step: int64, gradient: dtype", "", [], "; dtype: numbertype",
    accumulator="apply", keeps=True,
)  # fmt: skip
num_accumulated, num_accumulated_v1 = _access(
    "ResourceAccumulatorNumAccumulated", "", " -> num_accumulated: int32", [()]
)
set_global_step, set_global_step_v1 = _access("ResourceAccumulatorSetGlobalStep", ", new_global_step: int64", "", [])
take_gradient, take_gradient_v1 = _access(
    "ResourceAccumulatorTakeGradient", ", num_required: int32", " -> average: dtype", unknown_shapes,
    "; dtype: numbertype", accumulator="take",
)  # fmt: skip
sparse_apply_gradient = state_op(
    "SparseAccumulatorApplyGradient(handle: Ref(string), local_step: int64, gradient_indices: int64,"
    " gradient_values: dtype, gradient_shape: int64); dtype: numbertype; has_known_shape: bool",
    [], accumulator="apply", keeps=True,
)  # fmt: skip
sparse_take_gradient = state_op(
    "SparseAccumulatorTakeGradient(handle: Ref(string), num_required: int32)"
    " -> indices: int64, values: dtype, shape: int64; dtype: numbertype",
    unknown_shapes, accumulator="take",
)  # fmt: skip
# Not in TensorFlow: a graph has them only if the program asks for the ledger.
ledger, ledger_v1 = _access("_AccumulatorLedger", "", " -> ledger: string", [()], old="_AccumulatorLedgerV1")
# Not in TensorFlow either: the recovery of a synchronous run has them in a graph of its own.
renew, renew_v1 = _access("_AccumulatorRenew", ", step: int64", "", [], old="_AccumulatorRenewV1")
step_of, step_of_v1 = _access("_AccumulatorStep", "", " -> step: int64", [()], old="_AccumulatorStepV1")


# ---- kernels --------------------------------------------------------------------------------


def _state_of(state: type[AccumulatorState], kind: str) -> Callable[..., AccumulatorState]:
    def find(
        resources: DeviceResources, *, container: bytes, shared_name: bytes, node: Node, dtype: DType, shape: RawShape,
        reduction_type: bytes,
    ) -> AccumulatorState:  # fmt: skip
        if not (dtype.is_floating or dtype.is_complex):
            refuse(
                f"No OpKernel was registered to support Op '{node.op}' used by {{{{node {node.name}}}}} with"
                f" dtype={dtype.name}: an accumulator averages floating-point gradients. Cast them, to float32 say."
            )

        def create(name: str) -> AccumulatorState:
            return state(name, dtype, shape, reduction_type.decode())

        found = find_or_create(resources, container, shared_name, node, kind, create)
        found.users.add(resources)
        return found

    return find


accumulator.state_kernel("CPU")(_state_of(DenseAccumulatorState, "accumulator"))
accumulator_v1.state_kernel("CPU")(_state_of(DenseAccumulatorState, "accumulator"))
sparse_accumulator.state_kernel("CPU")(_state_of(SparseAccumulatorState, "sparse accumulator"))


def _check_dtype(state: AccumulatorState, dtype: DType) -> None:
    if state.dtype is not dtype:
        refuse(
            f"Signature mismatch, have gradients of type {cpp_name(dtype)}, expected {cpp_name(state.dtype)}"
            f" (accumulator '{state.name}')"
        )


def _scalar_step(local_step: Array) -> int:
    if np.ndim(local_step):
        refuse(f"Argument local_step must be scalar, but had bad shape {format_raw(np.shape(local_step))}")
    return int(local_step)


@all_of(apply_gradient, apply_gradient_v1).kernel("CPU")
def _apply(
    state: AccumulatorState, local_step: Array, gradient: Array, *, dtype: DType, node: Node, resources: DeviceResources
) -> tuple[()]:
    _check_dtype(state, dtype)
    state.apply(_scalar_step(local_step), gradient, _contributor(node, resources), resources)
    return ()


def _contributor(node: Node, resources: DeviceResources) -> str:
    """The contributor of a gradient: the attr ``_contributor`` of its node, or the session if that is empty."""
    named = node.attrs.get("_contributor")
    if named is None:
        return ""
    return named.decode() or f"session {getattr(resources, 'session', '')}"


@sparse_apply_gradient.kernel("CPU")
def _apply_sparse(
    state: AccumulatorState, local_step: Array, indices: Array, values: Array, shape: Array, *, dtype: DType,
    has_known_shape: bool, node: Node, resources: DeviceResources,
) -> tuple[()]:  # fmt: skip
    _check_dtype(state, dtype)
    gradient = (indices, values, shape if has_known_shape else None)
    state.apply(_scalar_step(local_step), gradient, _contributor(node, resources), resources)
    return ()


@all_of(ledger, ledger_v1).kernel("CPU")
def _read_ledger(state: AccumulatorState) -> bytes:
    import json  # Imported here to save some ms in `import tfmini`.

    with state.lock:
        plain = state.ledger.as_plain()
    return json.dumps(plain).encode()


@all_of(num_accumulated, num_accumulated_v1).kernel("CPU")
def _count(state: AccumulatorState) -> Any:
    return np.int32(state.count)


@all_of(set_global_step, set_global_step_v1).kernel("CPU")
def _set_step(state: AccumulatorState, new_global_step: Array) -> tuple[()]:
    state.set_step(int(new_global_step))
    return ()


@all_of(take_gradient, take_gradient_v1, sparse_take_gradient).async_kernel("CPU")
def _take(
    wait: Wait, state: AccumulatorState, num_required: Array, *, dtype: DType, resources: DeviceResources
) -> None:
    _check_dtype(state, dtype)
    state.take_when(wait, int(num_required), resources)


@all_of(renew, renew_v1).kernel("CPU")
def _renew(state: AccumulatorState, step: Array) -> tuple[()]:
    state.renew(int(step))
    return ()


@all_of(step_of, step_of_v1).kernel("CPU")
def _step_of(state: AccumulatorState) -> Any:
    return np.int64(state.step)


# ---- ``tf.ConditionalAccumulator`` and ``tf.SparseConditionalAccumulator`` -----------------------------------------


@export("tf.ConditionalAccumulatorBase")
class ConditionalAccumulatorBase:
    """Collects gradients and returns their mean when there are enough (``tf.ConditionalAccumulatorBase``).

    Args:
      dtype: of the gradients.
      shape: of the gradients, possibly partial.
      accumulator_ref: the handle.
    """

    def __init__(self, dtype: DTypeLike, shape: ShapeLike | TensorLike, accumulator_ref: Tensor) -> None:
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

    def _of_kind(self, of_resource: OpHandle, of_ref: OpHandle) -> Any:
        return of_resource if self._accumulator_ref.dtype.base_dtype is dtypes.resource else of_ref

    def num_accumulated(self, name: str | None = None) -> Tensor:
        """The number of gradients in it, an int32 scalar."""
        handle = self._of_kind(num_accumulated, num_accumulated_v1)
        return handle(self._accumulator_ref, name=name or f"{self._name}_NumAccumulated")  # type: ignore[no-any-return]

    def set_global_step(self, new_global_step: TensorLike, name: str | None = None) -> Operation:
        """Sets the step before which gradients are stale."""
        handle = self._of_kind(set_global_step, set_global_step_v1)
        return handle(self._accumulator_ref, _as_int64(new_global_step), name=name)  # type: ignore[no-any-return]


def _as_int64(value: TensorLike) -> Tensor:
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
        self, dtype: DTypeLike, shape: ShapeLike | TensorLike = None, shared_name: str | None = None,
        name: str = "conditional_accumulator", reduction_type: str = "MEAN",
    ) -> None:  # fmt: skip
        handle = accumulator(
            dtype=dtype, shape=shape, shared_name=shared_name or "", name=name, reduction_type=reduction_type
        )
        super().__init__(dtype, shape, handle)

    def apply_grad(self, grad: TensorLike, local_step: TensorLike = 0, name: str | None = None) -> Operation:
        """Adds a gradient, or drops it if its ``local_step`` is before the global step.

        Raises:
          ValueError: when its static shape does not match the accumulator's.
        """
        tensor = convert_to_tensor(grad, self._dtype)
        tensor.shape.assert_is_compatible_with(self._shape)
        handle = self._of_kind(apply_gradient, apply_gradient_v1)
        return handle(self._accumulator_ref, _as_int64(local_step), tensor, name=name)  # type: ignore[no-any-return]

    def take_grad(self, num_required: TensorLike, name: str | None = None) -> Tensor:
        """Waits for ``num_required`` gradients; returns the mean (or sum) of all gradients so far and removes them."""
        out: Tensor = self._of_kind(take_gradient, take_gradient_v1)(
            self._accumulator_ref, num_required, dtype=self._dtype, name=name
        )
        out.set_shape(self._shape)
        return out


@export("tf.SparseConditionalAccumulator", "tf.sparse.SparseConditionalAccumulator")
class SparseConditionalAccumulator(ConditionalAccumulatorBase):
    """Collects indexed slices (``tf.SparseConditionalAccumulator``); arguments like `ConditionalAccumulator`.

    The mean of a row is over the gradients that have this row.
    """

    def __init__(
        self, dtype: DTypeLike, shape: ShapeLike | TensorLike = None, shared_name: str | None = None,
        name: str = "sparse_conditional_accumulator", reduction_type: str = "MEAN",
    ) -> None:  # fmt: skip
        handle = sparse_accumulator(
            dtype=dtype, shape=shape, shared_name=shared_name or "", name=name, reduction_type=reduction_type
        )
        super().__init__(dtype, shape, handle)

    def apply_indexed_slices_grad(self, grad: Any, local_step: Any = 0, name: str | None = None) -> Operation:
        """`apply_grad` of an ``IndexedSlices``."""
        return self.apply_grad(grad.indices, grad.values, grad.dense_shape, local_step, name)

    def apply_grad(
        self, grad_indices: TensorLike, grad_values: TensorLike, grad_shape: TensorLike | None = None,
        local_step: TensorLike = 0, name: str | None = None,
    ) -> Operation:  # fmt: skip
        """Adds a gradient, or drops it if its ``local_step`` is before the global step.

        Args:
          grad_indices: [N], rows in increasing order.
          grad_values: [N, …].
          grad_shape: of the dense gradient, if known.
        """
        done: Operation = sparse_apply_gradient(
            self._accumulator_ref,
            _as_int64(local_step),
            cast(grad_indices, dtypes.int64),
            grad_values,
            cast([] if grad_shape is None else grad_shape, dtypes.int64),
            has_known_shape=grad_shape is not None,
            name=name,
        )
        return done

    def take_grad(self, num_required: TensorLike, name: str | None = None) -> Any:
        """Waits for ``num_required`` gradients; returns (indices, values, shape) of their mean (or sum)."""
        return sparse_take_gradient(self._accumulator_ref, num_required, dtype=self._dtype, name=name)

    def take_indexed_slices_grad(self, num_required: TensorLike, name: str | None = None) -> IndexedSlices:
        """`take_grad` as an ``IndexedSlices``."""
        found = self.take_grad(num_required, name)
        return IndexedSlices(values=found.values, indices=found.indices, dense_shape=found.shape)
