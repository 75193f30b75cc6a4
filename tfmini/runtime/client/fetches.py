"""Fetch structures: from what the user asked for to tensors and ops, and from values back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from tfmini.core_types import TensorLike
from tfmini.graph.graph import Graph
from tfmini.graph.operation import Operation, Tensor

# ---- Types of fetches and feeds that libraries register (``register_session_run_conversion_functions``) ------------

__all__ = ["Conversion", "conversion_of", "register_session_run_conversion_functions"]


class Conversion(NamedTuple):
    """How a session fetches and feeds the instances of a type.

    Attributes:
      fetch: fetch -> (what to fetch instead, function of the list of its values).
      feed: (key, value) -> pairs of keys and values to feed instead; None if it cannot be fed.
    """

    fetch: Callable[[Any], tuple[Sequence[Any], Callable[[list[Any]], Any]]]
    feed: Callable[[Any, Any], Sequence[tuple[Any, Any]]] | None


_registered: dict[type, Conversion] = {}


def register_session_run_conversion_functions(
    tensor_type: type,
    fetch_function: Callable[..., Any],
    feed_function: Callable[..., Any] | None = None,
    feed_function_for_partial_run: Callable[..., Any] | None = None,
) -> None:
    """Registers how ``Session.run`` fetches and feeds objects of a type (``tensorflow.python.client.session``).

    Args:
      tensor_type: the type; objects of its subclasses count, too.
      fetch_function: object -> (list of fetches, function of the list of their values that returns the result).
      feed_function: (object, value) -> list of pairs (key, value) for a feed_dict.
      feed_function_for_partial_run: unused: the keys of ``feed_function`` are those that a partial run may feed.

    Raises:
      ValueError: the type, or a base class of it, has been registered before.
    """
    for known in _registered:
        if issubclass(tensor_type, known):
            raise ValueError(f"{tensor_type} has already been registered so ignore it.")
    _registered[tensor_type] = Conversion(fetch_function, feed_function)


def conversion_of(value: TensorLike) -> Conversion | None:
    """The registered conversion of an object; None if its type has none."""
    if not _registered:
        return None
    return next((_registered[kind] for kind in type(value).__mro__ if kind in _registered), None)


# ---- From what the user asks for to tensors and ops, and back ------------------------------------------------------

Build = Callable[[list[Any]], Any]
_NAMES_COMPARED = 5000  # with a wrong one, which takes tens of milliseconds


_INSIDE = (
    " It is inside of a tf.cond or tf.while_loop, so a step may compute it never or many times: return it from the"
    " branch or the body, and fetch the result."
)


def explained(error: Exception, graph: Graph, name: str) -> str:
    """The message for a feed or fetch that is not in the graph, with the names that are most similar."""
    text = str(error.args[0]) if error.args else str(error)
    if not isinstance(error, KeyError) or not isinstance(name, str):
        return text
    from tfmini.text import similar  # serves errors only

    op_name, colon, index = name.partition(":")
    near = similar(op_name, [op.name for op in graph._order[-_NAMES_COMPARED:] if op.name != op_name])
    return f"{text} Did you mean {' or '.join(repr(n + colon + index) for n in near)}?" if near else text


class Fetches:
    """The flat, distinct tensors and operations behind a fetch structure.

    Attributes:
      tensors: to fetch, each once.
      targets: to run for their effect.
      build: values of ``tensors`` -> a result shaped like the structure.

    Args:
      wrap_handle: (fetched string, dtype) -> the object for a tensor that stays in the session.
    """

    def __init__(self, graph: Graph, structure: object, wrap_handle: Callable[[bytes, Any], Any] | None = None) -> None:
        self._wrap_handle = wrap_handle
        self.tensors: list[Tensor] = []
        self.targets: list[Operation] = []
        self._graph = graph
        self._positions: dict[Tensor, int] = {}
        self.build: Build = self._node(structure)

    def _node(self, fetch: Any) -> Build:
        if fetch is None:
            raise TypeError(
                f"Fetch argument {fetch!r} has invalid type {type(fetch)!r}. (A function without `return` gives None;"
                " so does tf.summary.merge_all() where there are no summaries.)"
            )
        if isinstance(fetch, (list, tuple)):
            return self._sequence(fetch)
        if isinstance(fetch, Mapping):
            return self._mapping(fetch)
        if hasattr(type(fetch), "_fetch_parts"):  # an object of several tensors (`IndexedSlices`)
            tensors, build = fetch._fetch_parts()
            leaves = [self._leaf(t) for t in tensors]
            return lambda values: build([leaf(values) for leaf in leaves])
        conversion = conversion_of(fetch)
        if conversion is not None:
            fetches, result = conversion.fetch(fetch)
            nodes = [self._node(one) for one in fetches]
            return lambda values: result([node(values) for node in nodes])
        if hasattr(type(fetch), "__attrs_attrs__"):
            names = [a.name for a in type(fetch).__attrs_attrs__]
            parts = [self._node(getattr(fetch, n)) for n in names]
            return lambda values: type(fetch)(**{n: p(values) for n, p in zip(names, parts)})
        return self._leaf(fetch)

    def _sequence(self, fetch: Any) -> Build:
        parts = [self._node(f) for f in fetch]
        kind = type(fetch)
        if hasattr(kind, "_fields"):
            return lambda values: kind(*[p(values) for p in parts])
        if isinstance(fetch, list):
            return lambda values: [p(values) for p in parts]
        return lambda values: tuple([p(values) for p in parts])

    def _mapping(self, fetch: Any) -> Build:
        parts = {key: self._node(f) for key, f in fetch.items()}
        kind: Callable[[dict[Any, Any]], Any] = type(fetch)
        if isinstance(fetch, defaultdict):
            kind = partial(type(fetch), fetch.default_factory)

        def build(values: list[Any]) -> Any:
            found = {key: part(values) for key, part in parts.items()}
            return found if kind is dict else kind(found)

        return build

    def _leaf(self, fetch: Any) -> Build:
        element = self._element(fetch)
        if isinstance(element, Operation):
            if element not in self.targets:
                self.targets.append(element)
            return lambda values: None
        position = self._positions.get(element)
        if position is None:
            position = self._positions[element] = len(self.tensors)
            self.tensors.append(element)
        wrap = self._wrap_handle
        if wrap is not None and element.op.type == "GetSessionHandle":
            dtype = element.op.inputs[0].dtype.base_dtype
            return lambda values: wrap(values[position], dtype)
        return lambda values: values[position]

    def _element(self, fetch: Any) -> Any:
        try:
            element = self._graph.as_graph_element(fetch)
        except TypeError as error:
            raise TypeError(
                f"Fetch argument {fetch!r} has invalid type {type(fetch)!r}, must be a string or Tensor. ({error})"
            ) from None
        except (KeyError, ValueError) as error:
            text = explained(error, self._graph, fetch)
            raise ValueError(f"Fetch argument {fetch!r} cannot be interpreted as a Tensor. ({text})") from None
        if not self._graph.is_fetchable(element):
            from tfmini.errors import InaccessibleTensorError

            op = getattr(element, "op", element)
            why = "" if op._control_flow_context is None else _INSIDE
            raise InaccessibleTensorError(f"Operation {op.name!r} has been marked as not fetchable.{why}")
        return element


def writable(value: TensorLike) -> Any:
    """A value that arrived in a message, as an array that its user may change."""
    if isinstance(value, np.ndarray) and not value.flags.writeable:
        try:
            # A block of shared memory is the receiver's until it lets go of it: no copy needed.
            value.flags.writeable = True
        except ValueError:
            return value.copy()
    return value
