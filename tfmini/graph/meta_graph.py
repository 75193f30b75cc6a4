"""Export of a graph, or of one of its name scopes, with its collections as a MetaGraphDef."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from tfmini import _version, errors, protos
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.graph import Graph
from tfmini.graph.graph_def import strip_default_attrs as strip_attrs
from tfmini.graph.graph_def import stripped_op_list
from tfmini.graph.importing import import_graph_def
from tfmini.graph.names import GraphKeys, prepend_name_scope, strip_name_scope
from tfmini.graph.op_types import ENTER_OPS, ops_with
from tfmini.text import printable

# ---- The registry of messages for the objects in collections: how a MetaGraphDef stores them -----------------------
# A module that puts objects of its own into a collection (variables, queue runners, control-flow contexts, savers)
# registers their conversion to a message and back, at import. Nodes, numbers and strings need no conversion.


@dataclass(frozen=True)
class ProtoFunctions:
    """The registered message and conversions of one collection.

    Attributes:
      proto_type: the message class, its name in `tfmini.protos`, or None.
      to_proto: ``(item, export_scope=None) -> message``, None for an item outside the scope.
      from_proto: ``(message, import_scope=None) -> item``.
    """

    proto_type: Any
    to_proto: Callable[..., Any] | None
    from_proto: Callable[..., Any] | None


_FUNCTIONS: dict[str, ProtoFunctions] = {}


def register_proto_function(
    collection_name: str,
    proto_type: Any = None,
    to_proto: Callable[..., Any] | None = None,
    from_proto: Callable[..., Any] | None = None,
) -> None:
    """Registers the conversion of a collection's items to messages and back (``ops.register_proto_function``).

    Args:
      collection_name: the collection.
      proto_type: the message class, or its name in `tfmini.protos` (which saves importing protobuf).
      to_proto: a function (item, export_scope=None) -> message or None.
      from_proto: a function (message, import_scope=None) -> item.

    Raises:
      TypeError: a function is not callable.
      KeyError: the collection is registered already.
    """
    if to_proto is not None and not callable(to_proto):
        raise TypeError("to_proto must be callable.")
    if from_proto is not None and not callable(from_proto):
        raise TypeError("from_proto must be callable.")
    if collection_name in _FUNCTIONS:
        raise KeyError(f"Registering two proto_functions with name '{collection_name}'!")
    _FUNCTIONS[collection_name] = ProtoFunctions(proto_type, to_proto, from_proto)


def get_to_proto_function(collection_name: str) -> Callable[..., Any] | None:
    """Returns the registered function item -> message, or None."""
    found = _FUNCTIONS.get(collection_name)
    return found.to_proto if found else None


def get_from_proto_function(collection_name: str) -> Callable[..., Any] | None:
    """Returns the registered function message -> item, or None."""
    found = _FUNCTIONS.get(collection_name)
    return found.from_proto if found else None


def get_collection_proto_type(collection_name: str) -> Any:
    """Returns the class of the collection's messages, or None."""
    found = _FUNCTIONS.get(collection_name)
    proto_type = found.proto_type if found else None
    return getattr(protos, proto_type) if isinstance(proto_type, str) else proto_type


# ---- meta graph export ------------------------------------------------------------

_log = logging.getLogger("tensorflow")
UNBOUND_INPUT_PREFIX = "$unbound_inputs_"


