"""Functions of ``tf.contrib.learn``: models of one layer, input functions, files of examples and tables of numbers."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from glob import glob
from typing import Any

from tfmini import dtypes, errors
from tfmini.core_types import TensorLike
from tfmini.estimator import input_functions
from tfmini.estimator.contrib_learn import Data
from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import name_scope
from tfmini.layers.losses import mean_squared_error, softmax_cross_entropy
from tfmini.ops.array.constant import constant
from tfmini.ops.array.identity import cast
from tfmini.ops.array.shape import squeeze
from tfmini.ops.composites import SparseTensor
from tfmini.ops.io.parsing_functions import parse_example
from tfmini.ops.io.readers import TFRecordReader
from tfmini.ops.math.elementwise import multiply
from tfmini.ops.nn.batch_norm import xw_plus_b
from tfmini.ops.nn.cross_entropy import softmax
from tfmini.ops.queues.queues import FIFOQueue, QueueBase
from tfmini.ops.summary import histogram, scalar
from tfmini.ops.variables.initializers import random_normal_initializer
from tfmini.ops.variables.scope import get_variable, get_variable_scope, variable_scope
from tfmini.train.input_batches import batch_join, shuffle_batch_join, string_input_producer
from tfmini.train.queue_runners import QueueRunner, add_queue_runner

Made = tuple[Tensor, Tensor]
_DENSE = "contrib.learn takes numbers and booleans only; these columns have others: "


def _weights(x: Tensor, y: Tensor, mean: float | None, stddev: float | None) -> tuple[Any, Any]:
    """A weight for each feature and output and a bias for each output, with the summaries of a model."""
    width = 1 if y.shape.ndims == 1 else y.shape[-1].value
    start = None if mean is None else random_normal_initializer(mean, stddev or 0.0, dtype=x.dtype)
    scope = get_variable_scope().name
    histogram(f"{scope}.x", x)
    histogram(f"{scope}.y", y)
    weights = get_variable("weights", [x.shape[1].value, width], x.dtype, start)
    bias = get_variable("bias", [width], x.dtype, start)
    histogram(f"{scope}.weights", weights)
    histogram(f"{scope}.bias", bias)
    return weights, bias


@export("tf.contrib.learn.ops.mean_squared_error_regressor")
def mean_squared_error_regressor(
    tensor_in: Tensor, labels: Tensor, weights: TensorLike, biases: TensorLike, name: str | None = None
) -> Made:
    """Linear predictions and their mean squared error (``tf.contrib.learn.ops``)."""
    with name_scope(name, "mean_squared_error_regressor", [tensor_in, labels]):
        made = xw_plus_b(tensor_in, weights, biases)
        if labels.shape.ndims == 1 and made.shape.ndims == 2:
            made = squeeze(made, axis=[1])
        return made, mean_squared_error(labels, made)


@export("tf.contrib.learn.ops.softmax_classifier")
def softmax_classifier(
    tensor_in: Tensor, labels: TensorLike, weights: TensorLike, biases: TensorLike,
    class_weight: TensorLike | None = None, name: str | None = None,
) -> Made:  # fmt: skip
    """Probabilities of classes and their cross entropy with one-hot labels (``tf.contrib.learn.ops``)."""
    with name_scope(name, "softmax_classifier", [tensor_in, labels]):
        logits = xw_plus_b(tensor_in, weights, biases)
        if class_weight is not None:
            logits = multiply(logits, class_weight)
        return softmax(logits), softmax_cross_entropy(labels, logits)


@export("tf.contrib.learn.models.linear_regression")
def linear_regression(x: TensorLike, y: TensorLike, init_mean: float | None = None, init_stddev: float = 1.0) -> Made:
    """(predictions, loss) of a linear model (``tf.contrib.learn.models.linear_regression``).

    Args:
      x: features, [batch, features].
      y: numbers, [batch] or [batch, outputs].
      init_mean, init_stddev: the distribution of the initial values; without a mean it is that of `get_variable`.
    """
    x, y = convert_to_tensor(x), convert_to_tensor(y)
    with variable_scope("linear_regression"):
        return mean_squared_error_regressor(x, y, *_weights(x, y, init_mean, init_stddev))


@export("tf.contrib.learn.models.linear_regression_zero_init")
def linear_regression_zero_init(x: TensorLike, y: TensorLike) -> Made:
    """`linear_regression` that begins with zeros."""
    return linear_regression(x, y, 0.0, 0.0)


@export("tf.contrib.learn.models.logistic_regression")
def logistic_regression(
    x: TensorLike, y: TensorLike, class_weight: TensorLike | None = None, init_mean: float | None = None,
    init_stddev: float = 1.0,
) -> Made:  # fmt: skip
    """(probabilities, loss) of a model of classes (``tf.contrib.learn.models.logistic_regression``).

    Args:
      x: features, [batch, features].
      y: one-hot labels, [batch, classes].
      class_weight: a weight for each class; default: the graph's tensor ``class_weight:0``, if there is one.
      init_mean, init_stddev: see `linear_regression`.
    """
    x, y = convert_to_tensor(x), convert_to_tensor(y)
    with variable_scope("logistic_regression"):
        weights = _weights(x, y, init_mean, init_stddev)
        if class_weight is None:
            with contextlib.suppress(KeyError):
                class_weight = get_default_graph().get_tensor_by_name("class_weight:0")
        return softmax_classifier(x, y, *weights, class_weight=class_weight)


@export("tf.contrib.learn.models.logistic_regression_zero_init")
def logistic_regression_zero_init(x: TensorLike, y: TensorLike) -> Made:
    """`logistic_regression` that begins with zeros."""
    return logistic_regression(x, y, init_mean=0.0, init_stddev=0.0)


@export("tf.contrib.learn.io.numpy_input_fn")
def numpy_input_fn(
    x: Data, y: Data = None, batch_size: int = 128, num_epochs: int | None = 1, shuffle: bool = True,
    queue_capacity: int = 1000, num_threads: int = 1,
) -> Callable[[], Any]:  # fmt: skip
    """`tf.estimator.inputs.numpy_input_fn` that shuffles unless told not to (``tf.contrib.learn.io``)."""
    return input_functions.numpy_input_fn(x, y, batch_size, num_epochs, shuffle, queue_capacity, num_threads)


@export("tf.contrib.learn.io.pandas_input_fn")
def pandas_input_fn(
    x: Data, y: Data = None, batch_size: int = 128, num_epochs: int | None = 1, shuffle: bool = True,
    queue_capacity: int = 1000, num_threads: int = 1, target_column: str = "target",
) -> Callable[[], Any]:  # fmt: skip
    """`tf.estimator.inputs.pandas_input_fn` that shuffles unless told not to (``tf.contrib.learn.io``)."""
    return input_functions.pandas_input_fn(
        x, y, batch_size, num_epochs, shuffle, queue_capacity, num_threads, target_column
    )


@export("tf.contrib.learn.extract_pandas_data", "tf.contrib.learn.io.extract_pandas_data")
def extract_pandas_data(data: Any) -> Any:
    """The numbers of a DataFrame as float64 (``tf.contrib.learn.extract_pandas_data``); other data as they are.

    Raises:
      ValueError: when a column has other values than numbers and booleans.
    """
    if not hasattr(data, "dtypes"):
        return data
    bad = [f"{name} ({kind})" for name, kind in data.dtypes.items() if getattr(kind, "kind", "O") not in "biuf"]
    if bad:
        raise ValueError(_DENSE + ", ".join(bad))
    return data.values.astype("float")


@export("tf.contrib.learn.extract_pandas_labels", "tf.contrib.learn.io.extract_pandas_labels")
def extract_pandas_labels(labels: Any) -> Any:
    """The values of a Series, or of a DataFrame of one column; other labels as they are (``tf.contrib.learn``).

    Raises:
      ValueError: for several columns, and for other values than numbers and booleans.
    """
    if not hasattr(labels, "columns"):
        return labels
    if len(labels.columns) > 1:
        raise ValueError("Only one column for labels is allowed.")
    extract_pandas_data(labels)
    return labels.values


@export("tf.contrib.learn.extract_pandas_matrix", "tf.contrib.learn.io.extract_pandas_matrix")
def extract_pandas_matrix(data: Any) -> Any:
    """The array of a DataFrame; other data as they are (``tf.contrib.learn``)."""
    return data.values if hasattr(data, "columns") else data


# ---- Files of examples, by queues ----------------------------------------------------------------------------------

_KEY = "__key__"  # of the records' keys among parsed features


def _files(file_pattern: str | list[str], randomize_input: bool) -> list[str]:
    patterns = file_pattern if isinstance(file_pattern, list) else [file_pattern]
    if not patterns:
        raise ValueError("No files given to dequeue_examples.")
    names = [name for pattern in patterns for name in sorted(glob(pattern, include_hidden=True))]
    if not names:
        raise ValueError(f"No files match {file_pattern}.")
    return names if randomize_input else sorted(names)


def _check_sizes(batch_size: int | Tensor, queue_capacity: int, read_batch_size: int, **counts: Any) -> None:
    if not queue_capacity or queue_capacity <= 0:
        raise ValueError(f"Invalid queue_capacity {queue_capacity}.")
    if batch_size is None or not isinstance(batch_size, Tensor) and not 0 < batch_size < queue_capacity:
        raise ValueError(f"Invalid batch_size {batch_size}, with queue_capacity {queue_capacity}.")
    if read_batch_size is None or read_batch_size <= 0:
        raise ValueError(f"Invalid read_batch_size {read_batch_size}.")
    for name, count in counts.items():
        if count is not None and count <= 0:
            raise ValueError(f"Invalid {name} {count}.")


def _source(reader: Callable[[], Any], files: QueueBase, at_once: int, parse_fn: Callable[[Tensor], Any] | None) -> Any:
    """Keys and examples of a reader of its own, as a pair or with the keys among the parsed features."""
    keys, examples = reader().read_up_to(files, at_once) if at_once > 1 else reader().read(files)
    parsed = parse_fn(examples) if parse_fn else examples
    return {**parsed, _KEY: keys} if isinstance(parsed, dict) else (keys, parsed)


@export("tf.contrib.learn.read_keyed_batch_examples", "tf.contrib.learn.io.read_keyed_batch_examples")
def read_keyed_batch_examples(
    file_pattern: str | list[str], batch_size: int | Tensor, reader: Callable[[], Any], randomize_input: bool = True,
    num_epochs: int | None = None, queue_capacity: int = 10000, num_threads: int = 1, read_batch_size: int = 1,
    parse_fn: Callable[[Tensor], Any] | None = None, name: str | None = None, seed: int | None = None,
) -> Any:  # fmt: skip
    """Batches of records of files, and their keys (``tf.contrib.learn.io.read_keyed_batch_examples``).

    Args:
      file_pattern: a pattern of file names, or a list of patterns.
      batch_size: of the batches; the last one may be smaller when there is a last epoch.
      reader: makes a reader, as the class `tf.TFRecordReader` does.
      randomize_input: whether files and records come in random order.
      num_epochs: how often the files are read; None: without end.
      num_threads: how many readers there are, each with a thread.
      read_batch_size: how many records a reader takes at once.
      parse_fn: makes tensors, or a dict of them, of what a reader has taken.

    Returns:
      A pair: keys as strings [batch], and the examples or what ``parse_fn`` makes of them.

    Raises:
      ValueError: when no file matches, or a number is not valid.
    """
    names = _files(file_pattern, randomize_input)
    _check_sizes(batch_size, queue_capacity, read_batch_size, num_threads=num_threads, num_epochs=num_epochs)
    with name_scope(name, "read_batch_examples", [file_pattern]) as scope:
        with name_scope("file_name_queue") as files_scope:
            files = string_input_producer(
                constant(names, name="input"), num_epochs, randomize_input, seed, name=files_scope
            )  # fmt: skip
        with name_scope("read"):
            sources = [_source(reader, files, read_batch_size, parse_fn) for _ in range(num_threads)]
        many, smaller = read_batch_size > 1, num_epochs is not None
        if randomize_input:
            least = int(queue_capacity * 0.4)
            if not isinstance(batch_size, Tensor):
                least = max(queue_capacity - 3 * batch_size, batch_size)
            found = shuffle_batch_join(sources, batch_size, queue_capacity, least, seed, many,
                                       allow_smaller_final_batch=smaller, name=scope)  # fmt: skip
        else:
            found = batch_join(sources, batch_size, queue_capacity, many, allow_smaller_final_batch=smaller, name=scope)
    return (found.pop(_KEY), found) if isinstance(found, dict) else found


@export("tf.contrib.learn.read_batch_examples", "tf.contrib.learn.io.read_batch_examples")
def read_batch_examples(
    file_pattern: str | list[str], batch_size: int | Tensor, reader: Callable[[], Any], randomize_input: bool = True,
    num_epochs: int | None = None, queue_capacity: int = 10000, num_threads: int = 1, read_batch_size: int = 1,
    parse_fn: Callable[[Tensor], Any] | None = None, name: str | None = None, seed: int | None = None,
) -> Any:  # fmt: skip
    """The examples of `read_keyed_batch_examples`, without keys (``tf.contrib.learn.io.read_batch_examples``)."""
    return read_keyed_batch_examples(file_pattern, batch_size, reader, randomize_input, num_epochs, queue_capacity,
                                     num_threads, read_batch_size, parse_fn, name, seed)[1]  # fmt: skip


@export("tf.contrib.learn.io.queue_parsed_features")
def queue_parsed_features(
    parsed_features: Mapping[str, Any], keys: Tensor | None = None, feature_queue_capacity: int = 100,
    num_enqueue_threads: int = 2, name: str | None = None,
) -> tuple[Tensor | None, dict[str, Any]]:  # fmt: skip
    """Has threads make batches of features ahead (``tf.contrib.learn.io.queue_parsed_features``).

    Args:
      parsed_features: name -> tensor or `tf.SparseTensor`, dequeued together.
      keys: of the records, to go with them.

    Returns:
      The keys, or None, and the features.
    """
    sparse = [key for key in sorted(parsed_features) if isinstance(parsed_features[key], SparseTensor)]
    parts: dict[Any, Tensor] = {}
    for key in sorted(parsed_features):
        value = parsed_features[key]
        triple = (value.indices, value.values, value.dense_shape) if key in sparse else (value,)
        parts.update({(key, i): part for i, part in enumerate(triple)})
    if keys is not None:
        parts[None] = keys
    with name_scope(name, "queue_parsed_features", list(parts.values())):
        queue = FIFOQueue(feature_queue_capacity, [part.dtype for part in parts.values()])
        title = f"queue/parsed_features/{queue.name}/fraction_of_{feature_queue_capacity}_full"
        scalar(title, cast(queue.size(), dtypes.float32) * (1.0 / feature_queue_capacity))
        enqueues = [queue.enqueue(list(parts.values())) for _ in range(num_enqueue_threads)]
        ends = (errors.OutOfRangeError, errors.CancelledError)
        add_queue_runner(QueueRunner(queue, enqueues, queue_closed_exception_types=ends))
        taken = queue.dequeue()
    found = dict(zip(parts, taken if isinstance(taken, list) else [taken], strict=True))
    for part, value in found.items():
        value.set_shape(parts[part].shape)
    features = {
        key: SparseTensor(*(found[key, i] for i in range(3))) if key in sparse else found[key, 0]
        for key in sorted(parsed_features)
    }
    return found.get(None), features


@export("tf.contrib.learn.read_keyed_batch_features", "tf.contrib.learn.io.read_keyed_batch_features")
def read_keyed_batch_features(
    file_pattern: str | list[str], batch_size: int | Tensor, features: Mapping[str, Any], reader: Callable[[], Any],
    randomize_input: bool = True, num_epochs: int | None = None, queue_capacity: int = 10000,
    reader_num_threads: int = 1, feature_queue_capacity: int = 100, num_enqueue_threads: int = 2,
    parse_fn: Callable[[Tensor], Any] | None = None, name: str | None = None, read_batch_size: int | None = None,
) -> tuple[Tensor | None, dict[str, Any]]:  # fmt: skip
    """Batches of parsed examples, and their keys (``tf.contrib.learn.io.read_keyed_batch_features``).

    Args:
      features: name -> what to parse, as for `tf.parse_example`.
      The others are those of `read_keyed_batch_examples` and `queue_parsed_features`.
    """
    with name_scope(name, "read_batch_features", [file_pattern]) as scope:
        at_once: Any = batch_size if read_batch_size is None else read_batch_size
        keys, examples = read_keyed_batch_examples(
            file_pattern, batch_size, reader, randomize_input, num_epochs, queue_capacity, reader_num_threads,
            at_once, parse_fn, scope,
        )  # fmt: skip
        parsed = parse_example(examples, features)
        return queue_parsed_features(parsed, keys, feature_queue_capacity, num_enqueue_threads, scope)


@export("tf.contrib.learn.read_batch_features", "tf.contrib.learn.io.read_batch_features")
def read_batch_features(
    file_pattern: str | list[str], batch_size: int | Tensor, features: Mapping[str, Any], reader: Callable[[], Any],
    randomize_input: bool = True, num_epochs: int | None = None, queue_capacity: int = 10000,
    feature_queue_capacity: int = 100, reader_num_threads: int = 1, num_enqueue_threads: int = 2,
    parse_fn: Callable[[Tensor], Any] | None = None, name: str | None = None, read_batch_size: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    """`read_keyed_batch_features` without keys (``tf.contrib.learn.io.read_batch_features``)."""
    return read_keyed_batch_features(
        file_pattern, batch_size, features, reader, randomize_input, num_epochs, queue_capacity, reader_num_threads,
        feature_queue_capacity, num_enqueue_threads, parse_fn, name, read_batch_size,
    )[1]  # fmt: skip


@export("tf.contrib.learn.read_batch_record_features", "tf.contrib.learn.io.read_batch_record_features")
def read_batch_record_features(
    file_pattern: str | list[str], batch_size: int | Tensor, features: Mapping[str, Any], randomize_input: bool = True,
    num_epochs: int | None = None, queue_capacity: int = 10000, reader_num_threads: int = 1,
    name: str = "dequeue_record_examples",
) -> dict[str, Any]:  # fmt: skip
    """`read_batch_features` of TFRecord files (``tf.contrib.learn.io.read_batch_record_features``)."""
    return read_batch_features(
        file_pattern, batch_size, features, TFRecordReader, randomize_input, num_epochs, queue_capacity,
        reader_num_threads=reader_num_threads, name=name,
    )  # fmt: skip
