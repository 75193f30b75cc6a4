"""Calls input functions, and turns what they return into features, labels and hooks."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.data.dataset import Dataset
from tfmini.estimator.run_config import RunConfig
from tfmini.export import export
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.names import GraphKeys
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import add_to_collection, counted_as, device
from tfmini.runtime.client.session import BaseSession
from tfmini.train.coordinator import Coordinator
from tfmini.train.session_run_hook import SessionRunHook
from tfmini.train.strategy import InputContext

# ---- Input functions for data in memory (``tf.estimator.inputs.numpy_input_fn``, ``pandas_input_fn``) --------------

_TARGET = "__target_key__"
InputFunction = Callable[[], Any]


@export("tf.estimator.inputs.numpy_input_fn")
def numpy_input_fn(
    x: Any,
    y: Any = None,
    batch_size: int = 128,
    num_epochs: int | None = 1,
    shuffle: bool | None = None,
    queue_capacity: int = 1000,
    num_threads: int = 1,
) -> InputFunction:
    """An input function of arrays in memory (``tf.estimator.inputs.numpy_input_fn``).

    Args:
      x: an array, or name -> array; the first dimension counts the examples.
      y: labels of the same length: an array, or name -> array; None for none.
      batch_size: examples in a batch; the last batch may be smaller.
      num_epochs: how often the examples are read; None: for ever.
      shuffle: whether each epoch has an order of its own; it must be given.
      queue_capacity, num_threads: are not used, but for seeds: the examples are read as they are needed.

    Raises:
      ValueError: when ``shuffle`` is not given, there are no features, or lengths or names do not fit.
      TypeError: when ``x`` is no array.
    """
    if not isinstance(shuffle, bool):
        raise ValueError(
            "shuffle must be provided and explicitly set as boolean (it is recommended to set it as True for"
            f" training); got {shuffle}"
        )
    features = _arrays(x, "x")
    labels = None if y is None else _labels(y)

    def input_fn() -> Any:
        parts = dict(features)
        parts.update({(_TARGET, name): array for name, array in (labels or {}).items()})
        _check_lengths(parts)
        fed = len(parts) + 1  # TensorFlow's threads feed a queue with the arrays and the number of the row
        with counted_as(16 + fed + (num_threads - 1) * (fed + 1)):
            read = dict(zip(parts, _batches(list(parts.values()), batch_size, num_epochs, shuffle)))
        own = {name: read[name] for name in features}
        found = own if isinstance(x, Mapping) else own[_TARGET]
        if labels is None:
            return found
        targets = {name: read[_TARGET, name] for name in labels}
        return found, (targets if isinstance(y, Mapping) else targets[_TARGET])

    return input_fn


def _arrays(x: Any, what: str) -> dict[Any, Any]:
    if isinstance(x, Mapping):
        if not x:
            raise ValueError(f"{what} cannot be an empty dict")
        return {name: np.asarray(x[name]) for name in sorted(x)}
    if not isinstance(x, np.ndarray):
        raise TypeError(f"{what} must be a dict or array; got {type(x).__name__}")
    return {_TARGET: np.asarray(x)}


def _labels(y: Any) -> dict[Any, Any]:
    if isinstance(y, Mapping) and not y:
        raise ValueError("y cannot be empty dict, use None instead.")
    return _arrays(y if isinstance(y, Mapping) else np.asarray(y), "y")


def _check_lengths(parts: Mapping[Any, Any]) -> None:
    if len({len(array) for array in parts.values()}) > 1:
        shapes = {str(name): array.shape for name, array in parts.items()}
        raise ValueError(
            "Length of tensors in x and y is mismatched. All elements in x and y must have the same length. Shapes:"
            f" {shapes}"
        )


def _batches(arrays: list[Any], batch_size: int, num_epochs: int | None, shuffle: bool) -> tuple[Any, ...]:
    """Tensors with the next rows of each array."""
    types = tuple(dtypes.string if a.dtype.kind in "SUO" else dtypes.as_dtype(a.dtype) for a in arrays)
    length = batch_size if num_epochs is None else None  # only the last batch of all may be smaller
    shapes = tuple((length, *a.shape[1:]) for a in arrays)

    def read() -> Iterator[tuple[Any, ...]]:
        for rows in _rows(len(arrays[0]), batch_size, num_epochs, shuffle):
            yield tuple(array[rows] for array in arrays)

    iterator = Dataset.from_generator(read, types, shapes).prefetch(1).make_initializable_iterator()
    # The session's local init op starts the iterator, as it starts tables: the tensors alone are returned.
    add_to_collection(GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
    return tuple(iterator.get_next())


def _rows(count: int, batch_size: int, num_epochs: int | None, shuffle: bool) -> Iterator[Any]:
    """The numbers of each batch's rows; a batch may reach into the next epoch."""
    left = np.empty(0, np.int64)
    for _ in itertools.count() if num_epochs is None else range(num_epochs):
        if not count:
            return
        order = np.random.permutation(count) if shuffle else np.arange(count)
        left = np.concatenate([left, order])
        full = len(left) - len(left) % batch_size
        yield from left[:full].reshape(-1, batch_size)
        left = left[full:]
    if len(left):
        yield left


