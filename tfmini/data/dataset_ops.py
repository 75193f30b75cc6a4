"""Declaration of dataset ops, and those that make a dataset of tensors, generators or several datasets.

A kernel returns a `Source`, in a variant tensor. An op that reads one dataset needs a declaration and a class of
stages, which `stages_of` joins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from tfmini import errors
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
        return RaggedValue(own(component.values), tuple(own_all(component.splits)))
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
