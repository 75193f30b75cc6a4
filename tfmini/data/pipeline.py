"""Datasets at run time: a `Source` describes a dataset, and opening it gives a `Stage` that yields its elements.

An element is a tuple of components, one per leaf (see `structure`). After an error a stage continues with
the next element, as TensorFlow's iterators do. A Python generator would be exhausted; so stages are
objects with a ``__next__``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tfmini import dtypes, errors
from tfmini.core_types import Array
from tfmini.data.structure import Leaf, Structure
from tfmini.dtypes import DType, int64
from tfmini.export import export_names
from tfmini.graph import nest
from tfmini.graph.families import Operation, OpHandle, Tensor, op
from tfmini.graph.node import FunctionBody, Node
from tfmini.graph.op_types import OPS, RunningStep, may_wait
from tfmini.graph.prune import step_graph
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.kernel_arguments import check_components, refuse
from tfmini.ops.composites import SparseTensor
from tfmini.ops.flow.tensor_array import TensorArray
from tfmini.ops.ragged import RaggedTensor
from tfmini.ops.waiting_line import own_all
from tfmini.placement.task_graph import TaskGraph
from tfmini.runtime.compiler.program import compile_program
from tfmini.runtime.executor.dataflow_run import DataflowRun
from tfmini.runtime.executor.registered_graph import FunctionRun, PartitionRun, RegisteredGraph, RunOwner
from tfmini.runtime.resources import Resources
from tfmini.shapes import RawShape, TensorShape

# ---- Cardinality of datasets: the number of elements, if it is known without reading them --------------------------

INFINITE = -1
UNKNOWN = -2
Count = Callable[[int], int]
"""Maps the cardinality of a stage's input to that of its output."""


def finite(count: Count) -> Count:
    """Applies ``count`` to finite cardinalities; infinite and unknown ones stay as they are."""
    return lambda n: n if n < 0 else count(n)


def unknown(**arguments: object) -> Count:
    """Any number of elements."""
    return lambda n: UNKNOWN


def unchanged(**arguments: object) -> Count:
    """The number of elements that is read."""
    return lambda n: n


# Each of these takes the arguments of a stage by the names of its op's inputs.


