"""``tf.train.write_graph``: a graph as a file."""

from __future__ import annotations

import os
import tempfile
from typing import Any

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
    """
    graph_def = graph_or_graph_def.as_graph_def() if isinstance(graph_or_graph_def, Graph) else graph_or_graph_def
    os.makedirs(logdir, exist_ok=True)
    path = os.path.join(logdir, name)
    _write_atomically(path, _as_text(graph_def) if as_text else graph_def.SerializeToString())
    return path


def _as_text(graph_def: Any) -> bytes:
    from google.protobuf import text_format

    text: str = text_format.MessageToString(graph_def)
    return text.encode()


def _write_atomically(path: str, content: bytes) -> None:
    """A reader sees the old file or the new one: the content is written beside it and then moved."""
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path) or ".", prefix=os.path.basename(path) + ".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
