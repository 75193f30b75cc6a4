"""The loss functions of ``tf.nn``: cross-entropies from logits, and the Poisson loss."""

from __future__ import annotations

import math
from typing import Any

from tfmini import dtypes
from tfmini.core_types import TensorLike
from tfmini.export import either, export
from tfmini.graph.families import OpHandle, Tensor, convert_to_tensor, name_scope
from tfmini.graph.scoping import count_ops
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.filling import range as number_range
from tfmini.ops.array.filling import zeros_like
from tfmini.ops.array.identity import cast, stop_gradient
from tfmini.ops.array.joining import concat
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.array.layout import transpose
from tfmini.ops.array.shape import rank, reshape
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.array.slicing import slice_
from tfmini.ops.math.comparison import greater_equal, less, less_equal, logical_and, where
from tfmini.ops.math.elementwise import add, multiply, negative, subtract
from tfmini.ops.math.unary import abs_op, exp, log, log1p
from tfmini.ops.nn.activation import log_softmax_op, relu, softmax_op, softmax_xent_op, sparse_xent_op
from tfmini.shapes import compatible_raw

_NARROW = (dtypes.float16, dtypes.bfloat16)


@export("tf.math.softmax", "tf.nn.softmax")
def softmax(
    logits: TensorLike | None, axis: int | None = None, name: str | None = None, dim: int | None = None
) -> Tensor:
    """``exp(logits) / sum(exp(logits))`` along ``axis``, by default the last (``tf.nn.softmax``).

    Args:
      logits: a tensor of floats with at least one axis.
      axis: the axis whose sums become 1; default: the last.
      name: of the op.
      dim: an older name of ``axis``.

    Returns:
      A tensor of the dtype and shape of ``logits``.
    """
    return _along(softmax_op, logits, either("axis", axis, "dim", dim), name)


@export("tf.math.log_softmax", "tf.nn.log_softmax")
def log_softmax(
    logits: TensorLike | None, axis: int | None = None, name: str | None = None, dim: int | None = None
) -> Tensor:
    """``logits - log(sum(exp(logits)))`` along ``axis``, by default the last (``tf.nn.log_softmax``)."""
    return _along(log_softmax_op, logits, either("axis", axis, "dim", dim), name)


def _along(handle: OpHandle, logits: TensorLike | None, axis: Any, name: str | None) -> Tensor:
    logits = convert_to_tensor(logits)
    shape = logits.raw_shape
    if isinstance(axis, Tensor):
        known = constant_value(axis)
        axis = axis if known is None else int(known)
    if isinstance(axis, Tensor):
        swapped, order = _swap_with_last(logits, axis)
        return transpose(handle(swapped), order, name=name or "transpose")
    if axis is None or axis == -1 or (shape is not None and axis == len(shape) - 1):
        return handle(logits, name=name)
    if shape is not None and not -len(shape) <= axis < len(shape):
        refuse(
            f"`dim` must be in the range [{-len(shape)}, {len(shape)}) where {len(shape)} is the number of"
            f" dimensions in the input. Received: dim={axis}"
        )
    swapped, order = _swap_with_last(logits, axis)
    return transpose(handle(swapped), order, name=name or "transpose")


def _swap_with_last(tensor: Tensor, axis: Any) -> tuple[Tensor, Any]:
    """The tensor with ``axis`` and the last axis exchanged, and the permutation, which is its own inverse."""
    if tensor.raw_shape is not None and not isinstance(axis, Tensor):
        order: Any = list(range(len(tensor.raw_shape)))
        order[axis], order[-1] = order[-1], order[axis]
        count_ops(26 + 4 * (axis < 0))  # TensorFlow computes the order
    else:
        count = rank(tensor)
        if isinstance(axis, Tensor):
            position = where(less(axis, 0), add(axis, count), axis)
        else:
            position = axis if axis >= 0 else add(count, axis)
        last = subtract(count, 1)
        order = concat(
            [number_range(position), reshape(last, [1]), number_range(add(position, 1), last), reshape(position, [1])],
            0,
        )[:count]  # If the axis is the last one, the list has it twice.
    return transpose(tensor, order), order


