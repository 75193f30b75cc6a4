"""``tf.map_fn``, ``tf.foldl``, ``tf.foldr`` and ``tf.scan``: loops over the first axis of tensors; `FunctionGraph`."""

from __future__ import annotations

import collections
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from tfmini import dtypes
from tfmini.core_types import DTypeLike, TensorLike
from tfmini.export import export
from tfmini.graph import nest
from tfmini.graph.families import (
    Operation,
    Tensor,
    control_dependencies,
    convert_to_tensor,
    get_default_graph,
    name_scope,
)
from tfmini.graph.graph import Graph
from tfmini.graph.scopes import ControlScope
from tfmini.ops.array.constant import const, constant
from tfmini.ops.array.filling import range as math_range
from tfmini.ops.array.gather import gather
from tfmini.ops.array.identity import cast, placeholder
from tfmini.ops.array.joining import concat, stack
from tfmini.ops.array.layout import transpose
from tfmini.ops.array.shape import rank, reshape, shape
from tfmini.ops.array.slicing import getitem
from tfmini.ops.composites import SparseTensor
from tfmini.ops.debugging import Assert
from tfmini.ops.flow.cond import cond, first_true
from tfmini.ops.flow.tensor_array import TensorArray
from tfmini.ops.flow.while_loop import while_loop
from tfmini.ops.gradients import gradients
from tfmini.ops.math.comparison import greater_equal, less, less_equal, logical_and
from tfmini.ops.math.reductions import reduce_sum
from tfmini.ops.variables.scope import get_variable_scope
from tfmini.shapes import merge_dims, merge_raw

Function = Callable[..., Any]


@export("tf.map_fn")
def map_fn(
    fn: Function, elems: TensorLike | tuple[Any, ...] | Mapping[str, Any],
    dtype: DTypeLike | Sequence[Any] | Mapping[str, Any] | None = None, parallel_iterations: int | None = None,
    back_prop: bool = True, swap_memory: bool = False, infer_shape: bool = True, name: str | None = None,
) -> Any:  # fmt: skip
    """Applies ``fn`` to each row of ``elems`` and stacks the results (``tf.map_fn``).

    Args:
      fn: called once, with symbolic tensors for one row of each tensor of ``elems``.
      elems: a tensor or structure of tensors with the same first size.
      dtype: the types of the results of ``fn``, in their structure; default: those of ``elems``.
      parallel_iterations: how many rows may be in progress at once, default 10.
      back_prop: whether gradients may pass.
      swap_memory: accepted and unused.
      infer_shape: whether all results must have one shape.
      name: of the name scope.

    Raises:
      TypeError: when ``fn`` is not callable, or for a `SparseTensor`.
      ValueError: for scalars, and when ``fn`` returns another structure than ``dtype``.
    """
    _check_callable(fn)
    if isinstance(elems, SparseTensor):
        raise TypeError(
            "To perform a map on the values of a sparse tensor use either  SparseTensor(input.indices,"
            " fn(input.values), input.dense_shape) or  SparseTensor(input.indices, map_fn(fn, input.values),"
            " input.dense_shape)"
        )
    flat = nest.flatten(elems)
    with name_scope(name, "map", flat), _variables_cached_where_used():
        rows = _Rows(elems, "elem")
        rows.refuse_scalars()
        dtype = dtype or nest.pack_sequence_as(elems, [tensor.dtype for tensor in rows.tensors])
        rows.unstack()
        first = constant(0)
        results = [TensorArray(d, size=rows.count, infer_shape=infer_shape) for d in nest.flatten(dtype)]

        def compute(i: Tensor, arrays: list[TensorArray]) -> tuple[Any, Any]:
            found = fn(rows.read(i))
            nest.assert_same_structure(dtype, found)
            return i + 1, [array.write(i, value) for array, value in zip(arrays, nest.flatten(found))]

        _, arrays = while_loop(
            lambda i, _: i < rows.count, compute, (first, results), parallel_iterations=parallel_iterations or 10,
            back_prop=back_prop, swap_memory=swap_memory, maximum_iterations=rows.count,
        )  # fmt: skip
        return nest.pack_sequence_as(dtype, rows.stacked(arrays))


