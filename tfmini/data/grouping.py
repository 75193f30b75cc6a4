"""Grouping by key (``tf.data.experimental``): windows per key, buckets by length, reduction per key.

Each function stands below its op and the op's stage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tfmini import dtypes, errors
from tfmini.data.dataset import Dataset
from tfmini.data.dataset_arguments import same_types
from tfmini.data.dataset_ops import TYPES, dataset_op, stages_of
from tfmini.data.function_graph import trace
from tfmini.data.pipeline import Element, Function, FunctionSource, Stage
from tfmini.data.pipeline import Transformation as Stages
from tfmini.data.reading import Reading
from tfmini.data.structure import Leaf, Structure, shape_leaves
from tfmini.export import export
from tfmini.graph.families import Tensor, control_dependencies, convert_to_tensor, name_scope
from tfmini.ops.array.casting import cast
from tfmini.ops.array.constant import constant
from tfmini.ops.debugging.value_checks import assert_less
from tfmini.ops.math.comparison import less_equal
from tfmini.ops.math.reduce_functions import reduce_sum
from tfmini.shapes import as_raw

Transformation = Callable[[Dataset], Dataset]
_KEY = Structure(Leaf(Tensor, dtypes.int64, ()))


def _number(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Wraps a function to return an int64 scalar; it raises ValueError if the result is none."""

    def converted(*args: Any) -> Any:
        try:
            result = convert_to_tensor(function(*args), dtype=dtypes.int64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"`{name}` must return a single tf.int64 tensor. {error}") from error
        if result.shape.ndims not in (None, 0):
            raise ValueError(f"`{name}` must return a single tf.int64 tensor. Got shape={result.shape}")
        return result

    return converted


def _with_functions(*names: str) -> tuple[str, str]:
    """Inputs and attrs of an op with several functions: each function with the values that it captures."""
    inputs = ", ".join(f"{name}_other_arguments: T{name}_other_arguments" for name in names)
    attrs = "; ".join(f"{name}: func; T{name}_other_arguments: list(type) >= 0" for name in names)
    return f"input_dataset: variant, {inputs}", f"{attrs}; {TYPES}"


def _key(function: Function, reading: Reading, element: Element) -> int:
    """The key of an element.

    Raises:
      InvalidArgumentError: when the function returns no scalar.
    """
    (key,) = function(reading, *element)
    if np.ndim(key):
        raise errors.InvalidArgumentError.of("`key_func` must return a scalar int64.")
    return int(key)


group_by_window_dataset = dataset_op(
    "GroupByWindowDataset", *_with_functions("key_func", "reduce_func", "window_size_func")
)


@stages_of(group_by_window_dataset)
@dataclass(eq=False)
class _Windows(Stages):
    """Collects elements by key, and reads the datasets that ``reduce_func(key, window)`` returns for full windows."""

    key_func: Function
    reduce_func: Function
    window_size_func: Function
    _groups: dict[int, list[Element]] = field(default_factory=dict, init=False)
    _sizes: dict[int, int] = field(default_factory=dict, init=False)
    _result: Stage | None = field(default=None, init=False)
    _over: bool = field(default=False, init=False)

    def __next__(self) -> Element:
        while True:
            if self._result is not None:
                try:
                    return next(self._result)
                except StopIteration:
                    self._result.close()
                    self._result = None
            self.reading.check()
            if self._over and not self._groups:
                raise StopIteration
            self._collect()

    def _collect(self) -> None:
        """Takes one more element; after the last one, opens the incomplete windows in the order of their keys."""
        try:
            element = next(self.upstream) if not self._over else None
        except StopIteration:
            self._over = True
            element = None
        if element is None:
            if self._groups:
                self._open(min(self._groups))
            return
        key = _key(self.key_func, self.reading, element)
        if key not in self._sizes:
            self._sizes[key] = self._window_size(key)
        group = self._groups.setdefault(key, [])
        group.append(element)
        if len(group) >= self._sizes[key]:
            self._open(key)

    def _window_size(self, key: int) -> int:
        (size,) = self.window_size_func(self.reading, np.int64(key))
        if np.ndim(size) or size <= 0:
            text = f"Window size must be greater than zero, but got {size}."
            raise errors.InvalidArgumentError.of(text)
        return int(size)

    def _open(self, key: int) -> None:
        elements = self._groups.pop(key)
        window = FunctionSource(lambda _: iter(elements))
        (result,) = self.reduce_func(self.reading, np.int64(key), window)
        self._result = result.open(self.reading)

    def close(self) -> None:
        if self._result is not None:
            self._result.close()
        super().close()


