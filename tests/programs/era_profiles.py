"""Programs with ``tf.profiler``: a part of `tests.programs.era`, in Python 3.7 without tfmini."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.programs.era import program


def _tree(node: Any, value: str) -> Any:
    own, total = getattr(node, value), getattr(node, "total_" + value)
    return [node.name, own, total, sorted(_tree(child, value) for child in node.children)]


def _chain(node: Any, value: str) -> Any:
    found = []
    while len(node.children):
        node = node.children[0]
        found.append([node.name, getattr(node, value)])
    return sorted(found)


@program
def profiles_of_graphs(tf: Any) -> Any:
    builder = tf.profiler.ProfileOptionBuilder
    x = tf.placeholder(tf.float32, [4, 8, 8, 3], name="x")
    with tf.variable_scope("net"):
        h = tf.layers.conv2d(x, 5, 3, padding="same", activation=tf.nn.relu, name="one")
        h = tf.layers.max_pooling2d(h, 2, 2)
        y = tf.layers.dense(tf.reshape(h, [4, 80]), 2, name="two", kernel_initializer=tf.zeros_initializer())
    with tf.name_scope("end"):
        loss = tf.reduce_mean(tf.square(tf.nn.softmax(y)), name="loss")
    tf.get_variable("count", [3], trainable=False)
    tf.gradients(loss, tf.trainable_variables())
    graph = tf.get_default_graph()

    def of(options: Any, cmd: str = "scope", **more: Any) -> Any:
        options = {**options, "output": "none", **more}
        return tf.profiler.profile(graph, options=options, cmd=cmd)

    flops, parameters = builder.float_operation(), builder.trainable_variables_parameter()
    trees = [
        _tree(of(parameters), "parameters"), _tree(of(parameters, min_params=6), "parameters"),
        _tree(of(parameters, account_type_regexes=["VariableV2"]), "parameters"),
        _tree(of(parameters, show_name_regexes=[".*kernel"]), "parameters"),
        _tree(of(flops, show_name_regexes=["net/.*", "end/.*"]), "float_ops"),
        _tree(of(flops, start_name_regexes=["net.*"], hide_name_regexes=[".*BiasAdd", ".*Initializer.*"]), "float_ops"),
        _chain(of(flops, "op", account_type_regexes=["Conv2D", "MatMul", "MaxPool", "BiasAdd", "Softmax", "Mean"]),
               "float_ops"),
        _chain(of(parameters, "op"), "parameters"),
        *(_tree(of(parameters, max_depth=depth), "parameters") for depth in range(5)),
        *(_tree(of(flops, max_depth=depth, show_name_regexes=["net/.*", "end/.*"]), "float_ops") for depth in (2, 3)),
        *(_tree(of(parameters, trim_name_regexes=[name]), "parameters") for name in ("net", "net/one", ".*kernel")),
        *(_tree(of(parameters, start_name_regexes=[name]), "parameters") for name in ("net/one.*", ".*kernel", "one")),
        _tree(of(parameters, start_name_regexes=["net/one"], max_depth=2), "parameters"),
        _tree(of(parameters, hide_name_regexes=["net/one/.*"]), "parameters"),
    ]  # fmt: skip
    profiler = tf.profiler.Profiler(graph)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        metadata = tf.RunMetadata()
        session.run(loss, {x: np.ones([4, 8, 8, 3])}, tf.RunOptions(trace_level=tf.RunOptions.FULL_TRACE), metadata)
    profiler.add_step(3, metadata)
    took = profiler.profile_name_scope({**builder.time_and_memory(min_bytes=0, min_micros=0), "output": "none"})
    same = {key: value for key, value in builder(builder.float_operation()).with_max_depth(3).select(["micros"])
            .order_by("micros").with_min_float_operations(4).with_node_names(hide_name_regexes=["a"]).build().items()
            if key != "step"}  # fmt: skip
    return trees, took.total_exec_micros > 0, took.total_requested_bytes > 0, same
