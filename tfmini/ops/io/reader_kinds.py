"""The kinds of readers: each defines its work units and its records."""

from __future__ import annotations

from typing import Any

from tfmini import errors
from tfmini.checkpoint import varint
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.io.reader_state import ReaderState, Record
from tfmini.ops.io.record_files import InflatedFile, RecordReader


class _SerializableReader(ReaderState):
    """Readers with one record per work unit, so that their state between reads is a few counters."""

    def is_last(self) -> bool:
        return True

    def serialize(self) -> bytes:
        fields = (self.units_started, self.units_finished, self.produced)
        parts = [bytes([8 * i]) + varint.encode(value) for i, value in enumerate(fields, 1) if value]
        if self.work:
            parts.append(bytes([34]) + varint.encode(len(self.work)) + self.work)
        return b"".join(parts)

    def restore(self, state: bytes) -> None:
        try:
            started, finished, produced, work = _parse_state(state)
        except (IndexError, ValueError):
            text = f"Could not parse state for {self.kind} '{self.name}': {state.decode('latin-1')}"
            self.reset()
            raise errors.InvalidArgumentError.of(text) from None
        problem = ""
        if min(started, finished, produced) < 0:
            problem = "Unexpected negative value when restoring in"
        elif started > finished:
            problem = "Inconsistent work started vs. finished when restoring in"
        if problem:
            self.reset()
            refuse(f"{problem} {self.kind} '{self.name}'")
        self.units_started, self.units_finished, self.produced, self.work = started, finished, produced, work


def _parse_state(state: bytes) -> tuple[int, int, int, bytes]:
    """The fields of a ReaderBaseState message: three counters and the current work unit."""
    fields: dict[int, Any] = {1: 0, 2: 0, 3: 0, 4: b""}
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = state[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value - 2**64 if value >= 2**63 else value

    while at < len(state):
        tag = varint()
        if tag in (8, 16, 24):
            fields[tag >> 3] = varint()
        elif tag == 34:
            size = varint()
            if size < 0 or at + size > len(state):
                raise ValueError("cut off")
            fields[4] = state[at : at + size]
            at += size
        else:
            raise ValueError("unknown field")
    return fields[1], fields[2], fields[3], fields[4]


class IdentityReaderState(_SerializableReader):
    """Returns the work units as records."""

    kind = "IdentityReader"

    def read_record(self) -> Record | None:
        return self.work, self.work


class WholeFileReaderState(_SerializableReader):
    """Returns whole files as records."""

    kind = "WholeFileReader"

    def read_record(self) -> Record | None:
        file = InflatedFile(self.work)
        try:
            return self.work, file.read(-1)
        finally:
            file.close()


class _FileReader(ReaderState):
    """Base of readers that keep a file open."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._file: Any = None
        self._number = 0

    def finish_unit(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _key(self, number: int) -> bytes:
        return b"%s:%d" % (self.work, number)


class TextLineReaderState(_FileReader):
    """Returns the lines of text files, without line ends."""

    kind = "TextLineReader"

    def __init__(self, name: str, skip_header_lines: int) -> None:
        super().__init__(name)
        self._skip = skip_header_lines

    def start_unit(self) -> None:
        self._file, self._number = InflatedFile(self.work), 0
        for _ in range(self._skip):
            if self.read_record() is None:
                break

    def read_record(self) -> Record | None:
        line = self._file.line()
        if not line:
            return None
        self._number += 1
        return self._key(self._number), line.removesuffix(b"\n").replace(b"\r", b"")


class FixedLengthRecordReaderState(_FileReader):
    """Returns records of a fixed number of bytes.

    Args:
      header, record, footer, hop: numbers of bytes; ``hop`` is the distance between records, 0: ``record``.
      encoding: ``""``, ``"ZLIB"`` or ``"GZIP"``.
    """

    kind = "FixedLengthRecordReader"

    def __init__(self, name: str, header: int, record: int, footer: int, hop: int, encoding: str) -> None:
        super().__init__(name)
        self._header, self._record, self._footer, self._hop = header, record, footer, hop or record
        self._encoding = encoding
        self._ahead = b""

    def start_unit(self) -> None:
        self._file, self._number, self._ahead = InflatedFile(self.work, self._encoding), 0, b""
        self._file.skip(self._header)

    def read_record(self) -> Record | None:
        if self._number:
            skipped = self._hop - len(self._ahead)
            self._ahead = self._ahead[self._hop :]
            if skipped > 0:
                self._file.skip(skipped)
        wanted = self._record + self._footer
        self._ahead += self._file.read(wanted - len(self._ahead))
        if len(self._ahead) < wanted:
            return None
        self._number += 1
        return self._key(self._number - 1), self._ahead[: self._record]


class TFRecordReaderState(_FileReader):
    """Returns the records of TFRecord files."""

    kind = "TFRecordReader"

    def __init__(self, name: str, compression: str) -> None:
        super().__init__(name)
        self._compression = compression

    def start_unit(self) -> None:
        self._file = RecordReader(self.work, self._compression)

    def read_record(self) -> Record | None:
        key = self._key(self._file.offset)
        value = self._file.read()
        return None if value is None else (key, value)
