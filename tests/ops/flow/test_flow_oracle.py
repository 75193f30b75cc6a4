"""Conds, loops and tensor arrays against TensorFlow: values, gradients, graphs, and TensorFlow running our graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tests.ops.flow import flow_cases
from tests.oracle import Oracle, sent

# Gradients of several reads of one tensor add slices up as a whole, and say so.
pytestmark = pytest.mark.filterwarnings("ignore:Converting sparse IndexedSlices to a dense Tensor:UserWarning")

# Where TensorFlow 2.21 builds other nodes than 1.15, the release we follow: it has a write barrier in the gradients
# of tensor arrays, knows the size of some, and leaves the reduction out of some gradients of broadcasting ops.
OTHER_NODES = {
    "cond_unused_in_other_branch", "while_shape_invariant", "while_forgets", "tensor_array",
    "tensor_array_split", "tensor_array_dynamic", "tensor_array_in_cond", "map_fn",
    "map_fn_structure", "map_fn_in_cond", "map_fn_unknown", "scan",
    "scan_initializer_reverse", "scan_structure", "foldl", "foldr",
}  # fmt: skip


@pytest.fixture(scope="module")
def ours() -> dict[str, dict[str, Any]]:
    return {name: flow_cases.native(tf, source) for name, source in flow_cases.CASES.items()}


@pytest.fixture(scope="module")
def theirs(oracle: Oracle, ours: dict[str, dict[str, Any]]) -> Any:
    return oracle.call(flow_cases.outcomes, ours)


def assert_close(mine: list[Any], other: Any) -> None:
    assert isinstance(other, list), other
    for a, b in zip(mine, other, strict=True):
        if b is None or a is None:
            assert a is None and b is None
        else:
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)


@pytest.mark.oracle
@pytest.mark.parametrize("name", flow_cases.CASES)
def test_values_are_tensorflows(name: str, ours: Any, theirs: Any) -> None:
    native = theirs["native"][name]
    assert "error" not in native, native
    assert_close(ours[name]["values"], native["values"])


@pytest.mark.oracle
@pytest.mark.parametrize("name", flow_cases.CASES)
def test_tensorflow_computes_the_same_values_from_our_graph(name: str, ours: Any, theirs: Any) -> None:
    assert_close(ours[name]["values"], theirs["imported"][name])


@pytest.mark.oracle
@pytest.mark.parametrize("name", [name for name in flow_cases.CASES if name not in OTHER_NODES])
def test_nodes_are_tensorflows(name: str, ours: Any, theirs: Any) -> None:
    assert sent(ours[name]["nodes"]) == theirs["native"][name]["nodes"]
