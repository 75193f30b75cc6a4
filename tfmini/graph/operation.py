"""`Operation` and `Tensor`: the client's objects for a node and for one of its outputs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from tfmini import dtypes, protos
from tfmini.errors import InvalidArgumentError, OperatorNotAllowedInGraphError, OutOfRangeError
from tfmini.export import export
from tfmini.graph.attr_values import shape_proto, tensor_proto
from tfmini.graph.graph_def import fill_node_def, op_def_proto, plain_attr
from tfmini.graph.node import Node, input_dtypes
from tfmini.graph.op_types import OPS, OpType
from tfmini.graph.scopes import ScopeSite, frames_of, user_frames
from tfmini.memory import collector_at_rest
from tfmini.out_of_scope import Advising
from tfmini.shapes import RawShape, TensorShape, as_raw, compatible_raw, format_raw, merge_raw

if TYPE_CHECKING:
    from tfmini.graph.graph import Graph


class Inputs(tuple[Any, ...]):
    """The inputs of an operation: a tuple whose slices are lists, to which programs add others, as in TensorFlow."""

    __slots__ = ()

    def __getitem__(self, index: Any) -> Any:
        found = tuple.__getitem__(self, index)
        return list(found) if isinstance(index, slice) else found


@export("tf.Operation")
class Operation:
    """A node of a `Graph` (``tf.Operation``). Op functions make operations; user code never does so directly.

    Attributes:
      name: the unique name within the graph, with its name scopes.
      inputs: the data inputs, a tuple of tensors in order.
      outputs: the output tensors, a list.
      attrs: every attr as a plain value: DType, int, float, bool, bytes, raw shape tuple, numpy
        array, or a list of those.
    """

    __slots__ = (
        "graph", "_id", "name", "type", "handle", "attrs", "inputs", "_control_inputs", "outputs", "_device",
        "_stack", "_sites", "_control_flow_context", "_original_op", "_dependents", "__weakref__", "__dict__",
    )  # fmt: skip  # the dictionary, made on first use, is for attributes that libraries set, such as slim's aliases

    def __init__(self, graph: Graph, handle: OpType, name: str, inputs: list[Tensor], attrs: dict[str, Any]) -> None:
        self.graph = graph
        self.handle = handle
        self.type = handle.name
        self.name = name
        self.inputs: tuple[Tensor, ...] = Inputs(inputs)
        self.attrs = attrs
        self._control_inputs: list[Operation] = []
        self.outputs: list[Tensor] = []
        self._device = ""
        self._id = -1
        self._stack: tuple[Any, ...] = ()
        self._sites: tuple[tuple[ScopeSite, ...], tuple[ScopeSite, ...]] = ((), ())
        self._control_flow_context: Any = None
        self._original_op: Operation | None = None
        self._dependents: list[Operation] | None = None

    @property
    def _input_types(self) -> list[dtypes.DType]:
        """The types that the op reads its inputs as: of a variable its value's, unless the op wants a reference."""
        return input_dtypes(node_of(self))

    @property
    def control_inputs(self) -> list[Operation]:
        """The operations that must finish before this one starts."""
        return list(self._control_inputs)

    @property
    def _control_outputs(self) -> list[Operation]:
        return list(self._dependents or ())

    @property
    def device(self) -> str:
        """The *requested* device, often a partial name. Only the runtime knows the assigned one."""
        return self._device

    @property
    def op_def(self) -> Any:
        """The declaration of the op type as an OpDef message; inside of tfmini, ``op.handle.op_def`` has it."""
        return _op_def_message(self.type)

    @property
    def traceback(self) -> list[tuple[str, int, str, str]]:
        """The stack of the call that made the op, outermost first: (file, line, function, text)."""
        import linecache

        return [(f, n, fn, linecache.getline(f, n).strip()) for f, n, fn in reversed(list(frames_of(self._stack)))]

    def creation_stack(self) -> list[tuple[str, int, str]]:
        """Returns the user's part of the traceback, outermost call first: (file, line, function)."""
        return user_frames(self._stack)

    def creation_site(self) -> tuple[str, int]:
        """Returns the file and line of the user's call that made this op."""
        stack = self.creation_stack()
        return (stack[-1][0], stack[-1][1]) if stack else ("<unknown>", 0)

    @property
    def _device_assignments(self) -> list[ScopeSite]:
        """The device scopes around the op, innermost first (TensorFlow's private name)."""
        return list(reversed(self._sites[0]))

    @property
    def _colocation_dict(self) -> dict[str, ScopeSite]:
        """The colocation scopes around the op, by the name of the op to colocate with (TensorFlow's private name)."""
        return {site.anchor: site for site in self._sites[1]}

    def values(self) -> tuple[Tensor, ...]:
        """The outputs as a tuple."""
        return tuple(self.outputs)

    def colocation_groups(self) -> list[bytes]:
        """Returns the colocation groups of this op; its own group if it names none."""
        named = [g for g in self.attrs.get("_class", ()) if g.startswith(b"loc:@")]
        return named or [b"loc:@" + self.name.encode()]

    def get_attr(self, name: str) -> Any:
        """Returns the value of an attr. Shapes and tensors are protos, all others Python values.

        Raises:
          ValueError: the op has no such attr.
        """
        if name not in self.attrs:
            raise ValueError(f"Operation '{self.name}' has no attr named '{name}'.")
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
        self.attrs[name] = plain_attr(value)
        self.graph._note_mutation(self, f"setting attribute '{name}'")

    def _clear_attr(self, name: str) -> None:
        self.attrs.pop(name, None)

    def _add_control_input(self, op: Operation) -> None:
        self._add_control_inputs([op])

    def _add_control_inputs(self, ops: list[Operation]) -> None:
        for op in ops:
            if not isinstance(op, Operation):
                raise TypeError(f"op must be an Operation: {op}")
            if op.graph is not self.graph:
                raise ValueError(f"{op!r} must be from the same graph as {self!r}.")
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
        old = self.inputs[index]
        self.inputs = Inputs((*self.inputs[:index], tensor, *self.inputs[index + 1 :]))
        if old._consumers and self in old._consumers and old not in self.inputs:
            old._consumers.remove(self)
        tensor._add_consumer(self)
        self.graph._note_input_type(self, index, old.dtype)
        self.graph._note_mutation(self, f"updating input tensor {index}")

    def _check_update(self, index: int, tensor: Tensor) -> None:
        """Refuses an index without an input, and a tensor that cannot replace the input."""
        if tensor.op.graph is not self.graph:
            raise ValueError(f"{tensor} must be from the same graph as {self}.")
        if not 0 <= index < len(self.inputs):
            raise OutOfRangeError.of(
                f"Cannot update edge. Input index [{index}] is greater than the number of total inputs"
                f" [{len(self.inputs)}]."
            )
        old = self.inputs[index].raw_shape
        if not compatible_raw(old, tensor.raw_shape):
            raise InvalidArgumentError.of(
                f"Cannot update edge, incompatible shapes: {format_raw(tensor.raw_shape)} and {format_raw(old)}.",
            )

    def _get_control_flow_context(self) -> Any:
        return self._control_flow_context

    def _set_control_flow_context(self, context: Any) -> None:
        self._control_flow_context = context

    @property
    def node_def(self) -> Any:
        """The operation as a NodeDef proto."""
        node_def = protos.NodeDef()
        fill_node_def(node_def, node_of(self))
        return node_def

    # The names of the fields in TensorFlow, which libraries read.

    @property
    def _node_def(self) -> Any:
        return self.node_def

    @property
    def _op_def(self) -> Any:
        return self.op_def

    @property
    def _graph(self) -> Graph:
        return self.graph

    @property
    def _inputs(self) -> list[Tensor]:
        return list(self.inputs)

    @property
    def _outputs(self) -> list[Tensor]:
        return self.outputs

    def __str__(self) -> str:
        return str(self.node_def)

    def __repr__(self) -> str:
        return f"<tf.Operation '{self.name}' type={self.type}>"

    def __lt__(self, other: Operation) -> bool:
        return self._id < other._id


