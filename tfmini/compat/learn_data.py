"""``tf.contrib.learn.datasets``: MNIST by its name, and files of comma-separated numbers."""

from __future__ import annotations

import csv
from typing import Any

import numpy as np

from tfmini.compat.file_object import GFile
from tfmini.compat.mnist_data import Dataset, load_mnist
from tfmini.export import export

_LOADERS = {"mnist": load_mnist}


@export("tf.contrib.learn.datasets.load_dataset")
def load_dataset(name: str, size: str = "small", test_with_fake_data: bool = False) -> Any:
    """A data set by its name (``tf.contrib.learn.datasets.load_dataset``): "mnist", from the folder ``MNIST-data``.

    Raises:
      ValueError: for another name.
      NotFoundError: its files are missing; tfmini downloads no data.
    """
    if name not in _LOADERS:
        raise ValueError(f"Name of dataset is not found: {name}. tfmini has {', '.join(_LOADERS)}.")
    return _LOADERS[name]()


def _column(rows: list[list[str]], target_column: int, types: tuple[Any, Any]) -> Dataset:
    targets = [row.pop(target_column) for row in rows]
    return Dataset(np.array(rows, dtype=types[1]), np.array(targets, dtype=types[0]))


@export("tf.contrib.learn.datasets.base.load_csv_with_header")
def load_csv_with_header(filename: Any, target_dtype: Any, features_dtype: Any, target_column: int = -1) -> Dataset:
    """A table whose first line begins with the number of rows (``contrib.learn.datasets.base.load_csv_with_header``).

    Args:
      filename: the file.
      target_dtype, features_dtype: NumPy's types of the targets and of the other columns.
      target_column: the column with the targets.

    Returns:
      A `Dataset`: ``data`` [rows, columns - 1], ``target`` [rows].
    """
    with GFile(filename) as file:
        lines = csv.reader(file)
        count = int(next(lines)[0])
        rows = [row for row in lines if row][:count]
    return _column(rows, target_column, (target_dtype, features_dtype))


@export("tf.contrib.learn.datasets.base.load_csv_without_header")
def load_csv_without_header(filename: Any, target_dtype: Any, features_dtype: Any, target_column: int = -1) -> Dataset:
    """A table without a header; see `load_csv_with_header`."""
    with GFile(filename) as file:
        rows = [row for row in csv.reader(file) if row]
    return _column(rows, target_column, (target_dtype, features_dtype))