@export("tf.nn.softmax_cross_entropy_with_logits_v2")
def softmax_cross_entropy_with_logits_v2(
    labels: TensorLike | None, logits: TensorLike | None, axis: int | None = None, name: str | None = None,
    dim: int | None = None,
) -> Tensor:  # fmt: skip
    """Cross-entropy between ``softmax(logits)`` and ``labels``; gradients flow into both.

    Args:
      labels: a probability distribution along ``axis`` for each example, the shape of ``logits``.
      axis: the class axis, by default the last; the result does not have it.
    """
    axis = either("axis", axis, "dim", dim)
    axis = -1 if axis is None else axis
    with name_scope(name, "softmax_cross_entropy_with_logits", [logits, labels]) as scope:
        logits = convert_to_tensor(logits, name="logits")
        labels = convert_to_tensor(labels, name="labels")
        precise = cast(logits, dtypes.float32) if logits.dtype in _NARROW else logits
        labels = cast(labels, precise.dtype)
        static = logits.raw_shape
        if axis != -1 and (static is None or axis % len(static) != len(static) - 1):
            precise, labels = _class_last(precise, axis), _class_last(labels, axis)
        if _is_matrix(precise) and _is_matrix(labels):
            count_ops(30)  # TensorFlow reshapes matrices as well
            cost = softmax_xent_op(precise, labels, name=scope)[0]
        else:  # as in TensorFlow, labels of another rank are accepted if they have as many rows
            axes, sizes, rows, truth = rank(precise), shape_of(precise), _rows(precise), _rows(labels)
            flat = softmax_xent_op(precise if _is_matrix(precise) else rows, truth, name=scope)[0]
            reshaped = reshape(flat, slice_(sizes, [0], [subtract(axes, 1)]))
            cost = flat if _is_matrix(precise) else reshaped
        if static is not None:
            kept = list(static)
            del kept[axis]
            cost.set_shape(kept)
        result: Tensor = cast(cost, logits.dtype) if logits.dtype in _NARROW else cost
        return result


def _is_matrix(tensor: Tensor) -> bool:
    return tensor.raw_shape is not None and len(tensor.raw_shape) == 2


def _class_last(tensor: Tensor, axis: int) -> Tensor:
    """Moves ``axis`` to the end, keeping the order of the others."""
    if tensor.raw_shape is not None:
        count = len(tensor.raw_shape)
        rest = [i for i in range(count) if i != axis % count]
        return transpose(tensor, [*rest, axis % count])
    count_tensor = rank(tensor)
    position = axis if axis >= 0 else add(count_tensor, axis)
    order = concat([number_range(position), number_range(add(position, 1), count_tensor), reshape(position, [1])], 0)
    return transpose(tensor, order)


def _rows(tensor: Tensor) -> Tensor:
    """The tensor with all axes but the last merged into one, by the ops that 1.15 makes."""
    axes, sizes = rank(tensor), shape_of(tensor)
    last = slice_(sizes, [subtract(axes, 1)], [1])
    rows = reshape(tensor, concat([[-1], last], 0))
    static = tensor.raw_shape
    if static is not None and len(static) > 1:
        count = None if None in static[:-1] else math.prod(d or 0 for d in static[:-1])
        rows.set_shape([count, static[-1]])
    return rows


def _flat(tensor: Tensor) -> Tensor:
    """The tensor with all axes but the last merged into one."""
    static = tensor.raw_shape
    if static is not None and static[-1] is not None:
        return reshape(tensor, [-1, static[-1]])
    last = slice_(shape_of(tensor), reshape(subtract(rank(tensor), 1), [1]), [1])
    return reshape(tensor, concat([[-1], last], 0))


