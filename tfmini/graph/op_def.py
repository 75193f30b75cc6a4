"""Op declarations: their grammar, which is close to TensorFlow's documentation, and its parser.

::

    MatMul(a: T, b: T) -> product: T
        transpose_a: bool = false
        transpose_b: bool = false
        T: {bfloat16, half, float, double, int32, int64, complex64, complex128}

Inputs and outputs are ``name: TYPE`` where TYPE is a dtype, the name of a ``type`` attr,
``N * T`` (N tensors of one type, N an ``int`` attr), the name of a ``list(type)`` attr
(tensors of those types), or ``Ref(TYPE)``. After the arrow follow the outputs; then, one per
line or separated by ``;``, the attrs: ``name: TYPE [>= minimum] [= default]`` where TYPE is
type, int, float, bool, string, shape, tensor, func, a ``list(...)`` of one of those, or a set
of allowed dtypes or strings in braces. The default of a tensor is written ``uint8[255, 0]``.
"""

from __future__ import annotations

import ast
import collections
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.shapes import as_raw


class _Missing:
    def __repr__(self) -> str:
        return "<no default>"


MISSING: Any = _Missing()


@dataclass(frozen=True)
class ArgDef:
    """One declared input or output. Its type is fixed, a type attr, or that of a list (counted or typed)."""

    name: str
    dtype: dtypes.DType | None = None
    type_attr: str | None = None
    number_attr: str | None = None
    type_list_attr: str | None = None
    is_ref: bool = False

    @property
    def is_list(self) -> bool:
        return self.number_attr is not None or self.type_list_attr is not None


@dataclass(frozen=True)
class AttrDef:
    """One declared attr. ``kind`` is TensorFlow's attr type: ``int``, ``list(type)``, …"""

    name: str
    kind: str
    default: Any = MISSING
    allowed: tuple[Any, ...] | None = None
    minimum: int | None = None

    @property
    def has_default(self) -> bool:
        return self.default is not MISSING

    @cached_property
    def _choices(self) -> frozenset[Any] | None:
        return None if self.allowed is None else frozenset(self.allowed)

    def odd_item(self, value: Any) -> Any:
        """The first item of a value of the attr's kind that is not among the allowed ones, or `MISSING`."""
        if self._choices is not None:
            for item in value if type(value) is list else (value,):
                if item not in self._choices:
                    return item
        return MISSING

    def is_short(self, value: Any) -> bool:
        """Whether a value of the attr's kind, or the length of a list, is below the minimum."""
        return self.minimum is not None and (len(value) if type(value) is list else value) < self.minimum


@dataclass(frozen=True)
class OpDef:
    """The signature of an op type. All checks and builders of its inputs, attrs and outputs derive from it."""

    name: str
    inputs: tuple[ArgDef, ...]
    outputs: tuple[ArgDef, ...]
    attrs: dict[str, AttrDef]
    is_stateful: bool = False
    allows_uninitialized_input: bool = False

    @property
    def input_arg(self) -> tuple[ArgDef, ...]:
        """The inputs, by the name of the field in the OpDef message."""
        return self.inputs

    @property
    def output_arg(self) -> tuple[ArgDef, ...]:
        """The outputs, by the name of the field in the OpDef message."""
        return self.outputs

    def inferred_attrs(self) -> set[str]:
        """Returns the attrs that follow from the inputs. A caller does not pass them."""
        names = (n for arg in self.inputs for n in (arg.type_attr, arg.number_attr, arg.type_list_attr))
        return {n for n in names if n is not None}


class CallPlan:
    """The parts of a declaration that a call needs, in the form in which it needs them: a call takes microseconds."""

    __slots__ = ("op_def", "names", "defaults", "simple", "outputs_simple", "result_type", "required", "type_checks")

    def __init__(self, op_def: OpDef) -> None:
        self.op_def = op_def
        self.names = [arg.name for arg in op_def.inputs]
        inferred = op_def.inferred_attrs()
        self.defaults = {a.name: a.default for a in op_def.attrs.values() if a.has_default}
        self.required = [a.name for a in op_def.attrs.values() if not a.has_default and a.name not in inferred]
        # Every input is one tensor and no reference: this common case takes a quick path.
        self.simple = all(not arg.is_list and not arg.is_ref for arg in op_def.inputs)
        self.outputs_simple = all(not arg.is_list for arg in op_def.outputs)
        self.result_type = _result_type(op_def)
        self.type_checks = {
            a.name: frozenset(a.allowed) for a in op_def.attrs.values() if a.kind == "type" and a.allowed
        }