@export("tf.foldl")
def foldl(
    fn: Function,
    elems: TensorLike,
    initializer: TensorLike | tuple[Any, ...] | Mapping[str, Any] | None = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    name: str | None = None,
) -> Any:
    """The last value of ``a = fn(a, row)`` over the rows of ``elems`` from first to last (``tf.foldl``).

    Args:
      fn: (accumulated value, row) -> accumulated value.
      elems: a tensor or structure of tensors with the same first size.
      initializer: the first accumulated value; default: the first row.
      parallel_iterations, back_prop, swap_memory, name: as for `map_fn`.

    Raises:
      TypeError: when ``fn`` is not callable.
    """
    _check_callable(fn)
    with name_scope(name, "foldl", nest.flatten(elems)), _variables_cached_where_used():
        rows = _Rows(elems, "elem")
        rows.unstack()
        start = constant(1 if initializer is None else 0)
        initial = rows.read(0) if initializer is None else initializer

        def compute(i: Tensor, a: TensorLike) -> list[Any]:
            return [i + 1, fn(a, rows.read(i))]

        return while_loop(
            lambda i, a: i < rows.count, compute, [start, initial], parallel_iterations=parallel_iterations,
            back_prop=back_prop, swap_memory=swap_memory, maximum_iterations=rows.count,
        )[1]  # fmt: skip


@export("tf.foldr")
def foldr(
    fn: Function,
    elems: TensorLike,
    initializer: TensorLike | tuple[Any, ...] | Mapping[str, Any] | None = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    name: str | None = None,
) -> Any:
    """`foldl` from the last row to the first (``tf.foldr``).

    Raises:
      TypeError: when ``fn`` is not callable.
    """
    _check_callable(fn)
    with name_scope(name, "foldr", nest.flatten(elems)), _variables_cached_where_used():
        rows = _Rows(elems, "elem")
        rows.unstack()
        start = rows.count - 1 if initializer is None else rows.count
        initial = rows.read(start) if initializer is None else initializer

        def compute(i: Tensor, a: TensorLike) -> list[Any]:
            i = i - 1
            return [i, fn(a, rows.read(i))]

        return while_loop(
            lambda i, a: i > 0, compute, [start, initial], parallel_iterations=parallel_iterations,
            back_prop=back_prop, swap_memory=swap_memory, maximum_iterations=rows.count,
        )[1]  # fmt: skip


