"""Optimizers of ``tf.keras``: TensorFlow's defaults, schedules of learning rates, and gradients from outside."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from types import ModuleType, SimpleNamespace
from typing import Any

from tfmini import dtypes
from tfmini.compat.tf_keras import state
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.scoping import control_dependencies, name_scope
from tfmini.ops.array.identity import cast
from tfmini.ops.control import group
from tfmini.ops.gradients import gradients
from tfmini.ops.math.sums import clip_by_norm, clip_by_value
from tfmini.ops.variables.assignment import assign_add
from tfmini.train.optimizers import learning_rate_decay as learning_rates


def apply(root: ModuleType) -> None:
    """Changes the optimizers of the copy."""
    optimizers = root.optimizers
    base = optimizers.Optimizer
    base.get_gradients = _get_gradients
    base.apply_gradients, base.minimize = _apply_gradients, _minimize
    for cls in base.__subclasses__():
        if cls is not optimizers.TFOptimizer:
            cls.__init__ = _of_schedules(cls.__init__)
            cls.get_updates = _scheduled(cls.get_updates)
    _change_defaults(optimizers)
    optimizers.schedules = SimpleNamespace(
        LearningRateSchedule=LearningRateSchedule, ExponentialDecay=ExponentialDecay,
        InverseTimeDecay=InverseTimeDecay, PiecewiseConstantDecay=PiecewiseConstantDecay,
        PolynomialDecay=PolynomialDecay,
    )  # fmt: skip


def _get_gradients(self: Any, loss: Any, params: Any) -> list[Any]:
    """The gradients, each clipped by itself; Keras clips by the norm of all."""
    given = self.__dict__.pop("_given_gradients", None)
    grads = gradients(loss, params, colocate_gradients_with_ops=True) if given is None else given
    if any(grad is None for grad in grads):
        names = [param.name for grad, param in zip(grads, params) if grad is None]
        raise ValueError(f"Variables have `None` for gradient: {names}. All ops between them and the loss must be"
                         " differentiable: K.argmax, K.round and K.eval are not.")  # fmt: skip
    if getattr(self, "clipnorm", None):
        grads = [clip_by_norm(grad, self.clipnorm) for grad in grads]
    if getattr(self, "clipvalue", None):
        grads = [clip_by_value(grad, -self.clipvalue, self.clipvalue) for grad in grads]
    return grads


def _apply_gradients(self: Any, grads_and_vars: Iterable[tuple[Any, Any]], name: str | None = None) -> Any:
    """An op that changes variables by gradients (``tf.keras.optimizers.Optimizer.apply_gradients``)."""
    pairs = [(grad, var) for grad, var in grads_and_vars if grad is not None]
    if not pairs:
        raise ValueError("No gradients provided for any variable.")
    self._given_gradients = [convert_to_tensor(grad) for grad, _ in pairs]
    return group(*self.get_updates(loss=None, params=[var for _, var in pairs]), name=name)


def _minimize(self: Any, loss: Any, var_list: Any, grad_loss: Any = None, name: str | None = None) -> Any:
    """An op that makes a loss smaller; the loss may be a function of nothing."""
    loss = loss() if callable(loss) else loss
    variables = var_list() if callable(var_list) else var_list
    grads = gradients(loss, variables, None if grad_loss is None else [grad_loss])
    return self.apply_gradients(zip(grads, variables), name)


def _of_schedules(init: Callable[..., None]) -> Callable[..., None]:
    """An ``__init__`` that takes a schedule for the learning rate; its variables are not trained."""

    @functools.wraps(init)
    def init_with_schedule(self: Any, *args: Any, **kwargs: Any) -> None:
        rate = args[0] if args else kwargs.get("learning_rate", kwargs.get("lr"))
        schedule = rate if isinstance(rate, LearningRateSchedule) else None
        if schedule is not None:
            args = (0.0, *args[1:]) if args else args
            kwargs = kwargs if args else {**kwargs, "learning_rate": 0.0}
            kwargs.pop("lr", None)
        with state.variables_train(False):
            init(self, *args, **kwargs)
        if schedule is not None:
            self._schedule = schedule

    return init_with_schedule


def _scheduled(get_updates: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(get_updates)
    def get_scheduled_updates(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = self.learning_rate
        if hasattr(self, "_schedule"):
            self.learning_rate = self._schedule(self.iterations)
        try:
            with state.variables_train(False):
                updates = get_updates(self, *args, **kwargs)
            with control_dependencies([x[0] if isinstance(x, tuple) else x for x in updates]):
                updates.append(assign_add(self.iterations, 1))
            return updates
        finally:
            self.learning_rate = before

    return get_scheduled_updates


def _change_defaults(optimizers: Any) -> None:
    """Gives two classes the learning rates of TensorFlow, and Adagrad its first sum of squares."""
    adadelta, adagrad = optimizers.Adadelta.__init__, optimizers.Adagrad.__init__
    get_updates = optimizers.Adagrad.get_updates

    def init_adadelta(self: Any, learning_rate: Any = 0.001, rho: float = 0.95, **kwargs: Any) -> None:
        adadelta(self, kwargs.pop("lr", learning_rate), rho, **kwargs)

    def init_adagrad(
        self: Any, learning_rate: Any = 0.001, initial_accumulator_value: float = 0.1, **kwargs: Any
    ) -> None:
        adagrad(self, kwargs.pop("lr", learning_rate), **kwargs)
        self.initial_accumulator_value = initial_accumulator_value

    def get_adagrad_updates(self: Any, *args: Any, **kwargs: Any) -> Any:
        backend = optimizers.K
        zeros = backend.zeros
        first = self.initial_accumulator_value
        backend.zeros = lambda shape, **options: backend.constant_variable(first, shape, **options)
        try:
            return get_updates(self, *args, **kwargs)
        finally:
            backend.zeros = zeros

    import numpy as np

    optimizers.K.constant_variable = lambda value, shape, dtype=None, name=None: optimizers.K.variable(
        np.full(shape, value), dtype=dtype, name=name
    )
    optimizers.Adadelta.__init__, optimizers.Adagrad.__init__ = init_adadelta, init_adagrad
    optimizers.Adagrad.get_updates = get_adagrad_updates


# ---- ``tf.keras.optimizers.schedules`` -------------------------------------------------------------------------------


class LearningRateSchedule:
    """A learning rate as a function of the step; ``get_config`` gives the arguments that made it."""

    def __init__(self, **config: Any) -> None:
        self._config = config

    def __call__(self, step: Any) -> Any:
        """The rate at a step, a float tensor."""
        raise NotImplementedError("Learning rate schedule must override __call__")

    def get_config(self) -> dict[str, Any]:
        """The arguments that made it."""
        return dict(self._config)

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> LearningRateSchedule:
        """Makes it again."""
        return cls(**config)


class ExponentialDecay(LearningRateSchedule):
    """``initial_learning_rate * decay_rate ** (step / decay_steps)``; with ``staircase`` in whole powers."""

    def __init__(
        self, initial_learning_rate: float, decay_steps: int, decay_rate: float, staircase: bool = False,
        name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            initial_learning_rate=initial_learning_rate, decay_steps=decay_steps, decay_rate=decay_rate,
            staircase=staircase, name=name,
        )  # fmt: skip

    def __call__(self, step: Any) -> Any:
        c = self._config
        return learning_rates.exponential_decay(
            c["initial_learning_rate"], step, c["decay_steps"], c["decay_rate"], c["staircase"], c["name"]
        )


class InverseTimeDecay(ExponentialDecay):
    """``initial_learning_rate / (1 + decay_rate * step / decay_steps)``."""

    def __call__(self, step: Any) -> Any:
        c = self._config
        return learning_rates.inverse_time_decay(
            c["initial_learning_rate"], step, c["decay_steps"], c["decay_rate"], c["staircase"], c["name"]
        )


class PiecewiseConstantDecay(LearningRateSchedule):
    """``values[i]`` up to and including ``boundaries[i]``, the last value after all."""

    def __init__(self, boundaries: list[Any], values: list[Any], name: str | None = None) -> None:
        if len(boundaries) != len(values) - 1:
            raise ValueError("The length of boundaries should be 1 less than the length of values")
        super().__init__(boundaries=boundaries, values=values, name=name)

    def __call__(self, step: Any) -> Any:
        with name_scope(self._config["name"] or "PiecewiseConstant"):
            step = cast(convert_to_tensor(step), dtypes.float32)
            boundaries = [float(boundary) for boundary in self._config["boundaries"]]
            return learning_rates.piecewise_constant(step, boundaries, self._config["values"])


class PolynomialDecay(LearningRateSchedule):
    """From ``initial_learning_rate`` to ``end_learning_rate`` in ``decay_steps``, along a power."""

    def __init__(
        self, initial_learning_rate: float, decay_steps: int, end_learning_rate: float = 0.0001, power: float = 1.0,
        cycle: bool = False, name: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            initial_learning_rate=initial_learning_rate, decay_steps=decay_steps,
            end_learning_rate=end_learning_rate, power=power, cycle=cycle, name=name,
        )  # fmt: skip

    def __call__(self, step: Any) -> Any:
        c = self._config
        return learning_rates.polynomial_decay(
            c["initial_learning_rate"], step, c["decay_steps"], c["end_learning_rate"], c["power"], c["cycle"],
            c["name"],
        )  # fmt: skip
