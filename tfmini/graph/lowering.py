"""Lowerings: how an op is computed on a device that compiles, declared in the ``lowering.py`` of each room of ops.

::

    @lower("Reshape", host="shape")
    def _reshape(tensor, shape): ...          # JAX's arrays -> JAX's array(s); attrs by name, as of a kernel

    lower_as_kernel("Add Relu")               # the numpy kernel is an expression of functions that JAX has too

A lowering gets traced arrays in place of numpy's. The inputs that ``host`` names have known values (numpy's arrays):
shapes, sizes and axes, which TensorFlow's GPU kernels keep in host memory. A variable comes as a *cell*: ``value`` is
its present array and may be set. A lowering returns what the kernel would; a reference output is the cell.

`jnp`, `lax` and `jax` here import JAX when an attribute is read, so that a module of lowerings can be imported without
it. They are imported when a device that needs them appears (`lowering_of`).
"""

from __future__ import annotations

import pkgutil
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal, TypeAlias, TypeVar

from tfmini import dtypes
from tfmini.graph.node import MADE_BY_PASSES, Endpoint, Node, output_dtypes
from tfmini.graph.op_types import OPS, load_ops, trait_of

F = TypeVar("F", bound=Callable[..., Any])
_OPS_PACKAGE = "tfmini.ops"
MODULE = "lowering"
"""The name of the modules that declare lowerings. An import of all ops leaves them out."""


class _Later:
    """A module that is imported when an attribute of it is read."""

    def __init__(self, name: str) -> None:
        self.__dict__["_name"] = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(import_module(self._name), attribute)


DeviceValue: TypeAlias = Any
"""A value in a lowering: a traced array of JAX's, or a numpy array where the value is known; of a variable, a cell."""

jax: Any = _Later("jax")
jnp: Any = _Later("jax.numpy")
lax: Any = _Later("jax.lax")


ArrayUse: TypeAlias = Literal["", "makes", "reads", "changes"]
Entries: TypeAlias = Callable[[Endpoint], "list[int | None] | None"]
LOOSE = "_loose"
"""The attr of a node some of whose ``host`` inputs may be unknown."""


@dataclass(frozen=True)
class LoweringRule:
    """The lowering of one op.

    Attributes:
      function: see the module; None: the op's kernel runs on traced arrays.
      bound: the attrs that it takes as keyword arguments.
      host: the names of the inputs whose values must be known.
      on_host: whether the host runs its numpy kernel, on copies.
      array: of an op on a TensorArray or stack, which the host keeps (``on_host``): what it does with it. The function
        is for a trace of all that touches it, whose arrays it gets before the inputs (`xla.whole.HeldObjects`).
      loose: those of ``host`` that may be unknown in a node for which ``loosen(node, entries)`` is not None; that goes
        into the node's attr `LOOSE`. ``entries(endpoint)`` gives the numbers in a vector, as far as the graph tells.
      keeps_shape_only: whether it reads no more than the shapes of its inputs, so that its result is known.
      draw: for an op with a stream of random numbers. ``draw(node)`` makes the stream: a function that is called once
        per step on the host and returns an array for what the lowering has asked for. The lowering gets a function
        first, and calls it with its wishes: ``draw(kind, *sizes)`` (see `tfmini.ops.lowering`).
    """

    function: Callable[..., Any] | None
    bound: tuple[str, ...] = ()
    host: frozenset[str] = frozenset()
    keeps_shape_only: bool = False
    draw: Callable[[Node], Callable[..., Any]] | None = None
    on_host: bool = False
    array: ArrayUse = ""
    loose: frozenset[str] = frozenset()
    loosen: Callable[[Node, Entries], Any] | None = None


@dataclass
class _Table:
    lowerings: dict[str, LoweringRule] = field(default_factory=dict)
    loaded: bool = False
    lock: Any = field(default_factory=threading.Lock)


_table = _Table()


