"""The notation of the tables of samples: a row is one line of Python in which ops are called by name.

::

    SAMPLES = '''
    Gather(params=f32(4, 3), indices=[2, 0])
    q = FIFOQueueV2(component_types=[float32]); QueueEnqueueV2(handle=q, components=[1.5]); QueueSizeV2(handle=q)
    '''

An op's name stands for its raw builder (``tf.raw_ops.Gather``). Statements are separated by ``;``: an assignment
names a tensor, and each expression is a step of one session, in order. An indented line continues the row before.
``f32(4, 3)`` is a float32 array of this shape with numbers from a fixed seed, ``f32([1, 2])`` an array of these
values; ``float32``, ``int64`` … are numpy's types, for attrs and scalars; ``feed(tensor, value)`` is a tensor that is
fed in every step; ``gradients(Mul, x=…, y=…)`` are those of an op's results by its arrays; ``tmp`` is an empty folder.
Functions of the room's module may be called too; one that builds several ops takes them as attributes of ``op``.
``through('Enter Exit', tf.while_loop(…))`` says that tfmini's public function builds these ops.

The tables of a room's module: ``SAMPLES`` (values must be TensorFlow's, and gradients those of the values),
``NO_SLOPE`` (the gradient isn't that of the values, in TensorFlow either), ``SHAPES`` (only dtypes and shapes: the
values are random, or depend on time or machine), ``OURS`` (TensorFlow has no such op). Comments say why.

This module imports neither tfmini nor TensorFlow: the same rows run on both.
"""

from __future__ import annotations

import ast
import builtins
import importlib
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

FOLDER = Path(__file__).parent
# Table -> what is compared with TensorFlow's answers, and whether gradients are.
TABLES = {
    "SAMPLES": ("values", True), "NO_SLOPE": ("values", False), "SHAPES": ("shapes", False), "OURS": ("nothing", True)
}  # fmt: skip
_TYPES = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64, "c64": np.complex64,
    "c128": np.complex128, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "u8": np.uint8,
    "u16": np.uint16, "u32": np.uint32, "u64": np.uint64, "b1": np.bool_,
}  # fmt: skip
_NAMES = {
    **{np.dtype(dtype).name: dtype for dtype in _TYPES.values()}, "half": np.float16,
    **{name: name for name in ("string", "resource", "variant", "qint8", "quint8", "qint16", "quint16", "qint32")},
}  # fmt: skip
_WIDER = {np.float32: np.float64, np.complex64: np.complex128}


class Row(NamedTuple):
    """A row of a table: the room's name, the text, and what is checked (see `TABLES`)."""

    room: str
    text: str
    compared: str
    has_slope: bool

    @property
    def names(self) -> set[str]:
        """The names of the row and of the room's functions that it calls, those of ops among them."""
        tree = ast.parse(self.text)
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        functions = [vars(module_of(self.room)).get(name) for name in names]
        names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        return names.union(self.through, *(_names_in(f.__code__) for f in functions if isinstance(f, FunctionType)))

    @property
    def through(self) -> set[str]:
        """The ops that tfmini's public functions build in this row."""
        calls = (node for node in ast.walk(ast.parse(self.text)) if isinstance(node, ast.Call))
        named: list[Any] = [c.args[0] for c in calls if isinstance(c.func, ast.Name) and c.func.id == "through"]
        return {word for constant in named for word in constant.value.split()}

    @property
    def head(self) -> str:
        """The outermost op of the last statement that calls one, for names of tests."""
        for statement in reversed(ast.parse(self.text).body):
            calls = (node.func for node in ast.walk(statement) if isinstance(node, ast.Call))
            names = [function.id for function in calls if isinstance(function, ast.Name)]
            found = [name for name in names if not name[0].islower()]
            if found:
                return found[0]
        return "functions"


def rooms() -> list[str]:
    """The names of the modules that have tables."""
    texts = {path.stem: path.read_text() for path in sorted(FOLDER.glob("*.py"))}
    return [stem for stem, text in texts.items() if re.search(r"^(SAMPLES|SHAPES|OURS) = ", text, re.M)]


def each(ops: str, *arguments: str) -> str:
    """A row per op and list of arguments."""
    return "".join(f"{op}({argument})\n" for op in ops.split() for argument in arguments)


def module_of(room: str) -> ModuleType:
    """The module with the tables and functions of a room."""
    return importlib.import_module(f"tests.ops.samples.{room}")


def rows(room: str) -> Iterator[Row]:
    """The rows of a room's tables."""
    for table, checks in TABLES.items():
        text = getattr(module_of(room), table, "").strip()
        for row in re.split(r"\n(?=\S)", text) if text else ():
            lines = [line.strip() for line in row.splitlines() if not line.lstrip().startswith("#")]
            if any(lines):
                yield Row(room, " ".join(lines), *checks)


