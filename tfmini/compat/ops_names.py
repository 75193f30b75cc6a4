"""Names of TensorFlow's private modules of ops and of the framework that have no public name."""

from __future__ import annotations

import functools
from abc import ABC
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from tfmini import dtypes
from tfmini.core_types import DimensionLike, DTypeLike, ShapeLike, SizesLike, TensorLike
from tfmini.export import export, export_names
from tfmini.graph import raw_ops
from tfmini.graph.conversion import IndexedSlices, SparseComponents, convert_to_tensor, internal_convert
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.graph import Graph
from tfmini.graph.graph_def import op_def_proto
from tfmini.graph.op_types import OPS, load_ops, op_names
from tfmini.graph.operation import Operation, Tensor
from tfmini.layers.convolutional import convolved_length, image_format, known_padding, normalized_tuple, op_format
from tfmini.ops.array.shape import rank, shape
from tfmini.ops.composites import SparseTensor, SparseTensorValue
from tfmini.ops.flow import tensor_lists as lists
from tfmini.ops.flow.cond import cond
from tfmini.ops.math.search import bucketize_op
from tfmini.ops.nn import sampling
from tfmini.ops.variables import scope as vs
from tfmini.ops.variables.base import Variable
from tfmini.ops.variables.initializers import _float_type, fans
from tfmini.ops.variables.scope import VariableScope
from tfmini.ops.variables.store import VariableStore, default_variable_store
from tfmini.shapes import TensorShape, as_raw, broadcast_raw

_assert_float_dtype = _float_type
export_names("tensorflow.python.ops.init_ops", "_assert_float_dtype _compute_fans")


def _compute_fans(shape: Sequence[Any]) -> tuple[float, float]:
    """The numbers of inputs and outputs of a weight of this shape."""
    return fans([int(size) for size in shape])


export_names("tensorflow.python.framework.tensor_shape", "as_dimension matrix vector")
export_names("tensorflow.python.framework.common_shapes", "broadcast_shape")


def as_dimension(value: object) -> Any:
    """A Dimension."""
    from tfmini.shapes import Dimension

    return value if isinstance(value, Dimension) else Dimension(value)


def vector(length: DimensionLike) -> TensorShape:
    """The shape of a vector."""
    return TensorShape([length])


def matrix(rows: DimensionLike, cols: DimensionLike) -> TensorShape:
    """The shape of a matrix."""
    return TensorShape([rows, cols])


def broadcast_shape(shape_x: ShapeLike, shape_y: ShapeLike) -> TensorShape:
    """The shape of the sum of two tensors; raises ValueError if they do not broadcast."""
    return TensorShape(broadcast_raw(as_raw(shape_x), as_raw(shape_y)))


_VariableStore, _get_default_variable_store = VariableStore, default_variable_store
variable = Variable
export_names(
    "tensorflow.python.ops.variable_scope",
    "_VariableStore _get_default_variable_store _pure_variable_scope variable",
)


def _pure_variable_scope(
    name_or_scope: str | VariableScope | None, *args: object, **kwargs: Any
) -> AbstractContextManager[Any]:
    """A variable scope that opens no name scope."""
    for name, value in zip(("reuse", "initializer", "regularizer", "caching_device", "partitioner"), args):
        kwargs[name] = value
    kwargs.pop("old_name_scope", None)
    return vs.variable_scope(name_or_scope, auxiliary_name_scope=False, **kwargs)


export_names(
    "tensorflow.python.framework.ops",
    "_assert_same_graph _get_graph_from_inputs get_name_scope inside_function internal_convert_to_tensor "
    "prepend_name_scope register_dense_tensor_like_type strip_name_scope",
)


def get_name_scope() -> str:
    """The current name scope, without its final ``/``."""
    return get_default_graph().get_name_scope()


def strip_name_scope(name: str, export_scope: str | None) -> str:
    """A name without the scope that is exported; ``^`` and ``loc:@`` stay."""
    if not export_scope:
        return name
    scope = export_scope.rstrip("/") + "/"
    for mark in ("^", "loc:@", ""):
        if name.startswith(mark + scope):
            return mark + name[len(mark + scope) :]
    return name


