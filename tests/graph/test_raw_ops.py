"""The typed namespace of all ops: `tfmini/graph/raw_ops.pyi` is what the declarations say.

After a change of declarations write it anew: ``make names``, which is
``.venv/bin/python tests/graph/test_raw_ops.py > tfmini/graph/raw_ops.pyi``.
"""

from __future__ import annotations

import keyword
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tfmini as tf
from tfmini.graph import raw_ops
from tfmini.graph.op_def import ArgDef, AttrDef, OpDef
from tfmini.graph.op_types import OPS, load_ops

STUB = Path(raw_ops.__file__).with_suffix(".pyi")
_HEAD = '''\
# ruff: noqa
# fmt: off
"""All ops with their inputs, attrs and results. `make names` writes this file from the declarations."""

from collections.abc import Callable, Sequence
from typing import Any as Value, NamedTuple  # an op is called Any

from tfmini import dtypes
from tfmini.graph.operation import Operation, Tensor

def named(op_type: str) -> Callable[..., Tensor]: ...
'''
_TYPES = {"int": "int", "float": "float", "bool": "bool", "string": "str | bytes"}


def test_the_stub_is_what_the_declarations_say() -> None:
    # In a process of its own: other tests declare ops.
    done = subprocess.run([sys.executable, __file__], capture_output=True, text=True, timeout=200, check=True)
    assert done.stdout == STUB.read_text(), "run `make names`"


def test_an_op_of_another_family_is_called_by_name() -> None:
    with tf.Graph().as_default():
        total = raw_ops.Sum([[1, 2], [3, 4]], [0], keep_dims=True, name="total")
        assert (total.op.type, total.op.name, total.shape.as_list()) == ("Sum", "total", [1, 2])
        assert raw_ops.NoOp().type == "NoOp"
        assert raw_ops.Switch(1, True)._fields == ("output_false", "output_true")


def test_an_op_that_does_not_exist_is_told() -> None:
    with pytest.raises(AttributeError, match="there is no op 'Summ'"):
        raw_ops.Summ  # noqa: B018
    assert "Sum" in dir(raw_ops)


def stub() -> str:
    """The text of the stub, for the ops of tfmini alone."""
    load_ops()
    op_defs = [OPS[name].op_def for name in sorted(OPS) if not keyword.iskeyword(name)]  # an op is called None
    return "".join((_HEAD, *(line for op_def in op_defs for line in _lines(op_def))))


def _lines(op_def: OpDef) -> Iterator[str]:
    if len(op_def.outputs) > 1:
        yield f"class _{op_def.name}(NamedTuple):\n"
        for out in op_def.outputs:
            ignored = "  # type: ignore[assignment]" if hasattr(tuple, out.name) else ""
            yield f"    {out.name.lstrip('_')}: {_result(out)}{ignored}\n"
    yield f"def {op_def.name}({', '.join(_parameters(op_def))}) -> {_results(op_def)}: ...\n"


def _parameters(op_def: OpDef) -> Iterator[str]:
    for arg in op_def.inputs:
        assert not keyword.iskeyword(arg.name), f"{op_def.name}: {arg.name}"
        yield f"{arg.name}: {'Sequence[Value]' if arg.is_list else 'Value'}"
    yield "*"
    inferred = op_def.inferred_attrs()
    for attr in sorted(op_def.attrs.values(), key=lambda attr: attr.has_default or attr.name in inferred):
        optional = attr.has_default or attr.name in inferred
        yield f"{attr.name}: {_type(attr.kind)}{f' = {_default(attr)}' if optional else ''}"
    yield "name: str | None = None"


def _type(kind: str) -> str:
    if kind.startswith("list("):
        return f"Sequence[{_type(kind[5:-1])}]"
    return _TYPES.get(kind, "Value")


def _default(attr: AttrDef) -> str:
    value: Any = attr.default
    if isinstance(value, tf.DType):
        return f"dtypes.{value.name}"
    if isinstance(value, bytes):
        return repr(value.decode())
    is_plain = isinstance(value, (bool, int)) or isinstance(value, float) and math.isfinite(value)
    return repr(value) if is_plain else "..."


def _result(out: ArgDef) -> str:
    return "list[Tensor]" if out.is_list else "Tensor"


def _results(op_def: OpDef) -> str:
    if not op_def.outputs:
        return "Operation"
    return f"_{op_def.name}" if len(op_def.outputs) > 1 else _result(op_def.outputs[0])


if __name__ == "__main__":
    print(stub(), end="")
