"""Base class of optimizers that wrap another optimizer and use its slots."""

from __future__ import annotations

from typing import Any

from tfmini.graph.operation import Operation
from tfmini.train.optimizers.optimizer import Optimizer
from tfmini.train.optimizers.optimizer_inputs import GradAndVar


class OptimizerWrapper(Optimizer):
    """Forwards all methods to the wrapped optimizer ``opt``; subclasses override some of them."""

    def __init__(self, opt: Optimizer, use_locking: bool, name: str) -> None:
        super().__init__(use_locking, name)
        self._opt = opt

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[GradAndVar]:
        """`Optimizer.compute_gradients` of the wrapped optimizer."""
        return self._opt.compute_gradients(*args, **kwargs)

    def apply_gradients(self, *args: Any, **kwargs: Any) -> Operation:
        """`Optimizer.apply_gradients` of the wrapped optimizer."""
        return self._opt.apply_gradients(*args, **kwargs)

    def get_slot(self, *args: Any, **kwargs: Any) -> Any:
        """`Optimizer.get_slot` of the wrapped optimizer."""
        return self._opt.get_slot(*args, **kwargs)

    def get_slot_names(self, *args: Any, **kwargs: Any) -> list[str]:
        """`Optimizer.get_slot_names` of the wrapped optimizer."""
        return self._opt.get_slot_names(*args, **kwargs)

    def variables(self) -> list[Any]:
        """`Optimizer.variables` of the wrapped optimizer."""
        return self._opt.variables()
