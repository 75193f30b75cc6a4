"""``tf.import_graph_def``: the nodes of a GraphDef become operations of the default graph.

The import first chooses all names, then adds the nodes in an order in which every input exists. Only edges from
``NextIteration`` to ``Merge`` may run backwards; they are added at the end. If the GraphDef is not valid, the import
removes the operations that it has added.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tfmini import devices, dtypes, errors, protos
from tfmini.dtypes import DType
from tfmini.errors import NotFoundError
from tfmini.export import export
from tfmini.graph.attr_checks import drop_later_attrs
from tfmini.graph.conversion import internal_convert
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.functions import without_calls
from tfmini.graph.graph import Graph
from tfmini.graph.graph_def import (
    GRAPH_DEF_VERSION,
    GRAPH_DEF_VERSION_MIN_PRODUCER,
    graph_def_to_nodes,
    parse_endpoint,
)
from tfmini.graph.node import Endpoint, Node, Nodes, input_dtypes, output_dtypes
from tfmini.graph.op_def import MISSING, ArgDef, AttrDef, OpDef
from tfmini.graph.op_types import MERGE_OPS, NEXT_OPS, OPS, OpType
from tfmini.graph.operation import Operation, Tensor, op_of
from tfmini.graph.prune import topological_order
from tfmini.graph.wire_checks import OUTPUT_LIMIT
from tfmini.shapes import RawShape, as_raw, merge_raw

# ---- Checks of imported nodes, with TensorFlow's error messages ----------------------------------------------------

_NODE_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\-/]*\Z")
_FIELD_OF_KIND = {"string": "s", "int": "i", "float": "f", "bool": "b"}
_KIND_OF_FIELD = {field: kind for kind, field in _FIELD_OF_KIND.items()}


def check_versions(versions: Any) -> None:
    """Raises ValueError if a GraphDef is too old or too new."""
    if versions.producer < GRAPH_DEF_VERSION_MIN_PRODUCER:
        raise ValueError(
            f"GraphDef producer version {versions.producer} below min producer {GRAPH_DEF_VERSION_MIN_PRODUCER}"
            " supported by TensorFlow 1.15.  Please regenerate your graph."
        )
    if versions.min_consumer > GRAPH_DEF_VERSION:
        raise ValueError(
            f"GraphDef min consumer version {versions.min_consumer} above current version {GRAPH_DEF_VERSION}"
            " for TensorFlow 1.15.  Please upgrade TensorFlow."
        )
    if GRAPH_DEF_VERSION in versions.bad_consumers:
        raise ValueError(
            f"GraphDef disallows consumer version {GRAPH_DEF_VERSION}.  Please upgrade TensorFlow: this version is"
            " likely buggy."
        )


def check_name(node_def: Any) -> None:
    """Raises ValueError if a node has no valid name or no op type."""
    if not _NODE_NAME.match(node_def.name):
        raise ValueError(f"Node '{node_def.name}': Node name contains invalid characters")
    if not node_def.op:
        raise ValueError(f"Node '{node_def.name}' does not specify an operation")


def known_op(node_def: Any) -> OpType:
    """Returns the handle of a node's op type; raises NotFoundError if there is none."""
    handle = OPS.get(node_def.op)
    if handle is None:
        raise NotFoundError.of(
            f"Op type not registered '{node_def.op}' in binary running on {platform.node()}. Make sure the Op and"
            " Kernel are registered in the binary running in this process: import the module that declares the op"
            f" before importing the graph. (node '{node_def.name}')"
        )
    return handle


