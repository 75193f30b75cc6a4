"""`tf.function`; the figures are those of TensorFlow 1.15.5."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.ops.session_run import run


def variable(value: Any) -> Any:
    return tf.Variable(value, use_resource=True)


def test_reads_and_writes_run_in_the_order_of_the_program() -> None:
    v = variable(1.0)

    @tf.function
    def call(x: Any) -> Any:
        before = v + 0.0
        v.assign_add(x)
        between = v + 0.0
        v.assign(between * 2)
        return before, between, v.read_value(), v

    assert run(call(2.0)) == (1, 3, 6, 6)


def test_all_effects_come_before_each_result() -> None:
    v, told = variable(1.0), []

    @tf.function
    def call(x: Any) -> Any:
        for i in range(5):
            tf.py_func(lambda i=i: told.append(i), [], [])
        v.assign_add(x)
        return x, None, {"three": 3}

    x, nothing, rest = call(tf.constant(2.0))
    assert nothing is None and rest["three"].dtype is tf.int32
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(x) == 2 and session.run(v) == 3 and told == [0, 1, 2, 3, 4]


def test_a_function_of_nothing_is_an_operation_that_runs_its_effects() -> None:
    v = variable(1.0)

    @tf.function
    def call() -> None:
        v.assign_add(2.0)

    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        assert session.run(call()) is None and session.run(v) == 3


@pytest.mark.parametrize(("n", "expected"), [(5, (5, 1, 11, 111)), (1, (1, -1, 1, 101))])
def test_the_effects_of_a_branch(n: int, expected: Any) -> None:
    """They run although no result of the branch depends on them, between those before the cond and those after it."""
    v = variable(1.0)

    @tf.function
    def call(n: Any) -> Any:
        def large() -> Any:
            old = v + 0.0
            v.assign(old + 10.0)
            return n, old

        same, old = tf.cond(n > 3, large, lambda: (n, -1.0))
        after = v.read_value()
        v.assign_add(100.0)
        return same, old, after, v

    assert run(call(tf.constant(n))) == expected


def count_up(v: Any, u: Any) -> Any:
    @tf.function
    def call(n: Any) -> Any:
        def body(i: Any) -> Any:
            def odd() -> Any:
                v.assign(v * 2.0 + 1.0)
                return i + 1

            def even() -> Any:
                v.assign(v * 3.0)
                return i + 1

            following = tf.cond(tf.equal(i % 2, 1), odd, even)
            u.assign_add(following)
            return following

        return tf.while_loop(lambda i: tf.logical_and(i < n, u < 100), body, [0]), v, u

    return call(tf.constant(6))


def test_each_iteration_waits_for_the_effects_of_that_before() -> None:
    assert run(count_up(variable(1.0), variable(0))) == (6, 259, 21)


def test_the_order_holds_between_tasks() -> None:
    with tf.LocalCluster(ps=2, workers=1) as cluster:
        with tf.device("/job:ps/task:0"):
            v = variable(1.0)
        with tf.device("/job:ps/task:1"):
            u = variable(0)
        with tf.device("/job:worker/task:0"):
            counted = count_up(v, u)
        with tf.Session(cluster.target) as session:
            session.run(tf.global_variables_initializer())
            assert session.run(counted) == (6, 259, 21)


def test_loops_in_loops() -> None:
    v = variable(1.0)

    @tf.function
    def call(n: Any) -> Any:
        def inner(j: Any) -> Any:
            v.assign(v * 2.0 - tf.cast(j, tf.float32))
            return j + 1

        def body(i: Any, total: Any) -> Any:
            tf.while_loop(lambda j: j < i, inner, [0])
            x = v.read_value()
            v.assign(x + 1.0)
            return i + 1, total + x

        return tf.while_loop(lambda i, total: i < n, body, [0, 0.0])[1], v

    assert run(call(tf.constant(5))) == (2681, 2502)


def test_the_effects_of_a_predicate() -> None:
    v = variable(0)

    @tf.function
    def call() -> Any:
        return tf.while_loop(lambda i: v.assign_add(1) < 5, lambda i: i + 1, [0]), v

    assert run(call()) == (4, 5)


def test_a_function_in_a_function_and_in_a_loop() -> None:
    v = variable(1.0)

    @tf.function
    def add(x: Any) -> Any:
        v.assign_add(x)
        return v.read_value()

    @tf.function
    def twice(x: Any) -> Any:
        add(x)
        add(x)
        return v + 0.0

    assert run(twice(5.0)) == 11
    assert run(tf.while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, add(1.0)), [0, 0.0])) == (3, 4)


def test_a_training_step_with_gradients_inside_and_outside() -> None:
    v, optimizer = variable(2.0), tf.train.GradientDescentOptimizer(0.1)

    @tf.function
    def train(x: Any) -> Any:
        loss = v * v * x
        optimizer.minimize(loss, var_list=[v])
        return loss, v

    assert run(train(3.0)) == pytest.approx((12, 0.8))

    @tf.function
    def power(x: Any) -> Any:
        return tf.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * v * x), [0, 1.0])[1]

    x = tf.constant(3.0)
    y = power(x)
    assert run([y, *tf.gradients(y, [x, v])]) == [216, 216, 324]


@pytest.mark.parametrize(("taken", "expected"), [(True, (12, 0.8)), (False, (0, 2))])
def test_a_training_step_in_a_branch(taken: bool, expected: Any) -> None:
    """The gradient is computed in the branch, where nothing waits for the branch that is not taken."""
    v, optimizer = variable(2.0), tf.train.GradientDescentOptimizer(0.1)

    @tf.function
    def train(taken: Any) -> Any:
        def step() -> Any:
            loss = v * v * 3.0
            optimizer.minimize(loss, var_list=[v])
            return loss

        return tf.cond(taken, step, lambda: 0.0), v

    assert run(train(tf.constant(taken))) == pytest.approx(expected)


@pytest.mark.parametrize("returns", [False, True])
@pytest.mark.parametrize(("taken", "both", "expected"), [(True, True, 1.6), (False, True, 1.7), (False, False, 2.0)])
def test_a_training_step_whose_loss_has_branches(taken: bool, both: bool, expected: float, returns: bool) -> None:
    """The gradient is computed outside of the branches, where it also needs zeros for the one that is not taken."""
    v, optimizer = variable(2.0), tf.train.GradientDescentOptimizer(0.1)
    pred = tf.placeholder_with_default(taken, [])

    @tf.function
    def train(pred: Any) -> Any:
        loss = tf.cond(pred, lambda: v * v, lambda: v * 3.0 if both else tf.constant(1.0))
        optimizer.minimize(loss, var_list=[v])
        return loss if returns else None

    step = train(pred)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        session.run(step)
        assert session.run(v) == pytest.approx(expected)


def test_ops_from_outside_that_a_function_groups_run() -> None:
    v = variable(5.0)

    @tf.function
    def initialize() -> None:
        tf.variables_initializer([v])

    with tf.Session() as session:
        session.run(initialize())
        assert session.run(v) == 5


class Scaled:
    weight: Any = None

    @tf.function
    def __call__(self, x: Any) -> Any:
        with tf.name_scope("inner"):
            if self.weight is None:
                self.weight = tf.Variable(3.0)
        return self.weight * x


def test_the_first_call_may_create_variables() -> None:
    first, second = Scaled(), Scaled()
    with tf.name_scope("outside"):
        results = [first(2.0), first(4.0), second(5.0)]
    assert run(results) == [6, 12, 15]
    assert [v.name for v in tf.global_variables()] == ["inner/Variable:0", "inner/Variable_1:0"]
    always = tf.function(lambda: tf.Variable(1.0) + 0.0)
    always()
    with pytest.raises(ValueError, match="create variables on non-first call"):
        always()


def test_a_reference_variable_is_refused_where_it_changes() -> None:
    v = tf.Variable(1.0, name="v", use_resource=False)
    assert run(tf.function(lambda: v + v.read_value())()) == 2
    with pytest.raises(TypeError, match="uses v by reference: make the variable with use_resource=True"):
        tf.function(lambda: v.assign_add(1.0))()


def test_arguments_fit_the_signature() -> None:
    @tf.function(input_signature=[tf.TensorSpec([None], tf.float32), [tf.TensorSpec([], tf.int32)]])
    def call(x: Any, scales: Any) -> Any:
        return x * tf.cast(scales[0], tf.float32)

    assert run(call([1, 2], scales=[np.int32(3)])).tolist() == [3, 6]
    with pytest.raises(ValueError, match="Python inputs incompatible with input_signature"):
        call(tf.constant(1.0), [3])
    with pytest.raises(ValueError, match="Python inputs incompatible with input_signature"):
        call(tf.constant([1]), [3])
    with pytest.raises(TypeError, match="only pass arguments covered by it"):
        call([1.0], [3], 4)


def test_what_cannot_be_returned() -> None:
    for value in (object(), tf.no_op()):
        with pytest.raises(TypeError, match="must return zero or more Tensors"):
            tf.function(lambda value=value: value)()


def test_composites_and_arrays() -> None:
    sparse = tf.function(lambda s: tf.SparseTensor(s.indices, s.values * 2, s.dense_shape))
    assert run(sparse(tf.SparseTensor([[0]], [1.0], [2]))).values.tolist() == [2]

    @tf.function
    def stacked() -> Any:
        return tf.TensorArray(tf.float32, 2).write(0, 1.0).write(1, 2.0)

    assert run(stacked().stack()).tolist() == [1, 2]
    assert run(tf.data.Dataset.range(2).map(tf.function(lambda x: x + 5)).make_one_shot_iterator().get_next()) == 5


def test_a_function_of_a_library_is_converted_when_the_library_asks_for_it() -> None:
    pytest.importorskip("malt")
    v = variable(False)

    def initialized(x: Any) -> Any:
        if not v:
            v.assign(True)
            x = x + 1.0
        return x

    initialized.__module__ = "tensorflow_probability.python.layers"
    first, second = (tf.function(initialized)(tf.constant(0.0)) for _ in range(2))
    with tf.Session() as session:
        session.run(v.initializer)
        assert [session.run(first), session.run(second)] == [1.0, 0.0]


def test_a_concrete_function_tells_what_it_takes_and_returns() -> None:
    v = variable(2.0)
    made = tf.function(lambda x, y=1: (x * v, {"a": x[0]}, None)).get_concrete_function(tf.TensorSpec([None]))
    shapes, types = made.output_shapes, made.output_dtypes
    assert (shapes[0].as_list(), shapes[1]["a"].as_list(), shapes[2].ndims) == ([None], [], None)
    assert types == (tf.float32, {"a": tf.float32}, None)
    assert made.structured_input_signature == ((tf.TensorSpec([None], name="x"), 1), {})
    assert made.captured_inputs == [v.handle]
    assert run(made(tf.constant([1.0, 3.0]))[0]).tolist() == [2, 6]
    assert run(made(x=tf.constant([4.0]))[1]["a"]) == 4
    for args, error, message in [
        ((), TypeError, "Expected argument names .'x'. but got 0"),
        ((1.0,), ValueError, "must be Tensors"),
        ((tf.constant(1.0),), ValueError, "is not compatible with the type and shape"),
        ((tf.constant([1]),), ValueError, "is not compatible with the type and shape"),
    ]:
        with pytest.raises(error, match=message):
            made(*args)


def test_the_names_of_a_concrete_functions_arguments() -> None:
    spec = tf.TensorSpec

    def names(made: Any) -> list[str]:
        return [tensor.op.name for tensor in made.inputs]

    several = tf.function(lambda x, *y, **z: x)
    made = several.get_concrete_function(spec([1]), spec([2]), spec([3], name="q"), k=spec([4]), j=spec([5]))
    assert names(made) == ["x", "y_0", "q", "j", "k"]
    nested = tf.function(lambda x, y: x["b"]).get_concrete_function({"b": spec([1]), "a": spec([2])}, [tf.ones([3])])
    assert names(nested) == ["x", "x_1", "y"]
    values = {"x": tf.ones([2]), "x_1": tf.zeros([1]), "y": tf.ones([3])}
    assert run(nested(**values)).tolist() == [0]
    sparse = tf.function(lambda x: tf.SparseTensor([[0]], [x], [2])).get_concrete_function(spec([]))
    assert sparse.output_dtypes == [tf.int64, tf.float32, tf.int64]
    with pytest.raises(NotImplementedError, match="dense tensors"):
        several.get_concrete_function(tf.SparseTensorSpec([2]))


def test_lists_of_numbers_are_arrays_below_the_keys_of_an_input_signature() -> None:
    spec = {"a": tf.TensorSpec([None, None]), "b": {"c": tf.TensorSpec([None], tf.int32)}}
    summed = tf.function(lambda x: tf.reduce_sum(x["a"]) + tf.cast(tf.reduce_sum(x["b"]["c"]), tf.float32), [spec])
    with tf.Session() as sess:
        assert sess.run(summed({"a": [[1, 2], [3, 4]], "b": {"c": [5]}})) == 15.0


def test_the_concrete_function_of_an_input_signature() -> None:
    double = tf.function(lambda x: x * 2, input_signature=[tf.TensorSpec([None])])
    for args in ((), (tf.TensorSpec([3]),), (tf.ones([2]),)):
        assert double.get_concrete_function(*args).output_shapes.as_list() == [None]
    for given in (1.0, tf.TensorSpec([3], tf.int32)):
        with pytest.raises(ValueError, match="Python inputs incompatible with input_signature"):
            double.get_concrete_function(given)

    class Model:
        @tf.function
        def call(self, x: Any) -> Any:
            return x + 1

    made = Model().call.get_concrete_function(tf.TensorSpec([2]))
    assert made.structured_input_signature == ((tf.TensorSpec([2], name="x"),), {})


@pytest.mark.parametrize("optimizer", [tf.train.MomentumOptimizer(0.25, 0.5), tf.train.AdamOptimizer(0.5)])
def test_a_concrete_function_may_train(optimizer: tf.train.Optimizer) -> None:
    v = variable([1.0, 2.0])

    @tf.function
    def step(scale: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(v * v * scale)
        with tf.control_dependencies([optimizer.apply_gradients([(tape.gradient(loss, v), v)])]):
            return tf.identity(loss), v.read_value()

    made = step.get_concrete_function(tf.TensorSpec([]))
    assert [shape.as_list() for shape in made.output_shapes] == [[], [2]]
    loss, after = run(made(tf.constant(1.0)))
    second = 1.0 if optimizer.get_name() == "Momentum" else 1.5
    assert (loss, after.tolist()) == (5.0, pytest.approx([0.5, second], abs=1e-6))


def test_what_is_compiled_for_xla_is_no_place_for_others_after_an_error() -> None:
    def fail(x: Any) -> Any:
        raise KeyError(x.op.name)

    with pytest.raises(KeyError, match="input_0"):
        tf.xla.experimental.compile(fail, [1.0])
    assert not tf.get_variable_scope().use_resource
    (three,) = tf.xla.experimental.compile(lambda x: x + 2.0, [1.0])
    assert run(three) == 3.0
