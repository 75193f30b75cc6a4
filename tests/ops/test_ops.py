"""Every op of the vocabulary is complete."""

from __future__ import annotations

from tests.all_ops import import_all_ops
from tfmini.graph.registry import GRADIENTS, KERNELS, OPS

import_all_ops()
# Tests may declare ops of their own, and sample_ops has the ops that exist to be built only.
_FAMILIES = {
    name: handle for name, handle in OPS.items() if "tfmini/ops/" in handle.site and "sample_ops" not in handle.site
}


def test_every_op_has_a_shape_function_a_kernel_and_a_gradient_entry() -> None:
    assert len(_FAMILIES) > 500
    assert [name for name, handle in _FAMILIES.items() if handle.shape_function is None] == []
    assert [name for name in _FAMILIES if (name, "CPU") not in KERNELS] == []
    assert [name for name in _FAMILIES if name not in GRADIENTS] == []
