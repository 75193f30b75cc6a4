"""From a node to the Python function that computes it, and how its inputs and outputs are laid out."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tfmini import dtypes, errors
from tfmini.core_types import TensorLike
from tfmini.graph.node import DEFINED_AT, FETCH, SEND, Node
from tfmini.graph.op_def import OpDef, output_dtypes
from tfmini.graph.op_types import KERNELS, OPS, Kernel, OpType, Wait, kernel_for, ops_with
from tfmini.graph.operation import Operation, node_of
from tfmini.shapes import RawShape, compatible_raw, format_raw

if TYPE_CHECKING:
    pass


class OpFacts(NamedTuple):
    """The facts about an op type that the compiler asks for again and again.

    Attributes:
      flat: neither inputs nor outputs are lists, so counts follow from the declaration.
      references: whether some input takes a reference.
      reference_outputs: positions of outputs that are references.
      single: there is one output and the kernel returns it by itself.
      foldable: it may be computed at compile time when its inputs are constants.
    """

    handle: OpType
    kernel: Kernel
    op_def: OpDef
    flat: bool
    references: bool
    reference_outputs: tuple[int, ...]
    single: bool
    foldable: bool


@lru_cache(maxsize=4096)
def op_facts(op_type: str, device_type: str) -> OpFacts | None:
    """The facts of an op type that has a kernel on a device type, or None."""
    handle, kernel = OPS.get(op_type), kernel_for(op_type, device_type)
    if handle is None or kernel is None:
        return None
    op_def = handle.op_def
    return OpFacts(
        handle,
        kernel,
        op_def,
        not any(arg.is_list for arg in (*op_def.inputs, *op_def.outputs)),
        any(arg.is_ref for arg in op_def.inputs),
        # Ops with reference outputs have no list outputs before them.
        tuple(i for i, out in enumerate(op_def.outputs) if out.is_ref),
        len(op_def.outputs) == 1 and not op_def.outputs[0].is_list,
        not (
            op_def.is_stateful
            or kernel.wants_step
            or kernel.makes_state
            or kernel.is_async
            or "resources" in kernel.bound
            or any(arg.is_ref or arg.dtype is dtypes.resource for arg in op_def.inputs)  # it may change what they name
            or any(arg.dtype is dtypes.variant for arg in op_def.outputs)  # nothing bounds what such a value holds
        ),
    )


def make_callable(kernel: Kernel, node: Node, resources: Any = None) -> Callable[..., Any]:
    """The function that computes a node: its kernel with the attrs bound."""
    if kernel.is_factory:
        return kernel.function(node)  # type: ignore[no-any-return]
    bound = bound_arguments(kernel, node, resources)
    if not bound:
        return kernel.function
    function = kernel.function
    if isinstance(function, FunctionType):
        return _with_defaults(function, bound)

    def call(*args: object) -> Any:
        return function(*args, **bound)

    return call


def _with_defaults(function: FunctionType, keywords: dict[str, Any]) -> Callable[..., Any]:
    """A copy of a function with other defaults of its keyword-only arguments: to call it costs no more."""
    copy = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__ = {**(function.__kwdefaults__ or {}), **keywords}
    return copy


def bound_arguments(kernel: Kernel, node: Node, resources: Any = None) -> dict[str, Any]:
    """The keyword-only arguments that a kernel asks for: attrs, ``node``, ``resources``."""
    bound: dict[str, Any] = {}
    for name in kernel.bound:
        if name == "node":
            bound[name] = node
        elif name == "resources":
            bound[name] = resources
        elif name in node.attrs:
            bound[name] = node.attrs[name]
        else:
            definition = OPS[node.op].op_def.attrs.get(name)
            if definition is None or not definition.has_default:
                raise errors.InvalidArgumentError.of(f"node {node.name} ({node.op}) has no attr '{name}'")
            bound[name] = definition.default
    return bound


def list_lengths(op_def: OpDef, node: Node) -> list[int | None]:
    """Per declared input, the number of tensors of a list input, or None for a single one."""
    found: list[int | None] = []
    for arg in op_def.inputs:
        if arg.number_attr is not None:
            found.append(node.attrs[arg.number_attr])
        elif arg.type_list_attr is not None:
            found.append(len(node.attrs[arg.type_list_attr]))
        else:
            found.append(None)
    return found


def grouped(lengths: list[int | None], flat: list[Any]) -> list[Any]:
    """Flat input values with those of list inputs gathered into lists."""
    found: list[Any] = []
    position = 0
    for count in lengths:
        if count is None:
            found.append(flat[position])
            position += 1
        else:
            found.append(flat[position : position + count])
            position += count
    return found


def takes_reference(op_def: OpDef, node: Node) -> list[bool]:
    """Per flat input, whether the op takes a variable's reference itself instead of its value."""
    flat: list[bool] = []
    for arg, count in zip(op_def.inputs, list_lengths(op_def, node)):
        flat.extend([arg.is_ref] * (1 if count is None else count))
    return flat


