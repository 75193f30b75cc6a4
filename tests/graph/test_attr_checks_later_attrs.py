"""Attrs of later versions of TensorFlow."""

from __future__ import annotations

import pytest
from google.protobuf import text_format

import tfmini as tf
from tfmini import protos

_NODE = 'node { name: "n" op: "NoOp" attr { key: "later" value { %s } } }'


@pytest.mark.parametrize("value", ["b: false", "i: 0", 's: ""', "list { }", "f: 0"])
def test_an_unknown_attr_that_is_empty_is_left_out(value: str) -> None:
    tf.import_graph_def(text_format.Parse(_NODE % value, protos.GraphDef()), name="")
    assert "later" not in tf.get_default_graph().get_operation_by_name("n").node_def.attr


@pytest.mark.parametrize("value", ["b: true", "i: 3", 's: "x"', "list { i: 1 }", "type: DT_INT32"])
def test_one_with_a_value_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="NodeDef mentions attr 'later'"):
        tf.import_graph_def(text_format.Parse(_NODE % value, protos.GraphDef()))


def test_the_types_of_indices_are_hints() -> None:
    tf.nn.top_k([1.0, 2.0], 1)
    message = tf.get_default_graph().as_graph_def()
    (node,) = (node for node in message.node if node.op == "TopKV2")
    node.attr["Tk"].type = node.attr["index_type"].type = protos.DataType.Value("DT_INT32")
    tf.import_graph_def(message, name="again")
