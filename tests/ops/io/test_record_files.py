"""TFRecord files: framing, checksums, compression, damage."""

from __future__ import annotations

import gzip
import resource
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tfmini as tf
from tests.ops.io import record_exchange as exchange
from tests.oracle import Oracle
from tfmini import errors
from tfmini.ops.io.files import (
    EventsWriter,
    TFRecordCompressionType,
    TFRecordOptions,
    TFRecordWriter,
    new_record_reader,
    tf_record_iterator,
)
from tfmini.ops.io.record_files import InflatedFile, RecordReader, RecordWriter, frame, masked_crc32c, read_records


def test_the_masked_checksum_of_known_bytes_is_known() -> None:
    # CRC-32C of "123456789" is 0xE3069283.
    crc = 0xE3069283
    assert masked_crc32c(b"123456789") == ((crc >> 15 | crc << 17 & 0xFFFFFFFF) + 0xA282EAD8) & 0xFFFFFFFF


def test_a_frame_is_length_checksum_data_checksum() -> None:
    data = frame(b"abc")
    assert struct.unpack_from("<Q", data)[0] == 3
    assert data[12:15] == b"abc"
    assert len(data) == 19


@given(st.lists(st.binary(max_size=300), max_size=20), st.sampled_from(["", "ZLIB", "GZIP"]))
def test_records_are_read_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, records: list[bytes], compression: str
) -> None:
    path = tmp_path_factory.mktemp("records") / "r"
    with RecordWriter(path, compression) as writer:
        for record in records:
            writer.write(record)
    assert list(read_records(path, compression)) == records


@pytest.mark.parametrize("compression", ["", "ZLIB", "GZIP"])
def test_flushed_records_can_be_read_before_close(tmp_path: Path, compression: str) -> None:
    writer = RecordWriter(tmp_path / "r", compression)
    writer.write(b"one")
    writer.flush()
    assert next(read_records(tmp_path / "r", compression)) == b"one"
    writer.close()
    with pytest.raises(errors.FailedPreconditionError, match="closed"):
        writer.write(b"two")


def test_a_corrupt_record_is_data_loss(tmp_path: Path) -> None:
    data = frame(b"hello") + frame(b"world")
    path = tmp_path / "r"
    path.write_bytes(data[:-1])
    reader = RecordReader(path)
    assert reader.read() == b"hello"
    with pytest.raises(errors.DataLossError, match="truncated record at 21"):
        reader.read()
    path.write_bytes(b"\0" + data[1:])
    with pytest.raises(errors.DataLossError, match="corrupted record at 0"):
        list(read_records(path))
    path.write_bytes(data[:12] + b"j" + data[13:])
    with pytest.raises(errors.DataLossError, match="corrupted record at 12"):
        list(read_records(path))
    path.write_bytes(data[:21] + data[:11])  # 1.15.5 ends at an incomplete header
    assert list(read_records(path)) == [b"hello"]
    path.write_bytes(b"no gzip file")
    with pytest.raises(errors.DataLossError):
        list(read_records(path, "GZIP"))


def test_missing_file_names_the_path(tmp_path: Path) -> None:
    with pytest.raises(errors.NotFoundError, match="nothing-here; No such file or directory"):
        list(read_records(tmp_path / "nothing-here"))
    with pytest.raises(errors.NotFoundError):
        RecordWriter(tmp_path / "no" / "dir")


def test_a_compressed_file_is_plain_gzip(tmp_path: Path) -> None:
    path = tmp_path / "r"
    with TFRecordWriter(str(path), TFRecordOptions(TFRecordCompressionType.GZIP)) as writer:
        writer.write(b"x")
    assert gzip.decompress(path.read_bytes()) == frame(b"x")
    assert list(tf_record_iterator(path, "GZIP")) == [b"x"]


def test_options_name_the_compression() -> None:
    string = TFRecordOptions.get_compression_type_string
    assert string(None) == "" and string("ZLIB") == "ZLIB" and string(TFRecordOptions("GZIP")) == "GZIP"
    with pytest.raises(ValueError, match='Not a valid compression_type: "LZ"'):
        TFRecordOptions("LZ")


@pytest.fixture(scope="module")
def exchanged(oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[bytes]]]:
    """The directory with ``ours`` and ``theirs``, and what TensorFlow found in ours."""
    directory = tmp_path_factory.mktemp("records")
    exchange.write(tf, str(directory / "ours"))
    return directory, oracle.call(exchange.write_and_read, str(directory))


@pytest.mark.oracle
@pytest.mark.parametrize("compression", exchange.COMPRESSIONS)
def test_tensorflow_reads_and_writes_the_same(exchanged: Any, compression: str) -> None:
    directory, found = exchanged
    assert found[compression] == exchange.RECORDS
    assert exchange.read(tf, str(directory / "theirs"))[compression] == exchange.RECORDS
    if not compression:
        assert (directory / "ours" / "file").read_bytes() == (directory / "theirs" / "file").read_bytes()


