"""Readers: what is between two reads, and reading on when the next file name has to be waited for.

Reads of one reader take turns. A read that needs another work unit (a file name) takes it from the
queue like any dequeue, so it holds no thread while it waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfmini import dtypes, errors
from tfmini.graph.waiting import Wait
from tfmini.ops.queue_state import QueueState
from tfmini.ops.record_files import InflatedFile, RecordReader
from tfmini.ops.waiting_line import OVER, STUCK, Attempt, WaitingState

Record = tuple[bytes, bytes]


class ReaderState(WaitingState):
    """A reader: takes work units from a queue and gives their records, key and value.

    Subclasses open a work unit and read records from it.

    Attributes:
      kind, name: for messages.
      produced: records given so far.
      units_started, units_finished: work units.
    """

    kind = "Reader"

    def __init__(self, name: str) -> None:
        super().__init__(1)
        (self.readers,) = self.lines
        self.name = name
        self.produced = self.units_started = self.units_finished = 0
        self.work = b""
        self.busy = False  # a read has the reader

    # ---- for subclasses ---------------------------------------------------------------------

    def start_unit(self) -> None:
        """Opens the work unit ``self.work``."""

    def read_record(self) -> Record | None:
        """The next record of the work unit; None when there is none."""
        raise NotImplementedError

    def finish_unit(self) -> None:
        """Closes the work unit."""

    def is_last(self) -> bool:
        """Whether a unit ends with the record just read, so that it counts as finished at once."""
        return False

    # ---- what the ops do --------------------------------------------------------------------

    def read_records(self, wait: Wait, queue: QueueState, limit: int, at_once: bool) -> None:
        """Answers with records.

        Args:
          queue: of work units.
          limit: how many records at most.
          at_once: answer with those of one work unit rather than wait for more.
        """
        self.submit(self.readers, _Turn(wait, self, lambda turn: _Read(self, turn, queue, limit, at_once).go_on()))

    def in_progress(self) -> bool:
        """Whether a work unit has been started and not finished."""
        return self.units_finished < self.units_started

    def end_turn(self) -> None:
        """Lets the next read begin."""
        with self.lock:
            self.busy = False
        self.changed()

    def reset(self) -> None:
        """As if nothing had been read."""
        with self.lock:
            self.produced = self.units_started = self.units_finished = 0
            if self.work:
                self.finish_unit()
            self.work = b""

    def serialize(self) -> bytes:
        """The state, where the kind of reader can tell.

        Raises:
          UnimplementedError: where it cannot.
        """
        raise errors.UnimplementedError(None, None, "Reader SerializeState")

    def restore(self, state: bytes) -> None:
        """Takes up a serialised state."""
        raise errors.UnimplementedError(None, None, "Reader RestoreState")

    def clear(self) -> None:
        """The reader is dropped from its task."""
        self.reset()
        text = f"{self.kind} '{self.name}' was deleted by a reset of its container."
        self.fail_all(errors.CancelledError(None, None, text))


class _Turn(Attempt):
    """A read that waits for the reads before it."""

    __slots__ = ("reader", "begin")

    def __init__(self, wait: Wait, reader: ReaderState, begin: Callable[[Wait], None]) -> None:
        super().__init__(wait)
        self.reader = reader
        self.begin = begin

    def cause(self) -> str:
        return f'the read before it of {self.reader.kind} "{self.reader.name}"'

    def advance(self) -> int:
        if self.reader.busy:
            return STUCK
        self.reader.busy = True
        return OVER

    def answer(self) -> None:
        if self.error is None:
            self.begin(self.wait)  # the turn has come; the answer follows
        else:
            super().answer()


class _Read:
    """A read whose turn it is; also the `Wait` of its dequeues."""

    def __init__(self, reader: ReaderState, wait: Wait, queue: QueueState, limit: int, at_once: bool) -> None:
        self.reader = reader
        self.wait = wait
        self.queue = queue
        self.limit = limit
        self.at_once = at_once
        self.records: list[Record] = []
        self.step = wait.step

    def go_on(self) -> None:
        """Reads until it is answered or a work unit has to be waited for."""
        reader = self.reader
        try:
            while reader.in_progress():
                self._read_unit()
                if len(self.records) == self.limit or (self.records and self.at_once):
                    self._finish()
                    return
            if self.queue.dtypes != [dtypes.string]:
                text = "Expected single component queue" if len(self.queue.dtypes) != 1 else (
                    "Expected queue with single string component"
                )  # fmt: skip
                raise errors.InvalidArgumentError(None, None, text)
        except errors.OpError as error:
            self.fail(error)
            return
        self.queue.dequeue(self)

    def _read_unit(self) -> None:
        reader = self.reader
        while len(self.records) < self.limit:
            record = reader.read_record()
            if record is not None:
                self.records.append(record)
                reader.produced += 1
            if record is None or reader.is_last():
                reader.finish_unit()
                reader.units_finished = reader.units_started
                return

    def _finish(self) -> None:
        self.reader.end_turn()
        self.wait.done(self.records)

    # As the wait of a dequeue:

    def done(self, result: Any = None) -> None:
        """A work unit has come."""
        value = result[0]
        self.reader.work = value if isinstance(value, bytes) else value.item()
        try:
            self.reader.start_unit()
        except errors.OpError as error:
            self.fail(error)
            return
        self.reader.units_started += 1
        self.go_on()

    def fail(self, error: errors.OpError) -> None:
        """No more records."""
        self.reader.end_turn()
        self.wait.fail(error)

    def on_cancel(self, cause: str, cancel: Callable[[], None]) -> bool:
        """Forwards to the read's own wait; a read that ends lets the next one begin."""

        def cancelled() -> None:
            cancel()
            self.reader.end_turn()

        if self.wait.on_cancel(f'{cause} for {self.reader.kind} "{self.reader.name}"', cancelled):
            return True
        self.reader.end_turn()
        return False


