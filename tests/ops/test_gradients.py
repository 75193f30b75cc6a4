import itertools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.ops.evaluate import evaluate
from tfmini import dtypes
from tfmini.graph.conversion import IndexedSlices
from tfmini.graph.graph import Graph
from tfmini.graph.op_types import GRADIENTS, OPS
from tfmini.graph.registry import op
from tfmini.graph.scoping import device
from tfmini.ops.array.constant import constant
from tfmini.ops.array.identity import identity
from tfmini.ops.gradients import (
    AggregationMethod,
    NotDifferentiable,
    RegisterGradient,
    UnconnectedGradients,
    gradients,
    hessians,
)
from tfmini.ops.math.elementwise import add, multiply, subtract


@pytest.fixture(autouse=True)
def graph():
    with Graph().as_default() as g:
        yield g


opaque = OPS.get("TestOpaque") or op("TestOpaque(x: T) -> y: T; T: type")
probe = OPS.get("TestProbe") or op("TestProbe(x: T, y: T) -> a: T, b: T; T: type")
if probe.shape_function is None:
    probe.shape(lambda node: [node.inputs[0].raw_shape] * 2)
    probe.kernel("CPU")(lambda x, y: (x * 2, y * 3))
    probe.gradient(lambda node, da, db: [multiply(da, 2.0), multiply(db, 3.0)])


def names(graph, since):
    return [o.name for o in graph.get_operations()[since:]]


def test_ops_of_gradients_have_tensorflows_names(graph):
    a, b = constant(1.0, name="a"), constant(2.0, name="b")
    y = multiply(a, b, name="y")
    start = graph.version
    da, db = gradients(y, [a, b])
    assert names(graph, start)[:3] == ["gradients/Shape", "gradients/grad_ys_0", "gradients/Fill"]
    assert all(n.startswith("gradients/y_grad/") for n in names(graph, start)[3:])
    assert evaluate([da, db]) == [2.0, 1.0]
    assert gradients(y, a)[0].name.startswith("gradients_1/y_grad/")


def test_contributions_are_added_on_the_device_of_the_first(graph):
    a, b = constant(3.0, name="a"), constant([2.0], name="b")
    da, _ = gradients([multiply(a, b), multiply(a, b)], [a, b])
    assert da.name == "gradients/AddN:0"
    assert da.op.inputs[0].op.name.encode() in da.op.colocation_groups()[0]
    assert evaluate(da) == 4.0


@pytest.mark.parametrize("method", [None, *range(3)])
def test_aggregation_methods_agree(method):
    a = constant(3.0)
    y = add(add(multiply(a, a), a), multiply(a, 2.0))
    (da,) = gradients(y, a, aggregation_method=method)
    assert evaluate(da) == 9.0


def test_an_unknown_aggregation_method_is_refused():
    a = constant(3.0)
    with pytest.raises(ValueError, match="Invalid `aggregation_method` specified 99"):
        gradients(multiply(a, a), a, aggregation_method=99)
    assert AggregationMethod.DEFAULT == AggregationMethod.ADD_N == 0


def test_an_unconnected_x_has_none_or_zeros():
    a, b = constant(1.0), constant([1.0, 2.0])
    assert gradients(multiply(a, 2.0), [b]) == [None]
    (zeros,) = gradients(multiply(a, 2.0), [b], unconnected_gradients=UnconnectedGradients.ZERO)
    assert evaluate(zeros).tolist() == [0.0, 0.0]
    with pytest.raises(ValueError, match="Unknown value for unconnected_gradients: 'some'"):
        gradients(a, b, unconnected_gradients="some")


def test_y_may_be_x_and_x_may_be_inside_the_path():
    a = constant(2.0)
    b = multiply(a, a)
    y = multiply(b, 5.0)
    assert evaluate(gradients(y, [a, b, y])) == [20.0, 5.0, 1.0]


def test_stop_gradients_are_constants():
    a = constant(2.0)
    b = multiply(a, 3.0)
    assert evaluate(gradients(add(a, b), [a, b])) == [4.0, 1.0]
    assert evaluate(gradients(add(a, b), [a, b], stop_gradients=[a, b])) == [1.0, 1.0]


