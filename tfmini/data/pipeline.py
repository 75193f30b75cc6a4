"""A dataset at run time is a `Source`: something that can be opened again and again, each time giving a `Stage`.

A stage gives elements: tuples of components, one per leaf (see `structure`). A stage that raised goes on
with the next element when asked again, as TensorFlow's iterators do, so stages are objects with a
``__next__`` rather than Python generators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from tfmini import errors
from tfmini.data.counts import UNKNOWN, Count
from tfmini.data.reading import CallStep, Reading
from tfmini.graph.node import FunctionBody
from tfmini.graph.prune import step_graph
from tfmini.runtime.local_step import run_simple
from tfmini.runtime.program import Program, compile_program
from tfmini.runtime.resources import ResourceManager

Element = tuple[Any, ...]


class Stage:
    """A dataset being read. ``close`` releases files and threads; so does dropping the last reference."""

    def __iter__(self) -> Iterator[Element]:
        return self

    def __next__(self) -> Element:
        raise NotImplementedError

    @property
    def ready(self) -> bool:
        """Whether the next element is known to be there without waiting."""
        return False

    def close(self) -> None:
        """Ends the stage and those that it reads."""


class Source:
    """A dataset: how to begin reading it.

    Attributes:
      count: the number of its elements, `INFINITE` or `UNKNOWN`.
    """

    count: int = UNKNOWN

    def open(self, reading: Reading) -> Stage:
        """Begins reading; ``reading`` says for whom, and when to end."""
        raise NotImplementedError


class GeneratorStage(Stage):
    """A stage over a Python generator, which is at its end once it has raised."""

    def __init__(self, elements: Iterator[Element]) -> None:
        self._elements = elements

    def __next__(self) -> Element:
        return next(self._elements)

    def close(self) -> None:
        close = getattr(self._elements, "close", None)
        if close is not None:
            with suppress(ValueError):  # another thread is in the generator: it ends when that thread leaves
                close()
        self._elements = iter(())


class FunctionSource(Source):
    """A source from ``begin(reading)``, which gives the elements in order; ``count`` says how many."""

    def __init__(self, begin: Callable[[Reading], Iterator[Element]], count: int = UNKNOWN) -> None:
        self._begin = begin
        self.count = count

    def open(self, reading: Reading) -> Stage:
        return GeneratorStage(self._begin(reading))


class Transformation(Stage):
    """A stage that reads another one."""

    def __init__(self, upstream: Stage) -> None:
        self.upstream = upstream

    def close(self) -> None:
        self.upstream.close()


class TransformedSource(Source):
    """A source made from another by ``begin(upstream stage, reading)``; ``count`` says how many elements it leaves."""

    def __init__(
        self, source: Source, begin: Callable[[Stage, Reading], Stage], count: Count = lambda n: UNKNOWN
    ) -> None:
        self._source = source
        self._begin = begin
        self.count = count(source.count)

    def open(self, reading: Reading) -> Stage:
        return self._begin(self._source.open(reading), reading)


class Function:
    """A compiled function of components.

    Args:
      program: what `compile_program` made of the body.
      resources: of the task.
      captured: the values of the parameters that follow those of a call.
      body: of a function whose random numbers begin anew with each reading, which gets a program of its own.
    """

    def __init__(
        self, program: Program, resources: ResourceManager, captured: Sequence[Any],
        body: FunctionBody | None = None,
    ) -> None:  # fmt: skip
        self._program = program
        self._resources = resources
        self._captured = list(captured)
        self._body = body

    def __call__(self, reading: Reading, *values: Any) -> Element:
        """The results for one element.

        Raises:
          OpError: what the failing op gave.
        """
        program, body = self._program, self._body
        if body is not None:
            program = reading.own(id(body), lambda: _compile(body, self._resources))
        program.bind(self._resources)
        return tuple(run_simple(program, [*values, *self._captured], CallStep(reading), reading.task))


def compiled(body: FunctionBody, resources: Any, captured: Sequence[Any]) -> Function:
    """A body as a function; it is compiled once per task or session.

    Raises:
      UnimplementedError: when the body has ops that wait for other steps.
    """
    # The body itself is kept with its program, so its id stays its own.
    _, program = resources.lookup_or_create(
        "", "dataset function", f"{body.name} {id(body)}", lambda: (body, _compile(body, resources))
    )
    return Function(program, resources, captured, body if _is_seeded(body) else None)


def _is_seeded(body: FunctionBody) -> bool:
    """Whether a function draws random numbers whose sequence is fixed."""
    return any(node.attrs.get("seed") or node.attrs.get("seed2") for node in body.nodes)


def _compile(body: FunctionBody, resources: Any) -> Program:
    nodes = {node.name: node for node in body.nodes}
    feeds = [(name, 0) for name in body.parameters]
    cut = step_graph(nodes, body.results, body.targets, feeds, "/device:CPU:0")
    program = compile_program(
        list(cut.values()), task_of=lambda device: "", resources=resources,
        feeds=[f"{name}:0" for name in body.parameters],
        fetches=[f"{name}:{index}" for name, index in body.results],
    )  # fmt: skip
    if not program.is_simple:
        waiting = ", ".join(node.name for node in program.waits.values())
        raise errors.UnimplementedError(
            None,
            None,
            f"The function {body.name} of a dataset has ops that wait for other steps ({waiting}): only ops that"
            " finish by themselves may stand in it.",
        )
    return program


def stacked(rows: Sequence[Any], component: int) -> Any:
    """One component of a batch, from that of its elements.

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
            raise errors.InvalidArgumentError(
                None,
                None,
                f"Cannot batch tensors with different shapes in component {component}. First element had shape"
                f" {_text(shape)} and element {i} had shape {_text(other)}.",
            )
    if isinstance(first, bytes) or first.dtype.kind == "O":
        out = np.empty((len(rows), *shape), object)
        for i, row in enumerate(rows):
            out[i] = row
        return out
    return np.stack(rows) if shape else np.asarray(rows, dtype=first.dtype)


def _stacked_others(rows: Sequence[Any]) -> Any:
    if isinstance(rows[0], Source):
        raise errors.UnimplementedError(None, None, "Datasets as elements cannot be batched: use flat_map first.")
    shape = rows[0].dense_shape
    for row in rows:
        if len(row.dense_shape) != len(shape):
            raise errors.InvalidArgumentError(None, None, "Cannot batch sparse tensors of different ranks.")
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
