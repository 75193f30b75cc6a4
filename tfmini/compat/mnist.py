"""MNIST as in ``tensorflow.examples.tutorials.mnist.input_data``: reads four IDX files from a directory.

It downloads nothing; if a file is missing, the error names it and its directory.
"""

from __future__ import annotations

import csv
import gzip
import math
import os
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from tfmini import dtypes, errors
from tfmini.compat.file_io import GFile, local_path
from tfmini.core_types import DTypeLike, PathLike, TensorLike
from tfmini.export import export, export_names
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import get_seed, name_scope
from tfmini.layers.losses import sparse_softmax_cross_entropy
from tfmini.numerics.images import check_inflated, inflate_limit
from tfmini.ops.array.filling import zeros
from tfmini.ops.array.identity import cast
from tfmini.ops.math.elementwise import add
from tfmini.ops.math.matmul import matmul
from tfmini.ops.math.reductions import reduce_sum
from tfmini.ops.math.search import in_top_k
from tfmini.ops.nn.activation import relu
from tfmini.ops.random_functions import truncated_normal
from tfmini.ops.summary import scalar
from tfmini.ops.variables.base import Variable
from tfmini.train.optimizers.fused_optimizer import GradientDescentOptimizer

DEFAULT_SOURCE_URL = ""
TRAIN_IMAGES, TRAIN_LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
TEST_IMAGES, TEST_LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
_GZIP = b"\x1f\x8b"
_IMAGE_MAGIC, _LABEL_MAGIC = 2051, 2049


@export(
    "tf.contrib.learn.datasets.base.Datasets",
    "tf.contrib.learn.datasets.mnist.Datasets",
    "tf.examples.tutorials.mnist.input_data.Datasets",
)
class Datasets(NamedTuple):
    """The training, validation and test sets (``contrib.learn.datasets.base.Datasets``)."""

    train: Any
    validation: Any
    test: Any


@export("tf.contrib.learn.datasets.base.Dataset")
class Dataset(NamedTuple):
    """Inputs and their targets (``contrib.learn.datasets.base.Dataset``)."""

    data: Any
    target: Any


@export("tf.contrib.learn.datasets.mnist.DataSet", "tf.examples.tutorials.mnist.input_data.DataSet")
class DataSet:
    """Images and labels; `next_batch` repeats them without end.

    Args:
      images: uint8 ``[n, rows, columns, 1]``.
      labels: ``[n]``, or ``[n, classes]`` if they are one-hot.
      fake_data: return constants; ``images`` and ``labels`` are ignored.
      one_hot: whether fake labels are one-hot.
      dtype: uint8 keeps the images unchanged, float32 scales them to 0…1.
      reshape: flatten each image.
      seed: of NumPy's global generator, which shuffles; default: from the graph's seed.

    Raises:
      TypeError: for another dtype.
      ValueError: when images and labels differ in number, or images cannot be flattened.
    """

    def __init__(
        self,
        images: Any,
        labels: Any,
        fake_data: bool = False,
        one_hot: bool = False,
        dtype: DTypeLike = dtypes.float32,
        reshape: bool = True,
        seed: int | None = None,
    ) -> None:
        graph_seed, op_seed = get_seed(seed)
        np.random.seed(graph_seed if seed is None else op_seed)
        wanted = dtypes.as_dtype(dtype).base_dtype
        if wanted not in (dtypes.uint8, dtypes.float32):
            raise TypeError(f"Invalid image dtype {wanted!r}, expected uint8 or float32")
        if fake_data:
            self._num_examples, self.one_hot = 10000, one_hot
        else:
            images = _checked(images, labels, reshape)
            self._num_examples = images.shape[0]
            if wanted is dtypes.float32:
                images = images.astype(np.float32) * np.float32(1.0 / 255.0)
        self._images, self._labels = images, labels
        self._epochs_completed = self._index_in_epoch = 0

    @property
    def images(self) -> Any:
        """All images, in the order of the current epoch."""
        return self._images

    @property
    def labels(self) -> Any:
        """All labels, in the same order."""
        return self._labels

    @property
    def num_examples(self) -> int:
        return self._num_examples

    @property
    def epochs_completed(self) -> int:
        """The number of completed epochs."""
        return self._epochs_completed

    def next_batch(self, batch_size: int, fake_data: bool = False, shuffle: bool = True) -> tuple[Any, Any]:
        """(images, labels) of the next ``batch_size`` examples; a batch may span two epochs.

        With ``shuffle``, each epoch has another order.
        """
        if fake_data:
            label = [1] + [0] * 9 if self.one_hot else 0
            return [[1] * 784 for _ in range(batch_size)], [label for _ in range(batch_size)]
        start = self._index_in_epoch
        if shuffle and start == 0 and self._epochs_completed == 0:
            self._shuffle()
        end = start + batch_size
        if end <= self._num_examples:
            self._index_in_epoch = end
            return self._images[start:end], self._labels[start:end]
        rest = self._images[start:], self._labels[start:]
        self._epochs_completed += 1
        if shuffle:
            self._shuffle()
        end = self._index_in_epoch = end - self._num_examples
        return (
            np.concatenate((rest[0], self._images[:end]), axis=0),
            np.concatenate((rest[1], self._labels[:end]), axis=0),
        )

    def _shuffle(self) -> None:
        order = np.arange(self._num_examples)
        np.random.shuffle(order)
        self._images, self._labels = self._images[order], self._labels[order]


