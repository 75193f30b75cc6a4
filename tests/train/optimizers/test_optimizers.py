"""Optimizers: trajectories, graphs and names against TensorFlow's, and placement on parameter servers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.ops.stateful import initialize, read, run
from tests.oracle import Oracle, sent
from tests.train.optimizers import optimizer_cases as cases


def half_squared_norm(x: Any) -> Any:
    return tf.reduce_sum(x * x) * 0.5


# ---- against TensorFlow ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def theirs(oracle: Oracle) -> dict[str, Any]:
    return oracle.call(cases.outcomes)


@pytest.mark.oracle
@pytest.mark.parametrize("combination", cases.combinations(), ids=repr)
def test_trajectories_are_tensorflows(combination: tuple[str, bool, bool, bool], theirs: dict[str, Any]) -> None:
    ours, wanted = cases.outcome(tf, combination), theirs[repr(combination)]
    np.testing.assert_allclose(ours["values"], wanted["values"], rtol=2e-6, atol=1e-6)
    for exact in ("train", "slots"):
        assert ours[exact] == wanted[exact]
    assert list(ours["state"]) == list(wanted["state"])
    for name, value in ours["state"].items():
        np.testing.assert_allclose(value, wanted["state"][name], rtol=2e-6, atol=1e-6)


@pytest.mark.oracle
# Ftrl of TensorFlow 2.x makes its slots and its l2 otherwise than that of 1.15.
@pytest.mark.parametrize("combination", [c for c in cases.combinations() if not c[1] and "ftrl" not in c[0]], ids=repr)
def test_graphs_of_reference_variables_are_tensorflows(
    combination: tuple[str, bool, bool, bool], theirs: dict[str, Any]
) -> None:
    wanted = theirs[repr(combination)]["graph"]
    for line in wanted:
        line[1] = "Add" if line[1] == "AddV2" else line[1]  # TensorFlow 1.15 has Add where 2.x has AddV2
    assert sent(cases.outcome(tf, combination)["graph"]) == wanted


# ---- the reference trajectories ---------------------------------------------------------------


@pytest.mark.parametrize("resource", [False, True])
@pytest.mark.parametrize(
    "optimizer,first",
    [
        (lambda: tf.train.GradientDescentOptimizer(0.1), [0.9, 0.81, 0.729]),
        (lambda: tf.train.MomentumOptimizer(0.1, 0.9), [0.9, 0.72, 0.486]),
        (lambda: tf.train.MomentumOptimizer(0.1, 0.9, use_nesterov=True), [0.81, 0.5751, 0.327321]),
        (lambda: tf.train.AdamOptimizer(0.1), [0.9, 0.8004127, 0.7015874]),
        (lambda: tf.train.AdagradOptimizer(0.1), [0.9046537, 0.8393387, 0.7875128]),
        (lambda: tf.train.RMSPropOptimizer(0.1), [0.9, 0.8091326, 0.7260460]),
        (lambda: tf.train.RMSPropOptimizer(0.1, momentum=0.5), [0.9, 0.7591326, 0.6104224]),
        (lambda: tf.train.RMSPropOptimizer(0.1, centered=True), [0.8994962, 0.8071382, 0.7215374]),
        (lambda: tf.train.AdadeltaOptimizer(1.0), [0.9995528, 0.9990999, 0.9986435]),
    ],
)
def test_trajectories_are_those_worked_out_by_hand(optimizer: Any, first: list[float], resource: bool) -> None:
    x = tf.Variable([1.0, -2.0], use_resource=resource)
    train = optimizer().minimize(half_squared_norm(x))
    initialize()
    for wanted in first:
        run(train)
        assert read(x)[0] == pytest.approx(wanted, rel=1e-3 if wanted == 0.9 else 2e-6)


@pytest.mark.parametrize("resource", [False, True])
def test_minimize_through_a_lookup_sums_repeated_rows(resource: bool) -> None:
    table = tf.Variable([[1.0], [2.0], [3.0]], use_resource=resource)
    picked = tf.gather(table, [2, 2])
    train = tf.train.MomentumOptimizer(0.5, 0.0).minimize(tf.reduce_sum(picked))
    initialize()
    run(train)
    np.testing.assert_array_equal(read(table), [[1], [2], [2]])


@pytest.mark.parametrize("resource", [False, True])
def test_global_step_counts_updates(resource: bool) -> None:
    x = tf.Variable([1.0], use_resource=resource)
    step = tf.Variable(np.int64(5), trainable=False, use_resource=resource)
    train = tf.train.GradientDescentOptimizer(0.1).minimize(half_squared_norm(x), global_step=step)
    assert train.name == "GradientDescent"
    assert tf.get_default_graph().get_collection(tf.GraphKeys.TRAIN_OP) == [train]
    initialize()
    run(train)
    assert read(step) == 6


def test_float64_variables_take_float32_rates() -> None:
    x = tf.Variable(np.array([1.0]))
    train = tf.train.AdagradOptimizer(0.1).minimize(half_squared_norm(x))
    initialize()
    run(train)
    assert read(x).dtype == np.float64


# ---- parameter servers ----------------------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True])
def test_updates_live_with_their_variable(sparse: bool) -> None:
    with tf.device(tf.train.replica_device_setter(ps_tasks=2, worker_device="/job:worker/task:1")):
        a, b = tf.Variable([[1.0], [2.0]], name="a"), tf.Variable([[1.0], [2.0]], name="b")
        grad: Any = tf.constant([[1.0], [1.0]])
        if sparse:
            grad = tf.IndexedSlices(grad, tf.constant([0, 0]))
        train = tf.train.AdamOptimizer(0.1).apply_gradients([(grad, a), (grad, b)])
    ops = {op.name: op for op in tf.get_default_graph().get_operations()}
    for task, var in enumerate((a, b)):
        assert var.device == f"/job:ps/task:{task}"
        own = [op for name, op in ops.items() if name.startswith(f"Adam/update_{var.op.name}/")]
        assert own
        assert all(
            op.device == var.device and op.colocation_groups()[0] == f"loc:@{var.op.name}".encode() for op in own
        )
        assert ops[f"{var.op.name}/Adam"].device == ops[f"{var.op.name}/Adam_1"].device == var.device
    assert ops["beta1_power"].device == a.device
    assert ops["Adam/learning_rate"].device == "/job:worker/task:1"
    assert train.name == "Adam"


# ---- hyper-parameters -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "optimizer",
    [tf.train.GradientDescentOptimizer(1), tf.train.MomentumOptimizer(1, 0), tf.train.AdagradOptimizer(1)],
)
def test_hyper_parameters_may_be_integers(optimizer: tf.train.Optimizer) -> None:
    weights = tf.Variable([1.0, 2.0], name="weights")
    step = optimizer.minimize(tf.reduce_sum(weights * 2.0))
    initialize()
    run([step])
    assert (read(weights) < [1.0, 2.0]).all()


def test_subclasses_read_and_set_hyper_parameters_by_tensorflows_names() -> None:
    class Own(tf.train.AdamOptimizer):
        def _finish(self, update_ops: Any, name_scope: str) -> Any:
            return tf.group(super()._finish(update_ops, name_scope), self._beta1_t * self._lr_t)

        def _apply_sparse_shared(self, grad: Any, var: Any, indices: Any, scatter_add: Any) -> Any:
            return super()._apply_sparse_shared(grad * 0.0, var, indices, scatter_add)

    own = Own(0.5, beta1=0.25)
    assert own._lr == 0.5 and own._beta1 == 0.25 and own._epsilon == 1e-8
    own._lr = 0.125
    for resource in (False, True):
        x = tf.get_variable(f"x{resource}", initializer=[1.0, 2.0], use_resource=resource)
        step = own.minimize(tf.gather(x, [0]))
        with tf.Session() as session:
            session.run(tf.global_variables_initializer())
            session.run(step)
            assert session.run([own._lr_t, own._beta1_t]) == [0.125, 0.25] and session.run(x).tolist() == [1, 2]
    momentum = tf.train.MomentumOptimizer(0.1, 0.5)
    momentum.minimize(x)
    assert momentum._learning_rate == 0.1 and momentum._momentum_tensor.name.startswith("Momentum/momentum")
    assert not hasattr(momentum, "_nothing_t")


def test_a_global_step_that_is_a_constant_is_an_error() -> None:
    v, optimizer = tf.Variable(1.0), tf.train.GradientDescentOptimizer(0.1)
    with pytest.raises(AttributeError, match="no attribute 'assign_add'"):
        optimizer.apply_gradients([(v, v)], global_step=tf.constant(1))
