"""The table of the modules of ops: it is complete, and an op is complete once it has been looked up."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tfmini
from tests.all_ops import import_all_ops
from tfmini.graph.registry import OPS
from tfmini.op_homes import HOMES

_PACKAGE = Path(tfmini.__file__).parent
_LOOKUPS = """
import importlib, os, sys
import tfmini
from tfmini.graph.registry import GRADIENTS, KERNELS, OPS
from tfmini.op_homes import HOMES

def incomplete(home, needs_gradient):
    found = []
    for name in (name for name, module in HOMES.items() if module == home):
        handle = OPS[name]
        complete = handle.shape_function and (name, "CPU") in KERNELS and (name in GRADIENTS or not needs_gradient)
        if not complete and "sample_ops" not in home:
            found.append(name)
    return found

for needs_gradient in (False, True):
    if needs_gradient:
        importlib.import_module("tfmini.ops.tensor_behaviour")
    for home in sorted(set(HOMES.values())):
        child = os.fork()  # where nothing else has been looked up
        if child == 0:
            found = incomplete(home, needs_gradient)
            if found:
                print(home, needs_gradient, found, flush=True)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0, home
"""


def _run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_table_names_every_op_of_the_package() -> None:
    import_all_ops()
    code = f"""
import importlib, pathlib, tfmini
from tfmini.graph.registry import OPS
for folder in ("ops", "data"):
    for path in (pathlib.Path({str(_PACKAGE)!r}) / folder).rglob("*.py"):
        importlib.import_module(".".join(path.relative_to({str(_PACKAGE.parent)!r}).with_suffix("").parts))
print(sorted(OPS))
"""
    assert _run(code) == "[]"  # each module imports: the declaration of an op that the table lacks is refused


def test_a_declaration_that_the_table_lacks_is_refused() -> None:
    code = """
import tfmini
from tfmini.graph.registry import op
exec(compile("op('Lost() -> x: float')", tfmini.__path__[0] + "/ops/lost.py", "exec"))
"""
    with pytest.raises(AssertionError, match="op Lost at .*ops/lost.py:1 is missing in tfmini/op_homes.py"):
        _run(code)


def test_a_row_of_a_module_that_does_not_declare_the_op_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(HOMES, "Lost", "tfmini.ops.clock")
    with pytest.raises(RuntimeError, match="says that tfmini.ops.clock declares the op Lost, but it does not"):
        OPS.get("Lost")


def test_a_lookup_gives_a_complete_op() -> None:
    """Its kernel even where no program has tensors, as on a ps; its gradient where one has."""
    assert _run(_LOOKUPS) == ""


def test_an_interrupted_import_can_be_repeated() -> None:
    code = """
import os
import tfmini
from tfmini.graph import registry
whole = registry._describe_kernel
for calls in range(0, 36, 3):
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0, calls
        continue
    def interrupted(*args):
        global calls
        calls -= 1
        if calls < 0:
            raise KeyboardInterrupt
        return whole(*args)
    registry._describe_kernel = interrupted
    try:
        registry.OPS["MatrixBandPart"]
        os._exit(0 if calls > 0 else 1)
    except KeyboardInterrupt:
        registry._describe_kernel = whole
    complete = registry.OPS["MatrixBandPart"].shape_function and registry.kernel_for("MatrixBandPart", "CPU")
    os._exit(0 if complete and tfmini.constant(1) is not None else 1)
"""
    _run(code)


def test_an_import_of_the_package_imports_no_op() -> None:
    code = "import sys, tfmini; print([m for m in sys.modules if m.startswith(('tfmini.ops.', 'tfmini.graph.'))])"
    assert _run(code) == "[]"


def test_the_first_name_gives_tensors_their_operators() -> None:
    for first in ("tf.Tensor", "tf.convert_to_tensor", "tf.raw_ops.Add", "tf.get_default_graph", "tf.data.Dataset"):
        _run(f"import tfmini as tf; {first}; assert (tf.convert_to_tensor([1, [2][0]]) + 1)[0].shape == ()")


def test_an_op_declared_at_home_is_known_without_its_import() -> None:
    names = "'MatMul' in OPS, dict.__contains__(OPS, 'MatMul'), 'No' in OPS"
    code = f"from tfmini.graph.registry import OPS; print({names})"
    assert _run(code) == "True False False"
    assert OPS.get("NoSuchOp") is None and set(HOMES) <= {*OPS}


def test_a_second_declaration_is_refused_before_the_first_is_imported() -> None:
    code = """
import tfmini
from tfmini.graph.registry import op
try:
    op("MatMul() -> x: float")
except ValueError as error:
    print(error)
try:
    tfmini.RegisterGradient("FFT3D")(lambda *args: None)
except KeyError as error:
    print(error)
"""
    out = _run(code)
    assert "op MatMul is declared at" in out and "Registering two gradient with name 'FFT3D'" in out
