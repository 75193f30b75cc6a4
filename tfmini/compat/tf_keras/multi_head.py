"""``tf.estimator.MultiHead``: several heads of one model, each with logits, labels and metrics of its own."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tfmini.compat.tf_keras.heads import (
    REGULARIZATION,
    BinaryClassHead,
    Head,
    LogisticRegressionHead,
    Losses,
    MultiClassHead,
    MultiLabelHead,
    PoissonRegressionHead,
    RegressionHead,
    mean_metric,
    regularized,
    summarize,
    train_op,
)
from tfmini.compat.tf_keras.optimizer_classes import SGD, Adagrad, Adam, Ftrl, RMSprop
from tfmini.compat.tf_keras.optimizer_v2 import Optimizer
from tfmini.estimator.model_spec import EstimatorSpec, ModeKeys, PredictOutput
from tfmini.export import export, export_names
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.names import GraphKeys
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import get_collection, name_scope
from tfmini.layers.binary_metrics import area_of
from tfmini.layers.losses import Reduction
from tfmini.ops.array.joining import split
from tfmini.ops.control import no_op
from tfmini.ops.math.sums import add_n
from tfmini.train.global_steps import get_global_step


@export("tf.estimator.MultiHead")
class MultiHead(Head):
    """Several heads with names, whose losses are added (``tf.estimator.MultiHead``).

    Logits are those of all heads, joined along the last axis, or name of a head -> its logits; labels are name of a
    head -> its labels. Predictions are by (name of the head, name of the prediction).

    Args:
      heads: the heads.
      head_weights: a factor for the loss of each.

    Raises:
      ValueError: there is no head, one has no name, or there are more or fewer factors than heads.
    """

    def __init__(self, heads: Sequence[Head], head_weights: Sequence[float] | None = None) -> None:
        if not heads:
            raise ValueError(f"Must specify heads. Given: {heads}")
        if head_weights and len(head_weights) != len(heads):
            raise ValueError(
                f"heads and head_weights must have the same size. Given len(heads): {len(heads)}. Given"
                f" len(head_weights): {len(head_weights)}."
            )
        for head in heads:
            if head.name is None:
                raise ValueError(f"All given heads must have name specified. Given: {head}")
        self._heads = {str(head.name): head for head in heads}
        if len(self._heads) < len(heads):
            raise ValueError(f"All heads must have different names. Given: {[head.name for head in heads]}")
        self._factors = tuple(head_weights or ())

    @property
    def name(self) -> str:
        return "_".join(self._heads)

    @property
    def logits_dimension(self) -> int:
        return sum(head.logits_dimension for head in self._heads.values())

    @property
    def loss_reduction(self) -> str:
        kinds = [head.loss_reduction for head in self._heads.values()]
        if len({*kinds}) > 1:
            raise ValueError(f"The loss_reduction must be the same for different heads. Given: {kinds}")
        return kinds[0]

    def _parts(self, logits: Any, labels: Any = None) -> dict[str, Any]:
        """Name of a head -> its logits."""
        if labels is not None and not isinstance(labels, Mapping):
            raise ValueError(f"labels must be a dict. Given: {labels}")
        for what, value in {"logits": logits, "labels": labels}.items():
            missing = [name for name in self._heads if isinstance(value, Mapping) and name not in value]
            if missing:
                raise ValueError(f"{what} has missing values for head(s): {missing}")
        if isinstance(logits, Mapping):
            return dict(logits)
        sizes = [head.logits_dimension for head in self._heads.values()]
        with name_scope(None, "split_logits", [logits]):
            joined = convert_to_tensor(logits)
            if joined.shape.ndims is not None and joined.shape[-1].value not in (None, sum(sizes)):
                raise ValueError(
                    f"Could not split logits of shape {joined.shape.as_list()} among the heads with individual logits"
                    f" dimensions: {sizes}. The last dimension of the logits tensor should equal {sum(sizes)}."
                )
            return dict(zip(self._heads, split(joined, sizes, axis=-1)))

    def loss(
        self, labels: Any, logits: Any, features: Any = None, mode: str | None = None,
        regularization_losses: Losses = None,
    ) -> Tensor:  # fmt: skip
        parts = self._parts(logits, labels)
        losses = [head.loss(labels[name], parts[name], features, mode) for name, head in self._heads.items()]
        with name_scope(None, "merge_losses", losses):
            if self._factors:
                losses = [loss * factor for loss, factor in zip(losses, self._factors)]
            return regularized(add_n(losses), regularization_losses)

    def predictions(self, logits: Any, keys: Sequence[str] | None = None) -> dict[Any, Tensor]:
        parts = self._parts(logits)
        with name_scope(None, "merge_pred"):
            found = {name: head.predictions(parts[name]) for name, head in self._heads.items()}
        return {(name, key): value for name, one in found.items() for key, value in one.items()}

    def metrics(self, regularization_losses: Losses = None) -> dict[str, Any]:
        keys = [f"loss/{name}" for name in self._heads]
        if regularization_losses is not None:
            keys.insert(0, self._key(REGULARIZATION))
        with name_scope(None, "merge_eval"):
            return {key: mean_metric(key) for key in keys}

    def update_metrics(
        self, eval_metrics: dict[str, Any], features: Any, logits: Any, labels: Any,
        regularization_losses: Losses = None,
    ) -> dict[str, Any]:  # fmt: skip
        parts = self._parts(logits, labels)
        if regularization_losses is not None:
            eval_metrics[self._key(REGULARIZATION)].update_state(add_n(regularization_losses))
        for name, head in self._heads.items():
            eval_metrics[f"loss/{name}"].update_state(head.loss(labels[name], parts[name], features))
            eval_metrics.update(head.update_metrics(head.metrics(), features, parts[name], labels[name]))
        return eval_metrics

    def create_estimator_spec(
        self, features: Any, mode: str, logits: Any, labels: Any = None, optimizer: Optimizer | None = None,
        trainable_variables: Sequence[Any] | None = None, train_op_fn: Callable[[Tensor], Any] | None = None,
        update_ops: Sequence[Any] | None = None, regularization_losses: Losses = None,
    ) -> EstimatorSpec:  # fmt: skip
        with name_scope(self.name, "multi_head"):
            parts = self._parts(logits, labels)
            found: Any = self.predictions(logits)
            if mode == ModeKeys.PREDICT:
                outputs = self._outputs(features, mode, parts)
                return EstimatorSpec(mode, found, export_outputs=outputs)
            loss = self.loss(labels, logits, features, mode, regularization_losses)
            if mode == ModeKeys.EVAL:
                metrics = self.metrics(regularization_losses)
                metrics = self.update_metrics(metrics, features, logits, labels, regularization_losses)
                return EstimatorSpec(mode, found, loss, eval_metric_ops=metrics)
            for name, head in self._heads.items():  # their summaries
                head.create_estimator_spec(features, mode, parts[name], labels[name], train_op_fn=_nothing)
            step = train_op(loss, self.loss_reduction, optimizer, trainable_variables, train_op_fn, update_ops)
            summarize(loss, regularization_losses, str)
            return EstimatorSpec(mode, found, loss, step)

    def _outputs(self, features: Any, mode: str, parts: dict[str, Any]) -> dict[str, Any]:
        """The outputs of each head under its name, the first's as default, and all predictions."""
        made: dict[str, Any] = {}
        predictions: dict[str, Tensor] = {}
        for name, head in self._heads.items():
            outputs = head.create_estimator_spec(features, mode, parts[name]).export_outputs
            for key, output in outputs.items():
                made[name if key == "serving_default" else f"{name}/{key}"] = output
                if key == "predict" and isinstance(output, PredictOutput):
                    predictions |= {f"{name}/{inner}": value for inner, value in output.outputs.items()}
        default = made[next(iter(self._heads))]
        return {"serving_default": default, **made, "predict": PredictOutput(predictions)}


