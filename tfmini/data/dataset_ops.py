"""Declaration of dataset ops, and those that make a dataset of tensors, generators, several datasets or cached files.

A kernel returns a `Source`, in a variant tensor. An op that reads one dataset needs a declaration and a class of
stages, which `stages_of` joins.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from tfmini import dtypes, errors
from tfmini.checkpoint import files
from tfmini.checkpoint.reader import BundleReader
from tfmini.checkpoint.writer import BundleWriter
from tfmini.core_types import Array, TensorLike
from tfmini.data.pipeline import (
    Count,
    Element,
    ElementWait,
    Function,
    FunctionSource,
    RaggedValue,
    Reading,
    Source,
    SparseValue,
    Stage,
    Transformation,
    compiled,
    count_rows,
    rows_of,
    shortest,
    total,
    unknown,
)
from tfmini.dtypes import int64
from tfmini.graph.families import Operation, OpHandle, op
from tfmini.graph.node import Node
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.py_func import functions, status_of
from tfmini.ops.queues.queue_state import QueueState
from tfmini.ops.waiting_line import own, own_all
from tfmini.shapes import RawShape

TYPES = "output_types: list(type) >= 1; output_shapes: list(shape) >= 1"
T = TypeVar("T", bound=type[Transformation])


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


def stages_of(
    handle: OpHandle, count: Callable[..., Count] = unknown, attrs: Sequence[str] = (), vectors: Sequence[str] = ()
) -> Callable[[T], T]:
    """Makes a class the stages of an op that reads one dataset.

    For each pass over the dataset a stage is made of the stage that it reads, the reading, and by name: the op's
    other inputs, scalars as Python values, and the op's functions, compiled with the values that they capture.

    Args:
      count: makes of the same arguments the function from the number of elements read to that of the result.
      attrs: the attrs that the class takes besides functions.
      vectors: the inputs that are no scalars.
    """

    def declare(stage: T) -> T:
        @handle.kernel("CPU")
        def make(source: Source, *values: Any, node: Node, resources: Any) -> Source:
            arguments = {name: _attr(handle, node, name) for name in attrs}
            bodies = (name for name, attr in handle.op_def.attrs.items() if attr.kind == "func")
            for given, value in zip(handle.op_def.inputs[1:], values):
                if given.name.endswith("other_arguments"):
                    name = next(bodies)
                    arguments[name] = compiled(_attr(handle, node, name), resources, value)
                else:
                    arguments[given.name] = own(value) if given.name in vectors else _plain(given.name, value)
            stage.check(**arguments)
            stateful = next((f.stateful for f in arguments.values() if isinstance(f, Function) and f.stateful), "")

            def begin(reading: Reading) -> Stage:
                reading.stateful = reading.stateful or stateful
                return stage(source.open(reading), reading, **arguments)

            return Source(begin, count(**arguments)(source.count))

        return stage

    return declare


def _attr(handle: OpHandle, node: Node, name: str) -> Any:
    return node.attrs.get(name, handle.op_def.attrs[name].default)


def _plain(name: str, value: TensorLike) -> Any:
    """A scalar as a Python value; the tensors of a list input as they are."""
    if isinstance(value, list):
        return list(own_all(value))
    array = np.asarray(value)
    if array.ndim:
        refuse(f"{name} must be a scalar, but has the shape {array.shape}")
    return array.item()


_COMPONENTS = "Toutput_types: list(type) >= 1; output_shapes: list(shape) >= 1"
tensor_dataset = dataset_op("TensorDataset", "components: Toutput_types", _COMPONENTS)
tensor_slice_dataset = dataset_op("TensorSliceDataset", "components: Toutput_types", _COMPONENTS)
range_dataset = dataset_op("RangeDataset", "start: int64, stop: int64, step: int64")
# Our own op: TensorFlow's GeneratorDataset calls three functions that wrap PyFunc ops.
generator_dataset = dataset_op(
    "_PyGeneratorDataset", "args: Targs", f"token: string; Targs: list(type) >= 0; {TYPES}", waits=True
)
# Our own op: the elements of a queue of this task, which somebody fills on request.
queue_dataset = dataset_op("_QueueDataset", "requests: resource, elements: resource", waits=True)
zip_dataset = dataset_op("ZipDataset", "input_datasets: N * variant", f"{TYPES}; N: int >= 1")
concatenate_dataset = dataset_op("ConcatenateDataset", "input_dataset: variant, another_dataset: variant")


def _own(component: object) -> Any:
    """`waiting_line.own`, also of the arrays of a sparse or a ragged tensor."""
    if isinstance(component, RaggedValue):
        return component._replace(values=own(component.values), splits=tuple(own_all(component.splits)))
    return SparseValue(*own_all(component)) if isinstance(component, SparseValue) else own(component)


@tensor_dataset.kernel("CPU")
def _tensors(components: list[Any]) -> Source:
    element = tuple(_own(component) for component in components)
    return FunctionSource(lambda _: iter([element]), 1)


@tensor_slice_dataset.kernel("CPU")
def _slices(components: list[Any]) -> Source:
    kept = [_own(component) for component in components]
    lengths = [count_rows(component) for component in kept]
    if len(set(lengths)) > 1:
        text = f"All components must have the same size in the 0th dimension, not {lengths}."
        raise errors.InvalidArgumentError.of(text)
    return FunctionSource(lambda _: zip(*[rows_of(component) for component in kept]), lengths[0])


@range_dataset.kernel("CPU")
def _range(start: np.ndarray, stop: Array, step: Array) -> Source:
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

    def open_generator(reading: Reading) -> Iterator[Element]:
        reading.stateful = reading.stateful or "PyFunc"  # as TensorFlow's: a generator need not yield the same again
        return _Translated(begin(*kept))

    return FunctionSource(open_generator)


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
        except (Exception, SystemExit) as error:  # a user's generator may raise anything; the class decides the status
            raise status_of(error) from error

    def close(self) -> None:
        getattr(self._elements, "close", lambda: None)()


class _Requested(Stage):
    """Elements of a queue. Each is requested, by an element of another queue, when the reader wants it."""

    def __init__(self, requests: QueueState, elements: QueueState, reading: Reading) -> None:
        self._requests, self._elements, self._reading = requests, elements, reading
        self._has_asked = False

    def __next__(self) -> Element:
        if not self._has_asked and not self._elements.size():  # an earlier reader may have left one
            self._wait_for(lambda wait: self._requests.enqueue(wait, (np.int64(0),)))
        self._has_asked = True  # also for another try, after an error
        try:
            element: Element = self._wait_for(self._elements.dequeue)
        except errors.OutOfRangeError:
            raise StopIteration from None
        self._has_asked = False
        return element

    def _wait_for(self, begin: Callable[[Any], None]) -> Any:
        answer = ElementWait(self._reading)
        begin(answer)
        return answer.get()


@queue_dataset.kernel("CPU")
def _queue(requests: Any, elements: Any) -> Source:
    if not isinstance(requests, QueueState) or not isinstance(elements, QueueState) or requests.dtypes != [int64]:
        refuse("a dataset of a queue needs two queues, that of the requests with int64 scalars")
    return Source(lambda reading: _Requested(requests, elements, reading))


class _Zip(Stage):
    """Elements of several datasets side by side; ends with the shortest."""

    def __init__(self, sources: list[Source], reading: Reading) -> None:
        self._stages = [source.open(reading) for source in sources]

    def __next__(self) -> Element:
        element: Element = ()
        for stage in self._stages:
            element += next(stage)
        return element

    def close(self) -> None:
        for stage in self._stages:
            stage.close()


@zip_dataset.kernel("CPU")
def _zip(sources: list[Source]) -> Source:
    given = list(sources)
    return Source(lambda reading: _Zip(given, reading), shortest([source.count for source in given]))


class _Concatenate(Stage):
    """One dataset after the other; each is opened when the one before has ended."""

    def __init__(self, sources: Sequence[Source], reading: Reading) -> None:
        self._waiting = list(sources)
        self._reading = reading
        self._stage: Stage | None = None

    def __next__(self) -> Element:
        while self._stage is not None or self._waiting:
            if self._stage is None:
                self._stage = self._waiting.pop(0).open(self._reading)
            try:
                return next(self._stage)
            except StopIteration:
                self._stage.close()
                self._stage = None
        raise StopIteration

    def close(self) -> None:
        if self._stage is not None:
            self._stage.close()


@concatenate_dataset.kernel("CPU")
def _concatenate(first: Source, second: Source) -> Source:
    return Source(lambda reading: _Concatenate((first, second), reading), total([first.count, second.count]))


# ---- `Dataset.cache` with a file: elements are kept in a checkpoint bundle, under TensorFlow's keys ----------------
# A lock file keeps two readings from writing at the same time. The bundle appears when all elements
# are written; a reading that stops early leaves no files.

_NUMBER_WIDTH = len(str(10_000_000 - 1))


def _keys(number: int, count: int) -> list[str]:
    """The keys of an element's components."""
    width = len(str(count - 1))
    return [f"{number:>{_NUMBER_WIDTH}}_{i:>{width}}" for i in range(count)]


