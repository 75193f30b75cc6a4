"""Graphs in files: writing GraphDefs and MetaGraphDefs, and reading MetaGraphDefs."""

from __future__ import annotations

import os
from typing import Any

from tfmini import errors, protos
from tfmini.checkpoint import files
from tfmini.export import export
from tfmini.graph.graph import Graph
from tfmini.graph.meta_graph_export import export_scoped_meta_graph

GRAPH_FILE = "graph.pbtxt"
"""The graph in a training directory."""


@export("tf.train.export_meta_graph")
def export_meta_graph(
    filename: str | None = None,
    meta_info_def: Any = None,
    graph_def: Any = None,
    saver_def: Any = None,
    collection_list: Any = None,
    as_text: bool = False,
    graph: Any = None,
    export_scope: str | None = None,
    clear_devices: bool = False,
    clear_extraneous_savers: bool = False,
    strip_default_attrs: bool = False,
    save_debug_info: bool = False,
    **kwargs: Any,
) -> Any:
    """Makes the MetaGraphDef of a graph and writes it to ``filename``, if given (``tf.train.export_meta_graph``).

    Args:
      filename: the file, which is replaced atomically.
      as_text: write protobuf's text format.
      save_debug_info: accepted and ignored; tfmini has no GraphDebugInfo.

    The other arguments are those of `export_scoped_meta_graph`.

    Raises:
      TypeError: when an argument is not of its type.
      ValueError: when the graph is larger than 2 GiB.
    """
    del save_debug_info
    made, _ = export_scoped_meta_graph(
        meta_info_def=meta_info_def,
        graph_def=graph_def,
        saver_def=saver_def,
        collection_list=collection_list,
        graph=graph,
        export_scope=export_scope,
        clear_devices=clear_devices,
        clear_extraneous_savers=clear_extraneous_savers,
        strip_default_attrs=strip_default_attrs,
        **kwargs,
    )
    if filename:
        write_message(made, filename, as_text)
    return made


@export("tf.io.write_graph", "tf.train.write_graph")
def write_graph(graph_or_graph_def: Any, logdir: str, name: str, as_text: bool = True) -> str:
    """Writes a graph's GraphDef to ``logdir/name`` atomically and returns the path (``tf.io.write_graph``).

    Args:
      graph_or_graph_def: a `Graph` or a GraphDef message.
      logdir: the directory; it is made if it does not exist.
      name: the file's name.
      as_text: write protobuf's text format, otherwise the binary format.

    Raises:
      OpError: when the file system reports an error.
    """
    graph_def = graph_or_graph_def.as_graph_def() if isinstance(graph_or_graph_def, Graph) else graph_or_graph_def
    path = os.path.join(os.fsdecode(logdir), os.fsdecode(name))
    write_message(graph_def, path, as_text)
    return path


def write_training_graph(graph: Graph, directory: str, graph_def: Any = None) -> None:
    """Writes ``graph.pbtxt`` of a training directory, unless it has been written there for this graph as it is now.

    The text of a large graph takes seconds, and several parts of a chief write the file when it starts.

    Args:
      graph_def: the graph's GraphDef with shapes, if the caller has it.

    Raises:
      OpError: when the file system reports an error.
    """
    path = files.local_path(os.path.join(os.fsdecode(directory), GRAPH_FILE))
    size = len(graph.get_operations())
    if graph.attachments.get(GRAPH_FILE, ()) != (size, _identity(path)):
        write_graph(graph.as_graph_def(add_shapes=True) if graph_def is None else graph_def, directory, GRAPH_FILE)
        graph.attachments[GRAPH_FILE] = size, _identity(path)


def _identity(path: str) -> tuple[str, int, int] | None:
    """What changes when anybody writes a file anew; None without the file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return os.path.abspath(path), found.st_ino, found.st_mtime_ns


def write_message(message: Any, path: str, as_text: bool) -> None:
    """Writes a message to a file atomically; makes the directory if needed."""
    path = files.local_path(path)
    if os.path.dirname(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
    files.write_atomically(path, _text(message) if as_text else message.SerializeToString())


def _text(message: Any) -> bytes:
    from google.protobuf import text_format

    text: str = text_format.MessageToString(message)
    return text.encode()


def read_message(path: str, message: Any) -> Any:
    """Parses a file in protobuf's binary or text format into ``message`` and returns it.

    Raises:
      OSError: when the file does not exist or has neither format.
    """
    from google.protobuf.message import DecodeError

    path = files.local_path(path)
    if not os.path.exists(path):
        raise OSError(f"File {path} does not exist.")
    with open(path, "rb") as file:
        content = file.read()
    try:
        message.ParseFromString(content)
        return message
    except DecodeError:
        message.Clear()
    with errors.reading(f"Cannot parse file {path}", OSError):
        return parse_text(content, message)


def parse_text(content: bytes, message: Any) -> Any:
    """Parses protobuf's text format into ``message`` and returns it.

    Raises:
      ValueError: it is another text, or is nested too deeply for the parser, which is recursive.
    """
    from google.protobuf import text_format

    with errors.reading("This is no message of protobuf's text format", ValueError):
        return text_format.Parse(content.decode(), message)


def as_meta_graph(meta_graph_or_file: Any) -> Any:
    """A MetaGraphDef of `tfmini.protos`, from a file or as a copy of a message (ours or TensorFlow's).

    Raises:
      OSError: when the file cannot be read.
    """
    descriptor = getattr(meta_graph_or_file, "DESCRIPTOR", None)
    if descriptor is not None and descriptor.name == "MetaGraphDef":
        return protos.MetaGraphDef.FromString(meta_graph_or_file.SerializeToString())
    return read_message(os.fsdecode(meta_graph_or_file), protos.MetaGraphDef())
