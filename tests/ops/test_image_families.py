"""Images, boxes, diagonals, stateless random values, Einsum and CTC: against TensorFlow, and by what must hold."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import numpy as np
import pytest

import tfmini as tf

IMAGES = "tf.reshape(tf.sin(tf.range(288.)) / 2 + .5, [2, 12, 12, 1])"
OTHERS = "tf.reshape(tf.cos(tf.range(288.)) / 2 + .5, [2, 12, 12, 1])"
RGB = "tf.reshape(tf.sin(tf.range(24.)) / 2 + .5, [2, 4, 3])"
BOXES = "[[0., 0., .5, .5], [.1, .1, .6, .6], [.5, .5, 1., .9], [0., .2, .4, .7]]"
SCORES = "[.9, .8, .7, .95]"
SQUARE = "[[[4., 1., 0.], [1., 3., .5], [0., .5, 2.]]]"
LOGITS = "tf.reshape(tf.sin(tf.range(40.)), [5, 2, 4])"
LABELS = "tf.SparseTensor([[0, 0], [0, 1], [1, 0]], tf.constant([1, 1, 2]), [2, 2])"
CASES = [
    f"tf.image.rgb_to_yiq({RGB})", f"tf.image.yiq_to_rgb({RGB})", f"tf.image.rgb_to_yuv({RGB})",
    f"tf.image.yuv_to_rgb({RGB})", f"tf.image.sobel_edges({IMAGES})", f"tf.image.total_variation({IMAGES})",
    f"tf.image.image_gradients({IMAGES})[0]", f"tf.image.psnr({IMAGES}, {OTHERS}, 1.0)",
    f"tf.image.ssim({IMAGES}, {OTHERS}, 1.0)",
    f"tf.image.crop_and_resize({IMAGES}, {BOXES}, [0, 1, 0, 1], [3, 4])",
    f"tf.image.crop_and_resize({IMAGES}, {BOXES}, [0, 1, 0, 1], [1, 2], 'nearest', 7.0)",
    f"tf.image.non_max_suppression({BOXES}, {SCORES}, 3, .3)",
    f"tf.image.non_max_suppression_padded({BOXES}, {SCORES}, 4, .3, .5, True)[0]",
    f"tf.image.non_max_suppression_with_scores({BOXES}, {SCORES}, 4, .9, .1, .5)[1]",
    f"tf.linalg.sqrtm({SQUARE})", f"tf.linalg.expm({SQUARE})",
    "tf.raw_ops.MatrixDiagV2(diagonal=[[1., 2., 0.], [3., 4., 5.]], k=[0, 1], num_rows=-1, num_cols=-1,"
    " padding_value=9.)",
    "tf.raw_ops.MatrixDiagPartV2(input=[[1., 2., 3., 4.], [5., 6., 7., 8.]], k=[-1, 2], padding_value=9.)",
    "tf.raw_ops.MatrixSetDiagV2(input=tf.zeros([3, 3]), diagonal=[1., 2.], k=-1)",
    "tf.random.stateless_uniform([5], [1, 2])", "tf.random.stateless_normal([5], [-1, 2**40], dtype=tf.float64)",
    "tf.random.stateless_truncated_normal([5], [3, 4])", "tf.random.stateless_uniform([5], [3, 4], -5, 9, tf.int32)",
    "tf.raw_ops.Einsum(inputs=[[[1., 2.], [3., 4.]]], equation='ii->i')",
    "tf.raw_ops.Einsum(inputs=[tf.ones([2, 3, 4]), tf.ones([4, 5])], equation='...ij,jk->...ik')",
    f"tf.nn.ctc_loss({LABELS}, {LOGITS}, [5, 4])",
    f"tf.gradients(tf.nn.ctc_loss({LABELS}, tf.identity({LOGITS}), [5, 4]), [])",
    f"tf.nn.ctc_greedy_decoder({LOGITS}, [5, 4])[1]", f"tf.nn.ctc_greedy_decoder({LOGITS}, [5, 4])[0][0].values",
    f"tf.nn.ctc_beam_search_decoder({LOGITS}, [5, 4], 8, 3)[1]",
    f"tf.nn.ctc_beam_search_decoder({LOGITS}, [5, 4], 8, 3)[0][1].values",
    "tf.nn.ctc_loss_v2(tf.constant([[1, 1], [2, 0]]), " + LOGITS + ", [2, 1], [5, 4], blank_index=0)",
    "tf.nn.ctc_unique_labels([[3, 4, 4, 3], [1, 1, 1, 1]])[0]",
    "tf.nn.collapse_repeated([[3, 4, 4, 3], [1, 1, 1, 1]], [4, 3])[0]",
    "tf.log_sigmoid([-100., 0., 3.])", "tf.gradients(tf.log_sigmoid(X), X)[0]", "tf.gradients(tf.sign(X), X)[0]",
    "tf.raw_ops.MaxPoolV2(input=" + IMAGES + ", ksize=[1, 2, 3, 1], strides=[1, 2, 2, 1], padding='SAME')",
    "tf.reshape(tf.zeros([0, 6]), [0, -1, 3])", "tf.pad([[1, 2]], [[0, 1], [1, 0]], constant_values=-3)",
]  # fmt: skip
CASES = [case for case in CASES if not case.endswith("[])")]
SCRIPT = """
import json, sys, numpy as np
import tensorflow.compat.v1 as tf
tf.disable_v2_behavior()
X = tf.constant([-1.0, 0.0, 2.0])
with tf.Session() as session:
    print(json.dumps([np.asarray(session.run(eval(case))).tolist() for case in json.load(sys.stdin)]))