def check_attrs(node_def: Any, op_def: OpDef, name: str, attrs: dict[str, Any]) -> None:
    """Compares a node's attrs with the op's declaration.

    Args:
      node_def: the NodeDef. It tells of which kind each value is.
      op_def: the declaration.
      name: the node's name in the graph, for error messages.
      attrs: the node's plain attrs, defaults included.

    Raises:
      ValueError: an attr is missing, unknown, of the wrong kind, or has a value that is not allowed.
    """
    where = f"NodeDef: {{{{node {name}}}}}"
    for attr in node_def.attr:
        if not attr.startswith("_") and attr not in op_def.attrs:
            raise ValueError(
                f"NodeDef mentions attr '{attr}' not in {op_summary(op_def)}; {where}. (Check whether your"
                " GraphDef-interpreting binary is up to date with your GraphDef-generating binary.)."
            )
    for definition in op_def.attrs.values():
        if definition.name not in attrs:
            raise ValueError(f"NodeDef missing attr '{definition.name}' from {op_summary(op_def)}; {where}")
        problem = _kind_problem(node_def, definition) or _value_problem(definition, attrs[definition.name])
        if problem:
            raise ValueError(f"{problem}\n\t; {where}; {op_summary(op_def)}")
    for arg in op_def.outputs:
        if arg.number_attr is not None and attrs[arg.number_attr] > OUTPUT_LIMIT:
            count = attrs[arg.number_attr]
            raise ValueError(f"Attr '{arg.number_attr}' asks for {count} outputs; {OUTPUT_LIMIT} are possible; {where}")


def _kind_problem(node_def: Any, definition: AttrDef) -> str | None:
    if definition.name not in node_def.attr:
        return None
    field = node_def.attr[definition.name].WhichOneof("value")
    if field is None:
        return None
    kind = definition.kind
    values = node_def.attr[definition.name]
    if kind.startswith("list(") and field == "list":
        found = values.list.ListFields()
        field, kind = (found[0][0].name, kind[5:-1]) if found else ("", "")
    if field == _FIELD_OF_KIND.get(kind, kind):
        return None
    got = _KIND_OF_FIELD.get(field, field)
    return f"AttrValue had value with type '{got}' when '{definition.kind}' expected\n\t for attr '{definition.name}'"


def _value_problem(definition: AttrDef, value: Any) -> str | None:
    if (odd := definition.odd_item(value)) is not MISSING:
        names = ", ".join(_quoted(choice) for choice in definition.allowed or ())
        return f"Value for attr '{definition.name}' of {_quoted(odd)} is not in the list of allowed values: {names}"
    if not definition.is_short(value):
        return None
    if isinstance(value, list):
        return f"Length for attr '{definition.name}' of {len(value)} must be at least minimum {definition.minimum}"
    return f"Value for attr '{definition.name}' of {value} must be at least minimum {definition.minimum}"


def check_inputs(op_def: OpDef, name: str, expected: list[DType], sources: list[Any]) -> None:
    """Compares the types of a node's inputs with those that the op expects.

    Raises:
      ValueError: there are too few or too many inputs, or one has another type.
    """
    if len(expected) != len(sources):
        types = ", ".join(type_word(dtype) for dtype in expected)
        raise ValueError(
            f"NodeDef expected inputs '{types}' do not match {len(sources)} inputs specified; {op_summary(op_def)};"
            f" NodeDef: {{{{node {name}}}}}"
        )
    for i, (dtype, tensor) in enumerate(zip(expected, sources)):
        if tensor.dtype is not dtype and tensor.dtype.base_dtype is not dtype:
            raise ValueError(
                f"Input {i} of node {name} was passed {type_word(tensor.dtype)} from {tensor.name} incompatible with"
                f" expected {type_word(dtype)}."
            )


# ---- how TensorFlow writes declarations in messages -----------------------------------------


def type_word(dtype: DType) -> str:
    """Formats a type as TensorFlow's C++ code does: ``float``, ``half``, ``float_ref``."""
    name: str = protos.DataType.Name(dtype.as_datatype_enum)
    return name[3:].lower()


def op_summary(op_def: OpDef) -> str:
    """Formats a declaration on one line: ``Op<name=Exp; signature=x:T -> y:T; attr=T:type,allowed=[…]>``."""
    inputs = ", ".join(_arg_text(arg) for arg in op_def.inputs)
    outputs = ", ".join(_arg_text(arg) for arg in op_def.outputs)
    attrs = "".join(f"; attr={_attr_text(attr)}" for attr in op_def.attrs.values())
    stateful = "; is_stateful=true" if op_def.is_stateful else ""
    return f"Op<name={op_def.name}; signature={inputs} -> {outputs}{attrs}{stateful}>"


def _arg_text(arg: ArgDef) -> str:
    kind = arg.type_list_attr or arg.type_attr or type_word(arg.dtype)  # type: ignore[arg-type]
    kind = f"{arg.number_attr}*{kind}" if arg.number_attr else kind
    return f"{arg.name}:{f'Ref({kind})' if arg.is_ref else kind}"