def _result_type(op_def: OpDef) -> Any:
    if len(op_def.outputs) < 2:
        return None
    return collections.namedtuple(
        op_def.name.lstrip("_"), [out.name.lstrip("_") for out in op_def.outputs], rename=True
    )


def output_dtypes(op_def: OpDef, attrs: dict[str, Any]) -> list[dtypes.DType]:
    """Derives the type of each output from the declaration and the attrs."""
    found: list[dtypes.DType] = []
    for out in op_def.outputs:
        if out.type_list_attr is not None:
            found.extend(attrs[out.type_list_attr])
            continue
        dtype: Any = attrs[out.type_attr] if out.type_attr is not None else out.dtype
        if out.is_ref:
            dtype = dtype._as_ref
        if out.number_attr is not None:
            found.extend([dtype] * attrs[out.number_attr])
        else:
            found.append(dtype)
    return found


def infer_attrs_from_inputs(op_def: OpDef, inputs: Sequence[Any], attrs: dict[str, Any]) -> None:
    """Infers attrs from the flat inputs. At most one list input may have a length that the attrs do not give."""
    position = 0
    for arg in op_def.inputs:
        if arg.type_list_attr is not None:
            count = (
                len(attrs.get(arg.type_list_attr, MISSING)) if arg.type_list_attr in attrs else len(inputs) - position
            )
            attrs.setdefault(arg.type_list_attr, [t.dtype.base_dtype for t in inputs[position : position + count]])
        else:
            count = attrs.setdefault(arg.number_attr, len(inputs) - position) if arg.number_attr else 1
            if arg.type_attr is not None and position < len(inputs) and count:
                attrs[arg.type_attr] = inputs[position].dtype.base_dtype
        position += count


# Parentheses nest at most once, as in Ref(T).
_HEAD = re.compile(r"\s*(\w+)\(((?:[^()]|\([^()]*\))*)\)[ \t]*(?:->[ \t]*([^;\n]*))?(.*)$", re.S)
_ARG = re.compile(r"^\s*(\w+)\s*:\s*(.+?)\s*$")
_ATTR = re.compile(r"^(\w+)\s*:\s*(\{.*?\}|list\(\{.*?\}\)|[\w()]+)\s*(?:>=\s*(-?\d+))?\s*(?:=\s*(.+))?$", re.S)
_KINDS = {"type", "int", "float", "bool", "string", "shape", "tensor", "func"}
_REAL = "float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64"
_QUANTIZED = "qint8, quint8, qint32"
_SETS = {
    "realnumbertype": _REAL,
    "numbertype": f"{_REAL}, complex64, complex128, {_QUANTIZED}",
    "quantizedtype": f"{_QUANTIZED}, qint16, quint16",
}


def parse_op_def(text: str, *, stateful: bool = False, uninit_ok: bool = False) -> OpDef:
    """Parses a declaration.

    Raises:
      ValueError: the text does not follow the grammar; the message quotes the wrong part.
    """
    match = _HEAD.match(text)
    if match is None:
        raise ValueError(f"not an op declaration, like 'Name(x: T) -> y: T; T: {{float, double}}': {text!r}")
    name, inputs, outputs, rest = match.groups()
    attrs = [_parse_attr(part) for part in re.split(r"[;\n](?![^{]*\})", rest) if part.strip()]
    by_name = {attr.name: attr for attr in attrs}
    return OpDef(
        name,
        tuple(_parse_arg(p, by_name) for p in _split_args(inputs)),
        tuple(_parse_arg(p, by_name) for p in _split_args(outputs or "")),
        by_name,
        stateful,
        uninit_ok,
    )


def _split_args(text: str) -> list[str]:
    return [part for part in text.split(",") if part.strip()]


def _parse_arg(text: str, attrs: dict[str, AttrDef]) -> ArgDef:
    match = _ARG.match(text)
    if match is None:
        raise ValueError(f"not an argument declaration: {text!r}")
    name, kind = match.groups()
    is_ref = kind.startswith("Ref(")
    if is_ref:
        kind = kind[4:-1].strip()
    number = None
    if "*" in kind:
        number, kind = (part.strip() for part in kind.split("*", 1))
    if number is not None and (number not in attrs or attrs[number].kind != "int"):
        raise ValueError(f"argument {name!r} counts by {number!r}, which is no int attr of the declaration")
    if kind not in attrs:
        return ArgDef(name, dtype=_fixed_type(name, kind), number_attr=number, is_ref=is_ref)
    if attrs[kind].kind == "list(type)":
        return ArgDef(name, type_list_attr=kind, is_ref=is_ref)
    return ArgDef(name, type_attr=kind, number_attr=number, is_ref=is_ref)