def prepend_name_scope(name: str, import_scope: str | None) -> str:
    """A name in the scope of an import; ``^`` and ``loc:@`` stay in front."""
    if not import_scope:
        return name
    mark = next(mark for mark in ("^", "loc:@", "") if name.startswith(mark))
    return f"{mark}{import_scope.rstrip('/')}/{name[len(mark) :]}"


def _get_graph_from_inputs(op_input_list: Sequence[Any], graph: Graph | None = None) -> Any:
    """The graph of the first tensor or op, or the given or the default one; raises ValueError if they differ."""
    for item in op_input_list:
        found = getattr(item, "graph", None)
        if isinstance(item, (Tensor, Operation)) or found is not None:
            if graph is not None and found is not graph:
                raise ValueError(f"{item} is not from the passed-in graph.")
            graph = found
    return graph if graph is not None else get_default_graph()


def _assert_same_graph(original_item: Any, item: Any) -> None:
    """Raises ValueError for items of two graphs."""
    if original_item.graph is not item.graph:
        raise ValueError(f"{item} must be from the same graph as {original_item}.")


def inside_function() -> bool:
    """False: no graph is that of a function."""
    return False


def internal_convert_to_tensor(
    value: object, dtype: DTypeLike | None = None, name: str | None = None, as_ref: bool = False,
    preferred_dtype: DTypeLike | None = None, ctx: object = None, accept_symbolic_tensors: bool = True,
    accept_composite_tensors: bool = True,
) -> Tensor:  # fmt: skip
    """``tf.convert_to_tensor``; with ``as_ref``, a variable gives its reference."""
    if preferred_dtype is not None and dtype is None:
        return convert_to_tensor(value, None, name, preferred_dtype)
    return internal_convert(value, dtype, name, as_ref=as_ref)


def register_dense_tensor_like_type(tensor_type: type) -> None:
    """Changes nothing: what has a conversion function counts as a tensor."""


@export("tensorflow.python.ops.math_ops._bucketize")
def _bucketize(input: TensorLike, boundaries: Sequence[float], name: str | None = None) -> Tensor:
    """For each value the number of boundaries that are not greater, int32."""
    return bucketize_op(convert_to_tensor(input), boundaries=list(boundaries), name=name)


@export("tensorflow.python.ops.array_ops.shape_internal")
def shape_internal(
    input: TensorLike, name: str | None = None, optimize: bool = True, out_type: DTypeLike = dtypes.int32
) -> Tensor:
    """``tf.shape``."""
    return shape(input, name=name, out_type=out_type)


@export("tensorflow.python.ops.array_ops.rank_internal")
def rank_internal(input: TensorLike, name: str | None = None, optimize: bool = True) -> Tensor:
    """``tf.rank``."""
    return rank(input, name=name)


@export("tensorflow.python.framework.sparse_tensor.is_sparse")
def is_sparse(x: object) -> bool:
    """Whether ``x`` is a sparse tensor or the value of one."""
    return isinstance(x, (SparseTensor, SparseTensorValue))


@export("tensorflow.python.framework.op_def_registry.get_registered_ops")
def get_registered_ops() -> dict[str, Any]:
    """All op types: name -> its OpDef message."""
    load_ops()
    return {name: op_def_proto(OPS[name].op_def) for name in op_names()}


DEFAULT_GRAPH_SEED = 87654321
export_names("tensorflow.python.framework.random_seed", "DEFAULT_GRAPH_SEED")

_d = dtypes
float16_ref, float32_ref, float64_ref, bfloat16_ref, complex64_ref, complex128_ref = (
    dtype._as_ref for dtype in (_d.float16, _d.float32, _d.float64, _d.bfloat16, _d.complex64, _d.complex128)
)
int8_ref, int16_ref, int32_ref, int64_ref = (dtype._as_ref for dtype in (_d.int8, _d.int16, _d.int32, _d.int64))
uint8_ref, uint16_ref, uint32_ref, uint64_ref = (dtype._as_ref for dtype in (_d.uint8, _d.uint16, _d.uint32, _d.uint64))
bool_ref, string_ref = _d.bool._as_ref, _d.string._as_ref
export_names(
    "tensorflow.python.framework.dtypes",
    "bfloat16_ref bool_ref complex128_ref complex64_ref double_ref=float64_ref float16_ref float32_ref float64_ref "
    "half_ref=float16_ref int16_ref int32_ref int64_ref int8_ref string_ref uint16_ref uint32_ref uint64_ref uint8_ref",
)

