"""`Node`: an operation as a plain value, the form in which graphs are placed, cut and sent.

A client holds `Operation` objects; the master and the workers hold dictionaries name -> `Node` in creation order. A
graph pass is a function from such a dictionary to a new one. It does not change its argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from tfmini import dtypes
from tfmini.errors import InvalidArgumentError, NotFoundError
from tfmini.graph.op_def import ArgDef, OpDef
from tfmini.graph.op_types import OPS, OpType
from tfmini.graph.wire_checks import OUTPUT_LIMIT, check_node
from tfmini.shapes import TensorShape

Endpoint = tuple[str, int]
Nodes = dict[str, "Node"]
# An attr of nodes inside functions: the user's source line that made the node, as b"file:line".
DEFINED_AT = "_defined_at"


class Node:
    """One node: its op type, device (the requested one, after placement the assigned one), inputs and attrs.

    Attributes:
      inputs: (source node name, output index) per data input.
      controls: names of the nodes that must finish first.
      attrs: as in `Operation.attrs`.
    """

    __slots__ = ("name", "op", "device", "inputs", "controls", "attrs")

    def __init__(
        self,
        name: str,
        op: str,
        device: str = "",
        inputs: Iterable[Endpoint] = (),
        controls: Iterable[str] = (),
        attrs: dict[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.op = op
        self.device = device
        self.inputs = tuple(inputs)
        self.controls = tuple(controls)
        self.attrs = {} if attrs is None else attrs

    def replace(self, **fields: Any) -> Node:
        """Returns a copy with some fields changed."""
        values = {slot: fields.get(slot, getattr(self, slot)) for slot in self.__slots__}
        return Node(**values)

    @property
    def handle(self) -> OpType | None:
        """The op's handle, or None if tfmini does not have the op type."""
        return OPS.get(self.op)

    def __repr__(self) -> str:
        args = [f"{name}:{index}" if index else name for name, index in self.inputs]
        args += [f"^{name}" for name in self.controls]
        return f"<node {self.name} = {self.op}({', '.join(args)}) @{self.device or '?'}>"

    def to_wire(self) -> list[Any]:
        """Converts the node to a plain list for an rpc `Structure` field."""
        attrs = {name: _attr_to_wire(value) for name, value in self.attrs.items()}
        return [self.name, self.op, self.device, [list(i) for i in self.inputs], list(self.controls), attrs]

    @classmethod
    def from_wire(cls, fields: list[Any]) -> Node:
        """The inverse of `to_wire`.

        Raises:
          InvalidArgumentError: a field or an attr is of another type than the op's declaration says.
        """
        try:
            name, op, device, inputs, controls, attrs = fields
            pairs = [(source, index) for source, index in inputs]
            plain = {key: _attr_from_wire(value) for key, value in attrs.items()}
        except (TypeError, ValueError, AttributeError, KeyError) as error:
            raise InvalidArgumentError.of(f"A node of the graph is malformed: {error}") from None
        check_node(name, op, device, pairs, controls, plain)
        return cls(name, op, device, pairs, controls, plain)


class FunctionBody:
    """A function as an attr: a graph with parameters and results.

    Attributes:
      name: for error messages.
      nodes: in creation order. Each parameter is a Placeholder among them.
      parameters: the node name of each parameter; captured tensors come last.
      results: the endpoint of each result.
      targets: the names of nodes with side effects, which run in every call.
    """

    __slots__ = ("name", "nodes", "parameters", "results", "targets")

    def __init__(
        self, name: str, nodes: list[Node], parameters: list[str], results: list[Endpoint], targets: list[str]
    ) -> None:
        self.name = name
        self.nodes = nodes
        self.parameters = parameters
        self.results = results
        self.targets = targets

    def __repr__(self) -> str:
        return f"<function {self.name} of {len(self.nodes)} nodes>"

    def to_wire(self) -> dict[str, Any]:
        """Converts the body to a plain value for an rpc `Structure` field."""
        return {
            "name": self.name,
            "nodes": [node.to_wire() for node in self.nodes],
            "parameters": self.parameters,
            "results": [list(result) for result in self.results],
            "targets": self.targets,
        }

    @classmethod
    def from_wire(cls, fields: dict[str, Any]) -> FunctionBody:
        nodes = [Node.from_wire(node) for node in fields["nodes"]]
        check_edges(nodes, by_name(nodes))
        results = [(name, index) for name, index in fields["results"]]
        return cls(fields["name"], nodes, list(fields["parameters"]), results, list(fields["targets"]))


def _attr_to_wire(value: Any) -> Any:
    """Converts an attr to a value that msgpack can encode: a shape, here a tuple, becomes a TensorShape."""
    if type(value) is FunctionBody:
        return value.to_wire()
    if type(value) is tuple:
        return TensorShape.from_raw(value)
    return [_attr_to_wire(v) for v in value] if type(value) is list else value


def _attr_from_wire(value: Any) -> Any:
    if type(value) is TensorShape:
        return value.raw
    if type(value) is dict:
        return FunctionBody.from_wire(value)
    return [_attr_from_wire(v) for v in value] if type(value) is list else value