def _public_attr(kind: str, value: Any) -> Any:
    if kind == "list(shape)":
        return [shape_proto(s) for s in value]
    if kind in ("shape", "tensor"):
        return shape_proto(value) if kind == "shape" else tensor_proto(value)
    return list(value) if isinstance(value, (list, tuple)) else value


if TYPE_CHECKING:

    class Operators:
        """The operators of tensors and variables, which `ops.math.operators` and `ops.array.slicing` add."""

        def __add__(self, other: Any) -> Tensor: ...
        def __radd__(self, other: Any) -> Tensor: ...
        def __sub__(self, other: Any) -> Tensor: ...
        def __rsub__(self, other: Any) -> Tensor: ...
        def __mul__(self, other: Any) -> Tensor: ...
        def __rmul__(self, other: Any) -> Tensor: ...
        def __truediv__(self, other: Any) -> Tensor: ...
        def __rtruediv__(self, other: Any) -> Tensor: ...
        def __floordiv__(self, other: Any) -> Tensor: ...
        def __rfloordiv__(self, other: Any) -> Tensor: ...
        def __mod__(self, other: Any) -> Tensor: ...
        def __rmod__(self, other: Any) -> Tensor: ...
        def __pow__(self, other: Any) -> Tensor: ...
        def __rpow__(self, other: Any) -> Tensor: ...
        def __matmul__(self, other: Any) -> Tensor: ...
        def __rmatmul__(self, other: Any) -> Tensor: ...
        def __and__(self, other: Any) -> Tensor: ...
        def __rand__(self, other: Any) -> Tensor: ...
        def __or__(self, other: Any) -> Tensor: ...
        def __ror__(self, other: Any) -> Tensor: ...
        def __xor__(self, other: Any) -> Tensor: ...
        def __rxor__(self, other: Any) -> Tensor: ...
        def __lt__(self, other: Any) -> Tensor: ...
        def __le__(self, other: Any) -> Tensor: ...
        def __gt__(self, other: Any) -> Tensor: ...
        def __ge__(self, other: Any) -> Tensor: ...
        def __neg__(self) -> Tensor: ...
        def __invert__(self) -> Tensor: ...
        def __abs__(self) -> Tensor: ...
        def __getitem__(self, item: Any) -> Tensor: ...

