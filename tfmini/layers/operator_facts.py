"""What is known of a linear operator before anything is computed: its name, dtype, shape and hints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tfmini import dtypes
from tfmini.core_types import DTypeLike
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import name_scope
from tfmini.ops.array.shape import shape as shape_of
from tfmini.shapes import Dimension, TensorShape


class OperatorFacts:
    """The base of `LinearOperator`, which has the arguments' meanings.

    Raises:
      ValueError: what is said of the matrix contradicts itself.
    """

    def __init__(
        self, dtype: DTypeLike, graph_parents: Sequence[Any] | None = None, is_non_singular: bool | None = None,
        is_self_adjoint: bool | None = None, is_positive_definite: bool | None = None, is_square: bool | None = None,
        name: str | None = None,
    ) -> None:  # fmt: skip
        if is_positive_definite and is_non_singular is False:
            raise ValueError("A positive definite operator is always non-singular.")
        is_non_singular = True if is_positive_definite else is_non_singular
        for holds, kind in ((is_non_singular, "non-singular"), (is_self_adjoint, "self-adjoint")):
            if holds and is_square is False:
                raise ValueError(f"A {kind} operator is always square.")
            is_square = True if holds else is_square
        self._dtype = dtypes.as_dtype(dtype).base_dtype
        self._graph_parents = list(graph_parents or ())
        self._is_non_singular, self._is_self_adjoint = is_non_singular, is_self_adjoint
        self._is_positive_definite, self._is_square = is_positive_definite, is_square
        self._name = name or type(self).__name__

    # ---- facts ----------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The name of the operator and of the scopes of its ops."""
        return self._name

    @property
    def dtype(self) -> dtypes.DType:
        return self._dtype

    @property
    def graph_parents(self) -> list[Any]:
        """The tensors that make the operator."""
        return self._graph_parents

    @property
    def is_non_singular(self) -> bool | None:
        return self._is_non_singular

    @property
    def is_self_adjoint(self) -> bool | None:
        return self._is_self_adjoint

    @property
    def is_positive_definite(self) -> bool | None:
        return self._is_positive_definite

    @property
    def is_square(self) -> bool | None:
        """Whether the matrix is square, by its shape if nobody said so."""
        same = None
        if None not in (self.domain_dimension.value, self.range_dimension.value):
            same = self.domain_dimension.value == self.range_dimension.value
        if self._is_square is False and same:
            raise ValueError("User set is_square hint to False, but the operator was square.")
        return same if self._is_square is None else self._is_square

    @property
    def shape(self) -> TensorShape:
        """The shape ``[…, m, n]``, as far as it is known."""
        return TensorShape(self._shape())

    @property
    def batch_shape(self) -> TensorShape:
        return TensorShape(self.shape[:-2])

    @property
    def domain_dimension(self) -> Dimension:
        """The number of columns."""
        shape = self.shape
        return Dimension(None if shape.ndims is None else shape.as_list()[-1])

    @property
    def range_dimension(self) -> Dimension:
        """The number of rows."""
        shape = self.shape
        return Dimension(None if shape.ndims is None else shape.as_list()[-2])

    @property
    def tensor_rank(self) -> int | None:
        """The rank of the batch of matrices, if it is known."""
        return self.shape.ndims

    def shape_tensor(self, name: str = "shape_tensor") -> Tensor:
        """The shape, an int32 vector."""
        with self._name_scope(name):
            if self.shape.is_fully_defined():
                return convert_to_tensor(self.shape.as_list(), dtypes.int32)
            return convert_to_tensor(self._shape_tensor(), dtypes.int32)

    def batch_shape_tensor(self, name: str = "batch_shape_tensor") -> Tensor:
        """The shape of the batch, an int32 vector."""
        with self._name_scope(name):
            if self.batch_shape.is_fully_defined():
                return convert_to_tensor(self.batch_shape.as_list(), dtypes.int32, name="batch_shape")
            return self.shape_tensor()[:-2]

    def domain_dimension_tensor(self, name: str = "domain_dimension_tensor") -> Tensor:
        """The number of columns, an int32 scalar."""
        with self._name_scope(name):
            known = self.domain_dimension.value
            return self.shape_tensor()[-1] if known is None else convert_to_tensor(known, dtypes.int32)

    def range_dimension_tensor(self, name: str = "range_dimension_tensor") -> Tensor:
        """The number of rows, an int32 scalar."""
        with self._name_scope(name):
            known = self.range_dimension.value
            return self.shape_tensor()[-2] if known is None else convert_to_tensor(known, dtypes.int32)

    def tensor_rank_tensor(self, name: str = "tensor_rank_tensor") -> Tensor:
        """The rank of the batch of matrices, an int32 scalar."""
        with self._name_scope(name):
            known = self.tensor_rank
            return shape_of(self.shape_tensor())[0] if known is None else convert_to_tensor(known, dtypes.int32)

    @contextmanager
    def _name_scope(self, name: str | None = None) -> Iterator[str]:
        """The name scope of a method; subclasses of programs use it."""
        with name_scope(self._name if name is None else f"{self._name}/{name}") as scope:
            yield scope

    def _shape(self) -> Any:
        raise NotImplementedError("_shape is not implemented.")

    def _shape_tensor(self) -> Any:
        raise NotImplementedError("_shape_tensor is not implemented.")
