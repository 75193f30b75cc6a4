"""Expressions over ``tf`` that the nn families must compute as TensorFlow does, see `tests.expressions`."""

from __future__ import annotations

from typing import Any

import numpy as np

NAMES = "from tests.ops.nn.nn_cases import data, with_gradients"


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
        f"with_gradients(tf, lambda x, w: tf.nn.conv2d_transpose(x, w, [2, 14, 12, 5], 2), {_X}, data(3, 3, 5, 3))"
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


_IMAGES = "tf.sin(tf.reshape(tf.range(60.), [2, 5, 3, 2]))"
_FILTERS = "tf.cos(tf.reshape(tf.range(12.), [3, 2, 2]))"
_VOLUMES = "tf.reshape(tf.sin(tf.range(72.)), [1, 3, 4, 3, 2])"
_LINES = "tf.reshape(tf.sin(tf.range(48.)), [2, 4, 3, 2])"


def _more_convolutions() -> dict[str, str]:
    dilated = "dilation_rate=[2, 2]"
    return {
        "volumes": f"tf.nn.conv3d({_VOLUMES}, tf.cos(tf.reshape(tf.range(48.), [2, 2, 2, 2, 3])),"
        " [1, 1, 2, 1, 1], 'SAME')",
        "max of volumes": f"tf.nn.max_pool3d({_VOLUMES}, [1, 2, 2, 2, 1], [1, 1, 2, 1, 1], 'SAME')",
        "avg of volumes": f"tf.nn.avg_pool3d({_VOLUMES}, [1, 2, 3, 2, 1], [1, 2, 1, 1, 1], 'SAME')",
        "any rank": f"tf.nn.convolution({_LINES}, tf.cos(tf.reshape(tf.range(12.), [2, 1, 2, 3])), 'SAME', {dilated})",
        "pool of any rank": f"tf.nn.pool({_LINES}, [2, 2], 'AVG', 'VALID', strides=[1, 1])",
        "conv1d transpose": f"tf.nn.conv1d_transpose({_LINES}[0], tf.ones([2, 3, 2]), [4, 6, 3], 2)",
        "dilation": f"tf.nn.dilation2d({_IMAGES}, {_FILTERS}, [1, 2, 1, 1], [1, 1, 2, 1], 'SAME')",
        "erosion": f"tf.nn.erosion2d({_IMAGES}, {_FILTERS}, [1, 1, 1, 1], [1, 1, 1, 1], 'VALID')",
        "dilation gradient": f"with_gradients(tf, lambda f: tf.nn.dilation2d({_IMAGES}, f, [1, 1, 1, 1],"
        f" [1, 1, 1, 1], 'SAME') ** 2, {_FILTERS})",
        "argmax": f"tf.nn.max_pool_with_argmax({_IMAGES}, [1, 2, 2, 1], [1, 1, 2, 1], 'SAME')[1]",
        "argmax of batch": f"tf.nn.max_pool_with_argmax({_IMAGES}, [1, 3, 2, 1], [1, 1, 2, 1], 'VALID',"
        " include_batch_in_index=True)[1]",
        "argmax gradient": "with_gradients(tf, lambda x: tf.nn.max_pool_with_argmax(x, [1, 2, 2, 1], [1, 1, 1, 1],"
        f" 'SAME')[0] ** 2, {_IMAGES})",
        "window as tensor": "tf.raw_ops.MaxPoolV2(input=tf.reshape(tf.sin(tf.range(288.)), [2, 12, 12, 1]),"
        " ksize=[1, 2, 3, 1], strides=[1, 2, 2, 1], padding='SAME')",
        "global normalization": f"tf.nn.batch_norm_with_global_normalization({_IMAGES},"
        " *map(tf.constant, [[1., 2.], [.5, 3.], [1., 0.], [2., 3.]]), 1e-3, True)",
        "safe embedding": "tf.nn.safe_embedding_lookup_sparse(tf.reshape(tf.range(8.), [4, 2]),"
        " tf.SparseTensor([[0, 0], [0, 1], [2, 0], [2, 1]], tf.constant([1, -1, 3, 0], tf.int64), [4, 2]))",
        "safe embedding of rank 3": "tf.nn.safe_embedding_lookup_sparse([tf.reshape(tf.range(8.), [4, 2])],"
        " tf.SparseTensor([[0, 0, 0], [1, 0, 1]], tf.constant([1, 3], tf.int64), [2, 2, 2]),"
        " tf.SparseTensor([[0, 0, 0], [1, 0, 1]], [2., 0.], [2, 2, 2]), default_id=2)",
    }


def _ctc_cases() -> dict[str, str]:
    logits = "tf.reshape(tf.sin(tf.range(40.)), [5, 2, 4])"
    labels = "tf.SparseTensor([[0, 0], [0, 1], [1, 0]], tf.constant([1, 1, 2]), [2, 2])"
    repeated = "[[3, 4, 4, 3], [1, 1, 1, 1]]"
    return {
        "ctc": f"with_gradients(tf, lambda x: tf.nn.ctc_loss({labels}, x, [5, 4]), {logits})",
        "ctc v2": f"tf.nn.ctc_loss_v2(tf.constant([[1, 1], [2, 0]]), {logits}, [2, 1], [5, 4], blank_index=0)",
        "ctc greedy": f"tf.nn.ctc_greedy_decoder({logits}, [5, 4])[1]",
        "ctc greedy values": f"tf.nn.ctc_greedy_decoder({logits}, [5, 4])[0][0].values",
        "ctc beam": f"tf.nn.ctc_beam_search_decoder({logits}, [5, 4], 8, 3)[1]",
        "ctc beam values": f"tf.nn.ctc_beam_search_decoder({logits}, [5, 4], 8, 3)[0][1].values",
        "ctc unique": f"tf.nn.ctc_unique_labels({repeated})[0]",
        "ctc collapse": f"tf.nn.collapse_repeated({repeated}, [4, 3])[0]",
    }


CASES = {**_conv_cases(), **_pool_cases(), **_other_cases(), **_more_convolutions(), **_ctc_cases()}


def with_gradients(tf: Any, function: Any, *values: Any) -> list[Any]:
    """The result and the gradients of a weighted sum of it."""
    inputs = [tf.convert_to_tensor(v) for v in values]
    result = function(*inputs)
    weights = np.cos(np.arange(np.prod(result.shape.as_list(), dtype=int))).reshape(result.shape.as_list())
    found = tf.gradients(result, inputs, grad_ys=tf.constant(weights.astype(np.float32)))
    return [result] + [g for g in found if g is not None]
