"""Losses and metrics of ``tf.keras`` as TensorFlow 1.15 has them: types of targets, shapes of weights, more metrics."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.op_types import trait_of
from tfmini.graph.operation import Tensor
from tfmini.layers.losses import broadcast_weights, remove_squeezable_dimensions, weights_of_rank
from tfmini.layers.metrics import confusion_matrix
from tfmini.ops.array.filling import ones_like
from tfmini.ops.array.identity import cast
from tfmini.ops.array.shape import reshape
from tfmini.ops.control import group
from tfmini.ops.math.elementwise import div_no_nan
from tfmini.ops.math.reductions import reduce_mean, reduce_sum
from tfmini.ops.variables.functions import variables_initializer


class ReductionV2:
    """What becomes of the losses of examples (``tf.keras.losses.Reduction``)."""

    SUM = "sum"
    NONE = "none"
    SUM_OVER_BATCH_SIZE = "sum_over_batch_size"
    AUTO = "auto"  # SUM_OVER_BATCH_SIZE: there is no strategy of tf.distribute, which would choose another

    @classmethod
    def all(cls) -> tuple[str, ...]:
        """All of them."""
        return (cls.AUTO, cls.NONE, cls.SUM, cls.SUM_OVER_BATCH_SIZE)

    @classmethod
    def validate(cls, key: str) -> None:
        """Raises ValueError for what is none of them."""
        if key not in cls.all():
            raise ValueError(f"Invalid Reduction Key {key}. It is one of {', '.join(cls.all())}.")


def apply(root: ModuleType) -> None:
    """Changes the losses and metrics of the copy."""
    losses, metrics, tools = root.losses, root.metrics, root.utils.losses_utils
    tools.ReductionV2 = losses.Reduction = tools.Reduction = ReductionV2
    tools.squeeze_or_expand_dimensions = squeeze_or_expand_dimensions
    losses.CosineSimilarity = _cosine_similarity(losses)
    losses.CosineProximity = getattr(losses, "CosineProximity", losses.CosineSimilarity)
    metrics.KLD = metrics.kld = losses.kullback_leibler_divergence
    for make in (_mean_tensor, _mean_relative_error, _mean_iou):
        cls = make(root)
        cls.__module__ = metrics.__name__
        setattr(metrics, cls.__name__, cls)


def casts_targets(loss: Callable[..., Any]) -> Callable[..., Any]:
    """A loss of (targets, predictions) that takes arrays, and targets of other types than the predictions."""

    @functools.wraps(loss)
    def loss_of_tensors(y_true: Any, y_pred: Any, *args: Any, **kwargs: Any) -> Any:
        y_pred = convert_to_tensor(y_pred)
        return loss(cast(y_true, y_pred.dtype), y_pred, *args, **kwargs)

    return loss_of_tensors


def reduced_to_weights(metric: Any, values: Any, weights: Any) -> tuple[Any, Any]:
    """Values and their weights in one shape; weights of fewer dimensions are those of the values' means, or sums."""
    try:
        return values, broadcast_weights(weights, values)
    except ValueError:
        reduce = reduce_sum if getattr(metric, "reduction", "") == "sum" else reduce_mean
        return reduce(values, list(range(len(weights.shape), len(values.shape)))), weights


def squeeze_or_expand_dimensions(y_pred: Any, y_true: Any = None, sample_weight: Any = None) -> tuple[Any, ...]:
    """Predictions, targets and weights, where one has a last dimension of size 1 more than another.

    Returns:
      (``y_pred``, ``y_true``), and ``sample_weight`` if it is given; a scalar weight stays one.
    """
    y_pred = convert_to_tensor(y_pred)
    ranks: list[Any] = [x.shape.ndims for x in (y_pred, y_true) if isinstance(x, Tensor)]
    if y_true is not None and (None in ranks or ranks[0] - ranks[-1] != 1 or y_pred.raw_shape[-1] == 1):
        y_true, y_pred = remove_squeezable_dimensions(y_true, y_pred)
    if sample_weight is None:
        return y_pred, y_true
    sample_weight = convert_to_tensor(sample_weight)
    return y_pred, y_true, weights_of_rank(sample_weight, y_pred)


def update_of(update: Callable[..., Any]) -> Callable[..., Any]:
    """An ``update_state`` that returns one op: of a list its group, of nothing the assignments that it has made."""

    @functools.wraps(update)
    def update_state(*args: Any, **kwargs: Any) -> Any:
        graph = get_default_graph()
        before = len(graph.get_operations())
        made = update(*args, **kwargs)
        if isinstance(made, (list, tuple)):
            return group(*made)
        if made is not None:
            return made
        return group(*(op for op in graph.get_operations()[before:] if trait_of(op.type, "writes")))

    return update_state


# ---- Losses and metrics that Keras 2.3 does not have -----------------------------------------------------------------


def _cosine_similarity(losses: Any) -> type:
    class CosineSimilarity(losses.LossFunctionWrapper):
        """The cosine of the angle between targets and predictions."""

        def __init__(
            self, axis: int = -1, reduction: str = losses.Reduction.AUTO, name: str = "cosine_similarity"
        ) -> None:
            super().__init__(losses.cosine_similarity, reduction=reduction, name=name, axis=axis)

    CosineSimilarity.__module__ = losses.__name__
    return CosineSimilarity