@export("tf.scan")
def scan(
    fn: Function,
    elems: TensorLike,
    initializer: TensorLike | tuple[Any, ...] | Mapping[str, Any] | None = None,
    parallel_iterations: int = 10,
    back_prop: bool = True,
    swap_memory: bool = False,
    infer_shape: bool = True,
    reverse: bool = False,
    name: str | None = None,
) -> Any:
    """All values of ``a = fn(a, row)`` over the rows of ``elems``, stacked (``tf.scan``).

    Args:
      fn: (accumulated value, row) -> accumulated value, in the structure of ``initializer``.
      elems: a tensor or structure of tensors with the same first size.
      initializer: the value before the first row; default: the first row, which is then the first result.
      parallel_iterations, back_prop, swap_memory, infer_shape, name: as for `map_fn`.
      reverse: go from the last row to the first; each result stays at the place of its row.

    Raises:
      TypeError, ValueError: when ``fn`` is not callable or returns another structure.
    """
    _check_callable(fn)
    with name_scope(name, "scan", nest.flatten(elems)), _variables_cached_where_used():
        rows = _Rows(elems, "elem")
        rows.unstack(with_shape=True)
        structure = elems if initializer is None else initializer
        end = rows.count - 1 if reverse else 0
        if initializer is None:
            state = [array.read(end) for array in rows.arrays]
        else:
            state = [convert_to_tensor(value) for value in nest.flatten(initializer)]
        results = [
            TensorArray(a.dtype, size=rows.count, element_shape=a.shape if infer_shape else None,
                        infer_shape=infer_shape)
            for a in state
        ]  # fmt: skip
        skipped = 0
        if initializer is None:
            results, skipped = [array.write(end, a) for array, a in zip(results, state)], 1

        def compute(i: Tensor, state: list[Any], arrays: list[TensorArray]) -> tuple[Any, Any, Any]:
            found = fn(nest.pack_sequence_as(structure, state), rows.read(i))
            nest.assert_same_structure(structure, found)
            flat = nest.flatten(found)
            return (
                i - 1 if reverse else i + 1, flat, [array.write(i, value) for array, value in zip(arrays, flat)],
            )  # fmt: skip

        def more(i: Tensor, *_: object) -> Any:
            return i >= 0 if reverse else i < rows.count

        start = rows.count - 1 - skipped if reverse else skipped
        _, _, arrays = while_loop(
            more, compute, (start, state, results), parallel_iterations=parallel_iterations,
            back_prop=back_prop, swap_memory=swap_memory, maximum_iterations=rows.count,
        )  # fmt: skip
        return nest.pack_sequence_as(structure, rows.stacked(arrays))


class _Rows:
    """The rows of a structure of tensors."""

    def __init__(self, elems: TensorLike | tuple[Any, ...] | Mapping[str, Any], label: str) -> None:
        self.structure = elems
        self.tensors = [convert_to_tensor(elem, name=label) for elem in nest.flatten(elems)]
        self.arrays: list[TensorArray] = []

    def refuse_scalars(self) -> None:
        if self.tensors[0].raw_shape == ():
            if len(self.tensors) == 1:
                raise ValueError("elems must be a 1+ dimensional Tensor, not a scalar")
            raise ValueError("elements in elems must be 1+ dimensional Tensors, not scalars")

    def unstack(self, with_shape: bool = False) -> None:
        """Puts the rows into arrays."""
        first = self.tensors[0]
        known = None if first.raw_shape is None else first.raw_shape[0]
        self.count: Any = shape(first)[0] if known is None else known
        arrays = [
            TensorArray(t.dtype, size=self.count, element_shape=t.shape[1:] if with_shape else None)
            for t in self.tensors
        ]
        self.arrays = [array.unstack(tensor) for array, tensor in zip(arrays, self.tensors)]

    def read(self, index: TensorLike) -> Any:
        """One row of each tensor, in their structure."""
        return nest.pack_sequence_as(self.structure, [array.read(index) for array in self.arrays])

    def stacked(self, arrays: list[TensorArray]) -> list[Tensor]:
        """One result per row, stacked, with the static number of rows."""
        rows = None
        for tensor in self.tensors:
            rows = merge_dims(rows, None if tensor.raw_shape is None else tensor.raw_shape[0])
        results = [array.stack() for array in arrays]
        for result in results:
            if result.raw_shape is not None:
                result.raw_shape = merge_raw(result.raw_shape, (rows, *result.raw_shape[1:]))
        return results


def _check_callable(fn: Callable[..., Any]) -> None:
    if not callable(fn):
        raise TypeError("fn must be callable.")


@contextmanager
def _variables_cached_where_used() -> Iterator[None]:
    """While it lasts, new variables are read once per device instead of in every iteration."""
    scope = get_variable_scope()
    if scope.caching_device is not None:
        yield
        return
    scope.set_caching_device(lambda op: op.device)
    try:
        yield
    finally:
        scope.set_caching_device(None)