def batched(batch_size: int, drop_remainder: bool, **others: object) -> Count:
    return finite(lambda n: n // batch_size if drop_remainder else -(-n // batch_size))


def limited(count: int) -> Count:
    """The cardinality after `take`."""
    if count < 0:
        return unchanged()
    return lambda n: count if n == INFINITE else n if n == UNKNOWN else min(n, count)


def skipping(count: int) -> Count:
    if count < 0:
        return lambda n: 0
    return finite(lambda n: max(0, n - count))


def sharded(num_shards: int, index: int) -> Count:
    return finite(lambda n: n // num_shards + (index < n % num_shards))


def repeated(count: int) -> Count:
    if count < 0:
        return lambda n: 0 if n == 0 else INFINITE
    return lambda n: 0 if count == 0 else n if n < 0 else n * count


def windows(size: int, shift: int, stride: int, drop_remainder: bool) -> Count:
    span = (size - 1) * stride + 1
    if drop_remainder:
        return finite(lambda n: max(0, (n - span) // shift + 1))
    return finite(lambda n: -(-n // shift))


def shortest(counts: Sequence[int]) -> int:
    """The cardinality of `zip`."""
    if UNKNOWN in counts:
        return UNKNOWN
    return min((n for n in counts if n != INFINITE), default=INFINITE)


def total(counts: Sequence[int]) -> int:
    """The cardinality of `concatenate`."""
    if INFINITE in counts:
        return INFINITE
    return UNKNOWN if UNKNOWN in counts else sum(counts)


export_names("tf.data.experimental", "INFINITE_CARDINALITY=INFINITE UNKNOWN_CARDINALITY=UNKNOWN")


# ---- Components of elements: a sparse tensor or a dataset travels in one variant tensor ----------------------------

# Stateful, so that the compiler does not fold it: a `SparseValue` is no array.
pack_op = op(
    "_PackSparse(indices: int64, values: T, dense_shape: int64) -> packed: variant; T: type",
    stateful=True,
    shape=[()],
    differentiable=False,
)
pack_op.kernel("CPU")(lambda indices, values, dense_shape: SparseValue(indices, values, dense_shape))
unpack_op: OpHandle[Any] = op(
    "_UnpackSparse(packed: variant) -> indices: int64, values: T, dense_shape: int64; T: type; rank: int",
    differentiable=False,
)


class SparseValue(NamedTuple):
    """A sparse tensor in a pipeline, as arrays: indices int64 [n, rank], values [n], dense_shape int64 [rank]."""

    indices: Any
    values: Any
    dense_shape: Any


class RaggedValue(NamedTuple):
    """A ragged tensor in a pipeline, as arrays: flat values, and the row splits of each ragged dimension.

    A row of a vector of rows has no splits itself; ``splits_type`` is that of a batch of such rows.
    """

    values: Any
    splits: tuple[Any, ...]
    splits_type: Any = np.int64


pack_ragged_op = op(
    "_PackRagged(values: T, splits: N * Tsplits) -> packed: variant; T: type; N: int >= 1; Tsplits: {int32, int64}",
    stateful=True,
    shape=[()],
    differentiable=False,
)


@pack_ragged_op.kernel("CPU")
def _pack_ragged(values: Array, splits: list[Any]) -> RaggedValue:
    sizes = [*(np.size(level) - 1 for level in splits[1:]), np.shape(values)[0] if np.ndim(values) else -1]
    for level, size in zip(splits, sizes):
        if np.ndim(level) != 1 or not level.size or level[0] or level[-1] != size or (np.diff(level) < 0).any():
            refuse(f"Row splits must rise from 0 to the number of rows, {size}, but are {level!r:.80}")
    return RaggedValue(values, tuple(splits))


unpack_ragged_op: OpHandle[Any] = op(
    "_UnpackRagged(packed: variant) -> values: T, splits: N * Tsplits;"
    " T: type; N: int >= 0; Tsplits: {int32, int64}; values_shape: shape; rows: int = -1",
    differentiable=False,
)


@unpack_ragged_op.shape
def _ragged_parts(node: Operation) -> list[RawShape]:
    rows, levels = node.attrs["rows"], node.attrs["N"]
    outer: list[RawShape] = [(None if rows < 0 else rows + 1,)]
    return [node.attrs["values_shape"], *(outer + [(None,)] * (levels - 1) if levels else [])]


@unpack_ragged_op.kernel("CPU")
def _unpack_ragged(packed: RaggedValue, *, T: DType, N: int, Tsplits: DType) -> tuple[Any, ...]:
    if not isinstance(packed, RaggedValue) or len(packed.splits) != N:
        refuse(f"A ragged tensor of {N} ragged dimensions was expected")
    check_components([packed.values, *packed.splits], [T, *[Tsplits] * N])
    return packed.values, *packed.splits


@unpack_op.shape
def _parts(node: Operation) -> list[RawShape]:
    rank = node.attrs["rank"] if node.attrs["rank"] >= 0 else None
    return [(None, rank), (None,), (rank,)]


@unpack_op.kernel("CPU")
def _unpack(packed: SparseValue, *, T: DType, rank: int) -> tuple[Any, Any, Any]:
    check_components(packed, [int64, T, int64])
    shapes = [np.shape(part) for part in packed]
    if [len(shape) for shape in shapes] != [2, 1, 1] or rank >= 0 and not shapes[0][1] == shapes[2][0] == rank:
        refuse(f"A sparse tensor of rank {rank} has indices, values and dense_shape of shapes {shapes}")
    return tuple(packed)


def _component_of(value: Any) -> Tensor:
    """The single tensor that represents a leaf of a normalized element."""
    if isinstance(value, SparseTensor):
        return pack_op(value.indices, value.values, value.dense_shape, name="PackSparse")
    if isinstance(value, RaggedTensor):
        return pack_ragged_op(value.flat_values, list(value.nested_row_splits), name="PackRagged")
    if isinstance(value, TensorArray):
        return value.stack()
    return getattr(value, "_variant_tensor", value)  # type: ignore[no-any-return]


def components_of(value: object) -> list[Tensor]:
    """The components of a normalized element, one per leaf."""
    return [_component_of(leaf) for leaf in nest.flatten(value)]


def element_of(structure: Structure, components: Iterable[Tensor]) -> Any:
    """The element that components represent: the inverse of `components_of`."""
    return structure.pack([_value_of(leaf, component) for leaf, component in zip(structure.leaves, components)])


def _value_of(leaf: Leaf, component: Tensor) -> Any:
    """The tensor, sparse tensor or dataset that a component represents: the inverse of `_component_of`."""
    if leaf.kind is SparseTensor:
        rank = -1 if leaf.shape is None else len(leaf.shape)
        parts = unpack_op(component, T=leaf.dtype, rank=rank, name="UnpackSparse")
        return SparseTensor(parts.indices, parts.values, parts.dense_shape)
    if leaf.ragged is not None:
        return _ragged_of(leaf, component)
    if leaf.kind is TensorArray:
        shape = None if leaf.shape is None else TensorShape.from_raw(leaf.shape[1:])
        made = TensorArray(leaf.dtype, array_shape.shape(component)[0], True, False, element_shape=shape)
        return made.unstack(component)
    if leaf.inner is not None:
        return leaf.kind._of(component, leaf.inner)  # type: ignore[attr-defined]
    return component


def _ragged_of(leaf: Leaf, component: Tensor) -> Any:
    assert leaf.ragged is not None
    levels, dtype = leaf.ragged
    shape = leaf.shape if not levels else None if leaf.shape is None else (None, *leaf.shape[levels + 1 :])
    rows = leaf.shape[0] if leaf.shape and levels else None
    values, splits = unpack_ragged_op(
        component, T=leaf.dtype, N=levels, Tsplits=dtype, values_shape=shape, rows=-1 if rows is None else rows,
        name="UnpackRagged",
    )  # fmt: skip
    return RaggedTensor.from_nested_row_splits(values, list(splits), validate=False) if levels else values


# ---- A reading: one pass over a dataset, with its owner and its cancellation ---------------------------------------
# A stage that may take long without yielding an element (a filter that finds nothing, a wait for a buffer)
# regularly calls `Reading.check`, which raises if the element is no longer wanted.

Seeds = tuple[int, int]
Drawn = dict[int, list[Seeds]]  # lane -> the seeds that its thread has drawn, in order
TURN = 64  # a stage that takes many elements for one of its own calls `Reading.check` once for so many


class _Lane(threading.local):
    """The lane of a thread: 0, or what `Reading.lane_below` gave the thread of a stage that reads ahead."""

    number = 0


lane = _Lane()


class Reading:
    """One pass over a dataset, by an iterator or by an op that reads the whole dataset.

    Args:
      owner: the worker that runs the dataset's functions.
      step: the step that waits for the pass. An iterator sets it only while a step waits for an element.
      seeds: those of a saved reading, which this one repeats; each thread of a pass has a row of its own, since they
        draw when they please.
      before: the reading of the same source that this one replaces.

    Attributes:
      closed: whether the pass has ended for good.
      seeds: those that its stages have drawn.
      stateful: the type of an op, in a function of its stages, that gives another answer in each call; or "".
      unrepeatable: what else keeps another reading from repeating this one, for messages; or "".
      repeats: whether it repeats a saved reading. Its stages must draw as often as those did, so they fill caches anew.
    """

    __slots__ = (
        "_below", "_drawn", "_given", "_own", "closed", "owner", "repeats", "seeds", "stateful", "step", "unrepeatable",
    )  # fmt: skip

    def __init__(
        self, owner: RunOwner, step: RunningStep | None = None, seeds: Drawn | None = None,
        before: Reading | None = None,
    ) -> None:  # fmt: skip
        self.owner = owner
        self.step = step
        self.closed = False
        self.seeds: Drawn = {}
        self.stateful = self.unrepeatable = ""
        self.repeats = before is not None
        self._given, self._drawn = seeds or {}, before.seeds if before is not None else {}
        self._below: dict[int, int] = {}
        self._own: dict[Any, Any] = {}

    def drawn(self, draw: Callable[[], Seeds]) -> Seeds:
        """The seeds of a stage: those that ``draw`` makes, but in a repeated reading those that it had."""
        row = self.seeds.setdefault(lane.number, [])
        given, before = (rows.get(lane.number, ()) for rows in (self._given, self._drawn))
        # What the replaced reading has drawn is not drawn again: the source goes on with its own row of seeds.
        seeds = before[len(row)] if len(row) < len(before) else draw()
        if len(row) < len(given):
            seeds = given[len(row)]
        row.append(seeds)
        return seeds

    @property
    def draws(self) -> int:
        """How many seeds have been drawn."""
        return sum(map(len, list(self.seeds.values())))

    def lane_below(self) -> int:
        """The lane of a new thread that reads ahead: another pass that opens the same stages gives it the same one."""
        self._below[lane.number] = place = self._below.get(lane.number, 0) + 1
        return (lane.number * 1_000_003 + place) % 2**63

    def own(self, key: object, make: Callable[[], Any]) -> Any:
        """An object that belongs to this reading alone; ``make`` creates it at the first use."""
        found = self._own.get(key)
        # `setdefault` gives the threads of a parallel map the same object.
        return self._own.setdefault(key, make()) if found is None else found

    @property
    def stopped(self) -> bool:
        """Whether elements are no longer wanted."""
        return self.closed or self.step is not None and bool(self.step.run.stopped)

    def check(self) -> None:
        """Raises if elements are no longer wanted.

        Raises:
          CancelledError: when the iterator is closed or the step is cancelled.
          DeadlineExceededError: when the step's deadline has passed.
        """
        if self.closed:
            raise errors.CancelledError.of("The iterator was closed while it was read.")
        if self.step is not None and self.step.run.stopped:
            self.step.run.raise_stopped("reads a dataset")


class FunctionCall(FunctionRun):
    """The run of a dataset's function, which must end when the reading must."""

    __slots__ = ()

    def __init__(self, reading: Reading, graph: RegisteredGraph, values: Sequence[Any]) -> None:
        super().__init__(reading.owner, graph, 0, values)
        self.stopped = _ReadingStop(reading)


class _ReadingStop:
    """See `registered_graph.StopReason`."""

    __slots__ = ("_reading",)

    def __init__(self, reading: Reading) -> None:
        self._reading = reading

    def __bool__(self) -> bool:
        return self._reading.stopped

    def raise_error(self, run: PartitionRun, doing: str) -> None:
        self._reading.check()


_LOOK_S = 0.05
_GIVEN_UP = object()


class ElementWait:
    """A `Wait` of the thread that reads a dataset."""

    def __init__(self, reading: Reading) -> None:
        self.step: Any = reading.step
        self._reading = reading
        self._came = threading.Event()
        self._given: list[Any] = []  # the answer; None if nobody wants one any more
        self._cancel: Callable[[], None] = lambda: None

    def done(self, result: Any = None) -> bool:
        """Takes the answer, unless the thread has given up."""
        self._given.append(result)  # the first one counts
        self._came.set()
        return self._given[0] is result

    def fail(self, error: errors.OpError) -> bool:
        """As `done`, with an error."""
        return self.done(error)

    def on_cancel(self, cause: str, cancel: Callable[[], None]) -> bool:
        """Notes what ends the wait."""
        self._cancel = cancel
        return True

    def get(self) -> Any:
        """Waits for the answer.

        Raises:
          OpError: it is an error, or the element is not wanted any more.
        """
        try:
            while not self._came.wait(_LOOK_S):  # the end of a step that runs as a function tells no thread
                self._reading.check()
        except BaseException:
            if self.done(_GIVEN_UP):
                self._cancel()
                raise  # else the answer came at the same time
        if isinstance(self._given[0], errors.OpError):
            raise self._given[0]
        return self._given[0]


# ---- Sources and stages, and the functions of transformations ------------------------------------------------------

Element = tuple[Any, ...]


class Stage:
    """One pass over a dataset. ``close`` releases files and threads; so does dropping the last reference.

    Attributes:
      is_map: whether each element is that of a function of an element of another stage.
    """

    is_map = False

    def __iter__(self) -> Iterator[Element]:
        return self

    def __next__(self) -> Element:
        raise NotImplementedError

    @property
    def ready(self) -> bool:
        """Whether the next element is known to be available without waiting."""
        return False

    def close(self) -> None:
        """Ends the stage and the stages that it reads."""


class Source:
    """A dataset, which can be read any number of times.

    Args:
      open: begins a pass; the `Reading` holds its owner and ends it early if need be.
      count: the number of its elements, `INFINITE` or `UNKNOWN`.
    """

    def __init__(self, open: Callable[[Reading], Stage], count: int = UNKNOWN) -> None:
        self.open = open
        self.count = count


class GeneratorStage(Stage):
    """A stage over a Python iterator; if that is a generator, it is exhausted after an error."""

    def __init__(self, elements: Iterator[Element]) -> None:
        self._elements = elements

    def __next__(self) -> Element:
        return next(self._elements)

    def close(self) -> None:
        close = getattr(self._elements, "close", None)
        if close is not None:
            with suppress(ValueError):  # another thread runs the generator, which is freed when that returns
                close()
        self._elements = iter(())


class FunctionSource(Source):
    """A source whose elements ``begin(reading)`` yields; ``count`` is their number."""

    def __init__(self, begin: Callable[[Reading], Iterator[Element]], count: int = UNKNOWN) -> None:
        super().__init__(lambda reading: GeneratorStage(begin(reading)), count)


@dataclass(eq=False)
class Transformation(Stage):
    """A stage that reads another one. `dataset_ops.stages_of` makes a subclass the stages of an op."""

    upstream: Stage
    reading: Reading

    @staticmethod
    def check(*args: Any, **kwargs: Any) -> None:
        """Checks the arguments of a stage when the dataset is made; raises InvalidArgumentError for wrong ones."""

    def close(self) -> None:
        self.upstream.close()


class Function:
    """A compiled function of components.

    Args:
      graph: the compiled body.
      captured: the values of the last parameters, which are the same in every call.
      body: what has been compiled.

    Attributes:
      may_block: whether a call may wait for what others do, as a Python function may.
      stateful: the type of an op that has an effect or gives another answer in each call; or "".
    """

    def __init__(self, graph: RegisteredGraph, captured: Sequence[Any], body: FunctionBody) -> None:
        self._graph = graph
        self._captured = own_all(captured)
        self.may_block = any(may_wait(node.op) for node in body.nodes)
        self.stateful = next((node.op for node in body.nodes if _is_stateful(node)), "")
        # Random numbers with a fixed seed begin anew with each reading, which compiles its own program.
        self._body = body if any(node.attrs.get("seed") or node.attrs.get("seed2") for node in body.nodes) else None

    def __call__(self, reading: Reading, *values: object) -> Element:
        """The results for one element.

        Raises:
          OpError: the error of the op that failed.
        """
        graph, body = self._graph, self._body
        if body is not None:
            graph = reading.own(id(body), lambda: _compile(body, graph.resources))
        graph.program.bind(graph.resources)
        arguments = [*values, *self._captured]
        if graph.program.is_simple:
            return tuple(FunctionCall(reading, graph, arguments).execute())
        return tuple(_waited_for(DataflowRun(reading.owner, graph, 0, arguments), reading))


_HARMLESS = ("Assert", "LookupTable", "Print", "Stack", "TensorArray", "Timestamp")


def _is_stateful(node: Node) -> bool:
    """Whether a node of a function has a state that outlives the call; a node that only makes a dataset has none."""
    op_def = OPS[node.op].op_def
    makes_dataset = any(output.dtype is dtypes.variant for output in op_def.outputs)
    return op_def.is_stateful and not makes_dataset and not node.op.startswith(_HARMLESS)


def _waited_for(run: DataflowRun, reading: Reading) -> list[Any]:
    """The results of a call whose ops wait for other steps, such as those of a critical section."""
    answer = ElementWait(reading)
    run.stopped = _ReadingStop(reading)
    answer.on_cancel("", lambda: run.abort(errors.CancelledError.of("The element is not wanted any more.")))

    def ended(error: errors.OpError | None, results: list[Any]) -> None:
        answer.done(results if error is None else error)

    run.start(ended)
    return answer.get()  # type: ignore[no-any-return]


def compiled(body: FunctionBody, resources: Resources, captured: Sequence[Any]) -> Function:
    """The function with a given body, which is compiled once per task or session.

    Raises:
      InvalidArgumentError: a client gave the name of a function, or something else, in place of its body.
    """
    if not isinstance(body, FunctionBody):
        raise errors.InvalidArgumentError.of(f"The graph has no function {body!r:.80}")
    # The entry keeps the body alive, so its id is not reused.
    _, graph = resources.lookup_or_create(
        "", "dataset function", f"{body.name} {id(body)}", lambda: (body, _compile(body, resources))
    )
    return Function(graph, captured, body)


def _compile(body: FunctionBody, resources: Resources) -> RegisteredGraph:
    nodes = {node.name: node for node in body.nodes}
    feeds = [(name, 0) for name in body.parameters]
    step = step_graph(nodes, body.results, body.targets, feeds, "/device:CPU:0")
    program = compile_program(TaskGraph.of_step(step), resources=resources)
    return RegisteredGraph(0, "", program, resources, is_private=True)


def stacked(rows: Sequence[Any], component: int) -> Any:
    """Stacks the same component of several elements.

    Raises:
      InvalidArgumentError: when the shapes differ.
    """
    first = rows[0]
    if isinstance(first, RaggedValue):
        return _stacked_ragged(rows)
    if hasattr(first, "dense_shape") or isinstance(first, Source):
        return _stacked_others(rows)
    kinds = set(map(type, rows))
    if kinds == {np.ndarray} and first.dtype.kind != "O" and {row.shape for row in rows} == {first.shape} != {()}:
        return np.concatenate(rows).reshape(len(rows), *first.shape)
    if len(kinds) == 1 and isinstance(first, (bytes, np.generic)):
        out = np.empty(len(rows), object if isinstance(first, bytes) else first.dtype)
        out[:] = rows
        return out
    shape = np.shape(first) if not isinstance(first, bytes) else ()
    for i, row in enumerate(rows):
        other = np.shape(row) if not isinstance(row, bytes) else ()
        if other != shape:
            raise errors.InvalidArgumentError.of(
                f"Cannot batch tensors with different shapes in component {component}. First element had shape"
                f" {sizes_text(shape)} and element {i} had shape {sizes_text(other)}."
            )
    if isinstance(first, bytes) or first.dtype.kind == "O":
        out = np.empty((len(rows), *shape), object)
        for i, row in enumerate(rows):
            out[i] = row if isinstance(row, bytes) else row[()]  # a string itself, not an array that holds it
        return out
    return np.stack(rows) if shape else np.asarray(rows, dtype=first.dtype)


def _stacked_others(rows: Sequence[Any]) -> Any:
    if isinstance(rows[0], Source):
        raise errors.UnimplementedError.of("Datasets as elements cannot be batched: use flat_map first.")
    shape = rows[0].dense_shape
    for row in rows:
        if len(row.dense_shape) != len(shape):
            raise errors.InvalidArgumentError.of("Cannot batch sparse tensors of different ranks.")
        shape = np.maximum(shape, row.dense_shape)
    pairs = [np.insert(row.indices, 0, i, axis=1) for i, row in enumerate(rows)]
    values = np.concatenate([row.values for row in rows])
    dense_shape = np.array([len(rows), *shape], np.int64)
    return type(rows[0])(np.concatenate(pairs).astype(np.int64), values, dense_shape)


def _stacked_ragged(rows: Sequence[RaggedValue]) -> RaggedValue:
    """A batch has the elements' rows as rows of one more ragged dimension."""
    shapes = {np.shape(row.values)[1:] for row in rows}
    if len(shapes) > 1:
        raise errors.InvalidArgumentError.of(f"Cannot batch ragged tensors with inner shapes {sorted(shapes)}.")
    levels = [[np.array([0, count_rows(row)]) for row in rows], *zip(*[row.splits for row in rows])]
    dtype = rows[0].splits[0].dtype if rows[0].splits else rows[0].splits_type
    joined = []
    for level in levels:
        ends = np.cumsum([0, *(splits[-1] for splits in level)])
        parts = [splits[1:] + end for splits, end in zip(level, ends)]
        joined.append(np.concatenate([[0], *parts]).astype(dtype))
    return RaggedValue(np.concatenate([row.values for row in rows]), tuple(joined))


def _ragged_rows(component: RaggedValue) -> Iterator[RaggedValue]:
    for i in range(count_rows(component)):
        begin, end = component.splits[0][i : i + 2]
        inner = []
        for splits in component.splits[1:]:
            cut = splits[begin : end + 1]
            inner.append(cut - cut[0])
            begin, end = cut[0], cut[-1]
        yield RaggedValue(component.values[begin:end], tuple(inner), component.splits[0].dtype)


def count_rows(component: Any) -> int:
    """The size of a component's first dimension."""
    if isinstance(component, RaggedValue):
        return len(component.splits[0]) - 1 if component.splits else len(component.values)
    return int(component.dense_shape[0]) if hasattr(component, "dense_shape") else len(component)


def sizes_text(shape: tuple[int, ...]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"


def batch_of(elements: Sequence[Element]) -> Element:
    """Elements stacked component by component."""
    return tuple(stacked(column, i) for i, column in enumerate(zip(*elements)))


def rows_of(component: Array) -> Iterator[Any]:
    """The rows of a batched component: the inverse of `stacked`."""
    if isinstance(component, RaggedValue):
        return _ragged_rows(component) if component.splits else iter(component.values)
    if not hasattr(component, "dense_shape"):
        return iter(component)
    return _sparse_rows(component)


def _sparse_rows(component: Any) -> Iterator[Any]:
    for i in range(int(component.dense_shape[0])):
        chosen = component.indices[:, 0] == i
        yield type(component)(component.indices[chosen, 1:], component.values[chosen], component.dense_shape[1:])
