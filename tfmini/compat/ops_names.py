"""Names of TensorFlow's private modules of ops and of the framework that have no public name."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from tfmini import dtypes
from tfmini.core_types import DimensionLike, TensorLike
from tfmini.export import export, export_names
from tfmini.graph import nest
from tfmini.graph.conversion import convert_to_tensor, internal_convert
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.operation import Operation, Tensor
from tfmini.layers.convolutional import convolved_length, image_format, known_padding, normalized_tuple, op_format
from tfmini.ops.array.shape import rank, shape
from tfmini.ops.composites import SparseTensor, SparseTensorValue
from tfmini.ops.math.search import bucketize_op
from tfmini.ops.nn import sampling
from tfmini.ops.variables import scope as vs
from tfmini.ops.variables.base import Variable
from tfmini.ops.variables.initializers import _float_type, fans
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


def broadcast_shape(shape_x: Any, shape_y: Any) -> TensorShape:
    """The shape of the sum of two tensors; raises ValueError if they do not broadcast."""
    return TensorShape(broadcast_raw(as_raw(shape_x), as_raw(shape_y)))


_VariableStore, _get_default_variable_store = VariableStore, default_variable_store
variable = Variable
export_names(
    "tensorflow.python.ops.variable_scope",
    "_VariableStore _get_default_variable_store _pure_variable_scope variable",
)


def _pure_variable_scope(name_or_scope: Any, *args: object, **kwargs: Any) -> AbstractContextManager[Any]:
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


def _get_graph_from_inputs(op_input_list: Sequence[Any], graph: Any = None) -> Any:
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
    value: Any, dtype: Any = None, name: str | None = None, as_ref: bool = False, preferred_dtype: Any = None,
    ctx: object = None, accept_symbolic_tensors: bool = True, accept_composite_tensors: bool = True,
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
def shape_internal(input: Any, name: str | None = None, optimize: bool = True, out_type: Any = dtypes.int32) -> Tensor:
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


DEFAULT_GRAPH_SEED = 87654321
export_names("tensorflow.python.framework.random_seed", "DEFAULT_GRAPH_SEED")

float32_ref, float64_ref, int32_ref, int64_ref, bool_ref, string_ref = (
    dtype._as_ref for dtype in (dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64, dtypes.bool, dtypes.string)
)
export_names("tensorflow.python.framework.dtypes", "bool_ref float32_ref float64_ref int32_ref int64_ref string_ref")

# The second versions share large weights by contiguous rows.
nce_loss_v2 = functools.partial(sampling.nce_loss, partition_strategy="div")
sampled_softmax_loss_v2 = functools.partial(sampling.sampled_softmax_loss, partition_strategy="div")
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


# ---- nest names ----------------------------------------
# Names of TensorFlow's private module ``nest`` that ``tf.nest`` does not have: functions of shallow structures.

is_sequence = nest.is_nested
is_sequence_or_composite = nest.is_nested_or_composite
_sequence_like = nest._like


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)


@export("tf.contrib.framework.nest.assert_shallow_structure")
def assert_shallow_structure(
    shallow_tree: Any, input_tree: Any, check_types: bool = True, expand_composites: bool = False
) -> None:
    """Checks that ``input_tree`` has the structure of ``shallow_tree``, and perhaps more below its leaves.

    Raises:
      TypeError: a leaf has the place of a structure, or types differ with ``check_types``.
      ValueError: the lengths or the keys of structures differ.
    """
    if not nest.is_nested(shallow_tree):
        return
    if not nest.is_nested(input_tree):
        raise TypeError(
            f"If shallow structure is a sequence, input must also be a sequence. Input has type: {type(input_tree)}."
        )
    both_mappings = _is_mapping(shallow_tree) and _is_mapping(input_tree)
    if check_types and not both_mappings and type(shallow_tree) is not type(input_tree):
        raise TypeError(
            "The two structures don't have the same sequence type. Input structure has type"
            f" {type(input_tree)}, while shallow structure has type {type(shallow_tree)}."
        )
    if len(input_tree) != len(shallow_tree):
        raise ValueError(
            "The two structures don't have the same sequence length. Input structure has length"
            f" {len(input_tree)}, while shallow structure has length {len(shallow_tree)}."
        )
    if both_mappings and set(input_tree) != set(shallow_tree):
        raise ValueError(
            f"The two structures don't have the same keys. Input structure has keys {list(input_tree)}, while"
            f" shallow structure has keys {list(shallow_tree)}."
        )
    for shallow, given in zip(nest._items(shallow_tree), nest._items(input_tree)):
        assert_shallow_structure(shallow, given, check_types)


@export("tf.contrib.framework.nest.flatten_up_to")
def flatten_up_to(
    shallow_tree: Any, input_tree: Any, check_types: bool = True, expand_composites: bool = False
) -> list[Any]:
    """The parts of ``input_tree`` at the leaves of ``shallow_tree``, with the errors of `assert_shallow_structure`."""
    assert_shallow_structure(shallow_tree, input_tree, check_types)
    return list(_up_to(shallow_tree, input_tree))


def _up_to(shallow_tree: Any, input_tree: Any) -> Iterator[Any]:
    if not nest.is_nested(shallow_tree):
        yield input_tree
        return
    for shallow, given in zip(nest._items(shallow_tree), nest._items(input_tree)):
        yield from _up_to(shallow, given)


@export("tf.contrib.framework.nest.map_structure_up_to")
def map_structure_up_to(shallow_tree: Any, func: Callable[..., Any], *inputs: Any, **kwargs: Any) -> Any:
    """Applies ``func`` to the parts of ``inputs`` at the leaves of ``shallow_tree``, which gives the form.

    Raises:
      ValueError: without inputs.
      TypeError, ValueError: as `assert_shallow_structure` does.
    """
    if not inputs:
        raise ValueError("Cannot map over no sequences")
    check_types = kwargs.pop("check_types", True)
    kwargs.pop("expand_composites", None)
    rows = zip(*(flatten_up_to(shallow_tree, tree, check_types) for tree in inputs))
    return nest.pack_sequence_as(shallow_tree, [func(*row, **kwargs) for row in rows])


@export("tf.contrib.framework.nest.flatten_dict_items")
def flatten_dict_items(dictionary: Any) -> dict[Any, Any]:
    """A dictionary whose keys and values may be structures, as one of their leaves.

    Raises:
      TypeError: it is no dictionary.
      ValueError: a key and its value differ in structure, or a key comes twice.
    """
    if not isinstance(dictionary, Mapping):
        raise TypeError("input must be a dictionary")
    found: dict[Any, Any] = {}
    for key, value in dictionary.items():
        if nest.is_nested(key) != nest.is_nested(value):
            raise ValueError(f"Could not flatten dictionary. Key {key!r} and value {value!r} differ in structure.")
        keys, values = (nest.flatten(key), nest.flatten(value)) if nest.is_nested(key) else ([key], [value])
        if len(keys) != len(values):
            raise ValueError(
                f"Could not flatten dictionary. Key had {len(keys)} elements, but value had {len(values)} elements."
                f" Key: {keys}, value: {values}."
            )
        for one, other in zip(keys, values):
            if one in found:
                raise ValueError(f"Could not flatten dictionary: this key is not unique: {one}")
            found[one] = other
    return found


@export("tf.contrib.framework.nest.yield_flattened_paths")
def yield_flattened_paths(structure: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """(path, leaf) of each leaf: the keys, field names and positions that lead to it."""
    if not nest.is_nested(structure):
        yield path, structure
        return
    steps: Any = range(len(structure))
    if isinstance(structure, Mapping):
        steps = sorted(structure)
    elif hasattr(structure, "_fields"):
        steps = structure._fields
    for step, item in zip(steps, nest._items(structure)):
        yield from yield_flattened_paths(item, (*path, step))


@export("tf.contrib.framework.nest.flatten_with_tuple_paths")
def flatten_with_tuple_paths(structure: Any, expand_composites: bool = False) -> list[tuple[tuple[Any, ...], Any]]:
    """(path, leaf) of each leaf; a path is a tuple."""
    return list(yield_flattened_paths(structure))


@export("tf.contrib.framework.nest.flatten_with_joined_string_paths")
def flatten_with_joined_string_paths(
    structure: Any, separator: str = "/", expand_composites: bool = False
) -> list[tuple[str, Any]]:
    """(path, leaf) of each leaf; a path is text."""
    return [(separator.join(map(str, path)), leaf) for path, leaf in yield_flattened_paths(structure)]


@export("tf.contrib.framework.nest.map_structure_with_tuple_paths")
def map_structure_with_tuple_paths(func: Callable[..., Any], *structure: Any, **kwargs: Any) -> Any:
    """Applies ``func(path, leaf, …)`` to corresponding leaves; a path is a tuple."""
    return _with_paths(lambda path: path, func, structure, kwargs)


@export("tf.contrib.framework.nest.map_structure_with_paths")
def map_structure_with_paths(func: Callable[..., Any], *structure: Any, **kwargs: Any) -> Any:
    """Applies ``func(path, leaf, …)`` to corresponding leaves; a path is text, with ``/`` between its steps."""
    return _with_paths(lambda path: "/".join(map(str, path)), func, structure, kwargs)


def _with_paths(form: Callable[[Any], Any], func: Callable[..., Any], structure: Any, kwargs: dict[str, Any]) -> Any:
    check_types = kwargs.pop("check_types", True)
    kwargs.pop("expand_composites", None)
    for other in structure[1:]:
        nest.assert_same_structure(structure[0], other, check_types)
    paths = [form(path) for path, _ in yield_flattened_paths(structure[0])]
    rows = zip(paths, *map(nest.flatten, structure))
    return nest.pack_sequence_as(structure[0], [func(*row, **kwargs) for row in rows])