def _attr_text(attr: AttrDef) -> str:
    text = f"{attr.name}:{attr.kind}"
    if attr.has_default:
        text += f",default={_default_text(attr.default, attr.kind)}"
    if attr.minimum is not None:
        text += f",min={attr.minimum}"
    if attr.allowed is not None:
        text += f",allowed=[{', '.join(_enum_name(choice) for choice in attr.allowed)}]"
    return text


def _default_text(value: Any, kind: str) -> str:
    if kind.startswith("list("):
        return "[" + ", ".join(_default_text(item, kind[5:-1]) for item in value) + "]"
    if kind == "shape":
        return "<unknown>" if value is None else "[" + ",".join("?" if d is None else str(d) for d in value) + "]"
    return str(value).lower() if kind == "bool" else _enum_name(value)


def _enum_name(value: Any) -> str:
    return protos.DataType.Name(value.as_datatype_enum) if isinstance(value, DType) else _quoted(value)


def _quoted(value: Any) -> str:
    if isinstance(value, DType):
        return type_word(value)
    return f'"{value.decode(errors="replace")}"' if isinstance(value, bytes) else str(value)


# ---- ``tf.import_graph_def`` ---------------------------------------------------------------------------------------

_LOC = b"loc:@"
# Up to this producer version, a placeholder of unknown shape was stored with the shape of a scalar.
_LAST_PRODUCER_OF_SCALAR_PLACEHOLDERS = 21
# Earlier producers stored wrong _output_shapes; TensorFlow ignores these if they contradict the inferred ones.
_FIRST_PRODUCER_WITH_RIGHT_SHAPES = 21


@export("tf.import_graph_def", "tf.graph_util.import_graph_def")
def import_graph_def(
    graph_def: Any,
    input_map: dict[str, Any] | None = None,
    return_elements: Any = None,
    name: str | None = None,
    op_dict: Any = None,
    producer_op_list: Any = None,
) -> list[Any] | None:
    """Adds the nodes of a GraphDef to the default graph (``tf.import_graph_def``).

    Args:
      graph_def: a GraphDef message, tfmini's or TensorFlow's.
      input_map: replacements for inputs in ``graph_def``, by their names there: a tensor for ``"a"`` or ``"a:1"``, a
        tensor or operation for the control input ``"^a"``.
      return_elements: the names in ``graph_def`` of operations and tensors to return.
      name: prefix of the new names; ``"import"`` by default, ``""`` for none.
      op_dict: ignored, as in TensorFlow.
      producer_op_list: the OpList of the producer. The import drops an attr that tfmini does not know if it has the
        producer's default.

    Returns:
      The requested elements, or None if ``return_elements`` is None.

    Raises:
      TypeError: an argument is not of the type above.
      NotFoundError: tfmini does not have an op type.
      ResourceExhaustedError: it needs more memory than there is.
      ValueError: ``graph_def`` is not valid, or lacks a name in the other arguments.
    """
    del op_dict
    message = _as_graph_def(graph_def)
    mapping = _checked_input_map(input_map)
    wanted = _checked_return_elements(return_elements)
    graph = get_default_graph()
    with _refusing(), graph.name_scope("import" if name is None else name), graph._lock:
        check_versions(message.versions)
        if message.library.function:
            message = without_calls(message)
        if producer_op_list is not None:
            _drop_producer_defaults(message, producer_op_list)
        drop_later_attrs(message)
        importer = _Importer(graph, message, _as_tensors(graph, name, mapping))
        try:
            importer.add_all()
            _take_versions(graph, message.versions)
            return None if wanted is None else [importer.element(text) for text in wanted]
        except BaseException:  # also Ctrl-C: no part of the graph may stay
            importer.undo()
            raise


