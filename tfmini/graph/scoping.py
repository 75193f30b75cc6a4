"""The scopes, collections and seeds of the default graph (``tf.name_scope``, ``tf.device``, ``tf.get_collection``…)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from types import TracebackType
from typing import Any

from tfmini.core_types import TensorLike
from tfmini.export import export
from tfmini.graph.default_graph import exactly_default, get_default_graph, graphs_inside_out, reset_default_graph
from tfmini.graph.graph import Graph, innermost

__all__ = [
    "DEFAULT_GRAPH_SEED", "add_to_collection", "add_to_collections", "colocate_with", "container",
    "control_dependencies", "device", "get_collection", "get_collection_ref", "get_default_graph",
    "get_graph_from_inputs", "get_seed", "init_scope", "name_scope", "name_scope_v2", "op_scope", "reset_default_graph",
    "set_random_seed",
]  # fmt: skip

# TensorFlow's seed for the graph if only the op has a seed.
DEFAULT_GRAPH_SEED = 87654321
_MAX_SEED = 2**31 - 1


@export("tf.name_scope")
class name_scope:
    """Prefixes the names of the ops made inside (``tf.name_scope``); yields the prefix with a final ``/``.

    Args:
      name: the scope's name, or None for ``default_name``.
      default_name: the name when ``name`` is None.
      values: the inputs of the ops made inside. Their graph becomes the default graph for the block.

    Raises:
      ValueError: on entering, if there are values but no name, or values of several graphs.
    """

    def __init__(self, name: str | None, default_name: str | None = None, values: Iterable[Any] | None = None) -> None:
        if not (default_name is None or isinstance(default_name, str)):
            raise TypeError(
                f"`default_name` type ({type(default_name)}) is not a string type. You likely meant to pass this into"
                " the `values` kwarg."
            )
        self._name = default_name if name is None else name
        self._default_name = default_name
        self._values = values
        self._exits: list[AbstractContextManager[Any]] = []

    @property
    def name(self) -> str | None:
        """The requested name of the scope."""
        return self._name

    def __enter__(self) -> str:
        if self._name is None and self._values is not None:
            raise ValueError(
                f"At least one of name ({self._name}) and default_name ({self._default_name}) must be provided."
            )
        graph = get_default_graph()
        if self._values is not None:
            found = get_graph_from_inputs(self._values)
            if found is not graph:
                graph = found
                self._push(graph.as_default())
        try:
            return self._push(graph.name_scope(self._name))  # type: ignore[no-any-return]
        except BaseException:  # without a `with` body, the scopes entered so far must be left here
            self.__exit__(None, None, None)
            raise

    def _push(self, scope: AbstractContextManager[Any]) -> Any:
        entered = scope.__enter__()
        self._exits.append(scope)
        return entered

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._exits:
            self._exits.pop().__exit__(kind, error, trace)


@export("tf.compat.v2.name_scope")
class name_scope_v2(name_scope):
    """The name scope of version 2 (``tf.compat.v2.name_scope``): a name is needed, and it can be entered repeatedly.

    Raises:
      ValueError: ``name`` is no string.
    """

    def __init__(self, name: str) -> None:
        if not isinstance(name, str):
            raise ValueError(f"name for name_scope must be a string, but got {name!r}.")
        super().__init__(name)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exits.pop().__exit__(kind, error, trace)


def get_graph_from_inputs(values: Iterable[Any], graph: Graph | None = None) -> Graph:
    """Returns the graph of the tensors, operations and variables in ``values``; without any, the default graph.

    Raises:
      ValueError: they are of several graphs.
    """
    first = None
    for value in values:
        found = getattr(value, "graph", None)
        if not isinstance(found, Graph):
            continue
        found = innermost(found)
        if graph is None:
            graph, first = found, value
        elif found is not graph:
            if first is None:
                raise ValueError(f"{value} is not from the passed-in graph.")
            raise ValueError(f"{value} must be from the same graph as {first}.")
    return get_default_graph() if graph is None else graph


@export("tf.op_scope")
@contextmanager
def op_scope(values: Iterable[Any], name: str | None, default_name: str | None = None) -> Iterator[str]:
    """The older spelling of `name_scope`, with the values first (``tf.op_scope``)."""
    with name_scope(name, default_name, values) as scope:
        yield scope


@export("tf.device")
def device(device_name_or_function: Any) -> AbstractContextManager[None]:
    """Requests a device for the ops made inside: that of `Graph.device` (``tf.device``).

    Args:
      device_name_or_function: a device such as ``/job:ps/task:0`` or ``/cpu:0``, a `DeviceSpec`, a function
        from an operation to one of these (such as that of `replica_device_setter`), or None, which ends the
        outer requests.

    Returns:
      A context manager: ops made inside request the device. What it leaves open is filled from the outer
      ``device``.
    """
    return get_default_graph().device(device_name_or_function)


@export("tf.colocate_with")
def colocate_with(op: Any, ignore_existing: bool = False) -> AbstractContextManager[None]:
    """``tf.get_default_graph().colocate_with(…)``."""
    return get_default_graph().colocate_with(op, ignore_existing)


@export("tf.container")
def container(container_name: str) -> AbstractContextManager[str]:
    """``tf.get_default_graph().container(…)``."""
    return get_default_graph().container(container_name)


@export("tf.control_dependencies")
def control_dependencies(control_inputs: Iterable[Any] | None) -> Any:
    """Lets the ops made inside wait for other ops (``tf.control_dependencies``).

    Args:
      control_inputs: operations and tensors; None leaves the outer dependencies.

    Returns:
      A context manager: an op made inside runs after all of them. Ops made before are not affected, nor is a
      tensor that is only returned: `identity` makes an op of it.
    """
    return get_default_graph().control_dependencies(control_inputs)


@export("tf.init_scope")
@contextmanager
def init_scope() -> Iterator[None]:
    """Leaves the enclosing control dependencies, conds, loops and functions (``tf.init_scope``).

    The name scope and the device scopes stay.
    """
    graphs = graphs_inside_out()
    scope = graphs[0].get_name_scope()
    around = next(i for i, graph in enumerate(graphs) if not graph.building_function or graph is graphs[-1])
    graph = graphs[around]
    with ExitStack() as stack:
        if around:
            stack.enter_context(exactly_default(graph))
            inner = next((g.scopes.devices for g in graphs[:around] if g.scopes.devices), None)
            if inner is not None:
                stack.enter_context(graph.scopes.with_devices(inner))
        stack.enter_context(graph.name_scope(scope + "/") if scope else nullcontext())
        stack.enter_context(graph.control_dependencies(None))
        yield


@export("tf.add_to_collection")
def add_to_collection(name: Any, value: Any) -> None:
    """Appends ``value`` to a collection of the default graph (``tf.add_to_collection``).

    Args:
      name: the collection's name.
      value: any object.
    """
    get_default_graph().add_to_collection(name, value)


@export("tf.add_to_collections")
def add_to_collections(names: Sequence[str], value: TensorLike) -> None:
    """Appends ``value`` to several collections of the default graph (``tf.add_to_collections``)."""
    get_default_graph().add_to_collections(names, value)


@export("tf.get_collection")
def get_collection(key: Any, scope: str | None = None) -> list[Any]:
    """Copies a collection of the default graph, filtered by the regex ``scope`` (``tf.get_collection``).

    Args:
      key: the collection's name, such as those in `GraphKeys`.
      scope: a regex that the beginning of an item's ``name`` must match; items without a name are left out.

    Returns:
      A list of the items, in the order in which they were added; empty for an unknown key.
    """
    return get_default_graph().get_collection(key, scope)


@export("tf.get_collection_ref")
def get_collection_ref(key: Any) -> list[Any]:
    """Returns a collection of the default graph, not a copy of it (``tf.get_collection_ref``)."""
    return get_default_graph().get_collection_ref(key)


@export("tf.set_random_seed", "tf.random.set_random_seed")
def set_random_seed(seed: int | None) -> None:
    """Sets the seed of the default graph, from which ops without a seed derive theirs (``tf.set_random_seed``).

    Args:
      seed: an int. With it, the numbers of a program are the same in each run. None: random.
    """
    get_default_graph().seed = seed


def count_ops(number: int) -> None:
    """Counts ops that TensorFlow adds here beyond tfmini's (below 0: those that it does not), for later seeds.

    With a seed of the graph, the number of its ops is the seed of the next random op; see decision 6.
    """
    get_default_graph().uncounted_ops += number


@contextmanager
def counted_as(number: int) -> Iterator[None]:
    """Counts the ops that the block makes as ``number``, as many as TensorFlow makes here (`count_ops`)."""
    graph = get_default_graph()
    before = graph.version + graph.uncounted_ops
    yield
    graph.uncounted_ops += number - (graph.version + graph.uncounted_ops - before)


@export("tf.get_seed", "tf.random.get_seed")
def get_seed(op_seed: int | None) -> tuple[int | None, int | None]:
    """Returns the ``seed`` and ``seed2`` of a random op (``tf.get_seed``).

    If only the graph has a seed, the number of ops made so far is the op's seed. So ops differ from each other, and
    every run of a program gives the same values. If neither is set, the result is (None, None). It is never (0, 0),
    which means "choose at random".
    """
    graph = get_default_graph()
    if graph.seed is not None:
        graph.used_seed |= op_seed is None
        first, second = graph.seed, graph.version + graph.uncounted_ops if op_seed is None else op_seed
    elif op_seed is not None:
        first, second = DEFAULT_GRAPH_SEED, op_seed
    else:
        return None, None
    seeds = first % _MAX_SEED, second % _MAX_SEED
    return (0, _MAX_SEED) if seeds == (0, 0) else seeds