class _Writing(Transformation):
    def __init__(self, upstream: Stage, reading: Reading, path: str) -> None:
        super().__init__(upstream, reading)
        self._path = path
        self._lock = path + ".lockfile"
        self._take_lock()
        self._writer: BundleWriter | None = BundleWriter(path)
        self._count = 0

    def _take_lock(self) -> None:
        os.makedirs(os.path.dirname(self._lock) or ".", exist_ok=True)
        try:
            handle = os.open(self._lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            raise errors.AlreadyExistsError.of(
                "There appears to be a concurrent caching iterator running - cache lockfile already exists"
                f" ('{self._lock}'). If you are sure no other running TF computations are using this cache prefix,"
                " delete the lockfile and re-initialize the iterator."
            ) from None
        os.close(handle)

    def __next__(self) -> Element:
        try:
            element = next(self.upstream)
        except StopIteration:
            if self._writer is not None:
                self._writer.finish()
                self.close()
            raise
        if self._writer is not None:
            for key, component in zip(_keys(self._count, len(element)), element):
                self._writer.add(key, *_storable(component))
            self._count += 1
        return element

    def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.__exit__()
            files.DISK.remove(self._lock)
        super().close()


def _storable(component: object) -> tuple[Any, dtypes.DType]:
    """A component as an array and its type.

    Raises:
      UnimplementedError: when the component is not a dense tensor.
    """
    if isinstance(component, (Source, RaggedValue)) or hasattr(component, "dense_shape"):
        text = "Dataset.cache with a file keeps dense tensors only: call it without a filename."
        raise errors.UnimplementedError.of(text)
    if isinstance(component, bytes):
        component = np.array(component, object)
    array = np.asarray(component)
    return array, dtypes.string if array.dtype == object else dtypes.as_dtype(array.dtype)


class _Reading(Stage):
    def __init__(self, path: str, count: int) -> None:
        self._reader = BundleReader(path)
        self._components = count
        self._at = 0

    def __next__(self) -> Element:
        keys = _keys(self._at, self._components)
        if keys[0] not in self._reader:
            raise StopIteration
        self._at += 1
        return tuple(value if value.ndim else value[()] for value in map(self._reader.read, keys))


class FileCacheSource(Source):
    """A source that reads its elements from a file as soon as one reading has written them all.

    Args:
      path: prefix of the files' names.
      components: number of components of an element.
    """

    def __init__(self, source: Source, path: str, components: int) -> None:
        super().__init__(self._begin, source.count)
        self._source = source
        self._path = files.local_path(path)
        self._components = components

    def _begin(self, reading: Reading) -> Stage:
        if os.path.exists(files.index_file(self._path)):
            return _Reading(self._path, self._components)
        return _LateWriting(self._source, self._path, reading)


class _LateWriting(Stage):
    """Takes the lock at the first element, so that the step that reads it gets the error."""

    def __init__(self, source: Source, path: str, reading: Reading) -> None:
        self._begin = lambda: _Writing(source.open(reading), reading, path)
        self._stage: _Writing | None = None
        self._reading, self._seeds = reading, -1

    def __next__(self) -> Element:
        if self._stage is None:
            self._seeds = self._reading.draws if self._seeds < 0 else self._seeds
            self._stage = self._begin()
        try:
            return next(self._stage)
        finally:
            if self._reading.draws > self._seeds:  # which are not drawn again once the files are complete
                self._reading.unrepeatable = "it wrote random elements to the files of a cache"

    def close(self) -> None:
        if self._stage is not None:
            self._stage.close()