@export("tf.nn.softmax_cross_entropy_with_logits")
def softmax_cross_entropy_with_logits(
    _sentinel: None = None, labels: Any = None, logits: TensorLike | None = None, dim: int = -1,
    name: str | None = None, axis: int | None = None,
) -> Tensor:  # fmt: skip
    """`softmax_cross_entropy_with_logits_v2` without gradients into ``labels``.

    Args:
      labels: the probability of each class, [..., classes]; each row sums to 1.
      logits: unscaled log probabilities of the same shape, floats.
      dim: the axis of the classes; default: the last.
      name: of the op.
      axis: another name of ``dim``.

    Returns:
      The cross entropy of each row: ``logits`` without the axis of the classes.

    Raises:
      ValueError: for positional arguments.
    """
    if axis is not None:
        dim = axis
    _named_only("softmax_cross_entropy_with_logits", _sentinel, labels, logits)
    with name_scope(name, "softmax_cross_entropy_with_logits_sg", [logits, labels]) as scope:
        labels = stop_gradient(labels, name="labels_stop_gradient")
        return softmax_cross_entropy_with_logits_v2(labels, logits, axis=dim, name=scope)


def _named_only(function: str, sentinel: None, labels: TensorLike | None, logits: TensorLike | None) -> None:
    if sentinel is not None:
        raise ValueError(f"Only call `{function}` with named arguments (labels=..., logits=..., ...)")
    if labels is None or logits is None:
        raise ValueError("Both labels and logits must be provided.")


@export("tf.nn.sparse_softmax_cross_entropy_with_logits")
def sparse_softmax_cross_entropy_with_logits(
    _sentinel: None = None, labels: Any = None, logits: TensorLike | None = None, name: str | None = None
) -> Tensor:
    """Cross-entropy of one true class per example (``tf.nn.sparse_softmax_cross_entropy_with_logits``).

    Args:
      labels: class numbers, int32 or int64, of the shape of ``logits`` without its last axis.

    Raises:
      ValueError: for positional arguments, scalar logits, or ranks or shapes that do not fit.
    """
    _named_only("sparse_softmax_cross_entropy_with_logits", _sentinel, labels, logits)
    with name_scope(name, "SparseSoftmaxCrossEntropyWithLogits", [labels, logits]):
        labels = convert_to_tensor(labels)
        logits = convert_to_tensor(logits)
        _check_sparse_shapes(labels, logits)
        precise = cast(logits, dtypes.float32) if logits.dtype in _NARROW else logits
        if logits.raw_shape is not None and len(logits.raw_shape) == 2:
            count_ops(1)  # the shape of the labels
            cost = sparse_xent_op(precise, labels, name=name)[0]
        else:
            # Sizes, and whether those of logits and labels agree.
            known = labels.shape.is_fully_defined() and logits.shape.is_fully_defined()
            count_ops(11 if known else 17 if labels.shape.ndims is None or logits.shape.ndims is None else 27)
            sizes = shape_of(labels)
            # The op compares the numbers of rows and labels in the step.
            flat = sparse_xent_op(_flat(precise), reshape(labels, [-1]), name=name)[0]
            cost = reshape(flat, sizes)
            cost.set_shape(labels.shape)
        result: Tensor = cast(cost, logits.dtype) if logits.dtype in _NARROW else cost
        return result


def _check_sparse_shapes(labels: Tensor, logits: Tensor) -> None:
    if logits.raw_shape is None:
        return
    if not logits.raw_shape:
        raise ValueError(f"Logits cannot be scalars - received shape {logits.shape}.")
    if labels.raw_shape is None:
        return
    if len(labels.raw_shape) != len(logits.raw_shape) - 1:
        raise ValueError(
            f"Rank mismatch: Rank of labels (received {len(labels.raw_shape)}) should equal rank of logits minus 1"
            f" (received {len(logits.raw_shape)})."
        )
    if not compatible_raw(labels.raw_shape, logits.raw_shape[:-1]):
        raise ValueError(
            f"Shape mismatch: The shape of labels (received {labels.shape}) should equal the shape of logits except for"
            f" the last dimension (received {logits.shape})."
        )