def add_body(graph_def: Any, given: dict[str, Any], wanted: list[str], name: str) -> list[Any]:
    """Adds the nodes of a function's body to the default graph.

    Args:
      graph_def: the body, without calls.
      given: name of a node -> the tensor that stands for its output. These nodes are left out.
      wanted: names of the tensors and ops to return.
      name: the name scope.
    """
    body: Any = protos.GraphDef(versions=graph_def.versions)
    used: set[str] = set()
    for node in graph_def.node:
        if node.name not in given:
            body.node.add().CopyFrom(node)
            texts = [text for text in node.input if text.removeprefix("^") not in given or text in given]
            body.node[-1].input[:] = texts
            used.update(text.removesuffix(":0") for text in texts)
            _leave_groups(body.node[-1], given)
    inside = [text for text in wanted if text.removesuffix(":0") not in given]
    mapping = {key: value for key, value in given.items() if key in used}
    found = dict(zip(inside, import_graph_def(body, mapping, inside, name=name) or ()))
    return [found[text] if text in found else given[text.removesuffix(":0")] for text in wanted]


def _leave_groups(node_def: Any, given: dict[str, Any]) -> None:
    """Takes a node away from those that are left out, which it was to be near."""
    if "_class" in node_def.attr:
        groups = node_def.attr["_class"].list.s
        groups[:] = [group for group in groups if group.removeprefix(_LOC).decode() not in given]
        if not groups:
            del node_def.attr["_class"]


@contextmanager
def _refusing() -> Iterator[None]:
    """Turns the errors of a GraphDef that is not valid into ValueErrors, as TensorFlow does."""
    try:
        with errors.reading("graph_def is not valid", ValueError):
            yield
    except errors.InvalidArgumentError as error:
        raise ValueError(error.message) from error


# ---- Its arguments: which GraphDef, names and replacements are meant -----------------------------------------------


def _as_graph_def(graph_def: Any) -> Any:
    """Copies a GraphDef message, tfmini's or TensorFlow's, into tfmini's class."""
    descriptor = getattr(graph_def, "DESCRIPTOR", None)
    if descriptor is None or descriptor.name != "GraphDef":
        raise TypeError("graph_def must be a GraphDef proto.")
    if isinstance(graph_def, protos.GraphDef):
        copied = protos.GraphDef()
        copied.CopyFrom(graph_def)
        return copied
    return protos.GraphDef.FromString(graph_def.SerializeToString())


def _checked_input_map(input_map: Any) -> dict[str, Any]:
    if input_map is None:
        return {}
    if not isinstance(input_map, dict) or not all(isinstance(key, (str, bytes)) for key in input_map):
        raise TypeError("input_map must be a dictionary mapping strings to Tensor objects.")
    return {_text(key): value for key, value in input_map.items()}


def _checked_return_elements(return_elements: Any) -> list[str] | None:
    if return_elements is None:
        return None
    if not all(isinstance(element, (str, bytes)) for element in return_elements):
        raise TypeError("return_elements must be a list of strings.")
    return [_text(element) for element in return_elements]


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _as_tensors(graph: Graph, name: str | None, mapping: dict[str, Any]) -> dict[str, Any]:
    """Converts the Python values in the input map to constants under ``<prefix>/_inputs``."""
    given = {
        key: value
        for key, value in mapping.items()
        if isinstance(value, Tensor) or key.startswith("^") and isinstance(value, Operation)
    }
    if len(given) == len(mapping):
        return mapping
    if name == "":
        raise ValueError(
            "tf.import_graph_def() requires a non-empty `name` if `input_map` contains non-Tensor values. Try calling"
            " tf.convert_to_tensor() on `input_map` values before calling tf.import_graph_def()."
        )
    with graph.name_scope("_inputs"):
        return {key: given[key] if key in given else internal_convert(v) for key, v in mapping.items()}


def _parse_tensor_name(text: str) -> Endpoint:
    """Parses ``"a"`` or ``"a:1"``. Unlike in a NodeDef, only a number may follow the colon."""
    name, index = parse_endpoint(text)
    if ":" in name:
        raise ValueError(f"Cannot convert {text!r} to a tensor name.")
    return name, index


def _drop_producer_defaults(graph_def: Any, op_list: Any) -> None:
    """Removes attrs that tfmini does not know and that have the producer's default."""
    defaults = {
        (op.name, attr.name): attr.default_value.SerializeToString(deterministic=True)
        for op in op_list.op
        for attr in op.attr
        if attr.HasField("default_value")
    }
    for node_def in graph_def.node:
        handle = OPS.get(node_def.op)
        for attr in list(node_def.attr) if handle is not None else ():
            default = defaults.get((node_def.op, attr))
            if attr in handle.op_def.attrs or default is None:  # type: ignore[union-attr]
                continue
            if node_def.attr[attr].SerializeToString(deterministic=True) == default:
                del node_def.attr[attr]


