"""How much memory there is, and kernels that ask before they take it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tfmini as tf
from tfmini import memory


@pytest.mark.parametrize("text, is_limit", [("1000000\n", True), ("max\n", False), (f"{1 << 62}\n", False)])
def test_a_container_has_less(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, is_limit: bool) -> None:
    (tmp_path / "max").write_text(text)
    monkeypatch.setattr(memory, "LIMIT_FILES", ())
    machine = memory.machine_memory()
    monkeypatch.setattr(memory, "LIMIT_FILES", (str(tmp_path / "none"), str(tmp_path / "max")))
    assert memory.machine_memory() == (1_000_000 if is_limit else machine)


def test_what_a_container_uses_is_not_free(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, text in {"max": "1000000", "current": "700000", "memory.stat": "anon 5\ninactive_file 200000\n"}.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(memory, "LIMIT_FILES", (str(tmp_path / "max"),))
    monkeypatch.setattr(memory, "USED_FILES", (str(tmp_path / "current"),))
    assert memory.free_memory() == 500_000


SIZE = 1 << 26  # of float32: 256 MiB, more than there is in these tests
HUGE = {
    "ResizeBicubic": lambda n: tf.image.resize_bicubic(tf.ones([1, 1, 1, 1]), [n, 1]),
    "AvgPool3DGrad": lambda n: tf.raw_ops.AvgPool3DGrad(
        orig_input_shape=tf.stack([n, 1, 1, 1, 1]),
        grad=tf.placeholder_with_default(np.ones([1] * 5, np.float32), None),
        ksize=[1] * 5,
        strides=[1] * 5,
        padding="VALID",
    ),
    "Fill": lambda n: tf.fill([n], 1.0),
    "BroadcastTo": lambda n: tf.broadcast_to([1.0], [n]),
    "Tile": lambda n: tf.tile([1.0], [n]),
    "Range": lambda n: tf.range(n),
    "LinSpace": lambda n: tf.linspace(0.0, 1.0, n),
    "Pad": lambda n: tf.pad([1.0], [[0, n]]),
    "OneHot": lambda n: tf.one_hot([1], n),
    "MatrixDiag": lambda n: tf.linalg.diag(tf.zeros([1 << 14])),
    "eye": lambda n: tf.eye(1 << 14),
    "SequenceMask": lambda n: tf.sequence_mask([1], n),
    "RandomUniform": lambda n: tf.random_uniform([n]),
    "ScatterNd": lambda n: tf.scatter_nd([[0]], [1.0], [n]),
    "SparseToDense": lambda n: tf.sparse_to_dense([0], [n], 1.0),
    "UnsortedSegmentSum": lambda n: tf.unsorted_segment_sum([1.0], [0], n),
    "SegmentSum": lambda n: tf.segment_sum([1.0], tf.reshape(n, [1])),
    "DynamicStitch": lambda n: tf.dynamic_stitch([tf.reshape(n, [1])], [[1.0]]),
    "Conv2DBackpropInput": lambda n: tf.nn.conv2d_backprop_input(
        tf.stack([1, 1, n, 1]), np.ones((1, 1, 1, 1), np.float32), np.ones((1, 1, 1, 1), np.float32), [1] * 4, "SAME"
    ),
    "TensorArray": lambda n: tf.TensorArray(tf.float32, n).size(),
    "TensorArrayWrite": lambda n: tf.TensorArray(tf.float32, 0, dynamic_size=True).write(n, 1.0).size(),
    "SparseFillEmptyRows": lambda n: (
        tf.sparse_fill_empty_rows(tf.SparseTensor([[0, 0]], [1], tf.to_int64(tf.stack([n, 1]))), 0)[0].values
    ),
    "HistogramFixedWidth": lambda n: tf.histogram_fixed_width([1.0], [0.0, 1.0], n),
    "ResizeBilinear": lambda n: tf.image.resize_bilinear(np.ones((1, 1, 1, 1), np.float32), tf.stack([1, n])),
}


@pytest.mark.parametrize("op", HUGE)
def test_a_result_that_does_not_fit_is_refused_before_memory_is_taken(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda: 100 << 20)
    size = tf.placeholder_with_default(SIZE, [])
    with tf.Session() as session, pytest.raises(tf.errors.ResourceExhaustedError, match="OOM when allocating tensor"):
        session.run(HUGE[op](size))
