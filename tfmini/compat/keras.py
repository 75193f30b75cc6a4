"""``tf.keras.datasets`` and what else needs no Keras to be imported, or stands for something of it elsewhere."""

from __future__ import annotations

import hashlib
import os
import tarfile
import tempfile
import urllib.request
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfmini import errors
from tfmini.compat import mnist
from tfmini.core_types import PathLike, TensorLike
from tfmini.export import export

_DATA_FOLDER = os.path.join("~", ".keras", "datasets")
_Pair = tuple[np.ndarray, np.ndarray]


@export("tf.keras.datasets.mnist.load_data")
def load_data(path: str = "mnist.npz") -> tuple[_Pair, _Pair]:
    """(images, labels) of MNIST to train and to test with, as uint8 arrays (``tf.keras.datasets.mnist.load_data``).

    Args:
      path: the ``.npz`` file, or a folder with the four IDX files; a relative one is sought in the working
        directory and in ``~/.keras/datasets``.

    Raises:
      NotFoundError: it is in neither; tfmini downloads no data.
    """
    for place in (path, os.path.join(os.path.expanduser(_DATA_FOLDER), path)):
        if os.path.isdir(place):
            return _from_folder(place)
        if os.path.exists(place):
            with errors.reading(f"{place} is no file of MNIST", ValueError), np.load(place, allow_pickle=False) as data:
                return (data["x_train"], data["y_train"]), (data["x_test"], data["y_test"])
    raise errors.NotFoundError.of(
        f"{path} is missing here and in {_DATA_FOLDER}, and tfmini downloads no data. Put mnist.npz there, or give the"
        " folder of the four IDX files."
    )


def _from_folder(folder: str) -> tuple[_Pair, _Pair]:
    paths = mnist._find(folder)
    names = mnist.TRAIN_IMAGES, mnist.TRAIN_LABELS, mnist.TEST_IMAGES, mnist.TEST_LABELS
    images, labels = mnist._images_and_labels(paths, names[0], names[1], False)
    test_images, test_labels = mnist._images_and_labels(paths, names[2], names[3], False)
    return (images[..., 0], labels), (test_images[..., 0], test_labels)


# ---- ``tf.keras.utils.get_file`` and ``to_categorical``: programs without Keras use them to get their data ---------

_CACHE_FOLDER = os.path.join("~", ".keras")
_SHA256_LENGTH = 64


@export("tf.keras.utils.get_file")
def get_file(
    fname: str,
    origin: str,
    untar: bool = False,
    md5_hash: str | None = None,
    file_hash: str | None = None,
    cache_subdir: str = "datasets",
    hash_algorithm: str = "auto",
    extract: bool = False,
    archive_format: str | Sequence[str] = "auto",
    cache_dir: str | None = None,
) -> str:
    """Downloads a file, unless it is there (``tf.keras.utils.get_file``).

    Args:
      fname: the file's name, or its path.
      origin: its URL.
      untar, extract: unpack the archive beside it; with ``untar`` the archive is ``fname`` with ``.tar.gz``.
      md5_hash, file_hash: its digest, in hexadecimal; a file with another one is downloaded again.
      cache_subdir: the folder below ``cache_dir``.
      hash_algorithm: "md5", "sha256" or "auto", which tells them by their length.
      archive_format: ignored: tar and zip archives are known by their content.
      cache_dir: default: ``~/.keras``.

    Returns:
      The path of the file; with ``untar`` that of what it unpacked.

    Raises:
      Exception: the download failed; the message names the URL.
      ValueError: it has another digest.
    """
    folder = os.path.join(os.path.expanduser(cache_dir or _CACHE_FOLDER), cache_subdir)
    os.makedirs(folder, exist_ok=True)
    digest = file_hash or md5_hash
    algorithm = "sha256" if hash_algorithm == "sha256" or digest and len(digest) == _SHA256_LENGTH else "md5"
    target = os.path.join(folder, fname)
    path = f"{target}.tar.gz" if untar else target
    if not os.path.exists(path) or digest and _digest(path, algorithm) != digest:
        _download(origin, path)
        if digest and _digest(path, algorithm) != digest:
            raise ValueError(f"{origin} has another {algorithm} than {digest}: it has changed, or arrived broken.")
    if untar and not os.path.exists(target) or extract:
        _unpack(path, folder)
    return target


def _download(origin: str, path: str) -> None:
    """Fetches a file; nothing is left at its place if that fails."""
    print(f"Downloading data from {origin}")
    handle, part = tempfile.mkstemp(dir=os.path.dirname(path))
    os.close(handle)
    try:
        urllib.request.urlretrieve(origin, part)
        os.replace(part, path)
    except OSError as error:
        raise Exception(f"URL fetch failure on {origin}: {error}. Put the file at {path}.") from error
    finally:
        if os.path.exists(part):
            os.remove(part)


def _digest(path: str, algorithm: str) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def _unpack(path: str, folder: str) -> None:
    if tarfile.is_tarfile(path):
        with tarfile.open(path) as tar:
            tar.extractall(folder, filter="data")  # refuses members outside of the folder
    elif zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            archive.extractall(folder)


@export("tf.keras.utils.to_categorical")
def to_categorical(y: TensorLike, num_classes: int | None = None, dtype: Any = "float32") -> np.ndarray:
    """Class numbers as rows with a one (``tf.keras.utils.to_categorical``).

    Args:
      y: integers, of any shape; a last dimension of one is dropped.
      num_classes: length of the rows; default: the largest number and one.
      dtype: of the result.
    """
    numbers = np.asarray(y, dtype="int")
    shape = numbers.shape[:-1] if numbers.ndim > 1 and numbers.shape[-1] == 1 else numbers.shape
    classes = num_classes or int(numbers.max()) + 1
    rows: np.ndarray = np.eye(classes, dtype=dtype)[numbers.ravel()].reshape(*shape, classes)
    return rows


@export("tf.contrib.saved_model.save_keras_model")
def save_keras_model(
    model: Any, saved_model_path: PathLike, custom_objects: Any = None, as_text: bool = False,
    input_signature: Any = None, serving_only: bool = False,
) -> None:  # fmt: skip
    """`tf.keras.experimental.export_saved_model` under its older name (``tf.contrib.saved_model.save_keras_model``).

    Args:
      model: of ``tf.keras``.
      saved_model_path: a directory that is empty or does not exist.
      custom_objects, as_text, input_signature, serving_only: without effect.

    Raises:
      ValueError: the model has no inputs yet.
    """
    _experimental("export_saved_model")(model, saved_model_path)


@export("tf.contrib.saved_model.load_keras_model")
def load_keras_model(saved_model_path: PathLike, custom_objects: Any = None) -> Any:
    """`tf.keras.experimental.load_from_saved_model` under its older name (``tf.contrib.saved_model.load_keras_model``).

    Args:
      saved_model_path: the directory.
      custom_objects: classes and functions of the model by name.

    Raises:
      NotFoundError: the file has no layers as JSON.
    """
    return _experimental("load_from_saved_model")(saved_model_path, custom_objects)


def _experimental(name: str) -> Any:
    from tfmini.compat.tf_keras.names import find  # which imports Keras

    return find("keras.experimental", name)
