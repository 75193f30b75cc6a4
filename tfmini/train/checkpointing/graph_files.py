"""Files around checkpoints: GraphDefs and MetaGraphDefs, the state file, waiting for new ones, reading tensors."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from glob import escape, glob
from typing import Any

from tfmini import errors, protos
from tfmini.checkpoint import files
from tfmini.core_types import PathLike
from tfmini.dtypes import DType
from tfmini.export import export
from tfmini.graph.graph import Graph
from tfmini.graph.meta_graph import export_scoped_meta_graph
from tfmini.journal import SAVED, journal
from tfmini.ops.io.checkpoint_ops import open_checkpoint
from tfmini.protos import GraphDef, SaverDef
from tfmini.runtime.process import current_process

GRAPH_FILE = "graph.pbtxt"
"""The graph in a training directory."""


@export("tf.train.export_meta_graph")
def export_meta_graph(
    filename: str | None = None,
    meta_info_def: Any = None,
    graph_def: GraphDef | None = None,
    saver_def: SaverDef | None = None,
    collection_list: Sequence[str] | None = None,
    as_text: bool = False,
    graph: Graph | None = None,
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
def write_graph(graph_or_graph_def: Graph | GraphDef, logdir: str, name: str, as_text: bool = True) -> str:
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


def write_training_graph(graph: Graph, directory: str, graph_def: GraphDef | None = None) -> None:
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


# ---- state file ----------------------------------------
# A directory's state file ``checkpoint``, which lists its checkpoints; lookup and removal of checkpoint files.

_log = logging.getLogger("tensorflow")
_SHARD_SUFFIX = re.compile(r"-[\d?]+-of-\d+$")
V2 = 2


@export("tf.train.generate_checkpoint_state_proto")
def generate_checkpoint_state_proto(
    save_dir: str,
    model_checkpoint_path: str,
    all_model_checkpoint_paths: list[str] | None = None,
    all_model_checkpoint_timestamps: list[float] | None = None,
    last_preserved_timestamp: float | None = None,
) -> Any:
    """The CheckpointState of a directory (``tf.train.generate_checkpoint_state_proto``).

    Args:
      save_dir: the directory; if it is relative, the paths in the state are relative to it.
      model_checkpoint_path: the newest checkpoint.
      all_model_checkpoint_paths: all checkpoints, oldest first; the newest is appended if it is not the last.
      all_model_checkpoint_timestamps: creation times in seconds since the epoch.
      last_preserved_timestamp: creation time of the last preserved checkpoint.

    Raises:
      ValueError: when the numbers of times and paths differ.
    """
    paths = list(all_model_checkpoint_paths or [])
    if not paths or paths[-1] != model_checkpoint_path:
        _log.info("%s is not in all_model_checkpoint_paths. Manually adding it.", model_checkpoint_path)
        paths.append(model_checkpoint_path)
    times = all_model_checkpoint_timestamps
    if times and len(times) != len(paths):
        raise ValueError(
            f"Checkpoint timestamps, if provided, must match checkpoint paths (got paths {paths} and timestamps"
            f" {times})"
        )
    if not os.path.isabs(save_dir):
        model_checkpoint_path = _relative(model_checkpoint_path, save_dir)
        paths = [_relative(path, save_dir) for path in paths]
    state = protos.CheckpointState(model_checkpoint_path=model_checkpoint_path, all_model_checkpoint_paths=paths)
    state.all_model_checkpoint_timestamps.extend(times or [])
    if last_preserved_timestamp is not None:
        state.last_preserved_timestamp = last_preserved_timestamp
    return state


def _relative(path: str, save_dir: str) -> str:
    return path if os.path.isabs(path) else os.path.relpath(path, save_dir or ".")


@export("tf.train.update_checkpoint_state")
def update_checkpoint_state(
    save_dir: str,
    model_checkpoint_path: str,
    all_model_checkpoint_paths: list[str] | None = None,
    latest_filename: str | None = None,
    all_model_checkpoint_timestamps: list[float] | None = None,
    last_preserved_timestamp: float | None = None,
    save_relative_paths: bool = False,
) -> None:
    """Replaces the state file of ``save_dir`` atomically (``tf.train.update_checkpoint_state``).

    Args:
      save_relative_paths: write paths relative to the directory, so that it can be moved.

    The other arguments are those of `generate_checkpoint_state_proto`.

    Raises:
      RuntimeError: when the path of the state file is that of a checkpoint.
    """
    path = _state_file(save_dir, latest_filename)
    paths = all_model_checkpoint_paths
    newest = model_checkpoint_path
    if save_relative_paths:
        newest = _relative_to(newest, save_dir)
        paths = [_relative_to(each, save_dir) for each in paths or []]
    state = generate_checkpoint_state_proto(
        save_dir, newest, paths, all_model_checkpoint_timestamps, last_preserved_timestamp
    )
    if path == state.model_checkpoint_path:
        raise RuntimeError(
            f"Save path '{model_checkpoint_path}' conflicts with path used for checkpoint state.  Please use a"
            " different save path."
        )
    from google.protobuf import text_format

    text: str = text_format.MessageToString(state)
    files.write_atomically(path, text.encode())
    journal.note(SAVED, model_checkpoint_path)


def _relative_to(path: str, save_dir: str) -> str:
    return os.path.relpath(path, save_dir) if os.path.isabs(path) else path


def _state_file(directory: str, latest_filename: str | None) -> str:
    return os.path.join(files.local_path(directory), latest_filename or "checkpoint")


@export("tf.train.get_checkpoint_state")
def get_checkpoint_state(checkpoint_dir: str, latest_filename: str | None = None) -> Any:
    """The CheckpointState of a directory with its paths resolved, or None (``tf.train.get_checkpoint_state``).

    Args:
      checkpoint_dir: a directory of checkpoints.
      latest_filename: the name of the state file; default ``checkpoint``.

    Raises:
      ValueError: when the state file names no checkpoint.
    """
    checkpoint_dir = os.fsdecode(checkpoint_dir)
    path = _state_file(checkpoint_dir, latest_filename)
    try:
        with open(path, "rb") as file:
            state: Any = parse_text(file.read(), protos.CheckpointState())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        _log.warning("%s: %s", type(error).__name__, error)
        _log.warning("%s: Checkpoint ignored", path)
        return None
    if not state.model_checkpoint_path:
        raise ValueError(f"Invalid checkpoint state loaded from {checkpoint_dir}")
    # `os.path.join` does not change an absolute path.
    state.model_checkpoint_path = os.path.join(checkpoint_dir, state.model_checkpoint_path)
    state.all_model_checkpoint_paths[:] = [os.path.join(checkpoint_dir, p) for p in state.all_model_checkpoint_paths]
    return state


@export("tf.train.latest_checkpoint")
def latest_checkpoint(checkpoint_dir: str, latest_filename: str | None = None) -> str | None:
    """The prefix of the newest checkpoint of a directory, or None (``tf.train.latest_checkpoint``)."""
    state = get_checkpoint_state(checkpoint_dir, latest_filename)
    if state is None:
        return None
    found: str = state.model_checkpoint_path
    if checkpoint_exists(found):
        return found
    _log.error("Couldn't match files for checkpoint %s", found)
    here = os.path.join(checkpoint_dir, os.path.basename(found))
    if checkpoint_exists(here):
        state_file = _state_file(os.fsdecode(checkpoint_dir), latest_filename)
        _log.error("%s holds absolute paths of another directory; this one has the checkpoint %s", state_file, here)
    return None


def _any_file(pattern: str) -> str | None:
    """The file with the name ``pattern``, or the first one that matches it."""
    pattern = files.local_path(pattern)
    if os.path.exists(pattern):
        return pattern
    return next(iter(sorted(glob(pattern))), None)


@export("tf.train.checkpoint_exists")
def checkpoint_exists(checkpoint_prefix: str) -> bool:
    """Whether a checkpoint (V2 or V1) with the prefix exists (``tf.train.checkpoint_exists``)."""
    return bool(_any_file(files.index_file(checkpoint_prefix)) or _any_file(checkpoint_prefix))


@export("tf.train.get_checkpoint_mtimes")
def get_checkpoint_mtimes(checkpoint_prefixes: Iterable[str]) -> list[float]:
    """Modification times of the existing checkpoints, seconds since the epoch (``tf.train.get_checkpoint_mtimes``)."""
    found = (_any_file(files.index_file(prefix)) or _any_file(prefix) for prefix in checkpoint_prefixes)
    return [os.stat(path).st_mtime for path in found if path is not None]


@export("tf.train.remove_checkpoint")
def remove_checkpoint(
    checkpoint_prefix: str, checkpoint_format_version: int = V2, meta_graph_suffix: str = "meta"
) -> None:
    """Removes a checkpoint's files (``tf.train.remove_checkpoint``), the index first so that none is left incomplete.

    Raises:
      OpError: when the file system reports an error.
    """
    checkpoint_prefix = files.local_path(checkpoint_prefix)
    if checkpoint_format_version == V2:
        paths = [files.index_file(checkpoint_prefix), *files.data_files(checkpoint_prefix)]
    else:
        paths = [checkpoint_prefix] if os.path.exists(checkpoint_prefix) else _shards_of(checkpoint_prefix)
    for path in [*paths, meta_graph_filename(checkpoint_prefix, meta_graph_suffix)]:
        try:
            files.DISK.remove(path)
        except OSError as error:
            raise errors.from_os_error(error, path) from None


def _shards_of(pattern: str) -> list[str]:
    """The files of a sharded V1 checkpoint; no other wildcards than its own (``-?????-of-00002``) count."""
    found = re.fullmatch(r"(.*)-\?{5}(-of-\d{5,})", pattern, re.DOTALL)
    return sorted(glob(f"{escape(found[1])}-[0-9][0-9][0-9][0-9][0-9]{found[2]}")) if found else []


def is_removable(checkpoint_prefix: str, directory: str) -> bool:
    """Whether a checkpoint that a state file lists lies in the directory that checkpoints are written to.

    The state file may come from somebody else, with names of files anywhere. What it lists elsewhere is left alone,
    with a warning.
    """
    folder = os.path.dirname(files.local_path(checkpoint_prefix))
    if os.path.realpath(folder or ".") == os.path.realpath(files.local_path(directory) or "."):
        return True
    _log.warning("%s is listed as an old checkpoint but is not in %s: it is not removed.", checkpoint_prefix, directory)
    return False


def meta_graph_filename(checkpoint_filename: str, meta_graph_suffix: str = "meta") -> str:
    """The file name of a checkpoint's MetaGraphDef."""
    return f"{_SHARD_SUFFIX.sub('', checkpoint_filename)}.{meta_graph_suffix}"


