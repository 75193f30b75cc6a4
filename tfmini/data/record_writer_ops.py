"""The op ``DatasetToTFRecord``: writes a dataset of strings to a TFRecord file."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfmini.data.pipeline import Source
from tfmini.data.reading import Reading
from tfmini.graph.families import Operation, OpHandle, op
from tfmini.ops.io.record_files import RecordWriter

dataset_to_tf_record: OpHandle[Operation] = op(
    "DatasetToTFRecord(input_dataset: variant, filename: string, compression_type: string)",
    stateful=True, waits=True, slow_io=True, shape=[], differentiable=False,
)  # fmt: skip


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
