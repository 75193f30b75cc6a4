"""Contractions by reshape and matrix product: ``tf.tensordot`` and ``tf.einsum``."""

from __future__ import annotations

import math
import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import TensorLike
from tfmini.export import export
from tfmini.graph.families import Operation, Tensor, convert_to_tensor, name_scope, op
from tfmini.ops.array import filling as array_filling
from tfmini.ops.array import joining as array_joining
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.diagonals import matrix_diag_part
from tfmini.ops.array.filling import ones
from tfmini.ops.array.gather import gather
from tfmini.ops.array.identity import cast
from tfmini.ops.array.joining import stack
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.array.layout import transpose
from tfmini.ops.array.partition import setdiff1d
from tfmini.ops.array.shape import shape
from tfmini.ops.array.slicing import getitem
from tfmini.ops.math.comparison import less, where_v2
from tfmini.ops.math.elementwise import conjugate, mul_op
from tfmini.ops.math.matmul import matmul
from tfmini.ops.math.reductions import reduce_prod, reduce_sum, sum_op
from tfmini.shapes import RawShape, merge_dims

# ---- The op ``Einsum``: contractions, diagonals and ellipses in one kernel -----------------------------------------
# ``tf.einsum`` uses matrix products (see `contraction`), which are faster. It uses this op only for
# equations with a repeated label in one term, which matrix products cannot express.

einsum_op = op("Einsum(inputs: N * T) -> output: T; equation: string; N: int >= 1; T: type")


def explicit(equation: str, ranks: Sequence[int]) -> tuple[list[str], str, str]:
    """The terms, the output and the labels of the broadcast axes, with letters in place of ellipses.

    Args:
      equation: with ``->``.
      ranks: of the inputs.

    Raises:
      ValueError: when the equation does not fit the ranks.
    """
    left, _, output = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ValueError(f'Got {len(ranks)} arguments for equation "{equation}", expecting {len(terms)}')
    free = [c for c in string.ascii_letters if c not in equation]
    widths = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks)]
    for term, width, rank in zip(terms, widths, ranks):
        if width < 0 or width and "..." not in term:
            raise ValueError(f"Expected subscript {term} to fit an input of rank {rank}")
    most = max((width for term, width in zip(terms, widths) if "..." in term), default=0)
    if most and "..." not in output:
        raise ValueError("Output subscripts must have an ellipsis, since the broadcast shape is not empty")
    letters = "".join(free[:most])
    found = [term.replace("...", letters[most - width :]) for term, width in zip(terms, widths)]
    unknown = set(output.replace("...", "")) - set("".join(terms))
    if unknown:
        raise ValueError(f"Unknown output subscripts: {''.join(sorted(unknown))}")
    return found, output.replace("...", letters), letters


@einsum_op.shape
def _shape(node: Operation) -> list[RawShape]:
    shapes = [t.raw_shape for t in node.inputs]
    if any(s is None for s in shapes):
        return [None]
    terms, output, letters = explicit(node.attrs["equation"].decode(), [len(s) for s in shapes])  # type: ignore[arg-type]
    sizes: dict[str, int | None] = {}
    for term, sides in zip(terms, shapes):
        for label, size in zip(term, sides):  # type: ignore[arg-type]
            before = sizes.get(label)
            if label in letters and (size == 1 or before == 1):
                sizes[label] = before if size == 1 and label in sizes else size
            else:
                sizes[label] = merge_dims(before, size)
    return [tuple(sizes[label] for label in output)]


@einsum_op.kernel("CPU")
def _kernel(inputs: list[Any], *, equation: bytes) -> Any:
    try:
        terms, output, letters = explicit(equation.decode(), [np.ndim(x) for x in inputs])
        _check_sizes(terms, inputs, letters)
        unique = "".join(dict.fromkeys(output))
        value = np.einsum(f"{','.join(terms)}->{unique}", *inputs, optimize=len(inputs) > 1)
        value = value.astype(inputs[0].dtype, copy=False)  # numpy widens bfloat16
    except ValueError as error:
        refuse(str(error))
    if unique == output:
        return value
    sizes = dict(zip(unique, value.shape))
    result = np.zeros([sizes[label] for label in output], value.dtype)
    np.einsum(f"{output}->{unique}", result)[...] = value  # A view of the diagonal.
    return result


