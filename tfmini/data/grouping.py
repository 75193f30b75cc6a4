"""Grouping by key (``tf.data.experimental``): windows per key, buckets by length, reduction per key.

Each function stands below its op and the op's stage.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tfmini import dtypes, errors
from tfmini.core_types import Array, ShapeLike, TensorLike
from tfmini.data.dataset import Dataset, RandomDataset
from tfmini.data.dataset_ops import TYPES, dataset_op, stages_of
from tfmini.data.function_graph import trace
from tfmini.data.function_stages import ON, PREDICATE
from tfmini.data.pipeline import TURN, Element, Function, FunctionSource, Reading, Source, SparseValue, Stage
from tfmini.data.pipeline import Transformation as Stages
from tfmini.data.stages import Batch
from tfmini.data.structure import Leaf, Nested, ShapesLike, Structure, int64, same_types, shape_leaves
from tfmini.data.transformations import scan
from tfmini.export import export
from tfmini.graph import nest
from tfmini.graph.families import Tensor, control_dependencies, convert_to_tensor, name_scope
from tfmini.graph.scoping import count_ops
from tfmini.ops.array.constant import constant
from tfmini.ops.array.identity import cast
from tfmini.ops.array.shape import expand_dims, squeeze
from tfmini.ops.checks import assert_less
from tfmini.ops.composites import SparseTensor
from tfmini.ops.flow import autograph
from tfmini.ops.flow.cond import cond
from tfmini.ops.math.comparison import less_equal
from tfmini.ops.math.reductions import reduce_sum
from tfmini.ops.math.unary import log
from tfmini.ops.random_functions import stateless_multinomial
from tfmini.shapes import as_raw, compatible_raw

Transformation = Callable[[Dataset], Dataset]
_KEY = Structure(Leaf(Tensor, dtypes.int64, ()))


def _number(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Wraps a function to return an int64 scalar; it raises ValueError if the result is none."""

    def converted(*args: object) -> Any:
        try:
            result = convert_to_tensor(autograph.call(function, args, {}), dtype=dtypes.int64)
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
    key_func: Callable[..., Any], reduce_func: Callable[[Any, Any], Any], window_size: TensorLike | None = None,
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
        count_ops(-1)
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
    padded_shapes: ShapesLike | None = None,
    padding_values: TensorLike | Nested | None = None,
    pad_to_bucket_boundary: bool = False, no_padding: bool = False, drop_remainder: bool = False,
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

    def bucket_of(*element: object) -> Any:
        length = convert_to_tensor(autograph.call(element_length_func, element, {}))
        return reduce_sum(cast(less_equal(constant(bounds), cast(length, dtypes.int64)), dtypes.int64))

    def size_of(bucket: TensorLike) -> Any:
        return constant(sizes)[bucket]

    def batch(bucket: TensorLike, window: Dataset) -> Dataset:
        size = size_of(bucket)
        if no_padding:
            return window.batch(size, drop_remainder=drop_remainder)
        longest = _boundary(bucket, bounds) if pad_to_bucket_boundary else None
        shapes = _filled(window._structure, padded_shapes, longest)
        return window.padded_batch(size, shapes, padding_values, drop_remainder=drop_remainder)

    def transform(dataset: Dataset) -> Dataset:
        with name_scope("bucket_by_seq_length"):
            count_ops(1)
            return group_by_window(bucket_of, batch, window_size_func=size_of)(dataset)

    return transform


def _boundary(bucket: TensorLike, bounds: Array) -> Any:
    """The greatest length of a bucket; running it fails for the last bucket, which is unbounded."""
    message = "When pad_to_bucket_boundary=True, elements must have length < max(bucket_boundaries)."
    check = assert_less(bucket, np.int64(len(bounds)), message=message)
    with control_dependencies([check]):
        return constant(bounds)[bucket] - 1


def _filled(structure: Structure, given: object, longest: object) -> Any:
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


