"""``tf.gfile.GFile``: a file of this machine, with TensorFlow's modes, methods and errors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import IO, Any

from tfmini import errors
from tfmini.compat.text import as_bytes, as_str_any, path_to_str
from tfmini.core_types import PathLike
from tfmini.export import export

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
    """A file for reading or writing (``tf.gfile.GFile``, ``tf.gfile.Open``, ``file_io.FileIO``).

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
