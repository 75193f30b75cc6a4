"""`Operation` and `Tensor`: a client's handles to a node and to its k-th output."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tfmini import dtypes
from tfmini.errors import InvalidArgumentError, OperatorNotAllowedInGraphError, OutOfRangeError
from tfmini.graph.object_reference import ObjectReference
from tfmini.shapes import RawShape, TensorShape, as_raw, compatible_raw, format_raw, merge_raw

if TYPE_CHECKING:
    from tfmini.graph.graph import Graph
    from tfmini.graph.op_def import OpDef
    from tfmini.graph.registry import OpHandle

_STACK_DEPTH = 20
_HOME = __file__.rsplit("/", 2)[0]
# What runs a script by another program: `python -m`, `tfmini run`.
_BETWEEN = "/absl/app.py"  # `tf.app.run`, where absl is installed
_LAUNCHERS = ("<frozen runpy>", "/runpy.py", "/tfmini/tools/script_run.py")


def capture_stack() -> tuple[Any, ...]:
    """The callers' (code, instruction offset) pairs, innermost first.

    Line numbers are worked out only when somebody asks: this runs for every op built.
    """
    frames: list[Any] = []
    frame = sys._getframe(2)
    for _ in range(_STACK_DEPTH):
        frames.append(frame.f_code)
        frames.append(frame.f_lasti)
        frame = frame.f_back  # type: ignore[assignment]
        if frame is None:
            break
    return tuple(frames)


def line_of(code: Any, lasti: int) -> int:
    """The source line of an instruction offset."""
    line: int = code.co_firstlineno
    for start, end, number in code.co_lines():
        if start <= lasti < end:
            return int(number or line)
        line = int(number or line)
    return line


class Operation:
    """A node of a `Graph` (``tf.Operation``). Made by op functions, never directly.

    ``attrs`` holds every attr as a plain value: DType, int, float, bool, bytes, raw shape
    tuple, numpy array, or a list of those.
    """

    __slots__ = (
        "graph", "_id", "_name", "type", "handle", "attrs", "_inputs", "_control_inputs", "_outputs",
        "_device", "_stack", "_control_flow_context", "_original_op", "_dependents", "__weakref__",
    )  # fmt: skip

    def __init__(self, graph: Graph, handle: OpHandle, name: str, inputs: list[Tensor], attrs: dict[str, Any]) -> None:
        self.graph = graph
        self.handle = handle
        self.type = handle.name
        self._name = name
        self._inputs = inputs
        self.attrs = attrs
        self._control_inputs: list[Operation] = []
        self._outputs: list[Tensor] = []
        self._device = ""
        self._id = -1
        self._stack: tuple[Any, ...] = ()
        self._control_flow_context: Any = None
        self._original_op: Operation | None = None
        self._dependents: list[Operation] | None = None

    @property
    def name(self) -> str:
        """The unique name within the graph, with its name scopes."""
        return self._name

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The data inputs, in order."""
        return tuple(self._inputs)

    @property
    def outputs(self) -> list[Tensor]:
        """The output tensors."""
        return self._outputs

    @property
    def control_inputs(self) -> list[Operation]:
        """The operations that must finish before this one starts."""
        return list(self._control_inputs)

    @property
    def _control_outputs(self) -> list[Operation]:
        return list(self._dependents or ())

    @property
    def device(self) -> str:
        """The *requested* device, often partial; the runtime knows the assigned one."""
        return self._device

    @property
    def op_def(self) -> OpDef:
        """The declaration of the op type."""
        return self.handle.op_def

    @property
    def traceback(self) -> list[tuple[str, int, str, str]]:
        """Where the op was made, outermost call first: (file, line, function, text)."""
        import linecache

        found = [(c.co_filename, line_of(c, i), c.co_name) for c, i in zip(self._stack[::2], self._stack[1::2])]
        return [(f, n, fn, linecache.getline(f, n).strip()) for f, n, fn in reversed(found)]

    def creation_stack(self) -> list[tuple[str, int, str]]:
        """The user's part of the traceback, outermost first: (file, line, function).

        It begins with the script: neither tfmini nor what launched the script is in it.
        """
        found = []
        for code, lasti in zip(self._stack[::2], self._stack[1::2]):
            file = code.co_filename
            if file.endswith(_LAUNCHERS):
                break  # what lies above started the user's script
            if _HOME not in file and not file.startswith("<frozen ") and not file.endswith(_BETWEEN):
                found.append((file, line_of(code, lasti), code.co_name))
        return found[::-1]

    def creation_site(self) -> tuple[str, int]:
        """File and line of the user's call that made this op."""
        stack = self.creation_stack()
        return (stack[-1][0], stack[-1][1]) if stack else ("<unknown>", 0)

    def values(self) -> tuple[Tensor, ...]:
        """The outputs as a tuple."""
        return tuple(self._outputs)

    def colocation_groups(self) -> list[bytes]:
        """The colocation groups of this op; its own when it names none."""
        named = [g for g in self.attrs.get("_class", ()) if g.startswith(b"loc:@")]
        return named or [b"loc:@" + self._name.encode()]

    def get_attr(self, name: str) -> Any:
        """The value of an attr: shapes and tensors as protos, everything else as Python values.

        Raises:
          ValueError: when the op has no such attr.
        """
        if name not in self.attrs:
            raise ValueError(f"Operation '{self._name}' has no attr named '{name}'.")
        value = self.attrs[name]
        definition = self.handle.op_def.attrs.get(name)
        return _public_attr(definition.kind if definition else "", value)

    def run(self, feed_dict: Any = None, session: Any = None) -> None:
        """Runs this operation in ``session`` or the default session."""
        self.graph._session_hook("run", self, feed_dict, session)

    def _set_device(self, device: Any) -> None:
        self._device = device if isinstance(device, str) else device.to_string()
        self.graph._note_mutation(self, "setting the device")

    def _set_attr(self, name: str, value: Any) -> None:
        from tfmini.graph.attr_values import from_proto

        self.attrs[name] = from_proto(value) if hasattr(value, "WhichOneof") else value
        self.graph._note_mutation(self, f"setting attribute '{name}'")

    def _clear_attr(self, name: str) -> None:
        self.attrs.pop(name, None)

    def _add_control_input(self, op: Operation) -> None:
        self._add_control_inputs([op])

    def _add_control_inputs(self, ops: list[Operation]) -> None:
        for op in ops:
            if not isinstance(op, Operation):
                raise TypeError(f"op must be an Operation: {op}")
            if op not in self._control_inputs:
                self._control_inputs.append(op)
                op._add_dependent(self)
        self.graph._note_mutation(self, "adding control inputs")

    def _remove_all_control_inputs(self) -> None:
        for op in self._control_inputs:
            if op._dependents and self in op._dependents:
                op._dependents.remove(self)
        self._control_inputs = []

    def _add_dependent(self, op: Operation) -> None:
        if self._dependents is None:
            self._dependents = [op]
        else:
            self._dependents.append(op)

    def _update_input(self, index: int, tensor: Tensor) -> None:
        self._check_update(index, tensor)
        old = self._inputs[index]
        self._inputs[index] = tensor
        if old._consumers and self in old._consumers and old not in self._inputs:
            old._consumers.remove(self)
        tensor._add_consumer(self)
        self.graph._note_mutation(self, f"updating input tensor {index}")

    def _check_update(self, index: int, tensor: Tensor) -> None:
        """Refuses an input that is not there, or a tensor that cannot take its place."""
        if tensor.op.graph is not self.graph:
            raise ValueError(f"{tensor} must be from the same graph as {self}.")
        if not 0 <= index < len(self._inputs):
            raise OutOfRangeError(
                None, None,
                f"Cannot update edge. Input index [{index}] is greater than the number of total inputs"
                f" [{len(self._inputs)}].",
            )  # fmt: skip
        old = self._inputs[index]._shape
        if not compatible_raw(old, tensor._shape):
            raise InvalidArgumentError(
                None, None,
                f"Cannot update edge, incompatible shapes: {format_raw(tensor._shape)} and {format_raw(old)}.",
            )  # fmt: skip

    def _get_control_flow_context(self) -> Any:
        return self._control_flow_context

    def _set_control_flow_context(self, context: Any) -> None:
        self._control_flow_context = context

    @property
    def node_def(self) -> Any:
        """The node as a NodeDef proto."""
        from tfmini.graph.graph_def import operation_to_node_def

        return operation_to_node_def(self)

    @property
    def _node_def(self) -> Any:
        return self.node_def

    def __str__(self) -> str:
        return str(self.node_def)

    def __repr__(self) -> str:
        return f"<tf.Operation '{self._name}' type={self.type}>"

    def __lt__(self, other: Operation) -> bool:
        return self._id < other._id


