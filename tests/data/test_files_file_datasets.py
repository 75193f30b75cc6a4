"""Datasets of compressed files: bounded memory for lines and records."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tfmini as tf
from tfmini.data import csv_datasets, files

experimental = tf.data.experimental


def elements(dataset: Any) -> list[Any]:
    """All elements of a dataset."""
    element = dataset.make_one_shot_iterator().get_next()
    found = []
    with tf.Session() as session:
        try:
            while True:
                found.append(session.run(element))
        except tf.errors.OutOfRangeError:
            return found


@pytest.mark.parametrize(
    ("read", "inflated", "what"),
    [
        (lambda path: tf.data.TextLineDataset(path, "GZIP"), bytes(24 << 20), "A line of"),
        (lambda path: experimental.CsvDataset(path, [""], compression_type="GZIP"), bytes(24 << 20), "A line of"),
        (
            lambda path: experimental.CsvDataset(path, [""], compression_type="GZIP"),
            b'"' + (b"a" * 1_000_000 + b"\n") * 20,
            "A record of",
        ),
    ],
)
def test_a_line_or_record_that_inflates_to_more_than_the_limit_is_refused(
    read: Callable[[str], Any], inflated: bytes, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(inflated))
    monkeypatch.setenv("TFMINI_INFLATE_LIMIT", "8000000")
    with pytest.raises(tf.errors.ResourceExhaustedError, match=f"{what} .*bomb.gz inflates to more than 8000000 bytes"):
        elements(read(str(path)))


def test_columns_of_a_compressed_csv_file_are_inferred_within_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(b'a,b\r\n1,"x\r\ny"\r\n'))
    found = elements(experimental.make_csv_dataset(str(path), 1, num_epochs=1, compression_type="GZIP", shuffle=False))
    assert found[0]["b"].tolist() == [b"x\r\ny"]
    path.write_bytes(gzip.compress(bytes(24 << 20)))
    monkeypatch.setenv("TFMINI_INFLATE_LIMIT", "8000000")
    with pytest.raises(tf.errors.ResourceExhaustedError, match="A line of"):
        experimental.make_csv_dataset(str(path), 1, compression_type="GZIP")


def test_fixed_records_of_compressed_files_are_those_of_plain_files(tmp_path: Path) -> None:
    """With a header and footer of every size, and with lengths that do not fit."""
    for body in (b"", b"abcdef", b"abcdefg", b"abcdefgh", bytes(range(256)) * 3000):
        plain, packed = tmp_path / "plain", tmp_path / "packed"
        plain.write_bytes(body)
        packed.write_bytes(gzip.compress(body))
        for header, footer in ((0, 0), (2, 0), (0, 2), (1, 1), (0, 4), (3, 3)):
            both = []
            for path, compression in ((plain, None), (packed, "GZIP")):
                size = 3 if len(body) < 100 else 256
                dataset = tf.data.FixedLengthRecordDataset(
                    str(path), size, header, footer, compression_type=compression
                )
                try:
                    both.append(elements(dataset))
                except tf.errors.InvalidArgumentError as error:
                    both.append([error.message.partition("\n")[0].replace("packed", "plain")])
            assert both[0] == both[1], (len(body), header, footer)


@pytest.mark.parametrize("chunk", [1, 2, 3, 1 << 20])
def test_lines_and_records_do_not_depend_on_the_chunks_of_the_file(
    chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "CHUNK", chunk)
    monkeypatch.setattr(csv_datasets, "CHUNK", chunk)
    path = tmp_path / "a.csv"
    path.write_bytes(b'a,"b\r\nc""\n"",d"\r\n\re"x\n"",\r\n"f\n\n",g')
    found = elements(tf.data.TextLineDataset(str(path)))
    assert found == [b'a,"b', b'c""', b'"",d"', b'\re"x', b'"",', b'"f', b"", b'",g']
    form = csv_datasets.CsvFormat(b",", True, b"", None, [], [])
    found = list(csv_datasets.records_of(str(path).encode(), "", form))
    assert found == [b'a,"b\r\nc""\n"",d"', b"", b'e"x', b'"",', b'"f\n\n",g']


def test_a_long_quoted_record_is_read_once(tmp_path: Path) -> None:
    """The record was scanned anew with every line: half a million lines took hours."""
    path = tmp_path / "long.csv"
    path.write_bytes(b'"' + b'a""\n' * 500_000 + b'",1\n')
    ((text, number),) = elements(experimental.CsvDataset(str(path), ["", 0]))
    assert text == b'a"\n' * 500_000 and number == 1


def test_many_empty_gzip_members_are_skipped(tmp_path: Path) -> None:
    """The rest of the chunk was copied for each member."""
    path = tmp_path / "members.gz"
    path.write_bytes(gzip.compress(b"") * 100_000 + gzip.compress(b"end\n"))
    assert elements(tf.data.TextLineDataset(str(path), "GZIP")) == [b"end"]
