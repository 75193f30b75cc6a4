"""Layers of ``tf.keras`` that Keras 2.3 does not have."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from tfmini.estimator.column_layers import input_layer
from tfmini.graph.conversion import convert_to_tensor
from tfmini.ops.array.diagonals import matrix_band_part
from tfmini.ops.array.filling import fill, ones_like
from tfmini.ops.array.identity import cast
from tfmini.ops.array.joining import concat
from tfmini.ops.array.shape import expand_dims
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.math.comparison import logical_and, logical_not
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

    class BaseDenseAttention(base):
        """Attention to all of the values; a class says the scores, ``_calculate_scores``."""

        def __init__(self, causal: bool = False, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.causal = causal
            self.supports_masking = True

        def compute_output_shape(self, input_shape: Any) -> Any:
            query, value = input_shape[0], input_shape[1]
            return (*query[:-1], value[-1])

        def _calculate_scores(self, query: Any, key: Any) -> Any:
            raise NotImplementedError(f"{type(self).__name__} has no _calculate_scores")

        def _apply_scores(self, scores: Any, value: Any, scores_mask: Any = None) -> Any:
            if scores_mask is not None:
                scores -= 1e9 * cast(logical_not(scores_mask), scores.dtype)
            return matmul(softmax(scores), value)

        def call(self, inputs: Any, mask: Any = None) -> Any:
            self._check(inputs, mask)
            query, value = inputs[0], inputs[1]
            scores = self._calculate_scores(query=query, key=inputs[2] if len(inputs) > 2 else value)
            found = self._apply_scores(scores, value, self._scores_mask(scores, mask[1] if mask else None))
            if mask and mask[0] is not None:
                found *= cast(expand_dims(mask[0], -1), found.dtype)
            return found

        def _scores_mask(self, scores: Any, value_mask: Any) -> Any:
            masks = [] if value_mask is None else [expand_dims(value_mask, -2)]
            if self.causal:
                sizes = shape_of(scores)
                masks.append(_lower_triangular_mask(concat([ones_like(sizes[:-2]), sizes[-2:]], 0)))
            return functools.reduce(logical_and, masks) if masks else None

        def _check(self, inputs: Any, mask: Any) -> None:
            name = type(self).__name__
            if not isinstance(inputs, list):
                raise ValueError(
                    f"{name} layer must be called on a list of inputs, namely query, value and perhaps key"
                )
            if not 2 <= len(inputs) <= 3:
                raise ValueError(f"{name} layer accepts inputs list of length 2 or 3, not of {len(inputs)}")
            if mask is None or isinstance(mask, list) and all(one is None for one in mask):
                return
            if not isinstance(mask, list):
                raise ValueError(f"{name} layer mask must be a list, of the masks of query and value, not {mask}")
            if len(mask) != 2:
                raise ValueError(f"{name} layer mask must be a list of length 2, not of {len(mask)}")

        def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
            self._check(inputs, mask)
            return None if not mask or mask[0] is None else convert_to_tensor(mask[0])

        def get_config(self) -> dict[str, Any]:
            return {**super().get_config(), "causal": self.causal}

    class _Scaled(BaseDenseAttention):
        def __init__(self, use_scale: bool, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.use_scale = use_scale

        def get_config(self) -> dict[str, Any]:
            return {**super().get_config(), "use_scale": self.use_scale}

    class Attention(_Scaled):
        """Dot-product attention of a query to values: inputs query, value and perhaps key."""

        def __init__(self, use_scale: bool = False, **kwargs: Any) -> None:
            super().__init__(use_scale, **kwargs)

        def build(self, input_shape: Any) -> None:
            self.scale = self.add_weight("scale", (), initializer="ones") if self.use_scale else None
            super().build(input_shape)

        def _calculate_scores(self, query: Any, key: Any) -> Any:
            scores = matmul(query, key, transpose_b=True)
            return scores if self.scale is None else scores * self.scale

    class AdditiveAttention(_Scaled):
        """Bahdanau's attention: inputs query, value and perhaps key."""

        def __init__(self, use_scale: bool = True, **kwargs: Any) -> None:
            super().__init__(use_scale, **kwargs)

        def build(self, input_shape: Any) -> None:
            size = int(input_shape[0][-1])
            self.scale = self.add_weight("scale", (size,)) if self.use_scale else None
            super().build(input_shape)

        def _calculate_scores(self, query: Any, key: Any) -> Any:
            parts = tanh(expand_dims(query, -2) + expand_dims(key, -3))
            return reduce_sum(parts if self.scale is None else parts * self.scale, -1)

    root.layers._lower_triangular_mask = _lower_triangular_mask
    return [BaseDenseAttention, Attention, AdditiveAttention]


def _lower_triangular_mask(shape: Any) -> Any:
    """True where the row is not before the column, in the last two dimensions."""
    return matrix_band_part(fill(shape, True), -1, 0)


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
