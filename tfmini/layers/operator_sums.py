"""Sums of linear operators, each an operator of the narrowest kind (private names of TensorFlow 1.15)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from tfmini.export import export, export_names
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.operation import Tensor
from tfmini.layers.diagonal_operators import LinearOperatorDiag, LinearOperatorIdentity, LinearOperatorScaledIdentity
from tfmini.layers.linear_operators import LinearOperator, LinearOperatorFullMatrix, LinearOperatorLowerTriangular
from tfmini.ops.array.filling import ones

_IDENTITIES = (LinearOperatorIdentity, LinearOperatorScaledIdentity)
_DIAGONALS = (*_IDENTITIES, LinearOperatorDiag)
_TRIANGLES = (*_DIAGONALS, LinearOperatorLowerTriangular)
_MATRICES = (*_TRIANGLES, LinearOperatorFullMatrix)


class OperatorSum:
    """Adds two operators of certain kinds.

    Attributes:
      kinds: the classes of operators that can be added.
    """

    kinds: ClassVar[tuple[type, ...]] = ()

    def can_add(self, op1: LinearOperator, op2: LinearOperator) -> bool:
        """Whether both are of its kinds."""
        return isinstance(op1, self.kinds) and isinstance(op2, self.kinds)

    def add(self, op1: LinearOperator, op2: LinearOperator, operator_name: str | None) -> LinearOperator:
        """Returns the sum; what is known of both is known of it."""
        definite = bool(op1.is_positive_definite and op2.is_positive_definite) or None
        known: dict[str, Any] = {
            "is_non_singular": definite,
            "is_self_adjoint": bool(op1.is_self_adjoint and op2.is_self_adjoint) or None,
            "is_positive_definite": definite,
        }
        with get_default_graph().name_scope(f"Add/{op1.name}__{op2.name}/") as scope:
            return self._sum(op1, op2, {**known, "name": operator_name or scope})

    def _sum(self, op1: LinearOperator, op2: LinearOperator, known: dict[str, Any]) -> LinearOperator:
        raise NotImplementedError


class IdentitySum(OperatorSum):
    kinds = _IDENTITIES

    def _sum(self, op1: Any, op2: Any, known: dict[str, Any]) -> LinearOperator:
        multiplier = _multiplier(op1) + _multiplier(op2)
        return LinearOperatorScaledIdentity(op1.range_dimension_tensor(), multiplier, **known)


class DiagonalSum(OperatorSum):
    kinds = _DIAGONALS

    def _sum(self, op1: Any, op2: Any, known: dict[str, Any]) -> LinearOperator:
        return LinearOperatorDiag(op1.diag_part() + op2.diag_part(), **known)


class TriangleSum(OperatorSum):
    kinds = _TRIANGLES

    def _sum(self, op1: Any, op2: Any, known: dict[str, Any]) -> LinearOperator:
        return LinearOperatorLowerTriangular(_dense_sum(op1, op2), **known)


class MatrixSum(OperatorSum):
    kinds = (LinearOperator,)

    def _sum(self, op1: Any, op2: Any, known: dict[str, Any]) -> LinearOperator:
        return LinearOperatorFullMatrix(_dense_sum(op1, op2), **known)


_AddAndReturnScaledIdentity, _AddAndReturnDiag = IdentitySum, DiagonalSum
_AddAndReturnTriL, _AddAndReturnMatrix = TriangleSum, MatrixSum
_DEFAULT_ADDITION_TIERS: list[list[OperatorSum]] = [[IdentitySum()], [DiagonalSum()], [TriangleSum()], [MatrixSum()]]
export_names(
    "tensorflow.python.ops.linalg.linear_operator_addition",
    "_AddAndReturnScaledIdentity _AddAndReturnDiag _AddAndReturnTriL _AddAndReturnMatrix _DEFAULT_ADDITION_TIERS",
)


@export("tensorflow.python.ops.linalg.linear_operator_addition.add_operators")
def add_operators(
    operators: Sequence[LinearOperator],
    operator_name: str | None = None,
    addition_tiers: Sequence[Sequence[OperatorSum]] | None = None,
    name: str | None = None,
) -> list[LinearOperator]:
    """Adds operators as far as the tiers go, so that diagonals stay diagonals as long as they can.

    Args:
      operators: at least one, of equal size and dtype.
      operator_name: the name of each sum; None makes one of the names of its parts.
      addition_tiers: lists of objects that add two operators, tried one list after the other; None adds identities,
        then diagonals, then triangles, then all.
      name: a name scope of the ops.

    Returns:
      The sums and what could not be added; one operator with the default tiers.

    Raises:
      ValueError: for no operators, or for different sizes.
      TypeError: for an operator that is no identity, diagonal, triangle or full matrix.
    """
    left = list(operators)[::-1]
    _check(left)
    with get_default_graph().name_scope(name or "add_operators"):
        for tier in addition_tiers or _DEFAULT_ADDITION_TIERS:
            left = _add_in_tier(left, tier, operator_name)
    return left


def _add_in_tier(waiting: list[Any], tier: Sequence[OperatorSum], operator_name: str | None) -> list[Any]:
    """What is left when a tier has added all that it can, in the order in which it was given up."""
    left = []
    while waiting:
        last = waiting.pop()
        latest_first = range(len(waiting) - 1, -1, -1)
        pairs = ((i, adder) for i in latest_first for adder in tier if adder.can_add(last, waiting[i]))
        found = next(pairs, None)
        if found is None:
            left.append(last)
        else:
            waiting.append(found[1].add(last, waiting.pop(found[0]), operator_name))
    return left


def _check(operators: list[LinearOperator]) -> None:
    if not operators:
        raise ValueError(f"Argument 'operators' must contain at least one operator.  Found: {operators}")
    for operator in operators if len(operators) > 1 else ():
        if not isinstance(operator, _MATRICES):
            raise TypeError(f"Operator type unknown: {operator}; give identities, diagonals, triangles or matrices.")
    sizes = {(operator.domain_dimension.value, operator.range_dimension.value) for operator in operators}
    if len({domain for domain, _ in sizes} - {None}) > 1 or len({rows for _, rows in sizes} - {None}) > 1:
        raise ValueError(
            "Operators must have the same domain dimension. "
            f"Found: {[(operator.name, operator.domain_dimension.value) for operator in operators]}"
        )


def _multiplier(identity: Any) -> Tensor:
    if isinstance(identity, LinearOperatorScaledIdentity):
        return identity.multiplier
    return ones(identity.batch_shape_tensor(), identity.dtype)


def _dense_sum(op1: Any, op2: Any) -> Tensor:
    """The sum as a matrix: the plainer of the two is added to the other's matrix."""
    plain, full = (op1, op2) if isinstance(op1, _DIAGONALS) else (op2, op1)
    return plain.add_to_tensor(full.to_dense())
