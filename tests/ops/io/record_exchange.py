"""TFRecord files, read and written with the namespace ``tf`` of either side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

COMPRESSIONS = ["", "ZLIB", "GZIP"]
RECORDS = [b"", b"a", bytes(range(256)) * 40]


def write(tf: Any, directory: str) -> None:
    """A file of the records per kind of compression."""
    Path(directory).mkdir()
    for compression in COMPRESSIONS:
        options = tf.python_io.TFRecordOptions(compression)
        with tf.python_io.TFRecordWriter(f"{directory}/file{compression}", options) as writer:
            for record in RECORDS:
                writer.write(record)


def read(tf: Any, directory: str) -> dict[str, list[bytes]]:
    """compression -> records."""
    iterator, options = tf.python_io.tf_record_iterator, tf.python_io.TFRecordOptions
    return {c: list(iterator(f"{directory}/file{c}", options(c))) for c in COMPRESSIONS}


def write_and_read(tf: Any, directory: str) -> dict[str, list[bytes]]:
    """One side's turn: writes ``directory``/theirs, and returns what it finds in ``directory``/ours."""
    write(tf, f"{directory}/theirs")
    return read(tf, f"{directory}/ours")
