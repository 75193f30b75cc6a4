"""The ops on growing tables: ``KvVarHandleOp``, ``KvResourceGather``, ``KvResourceSparseApply``, …

Not in TensorFlow. The names are those of DeepRec where an op of that name does the same; inputs and attrs are our own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tfmini.core_types import Array
from tfmini.dtypes import DType
from tfmini.graph.families import IndexedSlices, Operation, OpHandle, Tensor, op
from tfmini.graph.node import Node
from tfmini.graph.op_types import DeviceResources
from tfmini.numerics.update_rules import Rule
from tfmini.ops import training
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.growing.state import GrowingTableState, Settings
from tfmini.ops.waiting_line import state_op
from tfmini.shapes import RawShape, merge_raw, with_rank

_SETTINGS = """seed: int = 0
    distribution: {'', 'uniform', 'normal', 'truncated_normal'} = ''
    low: float = 0.0
    high: float = 1.0
    filter_freq: int >= 0 = 0
    filter_size: int >= 0 = 0
    false_positives: float = 0.01
    admit_probability: float = 1.0
    steps_to_live: int >= 0 = 0
    l2_weight_threshold: float = 0.0
    capacity: int >= 0 = 0"""

handle = op(
    f"""KvVarHandleOp() -> resource: resource
    container: string = ''
    shared_name: string = ''
    dtype: {{float, double}}
    shape: shape
    {_SETTINGS}""",
    stateful=True, shape=[()], on_ps=True, differentiable=False,
)  # fmt: skip
initialize: OpHandle[Operation] = state_op(
    "InitializeKvVariableOp(resource: resource, default_values: dtype, unadmitted: dtype); dtype: {float, double};"
    " only_once: bool = false",
    [],
)
is_initialized = state_op("KvVarIsInitializedOp(resource: resource) -> is_initialized: bool", [()])
gather = op(
    """KvResourceGather(resource: resource, indices: int64) -> output: dtype
    insert: bool = true
    dtype: {float, double}""",
    stateful=True, looks_up=True,
)  # fmt: skip
apply: OpHandle[Operation] = op(
    """KvResourceSparseApply(resource: resource, grad: T, indices: int64, global_step: int64, hyper: N * T)
    update: string
    flag: bool = false
    slots: list(string) >= 0
    fills: list(float) >= 0
    N: int >= 0
    T: {float, double}""",
    stateful=True, writes="optimize", differentiable=False,
)  # fmt: skip
evict = state_op("KvResourceEvict(resource: resource, global_step: int64) -> evicted: int64", [()])
size = state_op("KvResourceSize(resource: resource) -> size: int64", [()])
export = state_op(
    """KvResourceExport(resource: resource) -> keys: int64, values: dtype, freqs: int64, versions: int64
    dtype: {float, double}""",
    lambda node: [(None,), (None, *(_row_shape(node) or (None,))), (None,), (None,)],
)


# ---- shapes ---------------------------------------------------------------------------------


def _row_shape(node: Operation) -> RawShape:
    """The shape of a row of the table that the first input names."""
    data = node.inputs[0].handle_data
    return None if data is None or data[1] is None else data[1][1:]


@gather.shape
def _gather_shape(node: Operation) -> list[RawShape]:
    ids, row = node.inputs[1].raw_shape, _row_shape(node)
    return [None if ids is None or row is None else ids + row]


@apply.shape
def _apply_shape(node: Operation) -> list[RawShape]:
    count, row = with_rank(node.inputs[2].raw_shape, 1)[0], _row_shape(node)
    if row is not None:
        merge_raw(node.inputs[1].raw_shape, (count, *row))
    for tensor in node.inputs[3:]:
        with_rank(tensor.raw_shape, 0)
    return []


@gather.gradient
def _gather_gradient(node: Operation, grad: Tensor) -> list[Any]:
    table, ids = node.inputs
    row = _row_shape(node)
    width = -1 if row is None else row[0]
    return [IndexedSlices(array_shape.reshape(grad, [-1, width]), array_shape.reshape(ids, [-1])), None]


# ---- kernels --------------------------------------------------------------------------------


@handle.state_kernel("CPU")
def _find(
    resources: DeviceResources, *, container: bytes, shared_name: bytes, node: Node, dtype: DType, shape: RawShape
) -> GrowingTableState:
    if shape is None or len(shape) != 1 or not shape[0]:
        refuse(f"the rows of a table are vectors, but the shape of {node.name} is {shape}")
    attrs = {name: node.attrs[name] for name in Settings._fields}
    settings = Settings(**{**attrs, "distribution": attrs["distribution"].decode()})
    name, width = shared_name.decode() or node.name, shape[0]

    def make() -> GrowingTableState:
        return GrowingTableState(name, container.decode(), dtype, width, settings)

    found = resources.lookup_or_create(container, "growing table", name, make)
    _check_same(found, (dtype.name, width, settings))
    return found


def _check_same(found: GrowingTableState, wanted: tuple[Any, ...]) -> None:
    has = found.dtype.name, found.width, found.settings
    if has != wanted:
        refuse(
            f"the table {found.name} is on its task already, with other settings: {has} instead of {wanted}. Use the"
            " same settings in all programs, or another name."
        )


@initialize.kernel("CPU")
def _initialize(
    state: GrowingTableState, default_values: Array, unadmitted: Array, *, dtype: DType, only_once: bool
) -> tuple[()]:
    state.check_dtype(dtype)
    state.initialize(default_values, unadmitted, only_once)
    return ()


is_initialized.kernel("CPU")(lambda state: np.bool_(state.is_initialized))
evict.kernel("CPU")(lambda state, global_step: np.int64(state.evict(int(global_step))))
size.kernel("CPU")(lambda state: np.int64(len(state)))


@gather.kernel("CPU")
def _gather(state: GrowingTableState, indices: Array, *, insert: bool, dtype: DType) -> Any:
    state.check_dtype(dtype)
    return state.lookup(indices, insert)


@export.kernel("CPU")
def _export(state: GrowingTableState, *, dtype: DType) -> tuple[Any, ...]:
    state.check_dtype(dtype)
    content = state.content()
    return content.keys, content.values, content.freqs, content.versions


def updates() -> dict[str, tuple[Rule, str, tuple[str, ...], int]]:
    """Update -> its rule, the attr that the rule takes, the op's inputs, and how many of them are state."""
    return {
        form.type.removeprefix("ResourceApply"): (rule, attr, form.inputs, form.states)
        for form, rule, attr in training.forms()
        if form.type.startswith("ResourceApply") and "global_step" not in form.inputs
    }


@apply.kernel_factory("CPU")
def _apply(node: Node) -> Callable[..., Any]:
    attrs = node.attrs
    known = updates()
    name = attrs["update"].decode()
    if name not in known:
        refuse(f"growing tables have no update {name!r}; they have {', '.join(sorted(known))}")
    rule, attr, inputs, states = known[name]
    slots = dict(zip(_texts(attrs["slots"]), attrs["fills"]))
    if len(slots) != states - 1 or attrs["N"] != len(inputs) - states - 1:
        refuse(f"the update {name} needs {states - 1} slots, and numbers for {' '.join(inputs[states:])}")
    if attr:
        rule = functools.partial(rule, **{attr: attrs["flag"]})

    def update(state: GrowingTableState, grad: Array, ids: Array, step: Array, hyper: list[Any]) -> tuple[()]:
        state.check_dtype(attrs["T"])
        state.update(rule, slots, ids, grad, hyper, int(step))
        return ()

    return update


def _texts(texts: Iterable[bytes]) -> list[str]:
    return [text.decode() for text in texts]
