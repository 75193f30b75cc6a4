"""Dataset ops without functions: each kernel returns a `Source`, in a variant tensor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tfmini import errors
from tfmini.data import stages
from tfmini.data.cache_file import FileCacheSource
from tfmini.data.components import SparseValue
from tfmini.data.function_stages import ignore_errors, unbatch
from tfmini.data.padding import padded_combiner
from tfmini.data.pipeline import Element, FunctionSource, Source, rows_of
from tfmini.data.prefetching import PrefetchSource
from tfmini.graph.families import Operation, OpHandle, op
from tfmini.ops.kept_values import own, own_all
from tfmini.ops.py_func import functions, status_of
from tfmini.shapes import RawShape

TYPES = "output_types: list(type) >= 1; output_shapes: list(shape) >= 1"


def dataset_op(name: str, inputs: str, attrs: str = TYPES, waits: bool = False) -> OpHandle:
    """Declares an op that makes a dataset; it is stateful so that no graph pass folds or merges it.

    Args:
      waits: the dataset's elements may come late, from another thread or from a function of the user.
    """
    handle: OpHandle = op(
        f"{name}({inputs}) -> handle: variant; {attrs}", stateful=True, waits=waits, keeps=True, shape=[()]
    )
    handle.not_differentiable()
    return handle


def element_shapes(node: Operation) -> list[RawShape]:
    """The shape function of ops that return an element: the shapes in the attr ``output_shapes``."""
    return list(node.attrs["output_shapes"])


_COMPONENTS = "Toutput_types: list(type) >= 1; output_shapes: list(shape) >= 1"
tensor_dataset = dataset_op("TensorDataset", "components: Toutput_types", _COMPONENTS)
tensor_slice_dataset = dataset_op("TensorSliceDataset", "components: Toutput_types", _COMPONENTS)
range_dataset = dataset_op("RangeDataset", "start: int64, stop: int64, step: int64")
# Our own op: TensorFlow's GeneratorDataset calls three functions that wrap PyFunc ops.
generator_dataset = dataset_op(
    "_PyGeneratorDataset", "args: Targs", f"token: string; Targs: list(type) >= 0; {TYPES}", waits=True
)
zip_dataset = dataset_op("ZipDataset", "input_datasets: N * variant", f"{TYPES}; N: int >= 1")
zip_dataset.kernel("CPU")(lambda sources: stages.ZipSource(list(sources)))
concatenate_dataset = dataset_op("ConcatenateDataset", "input_dataset: variant, another_dataset: variant")
concatenate_dataset.kernel("CPU")(lambda first, second: stages.ConcatenateSource([first, second]))
repeat_dataset = dataset_op("RepeatDataset", "input_dataset: variant, count: int64")
repeat_dataset.kernel("CPU")(lambda source, count: stages.RepeatSource(source, int(count)))
take_dataset = dataset_op("TakeDataset", "input_dataset: variant, count: int64")
take_dataset.kernel("CPU")(lambda source, count: stages.take(source, int(count)))
skip_dataset = dataset_op("SkipDataset", "input_dataset: variant, count: int64")
skip_dataset.kernel("CPU")(lambda source, count: stages.skip(source, int(count)))
shard_dataset = dataset_op("ShardDataset", "input_dataset: variant, num_shards: int64, index: int64")
shard_dataset.kernel("CPU")(lambda source, num_shards, index: stages.shard(source, int(num_shards), int(index)))
shuffle_dataset = dataset_op(
    "ShuffleDataset",
    "input_dataset: variant, buffer_size: int64, seed: int64, seed2: int64",
    f"reshuffle_each_iteration: bool = true; {TYPES}",
)
cache_dataset = dataset_op("CacheDataset", "input_dataset: variant, filename: string")
prefetch_dataset = dataset_op(
    "PrefetchDataset", "input_dataset: variant, buffer_size: int64", f"{TYPES}; slack_period: int = 0", waits=True
)
batch_dataset = dataset_op(
    "BatchDatasetV2",
    "input_dataset: variant, batch_size: int64, drop_remainder: bool",
    f"parallel_copy: bool = false; {TYPES}",
)
batch_dataset.kernel("CPU")(lambda source, size, drop_remainder: stages.batch(source, int(size), bool(drop_remainder)))
padded_batch_dataset = dataset_op(
    "PaddedBatchDatasetV2",
    "input_dataset: variant, batch_size: int64, padded_shapes: N * int64, padding_values: Toutput_types,"
    " drop_remainder: bool",
    f"parallel_copy: bool = false; {_COMPONENTS}; N: int >= 1",
)
window_dataset = dataset_op(
    "WindowDataset", "input_dataset: variant, size: int64, shift: int64, stride: int64, drop_remainder: bool"
)
unbatch_dataset = dataset_op("UnbatchDataset", "input_dataset: variant")
unbatch_dataset.kernel("CPU")(lambda source: unbatch(source))
ignore_errors_dataset = dataset_op("IgnoreErrorsDataset", "input_dataset: variant")
ignore_errors_dataset.kernel("CPU")(lambda source: ignore_errors(source))


# ---- sources --------------------------------------------------------------------------------


def _own(component: Any) -> Any:
    """`kept_values.own`, also of the arrays of a sparse tensor."""
    return SparseValue(*own_all(component)) if isinstance(component, SparseValue) else own(component)


@tensor_dataset.kernel("CPU")
def _tensors(components: list[Any]) -> Source:
    element = tuple(_own(component) for component in components)
    return FunctionSource(lambda _: iter([element]), 1)


@tensor_slice_dataset.kernel("CPU")
def _slices(components: list[Any]) -> Source:
    kept = [_own(component) for component in components]
    lengths = [int(c.dense_shape[0]) if hasattr(c, "dense_shape") else len(c) for c in kept]
    if len(set(lengths)) > 1:
        text = f"All components must have the same size in the 0th dimension, not {lengths}."
        raise errors.InvalidArgumentError.of(text)
    return FunctionSource(lambda _: zip(*[rows_of(component) for component in kept]), lengths[0])


@range_dataset.kernel("CPU")
def _range(start: Any, stop: Any, step: Any) -> Source:
    if step == 0:
        raise errors.InvalidArgumentError.of("step must be a non-zero integer.")
    bounds = range(int(start), int(stop), int(step))
    return FunctionSource(lambda _: ((np.int64(i),) for i in bounds), len(bounds))


@generator_dataset.kernel("CPU")
def _generator(args: list[Any], *, token: bytes) -> Source:
    begin = functions.find(token.decode())
    if begin is None:
        text = f"generator {token.decode()} is not found: only the process that built its graph can run it."
        raise errors.InvalidArgumentError.of(text)
    kept = own_all(args)
    return FunctionSource(lambda _: _Translated(begin(*kept)))


class _Translated:
    """Translates the exceptions of a user's generator to `OpError`."""

    def __init__(self, elements: Iterator[Element]) -> None:
        self._elements = elements

    def __iter__(self) -> Iterator[Element]:
        return self

    def __next__(self) -> Element:
        try:
            return next(self._elements)
        except StopIteration:
            raise
        except Exception as error:  # a user's generator may raise anything; the class decides the status
            raise status_of(error) from error

    def close(self) -> None:
        getattr(self._elements, "close", lambda: None)()