@export("tf.vectorized_map")
def vectorized_map(fn: Function, elems: TensorLike) -> Any:
    """Applies ``fn`` to each row of ``elems`` in a loop, and stacks the results (``tf.vectorized_map``).

    ``fn`` may ask for gradients of its row by tensors and variables outside. It is called once more, for ops that never
    run, to find the types of the results.
    """
    elems = nest.map_structure(convert_to_tensor, elems)
    rows = nest.map_structure(lambda t: getitem(t, 0), elems)
    before = get_default_graph().version
    kinds = nest.map_structure(lambda t: convert_to_tensor(t).dtype.base_dtype, fn(rows))
    if all(op.type != "StridedSliceGrad" for op in get_default_graph().get_operations()[before:]):
        return map_fn(fn, elems, dtype=kinds)
    # It asks for gradients by what the rows are made of: those of an array's reads, inside of the loop, would read the
    # array too early. So rows are gathered; to differentiate the whole takes the more for that.
    count = shape(nest.flatten(elems)[0])[0]
    return map_fn(lambda i: fn(nest.map_structure(lambda t: gather(t, i), elems)), math_range(count), dtype=kinds)


@export("tensorflow.python.ops.parallel_for.for_loop", "tensorflow.python.ops.parallel_for.control_flow_ops.for_loop")
def for_loop(
    loop_fn: Function, loop_fn_dtypes: Any, iters: TensorLike, parallel_iterations: int | None = None
) -> Any:  # fmt: skip
    """Stacks the results of ``loop_fn(i)`` for i from 0 to ``iters - 1`` (of TensorFlow's ``parallel_for``)."""
    return map_fn(loop_fn, math_range(iters), dtype=loop_fn_dtypes, parallel_iterations=parallel_iterations)


@export("tensorflow.python.ops.parallel_for.pfor", "tensorflow.python.ops.parallel_for.control_flow_ops.pfor")
def pfor(loop_fn: Function, iters: TensorLike, parallel_iterations: int | None = None) -> Any:
    """`for_loop` that finds the types itself; TensorFlow makes ops for all iterations at once, tfmini a loop."""
    kinds = nest.map_structure(lambda t: convert_to_tensor(t).dtype.base_dtype, loop_fn(constant(0)))
    return map_fn(loop_fn, math_range(iters), dtype=kinds)


@export("tensorflow.python.ops.parallel_for.jacobian", "tensorflow.python.ops.parallel_for.gradients.jacobian")
def jacobian(output: Tensor, inputs: Any, use_pfor: bool = True, parallel_iterations: int | None = None) -> Any:
    """The derivatives of each element of ``output`` (of TensorFlow's ``parallel_for.gradients``).

    Returns:
      For each tensor of the structure ``inputs`` one of the shape ``[*output, *input]``; None if nothing depends on it.
    """
    flat = nest.flatten(inputs)
    used = [x for x, grad in zip(flat, gradients(output, flat)) if grad is not None]
    line, sizes = reshape(output, [-1]), shape(output)
    rows = map_fn(
        lambda i: tuple(map(convert_to_tensor, gradients(gather(line, i), used))), math_range(shape(line)[0]),
        dtype=tuple(x.dtype.base_dtype for x in used), parallel_iterations=parallel_iterations,
    ) if used else ()  # fmt: skip
    found = {}
    for x, row in zip(used, rows):
        found[x] = reshape(row, concat([sizes, shape(row)[1:]], 0))
        found[x].set_shape(output.shape.concatenate(x.shape))
    return nest.pack_sequence_as(inputs, [found.get(x) for x in flat])