def test_grad_ys_weight_the_ys():
    a = constant([1.0, 2.0])
    (da,) = gradients([multiply(a, a)], a, grad_ys=[constant([10.0, 100.0])])
    assert evaluate(da).tolist() == [20.0, 400.0]
    with pytest.raises(ValueError, match="Passed 2 grad_ys for 1 ys"):
        gradients(a, a, grad_ys=[a, a])
    with pytest.raises(TypeError, match="Gradient type string generated for real or integer-valued tensor"):
        gradients(a, a, grad_ys=[constant(["s"])])


def test_default_gradient_needs_a_real_y():
    c = constant(np.complex64(1j))
    with pytest.raises(TypeError, match="Gradients of complex tensors must set grad_ys"):
        gradients(c, c)


def test_outputs_without_gradient_get_zeros(graph):
    x, y = constant([1.0]), constant([2.0])
    a, _ = probe(x, y)
    assert evaluate(gradients(a, [x, y])) == [[2.0], [0.0]]


def test_missing_gradient_names_the_op():
    y = opaque(constant(1.0), name="secret")
    with pytest.raises(LookupError, match=r"No gradient defined for operation 'secret' \(op type: TestOpaque\)"):
        gradients(y, y.op.inputs[0])


def test_integers_have_no_gradient_and_a_warning_says_so(caplog):
    i = constant(3)
    assert gradients(multiply(i, i), i) == [None]
    assert "must be floating" in caplog.text


def test_gradients_can_be_registered_and_overridden(graph):
    if "TestTriple" not in GRADIENTS:
        RegisterGradient("TestTriple")(lambda node, grad: multiply(grad, 3.0))
        NotDifferentiable("TestNothing")
    with pytest.raises(KeyError, match="Registering two gradient with name 'TestTriple'!"):
        RegisterGradient("TestTriple")(lambda node, grad: grad)
    with pytest.raises(TypeError, match="op_type must be a string"):
        RegisterGradient(3)
    x = constant(1.0)
    with graph.gradient_override_map({"Identity": "TestTriple"}):
        y = identity(x)
    assert evaluate(gradients(y, x)) == [3.0]
    with graph.gradient_override_map({"Identity": "TestNothing"}):
        z = identity(x)
    assert gradients(z, x) == [None]


def test_gradient_functions_are_checked(graph):
    if "TestWrongCount" not in GRADIENTS:
        RegisterGradient("TestWrongCount")(lambda node, grad: [grad, grad])
        RegisterGradient("TestWrongShape")(lambda node, grad: constant([[1.0, 2.0, 3.0]]))
    x = constant([1.0, 2.0])
    with graph.gradient_override_map({"Identity": "TestWrongShape"}):
        y = identity(x, name="bad")
    with pytest.raises(
        ValueError, match="Incompatible shapes between op input and calculated input gradient.  Forward"
    ):
        gradients(y, x)


def test_gradients_can_be_colocated_with_forward_ops():
    with device("/job:ps/task:1"):
        a = constant(1.0, name="a")
        y = multiply(a, 3.0, name="y")
    with device("/job:worker"):
        (here,) = gradients(y, a)
        (there,) = gradients(y, a, colocate_gradients_with_ops=True)
    assert here.device == "/job:worker"
    assert there.device == "/job:ps/task:1"
    assert b"loc:@y" in there.op.colocation_groups()


def test_gates_wait_for_all_gradients_of_an_op():
    a, b = constant(1.0), constant(2.0)
    da, db = gradients(multiply(a, b), [a, b], gate_gradients=True)
    assert da.op.control_inputs == db.op.control_inputs
    assert da.op.control_inputs[0].type == "NoOp"
    assert evaluate([da, db]) == [2.0, 1.0]


def slices_of(values, indices):
    def gradient(node, grad):
        return IndexedSlices(constant(values), constant(indices), constant([4]))

    return gradient


def test_slices_are_concatenated_and_mixed_ones_become_dense(graph):
    if "TestSlices1" not in GRADIENTS:
        RegisterGradient("TestSlices1")(slices_of([1.0], [0]))
        RegisterGradient("TestSlices2")(slices_of([2.0, 3.0], np.array([3, 0], np.int64)))
    x = constant([1.0, 2.0, 3.0, 4.0])
    with graph.gradient_override_map({"Identity": "TestSlices1"}):
        first = identity(x)
    with graph.gradient_override_map({"Identity": "TestSlices2"}):
        second = identity(x)
    (both,) = gradients([first, second], x)
    assert isinstance(both, IndexedSlices)
    assert sorted(zip(evaluate(both.indices).tolist(), evaluate(both.values).tolist())) == [
        (0, 1.0),
        (0, 3.0),
        (3, 2.0),
    ]
    assert both.indices.dtype is dtypes.int64


