"""Layers of ``tf.keras`` that Keras 2.3 does not have."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from tfmini.estimator.column_layers import input_layer
from tfmini.ops.array.identity import cast
from tfmini.ops.array.shape import expand_dims
from tfmini.ops.math.matmul import matmul
from tfmini.ops.math.reductions import reduce_mean, reduce_sum
from tfmini.ops.math.unary import rsqrt, square, tanh
from tfmini.ops.nn.cross_entropy import softmax


def apply(root: ModuleType) -> None:
    """Adds the layers to the copy."""
    layers = root.layers
    for make in (_layer_normalization, _dense_features, _attention, _abstract_cell):
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
            self._columns = feature_columns

        def __call__(self, features: Any, **_: object) -> Any:
            with root.backend.name_scope(self.name):
                made: list[Any] = []
                found = input_layer(features, self._columns, trainable=self.trainable, cols_to_vars=None)
                self.built = True
                del made
            return found

    return [DenseFeatures]


def _attention(root: ModuleType) -> list[type]:
    base: Any = root.layers.Layer

    class _Attention(base):
        def __init__(self, use_scale: bool = False, causal: bool = False, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.use_scale, self.causal = use_scale, causal
            self.supports_masking = True

        def compute_output_shape(self, input_shape: Any) -> Any:
            query, value = input_shape[0], input_shape[1]
            return (*query[:-1], value[-1])

        def call(self, inputs: Any, mask: Any = None) -> Any:
            query, value = inputs[0], inputs[1]
            scores = self._scores(query, inputs[2] if len(inputs) > 2 else value)
            if mask is not None and mask[1] is not None:
                scores -= 1e9 * (1.0 - cast(expand_dims(mask[1], 1), scores.dtype))
            if self.causal:
                scores -= 1e9 * (1.0 - _lower_triangle(scores))
            found = matmul(softmax(scores), value)
            if mask is not None and mask[0] is not None:
                found *= cast(expand_dims(mask[0], -1), found.dtype)
            return found

        def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
            return mask[0] if mask else None

        def get_config(self) -> dict[str, Any]:
            return {**super().get_config(), "use_scale": self.use_scale, "causal": self.causal}

    class Attention(_Attention):
        """Dot-product attention of a query to values: inputs query, value and perhaps key."""

        def build(self, input_shape: Any) -> None:
            self.scale = self.add_weight("scale", (), initializer="ones") if self.use_scale else None
            super().build(input_shape)

        def _scores(self, query: Any, key: Any) -> Any:
            scores = matmul(query, key, transpose_b=True)
            return scores if self.scale is None else scores * self.scale

    class AdditiveAttention(_Attention):
        """Bahdanau's attention: inputs query, value and perhaps key."""

        def __init__(self, use_scale: bool = True, **kwargs: Any) -> None:
            super().__init__(use_scale, **kwargs)

        def build(self, input_shape: Any) -> None:
            size = int(input_shape[0][-1])
            self.scale = self.add_weight("scale", (size,)) if self.use_scale else None
            super().build(input_shape)

        def _scores(self, query: Any, key: Any) -> Any:
            parts = tanh(expand_dims(query, 2) + expand_dims(key, 1))
            return reduce_sum(parts if self.scale is None else parts * self.scale, -1)

    return [Attention, AdditiveAttention]


def _lower_triangle(scores: Any) -> Any:
    from tfmini.ops.array.diagonals import matrix_band_part
    from tfmini.ops.array.filling import ones_like

    return matrix_band_part(ones_like(scores), -1, 0)


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