@export(
    "tensorflow.python.ops.parallel_for.batch_jacobian", "tensorflow.python.ops.parallel_for.gradients.batch_jacobian"
)
def batch_jacobian(output: Tensor, inp: Tensor, use_pfor: bool = True, parallel_iterations: int | None = None) -> Any:
    """The derivatives of each row of ``output`` by the same row of ``inp``; rows must not depend on other rows.

    Returns:
      A tensor of the shape ``[rows, *output[1:], *inp[1:]]``; None if nothing depends on ``inp``.

    Raises:
      ValueError: when the static numbers of rows differ.
    """
    if not output.shape[:1].is_compatible_with(inp.shape[:1]):
        raise ValueError(f"Need first dimension of output shape ({output.shape}) and inp shape ({inp.shape}) to match.")
    if gradients(output, inp)[0] is None:
        return None
    table = reshape(output, concat([shape(output)[:1], [-1]], 0))
    columns = map_fn(
        lambda i: convert_to_tensor(gradients(gather(table, i, axis=1), inp)[0]), math_range(shape(table)[1]),
        dtype=inp.dtype.base_dtype, parallel_iterations=parallel_iterations,
    )  # fmt: skip
    order = concat([[1, 0], math_range(2, rank(columns))], 0)
    result = reshape(transpose(columns, order), concat([shape(output), shape(inp)[1:]], 0))
    result.set_shape(output.shape.concatenate(inp.shape[1:]))
    return result


# ---- ``tf.case`` and ``tf.switch_case``: the first of several branches whose predicate holds -----------------------

_log = logging.getLogger("tensorflow")
Branch = Callable[[], Any]
Pair = tuple[Any, Branch]


@export("tf.case")
def case(
    pred_fn_pairs: Sequence[Any] | Mapping[Any, Callable[..., Any]], default: Branch | None = None,
    exclusive: bool = False, strict: bool = False, name: str = "case",
) -> Any:  # fmt: skip
    """Returns the result of the function whose predicate is the first true one, else of ``default`` (``tf.case``).

    Args:
      pred_fn_pairs: a list of (scalar bool tensor, function), or a dict.
      default: a function; without it, one predicate must be true in every step.
      exclusive: whether at most one predicate may be true; adds a check to the graph.
      strict: as for `cond`.
      name: of the name scope.

    Raises:
      TypeError: for elements that are not pairs of a tensor and a function.
    """
    pairs = _checked_pairs(pred_fn_pairs, exclusive, name)
    predicates = [pred for pred, _ in pairs]
    with name_scope(name, "case", predicates):
        if default is None:
            default, pairs = _last_as_default(pairs), pairs[:-1]
        if not exclusive:
            return first_true(pairs, default, strict)
        text = "Input error: exclusive=True"
        with control_dependencies([_at_most([pred for pred, _ in pairs], 1, text)]):
            return first_true(pairs, default, strict)


@export("tensorflow.python.ops.control_flow_ops._case_helper")
def _case_helper(
    cond_fn: Callable[..., Any], pred_fn_pairs: Sequence[Any] | Mapping[Any, Callable[..., Any]],
    default: Branch | None, exclusive: bool, name: str, allow_python_preds: bool = False, **cond_kwargs: object,
) -> Any:  # fmt: skip
    """`case` by another function than `tf.cond`, which TensorFlow Probability gives predicates that Python knows.

    Args:
      cond_fn: takes a predicate, ``true_fn``, ``false_fn`` and ``cond_kwargs``.
      pred_fn_pairs, default, exclusive, name: as for `case`.
      allow_python_preds: whether predicates may be Python's ``True`` and ``False``.

    Raises:
      TypeError: as `case`.
    """
    pairs = _checked_pairs(pred_fn_pairs, exclusive, name, allow_python_preds)
    with name_scope(name, "case", [pred for pred, _ in pairs]):
        choose: Branch = default or _last_as_default(pairs)
        for pred, function in reversed(pairs if default else pairs[:-1]):
            choose = partial(cond_fn, pred, true_fn=function, false_fn=choose, **cond_kwargs)
        checks = [_at_most([pred for pred, _ in pairs], 1, "Input error: exclusive=True")] if exclusive else []
        with control_dependencies(checks):
            return choose()


