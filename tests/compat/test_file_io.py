"""tf.gfile and tf.io.gfile: TensorFlow's results and errors on files of this machine."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest

import tfmini as tf
from tfmini.compat import file_io, file_io_names


def test_text_lines_and_positions(tmp_path: Path) -> None:
    path = str(tmp_path / "a.txt")
    with tf.gfile.GFile(path, "w") as f:
        f.write("hallo\nzwei\n")
        assert f.tell() == 11
    f = tf.gfile.Open(path)
    assert (f.readline(), f.tell(), f.readlines(), f.readline()) == ("hallo\n", 6, ["zwei\n"], "")
    f.seek(2)
    assert f.read(3) == "llo"
    f.seek(-5, 2)
    assert f.read() == "zwei\n"
    assert f.size() == 11 and f.seekable()
    f.close()
    assert list(tf.gfile.FastGFile(path, "rb")) == [b"hallo\n", b"zwei\n"]
    with tf.gfile.GFile(Path(path), "a") as f:
        f.write(b"drei")
    assert tf.io.gfile.GFile(path).read() == "hallo\nzwei\ndrei"


@pytest.mark.filterwarnings("error::ResourceWarning", "error::pytest.PytestUnraisableExceptionWarning")
def test_a_file_that_nobody_closes_is_written_and_closed_without_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "a"
    tf.gfile.GFile(path, "w").write("all")
    assert tf.gfile.GFile(path).read() == "all"
    gc.collect()
    assert path.read_text() == "all"


def test_the_first_write_creates_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a"
    tf.gfile.GFile(path, "w").close()
    assert not path.exists()


@pytest.mark.parametrize(
    ("use", "error", "told"),
    [
        (lambda p: tf.gfile.GFile(p / "none").read(), tf.errors.NotFoundError, "No such file"),
        (lambda p: tf.gfile.GFile(p).read(), tf.errors.FailedPreconditionError, "Is a directory"),
        (lambda p: tf.gfile.GFile(p / "x", "x"), tf.errors.InvalidArgumentError, "mode is not 'r' or 'w'"),
        (lambda p: tf.gfile.GFile(p / "x", "w").read(), tf.errors.PermissionDeniedError, "isn't open for reading"),
        (lambda p: tf.gfile.GFile(p / "f").write("x"), tf.errors.PermissionDeniedError, "isn't open for writing"),
        (lambda p: tf.gfile.GFile(p / "f").seek(-1), tf.errors.InvalidArgumentError, "negative position"),
        (lambda p: tf.gfile.GFile(p / "f").seek(1 << 20), tf.errors.OutOfRangeError, "reached end of file"),
        (lambda p: tf.gfile.GFile(p / "f").seek(1, position=2), TypeError, "may not be set simultaneously"),
        (lambda p: tf.gfile.GFile(p / "f").seek(0, 7), tf.errors.InvalidArgumentError, "Invalid whence"),
        (lambda p: tf.gfile.MkDir(p / "x" / "y"), tf.errors.NotFoundError, "No such file"),
        (lambda p: tf.gfile.MakeDirs(p / "f" / "y"), tf.errors.FailedPreconditionError, "is not a directory"),
        (lambda p: tf.gfile.Remove(p / "none"), tf.errors.NotFoundError, "No such file"),
        (lambda p: tf.gfile.Remove(p / "d"), tf.errors.FailedPreconditionError, "Is a directory"),
        (lambda p: tf.gfile.DeleteRecursively(p / "none"), tf.errors.NotFoundError, "not found"),
        (lambda p: tf.gfile.ListDirectory(p / "none"), tf.errors.NotFoundError, "Could not find directory"),
        (lambda p: tf.gfile.Copy(p / "f", p / "g"), tf.errors.AlreadyExistsError, "already exists"),
        (lambda p: tf.gfile.Rename(p / "none", p / "h"), tf.errors.NotFoundError, "No such file"),
        (lambda p: tf.gfile.Stat(p / "none"), tf.errors.NotFoundError, "No such file"),
        (lambda p: tf.gfile.Exists("gs://bucket/x"), tf.errors.UnimplementedError, "scheme 'gs' not implemented"),
    ],
)
def test_file_errors_are_tensorflows(tmp_path: Path, use, error: type[Exception], told: str) -> None:
    (tmp_path / "f").write_text("f")
    (tmp_path / "g").write_text("g")
    (tmp_path / "d").mkdir()
    with pytest.raises(error, match=told):
        use(tmp_path)


def test_directories_are_made_listed_and_removed(tmp_path: Path) -> None:
    top = str(tmp_path / "x")
    tf.gfile.MakeDirs(f"{top}/y")
    tf.gfile.MakeDirs(f"{top}/y")
    tf.gfile.MkDir(top)
    tf.io.gfile.GFile(f"{top}/f", "w").write("1")
    file_io.write_string_to_file(f"{top}/f", "12")
    assert sorted(tf.gfile.ListDirectory(top)) == ["f", "y"]
    assert list(tf.gfile.Walk(top)) == [(top, ["y"], ["f"]), (f"{top}/y", [], [])]
    assert next(tf.gfile.Walk(top, in_order=False))[0] == f"{top}/y"
    assert tf.gfile.Stat(f"{top}/f").length == 2 and tf.gfile.Stat(top).is_directory
    tf.gfile.Copy(f"{top}/f", f"{top}/g")
    tf.gfile.Rename(f"{top}/g", f"{top}/f", overwrite=True)
    tf.gfile.DeleteRecursively(top)
    assert not tf.gfile.Exists(top) and not tf.gfile.IsDirectory(top) and not tf.gfile.Exists("")


def test_patterns_match_files(tmp_path: Path) -> None:
    for name in ("a1", "a2", "b", "d/a3"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    names = [Path(p).name for p in tf.gfile.Glob(f"{tmp_path}/a?")]
    assert names == ["a1", "a2"]
    assert tf.gfile.Glob([f"{tmp_path}/b", f"{tmp_path}/*/a3"]) == [f"{tmp_path}/b", f"{tmp_path}/d/a3"]
    assert tf.gfile.Glob(f"{tmp_path}/none*") == []


def test_whole_files_are_written_and_read(tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    file_io.atomic_write_string_to_file(path, "t")
    assert (file_io.read_file_to_string(path), file_io.read_file_to_string(path, True)) == ("t", b"t")
    with pytest.raises(tf.errors.AlreadyExistsError):
        file_io.atomic_write_string_to_file(path, "u", overwrite=False)
    assert file_io_names.list_directory(str(tmp_path)) == ["a"]
    assert file_io.filecmp(path, path) and file_io.file_crc32(path) == "0x856a5aa8"
    assert tf.gfile.GFile("file://" + path).read() == "t"


def test_reading_and_writing_have_separate_positions(tmp_path: Path) -> None:
    with tf.gfile.GFile(str(tmp_path / "both"), "r+") as file:
        file.write("one\ntwo\n")
        assert file.tell() == 0
        assert file.readline() == "one\n"
        file.write("three\n")
        assert file.read() == "two\nthree\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_copy_to_a_full_disk_names_the_copy(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(b"x" * 100_000)
    with pytest.raises(tf.errors.ResourceExhaustedError, match="^/dev/full; No space left"):
        tf.gfile.Copy(tmp_path / "source", "/dev/full", overwrite=True)
