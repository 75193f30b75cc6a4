"""`tfmini.compat.file_io` under the names and arguments of ``tf.gfile`` and of ``tensorflow.python.lib.io.file_io``."""

from __future__ import annotations

from collections.abc import Iterator

from tfmini.compat import file_io
from tfmini.compat.file_io import (
    FastGFile,
    FileStatistics,
    GFile,
    atomic_write_string_to_file,
    file_crc32,
    filecmp,
    read_file_to_string,
    write_string_to_file,
)
from tfmini.core_types import PathLike
from tfmini.export import export

__all__ = [
    "FastGFile", "FileIO", "FileStatistics", "GFile", "atomic_write_string_to_file", "copy", "copy_v2", "create_dir",
    "create_dir_v2", "delete_file", "delete_file_v2", "delete_recursively", "delete_recursively_v2", "file_crc32",
    "file_exists", "file_exists_v2", "filecmp", "get_matching_files", "get_matching_files_v2", "is_directory",
    "is_directory_v2", "list_directory", "list_directory_v2", "read_file_to_string", "recursive_create_dir",
    "recursive_create_dir_v2", "rename", "rename_v2", "stat", "stat_v2", "walk", "walk_v2", "write_string_to_file",
]  # fmt: skip

FileIO = GFile
file_exists_v2, delete_file_v2, get_matching_files_v2 = file_io.exists, file_io.remove, file_io.glob
create_dir_v2, recursive_create_dir_v2, copy_v2, rename_v2 = (
    file_io.mkdir, file_io.makedirs, file_io.copy, file_io.rename,
)  # fmt: skip
delete_recursively_v2, is_directory_v2, list_directory_v2 = file_io.rmtree, file_io.isdir, file_io.listdir
walk_v2, stat_v2 = file_io.walk, file_io.stat


@export("tf.gfile.Exists")
def file_exists(filename: PathLike) -> bool:
    """Tells whether a file or directory exists (``tf.gfile.Exists``; see `file_io.exists`).

    Args:
      filename: a path of this machine.

    Returns:
      A bool.
    """
    return file_io.exists(filename)


@export("tf.gfile.Remove")
def delete_file(filename: PathLike) -> None:
    """Deletes a file (``tf.gfile.Remove``; see `file_io.remove`). Raises NotFoundError if there is none.

    Args:
      filename: a path of this machine.
    """
    file_io.remove(filename)


@export("tf.gfile.Glob")
def get_matching_files(filename: PathLike) -> list[str]:
    """Lists the paths that match (``tf.gfile.Glob``; see `file_io.glob`).

    Args:
      filename: a glob pattern, or a list of some.

    Returns:
      A list of paths.
    """
    return file_io.glob(filename)


@export("tf.gfile.MkDir")
def create_dir(dirname: PathLike) -> None:
    """Makes a directory whose parent exists (``tf.gfile.MkDir``; see `file_io.mkdir`).

    Args:
      dirname: a path of a directory of this machine.
    """
    file_io.mkdir(dirname)


@export("tf.gfile.MakeDirs")
def recursive_create_dir(dirname: PathLike) -> None:
    """Makes a directory and its parents; it may exist (``tf.gfile.MakeDirs``; see `file_io.makedirs`).

    Args:
      dirname: a path of a directory of this machine.
    """
    file_io.makedirs(dirname)


@export("tf.gfile.Copy")
def copy(oldpath: PathLike, newpath: PathLike, overwrite: bool = False) -> None:
    """Copies a file (``tf.gfile.Copy``; see `file_io.copy`).

    Args:
      oldpath, newpath: paths of this machine.
      overwrite: whether ``newpath`` may exist.
    """
    file_io.copy(oldpath, newpath, overwrite)


@export("tf.gfile.Rename")
def rename(oldname: PathLike, newname: PathLike, overwrite: bool = False) -> None:
    """Moves a file or directory (``tf.gfile.Rename``; see `file_io.rename`).

    Args:
      oldname, newname: paths of this machine.
      overwrite: whether ``newname`` may exist.
    """
    file_io.rename(oldname, newname, overwrite)


@export("tf.gfile.DeleteRecursively")
def delete_recursively(dirname: PathLike) -> None:
    """Deletes a directory with its content (``tf.gfile.DeleteRecursively``; see `file_io.rmtree`).

    Args:
      dirname: a path of a directory of this machine.
    """
    file_io.rmtree(dirname)


@export("tf.gfile.IsDirectory")
def is_directory(dirname: PathLike) -> bool:
    """Tells whether a path is a directory (``tf.gfile.IsDirectory``; see `file_io.isdir`).

    Args:
      dirname: a path of a directory of this machine.

    Returns:
      A bool.
    """
    return file_io.isdir(dirname)


@export("tf.gfile.ListDirectory")
def list_directory(dirname: PathLike) -> list[str]:
    """Lists a directory (``tf.gfile.ListDirectory``; see `file_io.listdir`).

    Args:
      dirname: a path of a directory of this machine.

    Returns:
      A list of names, without the directory's.
    """
    return file_io.listdir(dirname)


@export("tf.gfile.Stat")
def stat(filename: PathLike) -> FileStatistics:
    """``tf.gfile.Stat``: `file_io.stat`."""
    return file_io.stat(filename)


@export("tf.gfile.Walk")
def walk(top: PathLike, in_order: bool = True) -> Iterator[tuple[str, list[str], list[str]]]:
    """``tf.gfile.Walk``: `file_io.walk`, parents first when ``in_order``."""
    return file_io.walk(top, topdown=in_order)
