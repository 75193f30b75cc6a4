"""``tf.resource_loader``: files in the directory of the calling module."""

from __future__ import annotations

import os
import sys

from tfmini.export import export


def _callers_directory() -> str:
    """The directory of the file that calls the function that calls this one."""
    return os.path.dirname(os.path.abspath(sys._getframe(2).f_code.co_filename))


@export("tf.resource_loader.get_data_files_path")
def get_data_files_path() -> str:
    """The directory of the caller's file (``tf.resource_loader.get_data_files_path``)."""
    return _callers_directory()


@export("tf.resource_loader.get_path_to_datafile")
def get_path_to_datafile(path: str) -> str:
    """The absolute path of a file beside the caller's (``tf.resource_loader.get_path_to_datafile``)."""
    return os.path.join(_callers_directory(), path)


@export("tf.resource_loader.load_resource")
def load_resource(path: str) -> bytes:
    """The content of a file beside the caller's (``tf.resource_loader.load_resource``)."""
    with open(os.path.join(_callers_directory(), path), "rb") as file:
        return file.read()


@export("tf.resource_loader.get_root_dir_with_all_resources")
def get_root_dir_with_all_resources() -> str:
    """The directory of the script (``tf.resource_loader.get_root_dir_with_all_resources``)."""
    return os.path.dirname(os.path.abspath(sys.argv[0]))


@export("tf.resource_loader.readahead_file_path")
def readahead_file_path(path: str, readahead: str = "128M") -> str:
    """``path`` itself (``tf.resource_loader.readahead_file_path``)."""
    return path