def _checked(images: Any, labels: Any, reshape: bool) -> Any:
    if images.shape[0] != labels.shape[0]:
        raise ValueError(f"images.shape: {images.shape} labels.shape: {labels.shape}")
    if not reshape:
        return images
    if images.shape[3] != 1:
        raise ValueError(f"Only images of one channel can be flattened, got {images.shape}")
    return images.reshape(images.shape[0], images.shape[1] * images.shape[2])


@export("tf.contrib.learn.datasets.mnist.read_data_sets", "tf.examples.tutorials.mnist.input_data.read_data_sets")
def read_data_sets(
    train_dir: PathLike,
    fake_data: bool = False,
    one_hot: bool = False,
    dtype: DTypeLike = dtypes.float32,
    reshape: bool = True,
    validation_size: int = 5000,
    seed: int | None = None,
    source_url: str = DEFAULT_SOURCE_URL,
) -> Datasets:
    """Reads MNIST from the four IDX files, gzipped or plain, in ``train_dir``.

    Args:
      train_dir: the directory; nothing is written or downloaded.
      fake_data: read nothing and return constants.
      one_hot: labels as float64 ``[n, 10]``.
      dtype, reshape, seed: as for `DataSet`.
      validation_size: the number of training images in the validation set.
      source_url: ignored.

    Raises:
      NotFoundError: when files are missing, with their names and a source.
      ValueError: for a file in another format or an impossible ``validation_size``.
    """
    if fake_data:
        fake = [DataSet([], [], True, one_hot, dtype, seed=seed) for _ in range(3)]
        return Datasets(*fake)
    folder = local_path(train_dir)
    paths = _find(folder)
    train_images, train_labels = _images_and_labels(paths, TRAIN_IMAGES, TRAIN_LABELS, one_hot)
    test_images, test_labels = _images_and_labels(paths, TEST_IMAGES, TEST_LABELS, one_hot)
    if not 0 <= validation_size <= len(train_images):
        raise ValueError(f"Validation size should be between 0 and {len(train_images)}. Received: {validation_size}.")
    cut = validation_size
    parts = (
        (train_images[cut:], train_labels[cut:]),
        (train_images[:cut], train_labels[:cut]),
        (test_images, test_labels),
    )
    return Datasets(*(DataSet(*part, dtype=dtype, reshape=reshape, seed=seed) for part in parts))


@export("tf.contrib.learn.datasets.mnist.load_mnist")
def load_mnist(train_dir: PathLike = "MNIST-data") -> Datasets:
    """`read_data_sets` with all defaults (``contrib.learn.datasets.mnist.load_mnist``)."""
    return read_data_sets(train_dir)


@export(
    "tf.contrib.learn.datasets.base.maybe_download",
    "tf.contrib.learn.datasets.mnist.maybe_download",
    "tf.examples.tutorials.mnist.input_data.maybe_download",
)
def maybe_download(filename: str, work_directory: PathLike, source_url: str = "") -> str:
    """The path of an existing file (``base.maybe_download``); raises NotFoundError if it is missing."""
    path = os.path.join(local_path(work_directory), filename)
    if not os.path.exists(path):
        raise errors.NotFoundError.of(f"{path} is missing, and tfmini downloads no data; put the file there.")
    return path


