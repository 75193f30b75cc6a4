"""The signatures of all ops, as stubs: of `tfmini.graph.raw_ops` and of the public ``tf.raw_ops``."""

from __future__ import annotations

import keyword
import math
from collections.abc import Iterator, Mapping
from typing import Any

import tfmini as tf
from tests.op_modules import op_modules
from tfmini.graph.op_def import ArgDef, AttrDef, OpDef
from tfmini.graph.op_types import OPS

_IMPORTS = """\
from collections.abc import {abc}
from typing import Any as Value, NamedTuple  # an op is called Any

from tfmini import dtypes
from tfmini.graph.operation import Operation, Tensor

"""
_TYPES = {"int": "int", "float": "float", "bool": "bool", "string": "str | bytes"}


def internal_stub() -> str:
    """The text of `tfmini/graph/raw_ops.pyi`: inputs are positional, with their declared names."""
    head = _IMPORTS.format(abc="Callable, Sequence") + "def named(op_type: str) -> Callable[..., Tensor]: ...\n"
    return head + "".join(line for op_def in _op_defs() for line in _lines(op_def, {}, is_public=False))


def public_stub() -> str:
    """The text of the stub of ``tf.raw_ops``: keyword arguments with TensorFlow's names."""
    public = (op_def for op_def in _op_defs() if not op_def.name.startswith("_"))
    names = {name: OPS[name].traits.get("raw_names", {}) for name in op_modules()}
    lines = (line for op_def in public for line in _lines(op_def, names[op_def.name], is_public=True))
    return _IMPORTS.format(abc="Sequence") + "".join(lines)


def _op_defs() -> list[OpDef]:
    """The declarations of tfmini's own ops that can be written as functions: one is called None."""
    return [OPS[name].op_def for name in sorted(op_modules()) if not keyword.iskeyword(name)]


def _lines(op_def: OpDef, names: Mapping[str, str], is_public: bool) -> Iterator[str]:
    if len(op_def.outputs) > 1:
        yield f"class _{op_def.name}(NamedTuple):\n"
        for out in op_def.outputs:
            ignored = "  # type: ignore[assignment]" if hasattr(tuple, out.name) else ""
            yield f"    {out.name.lstrip('_')}: {_result(out)}{ignored}\n"
    inputs = [f"{names.get(arg.name, arg.name)}: {_input_type(arg)}" for arg in op_def.inputs]
    parts = [*(["*", *inputs] if is_public else [*inputs, "*"]), *_attrs(op_def, names, is_public)]
    yield f"def {op_def.name}({', '.join(parts)}) -> {_results(op_def)}: ...\n"


def _attrs(op_def: OpDef, names: Mapping[str, str], is_public: bool) -> Iterator[str]:
    """The attrs, those without a default first; only tfmini's own calls may give one that follows from the inputs."""
    inferred = op_def.inferred_attrs()
    attrs = (attr for attr in op_def.attrs.values() if not is_public or attr.name not in inferred)
    for attr in sorted(attrs, key=lambda attr: attr.has_default or attr.name in inferred):
        optional = attr.has_default or attr.name in inferred
        yield f"{names.get(attr.name, attr.name)}: {_type(attr.kind)}{f' = {_default(attr)}' if optional else ''}"
    yield "name: str | None = None"


def _input_type(arg: ArgDef) -> str:
    return "Sequence[Value]" if arg.is_list else "Value"


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
