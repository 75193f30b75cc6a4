"""Reads the sources of an inspection: live graphs and sessions, messages, and files of them, binary or text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tfmini import errors, protos
from tfmini.graph.graph import Graph
from tfmini.graph.graph_def import graph_def_to_nodes, nodes_to_graph_def
from tfmini.graph.importing import import_graph_def
from tfmini.graph.keys import GraphKeys
from tfmini.graph.node import Endpoint, Node, Nodes
from tfmini.graph.node_types import INPUT_TYPES, OUTPUT_TYPES, output_dtypes
from tfmini.graph.operation import node_of
from tfmini.graph.traits import PLACEHOLDER_OPS
from tfmini.graph.wire_checks import check_kinds
from tfmini.inspection.findings import Finding
from tfmini.inspection.foreign import known_types
from tfmini.inspection.study import Subject
from tfmini.runtime.client.session import BaseSession
from tfmini.shapes import RawShape
from tfmini.train.checkpointing.graph_files import parse_text

_SAVED_MODEL_FILES = ("saved_model.pb", "saved_model.pbtxt")


def read_source(source: Any) -> Subject:
    """Reads a graph, session, message or path.

    Raises:
      TypeError: ``source`` has another type.
      ValueError: the file contains no graph.
      OSError: the file cannot be read.
    """
    if isinstance(source, BaseSession):
        return of_session(source)
    if isinstance(source, Graph):
        return of_graph(source)
    if isinstance(source, (str, Path)):
        return of_file(Path(source))
    descriptor = getattr(source, "DESCRIPTOR", None)
    kind = getattr(descriptor, "name", None)
    if kind in ("GraphDef", "MetaGraphDef", "SavedModel"):
        return _of_message(kind, source.SerializeToString())
    raise TypeError(f"Cannot inspect {type(source).__name__}: give a Graph, a Session, a GraphDef, a MetaGraphDef,"
                    " a SavedModel, or the path of a file of one or of a Python script.")  # fmt: skip


# ---------------------------------------------------------------- live


def of_graph(graph: Graph) -> Subject:
    """Reads the current state of a graph."""
    operations = graph.get_operations()
    shapes = {(op.name, i): out.raw_shape for op in operations for i, out in enumerate(op.outputs)}
    train_ops = [op.name for op in graph.get_collection(GraphKeys.TRAIN_OP) if hasattr(op, "name")]
    local = [variable.op.name for variable in graph.get_collection(GraphKeys.LOCAL_VARIABLES)]
    return Subject({op.name: node_of(op) for op in operations}, shapes, train_ops, local)


def of_session(session: BaseSession) -> Subject:
    """Reads a session's graph and devices; the placement of an in-process master is kept."""
    subject = of_graph(session.graph)
    subject.devices = list(session.list_devices())
    subject.soft_placement = session._options.allow_soft_placement
    placed = getattr(session._master, "_session", None)
    if placed is not None:
        subject.decided = dict(placed.decisions)
        subject.master = placed.master.default_device
    else:
        subject.master = subject.devices[0].name
    return subject


# ---------------------------------------------------------------- files


def of_file(path: Path) -> Subject:
    """Reads a file, or a directory with a SavedModel. Raises as `read_source`."""
    if path.is_dir():
        inside = [path / name for name in _SAVED_MODEL_FILES if (path / name).exists()]
        if not inside:
            raise ValueError(f"{path} is a directory without {' or '.join(_SAVED_MODEL_FILES)}."
                             f"{_graph_files_in(path)}")  # fmt: skip
        return of_file(inside[0])
    data = path.read_bytes()
    with errors.reading(str(path), ValueError, also_own=True):
        for kind in ("SavedModel", "MetaGraphDef", "GraphDef"):
            message = _parsed(kind, data)
            if message is not None:
                return _subject_of(kind, message)
    meta = path.with_name(f"{path.name.rpartition('.')[0]}.meta")
    hint = f" The graph of this checkpoint is in {meta}." if meta.exists() and meta != path else ""
    raise ValueError(f"{path} is no GraphDef, MetaGraphDef or SavedModel, neither binary nor text.{hint}")


def _graph_files_in(folder: Path) -> str:
    found = sorted(p.name for p in folder.iterdir() if p.suffix in (".pb", ".pbtxt", ".meta"))
    return f" It has {', '.join(found[:5])}: give one of them." if found else ""


def _of_message(kind: str, data: bytes) -> Subject:
    with errors.reading(f"The {kind}", ValueError, also_own=True):
        return _subject_of(kind, getattr(protos, kind).FromString(data))


def _parsed(kind: str, data: bytes) -> Any:
    """Parses a message of one kind; returns None if the bytes are none or it has no graph."""
    from google.protobuf.message import DecodeError

    message = getattr(protos, kind)()
    try:
        parse_text(data, message)
    except ValueError as error:
        if isinstance(error.__cause__, RecursionError):
            raise
        try:
            message = getattr(protos, kind).FromString(data)
        except DecodeError:
            return None
    return message if _has_graph(kind, message) else None


def _has_graph(kind: str, message: Any) -> bool:
    if kind == "GraphDef":
        return bool(message.node) and all(node.name and node.op for node in message.node)
    metas = message.meta_graphs if kind == "SavedModel" else [message]
    return any(_has_graph("GraphDef", meta.graph_def) for meta in metas)