def _find(folder: str) -> dict[str, str]:
    found = {}
    for name in (TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS):
        # The plain files of some sources have a dot in place of a hyphen.
        spellings = [name + ".gz", name, name.replace("-idx", ".idx"), name.replace("-idx", ".idx") + ".gz"]
        paths = [os.path.join(folder, spelling) for spelling in spellings]
        found[name] = next((path for path in paths if os.path.exists(path)), "")
    missing = [f"{name}.gz" for name, path in found.items() if not path]
    if missing:
        raise errors.NotFoundError.of(
            f"MNIST files missing in {os.path.abspath(folder)}: {', '.join(missing)}. tfmini downloads no data; put"
            " the four IDX files (gzipped or plain) there, for example from"
            " https://storage.googleapis.com/cvdf-datasets/mnist/ ."
        )
    return found


def _images_and_labels(paths: dict[str, str], images: str, labels: str, one_hot: bool) -> tuple[Any, Any]:
    with open(paths[images], "rb") as file:
        pictures = extract_images(file)
    with open(paths[labels], "rb") as file:
        return pictures, extract_labels(file, one_hot=one_hot)


@export("tf.contrib.learn.datasets.mnist.extract_images", "tf.examples.tutorials.mnist.input_data.extract_images")
def extract_images(f: BinaryIO) -> np.ndarray:
    """Reads an IDX file of images as uint8 ``[n, rows, columns, 1]``; raises ValueError for another file."""
    print("Extracting", f.name)
    data = _uncompressed(f, 16, _IMAGE_MAGIC, "image")
    count, rows, columns = np.frombuffer(data, ">u4", 3, 4).tolist()
    _check_length(f, data, 16 + count * rows * columns)
    return np.frombuffer(data, np.uint8, count * rows * columns, 16).reshape(count, rows, columns, 1)


@export("tf.contrib.learn.datasets.mnist.extract_labels", "tf.examples.tutorials.mnist.input_data.extract_labels")
def extract_labels(f: BinaryIO, one_hot: bool = False, num_classes: int = 10) -> Any:
    """Reads an IDX file of labels as uint8 ``[n]``, or one-hot; raises ValueError for another file."""
    print("Extracting", f.name)
    data = _uncompressed(f, 8, _LABEL_MAGIC, "label")
    (count,) = np.frombuffer(data, ">u4", 1, 4).tolist()
    _check_length(f, data, 8 + count)
    labels = np.frombuffer(data, np.uint8, count, 8)
    return dense_to_one_hot(labels, num_classes) if one_hot else labels


def _uncompressed(f: BinaryIO, header: int, magic: int, kind: str) -> bytes:
    data = f.read()
    if data[:2] == _GZIP:
        f.seek(0)
        with errors.reading(f"The MNIST {kind} file {f.name}", ValueError), gzip.GzipFile(fileobj=f) as file:
            try:
                data = file.read(inflate_limit() + 1)
            except gzip.BadGzipFile as error:
                raise ValueError(f"The MNIST {kind} file {f.name}: {error}") from None
        check_inflated(len(data), f"The MNIST {kind} file {f.name}")
    found = int.from_bytes(data[:4], "big")
    if found != magic or len(data) < header:
        raise ValueError(f"Invalid magic number {found} in MNIST {kind} file: {f.name}")
    return data


def _check_length(f: BinaryIO, data: bytes, wanted: int) -> None:
    if len(data) < wanted:
        raise ValueError(f"{f.name} is truncated: {len(data)} bytes of {wanted}")


@export("tf.contrib.learn.datasets.mnist.dense_to_one_hot", "tf.examples.tutorials.mnist.input_data.dense_to_one_hot")
def dense_to_one_hot(labels_dense: np.ndarray, num_classes: int) -> Any:
    """Class numbers as rows of a float64 unit matrix (``tf.examples.tutorials.mnist.input_data.dense_to_one_hot``).

    Raises:
      ValueError: a label is no class.
    """
    if labels_dense.size and not 0 <= labels_dense.min() <= labels_dense.max() < num_classes:
        raise ValueError(f"A label is {labels_dense.max()}, but there are {num_classes} classes")
    return np.eye(num_classes)[labels_dense.ravel()]


# ---- ``tensorflow.examples.tutorials.mnist.mnist``: the two-layer model of TensorFlow's first tutorial -------------

NUM_CLASSES = 10
IMAGE_SIZE = 28
IMAGE_PIXELS = IMAGE_SIZE * IMAGE_SIZE