# ---- node types ----------------------------------------
# The dtypes of a `Node`'s inputs and outputs, derived from its op's declaration and its attrs; whether edges fit them.
# A node of an op that is not declared may have its types in the attrs `INPUT_TYPES` and `OUTPUT_TYPES`. Such a node can
# be placed and cut, but not run.

# Ops that only graph passes make: where a value comes from the client and goes to it, and where one goes to another
# device and comes from it. Tables beside the nodes say which value it is (`placement.task_graph`).
FEED, FETCH, SEND, RECEIVE = "_Arg", "_Retval", "_Send", "_Recv"
# With the attrs that hold their output types. No kernel exists for them.
MADE_BY_PASSES: dict[str, tuple[str, ...]] = {FEED: ("T",), FETCH: (), SEND: (), RECEIVE: ("tensor_type",)}

INPUT_TYPES = "_input_types"
OUTPUT_TYPES = "_output_types"


class TypedNode(Protocol):
    """What these functions read of a `Node`, whose own methods use them."""

    name: str
    op: str
    inputs: tuple[tuple[str, int], ...]
    attrs: dict[str, Any]

    @property
    def handle(self) -> OpType | None: ...


N = TypeVar("N", bound=TypedNode)


def output_dtypes(node: TypedNode) -> list[dtypes.DType]:
    """Returns the dtype of each output; of a reference the ``_ref`` type.

    Raises:
      NotFoundError: the op type is unknown.
      KeyError: the attr that gives a type is missing.
    """
    type_attrs = MADE_BY_PASSES.get(node.op)
    if type_attrs is not None:
        return [node.attrs[name] for name in type_attrs]
    handle = node.handle
    if handle is None and OUTPUT_TYPES in node.attrs:
        return list(node.attrs[OUTPUT_TYPES])
    op_def = _op_def(node) if handle is None else handle.op_def
    return [dtype for arg in op_def.outputs for dtype in _arg_dtypes(arg, node)]


def input_dtypes(node: TypedNode) -> list[dtypes.DType]:
    """Returns the dtype that each data input expects; for a ``Ref`` argument the ``_ref`` type.

    Raises: as `output_dtypes`.
    """
    if node.handle is None and INPUT_TYPES in node.attrs:
        return list(node.attrs[INPUT_TYPES])
    return [dtype for arg in _op_def(node).inputs for dtype in _arg_dtypes(arg, node)]


def output_count(node: TypedNode) -> int:
    """Returns the number of outputs. Raises as `output_dtypes`."""
    return len(output_dtypes(node))


def by_name(nodes: Sequence[N]) -> dict[str, N]:
    """The nodes of a graph of another process by name.

    Raises:
      InvalidArgumentError: two have the same name.
    """
    named = {node.name: node for node in nodes}
    if len(named) < len(nodes):
        twice = next(node.name for node in nodes if named[node.name] is not node)
        raise InvalidArgumentError.of(f"Node name {twice!r} already exists in the Graph")
    return named


def check_edges(nodes: Iterable[N], sources: Mapping[str, N]) -> None:
    """Compares the type of each input with that of the output that it comes from, in a graph of another process.

    Kernels rely on the types that attrs name. A source that is not in ``sources``, or a node of an op that this process
    does not know, is not looked at.

    Raises:
      InvalidArgumentError: naming the node and the input.
    """
    made: dict[str, list[dtypes.DType]] = {}
    for node in nodes:
        if node.op in MADE_BY_PASSES or node.handle is None:
            continue
        for position, ((name, index), wanted) in enumerate(zip(node.inputs, input_dtypes(node))):
            source = sources.get(name)
            if source is None or source.handle is None and source.op not in MADE_BY_PASSES:
                continue
            found = made.get(name)
            if found is None:
                found = made[name] = output_dtypes(source)
            if index >= len(found):
                raise InvalidArgumentError.of(
                    f"Node {node.name!r} takes output {index} of {name!r}, which has {len(found)} outputs"
                )
            if found[index] is not wanted and (wanted._is_ref_dtype or found[index].base_dtype is not wanted):
                raise InvalidArgumentError.of(
                    f"Input {position} of node {node.name} was passed {found[index].name} from {name}:{index}"
                    f" incompatible with expected {wanted.name}."
                )


def _op_def(node: TypedNode) -> OpDef:
    handle = node.handle
    if handle is None:
        message = (
            f"Op type not registered '{node.op}' (node '{node.name}'). Make sure that the module which "
            f"declares "
            "the op is imported in every task of the cluster."
        )
        raise NotFoundError.of(message)
    return handle.op_def


def _arg_dtypes(arg: ArgDef, node: TypedNode) -> list[dtypes.DType]:
    if arg.type_list_attr is not None:
        found = list(node.attrs[arg.type_list_attr])
    else:
        dtype = node.attrs[arg.type_attr] if arg.type_attr is not None else arg.dtype
        count = node.attrs[arg.number_attr] if arg.number_attr is not None else 1
        if count > OUTPUT_LIMIT:
            raise InvalidArgumentError.of(
                f"Attr {arg.number_attr!r} of node {node.name!r} is {count}; at most {OUTPUT_LIMIT} is possible"
            )
        found = [dtype] * count
    return [dtype._as_ref for dtype in found] if arg.is_ref else found
