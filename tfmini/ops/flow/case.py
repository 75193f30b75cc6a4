"""``tf.case`` and ``tf.switch_case``: the first of several branches whose predicate holds."""

from __future__ import annotations

import collections
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph.families import Operation, Tensor, control_dependencies, name_scope
from tfmini.ops.array.casting import cast
from tfmini.ops.array.constant import constant
from tfmini.ops.array.joining import stack
from tfmini.ops.debugging.assertion import Assert
from tfmini.ops.flow.cond import cond, first_true
from tfmini.ops.math.comparison import greater_equal, less, less_equal, logical_and
from tfmini.ops.math.reduce_functions import reduce_sum

_log = logging.getLogger("tensorflow")
Branch = Callable[[], Any]
Pair = tuple[Any, Branch]


@export("tf.case")
def case(
    pred_fn_pairs: Any, default: Branch | None = None, exclusive: bool = False, strict: bool = False,
    name: str = "case",
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


def _checked_pairs(pairs: Any, exclusive: bool, name: str) -> list[Pair]:
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
        if not isinstance(predicate, Tensor):
            raise TypeError(f"pred must be a Tensor, got: {predicate}")
        if predicate.dtype.base_dtype is not dtypes.bool:
            raise TypeError(f"pred must be Tensor of type bool: {predicate.name}")
        if not callable(function):
            raise TypeError(f"fn for pred {predicate.name} must be callable.")
    if not pairs:
        raise ValueError("not enough values to unpack: tf.case needs at least one pair of predicate and function")
    return list(pairs)


def _at_most(predicates: list[Tensor], limit: int, text: str) -> Operation:
    """An Assert that at most ``limit`` of ``predicates`` are true."""
    stacked = stack(predicates, name="preds_c")
    count = reduce_sum(cast(stacked, dtypes.int32), name="num_true_conds")
    condition = less_equal(count, constant(limit, name="n_true_conds"))
    names = ", ".join(pred.name for pred in predicates)
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
def switch_case(branch_index: Any, branch_fns: Any, default: Branch | None = None, name: str = "switch_case") -> Any:
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


def _checked_functions(branch_index: Any, branch_fns: Any) -> list[Branch]:
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
