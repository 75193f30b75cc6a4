"""What checkpoints ask of the file system: names of files, and changes that happen at once or not at all."""

from __future__ import annotations

import errno
import os
import re
from contextlib import suppress
from glob import escape, glob
from typing import IO, Any

from tfmini import errors

_TEMPORARY = ".tempstate"
_WRITE_BACK = 8 << 20  # bytes; the device works on so much while the next is computed


def local_path(path: str) -> str:
    """The path that a ``file://`` address names; other paths as they are."""
    return path.removeprefix("file://")


def index_file(prefix: str) -> str:
    """The index of a checkpoint; that it is there makes ``prefix`` a checkpoint."""
    return f"{local_path(prefix)}.index"


def data_file(prefix: str, shard: int, shards: int) -> str:
    """The file of one shard's tensors."""
    return f"{local_path(prefix)}.data-{shard:05d}-of-{shards:05d}"


def data_files(prefix: str) -> list[str]:
    """All data files there are of a prefix, whether its index mentions them or not."""
    prefix = local_path(prefix)
    named = re.compile(re.escape(prefix) + r"\.data-\d{5}-of-\d{5}$")
    return sorted(path for path in glob(f"{escape(prefix)}.data-*") if named.match(path))


def op_error(error: OSError, path: str) -> errors.OpError:
    """An error of the operating system as one of TensorFlow's, naming the file."""
    kinds = {
        errno.ENOENT: errors.NotFoundError,
        errno.EACCES: errors.PermissionDeniedError,
        errno.EPERM: errors.PermissionDeniedError,
        errno.EROFS: errors.PermissionDeniedError,
        errno.ENOSPC: errors.ResourceExhaustedError,
        errno.EDQUOT: errors.ResourceExhaustedError,
        errno.EISDIR: errors.FailedPreconditionError,
        errno.ENOTDIR: errors.FailedPreconditionError,
    }
    kind = kinds.get(error.errno or 0, errors.UnknownError)
    return kind(None, None, f"{path}; {error.strerror or error}")


class Disk:
    """The file system's changes, one method each, so that a test can stop the world before any of them."""

    def make_directory(self, path: str) -> None:
        """Makes a directory if it is not there; its parent must be."""
        if path and not os.path.isdir(path):
            with suppress(FileExistsError):  # another task was quicker
                os.mkdir(path)

    def create(self, path: str) -> IO[bytes]:
        """A new file for writing."""
        return open(path, "wb", buffering=1 << 16)

    def write_back(self, file: IO[bytes], offset: int, nbytes: int) -> None:
        """Has the device begin with a part of the content, so that `sync` finds little left to wait for."""
        file.flush()
        if hasattr(os, "posix_fadvise"):
            with suppress(OSError):  # it is only advice: "not needed" starts the writing of what is not written yet
                os.posix_fadvise(file.fileno(), offset, nbytes, os.POSIX_FADV_DONTNEED)

    def sync(self, file: IO[bytes]) -> None:
        """Returns when the file's content is on the device."""
        file.flush()
        os.fsync(file.fileno())

    def rename(self, source: str, target: str) -> None:
        """Moves a file, replacing what is there."""
        os.replace(source, target)

    def sync_directory(self, path: str) -> None:
        """Returns when the names in the directory of ``path`` are on the device."""
        try:
            handle = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
        except OSError:  # some file systems do not let directories be opened
            return
        try:
            with suppress(OSError):  # nor can all be synchronised
                os.fsync(handle)
        finally:
            os.close(handle)

    def remove(self, path: str) -> None:
        """Removes a file; one that is not there is no error."""
        with suppress(FileNotFoundError):
            os.remove(path)

    def remove_directory(self, path: str) -> None:
        """Removes a directory if it is empty."""
        with suppress(OSError):  # not empty, or somebody was quicker
            os.rmdir(path)


DISK = Disk()


class NewFile:
    """A file in the making under a temporary name; `keep` gives it its own name, at once.

    Attributes:
      path: the name to be.
    """

    def __init__(self, path: str, disk: Disk = DISK) -> None:
        self.path = path
        self._disk = disk
        self._written = self._begun = 0  # bytes: all, and those that the device has begun with
        self._temporary = f"{path}{_TEMPORARY}{os.urandom(8).hex()}"
        try:
            disk.make_directory(os.path.dirname(path))
            self._file: IO[bytes] | None = disk.create(self._temporary)
        except OSError as error:
            raise op_error(error, os.path.dirname(path) or path) from None

    def write(self, data: Any) -> None:
        """Appends bytes.

        Raises:
          OpError: when the file system refuses, naming the file.
        """
        try:
            self._file.write(data)  # type: ignore[union-attr]
            self._written += len(data)
            if self._written - self._begun >= _WRITE_BACK:
                self._disk.write_back(self._file, self._begun, self._written - self._begun)  # type: ignore[arg-type]
                self._begun = self._written
        except OSError as error:
            raise op_error(error, self.path) from None

    def keep(self) -> None:
        """Makes the content durable, then visible under the file's own name."""
        try:
            self._disk.sync(self._file)  # type: ignore[arg-type]
            self._close()
            self._disk.rename(self._temporary, self.path)
        except OSError as error:
            raise op_error(error, self.path) from None

    def drop(self) -> None:
        """Forgets the file, if `keep` did not succeed."""
        self._close()
        self._disk.remove(self._temporary)

    def _close(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            file.close()


def write_atomically(path: str, content: bytes, disk: Disk = DISK) -> None:
    """Writes a whole file: readers and crashes see the old content or the new.

    Raises:
      OpError: when the file system refuses.
    """
    path = local_path(path)
    file = NewFile(path, disk)
    try:
        file.write(content)
        file.keep()
    except BaseException:  # even Ctrl-C leaves no half of a file behind
        file.drop()
        raise
    disk.sync_directory(path)
