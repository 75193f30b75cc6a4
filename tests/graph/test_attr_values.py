"""Tensors in messages."""

from __future__ import annotations

import resource

import numpy as np
import pytest

import tfmini as tf
from tests.ops.session_run import run
from tfmini import protos
from tfmini.graph.attr_values import tensor_from_proto, tensor_proto


def _message(shape: list[int], values: list[float]) -> protos.TensorProto:
    proto = protos.TensorProto(dtype=1, float_val=values)
    for size in shape:
        proto.tensor_shape.dim.add(size=size)
    return proto


def _graph(proto: protos.TensorProto) -> protos.GraphDef:
    made = protos.GraphDef()
    node = made.node.add(name="c", op="Const")
    node.attr["dtype"].type = proto.dtype
    node.attr["value"].tensor.CopyFrom(proto)
    return made


def test_a_tensor_of_one_value_takes_no_memory() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(_graph(_message([700_000_000], [1.0])), name="")
        assert graph.get_tensor_by_name("c:0").shape == (700_000_000,)
        size = graph.as_graph_def().ByteSize()
        assert size < 200 and graph.as_graph_def().node[0].attr["value"].tensor.float_val == [1.0]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10  # KiB


def test_a_large_tensor_of_one_value_can_be_used() -> None:
    with tf.Graph().as_default():
        (c,) = tf.import_graph_def(_graph(_message([2, 300_000], [1.5])), name="", return_elements=["c:0"])
        product = tf.matmul(c, c, transpose_b=True)
        added = tf.assign_add(tf.Variable(c, name="v"), c)
        with tf.Session() as session:
            value, found = session.run((c, product))
            assert (value == 1.5).all() and found[0, 0] == 300_000 * 2.25
            session.run(tf.global_variables_initializer())
            assert (session.run(added) == 3.0).all() and (session.run(c) == 1.5).all()
        with tf.Session(tf.train.Server.create_local_server().target) as session:
            assert (session.run(c) == 1.5).all()


def test_few_values_stand_for_few_more() -> None:
    assert tensor_from_proto(_message([4], [1.0, 2.0])).tolist() == [1, 2, 2, 2]
    assert tensor_from_proto(_message([1 << 20], [1.0, 2.0]))[-1] == 2.0
    with pytest.raises(ValueError, match="2 elements of a message cannot stand for a tensor of 4294967296 bytes"):
        tensor_from_proto(_message([1 << 30], [1.0, 2.0]))
    for shape in ([1 << 40, 1 << 40], [2] * 65, [1 << 62, 4]):
        with pytest.raises(ValueError, match="A tensor of shape .* is too large"):
            tensor_from_proto(_message(shape, [1.0]))


def test_a_repeated_value_is_stored_once() -> None:
    proto = tensor_proto(np.broadcast_to(np.float32(3), (1000, 1000)))
    assert proto.ByteSize() < 50 and (tensor_from_proto(proto) == 3).all()


def test_a_serialized_tensor_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFMINI_INFLATE_LIMIT", "1000000")
    data = _message([1 << 20], [1.0]).SerializeToString()
    with pytest.raises(tf.errors.ResourceExhaustedError, match="A serialized tensor of"):
        run(tf.io.parse_tensor(data, tf.float32))
    for bad in (data[:-3], b"\x08\x07", _message([-3], [1.0]).SerializeToString(), b"\x08\x90\x4e"):
        with pytest.raises(tf.errors.InvalidArgumentError):
            run(tf.io.parse_tensor(bad, tf.float32))


def test_a_shape_cannot_be_read_from_a_large_repeated_value() -> None:
    """The shape function of Fill once made a list of its elements."""
    graph_def = _graph(_message([1 << 40], [1.0]))
    node = graph_def.node[0]
    node.attr["dtype"].type = node.attr["value"].tensor.dtype = 3
    del node.attr["value"].tensor.float_val[:]
    node.attr["value"].tensor.int_val.append(1)
    fill = graph_def.node.add(name="f", op="Fill", input=["c", "c"])
    fill.attr["T"].type = fill.attr["index_type"].type = 3
    reshaped = graph_def.node.add(name="p", op="Placeholder")
    reshaped.attr["dtype"].type = 3
    reshaped.attr["shape"].shape.dim.add(size=1 << 40)
    graph_def.node.add(name="r", op="Reshape", input=["p", "p"]).attr["T"].type = 3
    graph_def.node[-1].attr["Tshape"].type = 3
    with tf.Graph().as_default(), pytest.raises(ValueError, match="at most 254 dimensions|Shape must be rank 0"):
        tf.import_graph_def(graph_def, name="")
    del graph_def.node[1]
    told = "A shape has at most 254 dimensions, not 1099511627776"
    with tf.Graph().as_default(), pytest.raises(ValueError, match=told):
        tf.import_graph_def(graph_def, name="")