@pytest.mark.parametrize("compression", ["ZLIB", "GZIP"])
def test_a_small_compressed_file_needs_little_memory(tmp_path: Path, compression: str) -> None:
    """The first record of a stream of zeros is damaged: no more of the stream is inflated."""
    zeros = bytes(300 << 20)
    (tmp_path / "r").write_bytes(zlib.compress(zeros) if compression == "ZLIB" else gzip.compress(zeros))
    del zeros
    assert (tmp_path / "r").stat().st_size < 400_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(errors.DataLossError, match="corrupted record at 0"):
        list(read_records(tmp_path / "r", compression))
    file = InflatedFile(tmp_path / "r", compression)
    assert file.read(3) == bytes(3) and file.skip(1 << 40) == (300 << 20) - 3
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + (150 << 10)  # KiB


def test_a_record_that_inflates_to_more_than_the_limit_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for compression in ("", "GZIP"):
        with RecordWriter(tmp_path / "r", compression) as writer:
            writer.write(b"small")
            writer.write(bytes(1 << 20))
        monkeypatch.setenv("TFMINI_INFLATE_LIMIT", "1000000")
        if compression:
            with pytest.raises(errors.ResourceExhaustedError, match="A record or field of .*r inflates to more than"):
                list(read_records(tmp_path / "r", compression))
        else:
            assert len(list(read_records(tmp_path / "r", compression))) == 2  # a plain file is as large as it is


def test_a_record_that_claims_to_be_huge_is_data_loss(tmp_path: Path) -> None:
    length = struct.pack("<Q", 1 << 39)
    (tmp_path / "r").write_bytes(length + struct.pack("<I", masked_crc32c(length)) + b"short")
    with pytest.raises(errors.DataLossError, match="truncated record at 0"):
        list(read_records(tmp_path / "r"))


def test_compressed_strings_that_inflate_to_more_than_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFMINI_INFLATE_LIMIT", "1000")
    for compression, packed in (("ZLIB", zlib.compress(bytes(1001))), ("GZIP", gzip.compress(bytes(1001)))):
        found = tf.decode_compressed([packed], compression)
        with tf.Session() as session, pytest.raises(errors.ResourceExhaustedError, match="A string of .* compressed"):
            session.run(found)


def test_an_events_writer_writes_what_the_iterator_reads(tmp_path: Path) -> None:
    writer = EventsWriter(bytes(tmp_path / "events"))
    event = tf.Event(wall_time=1, step=2)
    event.summary.value.add(tag="a", simple_value=3.0)
    writer.WriteEvent(event)
    writer.Close()
    read = list(tf.train.summary_iterator(writer.FileName().decode()))
    assert [(e.file_version, e.step) for e in read] == [("brain.Event:2", 0), ("", 2)]
    assert read[1].summary.value[0].simple_value == 3.0
    with pytest.raises(TypeError, match="expected bytes, str found"):
        EventsWriter("events")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Expected an event_pb2.Event proto"):
        writer.WriteEvent("a")
    with pytest.raises(tf.errors.NotFoundError):
        EventsWriter(bytes(tmp_path / "absent" / "events")).WriteEvent(event)


def _new_record_reader(path: Path, offset: int = 0, compression: bytes = b"") -> Any:
    with tf.errors.raise_exception_on_not_ok_status() as status:
        return new_record_reader(bytes(path), offset, compression, status)


@pytest.mark.parametrize("compression", ["", "ZLIB"])
def test_a_record_reader_goes_on_when_the_file_has_grown(tmp_path: Path, compression: str) -> None:
    writer = RecordWriter(tmp_path / "r", compression)
    reader = None
    for record in (b"one", b"two"):
        writer.write(record)
        writer.flush()
        reader = reader or _new_record_reader(tmp_path / "r", 0, compression.encode())
        assert (reader.GetNext(), reader.record()) == (None, record)
        for _ in range(2):
            with pytest.raises(errors.OutOfRangeError):
                reader.GetNext()
    assert reader is not None and reader.offset() == 38
    reader.Close()
    with pytest.raises(errors.FailedPreconditionError, match=r"Reader is closed\."):
        reader.GetNext()
    assert reader.record() == b"two"


def test_a_record_reader_waits_for_the_rest_of_a_record(tmp_path: Path) -> None:
    data = frame(b"one") + frame(b"two")
    (tmp_path / "r").write_bytes(data[:-5])
    reader = _new_record_reader(tmp_path / "r", 19)
    for _ in range(2):
        with pytest.raises(errors.DataLossError, match="truncated record at 19"):
            reader.GetNext()
    with (tmp_path / "r").open("ab") as file:
        file.write(data[-5:])
    reader.GetNext()
    assert reader.record() == b"two"
    reader.Close()
    with pytest.raises(errors.NotFoundError):
        _new_record_reader(tmp_path / "absent")
    with pytest.raises(TypeError, match="expected bytes, str found"):
        new_record_reader("r", 0, b"", errors.LentStatus())  # type: ignore[arg-type]