@export("tf.estimator.inputs.pandas_input_fn")
def pandas_input_fn(
    x: Any,
    y: Any = None,
    batch_size: int = 128,
    num_epochs: int | None = 1,
    shuffle: bool | None = None,
    queue_capacity: int = 1000,
    num_threads: int = 1,
    target_column: str = "target",
) -> InputFunction:
    """An input function of a pandas DataFrame (``tf.estimator.inputs.pandas_input_fn``).

    Args:
      x: a DataFrame: each column is a feature.
      y: a Series, or a DataFrame, whose columns are labels, with the index of ``x``; None for none.
      target_column: the name of the labels in messages.
      The others are those of `numpy_input_fn`.

    Raises:
      ValueError: when ``shuffle`` is not given, a name is taken twice, or the indices differ.
      TypeError: when ``x`` is no DataFrame.
    """
    if not hasattr(x, "columns") or not hasattr(x, "index"):
        raise TypeError(f"x must be a pandas DataFrame; got {type(x).__name__}")
    labels = None
    if y is not None:
        if target_column in x:
            raise ValueError(
                f"Cannot use name {target_column} for target column: DataFrame already has a column with that name:"
                f" {list(x.columns)}"
            )
        if not np.array_equal(x.index, y.index):
            raise ValueError(f"Index for x and y are mismatched.\nIndex for x: {x.index}\nIndex for y: {y.index}\n")
        labels = {name: y[name].values for name in y.columns} if hasattr(y, "columns") else y.values
    features = {name: x[name].values for name in x.columns}
    return numpy_input_fn(features, labels, batch_size, num_epochs, shuffle, queue_capacity, num_threads)


# ---- The names of the arguments that a user's function takes: it is called with those that it knows ----------------


def argument_names(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a function's arguments, without ``self`` and without those that a partial has bound."""
    if isinstance(function, functools.partial):
        names = argument_names(function.func)
        return tuple(name for name in names[len(function.args) :] if name not in function.keywords)
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return tuple(p.name for p in inspect.signature(function).parameters.values() if p.kind in named)


def known_arguments(function: Callable[..., Any], offered: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the offered arguments that the function names."""
    names = argument_names(function)
    return {name: value for name, value in offered.items() if name in names}


# ---- The call of an input function, and what it returned -----------------------------------------------------------


class DatasetInitializerHook(SessionRunHook):
    """Starts the iterator of an input function's dataset in each new session."""

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator

    def begin(self) -> None:
        self._initializer = self._iterator.initializer

    def after_create_session(self, session: BaseSession, coord: Coordinator) -> None:
        session.run(self._initializer)


def call_input_fn(
    input_fn: Callable[..., Any], mode: str, params: Any, config: RunConfig, part: InputContext | None = None
) -> Any:
    """The result of the user's function, called with those of mode, params and config that it names.

    With a strategy, ``part`` is its ``input_context``.

    Its ops are on a CPU of the task that trains, evaluates or predicts.

    Raises:
      TypeError: ``input_fn`` is no function.
    """
    if not callable(input_fn):
        kind = "Dataset" if isinstance(input_fn, Dataset) else type(input_fn).__name__
        raise TypeError(f"input_fn must be a function that returns features and labels, or a dataset; got a {kind}.")
    offered = {"mode": mode, "params": params, "config": config, **({"input_context": part} if part else {})}
    with device("/cpu:0"):
        return input_fn(**known_arguments(input_fn, offered))


@export("tensorflow.python.estimator.util.parse_input_fn_result")
def features_and_labels(result: object) -> tuple[Any, Any, list[SessionRunHook]]:
    """(features, labels or None, hooks) of what an input function returned: tensors or a dataset.

    Raises:
      ValueError: when it is a tuple or list of other than two members, or has a tensor of another graph.
    """
    hooks: list[SessionRunHook] = []
    if isinstance(result, Dataset):
        iterator = result.make_initializable_iterator()
        hooks.append(DatasetInitializerHook(iterator))
        result = iterator.get_next()
    if isinstance(result, (tuple, list)):
        if len(result) != 2:
            raise ValueError("input_fn should return (features, labels) as a len 2 tuple.")
        _check_graph("features", result[0])
        _check_graph("labels", result[1])
        return result[0], result[1], hooks
    _check_graph("features", result)
    return result, None, hooks


def _check_graph(what: str, values: object) -> None:
    if isinstance(values, Mapping):
        for name, value in values.items():
            _check_graph(f"{what}[{name!r}]", value)
    elif isinstance(values, Tensor) and values.graph is not get_default_graph():
        raise ValueError(f"input_fn returned {what} of another graph, {values}: make its tensors inside of input_fn.")
