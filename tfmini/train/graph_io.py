"""``tf.train.write_graph``: a graph as a file."""

from __future__ import annotations

import os
from typing import Any

from tfmini.checkpoint import files
from tfmini.graph.graph import Graph


def write_graph(graph_or_graph_def: Any, logdir: str, name: str, as_text: bool = True) -> str:
    """Writes a graph's GraphDef to ``logdir/name``, at once or not at all (``tf.io.write_graph``).

    Args:
      graph_or_graph_def: a `Graph` or a GraphDef message.
      logdir: the directory; it is made when it does not exist.
      name: the file's name.
      as_text: protobuf's text format, else its binary one.

    Returns:
      The path of the file.

    Raises:
      OpError: when the file system refuses.
    """
    graph_def = graph_or_graph_def.as_graph_def() if isinstance(graph_or_graph_def, Graph) else graph_or_graph_def
    os.makedirs(files.local_path(logdir), exist_ok=True)
    path = os.path.join(logdir, name)
    files.write_atomically(path, _as_text(graph_def) if as_text else graph_def.SerializeToString())
    return path


def _as_text(graph_def: Any) -> bytes:
    from google.protobuf import text_format

    text: str = text_format.MessageToString(graph_def)
    return text.encode()