def _check_sizes(terms: list[str], inputs: list[Any], letters: str) -> None:
    """Refuses axes of one label with different sizes. Only an ellipsis may broadcast; numpy would broadcast all."""
    sizes: dict[str, int] = {}
    for term, value in zip(terms, inputs):
        for label, size in zip(term, np.shape(value)):
            if label not in letters and sizes.setdefault(label, size) != size:
                raise ValueError(f"Expected dimension {sizes[label]} of label {label}, but got {size}")


@einsum_op.gradient
def _gradient(node: Operation, grad: Tensor) -> list[Any]:
    ranks = [None if t.raw_shape is None else len(t.raw_shape) for t in node.inputs]
    if None in ranks:
        raise ValueError(f"The gradient of '{node.name}' needs inputs of known ranks.")
    terms, output, letters = explicit(node.attrs["equation"].decode(), ranks)  # type: ignore[arg-type]
    return [_input_gradient(node, grad, terms, output, letters, i) for i in range(len(terms))]


def _input_gradient(
    node: Operation, grad: Tensor, terms: list[str], output: str, letters: str, position: int
) -> Tensor:
    """The other inputs and the gradient, contracted to the labels of one input."""
    value, term = node.inputs[position], terms[position]
    parts = [(grad, output)] + [
        (conjugate(t), labels) for i, (t, labels) in enumerate(zip(node.inputs, terms)) if i != position
    ]
    missing = "".join(c for c in dict.fromkeys(term) if not any(c in labels for _, labels in parts))
    if missing:  # The forward op sums over this axis, so the gradient is constant along it.
        sizes = shape(value)
        parts.append((ones(stack([sizes[term.index(c)] for c in missing]), value.dtype), missing))
    equation = f"{','.join(labels for _, labels in parts)}->{term}"
    found = einsum_op([convert_to_tensor(t) for t, _ in parts], equation=equation)
    stretched = [i for i, c in enumerate(term) if c in letters and value.raw_shape[i] == 1]  # type: ignore[index]
    return sum_op(found, stretched, keep_dims=True) if stretched else found


# ---- ``tf.tensordot``: axes are put in order for one matrix product ------------------------------------------------


def _sizes(x: Tensor, axes: list[int]) -> list[Any]:
    """The sizes of some axes: ints where they are known, scalar tensors elsewhere."""
    assert x.raw_shape is not None
    dynamic = None
    found: list[Any] = []
    for axis in axes:
        size: Any = x.raw_shape[axis]
        if size is None:
            dynamic = array_shape.shape(x) if dynamic is None else dynamic
            size = getitem(dynamic, axis)
        found.append(size)
    return found


def _product(sizes: list[Any]) -> Any:
    """The product of sizes; -1 ("the rest") if one is known only at run time."""
    return -1 if any(isinstance(s, Tensor) for s in sizes) else math.prod(sizes)


def _arranged(x: Tensor, order: list[int]) -> Tensor:
    return x if order == sorted(order) else transpose(x, order)


def _grouped(x: Tensor, groups: list[list[int]]) -> Tensor:
    """``x`` with its axes ordered by group and each group flattened into one axis."""
    order = [axis for group in groups for axis in group]
    sizes = [_product(_sizes(x, group)) for group in groups]
    x = _arranged(x, order)
    if sizes.count(-1) > 1:
        parts = []
        for group, size in zip(groups, sizes):
            position = [order.index(a) for a in group]
            parts.append(size if size != -1 else _dynamic_product(_sizes(x, position)))
        return array_shape.reshape(x, array_joining.stack(parts))
    return x if all(len(group) == 1 for group in groups) else array_shape.reshape(x, sizes)


def _dynamic_product(sizes: list[Any]) -> Any:
    total = sizes[0]
    for size in sizes[1:]:
        total = mul_op(total, size) if isinstance(total, Tensor) else mul_op(size, total)
    return total