def _fixed_type(name: str, kind: str) -> dtypes.DType:
    if kind in dtypes.BY_NAME:
        return dtypes.BY_NAME[kind]
    text = f"argument {name!r} is of type {kind!r}, which is neither a dtype nor an attr of the declaration"
    remedy = _meant(kind, dtypes.BY_NAME) or f"; declare it, like '{kind}: type' or '{kind}: {{float, double}}'"
    raise ValueError(text + remedy)


def _dtype(word: str, attr: str) -> dtypes.DType:
    if word not in dtypes.BY_NAME:
        raise ValueError(f"attr {attr!r}: there is no dtype {word!r}{_meant(word, dtypes.BY_NAME)}")
    return dtypes.BY_NAME[word]


def _meant(wrong: str, known: Collection[str]) -> str:
    """The end of a message about a wrong name: a similar one, if there is one."""
    from tfmini.text import similar  # imported for errors only

    near = similar(wrong, known, 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _parse_attr(text: str) -> AttrDef:
    match = _ATTR.match(text.strip())
    if match is None:
        raise ValueError(f"not an attr declaration: {text!r}")
    name, kind, minimum, default = match.groups()
    allowed: tuple[Any, ...] | None = None
    inner = kind[5:-1] if kind.startswith("list(") else kind
    inner = "{" + _SETS[inner] + "}" if inner in _SETS else inner
    if inner.startswith("{"):
        words = [w.strip() for w in inner[1:-1].split(",") if w.strip()]
        if not words:
            raise ValueError(f"attr {name!r} has no allowed values: {text.strip()!r}")
        is_text = words[0][0] in "'\""
        allowed = tuple(w[1:-1].encode() if is_text else _dtype(w, name) for w in words)
        base = "string" if is_text else "type"
        kind = f"list({base})" if kind.startswith("list(") else base
    elif inner not in _KINDS:
        raise ValueError(f"unknown attr type {kind!r} in {text.strip()!r}{_meant(inner, _KINDS | _SETS.keys())}")
    try:
        value = MISSING if default is None else _parse_default(kind, default.strip())
    except (ValueError, TypeError, SyntaxError, KeyError):
        text = f"{default.strip()!r} is no default for attr {name!r} of type {kind}"
        raise ValueError(text + _hint(kind, default)) from None
    if value is not MISSING and allowed is not None and not _is_allowed(value, allowed):
        raise ValueError(f"the default {default.strip()!r} of attr {name!r} is not among its allowed values")
    return AttrDef(name, kind, value, allowed, None if minimum is None else int(minimum))


def _is_allowed(value: Any, allowed: tuple[Any, ...]) -> bool:
    return all(item in allowed for item in value) if isinstance(value, list) else value in allowed


def _hint(kind: str, default: str) -> str:
    """A suggestion for a wrong dtype in a default."""
    if kind not in ("type", "list(type)", "tensor"):
        return ""
    word = default.strip().partition("[")[0].removeprefix("DT_").lower()
    return "" if word in dtypes.BY_NAME else _meant(word, dtypes.BY_NAME)


def _parse_default(kind: str, text: str) -> Any:
    if kind.startswith("list("):
        words = [w.strip() for w in text.strip("[]").split(",") if w.strip()]
        return [_parse_default(kind[5:-1], w) for w in words]
    if kind == "type":
        return dtypes.as_dtype(text.removeprefix("DT_").lower())
    if kind == "bool":
        return {"true": True, "false": False}[text.lower()]
    if kind == "shape":
        return None if "unknown_rank" in text else as_raw(ast.literal_eval(text) if text not in ("{}", "[]") else [])
    if kind == "string":
        return ast.literal_eval(text).encode()
    parsers: dict[str, Callable[[str], Any]] = {"int": int, "float": _parse_float, "func": str, "tensor": _parse_array}
    return parsers[kind](text)


def _parse_float(text: str) -> float:
    return float(np.float32(text))


def _parse_array(text: str) -> np.ndarray[Any, Any]:
    dtype, values = text.split("[", 1)
    return np.array(ast.literal_eval("[" + values), dtypes.as_dtype(dtype.strip()).numpy)
