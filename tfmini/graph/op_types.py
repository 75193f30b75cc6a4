"""The types of ops as values: declarations with the rules that families attach to them, and the tables of all.

`tfmini.graph.registry` says how a family declares an op. The graph reads `OPS` and the shape functions, `gradients`
reads `GRADIENTS`, the worker reads `KERNELS`. A second registration raises an error.

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
attached with ``into`` says how (see `OpType.into`); a kernel without one is called as always.

Import
------
tfmini's own ops are declared by the modules of two packages. Whatever looks for an op that `OPS` does not have yet
imports all of them (see `load_ops`). None of these modules may look for an op while it is being imported.
"""

from __future__ import annotations

import pkgutil
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal, Protocol, TypedDict, TypeVar

from tfmini import errors
from tfmini.graph.op_def import CallPlan, OpDef, parse_op_def
from tfmini.shapes import RawShape

F = TypeVar("F", bound=Callable[..., Any])
# Operation -> one raw shape per output, or these shapes where they are always the same.
ShapeRule = Callable[[Any], Sequence[RawShape]] | Sequence[RawShape]
S = TypeVar("S", bound=ShapeRule)
K = TypeVar("K")

INTO_FROM = 1 << 20
"""Bytes of a result that can be computed where the connection wants it. Smaller ones are still in the cache when they
are copied, those of a message into one block."""


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


class OpType:
    """An op type with its rules.

    Attributes:
      traits: see `tfmini.graph.op_types`.
      plan: what a call needs of the declaration; made at the first call.
      shapes_checked: whether `Graph` has looked at a result of the shape function.
    """

    __slots__ = ("name", "text", "_flags", "_op_def", "traits", "shape_function", "inline_expression", "into_rule",
                 "_plan", "shapes_checked")  # fmt: skip

    def __init__(self, text: str, flags: Mapping[str, bool], traits: Mapping[str, Any] | None = None) -> None:
        self.name = text.partition("(")[0].strip()
        self.text = text
        self._flags = flags
        self._op_def: OpDef | None = None
        self.traits: dict[str, Any] = {trait: value for trait, value in (traits or {}).items() if value}
        self.shape_function: Callable[[Any], list[Any]] | None = None
        self.inline_expression: Callable[[Any], str | None] | None = None
        self.into_rule: Callable[[Any], Callable[..., Any] | None] | None = None
        self._plan: CallPlan | None = None
        self.shapes_checked = False

    @property
    def op_def(self) -> OpDef:
        """The parsed declaration. It is parsed at first use, so that import stays fast."""
        if self._op_def is None:
            try:
                self._op_def = parse_op_def(self.text, **self._flags)
            except (ValueError, TypeError) as error:
                raise ValueError(f"declaration of {self.name}: {error}") from None
        return self._op_def

    @property
    def plan(self) -> CallPlan:
        if self._plan is None:
            self._plan = CallPlan(self.op_def)
        return self._plan

    @property
    def site(self) -> str:
        """The file and line of a rule of the op: its CPU kernel, its shape function or its gradient."""
        kernel = KERNELS.get((self.name, "CPU"))
        for rule in (kernel and kernel.function, self.shape_function, GRADIENTS.get(self.name)):
            code = getattr(rule, "__code__", None)
            if code is not None:
                return f"{code.co_filename}:{code.co_firstlineno}"
        return "an unknown place"

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def shape(self, rule: S) -> S:
        """Attaches the shape function, or the shapes of the outputs where they are always the same."""
        _refuse_second(self.shape_function, f"shape function of {self.name}")
        shapes: Any = rule
        self.shape_function = shapes if callable(shapes) else lambda node: shapes
        return rule

    def gradient(self, function: F) -> F:
        """Attaches the gradient: (Operation, *gradients of outputs) -> gradients of inputs."""
        register_gradient(self.name, function)
        return function

    def not_differentiable(self) -> None:
        """Declares that the op has no gradient: backpropagation stops here without an error."""
        register_gradient(self.name, None)

    def without_gradient(self) -> None:
        """Declares that nobody has written its gradient, as in TensorFlow: backpropagation through it is an error."""
        WITHOUT_GRADIENT.add(self.name)

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
            if not device_type.isupper():
                raise ValueError(f"a kernel of {self.name} for '{device_type}': types of devices are as CPU and GPU")
            key = (self.name, device_type)
            _refuse_second(KERNELS.get(key), f"{device_type} kernel of {self.name}")
            KERNELS[key] = _describe_kernel(function, is_factory, makes_state, is_async, may_block)
            if is_async or may_block:
                self.traits["waits"] = True
            return function

        return attach