def _ungrouped(x: Tensor, sizes: list[Any]) -> Tensor:
    if sum(isinstance(s, Tensor) for s in sizes) == 1:
        sizes = [-1 if isinstance(s, Tensor) else s for s in sizes]
    return array_shape.reshape(x, array_joining.stack(sizes) if any(isinstance(s, Tensor) for s in sizes) else sizes)


def _normal_axes(x: Tensor, axes: Any) -> list[int]:
    rank = len(x.raw_shape or ())
    return [int(a) % rank for a in np.ravel(axes)]


@export("tf.tensordot", "tf.linalg.tensordot")
def tensordot(a: TensorLike, b: TensorLike, axes: Any, name: str | None = None) -> Tensor:
    """The sum of products over chosen axes of two tensors (``tf.tensordot``).

    Args:
      axes: a number n (the last n axes of ``a`` with the first n of ``b``), or a pair of axes or
        lists of axes.

    Raises:
      ValueError: when the axes do not pair up, or a rank is unknown.
    """
    with name_scope(name, "Tensordot", [a, b]) as scope:
        a, b = convert_to_tensor(a, name="a"), convert_to_tensor(b, name="b")
        if a.raw_shape is None or b.raw_shape is None or isinstance(axes, Tensor):
            return _dynamic_tensordot(a, b, axes, scope)
        of_a, of_b = _axes_pair(a, b, axes)
        (left, rows), (right, columns) = _as_matrix(a, of_a, last=True), _as_matrix(b, of_b, last=False)
        product = matmul(left, right)
        if isinstance(rows, list) and isinstance(columns, list):
            return array_shape.reshape(product, rows + columns, name=scope)
        sizes = [convert_to_tensor(part, dtypes.int32) for part in (rows, columns)]
        result = array_shape.reshape(product, array_joining.concat(sizes, 0), name=scope)
        free = [[d for i, d in enumerate(x.raw_shape or ()) if i not in own] for x, own in ((a, of_a), (b, of_b))]
        result.set_shape(free[0] + free[1])
        return result


def _as_matrix(x: Tensor, axes: list[int], last: bool) -> tuple[Tensor, Any]:
    """``x`` as a matrix with the chosen axes last (or first), and the sizes of the others, by the ops of 1.15."""
    raw: Any = x.raw_shape
    free = [i for i in range(len(raw)) if i not in axes]
    if None not in raw:
        order, totals = [free, axes], [math.prod(raw[i] for i in part) for part in (free, axes)]
        order, totals = (order, totals) if last else (order[::-1], totals[::-1])
        return array_shape.reshape(transpose(x, order[0] + order[1]), totals), [raw[i] for i in free]
    of, others = (convert_to_tensor(np.array(v, np.int32), name=n) for v, n in ((axes, "axes"), (free, "free")))
    sizes = array_shape.shape(x)
    free_sizes, own_sizes = gather(sizes, others), gather(sizes, of)
    products = [reduce_prod(free_sizes), reduce_prod(own_sizes)]
    places = array_joining.concat([others, of] if last else [of, others], 0)
    form = array_joining.stack(products if last else products[::-1])
    return array_shape.reshape(transpose(x, places), form), free_sizes


def _dynamic_tensordot(a: Tensor, b: Tensor, axes: Any, scope: str) -> Tensor:
    """`tensordot` whose ranks or axes are known only at run time."""
    if isinstance(axes, Tensor):
        of_a, of_b = _dynamic_pair(a, axes)
    elif isinstance(axes, (int, np.integer)):
        if axes < 0:
            raise ValueError("'axes' must be at least 0.")
        count = convert_to_tensor(int(axes), dtypes.int32)
        of_a, of_b = array_filling.range(array_shape.rank(a) - count, array_shape.rank(a)), array_filling.range(count)
    else:
        if len(axes) != 2:
            raise ValueError("'axes' must be an integer or have length 2.")
        of_a, of_b = (array_shape.reshape(convert_to_tensor(x, dtypes.int32), [-1]) for x in axes)
    left, rows = _dynamic_matrix(a, of_a, last=True)
    right, columns = _dynamic_matrix(b, of_b, last=False)
    result = array_shape.reshape(matmul(left, right), array_joining.concat([rows, columns], 0), name=scope)
    if not isinstance(axes, Tensor) and not isinstance(axes, (int, np.integer)):
        _note_shape(result, a, b, axes)
    return result


