"""TFRecord files: framing, checksums and compression, byte-compatible with TensorFlow's.

A record is an 8-byte little-endian length, the masked CRC-32C of those 8 bytes, the data, and the
masked CRC-32C of the data. Event files use the same framing. A compressed file is one GZIP or ZLIB
stream of all records.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import google_crc32c

from tfmini import errors
from tfmini.checkpoint.files import local_path
from tfmini.numerics.images import check_inflated

Path = str | bytes | os.PathLike[Any]

_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")
_HEADER = struct.Struct("<QI")
_CHUNK, _PIECE = 1 << 18, 16 << 20  # the least and the most bytes that are inflated at once
# Bytes of a compressed file that are read at once: what follows the end of a gzip member is copied for the next one,
# and a file may have many small members.
_INPUT = 1 << 13
# zlib's window bits: 15 with a zlib header, 16 more for a gzip one.
_WINDOW_BITS = {"ZLIB": 15, "GZIP": 31}
_MAX_RECORD = 1 << 40  # A larger length is corrupt data whose checksum matches by chance.


def masked_crc32c(data: bytes) -> int:
    """The checksum in the form of files: rotated and offset, as checksums of data that contain checksums need it."""
    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def frame(record: bytes) -> bytes:
    """The bytes of a record in a file."""
    length = _LENGTH.pack(len(record))
    return b"".join((length, _CRC.pack(masked_crc32c(length)), record, _CRC.pack(masked_crc32c(record))))


class RecordWriter:
    """Writes a new record file; usable as a context manager.

    Args:
      path: of the file, which is replaced if it exists.
      compression: ``""``, ``"ZLIB"`` or ``"GZIP"``.
      level: of the compression, 0 to 9; None for zlib's default.

    Raises:
      NotFoundError, PermissionDeniedError, …: when the file cannot be opened.
      ValueError: for an unknown compression.
    """

    def __init__(
        self,
        path: Path,
        compression: str = "",
        *,
        level: int | None = None,
        window_bits: int | None = None,
        mem_level: int | None = None,
        strategy: int | None = None,
    ) -> None:
        self._deflate = None
        if compression:
            bits = window_bits or _window_bits(compression)
            self._deflate = zlib.compressobj(
                -1 if level is None else level,
                zlib.DEFLATED,
                bits + 16 if compression == "GZIP" and bits <= 15 else bits,
                mem_level or 8,
                strategy or zlib.Z_DEFAULT_STRATEGY,
            )
        try:
            self._file = open(local_path(path), "wb")  # noqa: SIM115 - closed by close
        except OSError as error:
            raise errors.from_os_error(error, path) from error
        self._path = path

    def write(self, record: bytes) -> None:
        """Appends one record.

        Raises:
          FailedPreconditionError: after `close`.
        """
        self._put(frame(record))

    def _put(self, data: bytes) -> None:
        if self._file.closed:
            raise errors.FailedPreconditionError.of(f"Writer of {os.fsdecode(self._path)} is closed.")
        try:
            self._file.write(data if self._deflate is None else self._deflate.compress(data))
        except OSError as error:
            raise errors.from_os_error(error, self._path) from error

    def flush(self) -> None:
        """Makes all written records visible to readers of the file."""
        if self._file.closed:
            raise errors.FailedPreconditionError.of(f"Writer of {os.fsdecode(self._path)} is closed.")
        with errors.naming_file(self._path):
            if self._deflate is not None:
                self._file.write(self._deflate.flush(zlib.Z_SYNC_FLUSH))
            self._file.flush()

    def close(self) -> None:
        """Writes buffered records and closes the file; a second call does nothing."""
        if self._file.closed:
            return
        with errors.naming_file(self._path), self._file:  # Closed even if the last write fails.
            if self._deflate is not None:
                self._file.write(self._deflate.flush())

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _window_bits(compression: str) -> int:
    if compression not in _WINDOW_BITS:
        raise ValueError(f'Not a valid compression_type: "{compression}"')
    return _WINDOW_BITS[compression]


class InflatedFile:
    """A file of bytes, decompressed while it is read.

    Args:
      path: of the file.
      compression: ``""``, ``"ZLIB"`` or ``"GZIP"``.

    Raises:
      NotFoundError, PermissionDeniedError, …: when the file cannot be opened.
    """

    def __init__(self, path: Path, compression: str = "") -> None:
        self._inflate = zlib.decompressobj(_window_bits(compression)) if compression else None
        self._bits = _WINDOW_BITS.get(compression, 0)
        self._pending = bytearray()
        try:
            self._file = open(local_path(path), "rb")  # noqa: SIM115 - closed by close
        except OSError as error:
            raise errors.from_os_error(error, path) from error
        self._path = path

    def read(self, count: int) -> bytes:
        """The next ``count`` bytes, fewer only at the end of the file.

        Raises:
          DataLossError: when the compressed data is damaged.
          ResourceExhaustedError: when they inflate to more than `inflate_limit` bytes.
        """
        try:
            return self._read(count)
        except zlib.error as error:
            raise errors.DataLossError.of(f"{os.fsdecode(self._path)}: {error}") from error
        except OSError as error:
            raise errors.from_os_error(error, self._path) from error

    def _read(self, count: int) -> bytes:
        if self._inflate is None:
            return self._file.read(count) if count <= _PIECE else b"".join(self._pieces(count))
        while len(self._pending) < count and self._inflate_more(count - len(self._pending)):
            check_inflated(len(self._pending), f"A record or field of {os.fsdecode(self._path)}")
        found = bytes(self._pending[:count])
        del self._pending[:count]
        return found

    def line(self) -> bytes:
        """The next line of a file that is not compressed, with its end; b"" at the end of the file."""
        with errors.naming_file(self._path):
            return self._file.readline()

    def _pieces(self, count: int) -> Iterator[bytes]:
        """Reads a large part. A damaged file may ask for more than it has, and for more than there is memory."""
        while count > 0 and (piece := self._file.read(min(count, _PIECE))):
            count -= len(piece)
            yield piece

    def _inflate_more(self, wanted: int) -> bool:
        """Inflates a bounded number of bytes; returns False at the end of the file."""
        assert self._inflate is not None
        chunk = self._inflate.unconsumed_tail or self._inflate.unused_data or self._file.read(_INPUT)
        if chunk and self._inflate.eof:  # Gzip files may be concatenated.
            self._inflate = zlib.decompressobj(self._bits)
        # At the end of the file, the decoder may still hold a few bytes.
        found = self._inflate.decompress(chunk, min(max(wanted, _CHUNK), _PIECE))
        self._pending += found
        return bool(chunk or found)

    def skip(self, count: int) -> int:
        """Skips ``count`` bytes; returns how many there were. Raises like `read`."""
        skipped = 0
        while skipped < count and (piece := self.read(min(count - skipped, _PIECE))):
            skipped += len(piece)
        return skipped

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


class RecordReader:
    """Reads a record file from its beginning.

    Args:
      path: of the file.
      compression: ``""``, ``"ZLIB"`` or ``"GZIP"``.
      offset: bytes (uncompressed) to skip.

    Raises:
      NotFoundError, PermissionDeniedError, …: when the file cannot be opened.
    """

    def __init__(self, path: Path, compression: str = "", offset: int = 0) -> None:
        self._file = InflatedFile(path, compression)
        self.offset = self._file.skip(offset)

    def read(self) -> bytes | None:
        """The next record, or None at the end of the file, as which TensorFlow takes an incomplete header, too.

        Raises:
          DataLossError: when the record is truncated or a checksum differs.
        """
        head = self._file.read(12)
        if len(head) < 12:
            return None
        length, crc = _HEADER.unpack(head)
        if masked_crc32c(head[:8]) != crc or length > _MAX_RECORD:
            raise errors.DataLossError.of(f"corrupted record at {self.offset}")
        record = self._file.read(length + 4)
        if len(record) < length + 4:
            raise errors.DataLossError.of(f"truncated record at {self.offset}")
        body = record[:length]
        if masked_crc32c(body) != _CRC.unpack_from(record, length)[0]:
            raise errors.DataLossError.of(f"corrupted record at {self.offset + 12}")
        self.offset += length + 16
        return body

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


def read_records(path: Path, compression: str = "") -> Iterator[bytes]:
    """The records of a file, in order; raises like `RecordReader`."""
    reader = RecordReader(path, compression)
    try:
        while (record := reader.read()) is not None:
            yield record
    finally:
        reader.close()
