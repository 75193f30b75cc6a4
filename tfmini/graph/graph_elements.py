"""The ops and tensors of a graph and their names, as methods of `tfmini.graph.graph.Graph`."""

from __future__ import annotations

from typing import Any

from tfmini import protos
from tfmini.graph.collections import CollectionStore
from tfmini.graph.operation import Operation, Tensor


class GraphElements(CollectionStore):
    """The ops of a graph, in order and by name."""

    def __init__(self) -> None:
        super().__init__()
        self._ops: dict[str, Operation] = {}
        self._order: list[Operation] = []

    @property
    def version(self) -> int:
        """The number of ops made so far; it grows with every op."""
        return len(self._order)

    @property
    def graph_def_versions(self) -> Any:
        return protos.VersionDef(producer=134, min_consumer=0)

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
