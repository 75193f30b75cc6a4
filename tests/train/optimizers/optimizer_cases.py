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


SCHEDULES = [
    "tf.train.exponential_decay(0.1, step, 10, 0.5)",
    "tf.train.exponential_decay(0.1, step, 10, 0.5, staircase=True, name='lr')",
    "tf.train.natural_exp_decay(0.1, step, 10, 0.5)",
    "tf.train.inverse_time_decay(0.1, step, 10, 0.5)",
    "tf.train.inverse_time_decay(0.1, step, 10, 0.5, staircase=True)",
    "tf.train.polynomial_decay(0.1, step, 10)",
    "tf.train.polynomial_decay(0.1, step, 10, 0.01, power=2.0)",
    "tf.train.polynomial_decay(0.1, step, 10, 0.01, cycle=True)",
    "tf.train.piecewise_constant(step, [3, 10], [0.1, 0.2, 0.3])",
    "tf.train.piecewise_constant(step, [9], [1.0, 0.5])",
    "tf.train.cosine_decay(0.1, step, 20)",
    "tf.train.cosine_decay(0.1, step, 20, alpha=0.3)",
    "tf.train.cosine_decay_restarts(0.1, step, 4)",
    "tf.train.cosine_decay_restarts(0.1, step, 4, t_mul=1.0, m_mul=0.5, alpha=0.1)",
    "tf.train.cosine_decay_restarts(0.1, step, 4, t_mul=1.5, m_mul=0.9)",
    "tf.train.linear_cosine_decay(0.1, step, 20)",
    "tf.train.linear_cosine_decay(0.1, step, 20, num_periods=2.0, alpha=0.1, beta=0.2)",
]
SCHEDULE_STEPS = [0, 1, 3, 4, 9, 10, 11, 20, 35]