# ---- transformations ------------------------------------------------------------------------


@shuffle_dataset.kernel("CPU")
def _shuffle(source: Source, size: Any, seed: Any, seed2: Any, *, reshuffle_each_iteration: bool) -> Source:
    return stages.ShuffleSource(source, int(size), (int(seed), int(seed2)), reshuffle_each_iteration)


@cache_dataset.kernel("CPU")
def _cache(source: Source, filename: Any, *, output_types: list[Any]) -> Source:
    path = np.asarray(filename, object).item().decode()
    return FileCacheSource(source, path, len(output_types)) if path else stages.CacheSource(source)


@prefetch_dataset.kernel("CPU")
def _prefetch(source: Source, size: Any) -> Source:
    if size < -1:
        raise errors.InvalidArgumentError.of("buffer_size must be >= 0 or set buffer_size to be -1.")
    return PrefetchSource(source, int(size))


@padded_batch_dataset.kernel("CPU")
def _padded_batch(source: Source, size: Any, shapes: list[Any], values: list[Any], drop_remainder: Any) -> Source:
    return stages.batch(source, int(size), bool(drop_remainder), padded_combiner(shapes, own_all(values)))


@window_dataset.kernel("CPU")
def _window(source: Source, size: Any, shift: Any, stride: Any, drop_remainder: Any) -> Source:
    return stages.window(source, int(size), int(shift), int(stride), bool(drop_remainder))