else:
    Operators = object


class Symbol(Advising, Operators):
    """A tensor or variable of a graph: what asks for its value as a number learns where to get it."""

    __slots__ = ()

    def _no_number(self, *_: Any) -> Any:
        raise TypeError(f"{self!r} has no value before a session runs it: session.run returns it as a number.")

    __float__ = __int__ = __complex__ = __round__ = __trunc__ = __floor__ = __ceil__ = _no_number

    def __format__(self, spec: str) -> str:
        return self._no_number() if spec else str(self)


@export("tf.Tensor")
class Tensor(Symbol):
    """One output of an operation (``tf.Tensor``): a symbol, not a value.

    Attributes:
      op: the operation that computes it.
      value_index: the position among the outputs of ``op``.
      dtype: the element type; a ``_ref`` type for the output of a ref variable.
      handle_data: for a resource handle, the dtype and raw shape of the variable behind it.
      raw_shape: the static shape as a plain tuple with None for unknown sizes; None for an unknown rank.
    """

    __slots__ = (
        "op",
        "value_index",
        "dtype",
        "raw_shape",
        "_shape_val",
        "_consumers",
        "handle_data",
        "__weakref__",
        "__dict__",
    )

    # Makes numpy leave ``ndarray + tensor`` to the tensor, instead of treating it as a sequence.
    __array_priority__ = 100
    # A set that can be changed, as in TensorFlow: TensorFlow Probability changes it.
    OVERLOADABLE_OPERATORS: ClassVar[set[str]] = {
        *(f"__{name}__" for name in ("lt", "le", "gt", "ge", "ne", "eq", "getitem", "invert", "neg", "abs")),
        *(
            f"__{side}{name}__"
            for side in ("", "r")
            for name in ("add", "sub", "mul", "div", "truediv", "floordiv", "mod", "and", "or", "xor", "pow", "matmul")
        ),
    }

    def __init__(self, op: Operation, value_index: int, dtype: Any, shape: RawShape = None) -> None:
        self.op = op
        self.value_index = value_index
        self.dtype: dtypes.DType = dtype
        self.raw_shape = shape
        self._shape_val: TensorShape | None = None
        self._consumers: list[Operation] | None = None
        self.handle_data: tuple[dtypes.DType, RawShape] | None = None

    @property
    def graph(self) -> Graph:
        return self.op.graph

    @property
    def name(self) -> str:
        """``"op_name:index"``."""
        return f"{self.op.name}:{self.value_index}"

    # The names of the fields in TensorFlow, which libraries read.

    @property
    def _op(self) -> Operation:
        return self.op

    @property
    def _value_index(self) -> int:
        return self.value_index

    @property
    def _dtype(self) -> dtypes.DType:
        return self.dtype

    @property
    def _shape(self) -> TensorShape:
        return self.shape

    @property
    def _name(self) -> str:
        return self.name

    @property
    def device(self) -> str:
        """The requested device of the op that computes this tensor."""
        return self.op._device

    @property
    def shape(self) -> TensorShape:
        """The static shape as far as it is known: the same object until it changes, as in TensorFlow."""
        if self._shape_val is None or self._shape_val.raw is not self.raw_shape:
            self._shape_val = TensorShape.from_raw(self.raw_shape)
        return self._shape_val

    def get_shape(self) -> TensorShape:
        """Same as `shape`."""
        return self.shape

    def set_shape(self, shape: Any) -> None:
        """Refines the static shape.

        Raises:
          ValueError: ``shape`` contradicts the known shape.
        """
        raw = as_raw(shape)
        try:
            self.raw_shape = merge_raw(self.raw_shape, raw)
        except ValueError as error:
            raise ValueError(f"{error}. Shapes are {self.shape} and {TensorShape.from_raw(raw)}.") from None

    def consumers(self) -> list[Operation]:
        """Lists the operations that take this tensor as an input, in order of creation."""
        return [op for op in self._consumers or () for tensor in op.inputs if tensor is self]

    def eval(self, feed_dict: Any = None, session: Any = None) -> Any:
        """Computes the value of this tensor in ``session`` or the default session."""
        return self.op.graph._session_hook("eval", self, feed_dict, session)

    def experimental_ref(self) -> ObjectReference:
        """Returns a reference to this tensor that compares and hashes by its identity."""
        return ObjectReference(self)

    def _shape_tuple(self) -> RawShape:
        return self.raw_shape

    def _as_node_def_input(self) -> str:
        """Returns the name of this tensor as an input of a NodeDef."""
        return f"{self.op.name}:{self.value_index}" if self.value_index else self.op.name

    def _add_consumer(self, op: Operation) -> None:
        if not self._consumers:
            self._consumers = [op]
        elif self._consumers[-1] is not op:
            self._consumers.append(op)

    def _as_tf_output(self) -> Tensor:
        return self  # what TensorFlow's functions in C take (`try_evaluate_constant`)

    def _shape_as_list(self) -> list[int | None] | None:
        return None if self.raw_shape is None else list(self.raw_shape)

    def _rank(self) -> int | None:
        return None if self.raw_shape is None else len(self.raw_shape)

    def __str__(self) -> str:
        shape = "" if self.raw_shape is None else f", shape={self.shape}"
        device = f", device={self.op._device}" if self.op._device else ""
        return f'Tensor("{self.name}"{shape}, dtype={self.dtype.name}{device})'

    def __repr__(self) -> str:
        return f"<tf.Tensor '{self.name}' shape={self.shape} dtype={self.dtype.name}>"

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
    """Returns the operation of a tensor, variable or operation; None for None."""
    if op_or_tensor is None or isinstance(op_or_tensor, Operation):
        return op_or_tensor
    return op_or_tensor.op  # type: ignore[no-any-return]


def node_of(operation: Operation) -> Node:
    """Converts a client's operation to a node."""
    return Node(
        operation.name,
        operation.type,
        operation._device,
        [(t.op.name, t.value_index) for t in operation.inputs],
        [op.name for op in operation._control_inputs],
        operation.attrs,
    )


def nodes_of(operations: Iterable[Operation], convert: Callable[[Operation], Node] = node_of) -> list[Node]:
    """Converts many operations."""
    with collector_at_rest():
        return [convert(operation) for operation in operations]


@functools.cache
def _op_def_message(op_type: str) -> Any:
    return op_def_proto(OPS[op_type].op_def)


# ---- object reference ----------------------------------------
# References to objects that compare and hash by identity, for sets and dictionaries (``Tensor.experimental_ref``).


class ObjectReference:
    """Refers to an object, compares and hashes by its identity, and keeps it alive."""

    __slots__ = ("_wrapped",)

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped

    def deref(self) -> Any:
        """Returns the object itself."""
        return self._wrapped

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectReference) and self._wrapped is other._wrapped

    def __hash__(self) -> int:
        return id(self._wrapped)

    def __repr__(self) -> str:
        return f"<Reference wrapping {self._wrapped!r}>"
