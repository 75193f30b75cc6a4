"""Input pipelines (``tf.data``): dataset and iterator ops, and the stages that their kernels run.

Importing the package declares the ops, as a server needs them; the public classes are looked up
when they are used.
"""

from __future__ import annotations

from tfmini.data import dataset_ops, file_ops, function_ops, iterator_ops, sparse_values

__all__ = ["dataset_ops", "file_ops", "function_ops", "iterator_ops", "sparse_values"]
