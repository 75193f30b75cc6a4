"""``tf.data.experimental.TFRecordWriter``: writes datasets to TFRecord files."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.data.dataset import Dataset
from tfmini.data.pipeline import Source
from tfmini.data.reading import Reading
from tfmini.data.structure import Leaf
from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Operation
from tfmini.graph.registry import OpHandle, op
from tfmini.ops.io.record_files import RecordWriter

dataset_to_tf_record: OpHandle[Operation] = op(
    "DatasetToTFRecord(input_dataset: variant, filename: string, compression_type: string)",
    stateful=True, waits=True, slow_io=True, shape=[],
)  # fmt: skip
dataset_to_tf_record.not_differentiable()


@dataset_to_tf_record.kernel("CPU")
def _write(step: Any, source: Source, filename: Any, compression_type: Any) -> tuple[()]:
    path = np.asarray(filename, object).item()
    compression = np.asarray(compression_type, object).item().decode()
    reading = Reading(step.owner, step)
    stage = source.open(reading)
    writer = RecordWriter(path, compression)
    try:
        for (record,) in stage:
            reading.check()
            writer.write(record)
    finally:
        writer.close()
        stage.close()
    return ()


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
