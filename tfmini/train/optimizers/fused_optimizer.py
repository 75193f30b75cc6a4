"""Base class of optimizers that update a variable with one op, such as ``ApplyAdagrad``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfmini.graph.conversion import IndexedSlices
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.registry import OpHandle
from tfmini.ops.array.casting import cast
from tfmini.ops.training.update_ops import UpdateOps
from tfmini.train.optimizers.optimizer import Optimizer
from tfmini.train.optimizers.optimizer_inputs import is_resource, state_of


class FusedOptimizer(Optimizer):
    """Derives the four kinds of update (dense or sparse, reference or resource) from one description.

    A subclass sets ``_ops`` (its update ops), passes ``hyper`` (name of a hyper-parameter's tensor -> value, in the
    order of creation) to the constructor, and overrides `_operands`.
    """

    _ops: UpdateOps

    def __init__(self, use_locking: bool, name: str, hyper: Mapping[str, Any]) -> None:
        super().__init__(use_locking, name)
        self._hyper = dict(hyper)
        self._tensors: dict[str, Tensor] = {}

    def _operands(self, var: Any) -> dict[str, Any]:
        """Input name -> slot name or tensor, for all inputs except variable, gradient and indices."""
        raise NotImplementedError()

    def _attrs(self) -> dict[str, Any]:
        """Attrs of the update op besides ``use_locking``."""
        return {}

    def _prepare(self) -> None:
        self._tensors = {name: self._hyper_parameter(value, name) for name, value in self._hyper.items()}

    def _fused_update(self, handle: OpHandle[Any] | None, var: Any, **gradient: Any) -> Operation:
        if handle is None:
            raise NotImplementedError(
                f"{type(self).__name__} has no update for the sparse gradient of {var.op.name!r}; make it dense with"
                " tf.convert_to_tensor(gradient)."
            )
        inputs: dict[str, Any] = {"var": state_of(var), **gradient}
        dtype = var.dtype.base_dtype
        for name, operand in self._operands(var).items():
            if isinstance(operand, str):
                inputs[name] = state_of(self.get_slot(var, operand))
            else:
                inputs[name] = operand if name == "global_step" else cast(operand, dtype)
        result = handle(**inputs, use_locking=self._use_locking, **self._attrs())
        return result if is_resource(var) else result.op  # type: ignore[no-any-return]

    def _dense_gradient(self, grad: Tensor) -> dict[str, Tensor]:
        return {"grad": grad}

    def _apply_dense(self, grad: Tensor, var: Any) -> Operation:
        return self._fused_update(self._ops.dense, var, **self._dense_gradient(grad))

    def _resource_apply_dense(self, grad: Tensor, handle: Any) -> Operation:
        return self._fused_update(self._ops.resource_dense, handle, **self._dense_gradient(grad))

    def _apply_sparse(self, grad: IndexedSlices, var: Any) -> Operation:
        return self._fused_update(self._ops.sparse, var, grad=grad.values, indices=grad.indices)

    def _resource_apply_sparse(self, grad: Tensor, handle: Any, indices: Tensor) -> Operation:
        return self._fused_update(self._ops.resource_sparse, handle, grad=grad, indices=indices)
