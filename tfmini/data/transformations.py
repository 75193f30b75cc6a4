"""Transformations of ``tf.data.experimental`` and ``tf.contrib.data``, for `Dataset.apply`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfmini import dtypes
from tfmini.core_types import DTypeLike, TensorLike
from tfmini.data import function_stages
from tfmini.data.dataset import Dataset
from tfmini.data.function_graph import trace
from tfmini.data.pipeline import components_of, element_of
from tfmini.data.stages import ignore_errors_dataset, sliding_window_dataset
from tfmini.data.structure import (
    ElementLike,
    Nested,
    ShapesLike,
    Structure,
    boolean,
    int64,
    normalized_state,
    same_types,
    shape_leaves,
    static_batch,
    structure_of,
)
from tfmini.export import export
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import count_ops
from tfmini.ops.array.identity import cast, ensure_shape
from tfmini.shapes import TensorShape

Transformation = Callable[[Dataset], Dataset]


@export("tf.contrib.data.batch_and_drop_remainder")
def batch_and_drop_remainder(batch_size: TensorLike) -> Transformation:
    """`Dataset.batch` without a smaller last batch."""
    return lambda dataset: dataset.batch(batch_size, drop_remainder=True)


@export("tf.contrib.data.padded_batch_and_drop_remainder")
def padded_batch_and_drop_remainder(
    batch_size: TensorLike, padded_shapes: ShapesLike, padding_values: TensorLike | Nested | None = None,
) -> Transformation:  # fmt: skip
    """`Dataset.padded_batch` without a smaller last batch."""
    return lambda dataset: dataset.padded_batch(batch_size, padded_shapes, padding_values, drop_remainder=True)


@export("tf.contrib.data.sliding_window_batch")
def sliding_window_batch(
    window_size: TensorLike, stride: TensorLike | None = None, window_shift: TensorLike | None = None,
    window_stride: TensorLike = 1,
) -> Transformation:  # fmt: skip
    """Batches of windows that slide over a dataset, without those that its end cuts off.

    Args:
      window_size: the elements of a window.
      stride: another name for ``window_shift``.
      window_shift: the distance of windows; 1 by default.
      window_stride: the distance of a window's elements.

    Raises:
      ValueError: when ``stride`` and ``window_shift`` are both given.
    """
    if stride is not None and window_shift is not None:
        raise ValueError("Cannot specify both `stride` and `window_shift`")
    given = (("window_size", window_size), ("window_stride", window_stride),
             ("window_shift", next((shift for shift in (stride, window_shift) if shift is not None), 1)))  # fmt: skip

    def transform(dataset: Dataset) -> Dataset:
        size, step, shift = (int64(value, label) for label, value in given)
        return dataset._then(sliding_window_dataset, size, shift, step, structure=dataset._structure.batched(None))

    return transform


@export("tf.contrib.data.assert_element_shape")
def assert_element_shape(expected_shapes: ShapesLike) -> Transformation:
    """Gives the elements these static shapes, and refuses elements of others; None and unknown shapes are any.

    Raises:
      ValueError: (of the transformation) when the static shapes of the elements are others.
    """

    def transform(dataset: Dataset) -> Dataset:
        structure = dataset._structure
        shapes = [TensorShape(shape) for shape in shape_leaves(structure, expected_shapes)]

        def checked(*parts: Any) -> Any:
            leaves = shape_leaves(structure, parts if isinstance(structure.skeleton, tuple) else parts[0])
            pairs = zip(leaves, shapes)
            return structure.pack([leaf if shape.ndims is None else ensure_shape(leaf, shape) for leaf, shape in pairs])

        return dataset.map(checked)

    return transform


@export("tf.contrib.data.shuffle_and_repeat", "tf.data.experimental.shuffle_and_repeat")
def shuffle_and_repeat(
    buffer_size: TensorLike, count: TensorLike | None = None, seed: TensorLike | None = None
) -> Transformation:
    """`Dataset.shuffle` and then `Dataset.repeat`."""

    def transform(dataset: Dataset) -> Dataset:
        count_ops(-1)
        return dataset.shuffle(buffer_size, seed=seed).repeat(count)

    return transform


def shuffled_and_repeated(
    dataset: Dataset, num_epochs: int | None, shuffle: bool, buffer_size: int, seed: object
) -> Dataset:
    """Shuffles records if ``shuffle`` and repeats them ``num_epochs`` times (None: without end)."""
    if shuffle:
        dataset = dataset.shuffle(buffer_size, seed)
    return dataset if num_epochs == 1 else dataset.repeat(num_epochs)


@export("tf.contrib.data.map_and_batch", "tf.data.experimental.map_and_batch")
def map_and_batch(
    map_func: Callable[..., Any], batch_size: TensorLike, num_parallel_batches: TensorLike | None = None,
    drop_remainder: TensorLike = False, num_parallel_calls: TensorLike | None = None,
) -> Transformation:  # fmt: skip
    """`Dataset.map` and then `Dataset.batch`; an element that fails makes its whole batch fail.

    Raises:
      ValueError: when both kinds of parallelism are given.
    """
    if num_parallel_batches is not None and num_parallel_calls is not None:
        raise ValueError("The `num_parallel_batches` and `num_parallel_calls` arguments are mutually exclusive.")
    parallel = num_parallel_calls if num_parallel_calls is not None else num_parallel_batches

    def transform(dataset: Dataset) -> Dataset:
        traced = dataset._trace(map_func, "map_and_batch")
        size, drop = int64(batch_size, "batch_size"), boolean(drop_remainder, "drop_remainder")
        calls = int64(1 if parallel is None else parallel, "num_parallel_calls")
        return dataset._then(
            function_stages.map_and_batch_dataset, traced.captures, size, calls, drop, f=traced.body,
            preserve_cardinality=True, structure=traced.structure.batched(static_batch(size, drop)),
        )  # fmt: skip

    return transform


@export("tf.contrib.data.parallel_interleave", "tf.data.experimental.parallel_interleave")
def parallel_interleave(
    map_func: Callable[..., Any], cycle_length: TensorLike, block_length: TensorLike = 1, sloppy: bool = False,
    buffer_output_elements: TensorLike | None = None, prefetch_input_elements: TensorLike | None = None,
) -> Transformation:  # fmt: skip
    """`Dataset.interleave`; the order is deterministic even if ``sloppy`` permits another."""

    def transform(dataset: Dataset) -> Dataset:
        count_ops(2)
        return dataset.interleave(map_func, cycle_length, block_length, num_parallel_calls=cycle_length)

    return transform


@export("tf.data.experimental.map_and_batch_with_legacy_function")
def map_and_batch_with_legacy_function(*args: Any, **kwargs: Any) -> Transformation:
    """The same as `map_and_batch`."""
    return map_and_batch(*args, **kwargs)


@export("tf.contrib.data.unbatch", "tf.data.experimental.unbatch")
def unbatch() -> Transformation:
    """`Dataset.unbatch`."""
    return lambda dataset: dataset.unbatch()


@export("tf.contrib.data.enumerate_dataset", "tf.data.experimental.enumerate_dataset")
def enumerate_dataset(start: TensorLike = 0) -> Transformation:
    """`Dataset.enumerate`."""
    return lambda dataset: dataset.enumerate(start)


@export("tf.contrib.data.ignore_errors", "tf.data.experimental.ignore_errors")
def ignore_errors() -> Transformation:
    """Drops the elements whose computation fails."""
    return lambda dataset: dataset._then(ignore_errors_dataset)


@export("tf.data.experimental.copy_to_device")
def copy_to_device(target_device: str, source_device: str = "/cpu:0") -> Transformation:
    """The dataset itself; ``target_device`` must be the iterator's device."""
    return lambda dataset: dataset