def checkpoint_file(ckpt_dir_or_file: PathLike) -> str:
    """The given checkpoint's prefix, or that of a directory's newest checkpoint.

    Raises:
      ValueError: when the directory has no checkpoint.
    """
    text = files.local_path(os.fsdecode(ckpt_dir_or_file))
    found = latest_checkpoint(text) if os.path.isdir(text) else text
    if found is None:
        raise ValueError(f"Couldn't find 'checkpoint' file or checkpoints in given directory {text}")
    return found


# ---- polling ----------------------------------------
# Polling a directory for new checkpoints (``tf.train.checkpoints_iterator``), for a task that evaluates them.

_INTERVAL_S = 1.0


@export("tf.contrib.training.wait_for_new_checkpoint", "tf.contrib.slim.evaluation.wait_for_new_checkpoint")
def wait_for_new_checkpoint(
    checkpoint_dir: str,
    last_checkpoint: str | None = None,
    seconds_to_sleep: float = _INTERVAL_S,
    timeout: float | None = None,
) -> str | None:
    """Waits for a newest checkpoint other than ``last_checkpoint``; returns None after ``timeout`` seconds."""
    _log.info("Waiting for new checkpoint at %s", checkpoint_dir)
    process = current_process()
    deadline = None if timeout is None else process.now() + timeout
    while True:
        found = latest_checkpoint(checkpoint_dir)
        if found is not None and found != last_checkpoint:
            return found
        # Polling, since not every file system supports notifications of changes.
        if deadline is not None and process.now() + seconds_to_sleep > deadline:
            return None
        process.sleep(seconds_to_sleep)


