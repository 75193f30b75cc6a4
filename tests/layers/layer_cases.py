"""Cases that TensorFlow and tfmini both run: name -> a function of tf that gives tensors, with fixed variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

X2 = np.linspace(-1.0, 2.0, 12, dtype=np.float32).reshape(4, 3)
Y2 = np.cos(np.arange(12, dtype=np.float32)).reshape(4, 3)
X3 = np.sin(np.arange(40, dtype=np.float32)).reshape(2, 5, 4)
X4 = np.sin(np.arange(2 * 6 * 5 * 3, dtype=np.float32)).reshape(2, 6, 5, 3)
X5 = np.sin(np.arange(2 * 3 * 4 * 3 * 2, dtype=np.float32)).reshape(2, 3, 4, 3, 2)
ONE_HOT = np.eye(3, dtype=np.float32)[[0, 2, 1, 1]]
CLASSES = np.array([0, 2, 1, 1], np.int64)
GUESSES = np.array([0, 1, 1, 1], np.int64)
BITS = np.array([1, 0, 1, 1, 0, 0], np.bool_)
SCORES = np.array([0.9, 0.6, 0.4, 0.8, 0.1, 0.3], np.float32)
WEIGHTS = np.array([[1.0], [0.0], [2.0], [0.5]], np.float32)

LAYERS: dict[str, Callable[[Any], Any]] = {
    "dense": lambda tf: tf.layers.dense(X2, 4, activation=tf.nn.relu),
    "dense_3d": lambda tf: tf.layers.dense(X3, 3),
    "conv2d_same": lambda tf: tf.layers.conv2d(X4, 4, 3, padding="same", activation=tf.nn.tanh),
    "conv2d_strides": lambda tf: tf.layers.conv2d(X4, 2, [3, 2], strides=2),
    "conv2d_dilated": lambda tf: tf.layers.conv2d(X4, 2, 2, dilation_rate=2),
    "conv1d": lambda tf: tf.layers.conv1d(X3, 3, 2),
    "conv2d_transpose": lambda tf: tf.layers.conv2d_transpose(X4, 2, 3, strides=2),
    "conv2d_transpose_same": lambda tf: tf.layers.conv2d_transpose(X4, 2, 3, strides=2, padding="same"),
    "conv3d": lambda tf: tf.layers.conv3d(X5, 2, 2, strides=(1, 2, 1), padding="same"),
    "conv3d_transpose": lambda tf: tf.layers.conv3d_transpose(X5, 2, 2, strides=(1, 2, 1)),
    "separable": lambda tf: tf.layers.separable_conv2d(X4, 4, 3, depth_multiplier=2),
    "separable1d": lambda tf: tf.layers.separable_conv1d(X3, 3, 2, strides=2, depth_multiplier=2),
    "max_pool": lambda tf: tf.layers.max_pooling2d(X4, 2, 2),
    "avg_pool": lambda tf: tf.layers.average_pooling2d(X4, [3, 2], 1, padding="same"),
    "max_pool1d": lambda tf: tf.layers.max_pooling1d(X3, 2, 2),
    "avg_pool1d": lambda tf: tf.layers.average_pooling1d(X3, 2, 1),
    "max_pool3d": lambda tf: tf.layers.max_pooling3d(X5, 2, 1),
    "avg_pool3d": lambda tf: tf.layers.average_pooling3d(X5, [1, 2, 2], 2, padding="same"),
    "flatten": lambda tf: tf.layers.flatten(X4),
    "dropout_off": lambda tf: tf.layers.dropout(X2, 0.5),
    "batch_norm": lambda tf: tf.layers.batch_normalization(X4),
    "batch_norm_training": lambda tf: tf.layers.batch_normalization(X4, training=True),
    "batch_norm_2d": lambda tf: tf.layers.batch_normalization(X2, training=True),
    "batch_norm_axis1": lambda tf: tf.layers.batch_normalization(X3, axis=1, training=True),
    "batch_norm_switched": lambda tf: tf.layers.batch_normalization(X4, training=tf.constant(True)),
    "batch_norm_switched_off": lambda tf: tf.layers.batch_normalization(X2, training=tf.constant(False)),
    "regularized": lambda tf: [
        tf.layers.dense(X2, 2, kernel_regularizer=tf.nn.l2_loss),
        tf.losses.get_regularization_loss(),
    ],
}

LOSSES: dict[str, Callable[[Any], Any]] = {
    "absolute": lambda tf: tf.losses.absolute_difference(Y2, X2, WEIGHTS),
    "cosine": lambda tf: tf.losses.cosine_distance(Y2, X2, axis=1),
    "hinge": lambda tf: tf.losses.hinge_loss(ONE_HOT, X2),
    "huber": lambda tf: tf.losses.huber_loss(Y2, 3 * X2),
    "log": lambda tf: tf.losses.log_loss(ONE_HOT, np.abs(Y2)),
    "pairwise": lambda tf: tf.losses.mean_pairwise_squared_error(Y2, X2, WEIGHTS),
    "squared": lambda tf: tf.losses.mean_squared_error(Y2, X2, 3.0),
    "sigmoid": lambda tf: tf.losses.sigmoid_cross_entropy(ONE_HOT, X2, label_smoothing=0.1),
    "softmax": lambda tf: tf.losses.softmax_cross_entropy(ONE_HOT, X2, WEIGHTS[:, 0], label_smoothing=0.2),
    "sparse": lambda tf: tf.losses.sparse_softmax_cross_entropy(CLASSES, X2),
    "sparse_column": lambda tf: tf.losses.sparse_softmax_cross_entropy(CLASSES[:, None], X2, WEIGHTS),
    "zero_weights": lambda tf: tf.losses.mean_squared_error(Y2, X2, 0.0),
    **{
        f"reduction_{kind}": lambda tf, kind=kind: tf.losses.mean_squared_error(Y2, X2, WEIGHTS, reduction=kind)
        for kind in (
            "none", "weighted_sum", "weighted_mean", "weighted_sum_over_batch_size",
            "weighted_sum_by_nonzero_weights",
        )
    },
    "total": lambda tf: [
        tf.losses.mean_squared_error(Y2, X2), tf.losses.absolute_difference(Y2, X2), tf.losses.get_total_loss(),
    ],
}  # fmt: skip

METRICS: dict[str, Callable[[Any], Any]] = {
    "confusion_matrix": lambda tf: tf.confusion_matrix([1, 2, 4], [2, 2, 4], weights=[1, 2, 3]),
    "mean": lambda tf: tf.metrics.mean(X2, WEIGHTS),
    "mean_tensor": lambda tf: tf.metrics.mean_tensor(X2),
    "accuracy": lambda tf: tf.metrics.accuracy(CLASSES, GUESSES),
    "accuracy_weighted": lambda tf: tf.metrics.accuracy(CLASSES[:, None], GUESSES, WEIGHTS[:, 0]),
    "mae": lambda tf: tf.metrics.mean_absolute_error(Y2, X2),
    "mse": lambda tf: tf.metrics.mean_squared_error(Y2, X2, WEIGHTS),
    "rmse": lambda tf: tf.metrics.root_mean_squared_error(Y2, X2),
    "cosine": lambda tf: tf.metrics.mean_cosine_distance(tf.constant(Y2), tf.constant(X2), 1),
    "relative": lambda tf: tf.metrics.mean_relative_error(Y2, X2, tf.constant(np.abs(Y2))),
    "below": lambda tf: tf.metrics.percentage_below(X2, 0.5),
    "per_class": lambda tf: tf.metrics.mean_per_class_accuracy(tf.constant(CLASSES), tf.constant(GUESSES), 3),
    "iou": lambda tf: tf.metrics.mean_iou(tf.constant(CLASSES), tf.constant(GUESSES), 3),
    "precision": lambda tf: tf.metrics.precision(BITS, SCORES > 0.35),
    "recall": lambda tf: tf.metrics.recall(BITS, SCORES > 0.5, np.arange(6, dtype=np.float32)),
    "true_positives": lambda tf: tf.metrics.true_positives(BITS, SCORES > 0.5),
    "false_positives": lambda tf: tf.metrics.false_positives(BITS, SCORES > 0.5),
    "true_negatives": lambda tf: tf.metrics.true_negatives(BITS, SCORES > 0.5),
    "false_negatives": lambda tf: tf.metrics.false_negatives(BITS, SCORES > 0.5),
    "precision_at": lambda tf: tf.metrics.precision_at_thresholds(BITS, SCORES, [0.2, 0.5, 0.7]),
    "recall_at": lambda tf: tf.metrics.recall_at_thresholds(BITS, SCORES, [0.2, 0.5, 0.7]),
    "counts_at": lambda tf: tf.metrics.true_positives_at_thresholds(BITS, SCORES, [0.2, 0.5]),
    "auc": lambda tf: tf.metrics.auc(BITS, SCORES),
    "auc_pr": lambda tf: tf.metrics.auc(BITS, SCORES, curve="PR", summation_method="careful_interpolation"),
    "auc_minoring": lambda tf: tf.metrics.auc(BITS, SCORES, summation_method="minoring", num_thresholds=20),
    "sensitivity": lambda tf: tf.metrics.sensitivity_at_specificity(BITS, SCORES, 0.6),
    "specificity": lambda tf: tf.metrics.specificity_at_sensitivity(BITS, SCORES, 0.6),
}

LENGTHS = np.array([5, 3], np.int32)


def _dropping(tf: Any, **arguments: Any) -> Any:
    """Two layers of which inputs, states and outputs are dropped, at places that the seeds settle."""
    tf.set_random_seed(5)
    cell = tf.nn.rnn_cell.MultiRNNCell([tf.nn.rnn_cell.BasicLSTMCell(3), tf.nn.rnn_cell.GRUCell(2)])
    return tf.nn.rnn_cell.DropoutWrapper(cell, 0.8, 0.7, 0.6, seed=3, **arguments)


RECURRENT: dict[str, Callable[[Any], Any]] = {
    "rnn": lambda tf: tf.nn.dynamic_rnn(tf.nn.rnn_cell.BasicRNNCell(3), tf.constant(X3), dtype=tf.float32),
    "lstm": lambda tf: tf.nn.dynamic_rnn(tf.nn.rnn_cell.BasicLSTMCell(3), tf.constant(X3), LENGTHS, dtype=tf.float32),
    "gru": lambda tf: tf.nn.dynamic_rnn(tf.nn.rnn_cell.GRUCell(3), tf.constant(X3), LENGTHS, dtype=tf.float32),
    "peepholes": lambda tf: tf.nn.dynamic_rnn(
        tf.nn.rnn_cell.LSTMCell(3, use_peepholes=True, num_proj=2, cell_clip=0.5), tf.constant(X3), dtype=tf.float32
    ),
    "stacked": lambda tf: tf.nn.dynamic_rnn(
        tf.nn.rnn_cell.MultiRNNCell([tf.nn.rnn_cell.BasicLSTMCell(3), tf.nn.rnn_cell.GRUCell(2)]),
        tf.constant(X3),
        dtype=tf.float32,
    ),
    "both_ways": lambda tf: tf.nn.bidirectional_dynamic_rnn(
        tf.nn.rnn_cell.GRUCell(3), tf.nn.rnn_cell.GRUCell(3), tf.constant(X3), LENGTHS, dtype=tf.float32
    ),
    "static": lambda tf: tf.nn.static_rnn(
        tf.nn.rnn_cell.BasicLSTMCell(3), tf.unstack(tf.constant(X3), axis=1), dtype=tf.float32, sequence_length=LENGTHS
    ),
    "dropout": lambda tf: tf.nn.static_rnn(_dropping(tf), tf.unstack(tf.constant(X3), axis=1), dtype=tf.float32),
    "variational_dropout": lambda tf: tf.nn.dynamic_rnn(
        _dropping(tf, variational_recurrent=True, input_size=tf.TensorShape([4]), dtype=tf.float32),
        tf.constant(X3),
        dtype=tf.float32,
    ),
    "time_major": lambda tf: tf.nn.dynamic_rnn(
        tf.nn.rnn_cell.GRUCell(3), tf.constant(np.transpose(X3, (1, 0, 2))), dtype=tf.float32, time_major=True
    ),
}

IMAGES = (np.arange(2 * 4 * 5 * 3) * 37 % 256).astype(np.uint8).reshape(2, 4, 5, 3)
FLOATS = (IMAGES / 255.0).astype(np.float32)


def _resized(name: str, **kwargs: Any) -> Callable[[Any], Any]:
    def build(tf: Any) -> Any:
        v = tf.get_variable("v", initializer=FLOATS)
        return [getattr(tf.image, name)(v, [7, 3], **kwargs), getattr(tf.image, name)(IMAGES, [2, 9], **kwargs)]

    return build


IMAGE: dict[str, Callable[[Any], Any]] = {
    "bilinear": _resized("resize_bilinear"),
    "bilinear_corners": _resized("resize_bilinear", align_corners=True),
    "bilinear_centers": _resized("resize_bilinear", half_pixel_centers=True),
    "nearest": _resized("resize_nearest_neighbor"),
    "nearest_corners": _resized("resize_nearest_neighbor", align_corners=True),
    "bicubic": _resized("resize_bicubic"),
    "bicubic_corners": _resized("resize_bicubic", align_corners=True),
    "area": lambda tf: [tf.image.resize_area(FLOATS, [3, 3]), tf.image.resize_area(IMAGES, [6, 2])],
    "resize_images": lambda tf: tf.image.resize_images(IMAGES[0], [8, 10]),
    "crop_or_pad": lambda tf: tf.image.resize_image_with_crop_or_pad(IMAGES, 6, 2),
    "central_crop": lambda tf: tf.image.central_crop(FLOATS[0], 0.5),
    "flips": lambda tf: [tf.image.flip_left_right(IMAGES[0]), tf.image.flip_up_down(IMAGES[0])],
    "rot90": lambda tf: tf.image.rot90(IMAGES[0], 3),
    "standardized": lambda tf: tf.image.per_image_standardization(IMAGES[0].astype(np.float32)),
    "to_floats": lambda tf: tf.image.convert_image_dtype(IMAGES, tf.float32),
    "to_bytes": lambda tf: tf.image.convert_image_dtype(FLOATS * 1.2, tf.uint8, saturate=True),
    "brightness": lambda tf: [tf.image.adjust_brightness(IMAGES, 0.2), tf.image.adjust_brightness(FLOATS, -0.1)],
    "contrast": lambda tf: [tf.image.adjust_contrast(FLOATS, 1.7), tf.image.adjust_contrast(IMAGES, 0.5)],
    "gray": lambda tf: tf.image.rgb_to_grayscale(FLOATS),
    "hsv": lambda tf: [tf.image.rgb_to_hsv(FLOATS), tf.image.hsv_to_rgb(FLOATS)],
    "saturation": lambda tf: tf.image.adjust_saturation(FLOATS, 1.5),
    "hue": lambda tf: tf.image.adjust_hue(FLOATS, 0.2),
}

GROUPS = {"image": IMAGE, "layers": LAYERS, "losses": LOSSES, "metrics": METRICS, "recurrent": RECURRENT}


def _fill(index: int, shape: list[int]) -> np.ndarray:
    return np.cos(np.arange(int(np.prod(shape)), dtype=np.float32) * 0.7 + index).reshape(shape) * 0.5


def outcomes(tf: Any) -> dict[str, Any]:
    """group -> case -> its `outcome`."""
    return {group: {name: outcome(tf, build) for name, build in table.items()} for group, table in GROUPS.items()}


def outcome(tf: Any, build: Callable[[Any], Any]) -> dict[str, Any]:
    """What a case comes to: variable names, values and, for floats, gradients by the trainable variables."""
    with tf.Graph().as_default():
        result = build(tf)
        flat = _flat(result)
        trainable = tf.trainable_variables()
        update_ops = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
        fills = [tf.assign(v, _fill(i, v.shape.as_list())) for i, v in enumerate(trainable)]
        grads = tf.gradients([t for t in flat if t.dtype.is_floating], trainable) if trainable else []
        with tf.Session() as sess:
            sess.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
            sess.run(fills)
            if tf.local_variables():  # a metric: two updates, then the value
                updates = [sess.run(flat[1]) for _ in range(2)]
                values, derived = [*updates, sess.run(flat[0])], []
            else:
                values, derived = sess.run([flat, [g for g in grads if g is not None]])
            sess.run(update_ops)
            averages = [sess.run(v) for v in tf.global_variables() if v not in trainable]
        names = [v.op.name for v in tf.global_variables() + tf.local_variables()]
    return {"names": names, "values": [_plain(v) for v in [*values, *derived, *averages]]}


def _flat(result: Any) -> list[Any]:
    if isinstance(result, (list, tuple)):
        return [one for part in result for one in _flat(part)]
    return [result]


def _plain(value: Any) -> Any:
    return np.asarray(value, np.float64).tolist()
