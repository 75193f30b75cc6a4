"""The files of checkpoints: their names, and atomic, durable changes of the file system."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from glob import escape, glob
from typing import IO, Any

from tfmini import errors

_TEMPORARY = ".tempstate"
_WRITE_BACK = 8 << 20  # bytes that the device writes while the following ones are computed


def local_path(path: str) -> str:
    """Removes the ``file://`` prefix of a path, if it has one."""
    return path.removeprefix("file://")


def index_file(prefix: str) -> str:
    """Returns the path of a checkpoint's index file. The checkpoint exists if this file exists."""
    return f"{local_path(prefix)}.index"


def data_file(prefix: str, shard: int, shards: int) -> str:
    """Returns the path of the file with one shard's tensors."""
    return f"{local_path(prefix)}.data-{shard:05d}-of-{shards:05d}"


def data_files(prefix: str) -> list[str]:
    """Returns all existing data files of a prefix, including those that its index does not mention."""
    prefix = local_path(prefix)
    named = re.compile(re.escape(prefix) + r"\.data-\d{5}-of-\d{5}$")
    return sorted(path for path in glob(f"{escape(prefix)}.data-*") if named.match(path))


class Disk:
    """The changes of the file system, one method each, so that a test can simulate a crash before each of them."""

    def make_directory(self, path: str) -> None:
        """Creates a directory if it does not exist; its parent must exist."""
        if path and not os.path.isdir(path):
            with suppress(FileExistsError):  # another task created it meanwhile
                os.mkdir(path)

    def create(self, path: str) -> IO[bytes]:
        """Creates a file for writing."""
        return open(path, "wb", buffering=1 << 16)

    def write_back(self, file: IO[bytes], offset: int, nbytes: int) -> None:
        """Starts writing a part of the content to the device, so that `sync` has little left to wait for."""
        file.flush()
        if hasattr(os, "posix_fadvise"):
            with suppress(OSError):  # advisory: DONTNEED starts the write-back of dirty pages
                os.posix_fadvise(file.fileno(), offset, nbytes, os.POSIX_FADV_DONTNEED)

    def sync(self, file: IO[bytes]) -> None:
        """Waits until the file's content is on the device."""
        file.flush()
        os.fsync(file.fileno())

    def rename(self, source: str, target: str) -> None:
        """Renames a file and replaces an existing target."""
        os.replace(source, target)

    def sync_directory(self, path: str) -> None:
        """Waits until the entries of the directory of ``path`` are on the device."""
        try:
            handle = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
        except OSError:  # some file systems cannot open directories
            return
        try:
            with suppress(OSError):  # some cannot synchronise them
                os.fsync(handle)
        finally:
            os.close(handle)

    def remove(self, path: str) -> None:
        """Removes a file if it exists."""
        with suppress(FileNotFoundError):
            os.remove(path)

    def remove_directory(self, path: str) -> None:
        """Removes a directory if it is empty."""
        with suppress(OSError):  # not empty, or already removed
            os.rmdir(path)


DISK = Disk()


class NewFile:
    """A file written under a temporary name; `commit` renames it atomically.

    Attributes:
      path: its final name.

    Raises:
      OpError: from every method, when the file system refuses; it names the file.
    """

    def __init__(self, path: str, disk: Disk = DISK) -> None:
        self.path = path
        self._disk = disk
        self._written = self._begun = 0  # bytes: all, and those whose write-back has begun
        self._temporary = f"{path}{_TEMPORARY}{os.urandom(8).hex()}"
        try:
            disk.make_directory(os.path.dirname(path))
            self._file = disk.create(self._temporary)
        except OSError as error:
            raise errors.from_os_error(error, os.path.dirname(path) or path) from None

    def write(self, data: Any) -> None:
        """Appends bytes."""
        try:
            self._file.write(data)
            self._written += len(data)
            if self._written - self._begun >= _WRITE_BACK:
                self._disk.write_back(self._file, self._begun, self._written - self._begun)
                self._begun = self._written
        except OSError as error:
            raise errors.from_os_error(error, self.path) from None

    def commit(self) -> None:
        """Makes the content durable, then visible under the file's final name."""
        try:
            self._disk.sync(self._file)
            self._file.close()
            self._disk.rename(self._temporary, self.path)
        except OSError as error:
            raise errors.from_os_error(error, self.path) from None

    def discard(self) -> None:
        """Removes the temporary file; does nothing after `commit`."""
        with suppress(OSError):  # closing writes what is buffered, and the disk may be full
            self._file.close()
        with errors.naming_file(self.path):
            self._disk.remove(self._temporary)


def write_atomically(path: str, content: bytes, disk: Disk = DISK) -> None:
    """Replaces a whole file: readers see the old content or the new, also after a crash.

    Raises:
      OpError: when the file system refuses.
    """
    path = local_path(path)
    file = NewFile(path, disk)
    try:
        file.write(content)
        file.commit()
    except BaseException:  # KeyboardInterrupt, too, must not leave a temporary file
        file.discard()
        raise
    disk.sync_directory(path)
