"""Names of TensorFlow's private modules of layers, recurrent cells and metrics that have no public name."""

from __future__ import annotations

import collections
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from tfmini import errors
from tfmini.compat.file_io import GFile
from tfmini.core_types import DTypeLike, TensorLike
from tfmini.export import export, export_names
from tfmini.graph import nest
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import add_to_collections
from tfmini.layers import binary_metrics, convolutional, normalization
from tfmini.layers.losses import matched
from tfmini.layers.metrics import metric_variable as metric_variable
from tfmini.layers.metrics import streaming_confusion_matrix
from tfmini.layers.rnn_cells import RNNCell, zero_rows
from tfmini.layers.rnn_unrolling import _batch_major, check_cell
from tfmini.ops.array.filling import zeros_like
from tfmini.ops.array.joining import concat, stack
from tfmini.ops.array.partition import where
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.math.comparison import equal
from tfmini.ops.math.elementwise import div
from tfmini.ops.math.matmul import matmul
from tfmini.ops.nn.batch_norm import bias_add
from tfmini.ops.variables import scope as vs
from tfmini.ops.variables.initializers import Constant
from tfmini.shapes import TensorShape

# ---- python.layers --------------------------------------------------------------------------

Convolution1D, Convolution2D, Convolution3D = convolutional.Conv1D, convolutional.Conv2D, convolutional.Conv3D
convolution1d, convolution2d, convolution3d = convolutional.conv1d, convolutional.conv2d, convolutional.conv3d
Convolution2DTranspose = Deconvolution2D = Deconv2D = convolutional.Conv2DTranspose
Convolution3DTranspose = Deconvolution3D = Deconv3D = convolutional.Conv3DTranspose
convolution2d_transpose = deconvolution2d = deconv2d = convolutional.conv2d_transpose
convolution3d_transpose = deconvolution3d = deconv3d = convolutional.conv3d_transpose
SeparableConvolution1D = convolutional.SeparableConv1D
SeparableConvolution2D = convolutional.SeparableConv2D
separable_convolution2d = convolutional.separable_conv2d
BatchNorm, batch_norm = normalization.BatchNormalization, normalization.batch_normalization
MaxPool1D, MaxPool2D, MaxPool3D = convolutional.MaxPooling1D, convolutional.MaxPooling2D, convolutional.MaxPooling3D
AvgPool1D, AvgPool2D, AvgPool3D = (
    convolutional.AveragePooling1D,
    convolutional.AveragePooling2D,
    convolutional.AveragePooling3D,
)
max_pool2d, avg_pool2d = convolutional.max_pooling2d, convolutional.average_pooling2d

# ---- python.ops.rnn_cell_impl and others of recurrent cells ---------------------------------

_BIAS_VARIABLE_NAME, _WEIGHTS_VARIABLE_NAME = "bias", "kernel"
LayerRNNCell = RNNCell


def transpose_batch_time(x: TensorLike) -> Any:
    """Swaps the first two axes of a tensor: ``[steps, batch, ...]`` for ``[batch, steps, ...]`` and back."""
    return _batch_major(convert_to_tensor(x))


_transpose_batch_time = transpose_batch_time  # its private name


def assert_like_rnncell(cell_name: str, cell: Any) -> None:
    """Raises TypeError for an object that is no cell."""
    check_cell(cell, cell_name)


def _like_rnncell(cell: object) -> bool:
    return all(hasattr(cell, name) for name in ("output_size", "state_size", "zero_state")) and callable(cell)


def _zero_state_tensors(state_size: object, batch_size: TensorLike, dtype: DTypeLike) -> Any:
    return nest.map_structure(lambda size: zero_rows(batch_size, size, dtype), state_size)


def _concat(prefix: Any, suffix: Any, static: bool = False) -> Any:
    """The shape ``[prefix, *suffix]``: a list if it is ``static``, else a tensor."""
    parts = [_sizes(part) for part in (prefix, suffix)]
    if static:
        if None in parts:
            return TensorShape(None)
        return [size for part in parts for size in part or ()]
    if any(part is None or None in part for part in parts):
        tensors = [convert_to_tensor(part) for part in (prefix, suffix)]
        return concat([stack([t]) if t.shape.ndims == 0 else t for t in tensors], 0)
    return convert_to_tensor([size for part in parts for size in part or ()])