def _same_shapes(labels: Tensor, logits: Tensor, first: str = "logits", second: str = "labels") -> None:
    if not compatible_raw(labels.raw_shape, logits.raw_shape):
        raise ValueError(f"{first} and {second} must have the same shape ({logits.shape} vs {labels.shape})")


@export("tf.nn.sigmoid_cross_entropy_with_logits")
def sigmoid_cross_entropy_with_logits(
    _sentinel: None = None, labels: TensorLike | None = None, logits: TensorLike | None = None, name: str | None = None
) -> Tensor:
    """Cross-entropy of independent classes, element by element: ``max(x, 0) - x z + log(1 + exp(-|x|))``.

    Raises:
      ValueError: for positional arguments or different shapes.
    """
    _named_only("sigmoid_cross_entropy_with_logits", _sentinel, labels, logits)
    with name_scope(name, "logistic_loss", [logits, labels]) as scope:
        logits = convert_to_tensor(logits, name="logits")
        labels = convert_to_tensor(labels, name="labels")
        _same_shapes(labels, logits)
        zeros = zeros_like(logits, dtype=logits.dtype)
        positive = greater_equal(logits, zeros)
        above = where(positive, logits, zeros)
        minus_size = where(positive, negative(logits), logits)
        return add(subtract(above, multiply(logits, labels)), log1p(exp(minus_size)), name=scope)


@export("tf.nn.weighted_cross_entropy_with_logits")
def weighted_cross_entropy_with_logits(
    labels: TensorLike | None = None, logits: TensorLike | None = None, pos_weight: TensorLike | None = None,
    name: str | None = None, targets: TensorLike | None = None,
) -> Tensor:  # fmt: skip
    """`sigmoid_cross_entropy_with_logits` with the positive examples weighted by ``pos_weight``."""
    labels = either("labels", labels, "targets", targets)
    with name_scope(name, "logistic_loss", [logits, labels]) as scope:
        logits = convert_to_tensor(logits, name="logits")
        labels = convert_to_tensor(labels, name="labels")
        _same_shapes(labels, logits)
        one = convert_to_tensor(1, dtype=logits.dtype.base_dtype)
        pos_weight = convert_to_tensor(pos_weight, dtype=logits.dtype.base_dtype)
        weight = add(one, multiply(subtract(pos_weight, one), labels))
        tail = add(log1p(exp(negative(abs_op(logits)))), relu(negative(logits)))
        return add(multiply(subtract(one, labels), logits), multiply(weight, tail), name=scope)


@export("tf.nn.log_poisson_loss")
def log_poisson_loss(
    targets: TensorLike, log_input: TensorLike, compute_full_loss: bool = False, name: str | None = None
) -> Tensor:
    """``exp(c) - z c``, plus Stirling's term for ``z!`` with ``compute_full_loss`` (``tf.nn.log_poisson_loss``)."""
    with name_scope(name, "log_poisson_loss", [log_input, targets]):
        log_input = convert_to_tensor(log_input, name="log_input")
        targets = convert_to_tensor(targets, name="targets")
        _same_shapes(targets, log_input, "log_input", "targets")
        result = subtract(exp(log_input), multiply(log_input, targets))
        if not compute_full_loss:
            return result
        half_log = multiply(log(multiply(targets, 2 * math.pi)), 0.5)
        stirling = add(subtract(multiply(targets, log(targets)), targets), half_log)
        small = logical_and(greater_equal(targets, zeros_like(targets)), less_equal(targets, _ones(targets)))
        return add(result, where(small, zeros_like(targets), stirling))


def _ones(like: Tensor) -> Tensor:
    return add(zeros_like(like), 1)