class Built(NamedTuple):
    """What each step of a row fetches, and the values that placeholders are fed with."""

    steps: list[list[Any]]
    feeds: dict[Any, Any]


def build(row: Row, tf: Any, builder: Callable[[str], Any], tmp: Path | str = "", wide: bool = False) -> Built:
    """Adds a row's ops to the default graph.

    Args:
      row: the row.
      tf: tfmini, or TensorFlow's ``compat.v1``.
      builder: op name -> function that adds the op.
      tmp: an empty folder for files.
      wide: with float64 and complex128 wherever the row says float32 and complex64.
    """
    feeds: dict[Any, Any] = {}
    fixed = {
        **vars(builtins), **_Data(wide).functions(), **{n: _widened(t, wide) for n, t in _NAMES.items()},
        "np": np, "inf": np.inf, "nan": np.nan, "tf": tf, "tmp": str(tmp), "op": _Ops(builder),
        "gradients": partial(_gradients, tf), "through": lambda ops, results: results,
        "feed": lambda tensor, value: feeds.update({tensor: value}) or tensor,
    }  # fmt: skip
    own = vars(module_of(row.room))
    tree = ast.parse(row.text)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    bound = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    bound |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    known = {n: own[n] if n in own else fixed[n] if n in fixed else builder(n) for n in sorted(names - bound)}
    steps = []
    for statement in tree.body:
        if isinstance(statement, ast.Expr):
            value = eval(compile(ast.Expression(statement.value), row.text, "eval"), known)
            steps.append([_fetchable(item) for item in _flat(value)])
        else:
            exec(compile(ast.Module([statement], []), row.text, "exec"), known)
    return Built(steps, feeds)


def _gradients(tf: Any, op: Callable[..., Any], **arguments: Any) -> Any:
    """The gradients of an op's results by those arguments that are arrays of floating numbers."""
    xs = {
        name: tf.constant(value)
        for name, value in arguments.items()
        if getattr(value, "dtype", np.dtype(int)).kind in "fc"
    }
    ys = [y for y in _flat(op(**{**arguments, **xs})) if y.dtype.is_floating or y.dtype.is_complex]
    weights = [tf.ones_like(y) * tf.constant(1.5 + 0.5j if y.dtype.is_complex else 1.5, y.dtype) for y in ys]
    return tf.gradients(ys, list(xs.values()), weights)


class _Ops:
    """Ops as attributes, for the functions of a room."""

    def __init__(self, builder: Callable[[str], Any]) -> None:
        self._builder = builder

    def __getattr__(self, name: str) -> Any:
        return self._builder(name)


class _Data:
    """``f32(…)`` and its like; every call of a row has a seed of its own."""

    def __init__(self, wide: bool) -> None:
        self.wide = wide
        self.calls = 0

    def functions(self) -> dict[str, Any]:
        return {name: self._of_type(_widened(dtype, self.wide)) for name, dtype in _TYPES.items()}

    def _of_type(self, dtype: Any) -> Any:
        def array(*shape: Any, low: float | None = None, high: float | None = None) -> Any:
            if shape and not isinstance(shape[0], int):
                return np.array(shape[0], dtype)
            self.calls += 1
            return _numbers(np.random.RandomState(self.calls), np.dtype(dtype), shape, low, high)

        return array


def _numbers(random: Any, dtype: Any, shape: Any, low: float | None, high: float | None) -> Any:
    if dtype.kind == "b":
        return random.randint(0, 2, shape).astype(dtype)
    if dtype.kind in "iu":
        low, high = low if low is not None else -5 if dtype.kind == "i" else 0, 9 if high is None else high
        return np.asarray(random.randint(low, high, shape), dtype)
    low, high = -2.0 if low is None else low, 2.0 if high is None else high
    real = np.round(random.uniform(low, high, shape), 3)
    return np.asarray(real + 1j * np.round(random.uniform(low, high, shape), 3) if dtype.kind == "c" else real, dtype)


def _widened(dtype: Any, wide: bool) -> Any:
    return _WIDER.get(dtype, dtype) if wide and isinstance(dtype, type) else dtype


def _names_in(code: Any) -> set[str]:
    inner = (const for const in code.co_consts if hasattr(const, "co_names"))
    return set(code.co_names).union(*(_names_in(const) for const in inner))


def _flat(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [item for part in value for item in _flat(part)]
    return [] if value is None else [value]


def _fetchable(item: Any) -> Any:
    """A tensor or op; of a handle, which no client may see, its op."""
    element = item.graph.as_graph_element(item)
    return element.op if getattr(element, "dtype", None) in ("resource", "variant") else element