def _sizes(part: Any) -> list[int | None] | None:
    if hasattr(part, "op"):
        from tfmini.ops.array.constant_value import constant_value

        value = constant_value(part)
        return None if value is None else value.reshape(-1).tolist()
    shape = TensorShape([part] if isinstance(part, int) else part)
    return None if shape.ndims is None else shape.as_list()


@export("tf.contrib.rnn.best_effort_input_batch_size")
def best_effort_input_batch_size(flat_input: list[Any]) -> Any:
    """The batch size of time-major inputs: a number if a static shape tells, else a tensor."""
    for one in flat_input:
        if one.shape.ndims is not None and one.shape.ndims >= 2 and one.shape.as_list()[1] is not None:
            return one.shape.as_list()[1]
    return shape_of(flat_input[0])[1]


_best_effort_input_batch_size = best_effort_input_batch_size


def _infer_state_dtype(explicit_dtype: object, state: Any) -> Any:
    """The given type, or the common one of a nested state; raises ValueError where types differ."""
    if explicit_dtype is not None or not nest.is_nested(state):
        return explicit_dtype if explicit_dtype is not None else state.dtype
    found = {tensor.dtype for tensor in nest.flatten(state)}
    if len(found) != 1:
        raise ValueError(f"State has tensors of different inferred_dtypes: {sorted(d.name for d in found)}")
    return found.pop()


class _Linear:
    """``concat(args) @ kernel + bias``, with variables in the current scope."""

    def __init__(
        self, args: Any, output_size: int, build_bias: bool, bias_initializer: Callable[..., Any] | None = None,
        kernel_initializer: Callable[..., Any] | None = None,
    ) -> None:  # fmt: skip
        if args is None or nest.is_nested(args) and not args:
            raise ValueError("`args` must be specified")
        parts = args if nest.is_nested(args) else [args]
        shapes = [part.shape.as_list() for part in parts]
        for shape in shapes:
            if len(shape) != 2 or shape[1] is None:
                raise ValueError(f"linear expects 2D arguments of known width: {shapes}")
        dtype = parts[0].dtype.base_dtype
        width = sum(shape[1] for shape in shapes)
        self._kernel = vs.get_variable("kernel", [width, output_size], dtype, kernel_initializer)
        self._bias = None
        if build_bias:
            start = bias_initializer if bias_initializer is not None else Constant(0.0, dtype)
            self._bias = vs.get_variable("bias", [output_size], dtype, start)

    def __call__(self, args: Sequence[Any]) -> Any:
        parts = args if nest.is_nested(args) else [args]
        product = matmul(parts[0] if len(parts) == 1 else concat(list(parts), 1), self._kernel)
        return product if self._bias is None else bias_add(product, self._bias)


def _linear(
    args: Sequence[Any],
    output_size: int,
    bias: bool,
    bias_initializer: Callable[..., Any] | None = None,
    kernel_initializer: Callable[..., Any] | None = None,
) -> Any:
    return _Linear(args, output_size, bias, bias_initializer, kernel_initializer)(args)


export_names("tf.contrib.rnn", "LayerRNNCell transpose_batch_time")

# ---- python.ops.metrics_impl ----------------------------------------------------------------

_remove_squeezable_dimensions = matched
_streaming_confusion_matrix = streaming_confusion_matrix
_streaming_sparse_average_precision_at_top_k = binary_metrics.average_precision_at_top_k


def _aggregate_across_replicas(
    metrics_collections: str | Sequence[str], metric_value_fn: Callable[..., Any], *args: Any
) -> Any:
    """The value of a metric, added to collections. The function gets no strategy: there is one replica."""
    value = metric_value_fn(None, *args)
    if metrics_collections:
        add_to_collections(metrics_collections, value)
    return value


def _aggregate_variable(v: TensorLike, collections: str | Sequence[str]) -> Tensor:
    """The value of a metric's variable, added to collections."""
    value = convert_to_tensor(v)
    if collections:
        add_to_collections(collections, value)
    return value