@export("tf.contrib.data.prefetch_to_device", "tf.data.experimental.prefetch_to_device")
def prefetch_to_device(device: str, buffer_size: TensorLike | None = None) -> Transformation:
    """`Dataset.prefetch`; ``device`` must be the iterator's device."""
    return lambda dataset: dataset.prefetch(1 if buffer_size is None else buffer_size)


@export("tf.contrib.data.scan", "tf.data.experimental.scan")
def scan(
    initial_state: ElementLike,
    scan_func: Callable[[Any, Any], Any],
) -> Transformation:
    """The results of ``scan_func(state, element) -> (state, result)``, called for each element in turn."""

    def transform(dataset: Dataset) -> Dataset:
        state = normalized_state(initial_state)
        begin = structure_of(state)
        structure, traced = begin, trace(scan_func, [begin, dataset._structure], "scan", unpack=False)
        for _ in range(2):  # the second time with the dimensions that change unknown
            new_state, result = _pair(traced.structure)
            structure = same_types(structure, new_state, "scan_func")
            traced = trace(scan_func, [structure, dataset._structure], "scan", unpack=False)
        initial, handle = components_of(state), function_stages.scan_dataset
        return dataset._then(handle, initial, traced.captures, f=traced.body, structure=result)

    return transform


def _pair(structure: Structure) -> tuple[Structure, Structure]:
    if not isinstance(structure.skeleton, tuple) or len(structure.skeleton) != 2:
        raise TypeError("The scan function must return a pair comprising the new state and the output value.")
    state, result = structure.skeleton
    return Structure(state), Structure(result)


@export("tf.contrib.data.get_single_element", "tf.data.experimental.get_single_element")
def get_single_element(dataset: Dataset) -> Any:
    """The only element of a dataset, as tensors.

    Running them raises `InvalidArgumentError` unless the dataset has exactly one element.
    """
    structure = dataset._structure
    components = function_stages.single_element(dataset._variant_tensor, **structure.attrs)
    return element_of(structure, components)


@export("tf.data.experimental.cardinality")
def cardinality(dataset: Dataset) -> Tensor:
    """The number of elements, a scalar int64; `INFINITE` (-1) without end, `UNKNOWN` (-2) if only reading tells."""
    return function_stages.cardinality_op(dataset._variant_tensor)


@export("tf.contrib.data.Counter", "tf.data.experimental.Counter")
def Counter(start: TensorLike = 0, step: TensorLike = 1, dtype: DTypeLike = dtypes.int64) -> Dataset:
    """The numbers ``start``, ``start + step``, … of ``dtype``, without end."""
    count_ops(2)
    return Dataset.range(0, 2**63 - 1).map(lambda i: cast(start, dtype) + cast(i, dtype) * cast(step, dtype))


# ---- pools of threads: the process's own serve all data sets --------------------------------------------------------


@export("tensorflow.contrib.data.python.ops.threadpool.PrivateThreadPool")
class PrivateThreadPool:
    """Threads for one data set; the sizes say how fast elements come, so they are not kept.

    Args:
      num_threads: the number of threads.
      display_name: the name of the pool.
      max_intra_op_parallelism: how many threads an op of the data set may use.
    """

    def __init__(self, num_threads: int, display_name: str | None = None, max_intra_op_parallelism: int = 1) -> None:
        self.num_threads, self.display_name = num_threads, display_name


@export("tensorflow.contrib.data.python.ops.threadpool.override_threadpool")
def override_threadpool(dataset: Dataset, thread_pool: PrivateThreadPool) -> Dataset:
    """Returns the data set as it is."""
    return dataset