def output_count(op_def: OpDef, node: Node) -> int:
    """The number of flat outputs of a node."""
    count = 0
    for out in op_def.outputs:
        if out.number_attr is not None:
            count += node.attrs[out.number_attr]
        elif out.type_list_attr is not None:
            count += len(node.attrs[out.type_list_attr])
        else:
            count += 1
    return count


# ---- Whether kernels return what their ops declare: a check for tests and for writers of ops -----------------------
# With ``TFMINI_CHECK_KERNELS=1`` every kernel is wrapped when a program is compiled, and the number
# of its results, their dtypes and their shapes (as far as the client's graph knows them) are
# compared with the declaration. Without it no program contains a trace of this: a kernel that is
# wrong then gives wrong numbers, at full speed.

CHECK_ENV = "TFMINI_CHECK_KERNELS"
ENABLED = os.environ.get(CHECK_ENV) == "1"
_SHAPES = "_checked_shapes"
_HAND_ON = ops_with("hands_on")
STRETCH = "stretch"
"""The attr of a node that stands for several (`stretches.Stretch`)."""
UPDATES = "_updates"
"""The attr of such a node that names the updates in it, as `graph.omission` defines them."""
# Values of these types are objects of the runtime.
_OPAQUE = frozenset({dtypes.resource, dtypes.variant})


def are_checked() -> bool:
    """Whether results are compared with declarations in the programs that are compiled now."""
    return ENABLED


def node_with_shapes(operation: Operation) -> Node:
    """`node_of`, with the shapes that the client knows for the worker to check."""
    node = node_of(operation)
    shapes = [tensor.raw_shape for tensor in operation.outputs]
    return node.replace(attrs={**node.attrs, _SHAPES: shapes})


def checked(function: Callable[..., Any], kernel: Kernel, node: Node) -> Callable[..., Any]:
    """The function of a kernel, which raises an error for a result that ``node`` does not declare."""
    if kernel.makes_state or STRETCH in node.attrs or node.op in _HAND_ON:  # the latter may give a device's arrays
        return function
    check = ResultCheck(node)

    def call(*args: Any) -> Any:
        try:
            return function(*args)
        except TypeError as error:
            # None of the kernel's own lines was reached, and Python's functions take values of all types.
            trace = error.__traceback__
            if trace is not None and trace.tb_next is None and hasattr(function, "__code__"):
                error.args = (f"{error} at {kernel_site(node.op)}",)
            raise

    if kernel.is_async:
        return lambda wait, *args: call(_CheckedWait(wait, check), *args)
    return lambda *args: check(call(*args))


def _has_other_rules(value: Any) -> bool:
    """Whether an array computes otherwise: a product of matrices, say, is no product of elements."""
    # `np.ma` would be imported for the question, and takes 1.2 MB. No value is of it before somebody has done so.
    return isinstance(value, np.matrix) or "numpy.ma" in sys.modules and isinstance(value, np.ma.MaskedArray)


