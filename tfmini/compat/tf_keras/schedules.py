"""``tf.keras.optimizers.schedules``: learning rates as functions of the step."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tfmini import dtypes
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.scoping import name_scope
from tfmini.ops.array.identity import cast
from tfmini.train.optimizers import learning_rate_decay as learning_rates


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


def _as_in_train(name: str, decay: Callable[..., Any]) -> Any:
    """A schedule with the arguments of a function of ``tf.train``, but for the step."""
    first, _, *others = inspect.signature(decay).parameters.values()
    signature = inspect.Signature([first.replace(name="initial_learning_rate"), *others])

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        LearningRateSchedule.__init__(self, **given.arguments)

    def __call__(self: Any, step: Any) -> Any:
        arguments = self.get_config()
        return decay(arguments.pop("initial_learning_rate"), step, **arguments)

    own = {"__init__": __init__, "__call__": __call__, "__module__": __name__, "__doc__": decay.__doc__}
    return type(name, (LearningRateSchedule,), own)


CosineDecay = _as_in_train("CosineDecay", learning_rates.cosine_decay)
CosineDecayRestarts = _as_in_train("CosineDecayRestarts", learning_rates.cosine_decay_restarts)
LinearCosineDecay = _as_in_train("LinearCosineDecay", learning_rates.linear_cosine_decay)
NoisyLinearCosineDecay = _as_in_train("NoisyLinearCosineDecay", learning_rates.noisy_linear_cosine_decay)

_CLASSES = (
    LearningRateSchedule, ExponentialDecay, InverseTimeDecay, PiecewiseConstantDecay, PolynomialDecay, CosineDecay,
    CosineDecayRestarts, LinearCosineDecay, NoisyLinearCosineDecay,
)  # fmt: skip


def serialize(learning_rate_schedule: LearningRateSchedule) -> dict[str, Any]:
    """A schedule as JSON has it."""
    return {"class_name": type(learning_rate_schedule).__name__, "config": learning_rate_schedule.get_config()}


def deserialize(config: dict[str, Any], custom_objects: dict[str, Any] | None = None) -> Any:
    """Makes the schedule of a configuration; ``custom_objects`` are classes of the program.

    Raises:
      ValueError: its class is unknown.
    """
    classes = {**{cls.__name__: cls for cls in _CLASSES}, **(custom_objects or {})}
    if config["class_name"] not in classes:
        raise ValueError(f"Unknown decay: {config['class_name']}; pass its class in custom_objects")
    return classes[config["class_name"]].from_config(config["config"])


def module(name: str) -> ModuleType:
    """The module of schedules."""
    made = ModuleType(name, __doc__)
    vars(made).update({cls.__name__: cls for cls in _CLASSES}, serialize=serialize, deserialize=deserialize)
    return made
