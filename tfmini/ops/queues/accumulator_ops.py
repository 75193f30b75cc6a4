"""Accumulator ops: ``ConditionalAccumulator``, its resource twin, ``SparseConditionalAccumulator``."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfmini import errors
from tfmini.dtypes import DType
from tfmini.graph.operation import Operation
from tfmini.graph.registry import op
from tfmini.graph.waiting import Wait
from tfmini.ops.accumulator_state import AccumulatorState, DenseAccumulatorState, SparseAccumulatorState
from tfmini.ops.shared_state import find_or_create
from tfmini.ops.state_ref import cpp_name
from tfmini.shapes import RawShape, format_raw

_ATTRS = """dtype: numbertype
    shape: shape
    container: string = ''
    shared_name: string = ''
    reduction_type: {'MEAN', 'SUM'} = 'MEAN'"""

accumulator = op(f"ResourceConditionalAccumulator() -> handle: resource\n{_ATTRS}", stateful=True)
accumulator_v1 = op(f"ConditionalAccumulator() -> handle: Ref(string)\n{_ATTRS}", stateful=True)
sparse_accumulator = op(f"SparseConditionalAccumulator() -> handle: Ref(string)\n{_ATTRS}", stateful=True)
apply_gradient = op(
    "ResourceAccumulatorApplyGradient(handle: resource, local_step: int64, gradient: dtype); dtype: numbertype",
    stateful=True,
)
apply_gradient_v1 = op(
    "AccumulatorApplyGradient(handle: Ref(string), local_step: int64, gradient: dtype); dtype: numbertype",
    stateful=True,
)
num_accumulated = op(
    "ResourceAccumulatorNumAccumulated(handle: resource) -> num_accumulated: int32", stateful=True
)
num_accumulated_v1 = op("AccumulatorNumAccumulated(handle: Ref(string)) -> num_accumulated: int32", stateful=True)
set_global_step = op("ResourceAccumulatorSetGlobalStep(handle: resource, new_global_step: int64)", stateful=True)
set_global_step_v1 = op("AccumulatorSetGlobalStep(handle: Ref(string), new_global_step: int64)", stateful=True)
take_gradient = op(
    "ResourceAccumulatorTakeGradient(handle: resource, num_required: int32) -> average: dtype; dtype: numbertype",
    stateful=True,
)
take_gradient_v1 = op(
    "AccumulatorTakeGradient(handle: Ref(string), num_required: int32) -> average: dtype; dtype: numbertype",
    stateful=True,
)
sparse_apply_gradient = op(
    """SparseAccumulatorApplyGradient(handle: Ref(string), local_step: int64, gradient_indices: int64, gradient_values: dtype, gradient_shape: int64)
        dtype: numbertype
        has_known_shape: bool""",  # noqa: E501 - a declaration is one line
    stateful=True,
)
sparse_take_gradient = op(
    """SparseAccumulatorTakeGradient(handle: Ref(string), num_required: int32) -> indices: int64, values: dtype, shape: int64
        dtype: numbertype""",  # noqa: E501
    stateful=True,
)
# Not TensorFlow's: they are never in a graph unless somebody asks for the ledger.
ledger = op("_AccumulatorLedger(handle: resource) -> ledger: string", stateful=True)
ledger_v1 = op("_AccumulatorLedgerV1(handle: Ref(string)) -> ledger: string", stateful=True)

for _handle in (accumulator, accumulator_v1, sparse_accumulator, apply_gradient, apply_gradient_v1, num_accumulated,
                ledger, ledger_v1, num_accumulated_v1, set_global_step, set_global_step_v1, take_gradient,
                take_gradient_v1, sparse_apply_gradient, sparse_take_gradient):  # fmt: skip
    _handle.not_differentiable()


# ---- shapes ---------------------------------------------------------------------------------


@accumulator.shape
@accumulator_v1.shape
@sparse_accumulator.shape
def _handle_shape(node: Operation) -> list[RawShape]:
    return [(2,)]


@num_accumulated.shape
@num_accumulated_v1.shape
@ledger.shape
@ledger_v1.shape
def _scalar(node: Operation) -> list[RawShape]:
    return [()]


@take_gradient.shape
@take_gradient_v1.shape
@sparse_take_gradient.shape
def _unknown(node: Operation) -> list[RawShape]:
    return [None] * len(node.op_def.outputs)


@apply_gradient.shape
@apply_gradient_v1.shape
@sparse_apply_gradient.shape
@set_global_step.shape
@set_global_step_v1.shape
def _nothing(node: Operation) -> list[RawShape]:
    return []


# ---- kernels --------------------------------------------------------------------------------


@accumulator.state_kernel("CPU")
@accumulator_v1.state_kernel("CPU")
def _dense_state(
    resources: Any, *, container: bytes, shared_name: bytes, node: Any, dtype: DType, shape: RawShape,
    reduction_type: bytes,
) -> DenseAccumulatorState:  # fmt: skip
    def create(name: str) -> DenseAccumulatorState:
        return DenseAccumulatorState(name, dtype, shape, reduction_type.decode())

    return find_or_create(resources, container, shared_name, node, "accumulator", create)


@sparse_accumulator.state_kernel("CPU")
def _sparse_state(
    resources: Any, *, container: bytes, shared_name: bytes, node: Any, dtype: DType, shape: RawShape,
    reduction_type: bytes,
) -> SparseAccumulatorState:  # fmt: skip
    def create(name: str) -> SparseAccumulatorState:
        return SparseAccumulatorState(name, dtype, shape, reduction_type.decode())

    return find_or_create(resources, container, shared_name, node, "sparse accumulator", create)


def _check_dtype(state: AccumulatorState, dtype: DType) -> None:
    if state.dtype is not dtype:
        raise errors.InvalidArgumentError(
            None,
            None,
            f"Signature mismatch, have gradients of type {cpp_name(dtype)}, expected {cpp_name(state.dtype)}"
            f" (accumulator '{state.name}')",
        )


def _scalar_step(local_step: Any) -> int:
    if np.ndim(local_step):
        text = f"Argument local_step must be scalar, but had bad shape {format_raw(np.shape(local_step))}"
        raise errors.InvalidArgumentError(None, None, text)
    return int(local_step)


@apply_gradient.kernel("CPU")
@apply_gradient_v1.kernel("CPU")
def _apply(
    state: AccumulatorState, local_step: Any, gradient: Any, *, dtype: DType, node: Any, resources: Any
) -> tuple[()]:
    _check_dtype(state, dtype)
    state.apply(_scalar_step(local_step), gradient, _contributor(node, resources))
    return ()


def _contributor(node: Any, resources: Any) -> str:
    """Who brings a gradient: the ``_contributor`` of its node, or its session where that is empty."""
    named = node.attrs.get("_contributor")
    if named is None:
        return ""
    return named.decode() or f"session {getattr(resources, 'session', '')}"


@sparse_apply_gradient.kernel("CPU")
def _apply_sparse(
    state: AccumulatorState, local_step: Any, indices: Any, values: Any, shape: Any, *, dtype: DType,
    has_known_shape: bool, node: Any, resources: Any,
) -> tuple[()]:  # fmt: skip
    _check_dtype(state, dtype)
    gradient = (indices, values, shape if has_known_shape else None)
    state.apply(_scalar_step(local_step), gradient, _contributor(node, resources))
    return ()


@ledger.kernel("CPU")
@ledger_v1.kernel("CPU")
def _read_ledger(state: AccumulatorState) -> bytes:
    import json  # some ms that `import tfmini` saves

    with state.lock:
        plain = state.ledger.as_plain()
    return json.dumps(plain).encode()


@num_accumulated.kernel("CPU")
@num_accumulated_v1.kernel("CPU")
def _count(state: AccumulatorState) -> Any:
    return np.int32(state.count)


@set_global_step.kernel("CPU")
@set_global_step_v1.kernel("CPU")
def _set_step(state: AccumulatorState, new_global_step: Any) -> tuple[()]:
    state.set_step(int(new_global_step))
    return ()


@take_gradient.async_kernel("CPU")
@take_gradient_v1.async_kernel("CPU")
@sparse_take_gradient.async_kernel("CPU")
def _take(wait: Wait, state: AccumulatorState, num_required: Any, *, dtype: DType) -> None:
    _check_dtype(state, dtype)
    state.take_when(wait, int(num_required))
