"""The attention layers of ``tf.keras``, which Keras 2.3 does not have."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from tfmini.graph.conversion import convert_to_tensor
from tfmini.ops.array.diagonals import matrix_band_part
from tfmini.ops.array.filling import fill, ones_like
from tfmini.ops.array.identity import cast
from tfmini.ops.array.joining import concat
from tfmini.ops.array.shape import expand_dims
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.math.comparison import logical_and, logical_not
from tfmini.ops.math.matmul import matmul
from tfmini.ops.math.reductions import reduce_sum
from tfmini.ops.math.unary import tanh
from tfmini.ops.nn.cross_entropy import softmax


def classes(root: ModuleType) -> list[type]:
    """The layers, on the copy's `Layer`."""
    base = _base(root.layers.Layer)
    scaled = _scaled(base)
    return [base, _attention(scaled), _additive(scaled)]


def _base(layer: Any) -> Any:
    class BaseDenseAttention(layer):
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
            _check(type(self).__name__, inputs, mask)
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
                masks.append(lower_triangular_mask(concat([ones_like(sizes[:-2]), sizes[-2:]], 0)))
            return functools.reduce(logical_and, masks) if masks else None

        def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
            _check(type(self).__name__, inputs, mask)
            return None if not mask or mask[0] is None else convert_to_tensor(mask[0])

        def get_config(self) -> dict[str, Any]:
            return {**super().get_config(), "causal": self.causal}

    return BaseDenseAttention


def _check(name: str, inputs: object, mask: object) -> None:
    """Refuses inputs and masks that are not those of query, value and perhaps key."""
    if not isinstance(inputs, list):
        raise ValueError(f"{name} layer must be called on a list of inputs, namely query, value and perhaps key")
    if not 2 <= len(inputs) <= 3:
        raise ValueError(f"{name} layer accepts inputs list of length 2 or 3, not of {len(inputs)}")
    if mask is None or isinstance(mask, list) and all(one is None for one in mask):
        return
    if not isinstance(mask, list):
        raise ValueError(f"{name} layer mask must be a list, of the masks of query and value, not {mask}")
    if len(mask) != 2:
        raise ValueError(f"{name} layer mask must be a list of length 2, not of {len(mask)}")


def lower_triangular_mask(shape: Any) -> Any:
    """True where the row is not before the column, in the last two dimensions."""
    return matrix_band_part(fill(shape, True), -1, 0)


def _scaled(base: Any) -> Any:
    class Scaled(base):
        def __init__(self, use_scale: bool, **kwargs: Any) -> None:
            super().__init__(**kwargs)
            self.use_scale = use_scale

        def get_config(self) -> dict[str, Any]:
            return {**super().get_config(), "use_scale": self.use_scale}

    return Scaled


def _attention(base: Any) -> Any:
    class Attention(base):
        """Dot-product attention of a query to values: inputs query, value and perhaps key."""

        def __init__(self, use_scale: bool = False, **kwargs: Any) -> None:
            super().__init__(use_scale, **kwargs)

        def build(self, input_shape: Any) -> None:
            self.scale = self.add_weight("scale", (), initializer="ones") if self.use_scale else None
            super().build(input_shape)

        def _calculate_scores(self, query: Any, key: Any) -> Any:
            scores = matmul(query, key, transpose_b=True)
            return scores if self.scale is None else scores * self.scale

    return Attention


def _additive(base: Any) -> Any:
    class AdditiveAttention(base):
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

    return AdditiveAttention
