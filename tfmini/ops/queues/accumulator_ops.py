"""Accumulator ops: ``ConditionalAccumulator`` (by reference and by handle), ``SparseConditionalAccumulator``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

import numpy as np

from tfmini.dtypes import DType, cpp_name
from tfmini.graph.families import OpHandle, ShapeRule, all_of, unknown_shapes
from tfmini.graph.traits import Traits
from tfmini.graph.waiting import Wait
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.queues.accumulator_state import AccumulatorState, DenseAccumulatorState, SparseAccumulatorState
from tfmini.ops.shared_state import find_or_create, state_op
from tfmini.shapes import RawShape, format_raw

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


accumulator = state_op(f"ResourceConditionalAccumulator() -> handle: resource\n{_ATTRS}", [(2,)], on_ps=True)
accumulator_v1 = state_op(f"ConditionalAccumulator() -> handle: Ref(string)\n{_ATTRS}", [(2,)])
sparse_accumulator = state_op(f"SparseConditionalAccumulator() -> handle: Ref(string)\n{_ATTRS}", [(2,)])
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
        resources: Any, *, container: bytes, shared_name: bytes, node: Any, dtype: DType, shape: RawShape,
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


def _scalar_step(local_step: Any) -> int:
    if np.ndim(local_step):
        refuse(f"Argument local_step must be scalar, but had bad shape {format_raw(np.shape(local_step))}")
    return int(local_step)


@all_of(apply_gradient, apply_gradient_v1).kernel("CPU")
def _apply(
    state: AccumulatorState, local_step: Any, gradient: Any, *, dtype: DType, node: Any, resources: Any
) -> tuple[()]:
    _check_dtype(state, dtype)
    state.apply(_scalar_step(local_step), gradient, _contributor(node, resources), resources)
    return ()


def _contributor(node: Any, resources: Any) -> str:
    """The contributor of a gradient: the attr ``_contributor`` of its node, or the session if that is empty."""
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
def _set_step(state: AccumulatorState, new_global_step: Any) -> tuple[()]:
    state.set_step(int(new_global_step))
    return ()


@all_of(take_gradient, take_gradient_v1, sparse_take_gradient).async_kernel("CPU")
def _take(wait: Wait, state: AccumulatorState, num_required: Any, *, dtype: DType, resources: Any) -> None:
    _check_dtype(state, dtype)
    state.take_when(wait, int(num_required), resources)


@all_of(renew, renew_v1).kernel("CPU")
def _renew(state: AccumulatorState, step: Any) -> tuple[()]:
    state.renew(int(step))
    return ()


@all_of(step_of, step_of_v1).kernel("CPU")
def _step_of(state: AccumulatorState) -> Any:
    return np.int64(state.step)