def _confusion_matrix_at_thresholds(
    labels: TensorLike, predictions: TensorLike, thresholds: Sequence[float], weights: TensorLike | None = None,
    includes: Sequence[str] | None = None,
) -> tuple[Any, Any]:  # fmt: skip
    """Variables and update ops ``[thresholds]`` for the counts "tp", "fn", "tn" and "fp", or those of ``includes``.

    Raises:
      ValueError: for another name in ``includes``.
    """
    known = ("tp", "fn", "tn", "fp")
    for kind in includes or ():
        if kind not in known:
            raise ValueError(f"Invalid key: {kind}.")
    return binary_metrics.counts_at(labels, predictions, thresholds, weights, tuple(includes or known))


def _safe_scalar_div(numerator: Tensor, denominator: Tensor, name: str | None) -> Tensor:
    """The quotient of scalars; 0 where the denominator is 0."""
    none = zeros_like(denominator)
    return where(equal(denominator, none), none, div(numerator, denominator), name=name)


# ---- ``tf.contrib.learn``'s mode keys and text preprocessing -------------------------------------------------------

_WORD = re.compile(r"[A-Z]{2,}(?![a-z])|[A-Z][a-z]+(?=[A-Z])|[\'\w\-]+")


@export("tf.contrib.learn.ModeKeys")
class LearnModeKeys:
    """The names of the modes (``tf.contrib.learn.ModeKeys``)."""

    TRAIN, EVAL, INFER = "train", "eval", "infer"

    @classmethod
    def validate(cls, key: str) -> None:
        """Raises ValueError for another mode."""
        if key not in (cls.TRAIN, cls.EVAL, cls.INFER):
            raise ValueError(f"Invalid mode {key}.")


@export("tf.contrib.learn.preprocessing.tokenizer")
def tokenizer(iterator: Iterable[str]) -> Iterator[list[str]]:
    """The words of each text."""
    for text in iterator:
        yield _WORD.findall(text)


@export("tf.contrib.learn.preprocessing.CategoricalVocabulary")
class CategoricalVocabulary:
    """Numbers for categories; 0 stands for unknown ones (``contrib.learn.preprocessing.CategoricalVocabulary``).

    Args:
      unknown_token: the name of unknown categories.
      support_reverse: keep the categories in order, for `reverse`.
    """

    def __init__(self, unknown_token: str = "<UNK>", support_reverse: bool = True) -> None:
        self._unknown_token = unknown_token
        self._mapping = {unknown_token: 0}
        self._freq: collections.Counter[str] = collections.Counter()
        self._reverse_mapping = [unknown_token] if support_reverse else []
        self._support_reverse = support_reverse
        self._frozen = False

    def __len__(self) -> int:
        return len(self._mapping)

    def freeze(self, freeze: bool = True) -> None:
        """Gives unknown categories no number from now on, or again."""
        self._frozen = freeze

    def get(self, category: str) -> int:
        """The number of a category: a new one, unless the vocabulary is frozen."""
        if category not in self._mapping:
            if self._frozen:
                return 0
            self._mapping[category] = len(self._mapping)
            if self._support_reverse:
                self._reverse_mapping.append(category)
        return self._mapping[category]

    def add(self, category: str, count: int = 1) -> None:
        """Counts a category."""
        if self.get(category) > 0:
            self._freq[category] += count

    def trim(self, min_frequency: int, max_frequency: int = -1) -> None:
        """Keeps the categories that are more frequent than ``min_frequency``, the most frequent first."""
        kept = sorted(sorted(self._freq.items()), key=lambda item: item[1], reverse=True)
        kept = [(c, n) for c, n in kept if n > min_frequency and (max_frequency <= 0 or n < max_frequency)]
        names = [self._unknown_token, *(category for category, _ in kept)]
        self._mapping = {category: number for number, category in enumerate(names)}
        self._freq = collections.Counter(dict(kept))
        self._reverse_mapping = names if self._support_reverse else []

    def reverse(self, class_id: int) -> str:
        """The category of a number; raises ValueError without ``support_reverse``."""
        if not self._support_reverse:
            raise ValueError("This vocabulary wasn't initialized with support_reverse to support reverse() function.")
        return self._reverse_mapping[class_id]


