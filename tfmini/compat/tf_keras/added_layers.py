"""Layers of ``tf.keras`` that Keras 2.3 does not have."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from tfmini.compat.tf_keras import attention
from tfmini.estimator.column_layers import input_layer
from tfmini.graph.nest import flatten
from tfmini.ops.math.reductions import reduce_mean
from tfmini.ops.math.unary import rsqrt, square
from tfmini.ops.variables.scope import variable_scope
from tfmini.ops.variables.store import AUTO_REUSE


def apply(root: ModuleType) -> None:
    """Adds the layers to the copy."""
    layers = root.layers
    layers._lower_triangular_mask = attention.lower_triangular_mask
    for make in (_layer_normalization, _dense_features, attention.classes, _abstract_cell):
        for cls in make(root):
            cls.__module__ = layers.__name__
            setattr(layers, cls.__name__, cls)


def _layer_normalization(root: ModuleType) -> list[type]:
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
            self._beta = (beta_initializer, beta_regularizer, beta_constraint)
            self._gamma = (gamma_initializer, gamma_regularizer, gamma_constraint)
            self.supports_masking = True

        def build(self, input_shape: Any) -> None:
            rank = len(input_shape)
            axes = self.axis if isinstance(self.axis, (list, tuple)) else [self.axis]
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
                own[f"{name}_initializer"] = root.initializers.serialize(root.initializers.get(initializer))
                own[f"{name}_regularizer"] = root.regularizers.serialize(root.regularizers.get(regularizer))
                own[f"{name}_constraint"] = root.constraints.serialize(root.constraints.get(constraint))
            return {**super().get_config(), **own}

    return [LayerNormalization]


def _dense_features(root: ModuleType) -> list[type]:
    base: Any = root.layers.Layer

    class DenseFeatures(base):
        """A dictionary of features as one tensor, by dense feature columns."""

        def __init__(
            self, feature_columns: Any, trainable: bool = True, name: str | None = None, **kwargs: Any
        ) -> None:
            super().__init__(name=name, trainable=trainable, **kwargs)
            self.feature_columns = feature_columns
            self._keys: list[str] = []

        def __call__(self, features: dict[str, Any], **kwargs: Any) -> Any:
            if not isinstance(features, dict):
                raise ValueError(f"DenseFeatures takes a dictionary of features, not {features!r}.")
            self._keys = sorted(features)
            return super().__call__([features[key] for key in self._keys], **kwargs)

        def call(self, inputs: Any) -> Any:
            features = dict(zip(self._keys, inputs if isinstance(inputs, list) else [inputs]))
            made: dict[Any, Any] = {}
            with variable_scope(self.name, reuse=AUTO_REUSE):
                found = input_layer(features, self.feature_columns, trainable=self.trainable, cols_to_vars=made)
            known = [id(weight) for weight in self._trainable_weights]
            self._trainable_weights += [weight for weight in flatten(list(made.values())) if id(weight) not in known]
            return found

        def compute_output_shape(self, input_shape: Any) -> Any:
            return (None, None)

    return [DenseFeatures]


def _abstract_cell(root: ModuleType) -> list[type]:
    base: Any = root.layers.Layer

    class AbstractRNNCell(base):
        """What a cell of `RNN` has: ``call(input, states)``, ``state_size`` and ``output_size``."""

        @property
        def state_size(self) -> Any:
            """The sizes of the states."""
            raise NotImplementedError("Abstract method")

        @property
        def output_size(self) -> Any:
            """The size of the output."""
            raise NotImplementedError("Abstract method")

        def get_initial_state(self, inputs: Any = None, batch_size: Any = None, dtype: Any = None) -> Any:
            """Zeros."""
            from tfmini.ops.array.filling import zeros
            from tfmini.ops.array.shape import shape

            rows = shape(inputs)[0] if inputs is not None else batch_size
            sizes = self.state_size if isinstance(self.state_size, (list, tuple)) else [self.state_size]
            made = [zeros([rows, int(size)], dtype or root.backend.floatx()) for size in sizes]
            return made if isinstance(self.state_size, (list, tuple)) else made[0]

    return [AbstractRNNCell]