# The second versions share large weights by contiguous rows.
nce_loss_v2, sampled_softmax_loss_v2 = (
    functools.update_wrapper(functools.partial(loss, partition_strategy="div"), loss)
    for loss in (sampling.nce_loss, sampling.sampled_softmax_loss)
)
export_names("tensorflow.python.ops.nn tensorflow.python.ops.nn_impl", "nce_loss_v2 sampled_softmax_loss_v2")

normalize_tuple, normalize_data_format, normalize_padding = normalized_tuple, image_format, known_padding
export_names(
    "tensorflow.python.layers.utils",
    "conv_output_length convert_data_format normalize_data_format normalize_padding normalize_tuple",
)


def conv_output_length(
    input_length: int | None, filter_size: int, padding: str, stride: int, dilation: int = 1
) -> int | None:
    """The output length of a convolution along one axis; None for an unknown length."""
    return convolved_length(input_length, filter_size, stride, dilation, padding)


def convert_data_format(data_format: str, ndim: int) -> str:
    """The ops' name of a layer's data format, for inputs of so many axes."""
    return op_format(data_format, ndim - 2)


# ---- ``tensorflow.python.framework.ops`` -----------------------------------------------------------------------------


class _TensorLike(ABC):  # noqa: B024 - of isinstance alone
    """What ``isinstance`` takes for a tensor there: tensors, sparse tensors and indexed slices."""


_TensorLike.register(Tensor)
_TensorLike.register(SparseComponents)
_TensorLike.register(IndexedSlices)
export_names("tensorflow.python.framework.ops", "_TensorLike _as_graph_element")


def _as_graph_element(obj: Any) -> Any:
    """What an object, such as a variable, stands for in a graph; None for a tensor, or another object."""
    convert = getattr(obj, "_as_graph_element", None)
    return convert() if convert is not None else None


# ---- ``list_ops``: lists of tensors; the module's other functions are the raw ops ----------------------------------

_ElementShape = SizesLike | TensorShape | None


def _as_sizes(shape: Any) -> Any:
    """A shape as the ops take it: -1 for an unknown size, or for all of an unknown shape."""
    if isinstance(shape, TensorShape):
        shape = None if shape.dims is None else shape.as_list()
    if shape is None or isinstance(shape, Tensor):
        return -1 if shape is None else shape
    sizes = [getattr(size, "value", size) if not isinstance(size, Tensor) else size for size in shape]
    sizes = [-1 if size is None else size for size in sizes]
    return sizes or convert_to_tensor([], dtype=dtypes.int32)


@export("tensorflow.python.ops.list_ops.empty_tensor_list")
def empty_tensor_list(
    element_shape: _ElementShape,
    element_dtype: DTypeLike,
    max_num_elements: TensorLike | None = None,
    name: str | None = None,
) -> Tensor:
    """A list without elements, to which at most ``max_num_elements`` may be pushed."""
    limit = -1 if max_num_elements is None else max_num_elements
    return lists.empty_op(_as_sizes(element_shape), limit, element_dtype=element_dtype, name=name)  # type: ignore[no-any-return]


@export("tensorflow.python.ops.list_ops.tensor_list_reserve")
def tensor_list_reserve(
    element_shape: _ElementShape, num_elements: TensorLike, element_dtype: DTypeLike, name: str | None = None
) -> Tensor:
    """A list of elements that are not set, and read as zeros."""
    return lists.reserve_op(_as_sizes(element_shape), num_elements, element_dtype=element_dtype, name=name)  # type: ignore[no-any-return]


@export("tensorflow.python.ops.list_ops.tensor_list_from_tensor")
def tensor_list_from_tensor(tensor: TensorLike, element_shape: _ElementShape, name: str | None = None) -> Tensor:
    """The list of a tensor's rows."""
    return lists.from_tensor_op(tensor, _as_sizes(element_shape), name=name)  # type: ignore[no-any-return]


