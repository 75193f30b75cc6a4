"""The op ``Einsum``: contractions, diagonals and ellipses in one kernel.

``tf.einsum`` uses matrix products (see `contraction`), which are faster. It uses this op only for
equations with a repeated label in one term, which matrix products cannot express.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfmini.graph.families import Operation, Tensor, convert_to_tensor, op
from tfmini.ops.array.filling import ones
from tfmini.ops.array.joining import stack
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.array.shape import shape
from tfmini.ops.math.elementwise import conjugate
from tfmini.ops.math.reductions import sum_op
from tfmini.shapes import RawShape, merge_dims

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
