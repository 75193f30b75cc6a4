"""Files and labels as Keras's helpers give them; nothing here needs a network."""

from __future__ import annotations

import hashlib
import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

import tfmini as tf

get_file = tf.keras.utils.get_file


def test_a_file_is_fetched_once(tmp_path: Path) -> None:
    source = tmp_path / "source.csv"
    source.write_text("1,2\n")
    path = get_file("data.csv", source.as_uri(), cache_dir=str(tmp_path / "cache"))
    assert path == str(tmp_path / "cache" / "datasets" / "data.csv") and Path(path).read_text() == "1,2\n"
    source.unlink()
    assert get_file("data.csv", source.as_uri(), cache_dir=str(tmp_path / "cache")) == path


def test_a_digest_is_checked(tmp_path: Path) -> None:
    source = tmp_path / "source.csv"
    source.write_text("1,2\n")
    for digest in (hashlib.md5(b"1,2\n").hexdigest(), hashlib.sha256(b"1,2\n").hexdigest()):
        (tmp_path / "cache.csv").write_text("old")
        path = get_file(str(tmp_path / "cache.csv"), source.as_uri(), file_hash=digest, cache_dir=str(tmp_path))
        assert Path(path).read_text() == "1,2\n"
    with pytest.raises(ValueError, match="another md5"):
        get_file("other.csv", source.as_uri(), md5_hash="0" * 32, cache_dir=str(tmp_path))


def test_an_archive_is_unpacked(tmp_path: Path) -> None:
    source = tmp_path / "source.tar.gz"
    with tarfile.open(source, "w:gz") as tar:
        member = tarfile.TarInfo("flowers/a.txt")
        member.size = 2
        tar.addfile(member, io.BytesIO(b"hi"))
    path = get_file("flowers", source.as_uri(), untar=True, cache_dir=str(tmp_path / "one"))
    assert (Path(path) / "a.txt").read_text() == "hi"
    archive = get_file("f.tgz", source.as_uri(), extract=True, cache_dir=str(tmp_path / "two"), cache_subdir="x")
    assert (Path(archive).parent / "flowers" / "a.txt").exists()


def test_a_failed_download_names_the_place(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="URL fetch failure on file:.*Put the file at .*gone.csv"):
        get_file("gone.csv", (tmp_path / "no_such").as_uri(), cache_dir=str(tmp_path))
    assert not list((tmp_path / "datasets").iterdir())


def test_classes_become_rows() -> None:
    assert tf.keras.utils.to_categorical([0, 2]).tolist() == [[1, 0, 0], [0, 0, 1]]
    rows = tf.keras.utils.to_categorical(np.array([[1], [0]]), 2, dtype="int32")
    assert rows.dtype == np.int32 and rows.tolist() == [[0, 1], [1, 0]]