# ---- selection ----------------------------------------
# Selection of elements (``tf.data.experimental``): by a choice, by chance, by a predicate; and sparse batches.
# Each function stands below its op and the op's stage.

directed_interleave_dataset = dataset_op(
    "DirectedInterleaveDataset",
    "selector_input_dataset: variant, data_input_datasets: N * variant",
    f"{TYPES}; N: int >= 1; stop_on_empty_dataset: bool = false",
)


@stages_of(directed_interleave_dataset, attrs=["stop_on_empty_dataset"])
@dataclass(eq=False)
class _Directed(Stages):
    """Yields from the dataset whose index comes from upstream; exhausted datasets are skipped."""

    data_input_datasets: list[Source]
    stop_on_empty_dataset: bool

    def __post_init__(self) -> None:
        self._stages: list[Stage | None] = [source.open(self.reading) for source in self.data_input_datasets]

    def __next__(self) -> Element:
        while any(stage is not None for stage in self._stages):
            self.reading.check()
            number = int(next(self.upstream)[0])
            if not 0 <= number < len(self._stages):
                text = f"Selector index out of range: {number} >= {len(self._stages)}"
                raise errors.InvalidArgumentError.of(text)
            stage = self._stages[number]
            if stage is None:
                continue
            try:
                return next(stage)
            except StopIteration:
                stage.close()
                self._stages[number] = None
                if self.stop_on_empty_dataset:
                    raise
        raise StopIteration

    def close(self) -> None:
        for stage in self._stages:
            if stage is not None:
                stage.close()
        super().close()


def _directed(selector: Dataset, datasets: Sequence[Dataset]) -> Dataset:
    structure = datasets[0]._structure
    for i, dataset in enumerate(datasets[1:], 1):
        if dataset.output_types != datasets[0].output_types or dataset.output_classes != datasets[0].output_classes:
            raise TypeError(
                f"Datasets to combine must have the same type and class. datasets[0]: {datasets[0]!r}; datasets[{i}]:"
                f" {dataset!r}."
            )
        structure = structure.common(dataset._structure)
    variants = [dataset._variant_tensor for dataset in datasets]
    return selector._then(directed_interleave_dataset, variants, structure=structure)


@export("tf.contrib.data.choose_from_datasets", "tf.data.experimental.choose_from_datasets")
def choose_from_datasets(datasets: Sequence[Dataset], choice_dataset: Dataset) -> Dataset:
    """Elements of several datasets, in the order that ``choice_dataset`` gives.

    Args:
      datasets: datasets whose elements have the same structure; exhausted datasets are skipped.
      choice_dataset: int64 scalars, from 0 to ``len(datasets) - 1``.

    Raises:
      TypeError: when choices are not int64 scalars, or the types of the datasets differ.
    """
    if not choice_dataset._structure.is_scalar(dtypes.int64):
        raise TypeError("`choice_dataset` must be a dataset of scalar `tf.int64` tensors.")
    return _directed(choice_dataset, datasets)


@export("tf.contrib.data.sample_from_datasets", "tf.data.experimental.sample_from_datasets")
def sample_from_datasets(
    datasets: Sequence[Dataset], weights: TensorLike | Dataset | None = None, seed: TensorLike | None = None
) -> Dataset:
    """Elements of several datasets in random order.

    Args:
      datasets: datasets whose elements have the same structure; exhausted datasets are skipped.
      weights: the datasets' probabilities, a vector of floats or a dataset of such vectors; default: uniform.
      seed: seed of the random choice.

    Raises:
      TypeError: when weights are not floats, or the types of the datasets differ.
      ValueError: when the number of weights is not that of the datasets.
    """
    if isinstance(weights, Dataset):
        logits_and_seeds = Dataset.zip((weights.map(lambda p: expand_dims(log(p), 0)), RandomDataset(seed).batch(2)))
        return _directed(logits_and_seeds.map(_drawn), datasets)
    if weights is None:
        logits: Any = np.ones((1, len(datasets)), np.float32)
    else:
        given = convert_to_tensor(weights, name="weights")
        if given.dtype.base_dtype not in (dtypes.float32, dtypes.float64):
            raise TypeError("`weights` must be convertible to a tensor of `tf.float32` or `tf.float64` elements.")
        if not compatible_raw(given.raw_shape, (len(datasets),)):
            raise ValueError("`weights` must be a vector of length `len(datasets)`.")
        logits = expand_dims(log(given, name="logits"), 0)
    if len(datasets) == 1:
        return datasets[0]
    return _directed(RandomDataset(seed).batch(2).map(lambda seeds: _drawn(logits, seeds)), datasets)


