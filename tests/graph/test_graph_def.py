"""Attr values, tensors and graphs as messages."""

from __future__ import annotations

import os

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tfmini import dtypes, protos
from tfmini.graph.attr_values import tensor_from_proto, tensor_proto
from tfmini.graph.graph import Graph
from tfmini.graph.graph_def import from_proto, graph_def_to_nodes, nodes_to_graph_def, to_proto
from tfmini.graph.graph_util import extract_sub_graph, must_run_on_cpu, tensor_shape_from_node_def_name
from tfmini.graph.node import Node
from tfmini.ops.array import identity as array_identity
from tfmini.ops.array.constant import constant, make_ndarray, make_tensor_proto
from tfmini.ops.control import no_op
from tfmini.ops.math import matmul as math_matmul
from tfmini.train.checkpointing.graph_files import write_graph

VALUES = [
    ("int", 3), ("float", 0.5), ("bool", True), ("string", b"SAME"), ("type", dtypes.float32), ("func", "f"),
    ("shape", None), ("shape", ()), ("shape", (None, 3)),
    ("list(int)", [1, 2]), ("list(int)", []), ("list(shape)", [None, (2,), ()]), ("list(string)", [b"loc:@a"]),
    ("list(type)", [dtypes.int32, dtypes.string]), ("list(bool)", [False, True]), ("list(float)", [0.25]),
    ("list(func)", ["f", "g"]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value"), VALUES)
def test_attr_values_are_the_same_after_a_proto(kind, value):
    back = from_proto(to_proto(kind, value))
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(("kind", "value"), [v for v in VALUES if v[0] not in ("func", "list(func)", "list(shape)")])
def test_an_undeclared_attr_is_stored_by_its_value(kind, value):
    assert from_proto(to_proto("", value)) == value


def test_an_attr_value_that_nothing_describes_is_refused():
    with pytest.raises(TypeError, match="cannot be stored in a GraphDef"):
        to_proto("", object())
    with pytest.raises(ValueError, match="has no value"):
        from_proto(protos.AttrValue())


NUMERIC = [
    d for d in dict.fromkeys(dtypes.BY_NAME.values())
    if d == d.base_dtype and (d.is_bool or d.is_integer or d.is_floating or d.is_complex)
]  # fmt: skip


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_arrays_are_the_same_after_a_tensor_proto(data):
    dtype = data.draw(st.sampled_from(NUMERIC))
    shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    size = int(np.prod(shape)) * dtype.size
    content = data.draw(st.binary(min_size=size, max_size=size))
    array = np.frombuffer(content, dtype.numpy).reshape(shape) if not dtype.is_bool else np.ones(shape, bool)
    back = tensor_from_proto(protos.TensorProto.FromString(tensor_proto(array).SerializeToString()))
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    np.testing.assert_array_equal(back.astype(complex), array.astype(complex))


def test_the_encoding_is_that_of_make_tensor_proto():
    assert tensor_proto(np.float32(1)).float_val == [1.0]
    assert tensor_proto(np.zeros(2, np.float32)).tensor_content == bytes(8)
    assert tensor_proto(np.array([1], np.int64)).int64_val == [1]
    assert tensor_proto(np.array([1, 2], np.float16)).half_val == [15360, 16384]
    assert tensor_proto(np.array(1.5, ml_dtypes.bfloat16)).half_val == [16320]
    assert tensor_proto(np.array([True, False])).bool_val == [True, False]
    assert tensor_proto(np.array(1 + 2j, np.complex64)).scomplex_val == [1, 2]
    assert tensor_proto(b"x").string_val == [b"x"]


def test_the_last_value_fills_a_short_tensor():
    proto = make_tensor_proto([3.0, 4.0], shape=[2, 2])
    assert proto.float_val == [3.0, 4.0]
    np.testing.assert_array_equal(make_ndarray(proto), [[3, 4], [4, 4]])
    empty = protos.TensorProto(dtype="DT_INT32", tensor_shape=proto.tensor_shape)
    np.testing.assert_array_equal(make_ndarray(empty), np.zeros((2, 2), np.int32))
    empty.dtype = 7
    assert make_ndarray(empty).tolist() == [[b"", b""], [b"", b""]]


def test_make_tensor_proto_refuses_what_constant_refuses():
    with pytest.raises(ValueError, match="Too many elements provided. Needed at most 1, but received 2"):
        make_tensor_proto([3.0, 4.0], shape=[1])
    with pytest.raises(TypeError, match="Expected Tensor's shape"):
        make_tensor_proto([3.0, 4.0], shape=[2, 2], verify_shape=True)
    with pytest.raises(ValueError, match="None values not supported"):
        make_tensor_proto(None)
    with pytest.raises(TypeError, match="Expected float32"):
        make_tensor_proto("a", dtype=dtypes.float32)
    proto = make_tensor_proto(1)
    assert make_tensor_proto(proto) is proto


@pytest.mark.parametrize("content", [b"", b"abc", bytes(12)])
def test_content_of_the_wrong_length_is_refused(content):
    proto = tensor_proto(np.zeros(2, np.float32))
    proto.tensor_content = content
    if not content:
        proto.float_val.extend([1, 2, 3])
    with pytest.raises(ValueError, match="elements"):
        tensor_from_proto(proto)


def test_make_ndarray_copies():
    proto = tensor_proto(np.zeros(2, np.float32))
    make_ndarray(proto)[0] = 1
    assert make_ndarray(proto).tolist() == [0, 0]


# ---- graphs ---------------------------------------------------------------------------------


@pytest.fixture
def graph():
    graph = Graph()
    with graph.as_default():
        yield graph


def test_a_node_def_tells_everything_about_an_op(graph):
    a = constant([[1.0]], name="a")
    waits = no_op(name="waits")
    with graph.device("/job:ps/task:1"), graph.control_dependencies([waits]):
        product = math_matmul.matmul(a, a, transpose_b=True, name="product")
    node_def = product.op.node_def
    assert list(node_def.input) == ["a", "a", "^waits"]
    assert (node_def.name, node_def.op, node_def.device) == ("product", "MatMul", "/job:ps/task:1")
    assert not node_def.attr["transpose_a"].b
    assert node_def.attr["transpose_a"].WhichOneof("value") == "b"
    assert node_def.attr["transpose_b"].b
    assert node_def.attr["T"].type == 1


def test_a_graph_def_starts_at_a_version_and_can_hold_shapes(graph):
    constant(1.0, name="a")
    version = graph.version
    constant([1.0, 2.0], name="b")
    no_op(name="c")
    later = graph.as_graph_def(from_version=version, add_shapes=True)
    assert [n.name for n in later.node] == ["b", "c"]
    assert later.node[0].attr["_output_shapes"].list.shape[0].dim[0].size == 2
    assert "_output_shapes" not in later.node[1].attr
    assert later.versions.producer == 134


def test_an_attr_without_a_proto_form_names_its_node():
    with pytest.raises(TypeError, match="attr '_x' of node 'n'"):
        nodes_to_graph_def([Node("n", "NoOp", attrs={"_x": object()})])


def test_nodes_of_unknown_types_are_kept():
    nodes = {
        "a": Node("a", "Foo", "/job:x", [], [], {"k": 3, "shapes": [(1, None)], "_class": [b"loc:@b"]}),
        "b": Node("b", "Bar", "", [("a", 0), ("a", 2)], ["a"], {"v": np.array([1, 2])}),
    }
    back = graph_def_to_nodes(nodes_to_graph_def(nodes.values()))
    assert list(back) == ["a", "b"]
    assert back["a"].attrs == nodes["a"].attrs
    assert back["b"].inputs == (("a", 0), ("a", 2))
    assert back["b"].controls == ("a",)
    np.testing.assert_array_equal(back["b"].attrs["v"], [1, 2])


def test_extract_sub_graph_keeps_what_is_needed(graph):
    a = constant(1.0, name="a")
    constant(2.0, name="unused")
    with graph.colocate_with(constant(3.0, name="anchor")):
        array_identity.identity(a, name="b")
    found = extract_sub_graph(graph.as_graph_def(), ["b"])
    assert [n.name for n in found.node] == ["a", "anchor", "b"]
    assert found.versions.producer == 134
    with pytest.raises(AssertionError, match="zz is not in graph"):
        extract_sub_graph(graph.as_graph_def(), ["zz"])
    with pytest.raises(TypeError, match="dest_nodes must be a list"):
        extract_sub_graph(graph.as_graph_def(), "b")
    with pytest.raises(TypeError, match="graph_def must be a graph_pb2.GraphDef proto"):
        extract_sub_graph(graph, ["b"])


def test_nodes_tell_their_shape_and_whether_they_need_a_cpu(graph):
    a = constant([1, 2], name="a")
    assert must_run_on_cpu(a.op)
    assert not must_run_on_cpu(constant(1.0).op)
    assert tensor_shape_from_node_def_name(graph, "a").as_list() == [2]


@pytest.mark.parametrize("as_text", [True, False])
def test_write_graph_writes_text_or_binary(graph, tmp_path, as_text):
    constant(1.0, name="a")
    path = write_graph(graph, str(tmp_path / "new" / "dir"), "g.pb", as_text=as_text)
    content = (tmp_path / "new" / "dir" / "g.pb").read_bytes()
    assert path == str(tmp_path / "new" / "dir" / "g.pb")
    assert [p.name for p in (tmp_path / "new" / "dir").iterdir()] == ["g.pb"]
    plain = tmp_path / "plain"
    plain.touch()
    assert os.stat(path).st_mode == plain.stat().st_mode  # others may read it where they may read any file
    if as_text:
        assert b'name: "a"' in content
    else:
        assert protos.GraphDef.FromString(content) == graph.as_graph_def()
