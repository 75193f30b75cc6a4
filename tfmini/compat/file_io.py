"""``tf.io.gfile``: files and directories of this machine. `file_io_names` has the older names."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import IO, Any

from tfmini import errors
from tfmini.compat.switches import as_bytes, as_str_any, path_to_str
from tfmini.core_types import PathLike
from tfmini.export import export
from tfmini.ops.io.files import matching

# ---- ``tf.gfile.GFile``: a file of this machine, with TensorFlow's modes, methods and errors -----------------------

_MODES = ("r", "w", "a", "r+", "w+", "a+")
_READING, _WRITING = ("r", "r+", "w+", "a+"), ("w", "a", "r+", "w+", "a+")


def local_path(path: PathLike) -> str:
    """The path as text, without ``file://``.

    Raises:
      UnimplementedError: for another scheme, such as ``gs://`` or ``hdfs://``.
    """
    text = as_str_any(path_to_str(path))
    scheme, found, rest = text.partition("://")
    if not found or "/" in scheme:
        return text
    if scheme == "file":
        return rest
    raise errors.UnimplementedError.of(
        f"File system scheme '{scheme}' not implemented (file: '{text}'). tfmini reads and writes files of this"
        " machine; copy the data here or mount it."
    )


@export("tf.gfile.GFile", "tf.gfile.Open", "tf.io.gfile.GFile")
class GFile:
    """A file for reading or writing (``tf.gfile.GFile``, ``tf.gfile.Open``, ``FileIO``).

    The first read and the first write each open the file. So, as in TensorFlow, writing does not move the
    read position, and the first `write` truncates the file unless the mode is ``a``. Text is UTF-8; with
    ``b`` in the mode, `read` and iteration return bytes. `write` accepts both.

    Args:
      name: a path of this machine.
      mode: one of r, w, a, r+, w+, a+, each with or without b.

    Raises:
      InvalidArgumentError: for another mode.
      OpError: when the file is first used, for an error of the operating system.
    """

    def __init__(self, name: str, mode: str = "r") -> None:
        self._name, self._mode = name, mode
        self._binary = "b" in mode
        self._plain = mode.replace("b", "")
        if self._plain not in _MODES:
            raise errors.InvalidArgumentError.of("mode is not 'r' or 'w' or 'a' or 'r+' or 'w+' or 'a+'")
        self._input: IO[bytes] | None = None
        self._output: IO[bytes] | None = None

    def __del__(self) -> None:
        """Closes the file without a warning, as TensorFlow's destructor does: many read by ``GFile(name).read()``."""
        for file in (getattr(self, "_output", None), getattr(self, "_input", None)):
            if file is not None:
                with contextlib.suppress(Exception):
                    file.close()

    @property
    def name(self) -> Any:
        """The path that was given."""
        return self._name

    @property
    def mode(self) -> str:
        """The mode that was given."""
        return self._mode

    def _open(self, mode: str) -> IO[bytes]:
        path = local_path(self._name)
        try:
            return open(path, mode)
        except OSError as error:
            raise errors.from_os_error(error, path) from error

    def _reader(self) -> IO[bytes]:
        if self._plain not in _READING:
            raise errors.PermissionDeniedError.of("File isn't open for reading")
        self.flush()
        if self._input is None:
            self._input = self._open("rb")
        return self._input

    def _writer(self) -> IO[bytes]:
        if self._plain not in _WRITING:
            raise errors.PermissionDeniedError.of("File isn't open for writing")
        if self._output is None:
            self._output = self._open("ab" if self._plain[0] == "a" else "wb")
        return self._output

    def _result(self, data: bytes) -> Any:
        return data if self._binary else data.decode("utf-8")

    def size(self) -> int:
        """The size of the file on disk, in bytes."""
        path = local_path(self._name)
        try:
            return os.path.getsize(path)
        except OSError as error:
            raise errors.from_os_error(error, path) from error

    def write(self, file_content: str | bytes) -> None:
        """Writes text (as UTF-8) or bytes."""
        with errors.naming_file(self._name):
            self._writer().write(as_bytes(file_content))

    def read(self, n: int = -1) -> Any:
        """The next ``n`` bytes, or all remaining ones; text unless the mode has a ``b``."""
        return self._result(self._reader().read(n))

    def readline(self) -> Any:
        """The next line with its end; empty at the end of the file."""
        return self._result(self._reader().readline())

    def readlines(self) -> list[Any]:
        """The remaining lines."""
        return [self._result(line) for line in self._reader().readlines()]

    def seek(self, offset: int | None = None, whence: int = 0, position: int | None = None) -> None:
        """Moves to ``offset`` bytes from the start (0), the current position (1) or the end (2).

        Raises:
          TypeError: without an offset, or with an offset and a position.
          InvalidArgumentError: for another ``whence`` or a position before the start.
          OutOfRangeError: for a position behind the end.
        """
        if offset is not None and position is not None:
            raise TypeError("seek(): offset and position may not be set simultaneously.")
        offset = position if offset is None else offset
        if offset is None:
            raise TypeError("seek(): offset argument required")
        file = self._reader()
        if whence not in (0, 1, 2):
            raise errors.InvalidArgumentError.of(f"Invalid whence argument: {whence}. Valid values are 0, 1, or 2.")
        start = (0, file.tell(), self.size())[whence]
        if start + offset < 0:
            raise errors.InvalidArgumentError.of(f"Seeking to a negative position: {start + offset}")
        if start + offset > self.size():
            raise errors.OutOfRangeError.of("reached end of file")
        file.seek(start + offset)

    def tell(self) -> int:
        """The read position in bytes; the write position if the file cannot be read."""
        return (self._reader() if self._plain in _READING else self._writer()).tell()

    def seekable(self) -> bool:
        """True: files of this machine can seek."""
        return True

    def flush(self) -> None:
        """Passes the written data to the operating system."""
        if self._output is not None:
            with errors.naming_file(self._name):
                self._output.flush()

    def close(self) -> None:
        """Closes the file; the next use opens it again."""
        files = [file for file in (self._output, self._input) if file is not None]
        self._input = self._output = None
        with errors.naming_file(self._name):
            for file in files:
                file.close()

    def __enter__(self) -> GFile:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        line = self.readline()
        if not line:
            raise StopIteration
        return line

    next = __next__