def _layer(inputs: TensorLike, width: int, units: int, name: str) -> Tensor:
    with name_scope(name):
        deviation = 1.0 / math.sqrt(float(width))
        weights = Variable(truncated_normal([width, units], stddev=deviation), name="weights")
        biases = Variable(zeros([units]), name="biases")
        return add(matmul(inputs, weights), biases)


@export("tf.examples.tutorials.mnist.mnist.inference")
def inference(images: TensorLike, hidden1_units: int, hidden2_units: int) -> Tensor:
    """Logits ``[batch, 10]`` of images ``[batch, 784]`` (``tf.examples.tutorials.mnist.mnist.inference``)."""
    hidden1 = relu(_layer(images, IMAGE_PIXELS, hidden1_units, "hidden1"))
    hidden2 = relu(_layer(hidden1, hidden1_units, hidden2_units, "hidden2"))
    return _layer(hidden2, hidden2_units, NUM_CLASSES, "softmax_linear")


@export("tf.examples.tutorials.mnist.mnist.loss")
def loss(logits: TensorLike, labels: TensorLike) -> Tensor:
    """The mean cross entropy of int labels ``[batch]`` (``tf.examples.tutorials.mnist.mnist.loss``)."""
    return sparse_softmax_cross_entropy(labels=cast(labels, dtypes.int64), logits=logits)


@export("tf.examples.tutorials.mnist.mnist.training")
def training(loss: TensorLike, learning_rate: TensorLike) -> Operation:
    """Makes an op for a step of gradient descent that also increments a new variable ``global_step``."""
    scalar("loss", loss)
    global_step = Variable(0, name="global_step", trainable=False)
    return GradientDescentOptimizer(learning_rate).minimize(loss, global_step=global_step)


@export("tf.examples.tutorials.mnist.mnist.evaluation")
def evaluation(logits: TensorLike, labels: TensorLike) -> Tensor:
    """The number of correct predictions in a batch, int32 (``tf.examples.tutorials.mnist.mnist.evaluation``)."""
    return reduce_sum(cast(in_top_k(logits, labels, 1), dtypes.int32))


export_names("tf.examples.tutorials.mnist.mnist", "IMAGE_PIXELS IMAGE_SIZE NUM_CLASSES")


# ---- ``tf.contrib.learn.datasets``: MNIST by its name, and files of comma-separated numbers ------------------------

_LOADERS = {"mnist": load_mnist}


@export("tf.contrib.learn.datasets.load_dataset")
def load_dataset(name: str, size: str = "small", test_with_fake_data: bool = False) -> Any:
    """A data set by its name (``tf.contrib.learn.datasets.load_dataset``): "mnist", from the folder ``MNIST-data``.

    Raises:
      ValueError: for another name.
      NotFoundError: its files are missing; tfmini downloads no data.
    """
    if name not in _LOADERS:
        raise ValueError(f"Name of dataset is not found: {name}. tfmini has {', '.join(_LOADERS)}.")
    return _LOADERS[name]()


def _column(rows: list[list[str]], target_column: int, types: tuple[Any, Any]) -> Dataset:
    targets = [row.pop(target_column) for row in rows]
    return Dataset(np.array(rows, dtype=types[1]), np.array(targets, dtype=types[0]))


@export("tf.contrib.learn.datasets.base.load_csv_with_header")
def load_csv_with_header(
    filename: str, target_dtype: DTypeLike, features_dtype: DTypeLike, target_column: int = -1
) -> Dataset:
    """A table whose first line begins with the number of rows (``contrib.learn.datasets.base.load_csv_with_header``).

    Args:
      filename: the file.
      target_dtype, features_dtype: NumPy's types of the targets and of the other columns.
      target_column: the column with the targets.

    Returns:
      A `Dataset`: ``data`` [rows, columns - 1], ``target`` [rows].
    """
    with GFile(filename) as file:
        lines = csv.reader(file)
        count = int(next(lines)[0])
        rows = [row for row in lines if row][:count]
    return _column(rows, target_column, (target_dtype, features_dtype))


@export("tf.contrib.learn.datasets.base.load_csv_without_header")
def load_csv_without_header(
    filename: str, target_dtype: DTypeLike, features_dtype: DTypeLike, target_column: int = -1
) -> Dataset:
    """A table without a header; see `load_csv_with_header`."""
    with GFile(filename) as file:
        rows = [row for row in csv.reader(file) if row]
    return _column(rows, target_column, (target_dtype, features_dtype))