def export_scoped_meta_graph(
    graph_def: Any = None,
    graph: Graph | None = None,
    export_scope: str | None = None,
    unbound_inputs_col_name: str | None = "unbound_inputs",
    clear_devices: bool = False,
    saver_def: Any = None,
    clear_extraneous_savers: bool = False,
    strip_default_attrs: bool = False,
    meta_info_def: Any = None,
    collection_list: Iterable[str] | None = None,
) -> tuple[Any, dict[str, Any]]:
    """Exports a graph as a MetaGraphDef; also returns the exported global variables by their names there.

    Args:
      graph_def: the nodes to export, instead of the graph's.
      graph: the graph whose collections are exported; default: the default graph.
      export_scope: export only this name scope, and remove it from all names.
      unbound_inputs_col_name: the collection that gets the names of inputs from outside of the scope.
      clear_devices: leave out the nodes' devices.
      saver_def: the SaverDef to include.
      clear_extraneous_savers: leave out the nodes of other savers than that of ``saver_def``.
      strip_default_attrs: leave out attrs that have their default.
      meta_info_def: the MetaInfoDef to include.
      collection_list: the collections to export; default: all.

    Raises:
      TypeError: an argument is not of its type.
      ValueError: the graph is larger than 2 GiB.
    """
    _check_types(meta_info_def, graph_def, saver_def, graph)
    graph = graph or get_default_graph()
    if graph_def is None:
        graph_def = graph.as_graph_def(add_shapes=True)
    excluded: set[str] = set()
    if export_scope or clear_extraneous_savers or clear_devices:
        if clear_extraneous_savers:
            excluded = _nodes_of_other_savers(graph_def, saver_def)
        graph_def, unbound = _part(graph_def, export_scope, excluded, clear_devices)
        if unbound_inputs_col_name:
            graph.get_collection_ref(unbound_inputs_col_name)[:] = unbound
    made = _meta_graph(graph_def, meta_info_def, saver_def, strip_default_attrs)
    for key in graph.get_all_collection_keys() if collection_list is None else collection_list:
        contents = None
        if clear_extraneous_savers and key == GraphKeys.SAVERS:
            contents = [get_from_proto_function(key)(saver_def)] if saver_def else []  # type: ignore[misc]
        add_collection_def(made, key, graph, export_scope, excluded, contents)
    variables = [
        v for v in graph.get_collection(GraphKeys.GLOBAL_VARIABLES, export_scope) if _is_part(v, export_scope, excluded)
    ]
    return made, {strip_name_scope(v.name, export_scope): v for v in variables}


def _check_types(meta_info_def: Any, graph_def: Any, saver_def: Any, graph: Any) -> None:
    if graph is not None and not isinstance(graph, Graph):
        raise TypeError(f"graph must be of type Graph, not {type(graph)}")
    checks = (("meta_info_def", meta_info_def, "MetaInfoDef"), ("graph_def", graph_def, "GraphDef"),
              ("saver_def", saver_def, "SaverDef"))  # fmt: skip
    for label, value, name in checks:
        if value is not None and getattr(getattr(value, "DESCRIPTOR", None), "name", None) != name:
            raise TypeError(f"{label} must be of type {name}, not {type(value)}")


def _meta_graph(graph_def: Any, meta_info_def: Any, saver_def: Any, strip: bool) -> Any:
    made = protos.MetaGraphDef()
    if meta_info_def is not None:
        made.meta_info_def.MergeFrom(meta_info_def)
    made.meta_info_def.tensorflow_version = _version.API_VERSION
    made.meta_info_def.tensorflow_git_version = f"tfmini-{_version.__version__}"
    made.graph_def.MergeFrom(graph_def)
    if not made.meta_info_def.stripped_op_list.op:
        made.meta_info_def.stripped_op_list.MergeFrom(stripped_op_list(made.graph_def))
    if strip:
        strip_attrs(made.graph_def.node)
        made.meta_info_def.stripped_default_attrs = True
    if saver_def is not None:
        made.saver_def.MergeFrom(saver_def)
    return made


# ---- parts of a graph -----------------------------------------------------------------------


def _is_part(item: Any, scope: str | None, excluded: Collection[str]) -> bool:
    """Whether the export includes a node or an item of a collection."""
    name = item if isinstance(item, str) else getattr(item, "name", None)
    if not isinstance(name, str):
        return True
    if name in excluded:
        return False
    return name.startswith(UNBOUND_INPUT_PREFIX) or not scope or name.startswith(scope)


def _part(graph_def: Any, scope: str | None, excluded: set[str], clear_devices: bool) -> tuple[Any, list[str]]:
    """Returns the nodes in a scope, with names relative to it, and the names of inputs from outside."""
    part = protos.GraphDef(versions=graph_def.versions, library=graph_def.library)
    unbound: list[str] = []
    for node_def in graph_def.node:
        if _is_part(node_def.name, scope, excluded):
            copied = part.node.add()
            copied.CopyFrom(node_def)
            if scope:
                _make_relative(copied, scope, unbound)
            if clear_devices:
                copied.device = ""
    return part, unbound


def _make_relative(node_def: Any, scope: str, unbound: list[str]) -> None:
    node_def.name = strip_name_scope(node_def.name, scope)
    for i, text in enumerate(node_def.input):
        if text.lstrip("^").startswith(scope):
            node_def.input[i] = strip_name_scope(text, scope)
        else:
            mark = "^" if text.startswith("^") else ""
            node_def.input[i] = f"{mark}{UNBOUND_INPUT_PREFIX}{text.lstrip('^')}"
            unbound.append(node_def.input[i])
    if "_class" in node_def.attr:
        groups = node_def.attr["_class"].list.s
        kept = [strip_name_scope(g.decode(), scope).encode() for g in groups if _names_scope(g, scope)]
        groups[:] = kept
    if node_def.op in ENTER_OPS and "frame_name" in node_def.attr:
        frame = node_def.attr["frame_name"]
        frame.s = strip_name_scope(frame.s.decode(), scope).encode()


