"""How collections become messages."""

from __future__ import annotations

import pytest

from tfmini.graph import meta_graph


def test_the_functions_of_a_collection_are_registered_once() -> None:
    register = meta_graph.register_proto_function
    with pytest.raises(KeyError, match="Registering two proto_functions with name 'variables'!"):
        register("variables", "VariableDef", str, str)
    with pytest.raises(TypeError, match="to_proto must be callable."):
        register("mine", to_proto=3)  # type: ignore[arg-type]
    assert meta_graph.get_collection_proto_type("variables").__name__ == "VariableDef"
    assert meta_graph.get_to_proto_function("mine") is None
