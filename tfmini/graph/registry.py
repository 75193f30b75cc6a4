"""The registry of ops: one handle per op type, to which its rules are attached.

A family file in ``tfmini/ops`` declares an op and attaches its rules to the handle::

    matmul = op("MatMul(a: T, b: T) -> product: T; transpose_a: bool = false; …")

    @matmul.shape
    def _shape(node): ...                     # Operation -> list of raw shapes, one per output
                                              # (shared ones: `shape_functions`, as ``op(..., shape=...)``)

    @matmul.gradient
    def _gradient(node, grad): ...            # Operation, grads of outputs -> grads of inputs

    @matmul.kernel("CPU")
    def _cpu(a, b, *, transpose_a, transpose_b): ...   # numpy values -> numpy value(s)

Each decorator writes into the table of its reader: the graph reads `OPS` and the shape functions, `gradients` reads
`GRADIENTS`, the worker reads `KERNELS`. A second registration raises an error.

Kernels
-------
A kernel takes the values of the op's inputs in order (a list for an ``N * T`` or
``list(type)`` input, a `Variable`-like reference for a ``Ref`` or resource input) and returns
the value of the only output, or a flat tuple of all outputs. Values are numpy arrays or numpy
scalars (rank 0); strings are object arrays of ``bytes``, or ``bytes`` for rank 0. Inputs are
read-only: they may be shared with variables, constants and other steps.

The compiler binds keyword-only parameters to the attrs of the same name. Two more names are special: ``node`` (the
`Node`) and ``resources`` (the worker's resource manager for the node's device). A first parameter named ``step``
receives the context of the running step. A *kernel factory* takes the node and returns the function to call; use it
for a kernel that specialises on attrs or keeps state between steps (generators). A *state kernel* returns the object
behind a reference or handle, such as a `VariableState`. An *async kernel* receives a `waiting.Wait` before the inputs
and returns nothing; it answers through the `Wait`, at once or later.

A large result that only goes to another task can be computed where the connection wants it, which saves a copy. A rule
attached with ``into`` says how (see `OpHandle.into`); a kernel without one is called as always.

Traits
------
Other facts about an op that placer, compiler or inspector need (it may wait, it is a variable, it enters a loop) are
traits: arguments of `op`, which `tfmini.graph.traits` describes. No other module decides by a list of op names;
`op_homes.py` only says where each op is declared.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

from tfmini.graph.op_def import OpDef, parse_op_def
from tfmini.graph.traits import Traits, add_traits, ops_with
from tfmini.op_homes import HOMES
from tfmini.shapes import RawShape

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultTypeVar

    from tfmini.graph.operation import Tensor

    R = DefaultTypeVar("R", default=Tensor)
else:
    R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
# Operation -> one raw shape per output, or these shapes where they are always the same.
ShapeRule = Callable[[Any], list[RawShape]] | Sequence[RawShape]
S = TypeVar("S", bound=ShapeRule)


@dataclass(frozen=True)
class Kernel:
    """How an op is computed on a device type.

    ``bound`` lists the keyword-only parameters. ``may_block``: the kernel calls a function of the user, which may wait
    for another one in the same step; therefore each runs in a thread of its own.
    """

    function: Callable[..., Any]
    bound: tuple[str, ...]
    wants_step: bool
    is_factory: bool = False
    makes_state: bool = False
    is_async: bool = False
    may_block: bool = False


class OpHandle(Generic[R]):
    """An op type with its rules. A call adds a node to the default graph (see `building`).

    A call returns the output: a `Tensor`, unless the handle is annotated otherwise where it is declared
    (``OpHandle[Operation]`` for an op without outputs, ``OpHandle[Any]`` for several outputs or a list).
    """

    __slots__ = ("name", "_text", "_flags", "_op_def", "shape_function", "inline_expression", "into_rule", "plan",
                 "site", "shapes_checked")  # fmt: skip

    def __init__(self, text: str, flags: dict[str, bool], site: str) -> None:
        self.name = text.partition("(")[0].strip()
        self._text = text
        self._flags = flags
        self._op_def: OpDef | None = None
        self.shape_function: Callable[[Any], list[Any]] | None = None
        self.inline_expression: Callable[[Any], str | None] | None = None
        self.into_rule: Callable[[Any], Callable[..., Any] | None] | None = None
        self.plan: Any = None  # filled by `building` at the first call
        self.site = site
        self.shapes_checked = False  # whether `Graph` has looked at a result of the shape function

    @property
    def op_def(self) -> OpDef:
        """The parsed declaration. It is parsed at first use, so that import stays fast."""
        if self._op_def is None:
            try:
                self._op_def = parse_op_def(self._text, **self._flags)
            except (ValueError, TypeError) as error:
                raise ValueError(f"declaration of {self.name} at {self.site}: {error}") from None
        return self._op_def

    def __call__(self, *args: Any, **kwargs: Any) -> R:
        return apply(self, args, kwargs)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def shape(self, rule: S) -> S:
        """Attaches the shape function, or the shapes of the outputs where they are always the same."""
        if not _is_from_one_line("shape", self.name):
            _refuse_second(self.shape_function, f"shape function of {self.name}")
        shapes: Any = rule
        self.shape_function = shapes if callable(shapes) else lambda node: shapes
        return rule

    def gradient(self, function: F) -> F:
        """Attaches the gradient: (Operation, *gradients of outputs) -> gradients of inputs."""
        if _is_from_one_line("gradient", self.name):
            GRADIENTS.pop(self.name, None)
        register_gradient(self.name, function)
        return function

    def not_differentiable(self) -> None:
        """Declares that the op has no gradient: backpropagation stops here without an error."""
        if _is_from_one_line("gradient", self.name):
            GRADIENTS.pop(self.name, None)
        register_gradient(self.name, None)

    def kernel(self, device_type: str) -> Callable[[F], F]:
        """Attaches the function that computes the op on a device type."""
        return self._kernel_decorator(device_type, is_factory=False)

    def kernel_factory(self, device_type: str, may_block: bool = False) -> Callable[[F], F]:
        """Attaches a function Node -> kernel function (``may_block``: see `Kernel`)."""
        return self._kernel_decorator(device_type, is_factory=True, may_block=may_block)

    def state_kernel(self, device_type: str) -> Callable[[F], F]:
        """Attaches ``function(resources, *, attrs…)`` -> the state object behind a ref or handle output.

        It runs when a program is bound to the task's resources, not in every step.
        """
        return self._kernel_decorator(device_type, is_factory=False, makes_state=True)

    def async_kernel(self, device_type: str) -> Callable[[F], F]:
        """Attaches ``function(wait, *inputs, *, attrs…)``, which answers through the `Wait` (see `waiting`)."""
        return self._kernel_decorator(device_type, is_factory=False, is_async=True)

    def inline(self, function: Callable[[Any], str | None]) -> Callable[[Any], str | None]:
        """Attaches a rule Node -> Python expression over ``{0}``, ``{1}``, … or None.

        The compiler writes the expression into the program in place of a call, which saves
        a Python call per element-wise op. It must compute exactly what the kernel does.
        """
        self.inline_expression = function
        return function

    def into(self, rule: Callable[[Any], Callable[..., Any] | None]) -> Callable[[Any], Callable[..., Any] | None]:
        """Attaches a rule Node -> ``function(new, *inputs)`` or None, for an op with one output.

        The function computes exactly what the kernel does, for the same inputs. It gets the array for its result (in
        C order, not initialised) from ``new(shape, dtype)``, which it may call once or not at all, and must not write
        into it when it has returned. Below `INTO_FROM` bytes it need not call it. It takes attrs from the node.
        The compiler calls it in place of the kernel where only a message to another task takes the result.
        """
        self.into_rule = rule
        return rule

    def _kernel_decorator(
        self, device_type: str, is_factory: bool, makes_state: bool = False, is_async: bool = False,
        may_block: bool = False,
    ) -> Callable[[F], F]:  # fmt: skip
        def attach(function: F) -> F:
            key = (self.name, device_type)
            if not _is_from_one_line("kernel", *key):
                _refuse_second(KERNELS.get(key), f"{device_type} kernel of {self.name}")
            KERNELS[key] = _describe_kernel(function, is_factory, makes_state, is_async, may_block)
            if is_async or may_block:
                add_traits(self.name, {"waits": True})
            return function

        return attach


class all_of:  # noqa: N801 - it reads as words: ``@all_of(equal_op, not_equal_op).shape``
    """Several ops that share a rule: each method attaches it to all of them, as that of `OpHandle` to one."""

    def __init__(self, *handles: OpHandle[Any]) -> None:
        self._handles = handles

    def shape(self, rule: S) -> S:
        for handle in self._handles:
            handle.shape(rule)
        return rule

    def gradient(self, function: F) -> F:
        return self._with(OpHandle.gradient, function)

    def not_differentiable(self) -> None:
        for handle in self._handles:
            handle.not_differentiable()

    def kernel(self, device_type: str) -> Callable[[F], F]:
        return lambda function: self._with(lambda handle, f: handle.kernel(device_type)(f), function)

    def kernel_factory(self, device_type: str, may_block: bool = False) -> Callable[[F], F]:
        return lambda function: self._with(lambda handle, f: handle.kernel_factory(device_type, may_block)(f), function)

    def state_kernel(self, device_type: str) -> Callable[[F], F]:
        return lambda function: self._with(lambda handle, f: handle.state_kernel(device_type)(f), function)

    def async_kernel(self, device_type: str) -> Callable[[F], F]:
        return lambda function: self._with(lambda handle, f: handle.async_kernel(device_type)(f), function)

    def into(self, rule: F) -> F:
        return self._with(OpHandle.into, rule)

    def _with(self, attach: Callable[[OpHandle[Any], Any], Any], function: F) -> F:
        for handle in self._handles:
            attach(handle, function)
        return function


class _Ops(dict[str, OpHandle[Any]]):
    """Op type -> handle. The first lookup of an op of `HOMES` imports its module; iteration sees what was looked up.

    A handle enters the table when the import of its module has ended, since another thread may look it up before
    its kernel is attached.
    """

    def __missing__(self, name: str) -> OpHandle[Any]:
        home = HOMES[name]
        import_module(home)  # waits while another thread imports it
        if name not in _DECLARED:
            raise RuntimeError(f"tfmini/op_homes.py says that {home} declares the op {name}, but it does not.")
        handle = self[name] = _DECLARED[name]
        return handle

    def get(self, name: str, default: Any = None) -> Any:
        """Returns the handle of an op, ``default`` if there is no such op."""
        handle = dict.get(self, name)
        if handle is None and name in HOMES:
            handle = self[name]
        return default if handle is None else handle

    def __contains__(self, name: object) -> bool:
        return dict.__contains__(self, name) or name in HOMES


def op_names() -> set[str]:
    """The names of all ops, without importing their modules."""
    return {*OPS, *HOMES}


INTO_FROM = 1 << 20
"""Bytes of a result that can be computed where the connection wants it. Smaller ones are still in the cache when they
are copied, those of a message into one block."""

_HOME = __file__.rsplit("/", 2)[0] + "/"
_LISTED = (f"{_HOME}ops/", f"{_HOME}data/")  # whose ops are in `HOMES`
OPS: dict[str, OpHandle[Any]] = _Ops()
# The ops of `HOMES` whose modules are imported or being imported.
_DECLARED: dict[str, OpHandle[Any]] = {}
KERNELS: dict[tuple[str, str], Kernel] = {}
_LINES: dict[tuple[str, ...], tuple[str, int]] = {}
# None: not differentiable. Absent: backpropagation through the op is an error.
GRADIENTS: dict[str, Callable[..., Any] | None] = {}


def op(
    text: str, *, stateful: bool = False, uninit_ok: bool = False, shape: ShapeRule | None = None,
    differentiable: bool = True, **traits: Unpack[Traits],
) -> OpHandle[R]:  # fmt: skip
    """Declares an op (see `op_def` for the grammar) and returns its handle.

    Args:
      text: the declaration.
      stateful: the op has side effects or state. Passes never fold, merge or drop it.
      uninit_ok: its reference inputs may be uninitialised variables.
      shape: as for `OpHandle.shape`; ``[()]`` is one scalar, ``[]`` no output.
      differentiable: False: see `OpHandle.not_differentiable`.
      traits: see `Traits`.

    Raises:
      ValueError: the name is taken, a trait does not exist, or the text does not follow the grammar. (tfmini's own
        declarations are parsed at first use, and by a test.)
    """
    frame = inspect.currentframe()
    caller = frame.f_back if frame else None
    site = f"{caller.f_code.co_filename}:{caller.f_lineno}" if caller else "?"
    handle: OpHandle[R] = OpHandle(text, {"stateful": stateful, "uninit_ok": uninit_ok}, site)
    is_own = site.startswith(_LISTED)
    if is_own and handle.name not in HOMES:
        raise ValueError(
            f"op {handle.name} at {site} is missing in tfmini/op_homes.py. Add it to the row of its module, by which "
            "other processes find it."
        )
    table: dict[str, OpHandle[Any]] = _DECLARED if is_own else OPS
    first = table.get(handle.name)
    if first is not None and not (is_own and first.site == site):  # see `_is_from_one_line`
        raise ValueError(f"op {handle.name} is declared at {first.site} and again at {site}")
    if not site.startswith(_HOME) or not handle.name.isidentifier():
        handle.op_def  # noqa: B018 - reports a mistake at the declaration
    if traits:
        add_traits(handle.name, traits)
    table[handle.name] = handle
    if shape is not None:
        handle.shape(shape)
    if not differentiable:
        handle.not_differentiable()
    return handle


def apply(handle: OpHandle[Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Adds a node. The first call imports `building`, which replaces this function: it needs `Graph`, which needs this
    module.
    """
    return import_module("tfmini.graph.building").apply(handle, args, kwargs)


