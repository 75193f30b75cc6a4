"""A disk that is full while a checkpoint or a record file is written."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

import tfmini as tf
from tfmini.checkpoint.files import Disk, NewFile
from tfmini.ops.io.record_files import RecordWriter

SIZE = 256 << 10  # bytes of the small file system


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of `SIZE` bytes."""
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(place)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a tmpfs is not permitted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


class FullDisk(Disk):
    def create(self, path: str) -> IO[bytes]:
        open(path, "wb").close()
        return open("/dev/full", "wb", buffering=1 << 16)


def test_a_full_disk_is_named_and_leaves_no_temporary_file(tmp_path: Path) -> None:
    file = NewFile(str(tmp_path / "model"), FullDisk())
    file.write(b"x" * 1000)
    with pytest.raises(tf.errors.ResourceExhaustedError, match="model; No space left"):
        file.commit()
    file.discard()
    assert os.listdir(tmp_path) == []


def test_a_saver_on_a_full_disk_keeps_the_old_checkpoint(small_disk: Path) -> None:
    small = tf.get_variable("small", [100])
    tf.get_variable("large", [SIZE])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        tf.train.Saver([small]).save(session, str(small_disk / "old"))
        before = sorted(os.listdir(small_disk))
        with pytest.raises(tf.errors.ResourceExhaustedError, match="No space left on device"):
            tf.train.Saver().save(session, str(small_disk / "new"))
        assert sorted(os.listdir(small_disk)) == before
        tf.train.Saver([small]).restore(session, str(small_disk / "old"))


def test_record_and_text_files_on_a_full_disk(small_disk: Path) -> None:
    for compression in ("", "GZIP"):
        writer = RecordWriter(str(small_disk / "records"), compression)
        with pytest.raises(tf.errors.ResourceExhaustedError, match="records; No space left"):
            for _ in range(4 * SIZE // 4096):
                writer.write(os.urandom(4096))
            writer.close()
        with contextlib.suppress(tf.errors.ResourceExhaustedError):
            writer.close()
        os.remove(small_disk / "records")
    with (
        pytest.raises(tf.errors.ResourceExhaustedError, match="text; No space left"),
        tf.gfile.GFile(str(small_disk / "text"), "w") as file,
    ):
        file.write("x" * (SIZE - 10_000))
        file.write("x" * 20_000)