def _dynamic_pair(a: Tensor, axes: Tensor) -> tuple[Tensor, Tensor]:
    """Axes given as a tensor [2, n]."""
    pair = cast(axes, dtypes.int32)
    return getitem(pair, 0), getitem(pair, 1)


def _dynamic_matrix(x: Tensor, axes: Tensor, last: bool) -> tuple[Tensor, Tensor]:
    """``x`` as a matrix with the chosen axes last (or first), and the sizes of the other axes."""
    rank = array_shape.rank(x)
    chosen = where_v2(less(axes, 0), axes + rank, axes)
    free, _ = setdiff1d(array_filling.range(rank), chosen)
    sizes = array_shape.shape(x)
    free_sizes = gather(sizes, free)
    order = [free, chosen] if last else [chosen, free]
    totals = [reduce_prod(free_sizes), reduce_prod(gather(sizes, chosen))]
    moved = transpose(x, array_joining.concat(order, 0))
    return array_shape.reshape(moved, array_joining.stack(totals if last else totals[::-1])), free_sizes


def _note_shape(result: Tensor, a: Tensor, b: Tensor, axes: Any) -> None:
    """Sets the static shape of the result, as far as the operands' shapes and the axes are known."""
    if a.raw_shape is None or b.raw_shape is None or any(isinstance(x, Tensor) for x in axes):
        return
    of_a, of_b = _axes_pair(a, b, axes)
    own, other = a.raw_shape, b.raw_shape
    kept = [d for i, d in enumerate(own) if i not in of_a] + [d for i, d in enumerate(other) if i not in of_b]
    result.set_shape(kept)


def _axes_pair(a: Tensor, b: Tensor, axes: Any) -> tuple[list[int], list[int]]:
    assert a.raw_shape is not None
    if isinstance(axes, (int, np.integer)):
        if axes < 0:
            raise ValueError("'axes' must be at least 0.")
        if axes > len(a.raw_shape):
            raise ValueError(f"'axes' must not be larger than the number of dimensions of tensor {a}.")
        return list(range(len(a.raw_shape) - axes, len(a.raw_shape))), list(range(axes))
    if not isinstance(axes, (list, tuple, np.ndarray)) or len(axes) != 2:
        raise ValueError("'axes' must be an integer or have length 2.")
    of_a, of_b = _normal_axes(a, axes[0]), _normal_axes(b, axes[1])
    if len(of_a) != len(of_b):
        raise ValueError(f"Different number of contraction axes 'a' and 'b', {len(of_a)} != {len(of_b)}.")
    return of_a, of_b


# ---- einsum ---------------------------------------------------------------------------------


def _means_trace(term: str) -> bool:
    """Whether 1.15 takes the trace of the last two axes for this term alone: ``ii``, and also ``ijji``."""
    return term == term[::-1] and any(term.count(c) == 2 for c in term)


@export("tf.einsum", "tf.linalg.einsum")
def einsum(equation: str, *inputs: TensorLike, **kwargs: Any) -> Tensor:
    """A contraction in Einstein's notation, such as ``"ij,jk->ik"`` (``tf.einsum``).

    Raises:
      ValueError: for an equation that does not fit the inputs, and for an ellipsis of inputs of unknown rank.
      TypeError: for an unknown keyword.
    """
    name = kwargs.pop("name", None)
    if kwargs:
        raise TypeError(f"invalid keyword arguments for this function: {', '.join(sorted(kwargs))}")
    with name_scope(name, "einsum", list(inputs)):
        tensors = [convert_to_tensor(x) for x in inputs]
        terms, output = _parse(_without_ellipses(equation.replace(" ", ""), tensors), tensors)
        if "->" not in equation and len(terms) == 1 and _means_trace(terms[0]):
            return reduce_sum(matrix_diag_part(tensors[0]), [-1])
        for i, term in enumerate(terms):
            distinct = "".join(dict.fromkeys(term))
            if distinct != term:
                tensors[i] = einsum_op([tensors[i]], equation=f"{term}->{distinct}")
                terms[i] = distinct
        value, labels = tensors[0], terms[0]
        for i in range(1, len(tensors)):
            needed = set(output).union(*terms[i + 1 :])
            value, labels = _contract(value, labels, tensors[i], terms[i], needed)
        value, labels = _summed(value, labels, set(output))
        return _arranged(value, [labels.index(c) for c in output])