@export("tensorflow.python.ops.list_ops.tensor_list_get_item")
def tensor_list_get_item(
    input_handle: Tensor, index: TensorLike, element_dtype: DTypeLike, element_shape: _ElementShape = None,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """One element; zeros, in the shape that the list or the call gives, if it was not set."""
    sizes = _as_sizes(element_shape)
    return lists.get_op(input_handle, index, sizes, element_dtype=element_dtype, name=name)  # type: ignore[no-any-return]


@export("tensorflow.python.ops.list_ops.tensor_list_pop_back")
def tensor_list_pop_back(input_handle: Tensor, element_dtype: DTypeLike, name: str | None = None) -> Any:
    """The list without its last element, and that element."""
    return lists.pop_op(input_handle, -1, element_dtype=element_dtype, name=name)


@export("tensorflow.python.ops.list_ops.tensor_list_gather")
def tensor_list_gather(
    input_handle: Tensor, indices: TensorLike, element_dtype: DTypeLike, element_shape: _ElementShape = None,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """Some elements, as one tensor."""
    sizes = _as_sizes(element_shape)
    return lists.gather_op(input_handle, indices, sizes, element_dtype=element_dtype, name=name)  # type: ignore[no-any-return]


@export("tensorflow.python.ops.list_ops.tensor_list_scatter")
def tensor_list_scatter(
    tensor: TensorLike, indices: TensorLike, element_shape: _ElementShape = None, input_handle: Tensor | None = None,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """A list in which the rows of ``tensor`` are at ``indices``, a new one or one like ``input_handle``."""
    if input_handle is not None:
        return lists.scatter_into_op(input_handle, tensor, indices, name=name)  # type: ignore[no-any-return]
    return lists.scatter_op(tensor, indices, _as_sizes(element_shape), -1, name=name)  # type: ignore[no-any-return]


@export("tensorflow.python.ops.list_ops.tensor_list_stack")
def tensor_list_stack(
    input_handle: Tensor, element_dtype: DTypeLike, num_elements: int = -1, element_shape: _ElementShape = None,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """All elements as one tensor; ``num_elements`` says how many there are, -1 that nobody knows."""
    return lists.stack_op(  # type: ignore[no-any-return]
        input_handle, _as_sizes(element_shape), element_dtype=element_dtype, num_elements=num_elements, name=name
    )


@export("tensorflow.python.ops.list_ops.tensor_list_concat")
def tensor_list_concat(
    input_handle: Tensor, element_dtype: DTypeLike, element_shape: _ElementShape = None, name: str | None = None
) -> Tensor:
    """The elements one after the other in one tensor."""
    lengths = convert_to_tensor([], dtype=dtypes.int64)
    joined = lists.concat_op(input_handle, _as_sizes(element_shape), lengths, element_dtype=element_dtype, name=name)
    return joined[0]  # type: ignore[no-any-return]


@export("tensorflow.python.ops.list_ops.tensor_list_split")
def tensor_list_split(
    tensor: TensorLike, element_shape: _ElementShape, lengths: TensorLike, name: str | None = None
) -> Tensor:
    """The list of parts of a tensor, which have these lengths."""
    return lists.split_op(tensor, _as_sizes(element_shape), lengths, name=name)  # type: ignore[no-any-return]


@export("tensorflow.python.ops.list_ops.tensor_list_set_item")
def tensor_list_set_item(
    input_handle: Tensor, index: TensorLike, item: TensorLike, resize_if_index_out_of_bounds: bool = False,
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """The list with another element at ``index``; on request it grows up to there."""
    if resize_if_index_out_of_bounds:
        place, before = convert_to_tensor(index, dtype=dtypes.int32), input_handle
        too_short = raw_ops.GreaterEqual(place, lists.length_op(before))
        input_handle = cond(too_short, lambda: lists.resize_op(before, raw_ops.Add(place, 1)), lambda: before)
    return lists.set_op(input_handle, index, item, name=name)  # type: ignore[no-any-return]