def _checked_pairs(
    pairs: Sequence[Any] | Mapping[Any, Callable[..., Any]], exclusive: bool, name: str, python_preds: bool = False
) -> list[Pair]:
    if not isinstance(pairs, (list, tuple, dict)):
        raise TypeError("fns must be a list, tuple, or dict")
    if isinstance(pairs, collections.OrderedDict):
        pairs = list(pairs.items())
    elif isinstance(pairs, dict):
        pairs = sorted(pairs.items(), key=lambda item: item[0].name)
        if not exclusive:
            _log.warning(
                "%s: An unordered dictionary of predicate/fn pairs was provided, but exclusive=False. The order of"
                " conditional tests is deterministic but not guaranteed.",
                name,
            )
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError("Each entry in pred_fn_pairs must be a 2-tuple")
        predicate, function = pair
        if not (python_preds and isinstance(predicate, bool)):
            if not isinstance(predicate, Tensor):
                raise TypeError(f"pred must be a Tensor, got: {predicate}")
            if predicate.dtype.base_dtype is not dtypes.bool:
                raise TypeError(f"pred must be Tensor of type bool: {predicate.name}")
        if not callable(function):
            raise TypeError(f"fn for pred {getattr(predicate, 'name', predicate)} must be callable.")
    if not pairs:
        raise ValueError("not enough values to unpack: tf.case needs at least one pair of predicate and function")
    return list(pairs)


def _at_most(predicates: list[Tensor], limit: int, text: str) -> Operation:
    """An Assert that at most ``limit`` of ``predicates`` are true."""
    stacked = stack(predicates, name="preds_c")
    count = reduce_sum(cast(stacked, dtypes.int32), name="num_true_conds")
    condition = less_equal(count, constant(limit, name="n_true_conds"))
    names = ", ".join(getattr(pred, "name", str(pred)) for pred in predicates)  # Python's True has none
    data = [f"{text}: more than {limit} conditions ({names}) evaluated as True:", stacked]
    return Assert(condition, data, summarize=len(predicates))


def _last_as_default(pairs: list[Pair]) -> Branch:
    """The last function as the default, with a check that its predicate is true."""
    *others, (predicate, function) = pairs
    position = len(others)

    def default() -> Any:
        why = (
            f"Implementation error: selected default action #{position} was called, but some of other predicates are"
            " True: "
        )
        predicates = [pred for pred, _ in pairs]
        none_true = ("Input error: None of conditions evaluated as True:", stack(predicates, name="preds_c"))
        checks = [_at_most([pred for pred, _ in others], 0, why)] if others else []
        with control_dependencies([*checks, Assert(predicate, none_true)]):
            return function()

    return default


@export("tf.switch_case")
def switch_case(
    branch_index: Any, branch_fns: Sequence[Any] | Mapping[int, Callable[..., Any]], default: Branch | None = None,
    name: str = "switch_case",
) -> Any:  # fmt: skip
    """Returns the result of the function number ``branch_index`` (``tf.switch_case``).

    It is built of conds that halve the indices, so it costs the logarithm of their number; TensorFlow has an op with
    functions.

    Args:
      branch_index: an integer tensor.
      branch_fns: functions, or a list or dict of (index, function) for 0 to n - 1.
      default: the function for other indices; by default the last function.
      name: of the name scope.

    Raises:
      TypeError: for arguments of unsupported types.
      ValueError: when the indices are not 0 to n - 1.
    """
    functions = _checked_functions(branch_index, branch_fns)
    with name_scope(name, "case", [branch_index]):
        if default is None:
            *functions, default = functions
        if not functions:
            return default()
        known = logical_and(greater_equal(branch_index, 0), less(branch_index, len(functions)))
        return cond(known, lambda: _halved(branch_index, 0, functions), default, strict=True)