def _names_scope(group: bytes, scope: str) -> bool:
    return group.decode().partition("@")[2].startswith(scope)


def _nodes_of_other_savers(graph_def: Any, saver_def: Any) -> set[str]:
    """Returns the nodes in all scopes with save or restore ops except the saver's own. Each saver has a scope."""
    kept: set[str] = set()
    if saver_def is not None:
        kept = {_scope_of(saver_def.save_tensor_name.partition(":")[0]), _scope_of(saver_def.restore_op_name)}
    names = {node.name for node in graph_def.node if node.op in ops_with("checkpoint")}
    scopes = tuple({_scope_of(name) for name in names} - kept)
    return {node.name for node in graph_def.node if scopes and node.name.startswith(scopes)}


def _scope_of(name: str) -> str:
    return name.rpartition("/")[0] + "/"


# ---- collections ----------------------------------------------------------------------------


def add_collection_def(
    meta_graph_def: Any,
    key: Any,
    graph: Graph | None = None,
    export_scope: str | None = None,
    exclude_nodes: Collection[str] = (),
    override_contents: list[Any] | None = None,
) -> None:
    """Adds a collection to a MetaGraphDef. Logs a warning instead, if an item cannot be converted."""
    if graph is not None and not isinstance(graph, Graph):
        raise TypeError(f"graph must be of type Graph, not {type(graph)}")
    if not isinstance(key, (str, bytes)):
        _log.warning("Only collections with string type keys will be serialized. This key has %s", type(key))
        return
    items = (graph or get_default_graph()).get_collection(key) if override_contents is None else override_contents
    items = [item for item in items if _is_part(item, export_scope, exclude_nodes)]
    if not items:
        return
    try:
        _fill_collection(meta_graph_def.collection_def[key], key, items, export_scope)
    except Exception as error:  # a collection may hold any object, and its conversion may raise anything
        del meta_graph_def.collection_def[key]
        _log.warning(
            "Issue encountered when serializing %s.\nType is unsupported, or the types of the items don't match field"
            " type in CollectionDef. Note this is a warning and probably safe to ignore.\n%s",
            key,
            error,
        )


def _fill_collection(target: Any, key: Any, items: list[Any], scope: str | None) -> None:
    to_proto = get_to_proto_function(key)
    if to_proto is not None:
        messages = (to_proto(item, export_scope=scope) for item in items)
        target.bytes_list.value.extend(m.SerializeToString(deterministic=True) for m in messages if m is not None)
        return
    first = items[0]
    if getattr(getattr(first, "DESCRIPTOR", None), "full_name", None) == "google.protobuf.Any":
        target.any_list.value.extend(items)
    elif isinstance(first, (str, bytes)):
        target.bytes_list.value.extend(item.encode() if isinstance(item, str) else item for item in items)
    elif isinstance(first, bool) or not isinstance(first, (int, float)):
        names = [item.name for item in items if not scope or item.name.startswith(scope)]
        target.node_list.value.extend(strip_name_scope(name, scope) for name in names)
    elif isinstance(first, int):
        target.int64_list.value.extend(items)
    else:
        target.float_list.value.extend(items)


# ---- Import of a MetaGraphDef: adds its nodes and collections to a graph -------------------------------------------

# TensorFlow stored lists of names before 1.0, and lists of messages since.
_ONCE_NODE_LISTS = (GraphKeys.LOCAL_VARIABLES, GraphKeys.MODEL_VARIABLES, GraphKeys.METRIC_VARIABLES)
_FIRST_VERSION_WITH_TRAINABLE = (1, 9)


