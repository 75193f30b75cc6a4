"""GraphDefs travel between TensorFlow and tfmini, both ways, and mean the same."""

from __future__ import annotations

import numpy as np
import pytest

from tfmini import dtypes, protos
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.graph import Graph
from tfmini.graph.graph_def import graph_def_to_nodes
from tfmini.graph.importing import import_graph_def
from tfmini.graph.op_types import OPS
from tfmini.ops import control
from tfmini.ops.array import identity as array_identity
from tfmini.ops.array.constant import constant, make_ndarray, make_tensor_proto
from tfmini.ops.math import matmul as math_matmul

pytestmark = pytest.mark.oracle
BUILT = [
    "constants", "matmul_gradients", "convolution", "adagrad_on_ps", "sgd_and_momentum", "controls_and_colocation",
]  # fmt: skip


def our_arithmetic():
    x = array_identity.placeholder(dtypes.float32, [None, 4], name="x")
    with get_default_graph().device("/job:ps/task:1/cpu:0"):
        w = constant(np.ones((4, 3), np.float32), name="w")
    product = math_matmul.matmul(x, w, name="product")
    with get_default_graph().control_dependencies([product.op]):
        array_identity.identity(product, name="after")


def our_constants():
    for i, value in enumerate([1.0, [1, 2, 3], [[True], [False]], "text", [b"a", b"b"], 2**40, np.zeros((0, 2))]):
        constant(value, name=f"c{i}")
    for dtype in (dtypes.float16, dtypes.bfloat16, dtypes.float64, dtypes.int8, dtypes.uint16, dtypes.complex64):
        constant([1, 2], dtype=dtype, name=dtype.name)


def our_colocation():
    a = constant(1.0, name="a")
    with get_default_graph().colocate_with(a.op):
        b = array_identity.identity(a, name="b")
    control.group(b.op, name="all")


OURS = [our_arithmetic, our_constants, our_colocation]


def graph_of(build):
    graph = Graph()
    with graph.as_default():
        build()
    return graph.as_graph_def()


@pytest.fixture(scope="module")
def answers(oracle):
    ours = {build.__name__: graph_of(build).SerializeToString() for build in OURS}
    return oracle.call_own("tests.graph.oracle_graph_def", "answers", ours)


@pytest.fixture
def producer_ops(answers):
    return protos.OpList.FromString(answers["ops"])


def meaning(graph_def):
    """What a GraphDef says, without the attrs that only newer versions of an op have."""
    return {
        name: (node.op, node.device, node.inputs, set(node.controls), known_attrs(node))
        for name, node in graph_def_to_nodes(graph_def).items()
    }


def known_attrs(node):
    known = {k: v for k, v in node.attrs.items() if k.startswith("_") or k in OPS[node.op].op_def.attrs}
    return {k: comparable(v) for k, v in known.items()}


def comparable(value):
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tolist()
    # A float attr is a float32 in the message.
    return np.float32(value) if isinstance(value, float) else value


def importable(graph_def):
    missing = sorted({node.op for node in graph_def.node} - set(OPS))
    if missing:
        pytest.skip(f"tfmini has no {', '.join(missing)} yet")


def drop_gradient_marks(graph_def):
    """Takes out the marks that TensorFlow 2 alone leaves on the products in a gradient."""
    for node_def in graph_def.node:
        for attr in ("grad_a", "grad_b") if node_def.op == "MatMul" else ():
            del node_def.attr[attr]


@pytest.mark.parametrize("name", BUILT)
def test_tensorflows_graphs_are_imported_and_exported_unchanged(answers, producer_ops, name):
    theirs = protos.GraphDef.FromString(answers["built"][name])
    importable(theirs)
    drop_gradient_marks(theirs)
    with Graph().as_default() as graph:
        import_graph_def(theirs, name="", producer_op_list=producer_ops)
    assert sorted(op.name for op in graph.get_operations()) == sorted(node.name for node in theirs.node)
    assert meaning(graph.as_graph_def()) == meaning(theirs)


@pytest.mark.parametrize("build", OURS)
def test_tensorflow_imports_and_exports_our_graphs_unchanged(answers, build):
    theirs = protos.GraphDef.FromString(answers["ours"][build.__name__])
    assert meaning(theirs) == meaning(graph_of(build))


def test_tensors_have_the_same_bytes(answers):
    for value, dtype, data in answers["tensors"]:
        theirs = protos.TensorProto.FromString(data)
        ours = make_tensor_proto(value, dtype=dtypes.as_dtype(dtype))
        np.testing.assert_array_equal(make_ndarray(theirs), make_ndarray(ours))
        assert ours == theirs, (value, dtype)