class _Ops(dict[str, OpType]):
    """Op type -> handle. A lookup that finds nothing imports tfmini's ops; iteration sees those that are imported."""

    def __missing__(self, name: str) -> OpType:
        load_ops()
        if not dict.__contains__(self, name):
            raise KeyError(name)
        return self[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Returns the handle of an op, ``default`` if there is no such op."""
        handle = dict.get(self, name)
        if handle is None and not _import.is_over:
            load_ops()
            handle = dict.get(self, name)
        return default if handle is None else handle

    def __contains__(self, name: object) -> bool:
        return self.get(name) is not None  # type: ignore[arg-type]


class _Import:
    """How far the import of tfmini's ops has come.

    Attributes:
      lock: held by the thread that imports them.
      declared: what the modules have declared that are being imported. It enters `OPS` when they are complete, since
        another thread may look an op up before its kernel is attached.
      is_under_way: whether the thread that has the lock imports some.
      has_failed: whether an import has been interrupted (Ctrl-C, no more descriptors) and not been repeated yet. The
        modules that had begun run once more then, and register again what they had registered.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.declared: dict[str, OpType] = {}
        self.is_under_way = False
        self.has_failed = False
        self.is_over = False


_OPS_PACKAGE, _DATA_PACKAGE = "tfmini.ops", "tfmini.data"  # whose modules declare tfmini's ops
_import = _Import()
OPS: dict[str, OpType] = _Ops()
KERNELS: dict[tuple[str, str], Kernel] = {}
# None: not differentiable. Absent: backpropagation through the op is an error, which tfmini's own ops say on purpose.
GRADIENTS: dict[str, Callable[..., Any] | None] = {}
WITHOUT_GRADIENT: set[str] = set()


def load_ops() -> None:
    """Imports the modules that declare tfmini's ops, unless that is done, or waits while another thread does so.

    Raises:
      RuntimeError: one of these modules looks for an op while it is being imported.
    """
    if not _import.is_over:
        import_module(_OPS_PACKAGE)  # which calls `import_ops` for itself
        import_ops(import_module(_DATA_PACKAGE).__name__)
        _import.is_over = True


def import_ops(package: str) -> None:
    """Imports all modules of a package. What they declare enters `OPS` when all of them are complete.

    Modules of lowerings stay out (`graph.lowering`): only devices that compile need them.
    """
    with _declaring():
        for module in pkgutil.walk_packages(sys.modules[package].__path__, f"{package}."):
            if not module.name.endswith(".lowering"):
                import_module(module.name)


@contextmanager
def _declaring() -> Iterator[None]:
    with _import.lock:
        if _import.is_under_way:
            raise RuntimeError("A module of ops looks for an op while it is being imported; do that in a function.")
        _import.is_under_way = True
        try:
            yield
        except BaseException:  # even Ctrl-C: the next lookup repeats the import
            _import.has_failed = True
            raise
        finally:
            _import.is_under_way = False
        OPS.update(_import.declared)
        _import.declared.clear()
        _import.has_failed = False


def declare(made: OpType) -> None:
    """Enters a new op into the table.

    Raises:
      ValueError: there is an op of that name, or the text does not follow the grammar.
    """
    if _OPS_PACKAGE not in sys.modules:  # a program declares an op of its own before it uses one of tfmini's
        import_module(_OPS_PACKAGE)
    first = dict.get(OPS, made.name) or _import.declared.get(made.name)
    if not _import.is_under_way or not made.name.isidentifier():
        made.op_def  # noqa: B018 - reports a mistake at the declaration
    if first is not None and not _import.has_failed:
        raise ValueError(f"op {made.name} is declared already, at {first.site}: {first.text!r}; again: {made.text!r}")
    table = _import.declared if _import.is_under_way else OPS
    table[made.name] = made


def op_names() -> set[str]:
    """Returns the names of all ops."""
    load_ops()
    return {*OPS}


def kernel_for(op_type: str, device_type: str) -> Kernel | None:
    """Returns the kernel of an op on a device type, or None."""
    kernel = KERNELS.get((op_type, device_type))
    if kernel is None and OPS.get(op_type) is not None:  # which imports the ops, if nothing has done so
        kernel = KERNELS.get((op_type, device_type))
    return kernel


def may_wait(op_type: str) -> bool:
    """Whether an op may wait for other steps or tasks. An op that is not declared here may: its task declares it."""
    handle = OPS.get(op_type)
    return handle is None or "waits" in handle.traits


def register_gradient(op_type: str, function: Callable[..., Any] | None) -> None:
    """Registers a gradient function under an op type or an override name.

    Raises:
      KeyError: the name is taken.
    """
    if op_type in GRADIENTS and not _import.has_failed:
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


def _refuse_second(existing: Any, what: str) -> None:
    if existing is not None and not _import.has_failed:
        raise ValueError(f"{what} is registered already")


# ---- Traits of op types: facts about an op that follow neither from its signature nor from its kernels -------------
# A trait stands on the op's declaration, as an argument of `tfmini.graph.registry.op`::
#
#     variable_v2 = op("VariableV2() -> ref: Ref(dtype); …", stateful=True, variable="reference", on_ps=True)
#
# Code elsewhere asks for the ops that have it, and keeps no names of its own::
#
#     VARIABLES = ops_with("variable")
#     REFERENCE_VARIABLES = ops_with("variable", "reference")
#     if node.op in VARIABLES: ...
#
# An op that nothing declares has no trait. Only `op_types.may_wait` answers otherwise for it.


class Traits(TypedDict, total=False):
    """The traits that `op` takes. Absent means no.

    Running:
      waits: it may wait for other steps, other tasks or a function of the user. Every op with an async kernel or
        with one that may block has this trait by itself; a dataset op has it if its elements may come late.
      slow_io: it reads or writes files, for as long as their size takes.
      checks: it has no effect but the error that it may raise, for which a step runs it even if nobody takes its value.
      flow: the part that it plays in conditionals and loops. No kernel runs for it: the compiler turns it into
        Python's own control flow.
      control_only: it computes nothing; only control edges pass through it.
      collective: what the members of its group do together.

    State:
      variable: its output is a variable, by reference or as a resource handle.
      writes: it changes the variable that its first input names. ``assign`` gives it a value even if it has none;
        ``update`` changes its value, ``scatter`` some of its rows; ``optimize`` applies a gradient to it.
      of_variable: it takes the handle of a variable, and neither reads nor changes a number of its value.
      taken_back_by: of an update: the op that gives the variable's value before it, from that after it and its second
        input.
      accumulator: it applies a gradient to a gradient accumulator, or takes the mean of several gradients from it.
      iterates: it takes the next element of an iterator.
      queue: it enqueues elements to the queue that its first input names, or dequeues some.
      keeps: it puts its inputs into state that outlives the step. The state copies what it does not own
        (`ops.waiting_line`).
      checkpoint: it writes or reads a checkpoint.
      copyable: it is stateful, and yet a copy of it in another graph does the same.

    Placement:
      on_ps: `replica_device_setter` puts it on a parameter server.
      meeting: sessions of several tasks meet at its state if it has a ``shared_name``, so all must place it alike.
      hands_on: its kernel keeps or returns values and does not look at their numbers: it serves for all devices.
      placeholder: it has a value only where it is fed; control edges from it are cut with its output.
      shape_only: it reads the shapes of its inputs and not their values.

    Inspection:
      forwards: its output is the ``value`` of its first input (the same tensor, reference or handle; for a variable's
        handle its value), or has the ``elements`` of its first input in another shape or type.
      looks_up: it takes rows of its first input, a variable or its value, by the numbers in its second.
      aggregates: it combines, scales, clips or selects values, as is done to gradients before they are applied.
      distinct: its first output has a row for each different value or number among its inputs, so it usually has at
        most the rows of its first input.
      neutral: the number that, as its second operand, leaves the first as it is; of real numbers also its sign counts.
      not_below_zero: its results are neither negative nor -0.0.
      work: its arithmetic: ``none``, one operation per element of its first ``input``, or the multiply-adds of a
        ``matmul`` or a ``convolution``. Absent: one operation per element of its first output.

    Files:
      hints: attrs that later versions of TensorFlow write and that change no value; an import drops them.

    Python:
      raw_names: what `tf.raw_ops` calls inputs and attrs whose declared name it does not use.
    """

    waits: bool
    slow_io: bool
    checks: bool
    flow: Literal["enter", "exit", "merge", "next_iteration", "switch"]
    control_only: bool
    collective: Literal["all-gather", "all-reduce", "all-to-all", "broadcast", "reduce-scatter"]
    variable: Literal["reference", "resource"]
    writes: Literal["assign", "update", "scatter", "optimize"]
    of_variable: bool
    taken_back_by: str
    accumulator: Literal["apply", "take"]
    iterates: bool
    queue: Literal["enqueue", "dequeue"]
    keeps: bool
    checkpoint: bool
    copyable: bool
    on_ps: bool
    meeting: bool
    hands_on: bool
    placeholder: bool
    shape_only: bool
    forwards: Literal["value", "elements"]
    looks_up: bool
    aggregates: bool
    distinct: bool
    neutral: Literal["one", "zero", "minus_zero"]
    not_below_zero: bool
    work: Literal["none", "input", "matmul", "convolution"]
    hints: tuple[str, ...]
    raw_names: Mapping[str, str]


_found: Callable[[dict[str, OpType], str], OpType | None] = dict.get  # imports nothing


def trait_of(op_type: str, trait: str) -> Any:
    """Returns the value of an op's trait, None where it does not have it."""
    handle = _found(OPS, op_type) or OPS.get(op_type)
    return None if handle is None else handle.traits.get(trait)


class OpsWith(Set[str]):
    """The ops that have a trait with one of some values, or with any value. It asks each declaration once."""

    def __init__(self, trait: str, values: tuple[str, ...]) -> None:
        self._trait, self._values = trait, values
        self._known: dict[object, bool] = {}  # the first step of a large graph asks for an op a hundred thousand times

    def __contains__(self, op_type: object) -> bool:
        known = self._known.get(op_type)
        return self._look_up(op_type) if known is None else known

    def _look_up(self, op_type: object) -> bool:
        handle = OPS.get(op_type)  # type: ignore[call-overload]
        if handle is None:
            return False  # it may be declared later
        value = handle.traits.get(self._trait)
        known = self._known[op_type] = value is not None and (not self._values or value in self._values)
        return known

    def __iter__(self) -> Iterator[str]:
        load_ops()
        return (op_type for op_type in tuple(OPS) if op_type in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        return f"<ops with {self._trait} {' or '.join(self._values)}>"

    @classmethod
    def _from_iterable(cls, found: Iterable[str]) -> frozenset[str]:  # type: ignore[override]
        return frozenset(found)


def ops_with(trait: str, *values: str) -> Set[str]:
    """Returns the ops that have a trait with one of these values; without values, with any.

    Raises:
      KeyError: there is no such trait.
    """
    if trait not in Traits.__annotations__:
        raise KeyError(trait)
    return OpsWith(trait, values)


FLOW_OPS = ops_with("flow")
ENTER_OPS = ops_with("flow", "enter")
EXIT_OPS = ops_with("flow", "exit")
MERGE_OPS = ops_with("flow", "merge")
NEXT_OPS = ops_with("flow", "next_iteration")
SWITCH_OPS = ops_with("flow", "switch")
PLACEHOLDER_OPS = ops_with("placeholder")
VARIABLE_OPS = ops_with("variable")


# ---- What the runtime gives to kernels that ask for it: the running step and the state of the device ---------------


class RunningStep(Protocol):
    """The running step: the first parameter of a kernel that is called ``step``.

    Attributes:
      owner: the worker that runs it.
      run: its part on this worker.
    """

    @property
    def step_id(self) -> int: ...

    @property
    def owner(self) -> Any: ...

    @property
    def run(self) -> Any: ...


class DeviceResources(Protocol):
    """The resource manager of a node's device: the parameter ``resources`` of a kernel.

    Attributes:
      session: part of the names of state that is not shared.
    """

    @property
    def session(self) -> str: ...

    def lookup_or_create(self, container: str | bytes, kind: str, name: str | bytes, create: Callable[[], K]) -> K:
        """Returns the resource of that kind and name, made by ``create`` when it is absent."""
        ...

    def lookup(self, container: str | bytes, kind: str, name: str) -> Any:
        """Returns the resource of that kind and name.

        Raises:
          NotFoundError: the container or the resource does not exist.
        """
        ...

    def delete(self, container: str | bytes, kind: str, name: str) -> bool:
        """Forgets a resource; returns whether there was one."""
        ...


# ---- `Wait`: the object through which an async kernel answers --------------------------------------------------
# An op that cannot always answer at once (a dequeue, a barrier, a collective) has an *async kernel*. The kernel holds
# no thread: it stores its `Wait` and returns. The op or message that makes the answer possible, such as an enqueue,
# calls `done`. The runtime implements this protocol; ops and their tests know nothing else of the runtime.


class Wait(Protocol):
    """One pending answer of one node in one step.

    ``done`` or ``fail`` must be called once, from any thread, possibly before the kernel returns. The step then
    continues later or in the caller's thread. The runtime holds no lock meanwhile, and the caller must hold none of its
    own. After the end of the step both calls have no effect and return False, which matters to a kernel whose result
    must not be lost.

    Attributes:
      step: the context of the running step, the same that kernels with a first parameter ``step`` receive.
    """

    step: RunningStep

    def done(self, result: Any = None) -> bool:
        """Answers with the result: the only output, or a tuple of all outputs. Returns whether the step took it."""
        ...

    def fail(self, error: errors.OpError) -> bool:
        """Ends the step with an error, to which the runtime adds the node's name; returns whether it still waited."""
        ...

    def on_cancel(self, cause: str, cancel: Callable[[], None]) -> bool:
        """Registers the cause of the wait and a function that cancels it.

        Args:
          cause: for messages to people, such as ``an element of queue "jobs" (0 of 1)``.
          cancel: called once if the step ends before ``done`` or ``fail``. It must forget the wait, so that it gets
            no element any more.

        Returns:
          False if the step has ended already. ``cancel`` is not called then, and the kernel must not store the wait.
        """
        ...


class PatientWait(Wait, Protocol):
    """A wait whose thread has nothing else to do. It may block in a function of the kernel until the answer comes."""

    def offer_sleep(self, sleep: Callable[[float], bool]) -> None:
        """Offers a function in which the thread may block.

        Args:
          sleep: blocks for at most the given number of seconds; returns False if the answer will come another way.
        """
        ...


def patient(wait: Wait) -> PatientWait | None:
    """Returns the wait as a `PatientWait` if its thread waits for this answer only, else None."""
    return wait if getattr(wait, "is_patient", False) else None  # type: ignore[return-value]