def _nothing(loss: Tensor) -> Operation:
    return no_op()


# ---- The functions of before, which take the reductions of ``tf.losses`` and the optimizers of ``tf.train`` ---------

_NEW_NAMES = {Reduction.SUM: "sum", Reduction.SUM_OVER_BATCH_SIZE: "sum_over_batch_size"}


def _trains_as_before(head: Head, updates: bool = True) -> Head:
    """Has a head train by an optimizer of ``tf.train``, and run what the graph collects in ``UPDATE_OPS``."""
    create = head.create_estimator_spec

    def create_estimator_spec(
        features: Any, mode: str, logits: Any, labels: Any = None, optimizer: Any = None,
        train_op_fn: Callable[[Tensor], Any] | None = None, regularization_losses: Losses = None,
    ) -> EstimatorSpec:  # fmt: skip
        if optimizer is not None and train_op_fn is not None:
            raise ValueError("train_op_fn and optimizer cannot both be set.")
        if optimizer is not None:
            train_op_fn = functools.partial(_minimized, optimizer)
        to_run = get_collection(GraphKeys.UPDATE_OPS) if updates and mode == ModeKeys.TRAIN else None
        return create(
            features, mode, logits, labels=labels, train_op_fn=train_op_fn, update_ops=to_run or None,
            regularization_losses=regularization_losses,
        )  # fmt: skip

    head.create_estimator_spec = create_estimator_spec  # type: ignore[method-assign, assignment]
    return head