class ResultCheck:
    """Compares the result of a kernel with the declaration of its node, and returns it.

    Raises:
      InternalError: naming the op and where its kernel stands.
    """

    def __init__(self, node: Node, shapes: Sequence[RawShape] | None = None) -> None:
        op_def = OPS[node.op].op_def
        self.node = node
        self._dtypes = output_dtypes(op_def, node.attrs)
        self._shapes = node.attrs.get(_SHAPES) if shapes is None else shapes
        self._names = [f"'{out.name}'" for out in op_def.outputs]
        self._single = len(op_def.outputs) == 1 and not op_def.outputs[0].is_list

    def __call__(self, result: Any) -> Any:
        if not self._dtypes:
            return result
        values = (result,) if self._single else result
        if type(values) not in (tuple, list):
            raise self._wrong(f"one {type(values).__name__} instead of a tuple of {len(self._dtypes)} outputs")
        if len(values) != len(self._dtypes):
            raise self._wrong(f"{len(values)} outputs instead of {len(self._dtypes)}")
        for index, (value, dtype) in enumerate(zip(values, self._dtypes)):
            if dtype.base_dtype not in _OPAQUE and not dtype._is_ref_dtype:
                self._check(index, value, dtype)
        return result

    def _check(self, index: int, value: TensorLike, dtype: dtypes.DType) -> None:
        what = self._names[index] if len(self._names) == len(self._dtypes) else str(index)
        if dtype is dtypes.string and type(value) is bytes:
            found: Any = dtype.numpy
        elif isinstance(value, (np.ndarray, np.generic)) and not _has_other_rules(value):
            found = value.dtype
        else:
            raise self._wrong(f"{type(value).__name__} for output {what}: an array or a numpy scalar is wanted")
        if found != dtype.numpy:
            raise self._wrong(f"{found} for output {what}, which is declared as {dtype.name}")
        if dtype is dtypes.string and type(value) is not bytes:
            odd = next((type(item) for item in np.ravel(value) if not isinstance(item, bytes)), None)
            if odd is not None:
                raise self._wrong(f"a {odd.__name__} in output {what}, whose elements are bytes")
        shape = np.shape(value)
        expected = None if self._shapes is None or index >= len(self._shapes) else self._shapes[index]
        if not compatible_raw(expected, shape):
            raise self._wrong(
                f"shape {format_raw(shape)} for output {what}, where the graph has {format_raw(expected)}"
            )

    def _wrong(self, what: str) -> errors.InternalError:
        return errors.InternalError.of(f"The kernel of {self.node.op} at {kernel_site(self.node.op)} returned {what}.")


def kernel_site(op_type: str) -> str:
    """``file:line`` of an op's kernel, or of its declaration when the kernel has no line."""
    kernel = next((k for (name, _), k in tuple(KERNELS.items()) if name == op_type), None)
    code = getattr(kernel.function, "__code__", None) if kernel is not None else None
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else OPS[op_type].site


class _CheckedWait:
    """A `graph.op_types.Wait` whose answer is checked."""

    __slots__ = ("_wait", "_check")

    def __init__(self, wait: Any, check: ResultCheck) -> None:
        self._wait = wait
        self._check = check

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wait, name)

    def done(self, result: Any = None) -> bool:
        try:
            self._check(result)
        except errors.InternalError as error:
            return bool(self._wait.fail(error))
        return bool(self._wait.done(result))


# ---- Turns exceptions of kernels into TensorFlow's errors, which name the node, the device and the task ------------

# The key in a program's namespace of: file name of generated code -> the node that each line computes.
NODE_LINES = "node_lines"
# numpy's message about two arrays that do not fit each other.
_BROADCAST = re.compile(r"operands could not be broadcast together with shapes \(([\d,]*)\) \(([\d,]*)\) ?$")


def failing_node(error: BaseException) -> Node | None:
    """The node whose line of generated code raised, or None; in a loop's function, the node inside."""
    trace, found = error.__traceback__, None
    while trace is not None:
        lines = trace.tb_frame.f_globals.get(NODE_LINES, {}).get(trace.tb_frame.f_code.co_filename)
        if lines is not None and trace.tb_lineno < len(lines):
            found = lines[trace.tb_lineno] or found
        trace = trace.tb_next
    return found


def not_reached(error: BaseException, names: Iterable[str]) -> tuple[set[str], set[str]]:
    """Of the nodes of a segment whose generated code raised: those whose line had been run, and those not reached.

    The node that raised is in neither, nor is one of another block of the segment.
    """
    trace = error.__traceback__
    while trace is not None:
        lines = trace.tb_frame.f_globals.get(NODE_LINES, {}).get(trace.tb_frame.f_code.co_filename)
        if lines is not None:
            places: dict[str, list[int]] = {}
            for number, node in enumerate(lines):
                if node is not None:
                    places.setdefault(node.name, []).append(number)
            known = [(name, places[name]) for name in names if name in places]
            done = {name for name, found in known if found[-1] < trace.tb_lineno}
            return done, {name for name, found in known if found[0] > trace.tb_lineno}
        trace = trace.tb_next
    return set(), set()