"""


def run(*values: Any) -> Any:
    with tf.Session() as session:
        return session.run(list(values)) if len(values) > 1 else session.run(values[0])


@pytest.fixture(scope="module")
def answers(oracle: str) -> dict[str, Any]:
    done = subprocess.run(
        [oracle, "-c", SCRIPT], input=json.dumps(CASES), capture_output=True, text=True, timeout=900, check=True
    )
    return dict(zip(CASES, json.loads(done.stdout)))


@pytest.mark.oracle
@pytest.mark.parametrize("case", CASES)
def test_as_tensorflow(case: str, answers: dict[str, Any]) -> None:
    value = run(eval(case, {"tf": tf, "X": tf.constant([-1.0, 0.0, 2.0])}))
    np.testing.assert_allclose(value, np.reshape(answers[case], np.shape(value)), rtol=2e-4, atol=2e-5)


def test_a_png_is_read_as_it_was_written() -> None:
    random = np.random.RandomState(0)
    for channels in (1, 2, 3, 4):
        for dtype in (np.uint8, np.uint16):
            image = random.randint(0, np.iinfo(dtype).max, (5, 7, channels)).astype(dtype)
            assert (run(tf.image.decode_png(tf.image.encode_png(image), dtype=dtype)) == image).all()
    with pytest.raises(tf.errors.InvalidArgumentError, match="Invalid PNG data"):
        run(tf.image.decode_png(b"\x89PNG\r\n\x1a\nnothing"))


def test_png_colours_are_converted() -> None:
    png = tf.image.encode_png(np.full((2, 3, 1), 7, np.uint8))
    assert run(tf.image.decode_png(png, channels=3)).tolist() == [[[7] * 3] * 3] * 2
    assert run(tf.image.decode_png(png, channels=4))[0, 0].tolist() == [7, 7, 7, 255]
    assert run(tf.image.decode_image(png, dtype=tf.float32))[0, 0, 0] == pytest.approx(7 / 255)
    assert not run(tf.image.is_jpeg(png))


@pytest.mark.parametrize("filter_kind", range(5))
def test_png_lines_of_each_filter(filter_kind: int) -> None:
    import struct
    import zlib

    from tfmini.ops import png_decoding

    pixels = np.random.RandomState(1).randint(0, 256, (4, 5, 3)).astype(np.uint8)
    flat = pixels.reshape(4, -1).astype(int)
    left = np.pad(flat, ((0, 0), (3, 0)))[:, :-3]
    up = np.pad(flat, ((1, 0), (0, 0)))[:-1]
    corner = np.pad(flat, ((1, 0), (3, 0)))[:-1, :-3]
    guess = left + up - corner
    distances = np.abs(np.stack([guess - left, guess - up, guess - corner]))
    paeth = np.choose(distances.argmin(axis=0), [left, up, corner])
    lines = (flat - [0 * flat, left, up, (left + up) // 2, paeth][filter_kind]) % 256
    body = zlib.compress(b"".join(bytes([filter_kind, *line]) for line in lines.tolist()))
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + b"\0\0\0\0"  # noqa: E731
    header = struct.pack(">IIBBBBB", 5, 4, 8, 2, 0, 0, 0)
    file = png_decoding.SIGNATURE + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
    found = png_decoding.decode(file)
    assert found is not None and (found == pixels).all()


def test_the_ctc_gradient_is_the_slope_of_the_loss() -> None:
    random = np.random.RandomState(0)
    value = random.randn(6, 2, 4)
    direction = random.randn(6, 2, 4)
    logits = tf.placeholder(tf.float64, value.shape)
    labels = tf.SparseTensor([[0, 0], [0, 1], [1, 0]], tf.constant([1, 1, 2]), [2, 2])
    for arguments in ({}, {"ctc_merge_repeated": False}, {"preprocess_collapse_repeated": True}):
        loss = tf.reduce_sum(tf.nn.ctc_loss(labels, logits, [6, 4], **arguments))
        slope = tf.reduce_sum(tf.gradients(loss, logits)[0] * direction)
        with tf.Session() as session:
            exact = session.run(slope, {logits: value})
            ahead, behind = (session.run(loss, {logits: value + sign * 1e-5 * direction}) for sign in (1, -1))
        assert exact == pytest.approx((ahead - behind) / 2e-5, rel=1e-6)


def test_ctc_labels_that_do_not_fit() -> None:
    def loss(values: list[int], lengths: list[int]) -> Any:
        labels = tf.SparseTensor([[0, 0], [0, 1], [1, 0]], tf.constant(values), [2, 2])
        return tf.nn.ctc_loss(labels, tf.zeros([5, 2, 4]), lengths)

    for values, lengths, told in (
        ([1, 2, 2], [1, 5], "Not enough time"), ([3, 1, 2], [5, 5], "following a null label"),
        ([1, -1, 2], [5, 5], "nonnegative"), ([1, 2, 2], [6, 5], "sequence_length"),
    ):  # fmt: skip
        with pytest.raises(tf.errors.InvalidArgumentError, match=told):
            run(loss(values, lengths))


def test_a_beam_wide_enough_finds_the_best_labelling() -> None:
    scores = np.log(np.random.RandomState(3).dirichlet(np.ones(3), (4, 1)))  # two labels and the blank
    totals: dict[tuple[int, ...], float] = {}
    for path in np.ndindex(*[3] * 4):
        merged = tuple(c for i, c in enumerate(path) if c != 2 and (i == 0 or path[i - 1] != c))
        totals[merged] = totals.get(merged, 0.0) + float(np.exp(sum(scores[t, 0, c] for t, c in enumerate(path))))
    best = max(totals, key=lambda labels: totals[labels])
    (decoded,), probability = tf.nn.ctc_beam_search_decoder(
        scores.astype(np.float32), [4], beam_width=100, merge_repeated=False
    )
    labels, value = run(decoded.values, probability)
    assert tuple(labels.tolist()) == best and value.item() == pytest.approx(np.log(totals[best]), rel=1e-4)


def test_gradients_of_crops_and_of_einsum() -> None:
    image = tf.constant(np.random.RandomState(0).rand(1, 4, 5, 2), tf.float32)
    crops = tf.image.crop_and_resize(image, [[0.1, 0.0, 0.8, 1.0]], [0], [3, 3])
    with tf.Session():
        assert tf.test.compute_gradient_error(image, [1, 4, 5, 2], crops, [1, 3, 3, 2]) < 1e-3
    x = tf.constant(np.random.RandomState(0).rand(3, 2, 3), tf.float32)
    y = tf.constant(np.random.RandomState(1).rand(2, 4), tf.float32)
    out = tf.einsum("iji,jk->ik", x, y)
    with tf.Session():
        assert tf.test.compute_gradient_error(x, [3, 2, 3], out, [3, 4]) < 1e-3
    with pytest.raises(ValueError, match="expecting 1"):
        tf.einsum("ij->i", x, y)


def test_diagonals_and_back() -> None:
    diagonals = tf.constant([[1.0, 2.0, 0.0], [4.0, 5.0, 6.0]])
    matrix = tf.linalg.diag(diagonals, k=(-1, 0), padding_value=9)
    both = tf.linalg.diag_part(matrix, k=(-1, 0))
    found, back, slope = run(matrix, both, tf.gradients(both, diagonals)[0])
    assert found.tolist() == [[1, 9, 9], [4, 2, 9], [9, 5, 0]]
    assert back.tolist() == [[1, 2, 0], [4, 5, 0]] and slope.tolist() == [[1, 1, 1], [1, 1, 0]]


def test_in_place_ops_leave_their_input() -> None:
    x = tf.constant([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    changed = tf.raw_ops.InplaceUpdate(x=x, i=[-1, 0], v=[[7.0, 8.0], [9.0, 0.0]])
    added = tf.raw_ops.InplaceAdd(x=x, i=[1, 1], v=[[1.0, 1.0], [1.0, 1.0]])
    before, after, sums = run(x, changed, added)
    assert before[0].tolist() == [1, 2] and after.tolist() == [[9, 0], [3, 4], [7, 8]] and sums[1].tolist() == [5, 6]


def test_truncated_normal_stays_in_its_bounds() -> None:
    for low, high in ((-1.0, 2.0), (4.0, np.inf), (-np.inf, -3.0), (0.1, 0.2)):
        values = run(
            tf.raw_ops.ParameterizedTruncatedNormal(
                shape=[2000], means=np.float32(0), stdevs=np.float32(1), minvals=np.float32(low),
                maxvals=np.float32(high), seed=3,
            )
        )  # fmt: skip
        assert low <= values.min() and values.max() <= high


def test_a_part_of_a_variable_is_assigned() -> None:
    for resource in (False, True):
        variable = tf.get_variable(f"v{resource}", initializer=[[1, 2, 3], [4, 5, 6]], use_resource=resource)
        with tf.Session() as session:
            session.run(variable.initializer)
            assert session.run(variable[1, 1:].assign([8, 9])).tolist() == [[1, 2, 3], [4, 8, 9]]
            assert session.run(tf.assign(variable[:, 0], [0, 0])).tolist() == [[0, 2, 3], [0, 8, 9]]
    with pytest.raises(ValueError, match="only supported for variables"):
        tf.constant([1, 2])[:1].assign([3])
    assert not hasattr(tf.constant(1), "assign")