@export("tf.contrib.learn.preprocessing.VocabularyProcessor")
class VocabularyProcessor:
    """Texts as rows of the numbers of their words (``contrib.learn.preprocessing.VocabularyProcessor``).

    Args:
      max_document_length: the length of a row; longer texts are cut, shorter ones padded with 0.
      min_frequency: words that are not more frequent are dropped after `fit`.
      vocabulary: a `CategoricalVocabulary`; default: an empty one.
      tokenizer_fn: from texts to lists of words; default: `tokenizer`.
    """

    def __init__(
        self, max_document_length: int, min_frequency: int = 0, vocabulary: CategoricalVocabulary | None = None,
        tokenizer_fn: Callable[..., Any] | None = None,
    ) -> None:  # fmt: skip
        self.max_document_length, self.min_frequency = max_document_length, min_frequency
        self.vocabulary_ = vocabulary if vocabulary is not None else CategoricalVocabulary()
        self._tokenizer = tokenizer_fn or tokenizer

    def fit(self, raw_documents: Iterable[str], unused_y: object = None) -> VocabularyProcessor:
        """Learns the words of the texts."""
        for words in self._tokenizer(raw_documents):
            for word in words:
                self.vocabulary_.add(word)
        if self.min_frequency > 0:
            self.vocabulary_.trim(self.min_frequency)
        self.vocabulary_.freeze()
        return self

    def fit_transform(self, raw_documents: Iterable[str], unused_y: object = None) -> Iterator[np.ndarray]:
        """`fit`, then `transform`."""
        self.fit(raw_documents)
        return self.transform(raw_documents)

    def transform(self, raw_documents: Iterable[str]) -> Iterator[np.ndarray]:
        """The int64 row of each text."""
        for words in self._tokenizer(raw_documents):
            row = np.zeros(self.max_document_length, np.int64)
            numbers = [self.vocabulary_.get(word) for word in words[: self.max_document_length]]
            row[: len(numbers)] = numbers
            yield row

    def reverse(self, documents: Iterable[Iterable[int]]) -> Iterator[str]:
        """The text of each row."""
        for row in documents:
            yield " ".join(self.vocabulary_.reverse(int(number)) for number in row)

    def save(self, filename: str) -> None:
        """Writes the settings and the vocabulary as JSON; TensorFlow pickles them."""
        words = self.vocabulary_
        state = [self.max_document_length, self.min_frequency, list(words._mapping), dict(words._freq)]
        with GFile(filename, "w") as file:
            file.write(json.dumps(state))

    @classmethod
    def restore(cls, filename: str) -> VocabularyProcessor:
        """Reads what `save` has written; raises ValueError for a file of TensorFlow, which would run code."""
        what = f"{filename} was not written by tfmini's VocabularyProcessor.save"
        with errors.reading(what, ValueError, also_own=True):
            with GFile(filename, "r") as file:
                length, least, names, counts = json.loads(file.read())
            made = cls(length, least)
            made.vocabulary_._mapping = {name: number for number, name in enumerate(names)}
            made.vocabulary_._reverse_mapping, made.vocabulary_._freq = names, collections.Counter(counts)
        made.vocabulary_.freeze()
        return made


@export("tf.contrib.learn.preprocessing.ByteProcessor")
class ByteProcessor:
    """Texts as rows of their bytes (``contrib.learn.preprocessing.ByteProcessor``).

    Args:
      max_document_length: the length of a row.
    """

    def __init__(self, max_document_length: int) -> None:
        self.max_document_length = max_document_length

    def fit(self, x: object) -> ByteProcessor:
        """Does nothing."""
        return self

    def fit_transform(self, x: Iterable[Any]) -> Iterator[np.ndarray]:
        """`transform`."""
        return self.transform(x)

    def transform(self, x: Iterable[Any]) -> Iterator[np.ndarray]:
        """The uint8 row of each text."""
        for text in x:
            data = text if isinstance(text, bytes) else str(text).encode()
            row = np.zeros(self.max_document_length, np.uint8)
            cut = np.frombuffer(data[: self.max_document_length], np.uint8)
            row[: len(cut)] = cut
            yield row

    def reverse(self, x: Iterable[Any]) -> Iterator[str]:
        """The text of each row, without the zeros at its end; "" for bytes that are no UTF-8."""
        for row in x:
            try:
                yield bytes(bytearray(row)).rstrip(b"\0").decode()
            except UnicodeDecodeError:  # a character was cut in two
                yield ""
