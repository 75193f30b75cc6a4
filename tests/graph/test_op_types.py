"""The tables of ops: they are complete, and an op is complete once it has been looked up."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

import tfmini as tf
from tfmini.graph.op_types import GRADIENTS, KERNELS, OPS, op_names
from tfmini.graph.registry import op


def _run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_module_declares_its_ops_if_it_is_the_first_to_be_imported() -> None:
    for first in ("ops.nn.conv", "ops.flow.while_loop", "data.structure", "data.iterator_ops", "runtime.server"):
        names = "'Conv2D' in OPS, 'MapDataset' in OPS"
        code = f"import tfmini.{first}; from tfmini.graph.op_types import OPS; print({names})"
        assert _run(code) == "True True"


def test_a_lookup_gives_a_complete_op_to_each_of_several_threads() -> None:
    code = """
import threading
from tfmini.graph import op_types
names, found = ("MatMul", "ZerosLike", "_UnpackSparse", "Abs") * 4, []
def look(name):
    handle = op_types.OPS[name]
    found.append(bool(handle.shape_function and op_types.kernel_for(name, "CPU") and name in op_types.GRADIENTS))
threads = [threading.Thread(target=look, args=(name,)) for name in names]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(found == [True] * len(names))
"""
    assert _run(code) == "True"


def test_an_interrupted_import_can_be_repeated() -> None:
    code = """
import os
import tfmini
from tfmini.graph import op_types
whole = op_types._describe_kernel
for calls in range(0, 800, 60):
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
    op_types._describe_kernel = interrupted
    try:
        op_types.load_ops()
        os._exit(0 if calls > 0 else 1)
    except KeyboardInterrupt:
        op_types._describe_kernel = whole
    complete = op_types.OPS["MatrixBandPart"].shape_function and op_types.kernel_for("MatrixBandPart", "CPU")
    complete = complete and "MapDataset" in op_types.OPS and (tfmini.constant([1, 2]) + 1)[0].shape == ()
    try:
        op_types.OPS["Abs"].kernel("CPU")(print)
        complete = False
    except ValueError:  # a second kernel is refused again
        pass
    os._exit(0 if complete else 1)
"""
    _run(code)


def test_a_lookup_inside_the_import_is_refused(tmp_path: Path) -> None:
    code = """
import sys, types
from tfmini.graph import op_types
sys.modules["early"] = types.ModuleType("early")
sys.modules["early"].__path__ = [sys.argv[1]]
try:
    op_types.import_ops("early")
except RuntimeError as error:
    print(error)
"""
    (tmp_path / "looks.py").write_text("from tfmini.graph.op_types import OPS\nOPS.get('NoSuchOp')\n")
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=200)
    assert "looks for an op while it is being imported" in done.stdout, done.stderr


def test_an_import_of_the_package_imports_no_op() -> None:
    code = "import sys, tfmini; print([m for m in sys.modules if m.startswith(('tfmini.ops.', 'tfmini.graph.'))])"
    assert _run(code) == "[]"


def test_a_server_imports_nothing_large_that_it_does_not_need() -> None:
    code = "import sys, tfmini as tf; tf.train.Server.create_local_server(); print('numpy.ma' in sys.modules)"
    assert _run(code) == "False"


def test_the_first_name_gives_tensors_their_operators() -> None:
    for first in ("tf.Tensor", "tf.convert_to_tensor", "tf.raw_ops.Add", "tf.get_default_graph", "tf.data.Dataset"):
        _run(f"import tfmini as tf; {first}; assert (tf.convert_to_tensor([1, [2][0]]) + 1)[0].shape == ()")


def test_an_op_is_known_without_its_import() -> None:
    code = "from tfmini.graph.op_types import OPS; print('MatMul' in OPS, 'No' in OPS, OPS.get('No'))"
    assert _run(code) == "True False None"
    assert op_names() == {*OPS}
    with pytest.raises(KeyError):
        OPS["NoSuchOp"]


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
    assert "op MatMul is declared already, at " in out and "matmul.py:" in out
    assert "again: 'MatMul() -> x: float'" in out
    assert "Registering two gradient with name 'FFT3D'" in out


def test_a_second_rule_is_refused() -> None:
    first = op("OpTypesTestTwice(x: float) -> y: float", shape=[()])
    first.not_differentiable()
    first.kernel("CPU")(abs)
    for again in (lambda: first.shape([()]), first.not_differentiable, lambda: first.kernel("CPU")(abs),
                  lambda: op("OpTypesTestTwice() -> y: float")):  # fmt: skip
        with pytest.raises((ValueError, KeyError), match="OpTypesTestTwice"):
            again()


def test_a_user_declares_an_op_while_another_thread_uses_it() -> None:
    """A program's own op is in the table as soon as it is declared."""
    mine = op("OpTypesTestMine(x: float) -> y: float", shape=[()])
    mine.kernel("CPU")(lambda x: x + x)
    results: list[float] = []

    def use() -> None:
        with tf.Graph().as_default() as graph:
            doubled = mine(2.0)
            results.append(tf.Session(graph=graph).run(doubled))

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert results == [4.0] and ("OpTypesTestMine", "CPU") in KERNELS and "OpTypesTestMine" not in GRADIENTS
