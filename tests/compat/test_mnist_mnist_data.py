"""The MNIST reader: IDX files, gzipped or plain, batches and epochs; errors."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

import tfmini as tf
from tfmini.compat import mnist as mnist_data

IMAGES = np.arange(12 * 784, dtype=np.uint32).astype(np.uint8).reshape(12, 28, 28)
LABELS = (np.arange(12) % 10).astype(np.uint8)


def write(folder: Path, zipped: bool) -> None:
    images = struct.pack(">IIII", 2051, *IMAGES.shape) + IMAGES.tobytes()
    labels = struct.pack(">II", 2049, len(LABELS)) + LABELS.tobytes()
    for name, data in (
        (mnist_data.TRAIN_IMAGES, images), (mnist_data.TRAIN_LABELS, labels),
        (mnist_data.TEST_IMAGES, images), (mnist_data.TEST_LABELS, labels),
    ):  # fmt: skip
        if zipped:
            (folder / (name + ".gz")).write_bytes(gzip.compress(data))
        else:
            (folder / name).write_bytes(data)


@pytest.mark.parametrize("zipped", [True, False])
def test_the_four_files_are_read(tmp_path: Path, zipped: bool) -> None:
    write(tmp_path, zipped)
    mnist = mnist_data.read_data_sets(str(tmp_path), one_hot=True, validation_size=2)
    assert [part.num_examples for part in mnist] == [10, 2, 12]
    assert mnist.train.images.dtype == np.float32 and mnist.train.images.shape == (10, 784)
    np.testing.assert_array_equal(mnist.test.labels, np.eye(10)[LABELS])
    np.testing.assert_allclose(mnist.test.images, IMAGES.reshape(12, 784) / 255.0, rtol=1e-6)


def test_batches_go_through_each_epoch_once(tmp_path: Path) -> None:
    write(tmp_path, True)
    train = mnist_data.read_data_sets(tmp_path, validation_size=0, seed=3, dtype=tf.uint8, reshape=False).train
    seen = [train.next_batch(5) for _ in range(5)]
    assert train.epochs_completed == 2
    labels = np.concatenate([labels for _, labels in seen])
    for epoch in (labels[:12], labels[12:24]):
        assert sorted(epoch) == sorted(LABELS)
    assert not np.array_equal(labels[:12], labels[12:24])
    assert seen[0][0].shape == (5, 28, 28, 1) and seen[0][0].dtype == np.uint8


def test_without_shuffling_the_order_stays(tmp_path: Path) -> None:
    write(tmp_path, True)
    train = mnist_data.read_data_sets(tmp_path, validation_size=0).train
    labels = np.concatenate([train.next_batch(8, shuffle=False)[1] for _ in range(3)])
    np.testing.assert_array_equal(labels, np.concatenate([LABELS, LABELS]))


def test_fake_data_needs_no_files() -> None:
    images, labels = mnist_data.read_data_sets("/nowhere", fake_data=True, one_hot=True).train.next_batch(2, True)
    assert np.shape(images) == (2, 784) and labels == [[1] + [0] * 9] * 2


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(tf.errors.NotFoundError, match="train-images-idx3-ubyte.gz.*downloads no data"):
        mnist_data.read_data_sets(str(tmp_path))


def test_other_files_are_refused(tmp_path: Path) -> None:
    write(tmp_path, False)
    (tmp_path / mnist_data.TRAIN_LABELS).write_bytes(b"\0" * 20)
    with pytest.raises(ValueError, match="Invalid magic number 0 in MNIST label file"):
        mnist_data.read_data_sets(tmp_path)
    write(tmp_path, False)
    (tmp_path / mnist_data.TRAIN_LABELS).write_bytes(struct.pack(">II", 2049, 12))
    with pytest.raises(ValueError, match="is truncated"):
        mnist_data.read_data_sets(tmp_path)


def test_damaged_archives_are_refused_with_one_class(tmp_path: Path) -> None:
    whole = gzip.compress(struct.pack(">IIII", 2051, 1, 2, 2) + bytes(4))
    path = tmp_path / "x"
    for content in (whole[:-9], whole[:12], whole[:15] + b"\xff\xff" + whole[17:], b"\x1f\x8bx"):
        path.write_bytes(content)
        with open(path, "rb") as file, pytest.raises(ValueError, match="MNIST image file .*x"):
            mnist_data.extract_images(file)
    with pytest.raises(ValueError, match="A label is 12, but there are 10 classes"):
        mnist_data.dense_to_one_hot(np.array([12], np.uint8), 10)


def test_validation_size_must_fit(tmp_path: Path) -> None:
    write(tmp_path, False)
    with pytest.raises(ValueError, match="between 0 and 12"):
        mnist_data.read_data_sets(tmp_path)


def test_the_model_of_the_tutorial_learns() -> None:
    model = tf.examples.tutorials.mnist.mnist
    tf.set_random_seed(1)
    images = tf.constant(IMAGES.reshape(12, 784) / 255.0, tf.float32)
    logits = model.inference(images, 8, 8)
    loss = model.loss(logits, LABELS.astype(np.int32))
    step = model.training(loss, 0.05)
    right = model.evaluation(logits, LABELS.astype(np.int32))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        first = sess.run(loss)
        for _ in range(5):
            sess.run(step)
        assert sess.run(loss) < first
        assert 0 <= sess.run(right) <= 12
    names = [v.op.name for v in tf.trainable_variables()]
    assert names[:2] == ["hidden1/weights", "hidden1/biases"] and names[-1] == "softmax_linear/biases"