def _public_attr(kind: str, value: Any) -> Any:
    if kind == "shape" or kind == "tensor" or kind == "list(shape)":
        from tfmini.graph.attr_values import shape_proto, tensor_proto

        if kind == "list(shape)":
            return [shape_proto(s) for s in value]
        return shape_proto(value) if kind == "shape" else tensor_proto(value)
    return list(value) if isinstance(value, (list, tuple)) else value


class Tensor:
    """The ``value_index``-th output of an operation (``tf.Tensor``): a symbol, not a value."""

    __slots__ = ("op", "_index", "_dtype", "_shape", "_consumers", "_handle_data", "__weakref__")

    if TYPE_CHECKING:
        # `ops.operators` and `ops.array_slicing` attach the operators once the ops exist.
        def __add__(self, other: Any) -> Any: ...
        def __radd__(self, other: Any) -> Any: ...
        def __sub__(self, other: Any) -> Any: ...
        def __rsub__(self, other: Any) -> Any: ...
        def __mul__(self, other: Any) -> Any: ...
        def __rmul__(self, other: Any) -> Any: ...
        def __truediv__(self, other: Any) -> Any: ...
        def __rtruediv__(self, other: Any) -> Any: ...
        def __floordiv__(self, other: Any) -> Any: ...
        def __rfloordiv__(self, other: Any) -> Any: ...
        def __mod__(self, other: Any) -> Any: ...
        def __rmod__(self, other: Any) -> Any: ...
        def __pow__(self, other: Any) -> Any: ...
        def __rpow__(self, other: Any) -> Any: ...
        def __matmul__(self, other: Any) -> Any: ...
        def __rmatmul__(self, other: Any) -> Any: ...
        def __and__(self, other: Any) -> Any: ...
        def __rand__(self, other: Any) -> Any: ...
        def __or__(self, other: Any) -> Any: ...
        def __ror__(self, other: Any) -> Any: ...
        def __xor__(self, other: Any) -> Any: ...
        def __rxor__(self, other: Any) -> Any: ...
        def __lt__(self, other: Any) -> Any: ...
        def __le__(self, other: Any) -> Any: ...
        def __gt__(self, other: Any) -> Any: ...
        def __ge__(self, other: Any) -> Any: ...
        def __neg__(self) -> Any: ...
        def __invert__(self) -> Any: ...
        def __abs__(self) -> Any: ...
        def __getitem__(self, item: Any) -> Any: ...

    # numpy must not try to treat a symbol as a sequence in ``ndarray + tensor``.
    __array_priority__ = 100
    OVERLOADABLE_OPERATORS = frozenset(
        f"__{n}__"
        for n in [
            "add", "radd", "sub", "rsub", "mul", "rmul", "div", "rdiv", "truediv", "rtruediv", "floordiv", "rfloordiv",
            "mod", "rmod", "lt", "le", "gt", "ge", "ne", "eq", "and", "rand", "or", "ror", "xor", "rxor", "getitem",
            "pow", "rpow", "invert", "neg", "abs", "matmul", "rmatmul",
        ]  # fmt: skip
    )

    def __init__(self, op: Operation, value_index: int, dtype: Any, shape: RawShape = None) -> None:
        self.op = op
        self._index = value_index
        self._dtype: dtypes.DType = dtype
        self._shape = shape
        self._consumers: list[Operation] | None = None
        # For resource handles: (dtype, raw shape) of the variable behind the handle.
        self._handle_data: tuple[dtypes.DType, RawShape] | None = None

    @property
    def dtype(self) -> dtypes.DType:
        """The element type; a ``_ref`` type for the output of a ref variable."""
        return self._dtype

    @property
    def graph(self) -> Graph:
        return self.op.graph

    @property
    def name(self) -> str:
        """``"op_name:index"``."""
        return f"{self.op._name}:{self._index}"

    @property
    def device(self) -> str:
        """The requested device of the op that computes this tensor."""
        return self.op._device

    @property
    def shape(self) -> TensorShape:
        """The static shape, as far as it is known."""
        return TensorShape.from_raw(self._shape)

    @property
    def value_index(self) -> int:
        """The position among the outputs of ``op``."""
        return self._index

    def get_shape(self) -> TensorShape:
        """Same as `shape`."""
        return TensorShape.from_raw(self._shape)

    def set_shape(self, shape: Any) -> None:
        """Adds knowledge about the static shape.

        Raises:
          ValueError: when it contradicts what is known.
        """
        raw = as_raw(shape)
        try:
            self._shape = merge_raw(self._shape, raw)
        except ValueError as error:
            raise ValueError(f"{error}. Shapes are {self.shape} and {TensorShape.from_raw(raw)}.") from None

    def consumers(self) -> list[Operation]:
        """The operations that take this tensor as input, in order of creation."""
        return [op for op in self._consumers or () for tensor in op._inputs if tensor is self]

    def eval(self, feed_dict: Any = None, session: Any = None) -> Any:
        """The value of this tensor in ``session`` or the default session."""
        return self.op.graph._session_hook("eval", self, feed_dict, session)

    def experimental_ref(self) -> ObjectReference:
        """A hashable reference to this very tensor."""
        return ObjectReference(self)

    def _shape_tuple(self) -> RawShape:
        return self._shape

    def _as_node_def_input(self) -> str:
        """How a NodeDef names this tensor as an input."""
        return f"{self.op.name}:{self._index}" if self._index else self.op.name

    def _add_consumer(self, op: Operation) -> None:
        if not self._consumers:
            self._consumers = [op]
        elif self._consumers[-1] is not op:
            self._consumers.append(op)

    def _as_tf_output(self) -> tuple[str, int]:
        return self.op._name, self._index

    def _shape_as_list(self) -> list[int | None] | None:
        return None if self._shape is None else list(self._shape)

    def _rank(self) -> int | None:
        return None if self._shape is None else len(self._shape)

    def __str__(self) -> str:
        shape = "" if self._shape is None else f", shape={self.shape}"
        device = f", device={self.op._device}" if self.op._device else ""
        return f'Tensor("{self.name}"{shape}, dtype={self._dtype.name}{device})'

    def __repr__(self) -> str:
        return f"<tf.Tensor '{self.name}' shape={self.shape} dtype={self._dtype.name}>"

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __copy__(self) -> Tensor:
        return self

    def __iter__(self) -> Iterator[Any]:
        raise OperatorNotAllowedInGraphError(
            "iterating over a `tf.Tensor` is not allowed: it is a symbol whose values exist only while a session runs."
            " Use tf.unstack, or tf.map_fn/tf.while_loop."
        )

    def __len__(self) -> int:
        raise TypeError(f"len is not well defined for symbolic Tensors. ({self.name}) Please call `x.shape` instead.")

    def __bool__(self) -> bool:
        raise OperatorNotAllowedInGraphError(
            "using a `tf.Tensor` as a Python `bool` is not allowed: its value is known only while a session runs."
            " Use `if t is not None:` to test whether a tensor is defined, and tf.cond to branch on its value."
        )

    __nonzero__ = __bool__

    def __array__(self, *_: Any) -> Any:
        raise NotImplementedError(
            f"Cannot convert a symbolic Tensor ({self.name}) to a numpy array: run it in a session first."
        )

    @staticmethod
    def _override_operator(operator: str, function: Any) -> None:
        if operator not in Tensor.OVERLOADABLE_OPERATORS:
            raise ValueError(f"Overriding {operator} is disallowed.")
        setattr(Tensor, operator, function)


def op_of(op_or_tensor: Any) -> Operation | None:
    """The operation of a tensor, variable or operation; None for None."""
    if op_or_tensor is None or isinstance(op_or_tensor, Operation):
        return op_or_tensor
    return op_or_tensor.op  # type: ignore[no-any-return]
