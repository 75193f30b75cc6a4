"""Programs with the optimizers and metrics of ``tf.contrib``: a part of `tests.programs.era`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.programs.era import outcome, program

START = np.float32([[1.0, -2.0], [3.0, 4.0], [-5.0, 6.0]])


def _after(tf: Any, make: Any, sparse: bool, resource: bool, steps: int = 3, **settings: Any) -> Any:
    """A variable and the slots after some steps of an optimizer."""
    with tf.Graph().as_default():
        v = tf.get_variable("v", initializer=START, use_resource=resource)
        value = tf.gather(v, [0, 2, 0]) if sparse else v
        count = tf.train.get_or_create_global_step()
        loss = tf.reduce_sum(tf.square(value - 1.0)) / 7.0
        step = make(v).minimize(loss, global_step=count, **settings)
        with tf.Session(config=tf.ConfigProto(inter_op_parallelism_threads=1)) as session:
            session.run(tf.global_variables_initializer())
            for _ in range(steps):
                session.run(step)
            others = sorted((x for x in tf.global_variables() if x is not v), key=lambda x: x.name)
            return session.run(v), [(x.name, session.run(x)) for x in others]


@program
def optimizers_by_matrices(tf: Any) -> Any:
    opt = tf.contrib.opt
    made = {
        "shampoo": lambda v: opt.ShampooOptimizer(learning_rate=0.1),
        "shampoo, mean": lambda v: opt.ShampooOptimizer(
            tf.train.get_global_step(), gbar_decay=0.5, gbar_weight=0.5, mat_gbar_decay=0.9, learning_rate=0.1),
        "shampoo, functions": lambda v: opt.ShampooOptimizer(
            tf.train.get_global_step(), gbar_decay=lambda t: t / (t + 1.0), learning_rate=lambda t: 0.2 / t, alpha=0.8),
        "shampoo, seldom": lambda v: opt.ShampooOptimizer(
            tf.train.get_global_step(), svd_interval=2, precond_update_interval=2, learning_rate=0.1),
        "shampoo, diagonal": lambda v: opt.ShampooOptimizer(max_matrix_size=2, learning_rate=0.1),
        "shampoo, iterated": lambda v: opt.ShampooOptimizer(use_iterative_root=True, learning_rate=0.1),
    }  # fmt: skip
    kinds = [(False, False), (False, True), (True, False), (True, True)]
    # Not the last kind of the diagonal one: 1.15.5 loses sparse gradients of resource variables there.
    found = {
        name: [_after(tf, make, *kind) for kind in kinds[: 3 if name == "shampoo, diagonal" else 4]]
        for name, make in made.items()
    }
    ggt = {"ggt": lambda v: opt.GGTOptimizer(0.1),
           "ggt, window": lambda v: opt.GGTOptimizer(0.1, 0.5, window=2, eps=1e-9),
           "ggt, far": lambda v: opt.GGTOptimizer(0.1, eps=10.0, svd_eps=1e-3, sigma_eps=0.1)}  # fmt: skip
    values = {
        name: [_after(tf, make, False, resource, steps=4) for resource in (False, True)] for name, make in ggt.items()
    }
    bad = [outcome(lambda resource=resource: _after(tf, ggt["ggt"], True, resource)) for resource in (False, True)]
    with tf.Graph().as_default():  # without a global step, which is integers, unlike its own variable of this name
        v = tf.get_variable("v", initializer=START)
        step = ggt["ggt"](v).minimize(tf.reduce_sum(tf.square(v)))
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            session.run(step)
            return found, values, bad, session.run(v)


@program
def optimizers_of_papers(tf: Any) -> Any:
    from tensorflow.contrib.opt.python.training import sign_decay

    opt, train = tf.contrib.opt, tf.train
    made = {
        "add sign": lambda v: opt.AddSignOptimizer(0.1), "power sign": lambda v: opt.PowerSignOptimizer(0.1),
        "add sign, linear": lambda v: opt.AddSignOptimizer(
            0.2, alpha=0.5, beta=0.5, sign_decay_fn=sign_decay.get_linear_decay_fn(5)),
        "power sign, cosine": lambda v: opt.PowerSignOptimizer(
            0.1, base=2.0, sign_decay_fn=sign_decay.get_cosine_decay_fn(5)),
        "lars": lambda v: opt.LARSOptimizer(0.5, momentum=0.5, weight_decay=0.01, eeta=0.1),
        "lars, nesterov": lambda v: opt.LARSOptimizer(0.5, epsilon=0.1, use_nesterov=True),
        "lars, skipped": lambda v: opt.LARSOptimizer(0.1, skip_list=["w", "v"]),
        "adagrad": lambda v: opt.RegAdagradOptimizer(0.1),
        "clipped": lambda v: opt.VariableClippingOptimizer(train.GradientDescentOptimizer(0.3), {v: [1]}, 3.0),
        "clipped columns": lambda v: opt.VariableClippingOptimizer(train.MomentumOptimizer(0.1, 0.5), {v: [0]}, 3.0),
    }  # fmt: skip
    kinds = [(False, False), (False, True), (True, False), (True, True)]
    # 1.15 has no update by signs for the sparse gradient of a resource variable.
    found = {name: [_after(tf, make, *kind) for kind in kinds[: 3 if "sign" in name else 4]]
             for name, make in made.items()}  # fmt: skip
    wrong = [lambda: opt.LARSOptimizer(0.1, momentum=-1.0), lambda: opt.LARSOptimizer(0.1, weight_decay=-1.0),
             lambda: opt.MultitaskOptimizerWrapper(3)]  # fmt: skip
    steps = tf.range(0, 12, 3)
    decays = [sign_decay.get_linear_decay_fn(6), sign_decay.get_cosine_decay_fn(6, 1.5, 1.0),
              sign_decay.get_restart_decay_fn(6, 2), sign_decay.get_restart_decay_fn(6, 2, 1)]  # fmt: skip
    with tf.Session() as session:
        return (
            found,
            [session.run([decay(steps[i]) for i in range(4)]) for decay in decays],
            [outcome(w) for w in wrong],
        )


@program
def slots_left_alone(tf: Any) -> Any:
    opt = tf.contrib.opt

    def tasks(resource: bool, sparse: bool) -> Any:
        with tf.Graph().as_default():
            v = tf.get_variable("v", initializer=START, use_resource=resource)
            there = tf.placeholder(tf.float32, [])
            loss = tf.reduce_sum(tf.square(tf.gather(v, [1, 2]) if sparse else v)) * there
            wrapped = opt.MultitaskOptimizerWrapper(tf.train.MomentumOptimizer(0.1, 0.9))
            step = wrapped.apply_gradients(wrapped.compute_gradients(loss))
            with tf.Session() as session:
                session.run(tf.global_variables_initializer())
                found = []
                for value in (0.5, 0.0, 0.5):
                    session.run(step, {there: value})
                    found.append(session.run([v, wrapped.get_slot(v, "momentum")]))
                return found

    def regularized() -> Any:
        v = tf.get_variable("v", initializer=START)
        adagrad = opt.RegAdagradOptimizer(0.5)
        step = adagrad.minimize(tf.reduce_sum(v * v))
        with adagrad.avoid_updating_slots():
            other = adagrad.minimize(tf.reduce_sum(v))
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            slot, found = adagrad.get_slot(v, "accumulator"), []
            for op in (step, other, step):
                session.run(op)
                found.append(session.run([v, slot]))
            return found

    kinds = [(False, False), (True, False), (False, True), (True, True)]
    return [tasks(*kind) for kind in kinds], regularized()