def _mean_tensor(root: ModuleType) -> type:
    class MeanTensor(root.metrics.Metric):  # type: ignore[name-defined]
        """The weighted mean of each element of the tensors that it gets, all of one shape."""

        def __init__(self, name: str = "mean_tensor", dtype: Any = None) -> None:
            super().__init__(name=name, dtype=dtype)
            self.total: Any = None
            self.count: Any = None

        def _make_sums(self, shape: Any) -> None:
            self.total, self.count = (self.add_weight(name, shape, "zeros") for name in ("total", "count"))
            root.backend.get_session().run(variables_initializer([self.total, self.count]))

        def update_state(self, values: Any, sample_weight: Any = None) -> Any:
            values = cast(values, self.dtype)
            if self.total is None:
                self._make_sums(values.shape)
            elif not values.shape.is_compatible_with(self.total.shape):
                raise ValueError(
                    "MeanTensor input values must always have the same shape. Expected shape (set during the first"
                    f" call): {self.total.shape}. Got: {values.shape}"
                )
            counts = ones_like(values)
            if sample_weight is not None:
                values, _, weights = squeeze_or_expand_dimensions(values, None, cast(sample_weight, self.dtype))
                values, weights = reduced_to_weights(self, values, weights)
                counts, values = counts * weights, values * weights
            return group(self.total.assign_add(values), self.count.assign_add(counts))

        def result(self) -> Any:
            if self.total is None:
                raise ValueError(
                    "MeanTensor does not have any result yet: call it, or its update_state, before its result."
                )
            return div_no_nan(self.total, self.count)

        def reset_states(self) -> None:
            root.backend.batch_set_value([(v, np.zeros(v.shape.as_list())) for v in self.weights])

    return MeanTensor


def _mean_relative_error(root: ModuleType) -> type:
    class MeanRelativeError(root.metrics.Mean):  # type: ignore[name-defined]
        """The weighted mean of absolute errors, each divided by its normalizer; 0 for a normalizer of 0."""

        def __init__(self, normalizer: Any, name: str | None = None, dtype: Any = None) -> None:
            super().__init__(name=name, dtype=dtype)
            self.normalizer = cast(normalizer, self.dtype)

        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
            y_pred, y_true = squeeze_or_expand_dimensions(cast(y_pred, self.dtype), cast(y_true, self.dtype))
            y_pred, self.normalizer = remove_squeezable_dimensions(y_pred, self.normalizer)
            y_pred.shape.assert_is_compatible_with(y_true.shape)
            errors = div_no_nan(abs(y_true - y_pred), self.normalizer)
            return super().update_state(errors, sample_weight=sample_weight)

        def get_config(self) -> dict[str, Any]:
            return {**super().get_config(), "normalizer": root.backend.eval(self.normalizer).tolist()}

    return MeanRelativeError


def _mean_iou(root: ModuleType) -> type:
    class MeanIoU(root.metrics.Metric):  # type: ignore[name-defined]
        """The mean over classes of intersection over union, from a matrix of the classes of targets and predictions."""

        def __init__(self, num_classes: int, name: str | None = None, dtype: Any = None) -> None:
            super().__init__(name=name, dtype=dtype)
            self.num_classes = num_classes
            self.total_cm = self.add_weight(
                "total_confusion_matrix", (num_classes, num_classes), "zeros", dtype=dtypes.float64
            )

        def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> Any:
            given = [cast(y_true, dtypes.int64), cast(y_pred, dtypes.int64)]
            if sample_weight is not None:
                given.append(convert_to_tensor(sample_weight))
            y_true, y_pred, *weights = (reshape(x, [-1]) if (x.shape.ndims or 2) > 1 else x for x in given)
            found = confusion_matrix(y_true, y_pred, self.num_classes, dtypes.float64, weights=(weights or [None])[0])
            return self.total_cm.assign_add(found)

        def result(self) -> Any:
            rows, columns = (cast(reduce_sum(self.total_cm, axis), self.dtype) for axis in (0, 1))
            hits = cast(_diagonal(self.total_cm), self.dtype)
            union = rows + columns - hits
            used = reduce_sum(cast(union > 0, self.dtype))
            return div_no_nan(reduce_sum(div_no_nan(hits, union)), used)

        def reset_states(self) -> None:
            root.backend.set_value(self.total_cm, np.zeros((self.num_classes, self.num_classes)))

        def get_config(self) -> dict[str, Any]:
            return {**super().get_config(), "num_classes": self.num_classes}

    return MeanIoU


def _diagonal(matrix: Any) -> Any:
    size = matrix.shape.as_list()[0]
    return reduce_sum(matrix * np.eye(size), 0)


def metric_name(metrics: Any, metric: Any, weighted: bool = False) -> str:
    """The name of a metric in logs and histories, which is not the string that ``compile`` got."""
    prefix = "weighted_" if weighted else ""
    if metric in ("accuracy", "acc", "crossentropy", "ce"):
        return prefix + ("acc" if metric in ("accuracy", "acc") else "ce")
    found = metrics.get(metric)
    return prefix + str(getattr(found, "name", None) or found.__name__)
