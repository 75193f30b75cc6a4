"""Every op of the vocabulary is complete."""

from __future__ import annotations

from tests.op_modules import op_modules
from tfmini.graph.op_types import GRADIENTS, KERNELS, OPS, WITHOUT_GRADIENT
from tfmini.ops.session_tensors import sample_ops

# `sample_ops` are those that exist to be built only.
_FAMILIES = {
    name: OPS[name]
    for name, module in op_modules().items()
    if module.startswith("tfmini.ops.") and name not in sample_ops
}


def test_every_op_has_a_shape_function_a_kernel_and_a_gradient_entry() -> None:
    assert len(_FAMILIES) > 500
    assert [name for name, handle in _FAMILIES.items() if handle.shape_function is None] == []
    assert [name for name in _FAMILIES if (name, "CPU") not in KERNELS] == []
    assert [name for name in _FAMILIES if name not in GRADIENTS.keys() | WITHOUT_GRADIENT] == []
    assert GRADIENTS.keys() & WITHOUT_GRADIENT == set()
