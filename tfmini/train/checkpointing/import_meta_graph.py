"""``tf.train.import_meta_graph``: imports a graph from a file or message and makes a Saver for it."""

from __future__ import annotations

from typing import Any

from tfmini.export import export
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.keys import GraphKeys
from tfmini.graph.meta_graph_import import import_scoped_meta_graph
from tfmini.train.checkpointing.graph_files import as_meta_graph
from tfmini.train.checkpointing.saver import Saver


@export("tf.train.import_meta_graph")
def import_meta_graph(
    meta_graph_or_file: Any, clear_devices: bool = False, import_scope: str | None = None, **kwargs: Any
) -> Saver | None:
    """Adds a MetaGraphDef to the default graph (``tf.train.import_meta_graph``).

    Args:
      meta_graph_or_file: the message or the path of its file.
      clear_devices: drop the nodes' devices.
      import_scope: a name scope for all imported names.
      **kwargs: as in `import_scoped_meta_graph`.

    Returns:
      A Saver of the graph's variables; None if there are none.

    Raises:
      OSError: when the file cannot be read.
      ValueError: when the message is malformed, or inputs are missing.
    """
    return import_meta_graph_with_return_elements(meta_graph_or_file, clear_devices, import_scope, **kwargs)[0]


def import_meta_graph_with_return_elements(
    meta_graph_or_file: Any,
    clear_devices: bool = False,
    import_scope: str | None = None,
    return_elements: Any = None,
    **kwargs: Any,
) -> tuple[Saver | None, list[Any] | None]:
    """As `import_meta_graph`; returns (Saver, the elements named by ``return_elements``)."""
    message = as_meta_graph(meta_graph_or_file)
    variables, elements = import_scoped_meta_graph(
        message, clear_devices, import_scope=import_scope, return_elements=return_elements, **kwargs
    )
    return _saver_of(message, import_scope, variables), elements


def _saver_of(message: Any, import_scope: str | None, variables: dict[str, Any]) -> Saver | None:
    if message.HasField("saver_def"):
        scope = import_scope
        if variables:
            # The current name scope also applies, and scopes are made unique: derive the prefix from a variable.
            original, variable = next(iter(variables.items()))
            scope = variable.name[: len(variable.name) - len(original)].rstrip("/")
        return Saver(saver_def=message.saver_def, name=scope)
    graph = get_default_graph()
    has_saveables = graph.get_collection(GraphKeys.GLOBAL_VARIABLES, import_scope) or graph.get_collection(
        GraphKeys.SAVEABLE_OBJECTS, import_scope
    )
    return Saver() if has_saveables else None
