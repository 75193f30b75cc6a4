"""Input pipelines (``tf.data``): dataset and iterator ops, and the stages that their kernels run.

Importing the package declares the ops, as a server needs them; the public classes are looked up
when they are used.
"""

from __future__ import annotations

from tfmini.data import (
    csv_dataset_ops,
    dataset_ops,
    file_ops,
    function_ops,
    grouping_ops,
    iterator_ops,
    optional_ops,
    record_writer_ops,
    selection_ops,
    sparse_values,
)

__all__ = [
    "csv_dataset_ops",
    "dataset_ops",
    "file_ops",
    "function_ops",
    "grouping_ops",
    "iterator_ops",
    "optional_ops",
    "record_writer_ops",
    "selection_ops",
    "sparse_values",
]
