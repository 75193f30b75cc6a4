"""Merges the bundles that several tasks wrote into one checkpoint: renames the data files, joins the indexes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from tfmini import errors, protos
from tfmini.checkpoint import files
from tfmini.checkpoint.reader import load_index
from tfmini.checkpoint.writer import HEADER_KEY, commit_index, free_shard_count


def merge(
    prefixes: Sequence[str], destination: str, delete_old_dirs: bool = True, disk: files.Disk = files.DISK
) -> None:
    """Merges several bundles into one checkpoint and removes them.

    Args:
      prefixes: the bundles, in the order of their shards.
      destination: the prefix of the checkpoint.
      delete_old_dirs: remove the directories of the bundles if they are empty afterwards.

    Raises:
      InvalidArgumentError: when a bundle is missing or two have a tensor in common.
      OpError: when the file system refuses.
    """
    entries: dict[bytes, Any] = {}
    moves: list[str] = []
    for prefix in prefixes:
        _add(prefix, entries, moves)
    shards = free_shard_count(destination, max(1, len(moves)))
    try:
        for number, source in enumerate(moves):
            disk.rename(source, files.data_file(destination, number, shards))
    except OSError as error:
        raise errors.from_os_error(error, destination) from None
    commit_index(destination, shards, entries, disk)
    for prefix in prefixes:
        if prefix != destination:
            disk.remove(files.index_file(prefix))
    if delete_old_dirs:
        old = {os.path.dirname(files.local_path(prefix)) for prefix in prefixes}
        old.discard(os.path.dirname(files.local_path(destination)))
        for directory in sorted(old):
            disk.remove_directory(directory)


def _add(prefix: str, entries: dict[bytes, Any], moves: list[str]) -> None:
    """Adds a bundle's index to ``entries`` and its data files to ``moves``."""
    try:
        shards, index = load_index(prefix)
    except errors.NotFoundError:
        raise errors.InvalidArgumentError.of(
            f"allow_missing_files was set to false and {prefix} did not exist. The shards of a checkpoint must be"
            " written to a file system that all tasks share"
        ) from None
    numbers: dict[int, int] = {}
    for key, data in index.items():
        if key == HEADER_KEY:
            continue
        with errors.reading(f"{prefix}: the entry of {key.decode(errors='replace')}"):
            entry = protos.BundleEntryProto.FromString(data)
        if entry.slices and key in entries and entries[key].slices:
            entries[key].slices.extend(entry.slices)
            continue
        if key in entries:
            name = key.decode(errors="replace")
            text = f"Duplicate tensor keyed by {name} encountered, when merging prefix: {prefix}"
            raise errors.InvalidArgumentError.of(text)
        if not entry.slices:
            entry.shard_id = numbers.setdefault(entry.shard_id, len(moves) + len(numbers))
        entries[key] = entry
    moves.extend(files.data_file(prefix, old, shards) for old in sorted(numbers, key=numbers.__getitem__))