def test_the_hessian_of_a_quadratic_is_diagonal():
    x = constant([1.0, 2.0])
    y = multiply(multiply(x, x), constant([3.0, 5.0]))
    (h,) = hessians(y, x)
    assert h.raw_shape == (2, 2)
    assert evaluate(h).tolist() == [[6.0, 0.0], [0.0, 10.0]]


def test_a_long_chain_costs_linear_time():
    """In calls of functions, which are the same on every machine."""
    calls = []
    for length in (1000, 4000):
        y = x = constant([1.0, 2.0])
        for _ in range(length):
            y = subtract(y, 1.0) if y is x else identity(y)
        events = itertools.count()
        sys.setprofile(lambda *_, events=events: next(events))
        try:
            (g,) = gradients(y, x)
        finally:
            sys.setprofile(None)
        assert evaluate(g).tolist() == [1.0, 1.0]
        calls.append(next(events))
    assert 0 < calls[1] < 5 * calls[0]


def test_gradient_ops_remember_the_op_they_differentiate() -> None:
    weights = tf.ones([3, 2])
    product = tf.matmul(tf.ones([4, 3]), weights)
    (grad,) = tf.gradients(product, [weights])
    assert grad.op._original_op is product.op


def test_a_hessian_without_second_derivatives_is_refused() -> None:
    x = tf.placeholder(tf.float32, [2])
    with pytest.raises(ValueError, match="does not depend on"):
        tf.hessians(x, x)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: tf.unique(x)[0],
        lambda x: tf.segment_prod(x, [0, 0, 1]),
        lambda x: tf.truncatemod(x, 2.0),
        lambda x: tf.random_shuffle(x),
        lambda x: tf.gradients(tf.nn.softsign(x), x)[0],
        lambda x: tf.image.resize_area(tf.reshape(x, [1, 1, 3, 1]), [2, 2]),
        lambda x: tf.gradients(tf.image.resize_bilinear(tf.reshape(x, [1, 1, 3, 1]), [2, 2]) ** 2, x)[0],
        lambda x: tf.sparse.reduce_max(tf.SparseTensor([[0], [1], [2]], x, [3])),
        lambda x: tf.bincount([0, 1, 1], weights=x),
    ],
)
def test_an_op_whose_gradient_nobody_has_written_is_an_error_as_in_tensorflow(function: Callable[[Any], Any]) -> None:
    x = tf.placeholder(tf.float32, [3])
    with pytest.raises(LookupError, match="No gradient defined for operation"):
        tf.gradients(function(x), x)


FIGURES = {
    True: ([4.3068, -0.0287, -2.0686], [18.3841, 9.2914], [4.8047, -0.9318]),
    False: ([-19.0146, -0.0016, 5.0641], [65.7240, 8.0752], [-18.2634, -0.7298]),
}


@pytest.mark.parametrize("training", [True, False])
def test_a_penalty_of_gradients_goes_through_batch_normalization(training: bool) -> None:
    """Figures of TensorFlow 1.15.5, to 1e-3."""
    random = np.random.RandomState(0)
    values, factors = random.randn(4, 3, 2, 2).astype("f"), random.randn(4, 3, 2, 2).astype("f")
    x, scale, offset = (tf.placeholder(tf.float32, shape) for shape in (values.shape, [2], [2]))
    fixed = {} if training else {"mean": tf.constant([0.1, 0.2]), "variance": tf.constant([0.5, 1.5])}
    y = tf.nn.fused_batch_norm(x, scale, offset, is_training=training, epsilon=0.01, **fixed)[0]
    gradient = tf.gradients(tf.reduce_sum(tf.sin(y) * factors), x)[0]
    found = tf.gradients(tf.reduce_sum(tf.square(gradient)), [x, scale, offset])
    with tf.Session() as sess:
        by_x, by_scale, by_offset = sess.run(found, {x: values, scale: [1.5, 0.5], offset: [0.1, 0.2]})
    expected = FIGURES[training]
    np.testing.assert_allclose(by_x.ravel()[:3], expected[0], rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose([by_scale, by_offset], expected[1:], rtol=1e-3, atol=1e-3)
