"""Checks of shapes, wrapped functions, matrices of checkpoints with other vocabularies (``tf.contrib.framework``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import GraphTensor, TensorLike
from tfmini.export import export
from tfmini.graph import names as scoped_names
from tfmini.graph import nest, raw_ops
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.graph import Graph
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import control_dependencies, name_scope
from tfmini.layers import losses
from tfmini.ops.array.filling import range as range_of
from tfmini.ops.array.filling import zeros
from tfmini.ops.array.identity import identity
from tfmini.ops.array.joining import concat, stack
from tfmini.ops.array.shape import rank, reshape, shape, size
from tfmini.ops.composites import SparseTensor
from tfmini.ops.debugging import Assert
from tfmini.ops.flow.cond import smart_cond
from tfmini.ops.flow.functional import _case_helper
from tfmini.ops.math.sums import add_n, reduce_sum
from tfmini.ops.py_func import py_func as array_function
from tfmini.ops.variables.assignment import assign, is_variable_initialized
from tfmini.ops.variables.initializers import TruncatedNormal, Zeros
from tfmini.ops.vocabulary_tables import generate_vocab_remapping, load_and_remap_matrix

# ---- checks --------------------------------------------------------------------------------------------------------


@export("tf.contrib.framework.assert_scalar_int")
def assert_scalar_int(tensor: TensorLike, name: str | None = None) -> Tensor:
    """``tensor``, if it is an int32 or int64 scalar (``tf.contrib.framework.assert_scalar_int``).

    Args:
      tensor: a tensor or number.
      name: of the tensor that is made of a number.

    Raises:
      ValueError: for another type or static shape.
    """
    with name_scope(name, "assert_scalar_int", [tensor]):
        made = convert_to_tensor(tensor)
        if made.dtype.base_dtype not in (dtypes.int32, dtypes.int64):
            raise ValueError(f"Expected integer type for {made.name}, received type: {made.dtype}.")
        if made.shape.ndims != 0:
            raise ValueError(f"Expected scalar shape for {made.name}, saw shape: {made.shape}.")
        return made


@export("tf.contrib.framework.with_shape")
def with_shape(expected_shape: TensorLike, tensor: TensorLike) -> Tensor:
    """``tensor``, checked to be of a shape (``tf.contrib.framework.with_shape``).

    Args:
      expected_shape: integers, or an int32 tensor, in which -1 stands for any size.
      tensor: the tensor, which is checked in each step if its static shape is not known.

    Raises:
      ValueError: for a `SparseTensor`, a shape of another type, and a static shape that is another one.
    """
    if isinstance(tensor, SparseTensor):
        raise ValueError("SparseTensor not supported.")
    checked = convert_to_tensor(tensor)
    if isinstance(expected_shape, Tensor):
        if expected_shape.dtype.base_dtype != dtypes.int32:
            raise ValueError(
                f"Invalid dtype {expected_shape.dtype} for shape {expected_shape} expected of tensor {checked.name}."
            )
        return _checked_in_steps(expected_shape, checked)
    sizes = _sizes(expected_shape, checked)
    if checked.shape.is_fully_defined():
        if list(sizes) != checked.shape.as_list():
            raise ValueError(f"Invalid shape for tensor {checked.name}, expected {sizes}, got {checked.get_shape()}.")
        return checked
    if not sizes.size:
        with name_scope(f"{checked.op.name}/"):
            return reshape(checked, [])
    made = _checked_in_steps(sizes, checked)
    made.set_shape([int(one) for one in sizes])
    return made


def _sizes(expected_shape: TensorLike, checked: Tensor) -> Any:
    sizes = np.asarray(expected_shape)
    if not sizes.size or (not isinstance(expected_shape, np.ndarray) and sizes.dtype.kind == "i"):
        sizes = sizes.astype(np.int32)
    if sizes.dtype != np.int32:
        raise ValueError(f"Invalid dtype {sizes.dtype} for shape {sizes} expected of tensor {checked.name}.")
    return sizes


def _checked_in_steps(expected: Any, checked: Tensor) -> Tensor:
    with name_scope(f"{checked.op.name}/"):
        with name_scope("assert_shape"):
            actual = shape(checked, name="actual")
            wanted = convert_to_tensor(expected)
            matches = raw_ops.LogicalOr(raw_ops.Equal(wanted, -1), raw_ops.Equal(wanted, actual))
            good = raw_ops.LogicalAnd(raw_ops.Equal(size(wanted), rank(checked)), raw_ops.All(matches, [0]))
            text = f"Wrong shape for {checked.name} [expected] [actual]."
            assertion = Assert(good, [text, wanted, actual], name="Assert")
        with control_dependencies([assertion]):
            return identity(checked)


@export("tf.contrib.framework.with_same_shape")
def with_same_shape(expected_tensor: Tensor, tensor: Tensor) -> Tensor:
    """``tensor``, checked to be of the shape of another one (``tf.contrib.framework.with_same_shape``).

    Args:
      expected_tensor: the other one.
      tensor: the tensor; see `with_shape`.

    Raises:
      ValueError: when the static shapes differ, or both are of other graphs.
    """
    if expected_tensor.graph is not tensor.graph:
        raise ValueError(f"{tensor} must be from the same graph as {expected_tensor}.")
    known = expected_tensor.get_shape()
    wanted: Any = known.as_list() if known.is_fully_defined() else shape(expected_tensor, name="expected_shape")
    return with_shape(wanted, tensor)


@export("tf.contrib.framework.remove_squeezable_dimensions")
def remove_squeezable_dimensions(
    predictions: TensorLike, labels: TensorLike, name: str | None = None
) -> tuple[Tensor, Tensor]:
    """Removes a last axis of length 1 from the tensor that has one axis more than the other one.

    ``tf.contrib.framework.remove_squeezable_dimensions``. Ranks that are not known are compared in each step.

    Args:
      predictions, labels: the tensors.
      name: of the name scope.
    """
    labels, predictions = losses.remove_squeezable_dimensions(labels, predictions, name=name)
    return predictions, labels


@export("tf.contrib.framework.reduce_sum_n")
def reduce_sum_n(tensors: Sequence[Tensor], name: str | None = None) -> Tensor:
    """The sum of all elements of tensors, a scalar (``tf.contrib.framework.reduce_sum_n``).

    Raises:
      ValueError: when there are no tensors.
    """
    if not tensors:
        raise ValueError("No tensors provided.")
    with name_scope(name, "reduce_sum_n", tensors) as scope:
        sums = [reduce_sum(t, name=f"{t.op.name}/sum") for t in tensors]
        return sums[0] if len(sums) == 1 else add_n(sums, name=scope)


# ---- graphs and names ----------------------------------------------------------------------------------------------


@export("tf.contrib.framework.get_graph_from_inputs")
def get_graph_from_inputs(op_input_list: Iterable[Any], graph: Graph | None = None) -> Graph:
    """The graph of tensors and ops, else the default one (``tf.contrib.framework.get_graph_from_inputs``).

    Args:
      op_input_list: tensors, ops, and what has no graph.
      graph: the graph that they must have, or None.

    Raises:
      TypeError: when ``graph`` is none.
      ValueError: when they are of another graph, or of several.
    """
    if graph is not None and not isinstance(graph, Graph):
        raise TypeError(f"Input graph needs to be a Graph: {graph}")
    given, first = graph, None
    for item in op_input_list:
        of = getattr(item, "graph", None)
        if not isinstance(of, Graph):
            continue
        if given is not None and of is not given:
            raise ValueError(f"{item} is not from the passed-in graph.")
        if first is not None and of is not first.graph:
            raise ValueError(f"{item} must be from the same graph as {first}.")
        first = item if first is None else first
    return given or (get_default_graph() if first is None else first.graph)


@export("tf.contrib.framework.get_placeholders")
def get_placeholders(graph: Graph) -> list[Tensor]:
    """The placeholders of a graph that have no default (``tf.contrib.framework.get_placeholders``).

    Raises:
      TypeError: when it is no graph.
    """
    if not isinstance(graph, Graph):
        raise TypeError(f"Input graph needs to be a Graph: {graph}")
    return [op.outputs[0] for op in graph.get_operations() if op.type == "Placeholder"]


@export("tf.contrib.framework.strip_name_scope")
def strip_name_scope(name: str, export_scope: str | None) -> str:
    """A name without a name scope before it; ``^`` and ``loc:@`` stay (``tf.contrib.framework.strip_name_scope``)."""
    return scoped_names.strip_name_scope(name, export_scope) if export_scope else name


@export("tf.contrib.framework.prepend_name_scope")
def prepend_name_scope(name: str, import_scope: str | None) -> str:
    """A name in a name scope; ``^`` and ``loc:@`` stay in front (``tf.contrib.framework.prepend_name_scope``)."""
    return scoped_names.prepend_name_scope(name, import_scope) if import_scope else name


# ---- functions -----------------------------------------------------------------------------------------------------


@export("tf.contrib.framework.smart_case")
def smart_case(
    pred_fn_pairs: Sequence[Any] | Mapping[Any, Callable[..., Any]], default: Callable[[], Any] | None = None,
    exclusive: bool = False, name: str = "smart_case",
) -> Any:  # fmt: skip
    """`tf.case`, without ops for predicates that are known (``tf.contrib.framework.smart_case``).

    Args:
      pred_fn_pairs: a list of (bool or scalar bool tensor, function), or a dict.
      default: a function; without it, one predicate must be true in every step.
      exclusive: whether at most one predicate may be true; adds a check to the graph.
      name: of the name scope.

    Raises:
      TypeError: as `tf.case`.
    """
    return _case_helper(smart_cond, pred_fn_pairs, default, exclusive, name, allow_python_preds=True)


@export("tf.contrib.framework.py_func")
def py_func(
    func: Callable[..., Any], args: Any = (), kwargs: Mapping[str, Any] | None = None, output_types: Any = None,
    output_shapes: Any = None, stateful: bool = True, name: str | None = None,
) -> Any:  # fmt: skip
    """`tf.py_func` with nests of tensors and keywords (``tf.contrib.framework.py_func``).

    Args:
      func: takes arrays in the structure of ``args`` and ``kwargs``, returns some in that of ``output_types``.
      args: a list or tuple of tensors, or of nests of them.
      kwargs: more of them, by keywords.
      output_types: a dtype, or a nest of dtypes.
      output_shapes: the static shapes in the same structure, or None.
      stateful: whether two calls with the same inputs may differ.
      name: of the op.

    Returns:
      Tensors in the structure of ``output_types``.

    Raises:
      TypeError: when ``args`` is no list, ``kwargs`` no dict, or ``output_types`` is missing.
    """
    if not isinstance(args, (list, tuple)):
        raise TypeError(f"args must be list and not {type(args)}. args: {args}")
    if not isinstance(kwargs or {}, dict):
        raise TypeError(f"kwargs must be dict and not {type(kwargs)}. args: {kwargs}")
    if output_types is None:
        raise TypeError("Expected DataType for argument 'Tout' not None.")
    given = {"args": list(args), "kwargs": dict(kwargs or {})}
    several = nest.is_nested(output_types)

    def call(*arrays: Any) -> Any:
        packed = nest.pack_sequence_as(given, arrays)
        result = func(*packed["args"], **packed["kwargs"])
        if not several:
            return result
        nest.assert_same_structure(output_types, result, check_types=False)
        return nest.flatten(result)

    kinds = nest.flatten(output_types) if several else output_types
    made = array_function(call, nest.flatten(given), kinds, stateful, name)
    if not several:
        if output_shapes is not None:
            made.set_shape(output_shapes)
        return made
    if output_shapes is not None:
        nest.assert_same_structure(output_types, output_shapes, check_types=False)
        for one, static in zip(made, nest.flatten(output_shapes)):
            one.set_shape(static)
    return nest.pack_sequence_as(output_types, made)


@export("tf.contrib.framework.zero_initializer")
def zero_initializer(ref: GraphTensor, use_locking: bool = True, name: str = "zero_initializer") -> Any:
    """Makes a variable without a value all zeros (``tf.contrib.framework.zero_initializer``).

    Args:
      ref: the variable, of known shape.
      use_locking: whether a lock protects the assignment.
      name: of the op.

    Returns:
      The variable after it; the op fails with `InvalidArgumentError` when the variable has a value.
    """
    with control_dependencies(
        [Assert(raw_ops.LogicalNot(is_variable_initialized(ref)), ["input is already initialized"])]
    ):
        return assign(ref, zeros(ref.shape, ref.dtype.base_dtype), use_locking=use_locking, name=name)


# ---- matrices of checkpoints, for vocabularies that have changed -----------------------------------------------------

InitializerFunction = Callable[..., Any]


@export("tf.contrib.framework.load_and_remap_matrix_initializer")
def load_and_remap_matrix_initializer(
    ckpt_path: str, old_tensor_name: str, new_row_vocab_size: int, new_col_vocab_size: int,
    old_row_vocab_size: int = -1, old_row_vocab_file: str | None = None, new_row_vocab_file: str | None = None,
    old_col_vocab_file: str | None = None, new_col_vocab_file: str | None = None, num_row_oov_buckets: int = 0,
    num_col_oov_buckets: int = 0, initializer: InitializerFunction | None = None, max_rows_in_memory: int = -1,
) -> InitializerFunction:  # fmt: skip
    """An initializer that takes the rows and columns of a checkpoint's matrix by their words.

    ``tf.contrib.framework.load_and_remap_matrix_initializer``. A vocabulary is a file with one word a line.

    Args:
      ckpt_path: the checkpoint.
      old_tensor_name: the name of its float32 matrix.
      new_row_vocab_size, new_col_vocab_size: how many words the new vocabularies have; without files, how many rows
        and columns are taken.
      old_row_vocab_size: how many words of the old one count; -1: all.
      old_row_vocab_file, new_row_vocab_file: the vocabularies of the rows, both or neither.
      old_col_vocab_file, new_col_vocab_file: those of the columns.
      num_row_oov_buckets, num_col_oov_buckets: how many rows and columns follow, for unknown words.
      initializer: makes the values of new words and of those; default: zeros.
      max_rows_in_memory: how many rows of the matrix are read at once; -1: all.

    Returns:
      A function of (shape, dtype=tf.float32, partition_info=None), also for parts of a variable that is divided by
      rows.

    Raises:
      TypeError: when ``initializer`` is not callable. The function raises it for another dtype.

    The function raises ValueError for another shape, without a vocabulary, and for one file of two.
    """
    make = Zeros() if initializer is None else initializer
    if not callable(make):
        raise TypeError(f"initializer must be callable, instead of being {make} of type {type(make)}.")
    return _RemappedMatrix(
        ckpt_path, old_tensor_name, new_row_vocab_size, new_col_vocab_size, old_row_vocab_size,
        (old_row_vocab_file, new_row_vocab_file), (old_col_vocab_file, new_col_vocab_file), num_row_oov_buckets,
        num_col_oov_buckets, make, max_rows_in_memory,
    ).part  # fmt: skip


@dataclass(frozen=True)
class _RemappedMatrix:
    """The arguments of `load_and_remap_matrix_initializer`; a pair of files is (old, new)."""

    path: str
    name: str
    rows: int
    columns: int
    old_rows: int
    row_files: tuple[Any, Any]
    column_files: tuple[Any, Any]
    more_rows: int
    more_columns: int
    make: InitializerFunction
    rows_at_once: int

    def part(self, shape: Any, dtype: Any = dtypes.float32, partition_info: Any = None) -> Tensor:
        """Loads the part of the matrix."""
        sizes, first = _checked_part(shape, dtype, partition_info)
        self._check(sizes, first)
        unknown = min(max(first + sizes[0] - self.rows, 0), self.more_rows)
        pieces = [self._loaded(first, sizes[0] - unknown)] if sizes[0] > unknown else []
        if unknown:
            pieces.append(convert_to_tensor(self.make([unknown, self.columns])))
        made = concat(pieces, 0) if len(pieces) > 1 else pieces[0]
        if self.more_columns:
            made = concat([made, convert_to_tensor(self.make([sizes[0], self.more_columns]))], 1)
        return made

    def _check(self, sizes: list[int], first: int) -> None:
        width, whole = self.columns + self.more_columns, self.rows + self.more_rows
        if sizes[1] != width:
            raise ValueError(
                f"Expected 2nd dim of shape to be new_col_vocab_size ({self.columns}) + num_col_oov_buckets"
                f" ({self.more_columns}) = {width}, but received shape: {sizes}."
            )
        if first + sizes[0] > whole:
            raise ValueError(
                f"Trying to initialize {sizes[0]} additional rows after {first} rows have already been initialized, "
                f"which would exceed expected total row count of new_row_vocab_size ({self.rows}) + "
                f"num_row_oov_buckets ({self.more_rows}) = {whole}."
            )
        if any((old is None) != (new is None) for old, new in (self.row_files, self.column_files)):
            raise ValueError("The old and the new vocabulary file must both be specified or left unspecified.")
        if self.row_files[1] is None and self.column_files[1] is None:
            raise ValueError(
                "Must provide either row or column vocab files. If no remapping is necessary, consider using "
                "`tf.contrib.framework.init_from_checkpoint` instead."
            )

    def _loaded(self, first: int, rows: int) -> Tensor:
        """The rows of known words."""
        row_ids, row_count = _places(self.row_files, first, rows, self.old_rows)
        column_ids, column_count = _places(self.column_files, 0, self.columns, -1)
        missing = stack([rows * self.columns - row_count * column_count, 1])
        return load_and_remap_matrix(
            self.path, self.name, row_ids, [] if self.column_files[1] is None else column_ids,
            reshape(convert_to_tensor(self.make(missing)), [-1]), num_rows=rows, num_cols=self.columns,
            max_rows_in_memory=self.rows_at_once,
        )  # fmt: skip


def _checked_part(shape: Any, dtype: Any, partition_info: Any) -> tuple[list[int], int]:
    """The sizes of a part of a variable, and its first row."""
    if dtypes.as_dtype(dtype).base_dtype != dtypes.float32:
        raise TypeError(f"Currently, only float32 is supported. Received dtype: {dtype}")
    sizes = [int(one) for one in shape]
    if len(sizes) != 2:
        raise ValueError(f"Expected 2-dim shape, but received: {shape}")
    if sizes[0] <= 0:
        raise ValueError(f"Expected 1st dim of shape to be > 0, but received shape: {shape}")
    return sizes, 0 if partition_info is None else partition_info.var_offset[0]


def _places(files: tuple[Any, Any], first: int, count: int, old_size: int) -> tuple[Any, Any]:
    """The old places of rows or columns, -1 for new words, and how many there are."""
    old, new = files
    if new is None:
        return range_of(first, first + count, dtype=dtypes.int64), count
    return generate_vocab_remapping(new, old, new_vocab_offset=first, num_new_vocab=count, old_vocab_size=old_size)  # type: ignore[no-any-return]


@export("tf.contrib.framework.load_embedding_initializer")
def load_embedding_initializer(
    ckpt_path: str, embedding_tensor_name: str, new_vocab_size: int, embedding_dim: int, old_vocab_file: str,
    new_vocab_file: str, old_vocab_size: int = -1, num_oov_buckets: int = 0,
    initializer: InitializerFunction | None = None, max_rows_in_memory: int = -1,
) -> InitializerFunction:  # fmt: skip
    """`load_and_remap_matrix_initializer` for an embedding (``tf.contrib.framework.load_embedding_initializer``).

    Args:
      ckpt_path: the checkpoint.
      embedding_tensor_name: the name of its matrix, a row for each word.
      new_vocab_size: how many words the new vocabulary has.
      embedding_dim: the number of columns.
      old_vocab_file, new_vocab_file: the vocabularies.
      old_vocab_size: how many words of the old one count; -1: all.
      num_oov_buckets: how many rows follow, for unknown words.
      initializer: makes the values of new words; default: truncated normal, with a deviation of
        ``1 / sqrt(embedding_dim)``.
      max_rows_in_memory: how many rows of the matrix are read at once; -1: all.
    """
    return load_and_remap_matrix_initializer(
        ckpt_path, embedding_tensor_name, new_vocab_size, embedding_dim, old_vocab_size, old_vocab_file,
        new_vocab_file, None, None, num_oov_buckets, 0,
        initializer or TruncatedNormal(stddev=1 / np.sqrt(embedding_dim)), max_rows_in_memory,
    )  # fmt: skip


@export("tf.contrib.framework.load_linear_multiclass_bias_initializer")
def load_linear_multiclass_bias_initializer(
    ckpt_path: str, bias_tensor_name: str, new_class_vocab_size: int, old_class_vocab_file: str,
    new_class_vocab_file: str, num_class_oov_buckets: int = 0, initializer: InitializerFunction | None = None,
    max_rows_in_memory: int = -1,
) -> InitializerFunction:  # fmt: skip
    """`load_and_remap_matrix_initializer` for the bias of classes, a matrix of one column.

    ``tf.contrib.framework.load_linear_multiclass_bias_initializer``.

    Args:
      ckpt_path, bias_tensor_name: the checkpoint and the name of its matrix.
      new_class_vocab_size: how many classes there are now.
      old_class_vocab_file, new_class_vocab_file: the classes.
      num_class_oov_buckets: how many unknown classes follow.
      initializer: makes the values of new classes; default: zeros.
      max_rows_in_memory: how many rows are read at once; -1: all.
    """
    return load_and_remap_matrix_initializer(
        ckpt_path, bias_tensor_name, new_class_vocab_size, 1, -1, old_class_vocab_file, new_class_vocab_file, None,
        None, num_class_oov_buckets, 0, initializer, max_rows_in_memory,
    )  # fmt: skip


@export("tf.contrib.framework.load_variable_slot_initializer")
def load_variable_slot_initializer(
    ckpt_path: str, old_tensor_name: str, primary_partition_info: Any, new_row_vocab_size: int,
    new_col_vocab_size: int, old_row_vocab_file: str | None = None, new_row_vocab_file: str | None = None,
    old_col_vocab_file: str | None = None, new_col_vocab_file: str | None = None, num_row_oov_buckets: int = 0,
    num_col_oov_buckets: int = 0, initializer: InitializerFunction | None = None, max_rows_in_memory: int = -1,
) -> InitializerFunction:  # fmt: skip
    """`load_and_remap_matrix_initializer` for an optimizer's slot of a part of a variable.

    ``tf.contrib.framework.load_variable_slot_initializer``.

    Args:
      primary_partition_info: which part of the variable it is; optimizers do not say. For the others see
        `load_and_remap_matrix_initializer`.
    """
    load = load_and_remap_matrix_initializer(
        ckpt_path, old_tensor_name, new_row_vocab_size, new_col_vocab_size, -1, old_row_vocab_file,
        new_row_vocab_file, old_col_vocab_file, new_col_vocab_file, num_row_oov_buckets, num_col_oov_buckets,
        initializer, max_rows_in_memory,
    )  # fmt: skip

    def initialize(shape: Any, dtype: Any = dtypes.float32, partition_info: Any = None) -> Tensor:
        """Loads the part of the slot, whatever part the optimizer names."""
        return load(shape, dtype, primary_partition_info)  # type: ignore[no-any-return]

    return initialize