@export("tf.contrib.data.group_by_window", "tf.data.experimental.group_by_window")
def group_by_window(
    key_func: Callable[..., Any], reduce_func: Callable[[Any, Any], Any], window_size: Any = None,
    window_size_func: Callable[[Any], Any] | None = None,
) -> Transformation:  # fmt: skip
    """Collects elements with the same key into windows and reduces each window with ``reduce_func``.

    Args:
      key_func: element -> int64 scalar.
      reduce_func: (key, dataset of the window's elements) -> dataset with the results.
      window_size: maximum number of elements in a window.
      window_size_func: key -> maximum number of elements in a window of that key.

    Raises:
      ValueError: when both sizes or neither are given, or a key or size is no int64 scalar.
      TypeError: when ``reduce_func`` returns no dataset.
    """
    if (window_size is None) == (window_size_func is None):
        raise ValueError("Must pass either window_size or window_size_func.")
    if window_size_func is None:
        size = convert_to_tensor(window_size, dtype=dtypes.int64)
        window_size_func = lambda _: size  # noqa: E731

    def transform(dataset: Dataset) -> Dataset:
        key = dataset._trace(_number(key_func, "key_func"), "key_func")
        sizes = trace(_number(window_size_func, "window_size_func"), [_KEY], "window_size_func")
        window = Structure(Leaf(Dataset, None, (), dataset._structure))
        reduce = trace(reduce_func, [_KEY, window], "reduce_func", unpack=False)
        result = reduce.structure.skeleton
        if not isinstance(result, Leaf) or result.inner is None:
            raise TypeError("`reduce_func` must return a `Dataset` object.")
        return dataset._then(
            group_by_window_dataset, key.captures, reduce.captures, sizes.captures, key_func=key.body,
            reduce_func=reduce.body, window_size_func=sizes.body, structure=result.inner,
        )  # fmt: skip

    return transform


@export("tf.contrib.data.bucket_by_sequence_length", "tf.data.experimental.bucket_by_sequence_length")
def bucket_by_sequence_length(
    element_length_func: Callable[..., Any], bucket_boundaries: Sequence[int], bucket_batch_sizes: Sequence[int],
    padded_shapes: Any = None, padding_values: Any = None, pad_to_bucket_boundary: bool = False,
    no_padding: bool = False, drop_remainder: bool = False,
) -> Transformation:  # fmt: skip
    """Padded batches of elements of similar lengths.

    Args:
      element_length_func: element -> its length.
      bucket_boundaries: increasing lengths; each is the first of the next bucket.
      bucket_batch_sizes: batch size per bucket; there is one bucket more than boundaries.
      padded_shapes, padding_values: as in `Dataset.padded_batch`; by default unknown dimensions are padded.
      pad_to_bucket_boundary: pad to the bucket's upper boundary less one, rather than to the longest element.
      no_padding: batch without padding.
      drop_remainder: drop incomplete batches.

    Raises:
      ValueError: when the numbers of batch sizes and boundaries do not match.
    """
    if len(bucket_batch_sizes) != len(bucket_boundaries) + 1:
        raise ValueError("len(bucket_batch_sizes) must equal len(bucket_boundaries) + 1")
    bounds = np.array(bucket_boundaries, np.int64)
    sizes = np.array(bucket_batch_sizes, np.int64)

    def bucket_of(*element: Any) -> Any:
        length = convert_to_tensor(element_length_func(*element))
        return reduce_sum(cast(less_equal(constant(bounds), cast(length, dtypes.int64)), dtypes.int64))

    def size_of(bucket: Any) -> Any:
        return constant(sizes)[bucket]

    def batch(bucket: Any, window: Dataset) -> Dataset:
        size = size_of(bucket)
        if no_padding:
            return window.batch(size, drop_remainder=drop_remainder)
        longest = _boundary(bucket, bounds) if pad_to_bucket_boundary else None
        shapes = _filled(window._structure, padded_shapes, longest)
        return window.padded_batch(size, shapes, padding_values, drop_remainder=drop_remainder)

    def transform(dataset: Dataset) -> Dataset:
        with name_scope("bucket_by_seq_length"):
            return group_by_window(bucket_of, batch, window_size_func=size_of)(dataset)

    return transform


