"""The state of readers, and reads that wait for the next file name.

Reads of one reader run one after another. A read that needs another work unit (a file name) dequeues it
asynchronously, so it holds no thread while it waits.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import get_ident
from typing import Any

from tfmini import dtypes, errors
from tfmini.checkpoint.files import decode as decode_varint
from tfmini.checkpoint.files import encode as encode_varint
from tfmini.graph.op_types import Wait
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.io.record_files import InflatedFile, RecordReader
from tfmini.ops.queues.queue_state import QueueState
from tfmini.ops.waiting_line import OVER, STUCK, Attempt, WaitingState

Record = tuple[bytes, bytes]


class _Flat:
    """Calls a function again instead of from within itself, so that a long chain of answers needs no deep stack."""

    __slots__ = ("_again",)

    def __init__(self) -> None:
        self._again: dict[int, bool] = {}  # threads in a call -> whether they have asked for another one

    def call(self, function: Callable[[], None]) -> None:
        """Calls it; a call from within, in the same thread, is made when it has returned."""
        me = get_ident()
        if me in self._again:
            self._again[me] = True
            return
        self._again[me] = True
        try:
            while self._again[me]:
                self._again[me] = False
                function()
        finally:
            del self._again[me]


class ReaderState(WaitingState):
    """A reader: takes work units from a queue and returns their records as keys and values.

    Subclasses open a work unit and read records from it.

    Attributes:
      kind, name: for messages.
      produced: the number of records returned so far.
      units_started, units_finished: numbers of work units.
    """

    kind = "Reader"

    def __init__(self, name: str) -> None:
        super().__init__(1)
        (self.readers,) = self.lines
        self.name = name
        self.produced = self.units_started = self.units_finished = 0
        self.work = b""
        self.busy = False  # A read is using the reader.
        self._turns = _Flat()
        self._returned: list[Record] = []  # by reads whose step had ended; the next read gets them first

    # ---- for subclasses ---------------------------------------------------------------------

    def start_unit(self) -> None:
        """Opens the work unit ``self.work``."""

    def read_record(self) -> Record | None:
        """The next record of the work unit; None at its end."""
        raise NotImplementedError

    def finish_unit(self) -> None:
        """Closes the work unit."""

    def is_last(self) -> bool:
        """Whether the work unit ends with the last record read, so that it counts as finished at once."""
        return False

    # ---- what the ops do --------------------------------------------------------------------

    def read_records(self, wait: Wait, queue: QueueState, limit: int, at_once: bool) -> None:
        """Answers with records.

        Args:
          queue: the queue of work units.
          limit: the most records to return.
          at_once: answer with the records of one work unit instead of waiting for more.
        """
        self.submit(self.readers, _Turn(wait, self, lambda turn: _Read(self, turn, queue, limit, at_once).go_on()))

    def in_progress(self) -> bool:
        """Whether a work unit has been started and not finished."""
        return self.units_finished < self.units_started

    def take_returned(self, limit: int) -> list[Record]:
        """Takes up to ``limit`` records that earlier reads have given back."""
        records, self._returned = self._returned[:limit], self._returned[limit:]
        self.produced += len(records)
        return records

    def give_back(self, records: list[Record]) -> None:
        """The step of a read has ended, so its records are for the next one."""
        self._returned = records + self._returned
        self.produced -= len(records)

    def end_turn(self) -> None:
        """Starts the next waiting read."""
        with self.lock:
            self.busy = False
        self._turns.call(self.changed)

    def reset(self) -> None:
        """Returns to the initial state."""
        with self.lock:
            self.produced = self.units_started = self.units_finished = 0
            if self.work:
                self.finish_unit()
            self.work = b""
            self._returned = []

    def serialize(self) -> bytes:
        """The state as bytes.

        Raises:
          UnimplementedError: when this kind of reader does not support it.
        """
        raise errors.UnimplementedError.of("Reader SerializeState")

    def restore(self, state: bytes) -> None:
        """Restores a serialised state."""
        raise errors.UnimplementedError.of("Reader RestoreState")

    def clear(self) -> None:
        """Called when the task removes the reader."""
        self.reset()
        text = f"{self.kind} '{self.name}' was deleted by a reset of its container."
        self.fail_all(errors.CancelledError.of(text))


class _Turn(Attempt):
    """A read that waits for the reads before it."""

    __slots__ = ("reader", "begin", "is_mine")

    def __init__(self, wait: Wait, reader: ReaderState, begin: Callable[[Wait], None]) -> None:
        super().__init__(wait)
        self.reader = reader
        self.begin = begin
        self.is_mine = False

    def cause(self) -> str:
        return f'the read before it of {self.reader.kind} "{self.reader.name}"'

    def advance(self) -> int:
        if self.reader.busy:
            return STUCK
        self.reader.busy = self.is_mine = True
        return OVER

    def give_back(self) -> None:
        if self.is_mine:
            self.is_mine = self.reader.busy = False

    def answer(self) -> bool:
        if self.error is not None:
            return super().answer()
        self.is_mine = False  # the read ends the turn
        self.begin(self.wait)  # The read starts now; its answer follows.
        return True


class _Read:
    """The read that is using the reader; also the `Wait` of its dequeues."""

    def __init__(self, reader: ReaderState, wait: Wait, queue: QueueState, limit: int, at_once: bool) -> None:
        self.reader = reader
        self.wait = wait
        self.queue = queue
        self.limit = limit
        self.at_once = at_once
        self.records: list[Record] = []
        self.step = wait.step
        self._units = _Flat()

    def go_on(self) -> None:
        """Reads until it can answer or must wait for a work unit."""
        self._units.call(self._go_on)

    def _go_on(self) -> None:
        try:
            is_enough = self._read()
        except Exception as error:  # whatever it is: later reads wait for the end of this one's turn
            self.fail(errors.of_exception(error))
            return
        if is_enough:
            self._finish()
        else:
            self.queue.dequeue(self)

    def _read(self) -> bool:
        """Reads what there is without another work unit; whether this is enough for an answer."""
        self.records += self.reader.take_returned(self.limit - len(self.records))
        while not self._is_enough():
            if not self.reader.in_progress():
                self._check_queue()
                return False
            self._read_unit()
        return True

    def _is_enough(self) -> bool:
        return len(self.records) == self.limit or bool(self.records and self.at_once)

    def _check_queue(self) -> None:
        if self.queue.dtypes != [dtypes.string]:
            text = "Expected single component queue" if len(self.queue.dtypes) != 1 else (
                "Expected queue with single string component"
            )  # fmt: skip
            refuse(text)

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
        try:
            if not self.wait.done(self.records):
                self.reader.give_back(self.records)
        finally:
            self.reader.end_turn()

    # The interface of a dequeue's wait:

    def done(self, result: Any = None) -> bool:
        """Called with a work unit."""
        value = result[0]
        self.reader.work = value if isinstance(value, bytes) else value.item()
        try:
            self.reader.start_unit()
        except Exception as error:
            self.fail(errors.of_exception(error))
            return True
        self.reader.units_started += 1
        self.go_on()
        return True

    def fail(self, error: errors.OpError) -> bool:
        """Called when the dequeue fails: there are no more records."""
        self.reader.end_turn()
        return self.wait.fail(error)

    def on_cancel(self, cause: str, cancel: Callable[[], None]) -> bool:
        """Registers with the read's own wait; a cancelled read also starts the next one."""

        def cancelled() -> None:
            cancel()
            self._give_up()

        if self.wait.on_cancel(f'{cause} for {self.reader.kind} "{self.reader.name}"', cancelled):
            return True
        self._give_up()
        return False

    def _give_up(self) -> None:
        """The step has ended before there were enough records."""
        self.reader.give_back(self.records)
        self.reader.end_turn()


# ---- The kinds of readers: each defines its work units and its records ---------------------------------------------


class _SerializableReader(ReaderState):
    """Readers with one record per work unit, so that their state between reads is a few counters."""

    def is_last(self) -> bool:
        return True

    def serialize(self) -> bytes:
        fields = (self.units_started, self.units_finished, self.produced)
        parts = [bytes([8 * i]) + encode_varint(value) for i, value in enumerate(fields, 1) if value]
        if self.work:
            parts.append(bytes([34]) + encode_varint(len(self.work)) + self.work)
        return b"".join(parts)

    def restore(self, state: bytes) -> None:
        try:
            started, finished, produced, work = _parse_state(state)
        except ValueError:
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
    while at < len(state):
        tag, at = decode_varint(state, at)
        if tag in (8, 16, 24):
            count, at = decode_varint(state, at)
            fields[tag >> 3] = count - 2**64 if count >= 2**63 else count
        elif tag == 34:
            size, at = decode_varint(state, at)
            if at + size > len(state):
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
