"""The normalizing layers of ``tf.keras``; batch normalization computes what that of `tf.layers` does."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tfmini.compat.tf_keras import state
from tfmini.graph.operation import Tensor
from tfmini.layers.normalization import BatchNormalizer, Renorm
from tfmini.ops.math.comparison import logical_and
from tfmini.ops.math.reductions import reduce_mean
from tfmini.ops.math.unary import rsqrt, square
from tfmini.shapes import TensorShape

_log = logging.getLogger("tensorflow")
_VARIABLES = ("beta", "gamma", "moving_mean", "moving_variance")


def place(root: ModuleType) -> None:
    """Puts the classes where TensorFlow has them: `BatchNormalization` of the first version is the default."""
    layers = root.layers
    second: Any = ModuleType(f"{layers.__name__}.normalization_v2")
    layers.normalization_v2 = second
    layers.BatchNormalizationV1 = layers.normalization.BatchNormalization = layers.BatchNormalization
    layers.BatchNormalizationV2 = second.BatchNormalization = layers.BatchNormalization.__base__
    layers.normalization.LayerNormalization = layers.LayerNormalization


class _BatchNormalization(BatchNormalizer):
    """What the layers of both versions have beside Keras's `Layer`."""

    name: str
    trainable: bool
    add_update: Callable[..., None]
    _second = True  # whether it is that of TensorFlow 2
    _trains: Any = None  # a variable that says whether it is trained

    def __init__(
        self, axis: Any = -1, momentum: float = 0.99, epsilon: float = 1e-3, center: bool = True,
        scale: bool = True, beta_initializer: Any = "zeros", gamma_initializer: Any = "ones",
        moving_mean_initializer: Any = "zeros", moving_variance_initializer: Any = "ones",
        beta_regularizer: Any = None, gamma_regularizer: Any = None, beta_constraint: Any = None,
        gamma_constraint: Any = None, renorm: bool = False, renorm_clipping: Any = None,
        renorm_momentum: float = 0.99, fused: bool | None = None, trainable: bool = True,
        virtual_batch_size: int | None = None, adjustment: Any = None, name: str | None = None, **kwargs: Any,
    ) -> None:  # fmt: skip
        super().__init__(name=name, trainable=trainable, **kwargs)  # type: ignore[call-arg]
        if not isinstance(axis, (int, list)):
            raise TypeError(f"axis must be int or list, type given: {type(axis)}")
        self.axis = axis if isinstance(axis, int) else list(axis)
        self.momentum, self.epsilon, self.center, self.scale = momentum, epsilon, center, scale
        made = {
            "beta_initializer": beta_initializer, "gamma_initializer": gamma_initializer,
            "moving_mean_initializer": moving_mean_initializer,
            "moving_variance_initializer": moving_variance_initializer,
            "beta_regularizer": beta_regularizer, "gamma_regularizer": gamma_regularizer,
            "beta_constraint": beta_constraint, "gamma_constraint": gamma_constraint,
        }  # fmt: skip
        for key, value in made.items():
            setattr(self, key, getattr(state.library_root(), f"{key.rpartition('_')[2]}s").get(value))
        self.virtual_batch_size, self.adjustment, self.renorm = virtual_batch_size, adjustment, renorm
        self.renorm_clipping, self.renorm_momentum = renorm_clipping, renorm_momentum
        self._renorm = Renorm(renorm_clipping, renorm_momentum, epsilon) if renorm else None
        self.supports_masking = True
        self.fused = self._asked(fused)

    def _asked(self, fused: bool | None) -> bool | None:
        """Whether to use the fused op; None: if the inputs fit."""
        if not self._second:
            return fused is not False
        reason = self._reason()
        if fused and reason:
            raise ValueError(f"Passing fused=True is unsupported: {reason}.")
        return False if reason else fused

    def _reason(self) -> str:
        """Why the fused op cannot be used: fused=True and another argument; empty if it can."""
        axes = self.axis if isinstance(self.axis, list) else [self.axis]
        if self.renorm:
            return "fused and renorm=True"
        if len(axes) > 1 or axes[0] not in (-3, -1, 1, 3):
            return "fused is only supported when axis is 1 or 3"
        if self.virtual_batch_size is not None:
            return "fused and virtual_batch_size"
        return "" if self.adjustment is None else "fused and adjustment"

    def build(self, input_shape: Any) -> None:
        self.axis = self.axis if isinstance(self.axis, list) else [self.axis]
        BatchNormalizer.build(self, TensorShape(input_shape))
        self.input_spec = state.library_root().engine.InputSpec(ndim=self.input_spec.ndim, axes=self.input_spec.axes)
        self.built = True

    def _fuses(self, rank: int, axes: list[int]) -> bool:
        if self._second and self.fused and rank != 4:
            raise ValueError("Batch normalization layers with fused=True only support 4D input tensors.")
        return super()._fuses(rank, axes)

    def call(self, inputs: Any, training: Any = None) -> Any:
        phase = state.learning_phase() if training is None else training
        outputs, updates = self._in_batches(inputs, self._if_trained(phase) if self._second else phase)
        self.add_update(updates, inputs)
        return outputs

    def _if_trained(self, phase: Any) -> Any:
        """The phase: training only if the layer is trained, which may change after the call."""
        if not isinstance(phase, Tensor) and not phase:
            return False
        if self._trains is None:
            with state.variables_train(False):
                made = state.library_root().backend.variable(
                    self.trainable, dtype="bool", name=f"{self.name}_trainable"
                )
            object.__setattr__(self, "_trains", made)  # it is no weight
        return logical_and(phase if isinstance(phase, Tensor) else bool(phase), self._trains)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "trainable" and self._trains is not None:
            state.library_root().backend.set_value(self._trains, value)

    def compute_output_shape(self, input_shape: Any) -> Any:
        return input_shape

    def get_config(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("axis", "momentum", "epsilon", "center", "scale")}
        for name, kind in itertools.product(_VARIABLES, ("initializer", "regularizer", "constraint")):
            if hasattr(self, f"{name}_{kind}"):
                own[f"{name}_{kind}"] = getattr(state.library_root(), f"{kind}s").serialize(
                    getattr(self, f"{name}_{kind}")
                )
        if self.renorm:
            own.update(renorm=True, renorm_clipping=self.renorm_clipping or {}, renorm_momentum=self.renorm_momentum)
        if self.virtual_batch_size is not None:
            own["virtual_batch_size"] = self.virtual_batch_size
        if self.adjustment is not None:
            _log.warning("The configuration of %s leaves out its `adjustment`, which is a function.", self.name)
        return {**super().get_config(), **own}  # type: ignore[misc]