@export(
    "tf.train.checkpoints_iterator",
    "tf.contrib.training.checkpoints_iterator",
    "tf.contrib.slim.evaluation.checkpoints_iterator",
)
def checkpoints_iterator(
    checkpoint_dir: str,
    min_interval_secs: float = 0,
    timeout: float | None = None,
    timeout_fn: Callable[[], bool] | None = None,
) -> Iterator[str]:
    """Yields the newest checkpoint whenever it changes; some may be skipped (``tf.train.checkpoints_iterator``).

    Args:
      checkpoint_dir: the directory.
      min_interval_secs: the minimum time between two checkpoints.
      timeout: seconds to wait for a checkpoint; None for no limit.
      timeout_fn: called at a timeout; the iteration ends when it returns True or is None.
    """
    last: str | None = None
    while True:
        found = wait_for_new_checkpoint(checkpoint_dir, last, timeout=timeout)
        if found is None:
            if timeout_fn is None or timeout_fn():
                return
            continue
        process = current_process()
        begin = process.now()
        last = found
        yield found
        rest = begin + min_interval_secs - process.now()
        if rest > 0:
            process.sleep(rest)


# ---- reader ----------------------------------------
# Reading checkpoints without a graph: ``tf.train.NewCheckpointReader``, ``load_variable``, ``list_variables``.