def _drawn(logits: Tensor, seeds: Tensor) -> Any:
    return squeeze(stateless_multinomial(logits, 1, seeds), [0, 1])


take_while_dataset = dataset_op("TakeWhileDataset", ON, PREDICATE)
unique_dataset = dataset_op("UniqueDataset", "input_dataset: variant")
dense_to_sparse_batch_dataset = dataset_op(
    "DenseToSparseBatchDataset", "input_dataset: variant, batch_size: int64, row_shape: int64"
)


@stages_of(take_while_dataset)
@dataclass(eq=False)
class _TakeWhile(Stages):
    """The elements before the first for which ``predicate`` is false."""

    predicate: Function
    _over: bool = field(default=False, init=False)

    def __next__(self) -> Element:
        if not self._over:
            element = next(self.upstream)
            (keep,) = self.predicate(self.reading, *element)
            if keep:
                return element
            self._over = True
        raise StopIteration


@export("tf.contrib.data.take_while", "tf.data.experimental.take_while")
def take_while(predicate: Callable[..., Any]) -> Transformation:
    """The elements before the first for which ``predicate`` is False.

    Raises:
      ValueError: when it does not return a scalar bool.
    """

    def transform(dataset: Dataset) -> Dataset:
        traced = dataset._trace_predicate(predicate, "take_while")
        return dataset._then(take_while_dataset, traced.captures, predicate=traced.body)

    return transform


@stages_of(unique_dataset)
@dataclass(eq=False)
class _Unique(Stages):
    """Drops the elements that occurred before."""

    _seen: set[Any] = field(default_factory=set, init=False)

    def __next__(self) -> Element:
        for element in self.upstream:
            self.reading.check()
            value = element[0] if isinstance(element[0], bytes) else element[0].tobytes()
            if value not in self._seen:
                self._seen.add(value)
                return element
        raise StopIteration


@export("tf.contrib.data.unique", "tf.data.experimental.unique")
def unique() -> Transformation:
    """Drops the elements that occurred before.

    Raises:
      TypeError: for elements that are not single int32, int64 or string tensors.
    """

    def transform(dataset: Dataset) -> Dataset:
        leaf = dataset._structure.skeleton
        if not isinstance(leaf, Leaf) or leaf.dtype not in (dtypes.int32, dtypes.int64, dtypes.string):
            raise TypeError("`tf.data.experimental.unique()` only supports inputs with a single `tf.int32`, `tf.int64`,"
                            " or `tf.string` component.")  # fmt: skip
        return dataset._then(unique_dataset)

    return transform