@export("tf.gfile.FastGFile")
class FastGFile(GFile):
    """`GFile` under an older name (``tf.gfile.FastGFile``)."""


# ---- The functions of ``tf.gfile`` and ``tf.io.gfile``: look, make, move and remove --------------------------------


@dataclass(frozen=True)
class FileStatistics:
    """The result of `stat`: size in bytes, time of the last change in ns since 1970, whether it is a directory."""

    length: int
    mtime_nsec: int
    is_directory: bool


@export("tf.io.gfile.exists")
def exists(path: PathLike) -> bool:
    """Whether a path exists (``tf.gfile.Exists``)."""
    return os.path.exists(local_path(path))


@export("tf.io.gfile.isdir")
def isdir(path: PathLike) -> bool:
    """Whether a path is a directory (``tf.gfile.IsDirectory``)."""
    return os.path.isdir(local_path(path))


@export("tf.io.gfile.stat")
def stat(path: PathLike) -> FileStatistics:
    """Size, time and kind of a path (``tf.gfile.Stat``); raises NotFoundError if it does not exist."""
    name = local_path(path)
    try:
        found = os.stat(name)
    except OSError as error:
        raise errors.from_os_error(error, name) from error
    is_directory = os.path.isdir(name)
    return FileStatistics(0 if is_directory else found.st_size, found.st_mtime_ns, is_directory)


@export("tf.io.gfile.listdir")
def listdir(path: PathLike) -> list[str]:
    """The names in a directory, without ``.`` and ``..`` (``tf.gfile.ListDirectory``).

    Raises:
      NotFoundError: when it is no directory.
    """
    name = local_path(path)
    if not os.path.isdir(name):
        raise errors.NotFoundError.of(f"Could not find directory {name}")
    return os.listdir(name)


@export("tf.io.gfile.mkdir")
def mkdir(path: PathLike) -> None:
    """Makes a directory whose parent exists; an existing directory is no error (``tf.gfile.MkDir``)."""
    name = local_path(path)
    try:
        os.mkdir(name)
    except FileExistsError:
        return
    except OSError as error:
        raise errors.from_os_error(error, name) from error


