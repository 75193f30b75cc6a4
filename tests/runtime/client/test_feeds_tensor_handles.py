"""Tensors that stay in their session between steps."""

from __future__ import annotations

import pytest

import tfmini as tf


@pytest.fixture
def session():
    with tf.Graph().as_default(), tf.Session() as found:
        yield found


def test_a_handle_is_fed_as_text_or_as_itself(session) -> None:
    product = tf.constant(10) * 5
    handle = session.run(tf.get_session_handle(product))
    assert handle.eval() == 50
    holder, tensor = tf.get_session_tensor(handle.handle, tf.int32)
    assert session.run(tensor * 10, {holder: handle.handle}) == 500
    assert session.run(product + 1, {product: handle}) == 51


def test_handles_that_are_dropped_free_their_tensors(session) -> None:
    first = session.run(tf.get_session_handle(tf.constant(0)))
    holder, tensor = tf.get_session_tensor(first.handle, tf.int32)
    following = tf.get_session_handle(tensor + 1)
    handle = first
    for _ in range(40):
        handle = session.run(following, {holder: handle.handle})
    assert handle.eval() == 40
    worker = session.master.master.worker
    kept = [resource for _, kind, _, resource in worker.resources.contents() if kind == "session tensors"]
    assert len(kept) == 1 and len(kept[0]) < 20


def test_a_deleted_tensor_is_refused(session) -> None:
    handle = session.run(tf.get_session_handle(tf.constant(1.0)))
    handle.delete()
    with pytest.raises(TypeError, match="may have already been deleted"):
        handle.eval()
    holder, tensor = tf.get_session_tensor(handle.handle, tf.float32)
    with pytest.raises(tf.errors.InvalidArgumentError, match="is not in the session store"):
        session.run(tensor, {holder: handle.handle})
    with pytest.raises(TypeError, match="must be of type Tensor"):
        tf.get_session_handle(3)


def test_a_kept_variable_value_does_not_change(session) -> None:
    variable = tf.Variable(1.0)
    session.run(variable.initializer)
    handle = session.run(tf.get_session_handle(variable.read_value()))
    session.run(variable.assign_add(1.0))
    assert handle.eval() == 1.0