@stages_of(dense_to_sparse_batch_dataset, vectors=["row_shape"])
@dataclass(eq=False)
class _SparseBatch(Stages):
    """Batches dense elements of different sizes into sparse tensors."""

    batch_size: int
    row_shape: Any
    check = Batch.check

    def __post_init__(self) -> None:
        self._row_shape = [int(d) for d in np.atleast_1d(self.row_shape)]

    def __next__(self) -> Element:
        rows = []
        for (row,) in itertools.islice(self.upstream, self.batch_size):
            rows.append(np.asarray(row))
            if not len(rows) % TURN:
                self.reading.check()
        if not rows:
            raise StopIteration
        shape = np.array([len(rows), *self._row_shape], np.int64)
        for row in rows:
            self._check_row(row)
            for axis, extent in enumerate(row.shape):
                if self._row_shape[axis] < 0:
                    shape[axis + 1] = max(shape[axis + 1], extent)
        indices = [np.insert(np.indices(row.shape).reshape(row.ndim, -1).T, 0, i, axis=1) for i, row in enumerate(rows)]
        values = np.concatenate([row.ravel() for row in rows])
        return (SparseValue(np.concatenate(indices).astype(np.int64), values, shape),)

    def _check_row(self, row: Array) -> None:
        if row.ndim != len(self._row_shape):
            raise errors.InvalidArgumentError.of(
                f"Input element had shape ({list(row.shape)}) that is incompatible with the row shape"
                f" ({self._row_shape})."
            )
        for extent, limit in zip(row.shape, self._row_shape):
            if 0 <= limit < extent:
                text = f"Input element had shape ({list(row.shape)}) that is larger than the row shape."
                raise errors.DataLossError.of(text)


@export("tf.contrib.data.dense_to_sparse_batch", "tf.data.experimental.dense_to_sparse_batch")
def dense_to_sparse_batch(batch_size: TensorLike, row_shape: ShapeLike) -> Transformation:
    """Batches elements of different sizes into sparse tensors.

    Args:
      batch_size: number of elements in a batch.
      row_shape: the dense shape of one element; None for the largest in the batch.

    Raises:
      TypeError: for elements that are not single dense tensors.
    """

    def transform(dataset: Dataset) -> Dataset:
        leaf = dataset._structure.skeleton
        if not isinstance(leaf, Leaf) or leaf.kind is not Tensor:
            raise TypeError("DenseToSparseDataset requires an input whose elements are single dense tensors.")
        raw = as_raw([None if d == -1 else d for d in row_shape] if isinstance(row_shape, (list, tuple)) else row_shape)
        assert raw is not None
        vector = constant(np.array([-1 if d is None else d for d in raw], np.int64))
        structure = Structure(Leaf(SparseTensor, leaf.dtype, (None, *raw)))
        return dataset._then(
            dense_to_sparse_batch_dataset, int64(batch_size, "batch_size"), vector, structure=structure
        )

    return transform


def _loop_over(
    dataset: Dataset, extra_test: Callable[[], Any] | None, body: Callable[[Any], Any], state: autograph.Symbols
) -> None:
    """``for element in dataset`` in a function that AutoGraph has converted: a reduction to the symbols it changes."""
    begin = state.staged()
    spare = () if begin else (constant(0),)

    def enter(values: Sequence[Any]) -> None:
        whole = nest.pack_sequence_as([*begin.values()], values[: len(values) - len(spare)], expand_composites=True)
        state.put(dict(zip(begin, whole)))

    def step(values: Sequence[Any], element: Any) -> tuple[Any, ...]:
        enter(values)
        body(element)
        return (*nest.flatten(state.after_round(begin), expand_composites=True), *spare)

    def step_if(values: Sequence[Any], element: Any) -> Any:
        assert extra_test is not None
        enter(values)
        goes_on = convert_to_tensor(extra_test())
        following = cond(goes_on, lambda: [*step(values, element)], lambda: [*values], strict=True)
        return tuple(following), (tuple(following), goes_on)

    initial = (*nest.flatten([*begin.values()], expand_composites=True), *spare)
    if extra_test is None:
        enter(dataset.reduce(initial, step))
        return
    rounds = dataset.apply(scan(initial, step_if)).apply(take_while(lambda _, goes_on: goes_on))
    enter(rounds.reduce(initial, lambda _, following: following[0]))


autograph.LOOPS_OVER[Dataset] = _loop_over