@export("tf.io.gfile.makedirs")
def makedirs(path: PathLike) -> None:
    """Makes a directory and its parents (``tf.gfile.MakeDirs``).

    Raises:
      FailedPreconditionError: when one of them is a file.
    """
    name = local_path(path)
    try:
        os.makedirs(name, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise errors.FailedPreconditionError.of(f"{name} is not a directory") from error
    except OSError as error:
        raise errors.from_os_error(error, name) from error


@export("tf.io.gfile.remove")
def remove(path: PathLike) -> None:
    """Deletes a file (``tf.gfile.Remove``)."""
    name = local_path(path)
    try:
        if os.path.isdir(name):
            raise IsADirectoryError(errno.EISDIR, "Is a directory")
        os.remove(name)
    except OSError as error:
        raise errors.from_os_error(error, name) from error


@export("tf.io.gfile.rmtree")
def rmtree(path: PathLike) -> None:
    """Deletes a directory with its content, or a file (``tf.gfile.DeleteRecursively``)."""
    name = local_path(path)
    if not os.path.lexists(name):
        raise errors.NotFoundError.of(f"{name} not found")
    try:
        if os.path.isdir(name) and not os.path.islink(name):
            shutil.rmtree(name)
        else:
            os.remove(name)
    except OSError as error:
        raise errors.from_os_error(error, name) from error


def _check_target(name: str, overwrite: bool) -> None:
    if not overwrite and os.path.exists(name):
        raise errors.AlreadyExistsError.of(f"file already exists: {name}")


@export("tf.io.gfile.copy")
def copy(src: PathLike, dst: PathLike, overwrite: bool = False) -> None:
    """Copies a file's content (``tf.gfile.Copy``); raises AlreadyExistsError unless ``overwrite``."""
    old, new = local_path(src), local_path(dst)
    _check_target(new, overwrite)
    try:
        shutil.copyfile(old, new)
    except OSError as error:
        raise errors.from_os_error(error, error.filename2 or error.filename or new) from error


@export("tf.io.gfile.rename")
def rename(src: PathLike, dst: PathLike, overwrite: bool = False) -> None:
    """Moves a file or directory (``tf.gfile.Rename``); raises AlreadyExistsError unless ``overwrite``."""
    old, new = local_path(src), local_path(dst)
    _check_target(new, overwrite)
    try:
        os.replace(old, new)
    except OSError as error:
        raise errors.from_os_error(error, old) from error


@export("tf.io.gfile.glob")
def glob(pattern: PathLike) -> list[str]:
    """The paths that match a pattern, or one of several (``tf.gfile.Glob``).

    ``*``, ``?`` and ``[…]`` do not match a ``/``; ``*`` matches hidden files, as in TensorFlow.

    Raises:
      NotFoundError: the part before the first of these names a directory that is not there.
    """
    if isinstance(pattern, (list, tuple)) or (isinstance(pattern, Iterable) and not isinstance(pattern, (str, bytes))):
        return [path for one in pattern for path in glob(one)]
    return list(matching(local_path(pattern)))


@export("tf.io.gfile.walk")
def walk(
    top: PathLike, topdown: bool = True, onerror: Callable[..., Any] | None = None
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yields (directory, names of its directories, names of its files) of a tree (``tf.io.gfile.walk``)."""
    return os.walk(local_path(top), topdown=topdown, onerror=onerror)


def read_file_to_string(filename: str, binary_mode: bool = False) -> Any:
    """The content of a file, as text or bytes (``read_file_to_string``)."""
    with GFile(filename, "rb" if binary_mode else "r") as file:
        return file.read()


def write_string_to_file(filename: str, file_content: str | bytes) -> None:
    """Replaces a file's content (``write_string_to_file``)."""
    with GFile(filename, "w") as file:
        file.write(file_content)


def atomic_write_string_to_file(filename: PathLike, contents: str | bytes, overwrite: bool = True) -> None:
    """Replaces a file's content atomically: writes a temporary file beside it and renames that."""
    temporary = f"{as_str_any(filename)}.tmp{uuid.uuid4().hex}"
    write_string_to_file(temporary, contents)
    try:
        rename(temporary, filename, overwrite)
    except errors.OpError:
        remove(temporary)
        raise


def filecmp(filename_a: PathLike, filename_b: PathLike) -> bool:
    """Whether two files have the same content (``filecmp``)."""
    if stat(filename_a).length != stat(filename_b).length:
        return False
    return all(a == b for a, b in zip_longest(_chunks(filename_a), _chunks(filename_b)))


def _chunks(filename: Any, size: int = 1 << 20) -> Iterator[bytes]:
    with GFile(filename, "rb") as file:
        while chunk := file.read(size):
            yield chunk


def file_crc32(filename: PathLike, block_size: int = 1 << 20) -> str:
    """The CRC-32 (zlib's) of a file as a hexadecimal number (``file_crc32``)."""
    total = 0
    for chunk in _chunks(filename, block_size):
        total = zlib.crc32(chunk, total)
    return hex(total & 0xFFFFFFFF)
