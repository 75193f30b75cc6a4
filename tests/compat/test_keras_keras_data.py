"""``tf.keras.datasets.mnist`` reads files that are there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tfmini as tf


def test_mnist_is_read_from_a_file(tmp_path: Path) -> None:
    images, labels = np.arange(2 * 28 * 28).reshape(2, 28, 28).astype(np.uint8), np.array([3, 4], np.uint8)
    np.savez(tmp_path / "mnist.npz", x_train=images, y_train=labels, x_test=images[:1], y_test=labels[:1])
    (x, y), (x_test, y_test) = tf.keras.datasets.mnist.load_data(str(tmp_path / "mnist.npz"))
    assert x.shape == (2, 28, 28) and y.tolist() == [3, 4] and x_test.shape == (1, 28, 28) and y_test.tolist() == [3]
    with pytest.raises(tf.errors.NotFoundError, match="downloads no data"):
        tf.keras.datasets.mnist.load_data(str(tmp_path / "absent.npz"))
    with pytest.raises(tf.errors.NotFoundError, match="MNIST files missing"):
        tf.keras.datasets.mnist.load_data(str(tmp_path))