# ---- the kinds ------------------------------------------------------------------------------


class _SerializableReader(ReaderState):
    """Readers whose units have one record, so that nothing but counters is between two reads."""

    def is_last(self) -> bool:
        return True

    def serialize(self) -> bytes:
        fields = (self.units_started, self.units_finished, self.produced)
        parts = [bytes([8 * i]) + _varint(value) for i, value in enumerate(fields, 1) if value]
        if self.work:
            parts.append(bytes([34]) + _varint(len(self.work)) + self.work)
        return b"".join(parts)

    def restore(self, state: bytes) -> None:
        try:
            started, finished, produced, work = _parse_state(state)
        except (IndexError, ValueError):
            text = f"Could not parse state for {self.kind} '{self.name}': {state.decode('latin-1')}"
            self.reset()
            raise errors.InvalidArgumentError(None, None, text) from None
        problem = ""
        if min(started, finished, produced) < 0:
            problem = "Unexpected negative value when restoring in"
        elif started > finished:
            problem = "Inconsistent work started vs. finished when restoring in"
        if problem:
            self.reset()
            raise errors.InvalidArgumentError(None, None, f"{problem} {self.kind} '{self.name}'")
        self.units_started, self.units_finished, self.produced, self.work = started, finished, produced, work


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _parse_state(state: bytes) -> tuple[int, int, int, bytes]:
    """The fields of a ReaderBaseState message (a varint each, and the current work unit)."""
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
    """Gives the work units themselves."""

    kind = "IdentityReader"

    def read_record(self) -> Record | None:
        return self.work, self.work


class WholeFileReaderState(_SerializableReader):
    """Gives whole files."""

    kind = "WholeFileReader"

    def read_record(self) -> Record | None:
        file = InflatedFile(self.work)
        try:
            return self.work, file.read(-1)
        finally:
            file.close()


class _FileReader(ReaderState):
    """Readers with an open file."""

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
    """Gives the lines of text files, without their ends."""

    kind = "TextLineReader"

    def __init__(self, name: str, skip_header_lines: int) -> None:
        super().__init__(name)
        self._skip = skip_header_lines
        self._rest = b""

    def start_unit(self) -> None:
        self._file, self._number, self._rest = InflatedFile(self.work), 0, b""
        for _ in range(self._skip):
            self.read_record()

    def read_record(self) -> Record | None:
        line = self._line()
        if line is None:
            return None
        self._number += 1
        return self._key(self._number), line.replace(b"\r", b"")

    def _line(self) -> bytes | None:
        while b"\n" not in self._rest:
            more = self._file.read(1 << 18)
            if not more:
                line, self._rest = self._rest, b""
                return line or None
            self._rest += more
        line, self._rest = self._rest.split(b"\n", 1)
        return line


class FixedLengthRecordReaderState(_FileReader):
    """Gives records of a fixed number of bytes.

    Args:
      header, record, footer, hop: numbers of bytes; ``hop`` from record to record, 0 for ``record``.
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
        self._file.read(self._header)

    def read_record(self) -> Record | None:
        if self._number:
            skipped = self._hop - len(self._ahead)
            self._ahead = self._ahead[self._hop :]
            if skipped > 0:
                self._file.read(skipped)
        wanted = self._record + self._footer
        self._ahead += self._file.read(wanted - len(self._ahead))
        if len(self._ahead) < wanted:
            return None
        self._number += 1
        return self._key(self._number - 1), self._ahead[: self._record]


class TFRecordReaderState(_FileReader):
    """Gives the records of TFRecord files."""

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
