"""The base class `Optimizer`: gates, constraints, and its errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.ops.stateful import initialize, read, run


class Unwritten(tf.train.Optimizer):
    def __init__(self) -> None:
        super().__init__(False, "Unwritten")


@pytest.mark.parametrize(
    ("use_resource", "sparse", "text"),
    [
        (False, False, "the variable 'w' by a dense gradient: write its method _apply_dense(self, grad, var)."),
        (False, True, "the variable 'w' by a sparse gradient: write its method _apply_sparse(self, grad, var)."),
        (True, False, "the resource variable 'w' by a dense gradient: write its method _resource_apply_dense("),
        (True, True, "by a sparse gradient: write its method _resource_apply_sparse(self, grad, handle, indices)."),
    ],
)
def test_a_missing_update_names_class_variable_and_method(use_resource: bool, sparse: bool, text: str) -> None:
    w = tf.get_variable("w", [5, 2], use_resource=use_resource)
    loss = tf.reduce_sum(tf.gather(w, [1, 2]) if sparse else w)
    with pytest.raises(NotImplementedError, match="^Unwritten cannot update ") as caught:
        Unwritten().minimize(loss)
    assert text in str(caught.value)


@pytest.mark.parametrize("make", [tf.train.GradientDescentOptimizer, tf.train.AdamOptimizer])
@pytest.mark.parametrize("value", ["0.1", True, lambda: "0.1"])
def test_a_hyper_parameter_that_is_no_number_is_told_when_the_step_is_built(make: Any, value: Any) -> None:
    w = tf.get_variable("w", [2])
    with pytest.raises(TypeError, match=rf"^{make.__name__}: learning_rate must be a number, or a tensor of one"):
        make(value).minimize(tf.reduce_sum(w))


# ---- what every optimizer does ---------------------------------------------------------------


def half_squared_norm(x: Any) -> Any:
    return tf.reduce_sum(x * x) * 0.5


def test_the_constraint_holds_after_the_update() -> None:
    x = tf.Variable([1.0, 1.0], constraint=lambda v: v * 0.0)
    train = tf.train.GradientDescentOptimizer(0.1).apply_gradients([(tf.constant([1.0, 1.0]), x)])
    initialize()
    run(train)
    np.testing.assert_array_equal(read(x), [0, 0])


Base = tf.train.Optimizer


@pytest.mark.parametrize("gate", [Base.GATE_NONE, Base.GATE_OP, Base.GATE_GRAPH])
def test_gates_do_not_change_gradients(gate: int) -> None:
    x, y = tf.Variable([1.0, 2.0]), tf.Variable([3.0, 4.0])
    loss = tf.reduce_sum(x * y)
    pairs = tf.train.GradientDescentOptimizer(0.1).compute_gradients(loss, [x, y], gate_gradients=gate)
    assert [v for _, v in pairs] == [x, y]
    initialize()
    np.testing.assert_array_equal(run(pairs[0][0]), [3, 4])
    np.testing.assert_array_equal(run(pairs[1][0]), [1, 2])


def test_variables_without_gradient_are_skipped() -> None:
    x, y = tf.Variable([1.0]), tf.Variable([1.0])
    opt = tf.train.MomentumOptimizer(0.1, 0.9)
    pairs = opt.compute_gradients(half_squared_norm(x), var_list=[x, y])
    assert pairs[1] == (None, y)
    opt.apply_gradients(pairs)
    assert opt.get_slot(x, "momentum") is not None
    assert opt.get_slot(y, "momentum") is None
    assert opt.get_slot(x, "other") is None


def test_own_optimizers_override_the_hooks() -> None:
    class Halving(tf.train.Optimizer):
        def _apply_dense(self, grad: Any, var: Any) -> Any:
            return var.assign(var * 0.5).op

    x = tf.Variable([4.0], name="x")
    train = Halving(False, "Halving").minimize(half_squared_norm(x))
    assert train.name == "Halving"
    initialize()
    run(train)
    assert read(x) == [2.0]


# ---- errors ---------------------------------------------------------------------------------


def sgd() -> tf.train.GradientDescentOptimizer:
    return tf.train.GradientDescentOptimizer(0.1)


def test_a_loss_without_variables_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^No variables to optimize\.$"):
        sgd().minimize(tf.constant(1.0))


def test_a_loss_without_gradients_is_refused() -> None:
    tf.Variable([1.0], name="v")
    with pytest.raises(ValueError) as caught:
        sgd().minimize(tf.constant(1.0))
    assert str(caught.value) == (
        "No gradients provided for any variable, check your graph for ops that do not support gradients, between"
        " variables [\"<tf.Variable 'v:0' shape=(1,) dtype=float32_ref>\"] and loss"
        ' Tensor("Const:0", shape=(), dtype=float32).'
    )


def test_an_unknown_gate_is_refused() -> None:
    x = tf.Variable([1.0])
    with pytest.raises(ValueError) as caught:
        sgd().compute_gradients(half_squared_norm(x), gate_gradients=5)
    assert str(caught.value) == (
        "gate_gradients must be one of: Optimizer.GATE_NONE, Optimizer.GATE_OP, Optimizer.GATE_GRAPH.  Not 5"
    )


def test_a_loss_of_integers_is_refused() -> None:
    tf.Variable([1.0])
    with pytest.raises(ValueError, match=r"Invalid type tf\.int32 for Const:0, expected: \[tf\.float16, "):
        sgd().minimize(tf.constant(1))


def test_missing_gradients_are_refused() -> None:
    v = tf.Variable([1.0], name="v")
    with pytest.raises(ValueError, match=r"^No variables provided\.$"):
        sgd().apply_gradients([])
    with pytest.raises(ValueError) as caught:
        sgd().apply_gradients([(None, v)])
    assert str(caught.value) == (
        "No gradients provided for any variable: [\"<tf.Variable 'v:0' shape=(1,) dtype=float32_ref>\"]."
    )


def test_objects_that_are_no_gradient_or_variable_are_refused() -> None:
    v = tf.Variable([1.0])
    with pytest.raises(TypeError, match="Gradient must be convertible to a Tensor or IndexedSlices, or None: <object"):
        sgd().apply_gradients([(object(), v)])
    with pytest.raises(NotImplementedError, match="Trying to update a Tensor"):
        sgd().apply_gradients([(tf.constant(1.0), tf.constant(2.0))])
    with pytest.raises(NotImplementedError, match="Trying to optimize unsupported type"):
        sgd().apply_gradients([(tf.constant(1.0), 3)])


def test_a_sparse_gradient_of_a_constrained_variable_is_refused() -> None:
    v = tf.Variable([[1.0]], constraint=lambda x: x)
    slices = tf.IndexedSlices(tf.constant([[1.0]]), tf.constant([0]))
    with pytest.raises(RuntimeError, match="Cannot use a constraint function on a sparse variable."):
        sgd().apply_gradients([(slices, v)])


def test_wrong_arguments_of_constructors_are_refused() -> None:
    with pytest.raises(ValueError, match="Must specify the optimizer name"):
        tf.train.Optimizer(False, "")
    with pytest.raises(ValueError, match="initial_accumulator_value must be positive: 0.0"):
        tf.train.AdagradOptimizer(0.1, 0.0)


def test_variables_may_be_given_as_a_view_of_a_dictionary() -> None:
    variables = {"b": tf.Variable(1.0), "a": tf.Variable(2.0)}
    loss = variables["a"] * variables["b"]
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    assert [v for _, v in optimizer.compute_gradients(loss, variables.values())] == list(variables.values())


def test_each_optimizer_of_tf_train_has_the_base_class_as_its_base() -> None:
    names = [name for name in dir(tf.train) if name.endswith("Optimizer") and name != "Optimizer"]
    bases = {name: getattr(tf.train, name).__base__ for name in names}  # GPflow 1 refuses a module that has another
    assert len(names) > 10
    assert [name for name, base in bases.items() if base is not tf.train.Optimizer] == []
