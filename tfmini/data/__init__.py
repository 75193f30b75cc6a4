"""Input pipelines (``tf.data``): dataset and iterator ops, and the stages that their kernels run.

Importing the package declares the ops, which a server needs. The public classes load at their first use.
"""

from __future__ import annotations

from tfmini.data import (
    components,
    csv_dataset_ops,
    dataset_ops,
    file_ops,
    function_ops,
    grouping_ops,
    iterator_ops,
    optional_ops,
    record_writer_ops,
    selection_ops,
)

__all__ = [
    "components",
    "csv_dataset_ops",
    "dataset_ops",
    "file_ops",
    "function_ops",
    "grouping_ops",
    "iterator_ops",
    "optional_ops",
    "record_writer_ops",
    "selection_ops",
]
