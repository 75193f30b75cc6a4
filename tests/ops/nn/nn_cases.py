"""Expressions over ``tf`` that the nn families must compute as TensorFlow does; run on both sides.

Run as a script by the oracle's interpreter it prints nothing and writes the results to argv[1].
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


def data(*shape: int, seed: int = 0) -> Any:
    """Reproducible float32 numbers; a few of them tie on purpose."""
    return np.round(np.random.RandomState(seed).randn(*shape), 1).astype(np.float32)


_X, _W = "data(2, 7, 6, 3)", "data(3, 2, 3, 4, seed=1)"
_STRIDED = [(1, 1, 1), (2, 1, 1), (3, 2, 1), (1, 1, 2)]


def _conv_cases() -> dict[str, str]:
    cases = {}
    for padding in ("'SAME'", "'VALID'", "[[0,0],[1,2],[0,1],[0,0]]"):
        for sh, sw, d in _STRIDED:
            if d > 1 and padding.startswith("["):
                continue  # TensorFlow has no CPU kernel for the gradients
            attrs = f"strides=[1,{sh},{sw},1], padding={padding}, dilations=[1,{d},{d},1]"
            label = f"{padding} {sh}{sw}{d}"
            if padding.startswith("["):
                label = f"explicit {sh}{sw}{d}"
            cases[f"conv {label}"] = f"with_gradients(tf, lambda x, w: tf.nn.conv2d(x, w, {attrs}), {_X}, {_W})"
            if sh == sw and d == 1 and not padding.startswith("["):
                depth = f"tf.nn.depthwise_conv2d_native(x, w, {attrs})"
                cases[f"depthwise {label}"] = (
                    f"with_gradients(tf, lambda x, w: {depth}, {_X}, data(3, 2, 3, 2, seed=1))"
                )
    cases["pointwise"] = f"with_gradients(tf, lambda x, w: tf.nn.conv2d(x, w, 1, 'SAME'), {_X}, data(1, 1, 3, 4))"
    cases["wide"] = (
        "with_gradients(tf, lambda x, w: tf.nn.conv2d(x, w, 1, 'SAME'), data(3, 8, 8, 16), data(5, 5, 16, 8))"
    )
    cases["transpose"] = (
        "with_gradients(tf, lambda x, w: tf.nn.conv2d_transpose(x, w, [2, 14, 12, 5], 2), "
        f"{_X}, data(3, 3, 5, 3))"
    )
    cases["conv1d"] = "with_gradients(tf, lambda x, w: tf.nn.conv1d(x, w, 2, 'SAME'), data(2, 7, 3), data(3, 3, 4))"
    cases["separable"] = (
        "[tf.nn.separable_conv2d(tf.constant(data(2, 7, 6, 3)), data(3, 3, 3, 2), data(1, 1, 6, 4), [1,1,1,1], 'SAME')]"
    )
    cases["atrous"] = f"[tf.nn.atrous_conv2d(tf.constant({_X}), {_W}, 2, 'SAME')]"
    return cases


def _pool_cases() -> dict[str, str]:
    cases = {}
    for kind in ("max", "avg"):
        for padding in ("SAME", "VALID"):
            for k, s in ((2, 2), (3, 2), (2, 1), (1, 2), (3, 3)):
                pool = f"tf.nn.{kind}_pool(x, [1,{k},{k},1], [1,{s},{s},1], '{padding}')"
                cases[f"{kind} {padding} {k}{s}"] = f"with_gradients(tf, lambda x: {pool}, data(2, 6, 6, 3))"
    return cases


def _other_cases() -> dict[str, str]:
    cases = {
        name: f"with_gradients(tf, tf.nn.{name}, 4 * data(3, 5))"
        for name in ("relu", "relu6", "elu", "selu", "leaky_relu", "softplus", "softsign", "crelu", "softmax",
                     "log_softmax", "l2_loss")
    }  # fmt: skip
    labels = "tf.nn.softmax(data(4, 5, seed=3))"
    cases["softmax axis 0"] = "with_gradients(tf, lambda x: tf.nn.softmax(x, axis=0), data(3, 5))"
    cases["xent"] = (
        f"with_gradients(tf, lambda x: tf.nn.softmax_cross_entropy_with_logits(labels={labels}, logits=x), data(4, 5))"
    )
    cases["xent v2"] = (
        "with_gradients(tf, lambda x, y: tf.nn.softmax_cross_entropy_with_logits_v2(labels=y, logits=x),"
        " data(4, 5), data(4, 5, seed=2))"
    )
    cases["xent axis"] = (
        "with_gradients(tf, lambda x, y: tf.nn.softmax_cross_entropy_with_logits_v2(labels=y, logits=x, axis=1),"
        " data(2, 4, 3), data(2, 4, 3, seed=2))"
    )
    sparse = "tf.nn.sparse_softmax_cross_entropy_with_logits"
    cases["sparse"] = f"with_gradients(tf, lambda x: {sparse}(labels=[0, 4, 2, 2], logits=x), data(4, 5))"
    cases["sparse 3"] = f"with_gradients(tf, lambda x: {sparse}(labels=[[0, 4], [1, 1]], logits=x), data(2, 2, 5))"
    for loss in ("sigmoid_cross_entropy_with_logits(labels=y, logits=x)", "log_poisson_loss(abs(y), x, True)",
                 "weighted_cross_entropy_with_logits(labels=y, logits=x, pos_weight=2.)"):  # fmt: skip
        cases[loss] = f"with_gradients(tf, lambda x, y: tf.nn.{loss}, data(4, 5), data(4, 5, seed=1) + 3)"
    cases["bias"] = "with_gradients(tf, tf.nn.bias_add, data(2, 3, 4), data(4))"
    cases["xw"] = "with_gradients(tf, tf.nn.xw_plus_b, data(2, 3), data(3, 4), data(4))"
    cases["relu_layer"] = "with_gradients(tf, tf.nn.relu_layer, data(2, 3), data(3, 4), data(4))"
    cases["lrn"] = "with_gradients(tf, lambda x: tf.nn.lrn(x, 2, 1.0, 0.3, 0.7), data(2, 3, 3, 7))"
    cases["moments"] = "with_gradients(tf, lambda x: tf.nn.moments(x, [0, 2])[1], data(3, 4, 5))"
    cases["batch_normalization"] = (
        "with_gradients(tf, lambda x, m: tf.nn.batch_normalization(x, m, abs(m) + 1., m, m, 1e-3), data(3, 4), data(4))"
    )
    cases["l2_normalize"] = "with_gradients(tf, lambda x: tf.nn.l2_normalize(x, 1), data(3, 4))"
    for training in ("", ", mean=data(3), variance=abs(data(3)) + 1, is_training=False"):
        cases["fused" + training] = (
            f"with_gradients(tf, lambda x, s, o: tf.nn.fused_batch_norm(x, s, o{training})[0],"
            " data(2, 4, 5, 3), data(3), data(3))"
        )
    cases["fused outputs"] = "list(tf.nn.fused_batch_norm(tf.constant(data(2, 4, 5, 3)), data(3), data(3)))"
    cases["zero_fraction"] = "[tf.nn.zero_fraction(data(9, 9))]"
    cases["top_k"] = "with_gradients(tf, lambda x: tf.nn.top_k(x, 3)[0], data(4, 9))"
    cases["top_k indices"] = "[tf.nn.top_k(data(4, 19), 5).indices]"
    cases["in_top_k"] = "[tf.nn.in_top_k(data(6, 9), [0, 1, 2, 8, 9, -1], 3)]"
    for strategy in ("mod", "div"):
        cases["embedding " + strategy] = (
            "[tf.nn.embedding_lookup([data(3, 2), data(3, 2, seed=1), data(2, 2, seed=2)], [[0, 7, 3], [2, 2, 5]],"
            f" '{strategy}')]"
        )
    cases["embedding norm"] = "[tf.nn.embedding_lookup(data(5, 3), [1, 4], max_norm=1.0)]"
    for combiner in ("sum", "mean", "sqrtn"):
        cases["embedding sparse " + combiner] = (
            "[tf.nn.embedding_lookup_sparse(data(5, 3), tf.SparseTensor([[0, 0], [0, 1], [2, 0]], [1, 3, 4], [3, 2]),"
            f" tf.SparseTensor([[0, 0], [0, 1], [2, 0]], [1., 2., 3.], [3, 2]), combiner='{combiner}')]"
        )
    return cases


CASES = {**_conv_cases(), **_pool_cases(), **_other_cases()}


def with_gradients(tf: Any, function: Any, *values: Any) -> list[Any]:
    """The result and the gradients of a weighted sum of it."""
    inputs = [tf.constant(v) for v in values]
    result = function(*inputs)
    weights = np.cos(np.arange(np.prod(result.shape.as_list(), dtype=int))).reshape(result.shape.as_list())
    found = tf.gradients(result, inputs, grad_ys=tf.constant(weights.astype(np.float32)))
    return [result] + [g for g in found if g is not None]


def build(tf: Any, expression: str) -> list[Any]:
    """Adds a case to the default graph."""
    return list(eval(expression, {"tf": tf, "data": data, "with_gradients": with_gradients}))


def _main() -> None:
    import tensorflow.compat.v1 as tf

    tf.disable_v2_behavior()
    tensors = {name: build(tf, text) for name, text in CASES.items()}
    with tf.Session() as session:
        values = session.run(tensors)
    np.savez(sys.argv[1], **{f"{n}|{i}": v for n, found in values.items() for i, v in enumerate(found)})


if __name__ == "__main__":
    _main()