def _without_ellipses(equation: str, tensors: list[Tensor]) -> str:
    """The equation with letters in place of ``...``; axes of size 1 there are not broadcast."""
    if "..." not in equation:
        return equation
    if any(t.raw_shape is None for t in tensors):
        raise ValueError("Subscripts with ellipses need inputs of known ranks.")
    if "->" not in equation:
        labels = equation.replace(",", "").replace(".", "")
        equation += "->..." + "".join(sorted(c for c in set(labels) if labels.count(c) == 1))
    widths = [t.raw_shape for t in tensors]
    terms = equation.partition("->")[0].split(",")
    if "..." not in equation.partition("->")[2] and len(terms) == len(widths):
        # The sum includes the axes of the ellipsis.
        most = explicit(equation + "...", [len(w) for w in widths])  # type: ignore[arg-type]
        return f"{','.join(most[0])}->{equation.partition('->')[2]}"
    found, output, _ = explicit(equation, [len(w) for w in widths])  # type: ignore[arg-type]
    return f"{','.join(found)}->{output}"


def _parse(equation: str, tensors: list[Tensor]) -> tuple[list[str], str]:
    left, arrow, output = equation.partition("->")
    terms = left.split(",")
    if not all(term.isalpha() or not term for term in terms):
        raise ValueError(f"Indices have incorrect format: {equation}")
    if len(terms) != len(tensors):
        raise ValueError(f'Got {len(tensors)} arguments for equation "{equation}", expecting {len(terms)}')
    if not arrow:
        output = "".join(sorted(c for c in set(left) - {","} if left.count(c) == 1))
    for term, tensor in zip(terms, tensors):
        if tensor.raw_shape is not None and len(tensor.raw_shape) != len(term):
            raise ValueError(f"Subscript {term} does not fit an input of rank {len(tensor.raw_shape)}")
        if tensor.raw_shape is None:
            tensor.set_shape([None] * len(term))
    missing = set(output) - set(left)
    if missing:
        raise ValueError(f"Unknown output subscripts: {''.join(sorted(missing))}")
    return terms, output


def _summed(x: Tensor, labels: str, needed: set[str]) -> tuple[Tensor, str]:
    """``x`` summed over the axes that neither the output nor another term has."""
    gone = [i for i, c in enumerate(labels) if c not in needed]
    if not gone:
        return x, labels
    return reduce_sum(x, axis=gone), "".join(c for c in labels if c in needed)


def _contract(a: Tensor, of_a: str, b: Tensor, of_b: str, needed: set[str]) -> tuple[Tensor, str]:
    """Contracts two tensors by one batched matrix product; sums over labels that are not needed further."""
    a, of_a = _summed(a, of_a, needed | set(of_b))
    b, of_b = _summed(b, of_b, needed | set(of_a))
    batch = [c for c in of_a if c in of_b and c in needed]
    inner = [c for c in of_a if c in of_b and c not in needed]
    rows = [c for c in of_a if c not in of_b]
    columns = [c for c in of_b if c not in of_a]
    left = _batched(a, of_a, batch, rows, inner)
    right = _batched(b, of_b, batch, inner, columns)
    sizes = _sizes(a, [of_a.index(c) for c in batch + rows]) + _sizes(b, [of_b.index(c) for c in columns])
    return _ungrouped(matmul(left, right), sizes), "".join(batch + rows + columns)


def _batched(x: Tensor, labels: str, *groups: list[str]) -> Tensor:
    positions = [[labels.index(c) for c in group] for group in groups]
    return _grouped(x, positions if positions[0] else positions[1:])
