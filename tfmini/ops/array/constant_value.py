"""The values of tensors that are known while the graph is built (``tf.get_static_value``).

Shape functions use them for ``shape``, ``axis`` or ``paddings`` inputs. A value is known when it
follows from constants through stateless ops, or from static shapes.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

from tfmini.core_types import TensorLike
from tfmini.dtypes import variant
from tfmini.errors import OpError
from tfmini.export import export
from tfmini.graph.op_types import kernel_for
from tfmini.graph.operation import Operation, Tensor, node_of
from tfmini.shapes import RawShape, num_elements_raw

# Larger results are not computed while the graph is built.
_MAX_ELEMENTS = 4096
_MAX_RANK = 254  # TensorFlow's
# The most ops that one call visits. A value that needs more counts as unknown, so that building stays linear.
_MAX_OPS = 128
_RUNTIME_ONLY = frozenset({
    "Placeholder", "PlaceholderV2", "PlaceholderWithDefault", "Merge", "Enter", "Exit", "NextIteration",
    "LoopCond", "RefSwitch", "RefMerge", "RefEnter", "RefExit", "RefNextIteration", "PreventGradient", "CheckNumerics",
})  # fmt: skip
# What these make is about as small as their inputs, whatever its shape turns out to be.
_STAYS_SMALL = frozenset({
    "Add", "AddV2", "Cast", "ConcatV2", "DenseToDenseSetOperation", "Equal", "ExpandDims", "FloorDiv", "FloorMod",
    "Gather", "GatherV2", "Greater", "GreaterEqual", "Identity", "InvertPermutation", "Less", "LessEqual", "ListDiff",
    "LogicalAnd", "LogicalNot", "LogicalOr", "Maximum", "Minimum", "Mul", "Neg", "NotEqual", "Reshape", "ReverseV2",
    "Select", "Slice", "Squeeze", "StridedSlice", "Sub", "Unique", "UniqueV2", "Where",
})  # fmt: skip

# The results of kernels that ran for an answer. Constants are not stored a second time.
_known: weakref.WeakKeyDictionary[Tensor, Any] = weakref.WeakKeyDictionary()


def constant_value(tensor: Tensor) -> np.ndarray[Any, Any] | None:
    """The value of ``tensor`` if it follows from the graph alone, else None. Callers must not change the array."""
    op = tensor.op
    if op.type == "Const":
        # A large tensor of one repeated value takes no memory (`tensor_from_proto`); a list of its elements would.
        found = op.attrs["value"]
        return None if np.size(found) > _MAX_ELEMENTS and not any(found.strides) else found
    value: np.ndarray[Any, Any] | None = _value(tensor, [_MAX_OPS])
    return value


@export("tensorflow.python.pywrap_tensorflow.TF_TryEvaluateConstant_wrapper")
def try_evaluate_constant(graph: object, output: Tensor) -> np.ndarray[Any, Any] | None:
    """`constant_value` under the name of TensorFlow's function in C, which libraries call.

    Args:
      graph, output: ``tensor.graph._c_graph`` and ``tensor._as_tf_output()``.
    """
    return constant_value(output)


# The ops through which TensorFlow follows values for programs; it computes no arithmetic for them.
_FOLLOWED = frozenset({
    "Shape", "Size", "Rank", "Range", "Cast", "Concat", "ConcatV2", "Pack", "Unpack", "Split", "Fill", "Equal",
    "NotEqual", "StopGradient", "Identity",
})  # fmt: skip
_OF_SHAPES = ("Shape", "Size", "Rank")


def _is_followed(tensor: Tensor) -> bool:
    waiting = [tensor]
    for _ in range(_MAX_OPS):
        if not waiting:
            return True
        op = waiting.pop().op
        if op.type == "Const" or op.type in _OF_SHAPES:
            continue
        if op.type not in _FOLLOWED or op.type == "Pack" and op.attrs["axis"] != 0:
            return False
        waiting += op.inputs
    return False


@export("tf.get_static_value", "tf.contrib.util.constant_value")
def get_static_value(tensor: TensorLike, partial: bool = False) -> Any:
    """`constant_value` for programs (``tf.get_static_value``, ``tf.contrib.util.constant_value``).

    None for the result of arithmetic, as in TensorFlow: its functions check such values when the graph runs.
    A tensor whose value this function has returned can no longer be fed. With ``partial``, a stacked tensor gives
    a nested list with None for the unknown elements. What is no tensor is returned as it is, a variable gives None.
    """
    if not isinstance(tensor, Tensor):
        return None if hasattr(tensor, "op") else tensor  # a variable; Python's and NumPy's values are what they are
    value = constant_value(tensor) if _is_followed(tensor) else None
    if tensor.op.type == "Const":
        value = tensor.op.attrs["value"]
    if value is None and partial and tensor.op.type == "Pack" and tensor.op.attrs["axis"] == 0:
        return np.array([get_static_value(t) for t in tensor.op.inputs], dtype=object)
    if value is not None:
        tensor.graph.prevent_feeding(tensor)
        repeated = np.size(value) > _MAX_ELEMENTS and not any(value.strides)  # in no memory of its own
        return value if repeated else np.array(value)  # programs change it, as in `n += 1`
    return None


def constant_value_as_shape(tensor: Tensor) -> RawShape:
    """The shape whose sizes an integer vector holds, as far as it is known; -1 means unknown.

    Raises:
      ValueError: when an element is less than -1 or the tensor is not a vector.
    """
    raw = tensor.raw_shape
    if raw == ():
        value = constant_value(tensor)
        if value is not None and int(value) == -1:
            return None
        raise ValueError("Received a scalar with value other than -1 as a shape: a scalar must be -1 (unknown shape)")
    if raw is not None and len(raw) != 1:
        raise ValueError(f"Shape must be rank 1 but is rank {len(raw)}")
    if raw is not None and raw[0] is not None and raw[0] > _MAX_RANK:
        raise ValueError(f"A shape has at most {_MAX_RANK} dimensions, not {raw[0]}")
    rule = _SHAPE_RULES.get(tensor.op.type)
    found = rule(tensor.op) if rule is not None else None
    if found is not None:
        return found
    value = constant_value(tensor)
    if value is not None:
        return _as_sizes(value.tolist())
    return None if raw is None or raw[0] is None else (None,) * raw[0]


def given_shape(node: Operation) -> list[RawShape]:
    """Shape function: the value of the first input is the shape."""
    return [constant_value_as_shape(node.inputs[0])]


def _as_sizes(values: list[int]) -> RawShape:
    for value in values:
        if value < -1:
            raise ValueError(f"Invalid value in tensor used for shape: {value}")
    return tuple(None if v == -1 else v for v in values)


# ---- partially known shapes -------------------------------------------------------------------


def _shape_of_shape(op: Operation) -> RawShape:
    return op.inputs[0].raw_shape


def _shape_of_pack(op: Operation) -> RawShape:
    if any(t.raw_shape not in ((), None) for t in op.inputs):
        return None
    values = [constant_value(t) for t in op.inputs]
    return _as_sizes([-1 if v is None else int(v) for v in values])


def _shape_of_concat(op: Operation) -> RawShape:
    parts = op.inputs[:-1] if op.type == "ConcatV2" else op.inputs[1:]
    total: tuple[int | None, ...] = ()
    for part in parts:
        if part.raw_shape == ():
            return None
        shape = constant_value_as_shape(part)
        if shape is None:
            return None
        total += shape
    return total


def _shape_of_slice(op: Operation) -> RawShape:
    window = _window(op)
    if window is None or op.attrs["shrink_axis_mask"]:
        return None
    whole = constant_value_as_shape(op.inputs[0])
    return None if whole is None else whole[window]


def _shape_of_cast(op: Operation) -> RawShape:
    return constant_value_as_shape(op.inputs[0]) if op.inputs[0].dtype.is_integer else None


_SHAPE_RULES = {
    "Shape": _shape_of_shape,
    "Pack": _shape_of_pack,
    "ConcatV2": _shape_of_concat,
    "Concat": _shape_of_concat,
    "StridedSlice": _shape_of_slice,
    "Cast": _shape_of_cast,
    "Identity": lambda op: constant_value_as_shape(op.inputs[0]),
}


def _window(op: Operation) -> slice | None:
    """The slice of a vector that a StridedSlice with constant bounds selects."""
    attrs = op.attrs
    if (
        attrs["new_axis_mask"]
        or attrs["ellipsis_mask"]
        or op.inputs[0].raw_shape is None
        or len(op.inputs[0].raw_shape) != 1
    ):
        return None
    bounds = [constant_value(t) for t in op.inputs[1:4]]
    if any(b is None or b.size != 1 for b in bounds):
        return None
    begin, end, stride = (int(b.item()) for b in bounds)  # type: ignore[union-attr]
    return slice(None if attrs["begin_mask"] & 1 else begin, None if attrs["end_mask"] & 1 else end, stride)


# ---- values -----------------------------------------------------------------------------------


def _value(tensor: Tensor, budget: list[int]) -> Any:
    op = tensor.op
    if op.type == "Const":
        return op.attrs["value"]
    found = _known.get(tensor)
    if found is not None:
        return found
    budget[0] -= 1
    if budget[0] < 0 or not _may_run(op):
        return None
    if op.type == "Switch":
        found = _value_of_branch(tensor, budget)
    else:
        rule = _VALUE_RULES.get(op.type)
        found = rule(tensor) if rule is not None else None
        if found is None:
            found = _run(tensor, budget)
    if found is not None:
        _known[tensor] = found
    return found


def _may_run(op: Operation) -> bool:
    is_opaque = any(tensor.dtype is variant for tensor in op.outputs)
    return not op.handle.op_def.is_stateful and op.type not in _RUNTIME_ONLY and not is_opaque


def _value_of_branch(tensor: Tensor, budget: list[int]) -> Any:
    """The data of a Switch on the side that a known predicate takes; the other side has no value, as it stays dead."""
    data, predicate = tensor.op.inputs
    taken = _value(predicate, budget)
    return _value(data, budget) if taken is not None and int(taken) == tensor.value_index else None


def _value_of_shape(tensor: Tensor) -> Any:
    shape = tensor.op.inputs[tensor.value_index].raw_shape
    if shape is None or None in shape:
        return None
    return np.array(shape, tensor.dtype.numpy)


def _value_of_size(tensor: Tensor) -> Any:
    size = num_elements_raw(tensor.op.inputs[0].raw_shape)
    return None if size is None else np.array(size, tensor.dtype.numpy)


def _value_of_rank(tensor: Tensor) -> Any:
    shape = tensor.op.inputs[0].raw_shape
    return None if shape is None else np.array(len(shape), np.int32)


def _value_of_element(tensor: Tensor) -> Any:
    """One known size of a shape that is not known as a whole: ``tf.shape(x)[1]``."""
    op = tensor.op
    if op.attrs["shrink_axis_mask"] != 1 or not tensor.dtype.is_integer or op.inputs[0].op.type not in _SHAPE_RULES:
        return None
    window = _window(op)
    shape = None if window is None else constant_value_as_shape(op.inputs[0])
    if shape is None or window is None or window.start is None or not -len(shape) <= window.start < len(shape):
        return None
    size = shape[window.start]
    return None if size is None else np.array(size, tensor.dtype.numpy)


_VALUE_RULES = {
    "Shape": _value_of_shape,
    "ShapeN": _value_of_shape,
    "Size": _value_of_size,
    "Rank": _value_of_rank,
    "StridedSlice": _value_of_element,
}


def _run(tensor: Tensor, budget: list[int]) -> Any:
    """Runs the op's kernel on constant inputs."""
    op = tensor.op
    kernel = kernel_for(op.type, "CPU")
    if kernel is None or kernel.wants_step or kernel.makes_state or not _is_small(op):
        return None
    if not op.inputs or "resources" in kernel.bound:
        return None
    arguments = _arguments(op, budget)
    if arguments is None:
        return None
    bound = {name: node_of(op) if name == "node" else op.attrs[name] for name in kernel.bound}
    try:
        function = kernel.function(node_of(op)) if kernel.is_factory else kernel.function
        with np.errstate(all="ignore"):
            results = function(*arguments, **bound)
    except (OpError, ValueError, TypeError, IndexError, ZeroDivisionError):
        # The kernel refuses the arguments; the step that runs it raises that error.
        return None
    value = results[tensor.value_index] if isinstance(results, tuple) else results
    value = np.asarray(value, tensor.dtype.base_dtype.numpy)
    if value.flags.writeable:
        value.setflags(write=False)
    return value


def _is_small(op: Operation) -> bool:
    """Whether neither the inputs nor the results are large; inputs of unknown shapes are as their values turn out."""
    given = [num_elements_raw(tensor.raw_shape) for tensor in op.inputs]
    made = [num_elements_raw(tensor.raw_shape) for tensor in op.outputs]
    if None in made and op.type not in _STAYS_SMALL:
        return False
    return all(size is None or size <= _MAX_ELEMENTS for size in (*given, *made))


def _arguments(op: Operation, budget: list[int]) -> list[Any] | None:
    flat: list[Any] = []
    for tensor in op.inputs:
        value = None if tensor.dtype._is_ref_dtype else _value(tensor, budget)
        if value is None or value.size > _MAX_ELEMENTS:
            return None
        flat.append(value)
    arguments: list[Any] = []
    position = 0
    for arg in op.handle.op_def.inputs:
        if not arg.is_list:
            arguments.append(flat[position])
            position += 1
            continue
        count = op.attrs[arg.number_attr] if arg.number_attr else len(op.attrs[arg.type_list_attr])  # type: ignore[index]
        arguments.append(flat[position : position + count])
        position += count
    return arguments