def kernel_error(error: Exception, task: str, node: Node | None = None) -> errors.OpError:
    """Turns a kernel's exception into TensorFlow's error with the node named (default: of the line that raised)."""
    node = node or failing_node(error)
    found = errors.of_exception(error)
    if node is not None and STRETCH in node.attrs and found.node_name:  # it says itself which of its nodes failed
        node = next((part for part in node.attrs[STRETCH].nodes if part.name == found.node_name), node)
    return _named(found.error_code, _in_words(found.message), node, task)


def node_error(error: errors.OpError, node: Node, task: str) -> errors.OpError:
    """The failure of a node that answered later."""
    return _named(error.error_code, error.message, node, task, error.derived)


@contextlib.contextmanager
def named_errors(node: Node) -> Iterator[None]:
    """Names the node in errors that occur while its kernel is made, before any step runs."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whatever a kernel raises belongs to its node
        raise kernel_error(error, "", node) from (None if isinstance(error, errors.OpError) else error)


def _in_words(message: str) -> str:
    match = _BROADCAST.match(message)
    if match is None:
        return message
    first, second = (shape.rstrip(",") for shape in match.groups())
    return f"Incompatible shapes: [{first}] vs. [{second}]"


def _named(code: int, message: str, node: Node | None, task: str, derived: bool = False) -> errors.OpError:
    name = "" if node is None else node.name
    if node is not None and node.op in (SEND, FETCH):
        name = node.inputs[0][0]  # a value read in order to be sent: the fault is that of its producer
    if node is not None and "[[" not in message:
        place = node.attrs.get(DEFINED_AT)  # of a node inside a function, which no client's graph contains
        tag = f"{{{{node {name}}}}}" if place is None else f"node {name} (defined at {place.decode()}) "
        message = f"{message}\n\t [[{tag}]]"
    device = node.device if node is not None else ""
    return errors.from_code(code, message, node_name=name, device=device, task=task, derived=derived)


def dead_fetch(index: int) -> errors.OpError:
    """The error for a fetched value in a branch that was not taken."""
    return errors.InvalidArgumentError.of(
        f"Retval[{index}] does not have value: it lies in a branch that this step did not take."
    )


# ---- Kernels that may block: Python functions of the user, which may wait for one another --------------------------
# A segment runs its kernels one after the other, so two functions that wait for each other would wait
# for ever, and one that takes its time would hold up the thread that answers a server's peers. So on a
# server, and where a program has several, each begins like an op that answers later and runs in a
# thread of its own. A local program with a single one calls it in the segment, which saves a hand-off.

FUNCTION_RETURNS = "a Python function to return"
"""The cause of the wait for such a kernel."""


def several_may_block(nodes: Iterable[Node], device_type: str) -> bool:
    """Whether two nodes or more call code that may wait for another of them."""
    facts = (op_facts(node.op, device_type) for node in nodes)
    return sum(known is not None and known.kernel.may_block for known in facts) > 1


def in_own_thread(kernel: Callable[..., Any]) -> Callable[..., None]:
    """The async form of a kernel: it begins a thread, which answers.

    A step that ends early does not wait for the function, which nothing can interrupt.
    """

    def begin(wait: Wait, *values: Any) -> None:
        if wait.on_cancel(FUNCTION_RETURNS, _let_it_run):
            threading.Thread(target=_answer, args=(wait, kernel, values), name="tfmini-py-func", daemon=True).start()

    return begin


def _let_it_run() -> None:
    """The function goes on; its result is ignored."""


def _answer(wait: Wait, kernel: Callable[..., Any], values: tuple[Any, ...]) -> None:
    try:
        with np.errstate(all="ignore"):
            result = kernel(*values)
    except errors.OpError as error:
        wait.fail(error)
    except BaseException as error:  # noqa: BLE001 - even SystemExit: in this thread it would only lose the answer
        wait.fail(errors.UnknownError.of(f"{type(error).__name__}: {error}"))
    else:
        wait.done(result)