def lower(
    ops: str, host: str = "", keeps_shape_only: bool = False,
    draw: Callable[[Node], Callable[..., Any]] | None = None, loose: str = "",
    loosen: Callable[[Node, Entries], Any] | None = None, array: ArrayUse = "",
) -> Callable[[F], F]:  # fmt: skip
    """Attaches a lowering to ops.

    Args:
      ops: their names, separated by blanks.
      host: the names of inputs, likewise, whose values it needs while it is traced.
      keeps_shape_only, draw, loose, loosen, array: see `LoweringRule`.
    """

    def attach(function: F) -> F:
        code = function.__code__
        bound = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
        rule = LoweringRule(
            function, bound, frozenset(host.split()), keeps_shape_only, draw, on_host=bool(array), array=array,
            loose=frozenset(loose.split()), loosen=loosen,
        )  # fmt: skip
        for name in ops.split():
            _declare(name, rule)
        return function

    return attach


def lower_as_kernel(ops: str, host: str = "") -> None:
    """Says that the numpy kernels of these ops serve as their lowerings; the arguments are those of `lower`."""
    for name in ops.split():
        _declare(name, LoweringRule(None, (), frozenset(host.split())))


def lower_on_host(ops: str) -> None:
    """Says that a device has these ops as well, but the host runs their numpy kernels, on copies.

    Of such ops a shape depends on values, or they belong to state beside values of the device. TensorFlow has kernels
    for GPUs of them, some with all inputs in host memory.
    """
    for name in ops.split():
        _declare(name, LoweringRule(None, on_host=True))


def _declare(name: str, lowering: LoweringRule) -> None:
    if name not in OPS or name in _table.lowerings:
        raise ValueError(f"{name} is no op" if name not in OPS else f"{name} has a lowering already")
    _table.lowerings[name] = lowering


def lowerings() -> Mapping[str, LoweringRule]:
    """Returns op -> lowering, of all ops that have one; imports their modules at the first call."""
    if not _table.loaded:
        load_ops()
        with _table.lock:
            for module in pkgutil.walk_packages(sys.modules[_OPS_PACKAGE].__path__, f"{_OPS_PACKAGE}."):
                if module.name.endswith(f".{MODULE}"):
                    import_module(module.name)
            _table.loaded = True
    return _table.lowerings


def lowering_of(op_type: str) -> LoweringRule | None:
    """Returns the lowering of an op, or None."""
    return lowerings().get(op_type)


# ---- What a device that compiles can run ---------------------------------------------------------------------------

_OPAQUE = frozenset({dtypes.string, dtypes.variant})
_ON_HOST = ("control_only", "placeholder", "variable", "flow", "hands_on")
"""Traits of ops that compute nothing: the host runs them whatever their device is."""


def lacks(node: Node) -> str | None:
    """Returns why a device that compiles cannot run a node, None if it can.

    It can run what has a lowering; what computes nothing; and what takes a variable by reference or handle, since that
    must stand beside the variable: its kernel works on a copy then.
    """
    if node.op in MADE_BY_PASSES:
        return None
    if node.handle is None:
        return "the op is not known here"
    types = _types(node)
    if not types.isdisjoint(_OPAQUE):
        return "it has no numbers: " + ", ".join(sorted(dtype.name for dtype in types & _OPAQUE))
    if lowering_of(node.op) is not None or node.op == "Const" or any(trait_of(node.op, trait) for trait in _ON_HOST):
        return None
    return None if takes_variable(node) else "it has no lowering"


def takes_variable(node: Node) -> bool:
    """Whether a node takes a variable by reference or handle, as far as its op tells."""
    handle = node.handle
    if handle is None:
        return False
    is_of_variable = trait_of(node.op, "writes") or trait_of(node.op, "of_variable")
    return bool(is_of_variable) or any(arg.is_ref for arg in handle.op_def.inputs)


def _types(node: Node) -> set[dtypes.DType]:
    found = {dtype.base_dtype for dtype in output_dtypes(node)}
    for value in node.attrs.values():
        if isinstance(value, dtypes.DType):
            found.add(value.base_dtype)
        elif type(value) is list and value and isinstance(value[0], dtypes.DType):
            found.update(dtype.base_dtype for dtype in value)
    return found - {dtypes.resource}
