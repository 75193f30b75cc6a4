"""Batched datasets of Example messages and TFRecord files (``tf.data.experimental``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfmini import dtypes
from tfmini.data.dataset import Dataset
from tfmini.data.file_datasets import TFRecordDataset
from tfmini.data.options import AUTOTUNE
from tfmini.data.structure import Leaf
from tfmini.data.transformations import parallel_interleave, shuffled_and_repeated
from tfmini.export import export
from tfmini.ops.io.parsing_functions import parse_example
from tfmini.ops.io.readers import ReaderBase

Transformation = Callable[[Dataset], Dataset]


@export("tf.contrib.data.parse_example_dataset", "tf.data.experimental.parse_example_dataset")
def parse_example_dataset(features: Any, num_parallel_calls: Any = 1) -> Transformation:
    """Parses batches of serialized Example messages into dictionaries of tensors.

    Args:
      features: as in ``tf.parse_example``.
      num_parallel_calls: number of batches to parse at a time.

    Raises:
      ValueError: without features.
      TypeError: for elements that are not vectors of strings.
    """
    if features is None:
        raise ValueError("Missing: features was None.")

    def transform(dataset: Dataset) -> Dataset:
        leaf = dataset._structure.skeleton
        if not isinstance(leaf, Leaf) or leaf.dtype is not dtypes.string or leaf.shape is None or len(leaf.shape) != 1:
            raise TypeError("Input dataset should be a dataset of vectors of strings")
        calls = None if num_parallel_calls == 1 else num_parallel_calls
        return dataset.map(lambda batch: parse_example(batch, features), calls)

    return transform


@export("tf.contrib.data.make_batched_features_dataset", "tf.data.experimental.make_batched_features_dataset")
def make_batched_features_dataset(
    file_pattern: Any, batch_size: Any, features: Any, reader: Any = TFRecordDataset, label_key: str | None = None,
    reader_args: Any = None, num_epochs: int | None = None, shuffle: bool = True, shuffle_buffer_size: int = 10000,
    shuffle_seed: Any = None, prefetch_buffer_size: Any = None, reader_num_threads: Any = None,
    parser_num_threads: Any = None, sloppy_ordering: bool = False, drop_final_batch: bool = False,
) -> Dataset:  # fmt: skip
    """Batches of parsed Example messages from files (``tf.data.experimental.make_batched_features_dataset``).

    Args:
      file_pattern: a pattern, or a list of patterns or names.
      batch_size: number of messages in a batch.
      features: as in ``tf.parse_example``.
      reader: a function from a file name to a dataset of messages, or of pairs (key, message).
      label_key: the feature to return as label: elements are then pairs (features, label).
      reader_args: further arguments of ``reader``.
      num_epochs: number of repetitions; None for no end.
      shuffle, shuffle_buffer_size, shuffle_seed: whether and how to shuffle files and messages.
      prefetch_buffer_size: number of batches to read ahead.
      reader_num_threads: number of files to read at a time.
      parser_num_threads: number of batches to parse at a time.
      sloppy_ordering: accepted and ignored; the order is deterministic.
      drop_final_batch: drop a last batch that is smaller.

    Raises:
      TypeError: when ``reader`` is a `tf.ReaderBase`.
      ValueError: when ``label_key`` is not one of the features.
    """
    if isinstance(reader, type) and issubclass(reader, ReaderBase):
        raise TypeError(
            "The `reader` argument must return a `Dataset` object. `tf.ReaderBase` subclasses are not supported. For"
            " example, pass `tf.data.TFRecordDataset` instead of `tf.TFRecordReader`."
        )
    if label_key is not None and label_key not in features:
        raise ValueError(f"The `label_key` provided ({label_key!r}) must be one of the `features` keys.")
    files = Dataset.list_files(file_pattern, shuffle=shuffle, seed=shuffle_seed)
    dataset = parallel_interleave(lambda name: reader(name, *(reader_args or ())), reader_num_threads or 1)(files)
    if dataset.output_types == (dtypes.string, dtypes.string):
        dataset = dataset.map(lambda _, message: message)
    dataset = shuffled_and_repeated(dataset, num_epochs, shuffle, shuffle_buffer_size, shuffle_seed)
    dataset = dataset.batch(batch_size, drop_remainder=drop_final_batch or num_epochs is None)
    dataset = parse_example_dataset(features, 2 if parser_num_threads is None else parser_num_threads)(dataset)
    if label_key is not None:
        dataset = dataset.map(lambda parsed: (parsed, parsed.pop(label_key)))
    return dataset.prefetch(AUTOTUNE if prefetch_buffer_size is None else prefetch_buffer_size)


def make_tf_record_dataset(
    file_pattern: Any, batch_size: Any, parser_fn: Any = None, num_epochs: int | None = None, shuffle: bool = True,
    shuffle_buffer_size: int | None = None, shuffle_seed: Any = None, prefetch_buffer_size: Any = None,
    num_parallel_reads: Any = None, num_parallel_parser_calls: Any = None, drop_final_batch: bool = False,
) -> Dataset:  # fmt: skip
    """Batches of TFRecord records, parsed by ``parser_fn``; arguments as in `make_batched_features_dataset`."""
    files = Dataset.list_files(file_pattern, shuffle=shuffle, seed=shuffle_seed)
    dataset: Dataset = TFRecordDataset(files, num_parallel_reads=num_parallel_reads or 24)
    size = 10000 if shuffle_buffer_size is None else shuffle_buffer_size
    dataset = shuffled_and_repeated(dataset, num_epochs, shuffle, size, shuffle_seed)
    if parser_fn is not None:
        dataset = dataset.map(parser_fn, num_parallel_parser_calls or 4)
    dataset = dataset.batch(batch_size, drop_remainder=drop_final_batch or num_epochs is None)
    if prefetch_buffer_size == 0:
        return dataset
    return dataset.prefetch(AUTOTUNE if prefetch_buffer_size is None else prefetch_buffer_size)