def _minimized(optimizer: Any, loss: Tensor) -> Any:
    return optimizer.minimize(loss, global_step=get_global_step())


def _measures_as_before(head: Head) -> Head:
    """Makes the areas under curves of a head sums of trapezoids, those of ``tf.metrics.auc``."""
    metrics = head.metrics

    def as_before(*args: Any, **kwargs: Any) -> dict[str, Any]:
        found = metrics(*args, **kwargs)
        for metric in found.values():
            if type(metric).__name__ == "AUC":
                metric.result = functools.partial(_area, metric)
        return found

    head.metrics = as_before  # type: ignore[method-assign]
    return head


def _area(metric: Any) -> Tensor:
    counts = (metric.true_positives, metric.false_negatives, metric.true_negatives, metric.false_positives)
    named = dict(zip(("tp", "fn", "tn", "fp"), map(convert_to_tensor, counts)))
    return area_of(named, metric.curve.name, "trapezoidal", "value")


def _of_before(made: Callable[..., Head], default: str) -> Callable[..., Head]:
    """The class of a head as a function whose loss reduction is one of ``tf.losses.Reduction``."""
    signature = inspect.signature(made)
    old = [p.replace(default=default) if p.name == "loss_reduction" else p for p in signature.parameters.values()]
    if old[0].name == "label_dimension":  # it came after the weights
        old[:2] = old[1::-1]
    before = signature.replace(parameters=old)

    @functools.wraps(made, updated=())
    def head(*args: Any, **kwargs: Any) -> Head:
        given = before.bind(*args, **kwargs)
        reduction = given.arguments.get("loss_reduction", default)
        given.arguments["loss_reduction"] = _NEW_NAMES.get(reduction, reduction)
        return _measures_as_before(_trains_as_before(made(**given.arguments)))

    head.__signature__ = before  # type: ignore[attr-defined]
    return head


export_names(
    "tensorflow.python.estimator.canned.head",
    "_binary_logistic_head_with_sigmoid_cross_entropy_loss _multi_class_head_with_softmax_cross_entropy_loss "
    "_regression_head",
)
_binary_logistic_head_with_sigmoid_cross_entropy_loss = _of_before(BinaryClassHead, Reduction.SUM)
_multi_class_head_with_softmax_cross_entropy_loss = _of_before(MultiClassHead, Reduction.SUM)
_regression_head = _of_before(RegressionHead, Reduction.SUM)

export_names(
    "tf.contrib.estimator",
    "binary_classification_head logistic_regression_head multi_class_head multi_head multi_label_head "
    "poisson_regression_head regression_head",
)
_PER_BATCH = Reduction.SUM_OVER_BATCH_SIZE
binary_classification_head = _of_before(BinaryClassHead, _PER_BATCH)
logistic_regression_head = _of_before(LogisticRegressionHead, _PER_BATCH)
multi_class_head = _of_before(MultiClassHead, _PER_BATCH)
multi_label_head = _of_before(MultiLabelHead, _PER_BATCH)
poisson_regression_head = _of_before(PoissonRegressionHead, _PER_BATCH)
regression_head = _of_before(RegressionHead, _PER_BATCH)


def multi_head(heads: Sequence[Head], head_weights: Sequence[float] | None = None) -> Head:
    """Several heads with names (``tf.contrib.estimator.multi_head``); see `MultiHead`."""
    return _trains_as_before(MultiHead(heads, head_weights), updates=False)  # nor does TensorFlow


# What an estimator of a library does with the optimizer that it is given.
_OPTIMIZERS = {"Adagrad": Adagrad, "Adam": Adam, "Ftrl": Ftrl, "RMSProp": RMSprop, "SGD": SGD}


@export("tensorflow.python.estimator.canned.optimizers.get_optimizer_instance_v2")
def get_optimizer_instance_v2(opt: Any, learning_rate: float | None = None) -> Any:
    """The optimizer that an estimator was given: one of ``tf.keras.optimizers``, its maker, or its name.

    Args:
      learning_rate: of an optimizer that is given by its name; 0 or None: the optimizer's own default.

    Raises:
      ValueError: there is none of that name, or it is something else.
    """
    if isinstance(opt, str):
        if opt not in _OPTIMIZERS:
            raise ValueError(f"Unsupported optimizer name: {opt}. Supported names are: {tuple(sorted(_OPTIMIZERS))}")
        return _OPTIMIZERS[opt](**({"learning_rate": learning_rate} if learning_rate else {}))
    made = opt() if callable(opt) else opt
    if not isinstance(made, Optimizer):
        raise ValueError(f"The given object is not a tf.keras.optimizers.Optimizer instance. Given: {made}")
    return made
