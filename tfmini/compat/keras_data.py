"""``tf.keras.datasets.mnist``: the data alone; Keras's models are out of scope."""

from __future__ import annotations

import os

import numpy as np

from tfmini import errors
from tfmini.compat import mnist_data
from tfmini.export import export

_FOLDER = os.path.join("~", ".keras", "datasets")
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
    for place in (path, os.path.join(os.path.expanduser(_FOLDER), path)):
        if os.path.isdir(place):
            return _from_folder(place)
        if os.path.exists(place):
            with errors.reading(f"{place} is no file of MNIST", ValueError), np.load(place, allow_pickle=False) as data:
                return (data["x_train"], data["y_train"]), (data["x_test"], data["y_test"])
    raise errors.NotFoundError.of(
        f"{path} is missing here and in {_FOLDER}, and tfmini downloads no data. Put mnist.npz there, or give the"
        " folder of the four IDX files."
    )


def _from_folder(folder: str) -> tuple[_Pair, _Pair]:
    paths = mnist_data._find(folder)
    names = mnist_data.TRAIN_IMAGES, mnist_data.TRAIN_LABELS, mnist_data.TEST_IMAGES, mnist_data.TEST_LABELS
    images, labels = mnist_data._images_and_labels(paths, names[0], names[1], False)
    test_images, test_labels = mnist_data._images_and_labels(paths, names[2], names[3], False)
    return (images[..., 0], labels), (test_images[..., 0], test_labels)
