"""Small behaviours that TensorFlow's own tests ask for, across families."""

from __future__ import annotations

import numpy as np
import pytest
from google.protobuf import text_format

import tfmini as tf


def test_a_stateless_function_without_inputs_is_called_once() -> None:
    numbers = iter(range(3))
    x = tf.py_func(lambda: next(numbers), [], tf.int64, stateful=False)
    with tf.Session() as session:
        assert [int(session.run(x)) for _ in range(3)] == [0, 0, 0]
    assert tf.py_func(lambda y: None, [1], [], stateful=False) == []


def test_the_outermost_scope_may_be_written_with_a_slash() -> None:
    with tf.name_scope("a"), tf.name_scope("/") as scope:
        assert scope == "/"
        assert tf.constant(1, name="x").op.name == "x"


def test_fill_wants_a_scalar() -> None:
    with pytest.raises(ValueError, match="must be rank 0 but is rank 1"):
        tf.fill([3, 2], [1.0, 2.0])


@pytest.mark.parametrize(("producer", "rank"), [(21, None), (22, 0)])
def test_old_placeholders_without_dimensions_have_any_shape(producer: int, rank: int | None) -> None:
    graph_def = text_format.Parse(
        'node { name: "p" op: "Placeholder" attr { key: "dtype" value { type: DT_FLOAT } }'
        f' attr {{ key: "shape" value {{ shape {{ }} }} }} }} versions {{ producer: {producer} }}',
        tf.GraphDef(),
    )
    (placeholder,) = tf.import_graph_def(graph_def, return_elements=["p:0"])
    assert placeholder.shape.ndims == rank


def test_an_op_def_answers_under_the_names_of_its_message() -> None:
    op_def = (tf.constant(1) + tf.constant(2)).op.op_def
    assert (len(op_def.input_arg), len(op_def.output_arg)) == (2, 1)


def test_gradient_ops_remember_the_op_they_differentiate() -> None:
    weights = tf.ones([3, 2])
    product = tf.matmul(tf.ones([4, 3]), weights)
    (grad,) = tf.gradients(product, [weights])
    assert grad.op._original_op is product.op


def test_a_hessian_without_second_derivatives_is_refused() -> None:
    x = tf.placeholder(tf.float32, [2])
    with pytest.raises(ValueError, match="does not depend on"):
        tf.hessians(x, x)


def test_gradient_of_a_complex_product() -> None:
    x = tf.constant([1 + 3j, 2 - 1j], tf.complex64)
    (grad,) = tf.gradients(tf.reduce_prod(x), [x], grad_ys=[tf.constant(1, tf.complex64)])
    with tf.Session() as session:
        np.testing.assert_allclose(session.run(grad), np.conj([2 - 1j, 1 + 3j]))


def test_gradient_of_nextafter_moves_with_its_first_argument() -> None:
    x, y = tf.constant([1.0, 2.0]), tf.constant([3.0])
    with tf.Session() as session:
        gx, gy = session.run(tf.gradients(tf.math.nextafter(x, y), [x, y]))
    assert gx.tolist() == [1, 1] and gy.tolist() == [0]


@pytest.mark.parametrize("index_type", [np.int32, np.int64])
def test_batch_scatter_update_writes_along_the_last_dimension(index_type: type) -> None:
    variable = tf.Variable(np.zeros((2, 3, 2), np.float32))
    values = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
    update = tf.batch_scatter_update(variable, np.array([[2, 0], [1, 1]], index_type), values)
    with tf.Session() as session:
        session.run(variable.initializer)
        found = session.run(update)
    assert found[0].tolist() == [[2, 3], [0, 0], [0, 1]]
    assert found[1].tolist() == [[0, 0], [6, 7], [0, 0]]
