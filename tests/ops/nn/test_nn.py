"""The nn families against TensorFlow, case by case, and their errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.expressions import check, fits, outcome
from tests.ops.evaluate import evaluate
from tests.ops.nn.nn_cases import CASES, NAMES, data


@pytest.mark.oracle
@pytest.mark.parametrize("case", CASES)
def test_values_are_tensorflows(case: str, theirs: dict[str, Any]) -> None:
    check(outcome(tf, CASES[case], NAMES), theirs[case], rtol=1e-4 if "ctc" in case else 2e-5, atol=2e-5)


@pytest.mark.parametrize("case", CASES)
def test_values_have_the_static_shape(case: str) -> None:
    found = outcome(tf, CASES[case], NAMES)
    assert all(fits(shape, value.shape) for shape, value in zip(found["shapes"], found["values"], strict=True))


def test_nchw_convolution_is_the_transposed_nhwc_one() -> None:
    image, filters = data(2, 7, 6, 3), data(3, 3, 3, 4)
    last = tf.nn.conv2d(image, filters, 1, "SAME")
    first = tf.nn.conv2d(image.transpose(0, 3, 1, 2), filters, 1, "SAME", data_format="NCHW")
    last, first = evaluate([last, first])
    np.testing.assert_allclose(first, last.transpose(0, 3, 1, 2), rtol=1e-5, atol=1e-5)


def test_a_label_out_of_range_is_named() -> None:
    loss = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=[0, 9], logits=data(2, 3))
    message = r"label value of 9 which is outside the valid range of \[0, 3\)"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        evaluate(loss)


def test_labels_of_the_wrong_rank_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Rank mismatch: Rank of labels \(received 2\)"):
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=[[0]], logits=data(2, 3))


def test_positional_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="Only call `softmax_cross_entropy_with_logits` with named arguments"):
        tf.nn.softmax_cross_entropy_with_logits(data(2, 3), data(2, 3))


def test_a_window_larger_than_the_image_is_refused() -> None:
    with pytest.raises(ValueError, match="Negative dimension size caused by subtracting 5 from 3"):
        tf.nn.max_pool(data(1, 3, 3, 1), 5, 1, "VALID")


def test_dropout_scales_what_it_keeps() -> None:
    kept = evaluate(tf.nn.dropout(np.ones(1000, np.float32), rate=0.25, seed=1))
    assert set(np.unique(kept)) == {np.float32(0), np.float32(1 / 0.75)}
    assert 650 < np.count_nonzero(kept) < 850


def test_dropout_that_keeps_everything_is_its_input() -> None:
    x = tf.constant(data(3))
    assert tf.nn.dropout(x, keep_prob=1.0) is x
    with pytest.raises(ValueError, match="You must provide a rate"):
        tf.nn.dropout(x)


def test_the_gradient_of_max_pooling_goes_to_the_first_maximum() -> None:
    x = tf.constant(np.ones((1, 2, 2, 1), np.float32))
    grad = evaluate(tf.gradients(tf.nn.max_pool(x, 2, 2, "VALID"), [x])[0])
    assert grad.ravel().tolist() == [1, 0, 0, 0]


X = np.arange(6.0, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize(
    ("moments", "wanted"),
    [
        (lambda: (tf.zeros([3]), tf.ones([3]), 0, 1, 1), X / np.sqrt(np.float32(2))),
        (lambda: (np.ones(3), np.ones(3), np.ones(3), None, 0.0), X),
    ],
)
def test_numbers_of_a_normalisation_take_the_type_of_the_tensor(moments: Any, wanted: Any) -> None:
    found = evaluate(tf.nn.batch_normalization(tf.constant(X), *moments()))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


_POOL = ([1, 2, 2, 1], [1, 2, 2, 1], "SAME")


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (tf.nn.relu, [None, 3]),
        (tf.nn.relu6, [None, 3]),
        (tf.nn.leaky_relu, [2, 3]),
        (tf.nn.crelu, [2, 3]),
        (lambda x: tf.nn.max_pool(x, *_POOL), [None, 2, 2, 1]),
        (lambda x: tf.nn.max_pool3d(x, [1, 2, 2, 2, 1], [1, 2, 2, 2, 1], "SAME"), [1, 2, 2, 2, 1]),
    ],
)
def test_second_gradients_of_piecewise_linear_functions_are_zeros_and_not_none(function: Any, shape: Any) -> None:
    x = tf.placeholder(tf.float32, shape)
    (first,) = tf.gradients(function(x), x)
    (second,) = tf.gradients(first, x)
    fed = data(*(size or 2 for size in shape))
    np.testing.assert_array_equal(evaluate(second, {x: fed}), np.zeros_like(fed))


def test_a_gradient_of_max_pooling_has_one_for_the_incoming_gradient_too() -> None:
    x, grad = tf.constant(data(1, 4, 4, 1)), tf.constant(data(1, 2, 2, 1))
    (first,) = tf.gradients(tf.nn.max_pool(x, *_POOL), x, grad)
    chosen = evaluate(tf.gradients(first, grad, tf.ones_like(x))[0])
    assert chosen.ravel().tolist() == [1, 1, 1, 1]


def test_volumes_are_pooled_as_images_are() -> None:
    volume = data(1, 2, 3, 4, 1)
    flat = evaluate(tf.nn.max_pool(volume[0], [1, 2, 2, 1], [1, 1, 2, 1], "VALID"))
    deep = evaluate(tf.nn.max_pool3d(volume, [1, 1, 2, 2, 1], [1, 1, 1, 2, 1], "VALID"))
    np.testing.assert_array_equal(deep[0], flat)
    with pytest.raises(tf.errors.UnimplementedError, match="not yet supported on the depth dimension"):
        evaluate(tf.nn.max_pool3d(volume, [1, 1, 1, 1, 2], 1, "SAME"))


IMAGE, VOLUME = (1, 4, 4, 2), (1, 2, 4, 4, 2)
FLAT: dict[str, Any] = {"strides": [1, 1, 1, 1], "padding": "SAME"}
DEEP: dict[str, Any] = {"strides": [1, 1, 1, 1, 1], "padding": "SAME"}
POOL, POOL3D = {**FLAT, "ksize": [1, 2, 2, 1]}, {**DEEP, "ksize": [1, 1, 2, 2, 1]}
MORPH = {**FLAT, "rates": [1, 1, 1, 1]}
BATCH: dict[str, Any] = {"scale": (2,), "reserve_space_1": (2,), "reserve_space_2": (2,)}
BACK = {"y_backprop": IMAGE, "x": IMAGE}
# Op -> the shapes of its inputs (a list holds the sizes themselves), and its attrs.
WHOLE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "Conv2D": ({"input": IMAGE, "filter": (3, 3, 2, 5)}, FLAT),
    "Conv2DBackpropInput": ({"input_sizes": [*IMAGE], "filter": (3, 3, 2, 5), "out_backprop": (1, 4, 4, 5)}, FLAT),
    "Conv2DBackpropFilter": ({"input": IMAGE, "filter_sizes": [3, 3, 2, 5], "out_backprop": (1, 4, 4, 5)}, FLAT),
    "DepthwiseConv2dNative": ({"input": IMAGE, "filter": (3, 3, 2, 2)}, FLAT),
    "DepthwiseConv2dNativeBackpropInput": (
        {"input_sizes": [*IMAGE], "filter": (3, 3, 2, 2), "out_backprop": (1, 4, 4, 4)},
        FLAT,
    ),
    "DepthwiseConv2dNativeBackpropFilter": (
        {"input": IMAGE, "filter_sizes": [3, 3, 2, 2], "out_backprop": (1, 4, 4, 4)},
        FLAT,
    ),
    "Conv3D": ({"input": VOLUME, "filter": (1, 3, 3, 2, 5)}, DEEP),
    "Conv3DBackpropInputV2": (
        {"input_sizes": [*VOLUME], "filter": (1, 3, 3, 2, 5), "out_backprop": (1, 2, 4, 4, 5)},
        DEEP,
    ),
    "Conv3DBackpropFilterV2": (
        {"input": VOLUME, "filter_sizes": [1, 3, 3, 2, 5], "out_backprop": (1, 2, 4, 4, 5)},
        DEEP,
    ),
    "MaxPoolGrad": ({"orig_input": IMAGE, "orig_output": IMAGE, "grad": IMAGE}, POOL),
    "MaxPoolGradGrad": ({"orig_input": IMAGE, "orig_output": IMAGE, "grad": IMAGE}, POOL),
    "MaxPool3DGrad": ({"orig_input": VOLUME, "orig_output": VOLUME, "grad": VOLUME}, POOL3D),
    "MaxPool3DGradGrad": ({"orig_input": VOLUME, "orig_output": VOLUME, "grad": VOLUME}, POOL3D),
    "AvgPoolGrad": ({"orig_input_shape": [*IMAGE], "grad": IMAGE}, POOL),
    "AvgPool3DGrad": ({"orig_input_shape": [*VOLUME], "grad": VOLUME}, POOL3D),
    "MaxPoolGradWithArgmax": ({"input": IMAGE, "grad": IMAGE, "argmax": IMAGE}, POOL),
    "Dilation2D": ({"input": IMAGE, "filter": (2, 2, 2)}, MORPH),
    "Dilation2DBackpropInput": ({"input": IMAGE, "filter": (2, 2, 2), "out_backprop": IMAGE}, MORPH),
    "Dilation2DBackpropFilter": ({"input": IMAGE, "filter": (2, 2, 2), "out_backprop": IMAGE}, MORPH),
    "FusedBatchNorm": (
        {"x": IMAGE, "scale": (2,), "offset": (2,), "mean": (2,), "variance": (2,)},
        {"is_training": False},
    ),
    "FusedBatchNormGrad": ({**BACK, **BATCH}, {}),
    "LRNGrad": ({"input_grads": IMAGE, "input_image": IMAGE, "output_image": IMAGE}, {}),
    "BiasAdd": ({"value": IMAGE, "bias": (2,)}, {}),
    **{
        f"{name}Grad": ({"gradients": (2, 3), "features": (2, 3)}, {})
        for name in ("Relu", "Relu6", "LeakyRelu", "Softplus", "Softsign")
    },
    **{f"{name}Grad": ({"gradients": (2, 3), "outputs": (2, 3)}, {}) for name in ("Elu", "Selu")},
}
RANKS = {
    "SoftmaxCrossEntropyWithLogits": ({"features": (2, 3, 4), "labels": (2, 3, 4)}, {}),
    "BatchNormWithGlobalNormalization": (
        {"t": (2, 2, 3), "m": (3,), "v": (3,), "beta": (3,), "gamma": (3,)},
        {"variance_epsilon": 0.1, "scale_after_normalization": True},
    ),
    "BatchNormWithGlobalNormalizationGrad": (
        {"t": (1, 2, 2, 3), "m": (3,), "v": (3,), "gamma": (3,), "backprop": (2, 3)},
        {"variance_epsilon": 0.1, "scale_after_normalization": True},
    ),
}


@pytest.mark.parametrize("op", RANKS)
def test_kernels_check_ranks_that_the_graph_does_not_know(op: str) -> None:
    shapes, attrs = RANKS[op]
    inputs = {name: tf.placeholder(tf.float32) for name in shapes}
    outputs = getattr(tf.raw_ops, op)(**inputs, **attrs)
    with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="must (be|have)"):
        session.run(outputs, {inputs[name]: np.ones(shape, np.float32) for name, shape in shapes.items()})


# The axes along which an input may have any size: images of a forward op, windows with SAME padding, …
FREE: dict[tuple[str, str], Any] = {
    **{(op, "input"): range(len(WHOLE[op][0]["input"]) - 1) for op in ("Conv2D", "DepthwiseConv2dNative", "Conv3D")},
    **{(op, name): {0, 1} for op in WHOLE for name in ("filter", "filter_sizes") if op[:4] != "Conv" or "2D" in op},
    **{(op, name): {0, 1, 2} for op in WHOLE for name in ("filter", "filter_sizes") if "Conv3D" in op},
    ("Conv2D", "filter"): {0, 1, 3}, ("DepthwiseConv2dNative", "filter"): {0, 1, 3}, ("Conv3D", "filter"): {0, 1, 2, 4},
    ("Dilation2D", "input"): {0, 1, 2}, ("FusedBatchNorm", "x"): {0, 1, 2}, ("BiasAdd", "value"): {0, 1, 2},
    ("MaxPoolGradWithArgmax", "input"): {1, 2, 3},
}  # fmt: skip


@pytest.mark.parametrize("op", WHOLE)
def test_kernels_compare_whole_shapes(op: str) -> None:
    """Where the graph knows no shape, a step with one wrong size is an error that says so, never a read beyond."""
    shapes, attrs = WHOLE[op]
    types = {"input_sizes": tf.int32, "filter_sizes": tf.int32, "orig_input_shape": tf.int32, "argmax": tf.int64}
    inputs = {name: tf.placeholder(types.get(name, tf.float32)) for name in shapes}
    fetched = getattr(tf.raw_ops, op)(**inputs, **attrs)
    fetched = fetched[0] if isinstance(fetched, tuple) else fetched

    def feeds(changed: dict[str, Any]) -> dict[Any, Any]:
        values = {
            name: np.array(shape, np.int32) if isinstance(shape, list) else np.zeros(shape, inputs[name].dtype.numpy)
            for name, shape in {**shapes, **changed}.items()
        }
        return {inputs[name]: value for name, value in values.items()}

    with tf.Session() as session:
        session.run(fetched, feeds({}))
        for name, shape in shapes.items():
            axes = [axis for axis in range(len(shape)) if axis not in FREE.get((op, name), ())]
            sizes = [(axis, size) for axis in axes for size in (shape[axis] * 64, shape[axis] - 1 or 3)]
            for other in [*([*shape[:axis], size, *shape[axis + 1 :]] for axis, size in sizes), [*shape, 1]]:
                with pytest.raises((tf.errors.InvalidArgumentError, tf.errors.UnimplementedError)):
                    session.run(fetched, feeds({name: other if isinstance(shape, list) else tuple(other)}))


def test_the_gradient_of_depthwise_maxima_goes_to_the_first_of_each_group() -> None:
    x = tf.constant([[[[1.0, 3.0, 3.0, 2.0]]]])
    pooled = tf.nn.max_pool(x, [1, 1, 1, 2], [1, 1, 1, 2], "VALID")
    assert evaluate(tf.gradients(pooled, x, [tf.constant([[[[5.0, 7.0]]]])])[0]).ravel().tolist() == [0, 5, 7, 0]
