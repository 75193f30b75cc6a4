"""Readers and files."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

import tfmini as tf
from tfmini.ops.io.reader_state import TextLineReaderState


def read_all(reader: Any, names: list[str]) -> list[tuple[bytes, bytes]]:
    """All records of the files."""
    queue = tf.FIFOQueue(99, tf.string, shapes=[()])
    fetch = reader.read(queue)
    found = []
    with tf.Session() as session:
        session.run(queue.enqueue_many([names]))
        session.run(queue.close())
        with pytest.raises(tf.errors.OutOfRangeError, match="is closed and has insufficient elements"):
            while True:
                found.append(tuple(session.run(list(fetch))))
        counts = session.run([reader.num_records_produced(), reader.num_work_units_completed()])
    assert counts == [len(found), len(names)]
    return found


def test_text_lines_are_read_with_file_and_line_number(tmp_path: Path) -> None:
    one, two = tmp_path / "1", tmp_path / "2"
    one.write_bytes(b"a\nb\r\n\nc")
    two.write_bytes(b"")
    found = read_all(tf.TextLineReader(), [str(one), str(two)])
    assert [v for _, v in found] == [b"a", b"b", b"", b"c"]
    assert found[1][0] == f"{one}:2".encode()


@pytest.mark.parametrize("hop", [0, 2])
def test_records_of_fixed_length_are_read(tmp_path: Path, hop: int) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"HabcdefF")
    reader = tf.FixedLengthRecordReader(3, header_bytes=1, footer_bytes=1, hop_bytes=hop)
    expected = {0: [b"abc", b"def"], 2: [b"abc", b"cde"]}[hop]
    assert [v for _, v in read_all(reader, [str(path)])] == expected


def test_compressed_records_of_fixed_length_are_read(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(gzip.compress(b"abcdef"))
    found = read_all(tf.FixedLengthRecordReader(2, encoding="GZIP"), [str(path)])
    assert [v for _, v in found] == [b"ab", b"cd", b"ef"]


def test_whole_files_and_the_names_themselves_are_read(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"\0all")
    assert read_all(tf.WholeFileReader(), [str(path)]) == [(str(path).encode(), b"\0all")]
    assert read_all(tf.IdentityReader(), ["x", "y"]) == [(b"x", b"x"), (b"y", b"y")]


def test_read_up_to_stops_at_the_end_of_a_file(tmp_path: Path) -> None:
    names = []
    for i in range(2):
        names.append(str(tmp_path / f"{i}"))
        with tf.python_io.TFRecordWriter(names[-1]) as writer:
            for j in range(3):
                writer.write(b"%d%d" % (i, j))
    queue = tf.FIFOQueue(9, tf.string, shapes=[()])
    keys, values = tf.TFRecordReader().read_up_to(queue, 2)
    with tf.Session() as session:
        session.run(queue.enqueue_many([names]))
        found = [session.run([keys, values]) for _ in range(4)]
    assert [v.tolist() for _, v in found] == [[b"00", b"01"], [b"02"], [b"10", b"11"], [b"12"]]
    assert found[0][0].tolist() == [f"{names[0]}:0".encode(), f"{names[0]}:18".encode()]


def test_short_and_long_lines_are_read_in_linear_time(tmp_path: Path) -> None:
    """The rest of a chunk was copied for each line, and a long line with each chunk: a megabyte took a minute."""
    path = tmp_path / "lines"
    path.write_bytes(b"\n" * 1_000_000 + b"a" * 50_000_000 + b"\r\nend")
    reader = TextLineReaderState("r", 0)
    reader.work = str(path).encode()
    reader.start_unit()
    for _ in range(1_000_000):
        record = reader.read_record()
    assert record == (b"%s:1000000" % reader.work, b"")
    long, last = reader.read_record(), reader.read_record()
    assert long is not None and len(long[1]) == 50_000_000 and last is not None and last[1] == b"end"
    assert reader.read_record() is None
    reader.finish_unit()


def test_a_missing_file_is_not_found() -> None:
    queue = tf.FIFOQueue(9, tf.string, shapes=[()])
    fetch = tf.TextLineReader().read(queue)
    with tf.Session() as session:
        session.run(queue.enqueue_many([["/nowhere/x", "also not there"]]))
        with pytest.raises(tf.errors.NotFoundError, match="/nowhere/x; No such file or directory"):
            session.run(fetch)


def test_the_state_of_a_reader_is_saved_and_restored() -> None:
    reader, queue = tf.IdentityReader(), tf.FIFOQueue(9, tf.string, shapes=[()])
    fetch, state = reader.read(queue), reader.serialize_state()
    with tf.Session() as session:
        session.run(queue.enqueue_many([["a", "b"]]))
        session.run(fetch)
        saved = session.run(state)
        session.run(fetch)
        session.run(reader.restore_state(saved))
        assert session.run(reader.num_records_produced()) == 1
        assert session.run(state) == saved
        with pytest.raises(tf.errors.InvalidArgumentError, match="Could not parse state for IdentityReader"):
            session.run(reader.restore_state(b"bogus"))
        with pytest.raises(tf.errors.UnimplementedError, match="Reader SerializeState"):
            session.run(tf.TextLineReader().serialize_state())
        session.run(reader.reset())
        assert session.run(reader.num_records_produced()) == 0


def test_files_are_written_read_and_matched(tmp_path: Path) -> None:
    path = str(tmp_path / "new" / "file")
    with tf.Session() as session:
        session.run(tf.write_file(path, "content"))
        assert session.run(tf.read_file(path)) == b"content"
        assert session.run(tf.matching_files(str(tmp_path / "*" / "f*"))).tolist() == [path.encode()]
        assert session.run(tf.matching_files(str(tmp_path / "[^o]ew" / "[^f]*"))).size == 0
        with pytest.raises(tf.errors.NotFoundError):
            session.run(tf.read_file(path + "x"))
        names = tf.train.match_filenames_once(str(tmp_path / "*" / "*"))
        session.run(tf.local_variables_initializer())
        assert session.run(names).tolist() == [path.encode()]
