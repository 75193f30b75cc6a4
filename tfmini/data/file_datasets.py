"""``tf.data.TextLineDataset``, ``TFRecordDataset`` and ``FixedLengthRecordDataset``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfmini import dtypes
from tfmini.data.dataset import Dataset
from tfmini.data.dataset_arguments import int64
from tfmini.data.file_ops import fixed_length_record_dataset, text_line_dataset, tf_record_dataset
from tfmini.data.structure import Leaf, Structure
from tfmini.export import export
from tfmini.graph.families import Tensor, convert_to_tensor

_RECORDS = Structure(Leaf(Tensor, dtypes.string, ()))
_BUFFER_BYTES = 256 * 1024


def _string(value: Any, name: str) -> Tensor:
    return convert_to_tensor(value, dtype=dtypes.string, name=name)


def _bytes(value: Any, name: str, default: int = 0) -> Tensor:
    return int64(default if value is None else value, name)


class _WholeFiles(Dataset):
    """Base class of datasets that read whole files; see `TextLineDataset` for the arguments."""

    _records_of: Callable[..., Tensor]

    def __init__(
        self, filenames: Any, compression_type: str | None = None, buffer_size: Any = None,
        num_parallel_reads: Any = None,
    ) -> None:  # fmt: skip
        kind = _string(compression_type or "", "compression_type")
        size = _bytes(buffer_size, "buffer_size", _BUFFER_BYTES)

        def read(names: Any) -> Dataset:
            return Dataset(self._records_of(names, kind, size), _RECORDS)

        super().__init__(_of_files(filenames, read, num_parallel_reads)._variant_tensor, _RECORDS)


@export("tf.data.TextLineDataset", "tf.contrib.data.TextLineDataset")
class TextLineDataset(_WholeFiles):
    """The lines of text files, without line ends (``tf.data.TextLineDataset``).

    Args:
      filenames: a string tensor, or a dataset of names.
      compression_type: "", "ZLIB" or "GZIP".
      buffer_size: size of reads in bytes; a hint.
      num_parallel_reads: number of files to read at a time, interleaved; None reads one after the other.
    """

    _records_of = staticmethod(text_line_dataset)


@export("tf.data.TFRecordDataset", "tf.contrib.data.TFRecordDataset")
class TFRecordDataset(_WholeFiles):
    """The records of TFRecord files (``tf.data.TFRecordDataset``); the arguments are those of `TextLineDataset`."""

    _records_of = staticmethod(tf_record_dataset)


@export("tf.data.FixedLengthRecordDataset", "tf.contrib.data.FixedLengthRecordDataset")
class FixedLengthRecordDataset(Dataset):
    """The records of binary files (``tf.data.FixedLengthRecordDataset``).

    Args:
      filenames: a string tensor, or a dataset of names.
      record_bytes: bytes per record.
      header_bytes, footer_bytes: bytes to skip at the beginning and at the end of each file.
      buffer_size, compression_type, num_parallel_reads: as in `TextLineDataset`.
    """

    def __init__(
        self, filenames: Any, record_bytes: Any, header_bytes: Any = None, footer_bytes: Any = None,
        buffer_size: Any = None, compression_type: str | None = None, num_parallel_reads: Any = None,
    ) -> None:  # fmt: skip
        kind = _string(compression_type or "", "compression_type")
        size = _bytes(buffer_size, "buffer_size", _BUFFER_BYTES)
        header, record = _bytes(header_bytes, "header_bytes"), _bytes(record_bytes, "record_bytes")
        footer = _bytes(footer_bytes, "footer_bytes")

        def read(names: Any) -> Dataset:
            return Dataset(fixed_length_record_dataset(names, header, record, footer, size, kind), _RECORDS)

        super().__init__(_of_files(filenames, read, num_parallel_reads)._variant_tensor, _RECORDS)


def _of_files(filenames: Any, read: Any, num_parallel_reads: Any) -> Dataset:
    """The records of files whose names are given as a tensor or as a dataset."""
    if isinstance(filenames, Dataset):
        if filenames.output_types != dtypes.string:
            raise TypeError("`filenames` must be a `tf.data.Dataset` of `tf.string` elements.")
        if num_parallel_reads is None:
            return filenames.flat_map(read)
        return filenames.interleave(read, num_parallel_reads)
    names = _string(filenames, "filenames")
    if num_parallel_reads is None:
        return read(names)  # type: ignore[no-any-return]
    return Dataset.from_tensor_slices(names).interleave(read, num_parallel_reads)
