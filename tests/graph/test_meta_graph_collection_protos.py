"""How collections become messages."""

from __future__ import annotations

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

import tfmini as tf
from tfmini.graph import meta_graph


def test_the_functions_of_a_collection_are_registered_once() -> None:
    register = meta_graph.register_proto_function
    with pytest.raises(KeyError, match="Registering two proto_functions with name 'variables'!"):
        register("variables", "VariableDef", str, str)
    with pytest.raises(TypeError, match="to_proto must be callable."):
        register("mine", to_proto=3)  # type: ignore[arg-type]
    assert meta_graph.get_collection_proto_type("variables").__name__ == "VariableDef"
    assert meta_graph.get_to_proto_function("mine") is None


def test_a_collection_may_have_messages_that_are_not_of_tensorflow() -> None:
    meta_graph.register_proto_function(
        "times", Timestamp, lambda item, export_scope=None: Timestamp(seconds=item),
        lambda message, import_scope=None: message.seconds,
    )  # fmt: skip
    assert meta_graph.get_collection_proto_type("times") is Timestamp
    with tf.Graph().as_default():
        tf.add_to_collection("times", 7)
        message = tf.train.export_meta_graph()
    with tf.Graph().as_default():
        tf.train.import_meta_graph(message)
        assert tf.get_collection("times") == [7]