def kernel_for(op_type: str, device_type: str) -> Kernel | None:
    """Returns the kernel of an op on a device type, or None."""
    kernel = KERNELS.get((op_type, device_type))
    if kernel is None and OPS.get(op_type) is not None:  # which imports the op's module, if nothing has done so
        kernel = KERNELS.get((op_type, device_type))
    return kernel


_WAITS = ops_with("waits")


def may_wait(op_type: str) -> bool:
    """Whether an op may wait for other steps or tasks. An op that is not declared here may: its task declares it."""
    return OPS.get(op_type) is None or op_type in _WAITS  # in this order: the lookup may import the op's traits


def register_gradient(op_type: str, function: Callable[..., Any] | None) -> None:
    """Registers a gradient function under an op type or an override name.

    Raises:
      KeyError: the name is taken.
    """
    if op_type in GRADIENTS:
        raise KeyError(f"Registering two gradient with name '{op_type}'!")
    GRADIENTS[op_type] = function


def _describe_kernel(
    function: Callable[..., Any], is_factory: bool, makes_state: bool, is_async: bool, may_block: bool
) -> Kernel:
    # inspect.signature is too slow for hundreds of kernels at import.
    code = getattr(function, "__code__", None)
    if code is None or is_factory:
        return Kernel(function, (), False, is_factory, may_block=may_block)
    positional = code.co_varnames[: code.co_argcount]
    keyword_only = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    wants_step = bool(positional) and positional[0] == "step"
    return Kernel(function, keyword_only, wants_step, makes_state=makes_state, is_async=is_async)


def _is_from_one_line(*what: str) -> bool:
    """Whether the caller's caller is a line of tfmini's ops, and no other line has registered this before.

    A module of ops whose import was interrupted (Ctrl-C, no more descriptors) runs once more at the next lookup, and
    registers again what it had registered.
    """
    frame = sys._getframe(2)
    line = frame.f_code.co_filename, frame.f_lineno
    return line[0].startswith(_LISTED) and _LINES.setdefault(what, line) == line


def _refuse_second(existing: Any, what: str) -> None:
    if existing is not None:
        raise ValueError(f"{what} is registered already")