class CheckpointReader:
    """Reads the tensors of a checkpoint (made by ``tf.train.NewCheckpointReader``).

    Args:
      filepattern: the checkpoint's prefix.

    Raises:
      NotFoundError: when there is no such checkpoint.
      DataLossError: when its index is truncated or corrupt.
    """

    def __init__(self, filepattern: str) -> None:
        self._reader = open_checkpoint(filepattern)

    def has_tensor(self, tensor_str: str) -> bool:
        """Whether the checkpoint has a tensor of that name."""
        return tensor_str in self._reader

    def get_tensor(self, tensor_str: str) -> Any:
        """The value of a tensor; a partitioned tensor is returned as a whole.

        Raises:
          NotFoundError: when there is no tensor of that name.
          DataLossError: when its data are truncated or corrupt.
        """
        value = self._reader.read(tensor_str)
        return value if value.ndim else value[()]

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """Name of a tensor -> shape."""
        return {name: list(self._reader.entry(name).shape) for name in self._reader.names()}

    def get_variable_to_dtype_map(self) -> dict[str, DType]:
        """Name of a tensor -> element type."""
        return {name: self._reader.entry(name).dtype for name in self._reader.names()}

    def debug_string(self) -> bytes:
        """A line per stored tensor or slice: name, type and shape."""
        lines = []
        for key, entry in self._reader.stored():
            kind = protos.DataType.Name(entry.dtype.as_datatype_enum)
            lines.append(b"%s (%s) [%s]\n" % (key, kind.encode(), ",".join(map(str, entry.shape)).encode()))
        return b"".join(lines)


@export("tf.train.NewCheckpointReader")
def NewCheckpointReader(filepattern: PathLike | None) -> CheckpointReader:  # noqa: N802 - TensorFlow's name
    """Opens a checkpoint (``tf.train.NewCheckpointReader``); for errors see `CheckpointReader`."""
    return CheckpointReader(filepattern.decode() if isinstance(filepattern, bytes) else str(filepattern))


@export("tf.train.load_checkpoint")
def load_checkpoint(ckpt_dir_or_file: PathLike) -> CheckpointReader:
    """Opens a checkpoint, or the newest one of a directory (``tf.train.load_checkpoint``).

    Raises:
      ValueError: when the directory has no checkpoint.
      NotFoundError, DataLossError: see `CheckpointReader`.
    """
    return CheckpointReader(checkpoint_file(ckpt_dir_or_file))


@export("tf.train.load_variable")
def load_variable(ckpt_dir_or_file: PathLike, name: str) -> Any:
    """The value of a variable (``tf.train.load_variable``); errors as in `load_checkpoint` and ``get_tensor``."""
    return load_checkpoint(ckpt_dir_or_file).get_tensor(name.removesuffix(":0"))


@export("tf.train.list_variables")
def list_variables(ckpt_dir_or_file: PathLike) -> list[tuple[str, list[int]]]:
    """Pairs (name, shape) of a checkpoint's variables, sorted by name (``tf.train.list_variables``)."""
    return sorted(load_checkpoint(ckpt_dir_or_file).get_variable_to_shape_map().items())


# ``tf.contrib.framework`` has the three with other names of the argument.


@export("tf.contrib.framework.load_checkpoint")
def load_checkpoint_of_pattern(filepattern: PathLike) -> CheckpointReader:
    """`load_checkpoint` (``tf.contrib.framework.load_checkpoint``)."""
    return load_checkpoint(filepattern)


@export("tf.contrib.framework.load_variable")
def load_variable_of_dir(checkpoint_dir: PathLike, name: str) -> Any:
    """`load_variable` of a directory or prefix (``tf.contrib.framework.load_variable``)."""
    return load_variable(checkpoint_dir, name)


@export("tf.contrib.framework.list_variables")
def list_variables_of_dir(checkpoint_dir: PathLike) -> list[tuple[str, list[int]]]:
    """`list_variables` of a directory or prefix (``tf.contrib.framework.list_variables``)."""
    return list_variables(checkpoint_dir)
