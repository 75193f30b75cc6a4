"""Runs `training_cases` in TensorFlow and writes every variable and slot after the last step to an .npz file."""

from __future__ import annotations

import sys

import numpy as np
import tensorflow.compat.v1 as tf
import training_cases as cases

tf.disable_v2_behavior()


def run(op_type: str, index: int, dtype: str) -> list[np.ndarray]:
    _, slots, scalars, attrs, _ = cases.CASES[index]
    resource, sparse = op_type.startswith("Resource"), "Sparse" in op_type
    tf.reset_default_graph()
    values = cases.initial_values(index, dtype)
    variables = [tf.Variable(v, use_resource=resource) for v in values]
    states = [v.handle if resource else v._ref() for v in variables]
    grad = tf.placeholder(dtype, None)
    inputs = dict(zip(["var", *slots], states))
    inputs[cases.gradient_name(op_type)] = grad
    if sparse:
        inputs["indices"] = tf.constant(cases.ROWS)
    for name, value in scalars.items():
        inputs[name] = tf.constant(value, tf.int64 if name == "global_step" else dtype)
    update = getattr(tf.raw_ops, op_type)(**inputs, **attrs)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for value in cases.gradients(index, sparse, dtype):
            session.run(update, {grad: value})
        return session.run(variables)


results = {}
for dtype in ("float32", "float64"):
    for label, op_type, index in cases.variants():
        for position, array in enumerate(run(op_type, index, dtype)):
            results[f"{dtype}/{label}/{position}"] = array
np.savez(sys.argv[1], **results)