def _halved(index: Tensor, first: int, functions: list[Branch]) -> Any:
    """The result of the function ``index - first``, which is one of them."""
    if len(functions) == 1:
        return functions[0]()
    middle = len(functions) // 2
    parts = [(first, functions[:middle]), (first + middle, functions[middle:])]
    lower, upper = (partial(_halved, index, *part) for part in parts)
    return cond(less(index, first + middle), lower, upper, strict=True)


def _checked_functions(
    branch_index: TensorLike, branch_fns: Sequence[Any] | Mapping[int, Callable[..., Any]]
) -> list[Branch]:
    if not isinstance(branch_index, Tensor):
        raise TypeError(f"branch_index must a Tensor, got {type(branch_index)}")
    if not branch_index.dtype.is_integer:
        raise TypeError(f"branch_index must an integer Tensor, got {branch_index.dtype}")
    if not branch_fns:
        raise ValueError("Must provide at least one item in branch_fns")
    if not isinstance(branch_fns, (list, tuple, dict)):
        raise TypeError("branch_fns must be a list, tuple, or dict")
    pairs = list(branch_fns.items()) if isinstance(branch_fns, dict) else list(branch_fns)
    if all(callable(function) for function in pairs):
        pairs = list(enumerate(pairs))
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError("Each entry in branch_fns must be a 2-tuple")
        if not isinstance(pair[0], int):
            raise TypeError(f"key must be a Python `int`, got {type(pair[0])}")
        if not callable(pair[1]):
            raise TypeError(f"fn for key {pair[0]} must be callable.")
    keys = sorted(key for key, _ in pairs)
    if keys != list(range(len(keys))):
        raise ValueError(
            f"branch indices (keys) must form contiguous range of [0 to {len(keys)}) but found"
            f" {{{','.join(map(str, keys))}}}"
        )
    return [function for _, function in sorted(pairs, key=lambda pair: pair[0])]


# ---- `FunctionGraph`: where a function is traced whose ops do not join the graph ------------------------------------


class FunctionGraph(Graph):
    """The graph of a function under construction inside another graph.

    Attributes:
      captures: tensor of an outer graph -> the Placeholder that represents it here.
      copies: constant of an outer graph -> the constant that represents it here.
    """

    def __init__(self, outer: Graph) -> None:
        super().__init__()
        self.outer = outer
        self.seed = outer.seed
        self.attachments = outer.attachments  # variable stores and the functions of py_func ops
        for name in outer.collections:
            self.get_collection_ref(name).extend(outer.get_collection(name))
        self.captures: dict[Tensor, Tensor] = {}
        self.copies: dict[Tensor, Tensor] = {}

    def capture(self, tensor: Tensor) -> Tensor:
        """The tensor of this graph that represents a tensor of an outer graph.

        Raises:
          ValueError: when the tensor's graph is no outer graph of this one.
        """
        if not self.is_inside(tensor.op.graph):
            raise ValueError(f"{tensor} must be from the same graph as the function that uses it.")
        if tensor.op.type == "Const":
            return self._copy(tensor)
        if tensor not in self.captures:
            with self.as_default(), self.control_dependencies(None):
                made = placeholder(tensor.dtype.base_dtype, tensor.shape, name=f"captured_{tensor.op.name}")
            made.handle_data = tensor.handle_data
            self.captures[tensor] = made
        return self.captures[tensor]

    def _copy(self, tensor: Tensor) -> Tensor:
        if tensor not in self.copies:
            attrs = tensor.op.attrs
            with self.as_default(), self.control_dependencies(None):
                self.copies[tensor] = const(value=attrs["value"], dtype=attrs["dtype"], name=tensor.op.name)
        return self.copies[tensor]

    def control_dependencies(self, control_inputs: Iterable[Any] | None) -> ControlScope:
        """As in `Graph`; ops of outer graphs are left out, since they finish before the function runs."""
        if control_inputs is None:
            return super().control_dependencies(None)
        inside = [item for item in control_inputs if not self.is_inside(getattr(item, "graph", self))]
        return super().control_dependencies(inside)
