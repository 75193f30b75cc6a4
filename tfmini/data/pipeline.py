"""Datasets at run time: a `Source` describes a dataset, and opening it gives a `Stage` that yields its elements.

An element is a tuple of components, one per leaf (see `structure`). After an error a stage continues with
the next element, as TensorFlow's iterators do. A Python generator would be exhausted; so stages are
objects with a ``__next__``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfmini import errors
from tfmini.data.cardinality import UNKNOWN
from tfmini.data.reading import FunctionCall, Reading
from tfmini.graph.node import FunctionBody
from tfmini.graph.prune import step_graph
from tfmini.ops.kept_values import own_all
from tfmini.placement.task_graph import TaskGraph
from tfmini.runtime.compiler.program import compile_program
from tfmini.runtime.executor.registered_graph import RegisteredGraph
from tfmini.runtime.resources import Resources

Element = tuple[Any, ...]


class Stage:
    """One pass over a dataset. ``close`` releases files and threads; so does dropping the last reference."""

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
      body: given if random numbers must begin anew with each reading, which then compiles its own program.
    """

    def __init__(
        self, graph: RegisteredGraph, captured: Sequence[Any], body: FunctionBody | None = None
    ) -> None:  # fmt: skip
        self._graph = graph
        self._captured = own_all(captured)
        self._body = body

    def __call__(self, reading: Reading, *values: Any) -> Element:
        """The results for one element.

        Raises:
          OpError: the error of the op that failed.
        """
        graph, body = self._graph, self._body
        if body is not None:
            graph = reading.own(id(body), lambda: _compile(body, graph.resources))
        graph.program.bind(graph.resources)
        return tuple(FunctionCall(reading, graph, [*values, *self._captured]).execute())


def compiled(body: FunctionBody, resources: Resources, captured: Sequence[Any]) -> Function:
    """The function with a given body, which is compiled once per task or session.

    Raises:
      InvalidArgumentError: a client gave the name of a function, or something else, in place of its body.
      UnimplementedError: when the body has ops that wait for other steps.
    """
    if not isinstance(body, FunctionBody):
        raise errors.InvalidArgumentError.of(f"The graph has no function {body!r:.80}")
    # The entry keeps the body alive, so its id is not reused.
    _, graph = resources.lookup_or_create(
        "", "dataset function", f"{body.name} {id(body)}", lambda: (body, _compile(body, resources))
    )
    return Function(graph, captured, body if _is_seeded(body) else None)


def _is_seeded(body: FunctionBody) -> bool:
    """Whether a function draws random numbers with a fixed seed."""
    return any(node.attrs.get("seed") or node.attrs.get("seed2") for node in body.nodes)


def _compile(body: FunctionBody, resources: Resources) -> RegisteredGraph:
    nodes = {node.name: node for node in body.nodes}
    feeds = [(name, 0) for name in body.parameters]
    step = step_graph(nodes, body.results, body.targets, feeds, "/device:CPU:0")
    program = compile_program(TaskGraph.of_step(step), resources=resources)
    if not program.is_simple:
        waiting = ", ".join(node.name for node in program.waits.values())
        raise errors.UnimplementedError.of(
            f"The function {body.name} of a dataset has ops that wait for other steps ({waiting}). Use only ops"
            " that finish without another step."
        )
    return RegisteredGraph(0, "", program, resources, is_private=True)


def stacked(rows: Sequence[Any], component: int) -> Any:
    """Stacks the same component of several elements.

    Raises:
      InvalidArgumentError: when the shapes differ.
    """
    first = rows[0]
    if hasattr(first, "dense_shape") or isinstance(first, Source):
        return _stacked_others(rows)
    shape = np.shape(first) if not isinstance(first, bytes) else ()
    for i, row in enumerate(rows):
        other = np.shape(row) if not isinstance(row, bytes) else ()
        if other != shape:
            raise errors.InvalidArgumentError.of(
                f"Cannot batch tensors with different shapes in component {component}. First element had shape"
                f" {_text(shape)} and element {i} had shape {_text(other)}."
            )
    if isinstance(first, bytes) or first.dtype.kind == "O":
        out = np.empty((len(rows), *shape), object)
        for i, row in enumerate(rows):
            out[i] = row
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


def _text(shape: tuple[int, ...]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"


def batch_of(elements: Sequence[Element]) -> Element:
    """Elements stacked component by component."""
    return tuple(stacked(column, i) for i, column in enumerate(zip(*elements)))


def rows_of(component: Any) -> Iterator[Any]:
    """The rows of a batched component: the inverse of `stacked`."""
    if not hasattr(component, "dense_shape"):
        return iter(component)
    return _sparse_rows(component)


def _sparse_rows(component: Any) -> Iterator[Any]:
    for i in range(int(component.dense_shape[0])):
        chosen = component.indices[:, 0] == i
        yield type(component)(component.indices[chosen, 1:], component.values[chosen], component.dense_shape[1:])