def _boundary(bucket: Any, bounds: Any) -> Any:
    """The greatest length of a bucket; running it fails for the last bucket, which is unbounded."""
    message = "When pad_to_bucket_boundary=True, elements must have length < max(bucket_boundaries)."
    check = assert_less(bucket, np.int64(len(bounds)), message=message)
    with control_dependencies([check]):
        return constant(bounds)[bucket] - 1


def _filled(structure: Structure, given: Any, longest: Any) -> Any:
    """Padded shapes, nested like an element, with ``longest`` (or None) in place of unknown dimensions."""

    raws = [leaf.shape for leaf in structure.leaves] if given is None else shape_leaves(structure, given)
    rows = [[longest if d is None or d == -1 else d for d in as_raw(raw) or ()] for raw in raws]
    if longest is not None:
        rows = [convert_to_tensor(row, dtype=dtypes.int64) if row else np.zeros(0, np.int64) for row in rows]  # type: ignore[misc]
    return structure.pack(rows)


group_by_reducer_dataset = dataset_op(
    "GroupByReducerDataset", *_with_functions("key_func", "init_func", "reduce_func", "finalize_func")
)


@stages_of(group_by_reducer_dataset)
@dataclass(eq=False)
class _Reductions(Stages):
    """One element per key, in the order of the keys: ``finalize_func`` of the reduced state."""

    key_func: Function
    init_func: Function
    reduce_func: Function
    finalize_func: Function
    _states: dict[int, Element] = field(default_factory=dict, init=False)
    _results: Iterator[Element] | None = field(default=None, init=False)

    def __next__(self) -> Element:
        if self._results is None:
            for element in self.upstream:
                self.reading.check()
                self._reduce(element)
            self._results = iter([self._states[key] for key in sorted(self._states)])
        return self.finalize_func(self.reading, *next(self._results))

    def _reduce(self, element: Element) -> None:
        key = _key(self.key_func, self.reading, element)
        if key not in self._states:
            self._states[key] = self.init_func(self.reading, np.int64(key))
        self._states[key] = self.reduce_func(self.reading, *self._states[key], *element)


@export("tf.contrib.data.Reducer", "tf.data.experimental.Reducer")
class Reducer:
    """The functions of a reduction (``tf.data.experimental.Reducer``).

    Args:
      init_func: key -> state.
      reduce_func: (state, element) -> state.
      finalize_func: state -> result.
    """

    def __init__(
        self, init_func: Callable[[Any], Any], reduce_func: Callable[..., Any], finalize_func: Callable[..., Any]
    ) -> None:
        self.init_func = init_func
        self.reduce_func = reduce_func
        self.finalize_func = finalize_func


@export("tf.contrib.data.group_by_reducer", "tf.data.experimental.group_by_reducer")
def group_by_reducer(key_func: Callable[..., Any], reducer: Reducer) -> Transformation:
    """Reduces the elements of each key; yields the results in the order of the keys after the last element.

    Args:
      key_func: element -> int64 scalar.
      reducer: the functions that make, update and finalize the state of a key.

    Raises:
      ValueError: when ``key_func`` returns no int64 scalar.
      TypeError: when the types of the state change.
    """

    def transform(dataset: Dataset) -> Dataset:
        key = dataset._trace(_number(key_func, "key_func"), "key_func")
        init = trace(reducer.init_func, [_KEY], "init_func")
        state = init.structure
        for _ in range(2):  # the second time with the dimensions that change unknown
            reduce = trace(reducer.reduce_func, [state, dataset._structure], "reduce_func", unpack=False)
            state = same_types(state, reduce.structure, "reducer.reduce_func")
        finalize = trace(reducer.finalize_func, [state], "finalize_func")
        return dataset._then(
            group_by_reducer_dataset, key.captures, init.captures, reduce.captures, finalize.captures,
            key_func=key.body, init_func=init.body, reduce_func=reduce.body, finalize_func=finalize.body,
            structure=finalize.structure,
        )  # fmt: skip

    return transform