def import_scoped_meta_graph(
    meta_graph_def: Any,
    clear_devices: bool = False,
    graph: Graph | None = None,
    import_scope: str | None = None,
    input_map: dict[str, Any] | None = None,
    unbound_inputs_col_name: str | None = "unbound_inputs",
    restore_collections_predicate: Callable[[str], bool] = lambda key: True,
    return_elements: list[str] | None = None,
) -> tuple[dict[str, Any], list[Any] | None]:
    """Adds a MetaGraphDef to a graph.

    Args:
      meta_graph_def: the message.
      clear_devices: leave out the nodes' devices.
      graph: default: the default graph.
      import_scope: the name scope for all names.
      input_map: the replacements for inputs from outside of the exported scope.
      unbound_inputs_col_name: the collection with the names of those inputs.
      restore_collections_predicate: which collections to restore.
      return_elements: names of nodes or tensors to return.

    Returns:
      The global variables in the scope by their names in the message, and the requested elements.

    Raises:
      ValueError: ``input_map`` lacks an input from outside, or the GraphDef is not valid.
    """
    _check_inputs(meta_graph_def, unbound_inputs_col_name, input_map)
    graph = graph or get_default_graph()
    with graph.as_default():
        info = meta_graph_def.meta_info_def
        producer = info.stripped_op_list if info.HasField("stripped_op_list") else None
        scope = graph.unique_name(import_scope or "", mark_as_used=False)
        graph_def = meta_graph_def.graph_def
        if clear_devices:
            for node_def in graph_def.node:
                node_def.device = ""
        elements = import_graph_def(
            graph_def, name=import_scope or scope, input_map=input_map, producer_op_list=producer,
            return_elements=return_elements,
        )  # fmt: skip
        with errors.reading("The MetaGraphDef is not valid", ValueError):
            importer = _CollectionImporter(graph, scope, _trainable_is_known(info.tensorflow_version))
            for key, collection in _in_order(meta_graph_def.collection_def):
                if key != unbound_inputs_col_name and restore_collections_predicate(key):
                    with errors.reading(f"The collection {key!r} of the MetaGraphDef is not valid", ValueError):
                        importer.add(key, collection)
        variables = graph.get_collection(GraphKeys.GLOBAL_VARIABLES, scope=scope)
        return {strip_name_scope(v.name, scope): v for v in variables}, elements


def _check_inputs(meta_graph_def: Any, collection: str | None, input_map: dict[str, Any] | None) -> None:
    if not collection or collection not in meta_graph_def.collection_def:
        return
    definition = meta_graph_def.collection_def[collection]
    kind = definition.WhichOneof("kind")
    values = getattr(definition, kind).value if kind else []
    names = {value.decode() if isinstance(value, bytes) else value for value in values}
    missing = sorted(names - set(input_map or {}))
    if missing:
        raise ValueError(
            f"Graph contains unbound inputs: {','.join(missing)}. Must provide these inputs through input_map."
        )


def _trainable_is_known(version: str) -> bool:
    """Whether the writer's VariableDef had the field ``trainable``."""
    if not version:
        return True
    major, minor = (version.split(".") + ["0"])[:2]
    return (int(major), int(minor)) >= _FIRST_VERSION_WITH_TRAINABLE


def _in_order(collections: Any) -> list[tuple[str, Any]]:
    """Puts trainable variables first: in old messages only the collection tells that a variable is trainable."""
    return sorted(collections.items(), key=lambda item: (item[0] != GraphKeys.TRAINABLE_VARIABLES, item[0]))


class _CollectionImporter:
    def __init__(self, graph: Graph, scope: str, trainable_is_known: bool) -> None:
        self.graph = graph
        self.scope = scope
        self.trainable_is_known = trainable_is_known
        # A variable has the same message in several collections. It becomes one object.
        self.variables: dict[bytes, Any] = {}

    def add(self, key: str, collection: Any) -> None:
        kind = collection.WhichOneof("kind")
        if kind is None:
            _log.error("Cannot identify data type for collection %s. Skipping.", printable(key))
            return
        values = getattr(collection, kind).value
        from_proto = get_from_proto_function(key)
        if from_proto is not None and kind == "bytes_list":
            for value in values:
                self.graph.add_to_collection(key, self._object(key, value, from_proto))
            return
        if key in _ONCE_NODE_LISTS:
            _log.warning(
                "The saved meta_graph is possibly from an older release:\n'%s' collection should be of type"
                " 'byte_list', but instead is of type '%s'.",
                printable(key),
                kind,
            )
        for value in values:
            self.graph.add_to_collection(key, self._plain(kind, value))

    def _object(self, key: str, value: bytes, from_proto: Callable[..., Any]) -> Any:
        is_variable = key in GraphKeys._VARIABLE_COLLECTIONS
        if is_variable and value in self.variables:
            return self.variables[value]
        message = get_collection_proto_type(key).FromString(value)
        if is_variable and not self.trainable_is_known:
            message.trainable = key == GraphKeys.TRAINABLE_VARIABLES
        made = from_proto(message, import_scope=self.scope)
        if is_variable:
            self.variables[value] = made
        return made

    def _plain(self, kind: str, value: Any) -> Any:
        if kind == "node_list":
            return self.graph.as_graph_element(prepend_name_scope(value, self.scope))
        if kind == "bytes_list":
            return prepend_name_scope(value.decode(), self.scope) if _is_text(value) else value
        return value


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
