"""`Dataset.cache` with a file: elements are kept in a checkpoint bundle, under TensorFlow's keys.

A lock file keeps two readings from writing at the same time. The bundle appears when all elements are written; a
reading that stops early leaves no files.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from tfmini import dtypes, errors
from tfmini.checkpoint import files
from tfmini.checkpoint.reader import BundleReader
from tfmini.checkpoint.writer import BundleWriter
from tfmini.data.pipeline import Element, RaggedValue, Reading, Source, Stage, Transformation

_NUMBER_WIDTH = len(str(10_000_000 - 1))


def _keys(number: int, count: int) -> list[str]:
    """The keys of an element's components."""
    width = len(str(count - 1))
    return [f"{number:>{_NUMBER_WIDTH}}_{i:>{width}}" for i in range(count)]


class _Writing(Transformation):
    def __init__(self, upstream: Stage, reading: Reading, path: str) -> None:
        super().__init__(upstream, reading)
        self._path = path
        self._lock = path + ".lockfile"
        self._take_lock()
        self._writer: BundleWriter | None = BundleWriter(path)
        self._count = 0

    def _take_lock(self) -> None:
        os.makedirs(os.path.dirname(self._lock) or ".", exist_ok=True)
        try:
            handle = os.open(self._lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            raise errors.AlreadyExistsError.of(
                "There appears to be a concurrent caching iterator running - cache lockfile already exists"
                f" ('{self._lock}'). If you are sure no other running TF computations are using this cache prefix,"
                " delete the lockfile and re-initialize the iterator."
            ) from None
        os.close(handle)

    def __next__(self) -> Element:
        try:
            element = next(self.upstream)
        except StopIteration:
            if self._writer is not None:
                self._writer.finish()
                self.close()
            raise
        if self._writer is not None:
            for key, component in zip(_keys(self._count, len(element)), element):
                self._writer.add(key, *_storable(component))
            self._count += 1
        return element

    def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.__exit__()
            files.DISK.remove(self._lock)
        super().close()


def _storable(component: object) -> tuple[Any, dtypes.DType]:
    """A component as an array and its type.

    Raises:
      UnimplementedError: when the component is not a dense tensor.
    """
    if isinstance(component, (Source, RaggedValue)) or hasattr(component, "dense_shape"):
        text = "Dataset.cache with a file keeps dense tensors only: call it without a filename."
        raise errors.UnimplementedError.of(text)
    if isinstance(component, bytes):
        component = np.array(component, object)
    array = np.asarray(component)
    return array, dtypes.string if array.dtype == object else dtypes.as_dtype(array.dtype)


class _Reading(Stage):
    def __init__(self, path: str, count: int) -> None:
        self._reader = BundleReader(path)
        self._components = count
        self._at = 0

    def __next__(self) -> Element:
        keys = _keys(self._at, self._components)
        if keys[0] not in self._reader:
            raise StopIteration
        self._at += 1
        return tuple(value if value.ndim else value[()] for value in map(self._reader.read, keys))


class FileCacheSource(Source):
    """A source that reads its elements from a file as soon as one reading has written them all.

    Args:
      path: prefix of the files' names.
      components: number of components of an element.
    """

    def __init__(self, source: Source, path: str, components: int) -> None:
        super().__init__(self._begin, source.count)
        self._source = source
        self._path = files.local_path(path)
        self._components = components

    def _begin(self, reading: Reading) -> Stage:
        if os.path.exists(files.index_file(self._path)):
            return _Reading(self._path, self._components)
        return _LateWriting(self._source, self._path, reading)


class _LateWriting(Stage):
    """Takes the lock at the first element, so that the step that reads it gets the error."""

    def __init__(self, source: Source, path: str, reading: Reading) -> None:
        self._begin = lambda: _Writing(source.open(reading), reading, path)
        self._stage: _Writing | None = None

    def __next__(self) -> Element:
        if self._stage is None:
            self._stage = self._begin()
        return next(self._stage)

    def close(self) -> None:
        if self._stage is not None:
            self._stage.close()
