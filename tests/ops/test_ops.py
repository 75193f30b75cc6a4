"""Every op of the vocabulary is complete, and every family file is part of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import tfmini.ops
from tfmini.graph.registry import GRADIENTS, KERNELS, OPS

# Tests may declare ops of their own, and sample_ops has the ops that exist to be built only.
_FAMILIES = {
    name: handle for name, handle in OPS.items() if "tfmini/ops/" in handle.site and "sample_ops" not in handle.site
}


def test_every_op_has_a_shape_function_a_kernel_and_a_gradient_entry() -> None:
    assert len(_FAMILIES) > 500
    assert [name for name, handle in _FAMILIES.items() if handle.shape_function is None] == []
    assert [name for name in _FAMILIES if (name, "CPU") not in KERNELS] == []
    assert [name for name in _FAMILIES if name not in GRADIENTS] == []


def test_every_family_file_is_imported_by_the_package() -> None:
    """In a process of its own: elsewhere a test may have imported a forgotten one."""
    (folder,) = tfmini.ops.__path__
    files = [path.relative_to(folder) for path in Path(folder).rglob("*.py") if "= op(" in path.read_text()]
    modules = sorted(f"tfmini.ops.{'.'.join(file.with_suffix('').parts)}" for file in files)
    assert len(modules) > 80
    code = f"import sys, tfmini.ops; print([m for m in {modules} if m not in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=True)
    assert done.stdout.strip() == "[]"
