"""``tf.data.experimental.TFRecordWriter``: writes datasets to TFRecord files."""

from __future__ import annotations

from typing import Any

from tfmini import dtypes
from tfmini.data.dataset import Dataset
from tfmini.data.record_writer_ops import dataset_to_tf_record
from tfmini.data.structure import Leaf
from tfmini.export import export
from tfmini.graph.families import Operation, convert_to_tensor


@export("tf.contrib.data.TFRecordWriter", "tf.data.experimental.TFRecordWriter")
class TFRecordWriter:
    """Writes datasets to a TFRecord file.

    Args:
      filename: the file's name, a string scalar.
      compression_type: "", "ZLIB" or "GZIP".
    """

    def __init__(self, filename: Any, compression_type: Any = None) -> None:
        self._filename = convert_to_tensor(filename, dtype=dtypes.string, name="filename")
        self._compression_type = convert_to_tensor(compression_type or "", dtype=dtypes.string, name="compression_type")

    def write(self, dataset: Dataset) -> Operation:
        """An op that writes all elements of ``dataset``.

        Raises:
          TypeError: for elements that are not scalar strings.
        """
        if not isinstance(dataset, Dataset):
            raise TypeError("`dataset` must be a `tf.data.Dataset` object.")
        leaf = dataset._structure.skeleton
        if not isinstance(leaf, Leaf) or leaf.dtype is not dtypes.string or leaf.shape != ():
            raise TypeError(
                f"`dataset` must produce scalar `DT_STRING` tensors whereas it produces shape {dataset.output_shapes}"
                f" and types {dataset.output_types}"
            )
        return dataset_to_tf_record(dataset._variant_tensor, self._filename, self._compression_type)
