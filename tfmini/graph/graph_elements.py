"""The ops and tensors of a graph and their names, as methods of `tfmini.graph.graph.Graph`."""

from __future__ import annotations

import linecache
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from tfmini import protos
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scopes import user_frames

# ---- Collections of a graph: named lists through which library and user code share objects -------------------------


class CollectionStore:
    """The collection methods of `Graph`."""

    def __init__(self) -> None:
        self._collections: dict[Any, list[Any]] = {}
        self._collections_lock = threading.Lock()
        # The stack of the call that made the graph read-only; None while it may change.
        self._finalized_at: tuple[Any, ...] | None = None

    @property
    def collections(self) -> list[Any]:
        """Lists the names of the collections."""
        return list(self._collections)

    def add_to_collection(self, name: Any, value: Any) -> None:
        """Appends ``value`` to the collection ``name``."""
        if self._finalized_at is not None:
            self._refuse_change(f"an item of the collection {name!r}")
        with self._collections_lock:
            self._collections.setdefault(name, []).append(value)

    def add_to_collections(self, names: Any, value: Any) -> None:
        """Appends ``value`` once to each collection in ``names`` (one name or several)."""
        names = (names,) if isinstance(names, str) else dict.fromkeys(names)
        for name in names:
            self.add_to_collection(name, value)

    def get_collection_ref(self, name: Any) -> list[Any]:
        """Returns the collection itself, which the caller may change. Makes an empty one if there is none."""
        with self._collections_lock:
            return self._collections.setdefault(name, [])

    def get_collection(self, name: Any, scope: str | None = None) -> list[Any]:
        """Returns a copy of the collection, or of its items whose name matches the regex ``scope``."""
        with self._collections_lock:
            items = list(self._collections.get(name, ()))
        if scope is None:
            return items
        pattern = re.compile(scope)
        return [item for item in items if hasattr(item, "name") and pattern.match(item.name)]

    def get_all_collection_keys(self) -> list[Any]:
        """Lists the names of the collections that are strings."""
        with self._collections_lock:
            return [name for name in self._collections if isinstance(name, str)]

    def _refuse_change(self, what: str) -> NoReturn:
        """Raises the error for an addition to a graph that is read-only."""
        stack = user_frames(self._finalized_at or ())
        where = " (at {}:{})".format(*stack[-1][:2]) if stack else ""
        code = linecache.getline(*stack[-1][:2]).strip() if stack else ""
        where += f" by `{code}`" if code else ""
        raise RuntimeError(
            f"Graph is finalized and cannot be modified. It was finalized{where}, and now gets {what}. Build everything"
            " before that: a MonitoredSession, a Supervisor and an Estimator finalize the graph. Calls that build ops"
            " (a function of tf, an operator of a tensor, tf.global_variables_initializer) belong before the loop that"
            " runs them."
        )

    def clear_collection(self, name: Any) -> None:
        """Empties the collection ``name``."""
        with self._collections_lock:
            self._collections.pop(name, None)


# ---- The lookup of operations and tensors by name ------------------------------------------------------------------