def batch_normalization(root: ModuleType) -> list[type]:
    """`BatchNormalization` of the first version, whose base is that of the second."""
    base: Any = root.layers.Layer

    class BatchNormalization(_BatchNormalization, base):
        """Gives each channel of a batch mean 0 and deviation 1, or by moving averages, and then learned ones.

        With ``trainable = False`` it uses the averages in training, too.
        """

    class BatchNormalizationV1(BatchNormalization):
        """Gives each channel of a batch mean 0 and deviation 1, or by moving averages, and then learned ones."""

        _second = False

    BatchNormalization.__module__ = root.layers.__name__
    BatchNormalizationV1.__name__ = BatchNormalizationV1.__qualname__ = BatchNormalization.__name__
    return [BatchNormalizationV1]


def layer_normalization(root: ModuleType) -> list[type]:
    """`LayerNormalization`."""
    base: Any = root.layers.Layer

    class LayerNormalization(base):
        """Gives each example mean 0 and deviation 1 over some axes, and then learned ones."""

        def __init__(
            self, axis: Any = -1, epsilon: float = 1e-3, center: bool = True, scale: bool = True,
            beta_initializer: Any = "zeros", gamma_initializer: Any = "ones", beta_regularizer: Any = None,
            gamma_regularizer: Any = None, beta_constraint: Any = None, gamma_constraint: Any = None, **kwargs: Any,
        ) -> None:  # fmt: skip
            super().__init__(**kwargs)
            self.axis, self.epsilon, self.center, self.scale = axis, epsilon, center, scale
            if not all(isinstance(one, int) for one in (axis if isinstance(axis, (list, tuple)) else [axis])):
                raise ValueError(
                    f"Expected an int or a list/tuple of ints for the argument 'axis', but received: {axis}"
                )
            kinds = (root.initializers, root.regularizers, root.constraints)
            beta, gamma = (
                (beta_initializer, beta_regularizer, beta_constraint),
                (gamma_initializer, gamma_regularizer, gamma_constraint),
            )
            self._beta, self._gamma = ([k.get(x) for k, x in zip(kinds, given)] for given in (beta, gamma))
            self.supports_masking = True

        def build(self, input_shape: Any) -> None:
            rank = len(input_shape)
            axes = self.axis if isinstance(self.axis, (list, tuple)) else [self.axis]
            if any(not -rank <= axis < rank for axis in axes):
                raise ValueError(f"Invalid axis: {self.axis} of inputs with {rank} dimensions")
            if len({axis % rank for axis in axes}) < len(axes):
                raise ValueError(f"Duplicate axis: {self.axis}")
            self._axes = [axis % rank for axis in axes]
            self._broadcast = [int(input_shape[i]) if i in self._axes else 1 for i in range(rank)]
            shape = [int(input_shape[i]) for i in self._axes]
            self.gamma, self.beta = (
                self.add_weight(name, shape, initializer=i, regularizer=r, constraint=c) if wanted else None
                for name, wanted, (i, r, c) in (("gamma", self.scale, self._gamma), ("beta", self.center, self._beta))
            )
            super().build(input_shape)

        def call(self, inputs: Any) -> Any:
            mean = reduce_mean(inputs, self._axes, True)
            deviation = inputs - mean
            made = deviation * rsqrt(reduce_mean(square(deviation), self._axes, True) + self.epsilon)
            reshape = root.backend.reshape
            made = made if self.gamma is None else made * reshape(self.gamma, self._broadcast)
            return made if self.beta is None else made + reshape(self.beta, self._broadcast)

        def get_config(self) -> dict[str, Any]:
            own = {name: getattr(self, name) for name in ("axis", "epsilon", "center", "scale")}
            for name, (initializer, regularizer, constraint) in (("beta", self._beta), ("gamma", self._gamma)):
                own[f"{name}_initializer"] = root.initializers.serialize(initializer)
                own[f"{name}_regularizer"] = root.regularizers.serialize(regularizer)
                own[f"{name}_constraint"] = root.constraints.serialize(constraint)
            return {**super().get_config(), **own}

    return [LayerNormalization]
