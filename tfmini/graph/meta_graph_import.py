"""Import of a MetaGraphDef: adds its nodes and collections to a graph."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from tfmini import errors
from tfmini.graph.collection_protos import get_collection_proto_type, get_from_proto_function
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.graph import Graph
from tfmini.graph.importing import import_graph_def
from tfmini.graph.keys import GraphKeys
from tfmini.graph.scoped_names import prepend_name_scope, strip_name_scope
from tfmini.printable import printable

_log = logging.getLogger("tensorflow")
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