class GraphElements(CollectionStore):
    """The ops of a graph, in order and by name."""

    def __init__(self) -> None:
        super().__init__()
        self._ops: dict[str, Operation] = {}
        self._order: list[Operation] = []
        self.uncounted_ops = 0  # see `scoping.count_ops`
        self.used_seed = False  # see `scoping.get_seed`
        self.versions: Any = None  # what an import made of `graph_def_versions`

    @property
    def version(self) -> int:
        """The number of ops made so far; it grows with every op."""
        return len(self._order)

    @property
    def graph_def_versions(self) -> Any:
        """The versions of GraphDef: those of the program that made the oldest part of the graph, and its readers."""
        kept = protos.VersionDef(producer=134)
        if self.versions is not None:
            kept.CopyFrom(self.versions)
        return kept

    @contextmanager
    def _original_op(self, op: Any) -> Iterator[None]:
        """The ops made inside say that they stand for ``op``."""
        first = len(self._order)
        yield
        for made in self._order[first:]:
            made._original_op = made._original_op or op

    def get_operations(self) -> list[Operation]:
        """Lists all operations in order of creation."""
        return list(self._order)

    def get_operation_by_name(self, name: str) -> Operation:
        """Returns the operation of that name.

        Raises:
          TypeError: ``name`` is no string.
          KeyError: the graph has none.
        """
        if not isinstance(name, str):
            raise TypeError(f"Operation names are strings (or similar), not {type(name).__name__}.")
        return self.as_graph_element(name, allow_tensor=False, allow_operation=True)  # type: ignore[no-any-return]

    def get_tensor_by_name(self, name: str) -> Tensor:
        """Returns the tensor called ``"op:index"``.

        Raises:
          TypeError: ``name`` is no string.
          KeyError: the graph has none.
        """
        if not isinstance(name, str):
            raise TypeError(f"Tensor names are strings (or similar), not {type(name).__name__}.")
        return self.as_graph_element(name, allow_tensor=True, allow_operation=False)  # type: ignore[no-any-return]

    def as_graph_element(self, obj: Any, allow_tensor: bool = True, allow_operation: bool = True) -> Any:
        """Converts an object or a name to the tensor or operation of this graph that it stands for.

        Raises:
          TypeError: it is neither.
          ValueError: it belongs to another graph, or is of the kind that is not allowed.
          KeyError: the graph has nothing of that name.
        """
        wanted = " or ".join(["Tensor"] * allow_tensor + ["Operation"] * allow_operation)
        convert = getattr(obj, "_as_graph_element", None)
        if convert is not None:
            obj = convert()
        if isinstance(obj, bytes):
            obj = obj.decode()
        if isinstance(obj, str):
            return self._element_by_name(obj, allow_tensor, allow_operation)
        if isinstance(obj, Tensor) and allow_tensor or isinstance(obj, Operation) and allow_operation:
            if obj.graph is not self:
                raise ValueError(
                    f"{'Tensor' if isinstance(obj, Tensor) else 'Operation'} {obj} is not an element of this graph."
                    " It was made in another one: use a session of that graph, tf.Session(graph=...), or make it here."
                )
            return obj
        raise TypeError(f"Can not convert a {type(obj).__name__} into a {wanted}.")

    def _element_by_name(self, name: str, allow_tensor: bool, allow_operation: bool) -> Any:
        op_name, colon, index = name.partition(":")
        if colon and allow_tensor:
            if not index.isdigit():
                raise ValueError(
                    f"The name {name!r} looks a like a Tensor name, but is not a valid one. Tensor names must be of the"
                    ' form "<op_name>:<output_index>".'
                )
            op = self._ops.get(op_name)
            if op is None:
                raise KeyError(
                    f"The name {name!r} refers to a Tensor which does not exist. The operation, {op_name!r}, does not"
                    " exist in the graph."
                )
            if int(index) >= len(op.outputs):
                raise KeyError(
                    f"The name {name!r} refers to a Tensor which does not exist. The operation, {op_name!r}, exists but"
                    f" only has {len(op.outputs)} outputs."
                )
            return op.outputs[int(index)]
        if colon:
            raise ValueError(f"The name {name!r} appears to refer to a Tensor, not a Operation.")
        if not allow_operation:
            if name in self._ops:
                raise ValueError(
                    f"The name {name!r} refers to an Operation, not a Tensor. Tensor names must be of the form"
                    ' "<op_name>:<output_index>".'
                )
            raise ValueError(
                f"The name {name!r} looks like an (invalid) Operation name, not a Tensor. Tensor names must be of the"
                ' form "<op_name>:<output_index>".'
            )
        if name not in self._ops:
            raise KeyError(f"The name {name!r} refers to an Operation not in the graph.")
        return self._ops[name]

    def _as_graph_element_by_name(self, name: str) -> Any:
        return self._element_by_name(name, True, True)