def _subject_of(kind: str, message: Any) -> Subject:
    if kind == "GraphDef":
        return of_graph_def(message)
    meta = next(m for m in message.meta_graphs if m.graph_def.node) if kind == "SavedModel" else message
    subject = of_graph_def(meta.graph_def)
    if GraphKeys.TRAIN_OP in meta.collection_def:
        subject.train_ops = list(meta.collection_def[GraphKeys.TRAIN_OP].node_list.value)
    if meta.collection_def:
        local = meta.collection_def[GraphKeys.LOCAL_VARIABLES].bytes_list.value
        subject.local_variables = [_variable_name(data) for data in local]
    return subject


def _variable_name(variable_def: bytes) -> str:
    name: str = protos.VariableDef.FromString(variable_def).variable_name
    return name.rpartition(":")[0] or name


def of_graph_def(graph_def: Any) -> Subject:
    """Reads a GraphDef of tfmini or TensorFlow, and infers its shapes as far as possible."""
    nodes = graph_def_to_nodes(graph_def)
    for node in nodes.values():
        check_kinds(node.name, node.op, node.attrs)
    subject = Subject(nodes)
    try:
        subject.shapes = _inferred(nodes)
    except Exception as error:  # noqa: BLE001 - shapes are optional: a graph that cannot be imported has none
        text = f"shapes could not be inferred: {type(error).__name__}: {str(error).splitlines()[0]}"
        subject.notes.append(Finding("shapes", text, "Only the sizes that the graph itself contains are shown."))
    subject.shapes.update(_noted_shapes(graph_def))
    if graph_def.library.function:
        text = f"{len(graph_def.library.function)} function(s) in the library; an op that calls one is shown as one op."
        subject.notes.append(Finding("functions", text, ""))
    return subject


def _noted_shapes(graph_def: Any) -> Mapping[Endpoint, RawShape]:
    """The shapes in a GraphDef that was written with ``add_shapes``."""
    found: dict[Endpoint, RawShape] = {}
    for node_def in graph_def.node:
        if "_output_shapes" in node_def.attr:
            for i, shape in enumerate(node_def.attr["_output_shapes"].list.shape):
                if not shape.unknown_rank:
                    found[node_def.name, i] = tuple(None if d.size < 0 else d.size for d in shape.dim)
    return found


def _inferred(nodes: Nodes) -> dict[Endpoint, RawShape]:
    """Infers shapes by importing the nodes, with placeholders in place of ops that tfmini does not know."""
    graph = Graph()
    with graph.as_default():
        import_graph_def(nodes_to_graph_def(_importable(nodes)), name="")
    operations = [op for op in graph.get_operations() if op.name in nodes]
    return {(op.name, i): out.raw_shape for op in operations for i, out in enumerate(op.outputs)}


def assume_batch(subject: Subject, batch: int) -> None:
    """Infers the shapes again, with ``batch`` as the first dimension of every placeholder where it is unknown."""
    fixed = dict(subject.nodes)
    for name, node in fixed.items():
        shape = node.attrs.get("shape")
        if node.op in PLACEHOLDER_OPS and shape and shape[0] is None:
            fixed[name] = node.replace(attrs={**node.attrs, "shape": (batch, *shape[1:])})
    try:
        for endpoint, shape in _inferred(fixed).items():
            subject.shapes[endpoint] = _completed(shape, subject.shapes.get(endpoint))
    except Exception as error:  # noqa: BLE001 - as in `of_graph_def`: shapes are optional
        text = f"the batch size could not be propagated: {type(error).__name__}: {str(error).splitlines()[0]}"
        subject.notes.append(Finding("shapes", text, ""))


def _completed(inferred: RawShape, known: RawShape) -> RawShape:
    """Completes the inferred shape by the shape known before: a script may have called `set_shape`."""
    if inferred is None or known is None or len(inferred) != len(known):
        return known if inferred is None else inferred
    return tuple(k if i is None else i for i, k in zip(inferred, known))


def _importable(nodes: Nodes) -> list[Node]:
    typed, foreign = known_types(nodes)
    moved: dict[Endpoint, Endpoint] = {}
    stand_ins: list[Node] = []
    for name in foreign:
        if typed[name].handle is None:
            stand_ins += _stand_ins(typed[name], moved)
    kept = [_plain(node, moved) for name, node in typed.items() if name not in foreign or node.handle is not None]
    return [*stand_ins, *kept]


def _stand_ins(node: Node, moved: dict[Endpoint, Endpoint]) -> list[Node]:
    made = []
    for i, dtype in enumerate(output_dtypes(node) or [None]):
        if dtype is None:
            return [Node(node.name, "NoOp")]
        name = node.name if i == 0 else f"{node.name}/_output_{i}"
        moved[node.name, i] = (name, 0)
        made.append(Node(name, "Placeholder", "", (), (), {"dtype": dtype.base_dtype, "shape": None}))
    return made


def _plain(node: Node, moved: dict[Endpoint, Endpoint]) -> Node:
    """The node without attrs that only other versions of TensorFlow know."""
    known = node.handle.op_def.attrs if node.handle is not None else {}
    attrs = {
        key: value
        for key, value in node.attrs.items()
        if (key in known or key.startswith("_")) and key not in (INPUT_TYPES, OUTPUT_TYPES, "_output_shapes", "_class")
    }
    return Node(node.name, node.op, "", [moved.get(e, e) for e in node.inputs], node.controls, attrs)
