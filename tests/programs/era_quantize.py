"""Programs that rewrite graphs by ``tf.contrib.quantize``: a part of `tests.programs.era`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.programs.era import program


def _waves(*shape: int) -> Any:
    places = np.arange(np.prod(shape))
    return np.sin(places * 1.7 + 0.3 * places**2).reshape(shape).astype(np.float32)


def _nets(tf: Any) -> dict[str, Callable[[Any], Any]]:
    slim, layers = tf.contrib.slim, tf.layers
    norm = {"normalizer_fn": slim.batch_norm, "normalizer_params": {"is_training": True, "scale": True, "decay": 0.9}}
    still = {"normalizer_fn": slim.batch_norm, "normalizer_params": {"is_training": False, "scale": True}}

    def unfused(**more: Any) -> Any:
        return {"normalizer_fn": slim.batch_norm, "normalizer_params": {"fused": False, "decay": 0.9, **more}}

    def depthwise(x: Any) -> Any:
        net = slim.separable_conv2d(x, None, 3, 2, scope="d", **norm)
        return slim.conv2d(net, 4, 1, scope="p", activation_fn=tf.nn.relu6, **norm)

    def bypass(x: Any) -> Any:
        net = slim.conv2d(x, 4, 3, scope="c1")
        return tf.identity(tf.nn.relu(net + slim.conv2d(x, 4, 3, scope="c2", activation_fn=None), "r"), "o")

    def normalized_bypass(x: Any) -> Any:
        with tf.variable_scope("block"):
            net = slim.conv2d(x, 4, 3, scope="c1", **norm)
            net += slim.conv2d(x, 4, 3, scope="c2", activation_fn=None, **norm)
            return tf.nn.relu6(net)

    def chain(x: Any) -> Any:
        net = slim.conv2d(x, 4, 3, scope="c1", activation_fn=None, **norm)
        return slim.conv2d(slim.max_pool2d(net, 2), 4, 3, scope="c2", activation_fn=tf.sigmoid)

    def core(x: Any) -> Any:
        net = layers.conv2d(x, 4, 3, name="l", use_bias=False)
        net = tf.nn.relu(layers.batch_normalization(net, training=True, momentum=0.9))
        net = tf.nn.relu(layers.conv2d(net, 3, 3, name="m"))
        return layers.dense(layers.flatten(net), 3, name="de")

    def linear(x: Any) -> Any:
        net = tf.nn.relu6(tf.identity(slim.conv2d(x, 4, 3, scope="c1", activation_fn=None), "o"))
        net = slim.conv2d(net, 4, 1, scope="c2", biases_initializer=None)
        return slim.conv2d(net, 2, 1, scope="c3", biases_initializer=None, activation_fn=None)

    return {
        "plain": lambda x: slim.fully_connected(tf.reshape(slim.conv2d(x, 4, 3, scope="c1"), [4, 144]), 5, scope="f"),
        "normalized": lambda x: slim.conv2d(x, 4, 3, 2, scope="c1", **norm),
        "still": lambda x: slim.conv2d(x, 4, 3, scope="c1", **still), "bypass": bypass, "chain": chain, "core": core,
        "unfused": lambda x: slim.conv2d(x, 4, 3, scope="c1", **unfused(is_training=True)),
        "unfused scale": lambda x: slim.conv2d(x, 4, 3, scope="c1", **unfused(is_training=True, scale=True)),
        "unfused still": lambda x: slim.conv2d(x, 4, 3, scope="c1", **unfused(is_training=False)),
        "depthwise": depthwise, "normalized bypass": normalized_bypass, "linear": linear,
    }  # fmt: skip


def _rewritten(tf: Any, build: Any, rewrite: Any, steps: int = 4) -> Any:
    """What a rewriting adds to a graph, and what the graph computes in some steps of training."""
    with tf.Graph().as_default() as graph:
        x = tf.constant(_waves(4, 6, 6, 3), name="x")
        net = build(x)
        loss = tf.reduce_mean(tf.square(net - 0.3))
        before = {op.name for op in graph.get_operations()}
        rewrite(graph)
        added = [op for op in graph.get_operations() if op.name not in before]
        kinds = ("VariableV2", "Conv2D", "MatMul", "DepthwiseConv2dNative", "Merge", "Reciprocal", "GreaterEqual")
        names = [[op.name, op.type] for op in added if op.type in kinds or op.type.startswith("FakeQuant")
                 or op.name.endswith(("_fold", "_mult", "_add", "_mul", "bias", "Last", "Ema"))]  # fmt: skip
        wired = [[op.name, [t.name for t in op.inputs]] for op in graph.get_operations()
                 if op.name in before and any(t.op.name not in before for t in op.inputs)]  # fmt: skip
        bits = [[op.name, op.get_attr("num_bits"), op.get_attr("narrow_range")] for op in added
                if op.type.startswith("FakeQuant")]  # fmt: skip
        updates = tf.get_collection(tf.GraphKeys.UPDATE_OPS)
        weights = tf.trainable_variables()
        slopes = tf.gradients(loss, weights)
        others = [v for v in tf.global_variables() if v not in weights]
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            first = session.run(others)
            for i, weight in enumerate(v for v in weights if v.shape.ndims > 1):
                weight.load(_waves(*weight.shape.as_list()) * 0.5 + 0.01 * i, session)
            losses = []
            for _ in range(steps):
                # In one step, reads of weights and averages would come before or behind their changes.
                value, found, now = session.run([loss, slopes, weights])
                losses.append(value)
                session.run(updates)
                for weight, slope, old in zip(weights, found, now):
                    weight.load(old - 0.1 * slope, session)
            last = session.run(others)
        state = sorted([v.name, a, b] for v, a, b in zip(others, map(np.ravel, first), map(np.ravel, last)))
        return sorted(names), wired, sorted(bits), losses, [[name, list(a), list(b)] for name, a, b in state]


@program
def training_with_quantization(tf: Any) -> Any:
    rewrite = tf.contrib.quantize.create_training_graph
    # Moving averages in ops of their own have nothing to correct, at which TensorFlow fails.
    return {name: _rewritten(tf, net, rewrite) for name, net in _nets(tf).items() if name != "unfused still"}


@program
def quantization_with_choices(tf: Any) -> Any:
    nets, quantize = _nets(tf), tf.contrib.quantize
    train, test = quantize.experimental_create_training_graph, quantize.experimental_create_eval_graph
    found = [_rewritten(tf, nets[name], lambda g: quantize.create_training_graph(g, 2)) for name in ("plain", "chain")]
    found += [_rewritten(tf, nets[name], lambda g: train(g, 4, 6, True)) for name in ("plain", "normalized")]
    found += [_rewritten(tf, nets[name], lambda g: train(g, freeze_bn_delay=2))
              for name in ("normalized", "unfused scale", "depthwise")]  # fmt: skip
    found += [_rewritten(tf, nets["linear"], lambda g: train(scope="c2")),
              _rewritten(tf, nets["bypass"], lambda g: train(scope="no"))]  # fmt: skip
    found += [_rewritten(tf, nets[name], quantize.create_eval_graph) for name in ("plain", "still", "unfused still")]
    found += [_rewritten(tf, nets["bypass"], lambda g: test(g, 4, 7, True, 1))]
    twice = lambda g: [quantize.create_training_graph(g), quantize.create_training_graph(g)]  # noqa: E731
    return [*found, _rewritten(tf, nets["plain"], twice)]