def _take_versions(graph: Graph, versions: Any) -> None:
    """A graph is as old as the oldest part of it, and needs a reader that is new enough for all parts."""
    own = graph.graph_def_versions
    own.producer = min(own.producer, versions.producer)
    own.min_consumer = max(own.min_consumer, versions.min_consumer)
    own.bad_consumers[:] = sorted({*own.bad_consumers, *versions.bad_consumers})
    graph.versions = own


# ---- The import: nodes become operations, loops included -----------------------------------------------------------


def _has_old_handle(op: Operation) -> bool:
    """Whether an op has a queue, barrier, table or reader as a reference, whose stored shape may differ."""
    arguments = (*op.handle.op_def.inputs, *op.handle.op_def.outputs)
    return any(argument.is_ref and argument.dtype is dtypes.string for argument in arguments)


def _scopes_of(name: str) -> Iterator[str]:
    """The name scopes that an op of this name is in."""
    end = name.rfind("/")
    while end > 0:
        yield name[:end]
        end = name.rfind("/", 0, end)


class _Importer:
    """One import. All names are those in the GraphDef; ``made`` maps them to the operations."""

    def __init__(self, graph: Graph, graph_def: Any, mapping: dict[str, Any]) -> None:
        self.graph = graph
        self.producer = graph_def.versions.producer
        for node_def in graph_def.node:
            check_name(node_def)
        self.node_defs = {node_def.name: node_def for node_def in graph_def.node}
        self.nodes: Nodes = graph_def_to_nodes(graph_def)
        self.map: dict[Endpoint, Tensor] = {}
        self.control_map: dict[str, Operation] = {}
        for key, value in mapping.items():
            self._add_mapping(key, value)
        self.used: set[Endpoint | str] = set()
        self.made: dict[str, Operation] = {}
        self.back_edges: list[tuple[Operation, int, Endpoint]] = []
        self._new_names_in_use: list[str] = []
        self.full_names: dict[str, str] = {}
        self._claimed: set[str] = set()
        self._prefixes = {prefix for name in graph._ops for prefix in _scopes_of(name)}

    def _add_mapping(self, key: str, value: Any) -> None:
        if value.graph is not self.graph:
            label = value.name if isinstance(value, Tensor) else f"^{value.name}"
            raise ValueError(
                f"node '{op_of(value).name}' in input_map does not exist in graph"  # type: ignore[union-attr]
                f" (input_map entry: {key}->{label})"
            )
        if key.startswith("^"):
            self.control_map[key[1:]] = op_of(value)  # type: ignore[assignment]
        else:
            self.map[_parse_tensor_name(key)] = value

    def add_all(self) -> None:
        """Adds every node. After an exception some of them have been added (see `undo`)."""
        for node in self.nodes.values():
            self._check_sources(node)
        order = self._creation_order()
        for node in self.nodes.values():
            self.full_names[node.name] = self._claim_name(node.name)
        with _scopes_of_import(self.graph):
            for name in order:
                self._add(self.nodes[name])
        for op, index, endpoint in self.back_edges:
            tensor = self._output(op.name, endpoint)
            check_inputs(op.handle.op_def, op.name, [op.inputs[index].dtype.base_dtype], [tensor])
            op._update_input(index, tensor)
        self._settle_colocated_devices()
        self._refuse_unknown_keys()
        context = self.graph.scopes.control_flow_context
        if context is not None:
            # At the end, since the context looks at all edges of an op.
            for op in self.made.values():
                context.AddOp(op)

    def _check_sources(self, node: Node) -> None:
        for number, endpoint in enumerate(node.inputs):
            if endpoint not in self.map and endpoint[0] not in self.nodes:
                text = self.node_defs[node.name].input[number]
                raise ValueError(f"Node '{node.name}': Unknown input node '{text}'")
        for control in node.controls:
            if control not in self.control_map and control not in self.nodes:
                raise ValueError(f"Node '{node.name}': Unknown input node '^{control}'")
        for group in _groups(node.attrs):
            if group not in self.nodes:
                raise ValueError(f"Node '{node.name}' expects to be colocated with unknown node '{group}'")

    def _is_back_edge(self, node: Node, endpoint: Endpoint) -> bool:
        return node.op in MERGE_OPS and endpoint not in self.map and self.nodes[endpoint[0]].op in NEXT_OPS

    def _creation_order(self) -> list[str]:
        """Names such that inputs come before their consumers, else in the GraphDef's order."""
        sources = {
            name: {e[0] for e in node.inputs if e not in self.map and not self._is_back_edge(node, e)}
            | {c for c in node.controls if c not in self.control_map}
            for name, node in self.nodes.items()
        }
        order = topological_order(sources)
        if len(order) < len(sources):
            raise ValueError(f"{len(sources) - len(order)} nodes in a cycle")
        return order

    def _claim_name(self, name: str) -> str:
        """The full name, which is no scope of older ops; unlike new names, imported ones are told apart by case."""
        prefix = self.graph.name_scopes.current
        base = full = f"{prefix}/{name}" if prefix else name
        count = 0
        while full in self.graph._ops or full in self._claimed or full in self._prefixes:
            count += 1
            full = f"{base}_{count}"
        self._claimed.add(full)
        key = full.lower()
        if key not in self.graph._names_in_use:
            self.graph._names_in_use[key] = 1
            self._new_names_in_use.append(key)
        return full

    # ---- one node ---------------------------------------------------------------------------

    def _add(self, node: Node) -> None:
        node_def = self.node_defs[node.name]
        handle = known_op(node_def)
        full_name = self.full_names[node.name]
        attrs = dict(node.attrs)
        stored_shapes = attrs.pop("_output_shapes", None)
        check_attrs(node_def, handle.op_def, full_name, attrs)
        if node.op == "Placeholder" and self.producer <= _LAST_PRODUCER_OF_SCALAR_PLACEHOLDERS and attrs["shape"] == ():
            attrs["shape"] = None
        typed = node.replace(attrs=attrs)
        inputs, pending = self._inputs(node)
        check_inputs(handle.op_def, full_name, input_dtypes(typed), inputs)
        groups = _groups(attrs)
        if "_class" in attrs:
            attrs["_class"] = [self._renamed_group(group) for group in attrs["_class"]]
        output_types = output_dtypes(typed)
        # What comes back from the loop's end is not known yet, so neither is the shape of the merge.
        shapes: list[RawShape] | None = [None] * len(output_types) if pending else None
        with _device_of_import(self.graph, node.device, colocated=any(g != node.name for g in groups)):
            op = self.graph.add_op(handle, full_name, inputs, attrs, output_types, shapes, joins_context=False)
        self.made[node.name] = op
        if node.controls:
            op._add_control_inputs([self._control(name) for name in node.controls])
        if stored_shapes is not None:
            self._refine_shapes(op, stored_shapes)
        self.back_edges.extend((op, index, endpoint) for index, endpoint in pending)

    def _inputs(self, node: Node) -> tuple[list[Any], list[tuple[int, Endpoint]]]:
        """The input tensors, and which of them are stand-ins for a loop's back edge."""
        pending = [(i, e) for i, e in enumerate(node.inputs) if self._is_back_edge(node, e) and e[0] not in self.made]
        late = {i for i, _ in pending}
        found = {i: self._output(node.name, e) for i, e in enumerate(node.inputs) if i not in late}
        if pending and not found:
            raise ValueError(f"Node '{node.name}' has only back edges as inputs")
        stand_in = next(iter(found.values())) if pending else None
        return [found.get(i, stand_in) for i in range(len(node.inputs))], pending

    def _output(self, consumer: str, endpoint: Endpoint) -> Tensor:
        if endpoint in self.map:
            self.used.add(endpoint)
            return self.map[endpoint]
        name, index = endpoint
        outputs = self.made[name].outputs
        if index >= len(outputs):
            raise ValueError(
                f"Node '{consumer}': Connecting to invalid output {index} of source node {name} which has"
                f" {len(outputs)} outputs."
            )
        return outputs[index]

    def _control(self, name: str) -> Operation:
        if name in self.control_map:
            self.used.add(name)
            return self.control_map[name]
        return self.made[name]

    def _renamed_group(self, group: bytes) -> bytes:
        if not group.startswith(_LOC):
            return group
        return _LOC + self.full_names[group[len(_LOC) :].decode()].encode()

    def _refine_shapes(self, op: Operation, stored: list[Any]) -> None:
        if len(stored) != len(op.outputs):
            raise ValueError(
                f"Node '{op.name}' has {len(op.outputs)} outputs but the _output_shapes attribute specifies shapes"
                f" for {len(stored)} outputs"
            )
        for i, (tensor, shape) in enumerate(zip(op.outputs, stored)):
            try:
                tensor.raw_shape = merge_raw(tensor.raw_shape, as_raw(shape))
            except ValueError as error:
                if self.producer >= _FIRST_PRODUCER_WITH_RIGHT_SHAPES and not _has_old_handle(op):
                    raise ValueError(
                        f"Node '{op.name}' has an _output_shapes attribute inconsistent with the GraphDef for output"
                        f" #{i}: {error}"
                    ) from None

    # ---- afterwards -------------------------------------------------------------------------

    def _settle_colocated_devices(self) -> None:
        """An op colocated with others requests the device of the first of them that requests one."""
        for name, op in self.made.items():
            anchors = [self.made[group] for group in _groups(self.nodes[name].attrs) if group != name]
            device = next((anchor._device for anchor in anchors if anchor._device), "")
            if device:
                op._device = device

    def _refuse_unknown_keys(self) -> None:
        unknown = [
            f"{name}:{index}"
            for name, index in self.map
            if (name, index) not in self.used and (name not in self.made or index >= len(self.made[name].outputs))
        ]
        unknown += [f"^{name}" for name in self.control_map if name not in self.used and name not in self.made]
        if unknown:
            raise ValueError(f"Attempted to map inputs that were not found in graph_def: [{', '.join(unknown)}]")

    def element(self, text: str) -> Any:
        """Returns the operation or tensor for a return element; for a tensor in the input map its replacement."""
        if ":" not in text:
            if text not in self.made:
                raise ValueError(f"Requested return node '{text}' not found in graph def")
            return self.made[text]
        endpoint = name, index = _parse_tensor_name(text)
        if endpoint in self.map:
            return self.map[endpoint]
        if name not in self.made:
            raise ValueError(f"Requested return tensor '{text}' not found in graph def")
        outputs = self.made[name].outputs
        if index >= len(outputs):
            raise ValueError(f"Invalid return output {index} of node '{name}', which has {len(outputs)} output(s)")
        return outputs[index]

    def undo(self) -> None:
        """Removes the operations made so far from the graph. The caller holds the graph's lock."""
        graph = self.graph
        gone = set(self.made.values())
        for op in gone:
            op._remove_all_control_inputs()
            for tensor in op.inputs:
                if tensor._consumers and op in tensor._consumers:
                    tensor._consumers.remove(op)
            del graph._ops[op.name]
        graph._order[:] = [op for op in graph._order if op not in gone]
        for key in self._new_names_in_use:
            del graph._names_in_use[key]


def _groups(attrs: dict[str, Any]) -> list[str]:
    """Returns the nodes with which the attrs request colocation."""
    return [group[len(_LOC) :].decode() for group in attrs.get("_class", ()) if group.startswith(_LOC)]


@contextmanager
def _scopes_of_import(graph: Graph) -> Iterator[None]:
    """Suspends the scopes that add attrs to an op, since imported attrs are complete."""
    state = graph.scopes
    saved = state.container, state.attr_scope, state.gradient_map
    state.container, state.attr_scope, state.gradient_map = "", {}, {}
    try:
        yield
    finally:
        state.container, state.attr_scope, state.gradient_map = saved


@contextmanager
def _device_of_import(graph: Graph, stored: str, colocated: bool) -> Iterator[None]:
    """Makes the stored device the innermost device scope. A colocated op gets no device scope at all."""
    if not stored and not colocated:
        yield
        return
    state = graph.scopes
    outer = state.devices
    state.set_devices([] if colocated else [*outer, devices.canonical_name(stored)])
    try:
        yield
    finally:
        state.set_devices(outer)
