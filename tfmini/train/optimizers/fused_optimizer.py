"""Optimizers whose whole update of a variable is one op, such as ``ApplyAdagrad``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tfmini.graph.conversion import IndexedSlices
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.registry import OpHandle
from tfmini.ops.casting import cast
from tfmini.train.optimizer import Optimizer, is_resource, state_of


class UpdateOps(NamedTuple):
    """The four forms of one update op."""

    dense: OpHandle
    resource_dense: OpHandle
    sparse: OpHandle | None = None
    resource_sparse: OpHandle | None = None


class FusedOptimizer(Optimizer):
    """An optimizer that describes its update op rather than building it four times.

    A subclass fills ``_hyper`` with its hyper-parameters (name of the tensor -> value, in the
    order in which the tensors are made) and overrides `_ops` and `_operands`.
    """

    def __init__(self, use_locking: bool, name: str, hyper: Mapping[str, Any]) -> None:
        super().__init__(use_locking, name)
        self._hyper = dict(hyper)
        self._tensors: dict[str, Tensor] = {}

    def _ops(self) -> UpdateOps:
        """The update ops."""
        raise NotImplementedError()

    def _operands(self, var: Any) -> dict[str, Any]:
        """Input name -> slot name or tensor, for all inputs but the variable, the gradient and the indices."""
        raise NotImplementedError()

    def _attrs(self) -> dict[str, Any]:
        """Attrs of the update op besides ``use_locking``."""
        return {}

    def _prepare(self) -> None:
        self._tensors = {name: self._hyper_parameter(value, name) for name, value in self._hyper.items()}

    def _fused_update(self, handle: OpHandle | None, var: Any, **gradient: Any) -> Operation:
        if handle is None:
            raise NotImplementedError(
                f"{type(self).__name__} has no update for the sparse gradient of {var.op.name!r}; make it dense by"
                " tf.convert_to_tensor(gradient)."
            )
        inputs: dict[str, Any] = {"var": state_of(var), **gradient}
        dtype = var.dtype.base_dtype
        for name, operand in self._operands(var).items():
            if isinstance(operand, str):
                inputs[name] = state_of(self.get_slot(var, operand))
            else:
                inputs[name] = operand if operand.dtype.base_dtype.is_integer else cast(operand, dtype)
        result = handle(**inputs, use_locking=self._use_locking, **self._attrs())
        return result if is_resource(var) else result.op  # type: ignore[no-any-return]

    def _dense_gradient(self, grad: Tensor) -> dict[str, Tensor]:
        return {"grad": grad}

    def _apply_dense(self, grad: Tensor, var: Any) -> Operation:
        return self._fused_update(self._ops().dense, var, **self._dense_gradient(grad))

    def _resource_apply_dense(self, grad: Tensor, handle: Any) -> Operation:
        return self._fused_update(self._ops().resource_dense, handle, **self._dense_gradient(grad))

    def _apply_sparse(self, grad: IndexedSlices, var: Any) -> Operation:
        return self._fused_update(self._ops().sparse, var, grad=grad.values, indices=grad.indices)

    def _resource_apply_sparse(self, grad: Tensor, handle: Any, indices: Tensor) -> Operation:
        return self._fused_update(self._ops().resource_sparse, handle, grad=grad, indices=indices)
