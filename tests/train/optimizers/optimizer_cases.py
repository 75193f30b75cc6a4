"""Training runs to compare with TensorFlow: each is a program over ``tf``, which either library may be.

An optimizer is a source string; a run applies it for a few steps to a variable ``x`` (the loss is
half its squared norm) or to the rows of a table that a lookup with repeated rows reaches.
"""

from __future__ import annotations

from typing import Any

STEPS = 3
START = [[1.0, -2.0], [0.5, 3.0], [-1.5, 0.25]]
ROWS = [2, 0, 2]

OPTIMIZERS = {
    "sgd": "tf.train.GradientDescentOptimizer(0.1)",
    "sgd_callable": "tf.train.GradientDescentOptimizer(lambda: 0.1)",
    "momentum": "tf.train.MomentumOptimizer(0.1, 0.9)",
    "nesterov": "tf.train.MomentumOptimizer(0.1, lambda: 0.9, use_nesterov=True)",
    "adagrad": "tf.train.AdagradOptimizer(0.1)",
    "adam": "tf.train.AdamOptimizer(0.1)",
    "adam_named": "tf.train.AdamOptimizer(0.1, beta1=0.8, beta2=0.9, epsilon=0.1, name='Other')",
    "rmsprop": "tf.train.RMSPropOptimizer(0.1)",
    "rmsprop_momentum": "tf.train.RMSPropOptimizer(0.1, momentum=0.5)",
    "rmsprop_centered": "tf.train.RMSPropOptimizer(0.1, centered=True)",
    "adadelta": "tf.train.AdadeltaOptimizer(1.0)",
    "ftrl": "tf.train.FtrlOptimizer(0.1)",
    "ftrl_regularized": "tf.train.FtrlOptimizer(0.3, -0.4, 0.2, 0.05, 0.1, accum_name='a', linear_name='b')",
    "ftrl_shrinking": "tf.train.FtrlOptimizer(0.3, l2_shrinkage_regularization_strength=0.1, name='F')",
    "proximal_sgd": "tf.train.ProximalGradientDescentOptimizer(0.1, 0.01, 0.1)",
    "proximal_adagrad": "tf.train.ProximalAdagradOptimizer(0.1, 0.2, 0.01, 0.1)",
    "adagrad_da": "tf.train.AdagradDAOptimizer(0.5, tf.constant(2, tf.int64), 0.2, 0.01, 0.1)",
}


def build(tf: Any, optimizer: str, resource: bool, sparse: bool, counted: bool) -> tuple[Any, Any, Any]:
    """Adds the model to the default graph; returns the optimizer, the training op and the variable."""
    x = tf.Variable(START, name="x", use_resource=resource)
    step = tf.Variable(0, name="step", trainable=False, use_resource=resource) if counted else None
    opt = eval(OPTIMIZERS[optimizer], {"tf": tf})
    if sparse:
        values = tf.constant([[1.0, 2.0], [3.0, -1.0], [0.5, 0.5]])
        grads = [(tf.IndexedSlices(values, tf.constant(ROWS), tf.constant([3, 2])), x)]
    else:
        values = tf.constant([[1.0, 2.0], [-3.0, -1.0], [0.5, 0.0]])
        grads = [(values, x)]
    return opt, opt.apply_gradients(grads, global_step=step), x


def combinations() -> list[tuple[str, bool, bool, bool]]:
    return [
        (name, resource, sparse, counted)
        for name in OPTIMIZERS
        for resource in (False, True)
        for sparse in (False, True)
        for counted in (False, True)
        if not (name == "sgd_callable" and resource and sparse)  # refused by TensorFlow
    ]


def outcomes(tf: Any) -> dict[str, Any]:
    """repr of a combination -> its `outcome`."""
    return {repr(combination): outcome(tf, combination) for combination in combinations()}


def outcome(tf: Any, combination: tuple[str, bool, bool, bool]) -> dict[str, Any]:
    """What a run gives: values after each step, slots and other state at the end, and the graph."""
    with tf.Graph().as_default() as graph, tf.Session() as session:
        opt, train, x = build(tf, *combination)
        described = describe(graph)
        session.run(tf.global_variables_initializer())
        values = []
        for _ in range(STEPS):
            session.run(train)
            values.append(session.run(x))
        state = {v.name: session.run(v) for v in opt.variables()}
    return {"values": values, "state": state, "slots": opt.get_slot_names(), "train": train.name, "graph": described}


def describe(graph: Any) -> list[list[Any]]:
    """[name, type, inputs, control inputs, groups of others that it is colocated with] of every op."""
    found = []
    for op in graph.get_operations():
        groups = sorted(g.decode() for g in op.colocation_groups() if g.decode() != f"loc:@{op.name}")
        found.append([op.name, op.type, [t.name for t in op.inputs], sorted(c.name for c in op.control_inputs), groups])
    return found
