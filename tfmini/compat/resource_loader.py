"""``tf.resource_loader``: files beside the calling module."""

from __future__ import annotations

import os
import sys


def get_data_files_path() -> str:
    """The directory of the caller's file (``tf.resource_loader.get_data_files_path``)."""
    return os.path.dirname(os.path.abspath(sys._getframe(1).f_code.co_filename))


def get_path_to_datafile(path: str) -> str:
    """A path relative to the caller's file, made absolute (``tf.resource_loader.get_path_to_datafile``)."""
    return os.path.join(os.path.dirname(os.path.abspath(sys._getframe(1).f_code.co_filename)), path)


def load_resource(path: str) -> bytes:
    """The content of a file given relative to the caller's file (``tf.resource_loader.load_resource``)."""
    folder = os.path.dirname(os.path.abspath(sys._getframe(1).f_code.co_filename))
    with open(os.path.join(folder, path), "rb") as file:
        return file.read()


def get_root_dir_with_all_resources() -> str:
    """The directory of the script (``tf.resource_loader.get_root_dir_with_all_resources``)."""
    return os.path.dirname(os.path.abspath(sys.argv[0]))


def readahead_file_path(path: str, readahead: str = "128M") -> str:
    """``path`` itself (``tf.resource_loader.readahead_file_path``)."""
    return path
