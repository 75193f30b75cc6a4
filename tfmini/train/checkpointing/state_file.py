"""A directory's state file ``checkpoint``, which lists its checkpoints; lookup and removal of checkpoint files."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable
from glob import escape, glob
from typing import Any

from tfmini import errors, protos
from tfmini.checkpoint import files
from tfmini.export import export
from tfmini.journal import SAVED, journal
from tfmini.train.checkpointing.graph_files import parse_text

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


def checkpoint_file(ckpt_dir_or_file: Any) -> str:
    """The given checkpoint's prefix, or that of a directory's newest checkpoint.

    Raises:
      ValueError: when the directory has no checkpoint.
    """
    text = files.local_path(os.fsdecode(ckpt_dir_or_file))
    found = latest_checkpoint(text) if os.path.isdir(text) else text
    if found is None:
        raise ValueError(f"Couldn't find 'checkpoint' file or checkpoints in given directory {text}")
    return found
