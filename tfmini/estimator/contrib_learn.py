"""``tf.contrib.learn``: estimators that fit arrays, around `tf.estimator.Estimator`."""

from __future__ import annotations

import enum
import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tfmini.core_types import TensorLike
from tfmini.estimator.contrib_column_layers import infer_real_valued_columns
from tfmini.estimator.estimator import Estimator
from tfmini.estimator.evaluation import ITERATOR_OPS, examples
from tfmini.estimator.input_functions import known_arguments, numpy_input_fn
from tfmini.estimator.model_export import (
    ServingInputReceiver,
    TensorServingInputReceiver,
    build_parsing_serving_input_receiver_fn,
    build_raw_serving_input_receiver_fn,
)
from tfmini.estimator.model_spec import (
    ClassificationOutput,
    EstimatorSpec,
    ExportOutput,
    ModeKeys,
    PredictOutput,
    RegressionOutput,
)
from tfmini.estimator.run_config import RunConfig
from tfmini.export import export
from tfmini.graph import nest
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.graph import Graph
from tfmini.graph.names import GraphKeys
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import get_collection
from tfmini.ops.array.identity import placeholder
from tfmini.train.checkpointing import saved_model
from tfmini.train.hooks import FeedFnHook

InputFn = Callable[[], Any]
FeedFn = Callable[[], Mapping[Any, Any]]
Data = TensorLike | Mapping[str, TensorLike] | None


@export("tf.contrib.learn.PredictionKey")
class PredictionKey:
    """The names of predictions (``tf.contrib.learn.PredictionKey``)."""

    CLASSES, PROBABILITIES, LOGITS, LOGISTIC = "classes", "probabilities", "logits", "logistic"
    SCORES, TOP_K, GENERIC = "scores", "top_k", "output"


@export("tf.contrib.learn.ProblemType", "tensorflow.contrib.learn.python.learn.estimators.constants.ProblemType")
class ProblemType(enum.Enum):
    """What a model is for, which decides how it is served (``tf.contrib.learn.ProblemType``)."""

    UNSPECIFIED, CLASSIFICATION, LINEAR_REGRESSION, LOGISTIC_REGRESSION = 0, 1, 2, 3


@export("tf.contrib.learn.NotFittedError")
class NotFittedError(ValueError, AttributeError):
    """An estimator is used before it was trained (``tf.contrib.learn.NotFittedError``)."""


@export("tf.contrib.learn.ModelFnOps")
class ModelFnOps(NamedTuple):
    """What a model function returns (``tf.contrib.learn.ModelFnOps``): fields as in `tf.estimator.EstimatorSpec`.

    ``output_alternatives`` has (`ProblemType`, name -> tensor) by the name of a head, for exports.
    """

    mode: str
    predictions: Any = None
    loss: Any = None
    train_op: Any = None
    eval_metric_ops: Any = None
    output_alternatives: Any = None
    training_chief_hooks: Any = None
    training_hooks: Any = None
    scaffold: Any = None


@export("tf.contrib.learn.MetricSpec")
class MetricSpec:
    """A metric of an evaluation (``tf.contrib.learn.MetricSpec``).

    Args:
      metric_fn: a function of predictions, labels and, by that name, weights, such as ``tf.metrics.accuracy``.
      prediction_key, label_key: the names of the predictions and the labels; None: there is one of them.
      weight_key: the feature with the weights.
    """

    def __init__(
        self,
        metric_fn: Callable[..., Any],
        prediction_key: str | None = None,
        label_key: str | None = None,
        weight_key: str | None = None,
    ) -> None:
        self.metric_fn, self.prediction_key, self.label_key = metric_fn, prediction_key, label_key
        self.weight_key = weight_key

    def create_metric_ops(self, inputs: Any, labels: Any, predictions: Any) -> Any:
        """(value, update op) of features, labels and predictions."""
        given = {"predictions": _one_of(predictions, self.prediction_key, "predictions"),
                 "labels": _one_of(labels, self.label_key, "labels")}  # fmt: skip
        if self.weight_key is not None:
            given["weights"] = _one_of(inputs, self.weight_key, "features")
        names = inspect.signature(self.metric_fn).parameters
        if "predictions" in names or any(p.kind is p.VAR_KEYWORD for p in names.values()):
            return self.metric_fn(**given)
        first = given.pop("predictions")  # of a function of other names, as `streaming_mean` of values
        return self.metric_fn(first, **{name: value for name, value in given.items() if name in names})


def _one_of(values: Any, key: str | None, what: str) -> Any:
    """What a metric reads of the predictions, labels or features."""
    if not isinstance(values, Mapping):
        if key is not None:
            raise ValueError(f"A metric with {what} key {key!r} needs a dict of {what}, not {values}.")
        return values
    if key is None and len(values) == 1:
        return next(iter(values.values()))
    if key not in values:
        raise ValueError(f"A metric needs the key of one of the {what}: {', '.join(map(str, values))}. Got {key!r}.")
    return values[key]


@export("tf.contrib.learn.infer_real_valued_columns_from_input_fn")
def infer_real_valued_columns_from_input_fn(input_fn: InputFn) -> list[Any]:
    """A column for each feature of an input function (``tf.contrib.learn``)."""
    with Graph().as_default():
        return infer_real_valued_columns(input_fn()[0])


@export("tf.contrib.learn.infer_real_valued_columns_from_input")
def infer_real_valued_columns_from_input(x: Data) -> list[Any]:
    """A column for each feature of arrays (``tf.contrib.learn``)."""
    return infer_real_valued_columns_from_input_fn(lambda: (_batch(x, None, None, False, 1)(), None))


def _batch(x: Data, y: Data, batch_size: int | None, shuffle: bool, epochs: int | None) -> InputFn:
    """An input function of arrays."""
    x = x if isinstance(x, Mapping) else np.asarray(x)
    count = len(np.asarray(next(iter(x.values()), ()) if isinstance(x, Mapping) else x))
    y = y if y is None or isinstance(y, Mapping) else np.asarray(y)
    return numpy_input_fn(x, y, batch_size or count, epochs, shuffle)


@export("tf.contrib.learn.Estimator", "tf.contrib.learn.BaseEstimator")
class LearnEstimator:
    """Trains, evaluates and uses a model (``tf.contrib.learn.Estimator``).

    Data are arrays ``x`` and ``y``, or an input function of (features, labels).

    Args:
      model_fn: a function of features, labels and, if it names them, mode, params, config and model_dir. It returns
        `ModelFnOps`, or (predictions, loss, train op).
      model_dir, config, params: see `tf.estimator.Estimator`.
      feature_engineering_fn: a function of (features, labels), before the model function.
    """

    def __init__(
        self,
        model_fn: Callable[..., Any],
        model_dir: str | None = None,
        config: RunConfig | None = None,
        params: Any = None,
        feature_engineering_fn: Callable[..., Any] | None = None,
    ) -> None:
        self._own_fn, self.params, self._engineering = model_fn, params, feature_engineering_fn
        self._metrics: Mapping[Any, Any] = {}
        self._is_constant = False
        self._served: Callable[[ModelFnOps], dict[str, Any]] | None = None  # what an export that is being made has
        # A model function is called with unfed placeholders of the labels of training when it predicts.
        self._labels: Any = lambda: None
        self._core = Estimator(self._model_fn, model_dir, config)

    def _model_fn(self, features: Any, labels: Any, mode: str, config: RunConfig) -> EstimatorSpec:
        self._is_constant = _is_constant()
        if mode == ModeKeys.PREDICT and labels is None:
            labels = nest.map_structure(lambda make: make(), self._labels)
        elif mode != ModeKeys.PREDICT:
            self._labels = nest.map_structure(_unfed_like, labels)
        if self._engineering is not None:
            features, labels = self._engineering(features, labels)
        offered = {"mode": mode, "params": self.params, "config": config, "model_dir": self.model_dir}
        made = self._own_fn(features, labels, **known_arguments(self._own_fn, offered))
        if not isinstance(made, ModelFnOps):
            if not isinstance(made, tuple) or len(made) != 3:
                raise ValueError("Unrecognized value returned by model_fn, please return ModelFnOps.")
            made = ModelFnOps(mode, *made)
        metrics = dict(made.eval_metric_ops or {})
        if mode == ModeKeys.EVAL:
            metrics.update(_own_metrics(self._metrics, features, labels, made.predictions))
        served = self._served(made) if self._served is not None else None
        return EstimatorSpec(
            mode, made.predictions, made.loss, made.train_op, metrics, served, training_hooks=made.training_hooks,
            training_chief_hooks=made.training_chief_hooks, scaffold=made.scaffold,
        )  # fmt: skip

    @property
    def model_dir(self) -> str:
        """The directory of checkpoints and summaries."""
        return self._core.model_dir

    @property
    def config(self) -> RunConfig:
        """A copy of the settings."""
        return self._core.config

    def get_variable_names(self) -> list[str]:
        """The names of the variables in the latest checkpoint."""
        return self._core.get_variable_names()

    def get_variable_value(self, name: str) -> Any:
        """The value of a variable in the latest checkpoint."""
        return self._core.get_variable_value(name)

    def fit(
        self, x: Data = None, y: Data = None, input_fn: InputFn | None = None, steps: int | None = None,
        batch_size: int | None = None, monitors: Iterable[Any] | None = None, max_steps: int | None = None,
    ) -> LearnEstimator:  # fmt: skip
        """Trains from the latest checkpoint on.

        Args:
          x, y: features and labels, arrays or name -> array.
          input_fn: in place of arrays: returns (features, labels).
          steps: so many steps more; None: until the input ends.
          batch_size: examples in a step; None: all.
          monitors: hooks of the session.
          max_steps: the global step at which training ends.

        Raises:
          ValueError: when the arguments contradict each other.
        """
        if steps is not None and max_steps is not None:
            raise ValueError("Can not provide both steps and max_steps.")
        _check_input(x, y, input_fn, batch_size)
        for monitor in monitors or ():
            getattr(monitor, "set_estimator", lambda _: None)(self)
        self._core.train(input_fn or _batch(x, y, batch_size, True, None), list(monitors or ()), steps, max_steps)
        return self

    def partial_fit(
        self, x: Data = None, y: Data = None, input_fn: InputFn | None = None, steps: int = 1,
        batch_size: int | None = None, monitors: Iterable[Any] | None = None,
    ) -> Any:  # fmt: skip
        """`fit` for one step."""
        return self.fit(x, y, input_fn, steps, batch_size, monitors)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """What scikit-learn may set: ``params`` alone."""
        return {"params": self.params}

    def set_params(self, **params: Any) -> Any:
        """Sets ``params``; ValueError for another name."""
        for name, value in params.items():
            if name != "params":
                raise ValueError(f"Invalid parameter {name} for estimator {type(self).__name__}. It has only `params`.")
            self.params = value
        return self

    def evaluate(
        self, x: Data = None, y: Data = None, input_fn: InputFn | None = None, feed_fn: FeedFn | None = None,
        batch_size: int | None = None, steps: int | None = None, metrics: Mapping[Any, Any] | None = None,
        name: str | None = None, checkpoint_path: str | None = None, hooks: Iterable[Any] | None = None,
        log_progress: bool = True,
    ) -> dict[str, Any]:  # fmt: skip
        """The values of the metrics, the loss and the global step, by name.

        Args:
          feed_fn: makes a feed for each batch of ``input_fn``.
          steps: number of batches; None reads the input to its end.
          metrics: name -> `MetricSpec`, more metrics; (name, prediction) -> a function of predictions and labels.
          The others are those of `fit`, and of `tf.estimator.Estimator.evaluate`.

        Raises:
          ValueError: when the arguments contradict each other.
        """
        _check_input(x, y, input_fn, batch_size)
        if feed_fn is not None and input_fn is None:
            raise ValueError("Can not provide both feed_fn and x or y.")
        if metrics is not None and not isinstance(metrics, dict):
            raise ValueError(f"Metrics argument should be None or dict. Got {metrics}.")
        self._metrics = metrics or {}
        self._check_fitted(checkpoint_path)
        given = input_fn or _batch(x, y, batch_size, False, 1)
        feeding = [] if feed_fn is None else [FeedFnHook(feed_fn)]
        return self._core.evaluate(given, steps, [*(hooks or ()), *feeding], checkpoint_path, name)

    def predict(
        self, x: Data = None, input_fn: InputFn | None = None, batch_size: int | None = None,
        outputs: Sequence[str] | None = None, as_iterable: bool = True, iterate_batches: bool = False,
    ) -> Any:  # fmt: skip
        """The predictions of each example, or of all at once.

        Args:
          outputs: the names of the predictions to compute; default: all.
          as_iterable: yield examples; False returns arrays.
          iterate_batches: yield batches.
          The others are those of `fit`.
        """
        _check_input(x, None, input_fn, batch_size)
        if x is not None and not as_iterable:
            outputs = None  # as in TensorFlow, arrays are of all predictions
        batches = self._batches(input_fn or _batch(x, None, batch_size, False, 1), outputs)
        if not as_iterable:
            parts = list(batches)
            if not parts:
                raise ValueError("There is nothing to predict: the input has ended before its first batch.")
            if not isinstance(parts[0], dict):
                return np.concatenate(parts)
            return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
        return batches if iterate_batches else itertools.chain.from_iterable(map(examples, batches))

    def export_savedmodel(
        self, export_dir_base: str, serving_input_fn: Callable[[], InputFnOps],
        default_output_alternative_key: str | None = None, assets_extra: dict[str, str] | None = None,
        as_text: bool = False, checkpoint_path: str | None = None, strip_default_attrs: bool = False,
    ) -> bytes:  # fmt: skip
        """Writes the model as a SavedModel to a new directory, whose name is the time; returns its path.

        Args:
          serving_input_fn: returns `InputFnOps`, as those of `build_parsing_serving_input_fn`.
          default_output_alternative_key: the head that is served by default; None: there is one.
          The others are those of `tf.estimator.Estimator.export_saved_model`.

        Raises:
          ValueError: when there is no checkpoint, or no such head.
        """

        def receive() -> Any:
            given = serving_input_fn()
            kind = ServingInputReceiver if isinstance(given.features, Mapping) else TensorServingInputReceiver
            return kind(given.features, given.default_inputs)

        self._check_fitted(checkpoint_path)
        self._served = functools.partial(_served, default=default_output_alternative_key)
        try:
            return self._core.export_savedmodel(
                export_dir_base, receive, assets_extra, as_text, checkpoint_path, strip_default_attrs
            )
        finally:
            self._served = None

    def _check_fitted(self, checkpoint_path: str | None = None) -> None:
        if not (checkpoint_path or self._core.latest_checkpoint()):
            raise NotFittedError(f"Couldn't find trained model at {self.model_dir}.")

    def _batches(self, input_fn: InputFn, outputs: Sequence[str] | None) -> Iterator[Any]:
        self._check_fitted()
        for batch in self._core.predict(input_fn, outputs, yield_single_examples=False):
            yield batch
            if self._is_constant:  # the input would give the same batch for ever
                return

    def _of(self, key: str, x: Data, input_fn: InputFn | None, batch_size: int | None, as_iterable: bool) -> Any:
        found = LearnEstimator.predict(self, x, input_fn, batch_size, [key], as_iterable)
        return (example[key] for example in found) if as_iterable else found[key]


def _served(made: ModelFnOps, default: str | None) -> dict[str, Any]:
    """The outputs of an export by the name of their signature: of each head, and of the default one."""
    alternatives = made.output_alternatives
    if not alternatives:
        found = made.predictions if isinstance(made.predictions, Mapping) else {PredictionKey.GENERIC: made.predictions}
        default = default or "default_output_alternative"
        alternatives = {default: (ProblemType.UNSPECIFIED, found)}
    elif default is None and len(alternatives) == 1:
        default = next(iter(alternatives))
    if default not in alternatives:
        raise ValueError(f"default_output_alternative_key must be one of {[*alternatives]}, not {default!r}")
    outputs = {f"default_input_alternative:{head}": _output(*output) for head, output in alternatives.items()}
    return {**outputs, saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY: outputs[f"default_input_alternative:{default}"]}


def _output(problem: ProblemType, found: Mapping[str, Tensor]) -> ExportOutput:
    if problem is ProblemType.LINEAR_REGRESSION:
        return RegressionOutput(found[PredictionKey.SCORES])
    if problem in (ProblemType.CLASSIFICATION, ProblemType.LOGISTIC_REGRESSION):
        return ClassificationOutput(found[PredictionKey.PROBABILITIES], found.get("all_classes"))
    return PredictOutput(dict(found))


def _unfed_like(label: Any) -> Callable[[], Any]:
    """Makes a placeholder of any number of such labels; None for what is no tensor."""
    if not isinstance(label, Tensor):
        return lambda: None
    shape = None if label.shape.ndims is None else [None, *label.shape.as_list()[1:]]
    return functools.partial(placeholder, label.dtype, shape)


def _is_constant() -> bool:
    """Whether the input has neither queues nor datasets."""
    graph = get_default_graph()
    if get_collection(GraphKeys.QUEUE_RUNNERS):
        return False
    return not any(op.type in ITERATOR_OPS for op in graph.get_operations())


def _check_input(x: Data, y: Data, input_fn: InputFn | None, batch_size: int | None) -> None:
    if input_fn is None:
        if x is None:
            raise ValueError("Either x or input_fn must be provided.")
        if isinstance(x, Tensor) or isinstance(y, Tensor):
            raise ValueError("Inputs cannot be tensors. Please provide input_fn.")
    elif x is not None or y is not None:
        raise ValueError("Can not provide both input_fn and x or y.")
    elif batch_size is not None:
        raise ValueError("Can not provide both input_fn and batch_size.")


def _own_metrics(metrics: Mapping[Any, Any], features: Any, labels: Any, predictions: Any) -> dict[str, Any]:
    found = {}
    for name, metric in metrics.items():
        if isinstance(metric, MetricSpec):
            found[name] = metric.create_metric_ops(features, labels, predictions)
        elif isinstance(name, tuple):
            found[name[0]] = metric(_one_of(predictions, name[1], "predictions"), labels)
        else:
            found[name] = metric(_one_of(predictions, None, "predictions"), labels)
    return found


# ---- What a served model receives ----------------------------------------------------------------------------------


@export("tf.contrib.learn.InputFnOps", "tensorflow.contrib.learn.python.learn.utils.input_fn_utils.InputFnOps")
class InputFnOps(NamedTuple):
    """What a function for an export returns (``tf.contrib.learn.InputFnOps``).

    Args:
      features: name -> tensor, for the model function.
      labels: None.
      default_inputs: name -> the placeholder that is fed.
    """

    features: Any
    labels: Any
    default_inputs: Any


def _input_fn_of(receive: Callable[[], Any]) -> Callable[[], InputFnOps]:
    def input_fn() -> InputFnOps:
        received = receive()
        return InputFnOps(received.features, None, received.receiver_tensors)

    return input_fn


@export(
    "tf.contrib.learn.build_parsing_serving_input_fn", "tf.contrib.learn.utils.build_parsing_serving_input_fn",
    "tensorflow.contrib.learn.python.learn.utils.input_fn_utils.build_parsing_serving_input_fn",
)  # fmt: skip
def build_parsing_serving_input_fn(
    feature_spec: Mapping[str, Any], default_batch_size: int | None = None
) -> Callable[[], InputFnOps]:
    """`tf.estimator.export.build_parsing_serving_input_receiver_fn` for ``tf.contrib.learn``."""
    return _input_fn_of(build_parsing_serving_input_receiver_fn(feature_spec, default_batch_size))


@export("tensorflow.contrib.learn.python.learn.utils.input_fn_utils.build_default_serving_input_fn")
def build_default_serving_input_fn(
    features: Mapping[str, Any], default_batch_size: int | None = None
) -> Callable[[], InputFnOps]:
    """`tf.estimator.export.build_raw_serving_input_receiver_fn` for ``tf.contrib.learn``."""
    return _input_fn_of(build_raw_serving_input_receiver_fn(features, default_batch_size))


@export("tf.contrib.learn.SKCompat")
class SKCompat:
    """An estimator with scikit-learn's methods (``tf.contrib.learn.SKCompat``)."""

    def __init__(self, estimator: LearnEstimator) -> None:
        self._estimator = estimator

    def fit(
        self, x: Data, y: Data, batch_size: int = 128, steps: int | None = None, max_steps: int | None = None,
        monitors: Iterable[Any] | None = None,
    ) -> SKCompat:  # fmt: skip
        """See `LearnEstimator.fit`."""
        self._estimator.fit(x, y, None, steps, batch_size, monitors, max_steps)
        return self

    def score(
        self, x: Data, y: Data, batch_size: int = 128, steps: int | None = None,
        metrics: Mapping[Any, Any] | None = None, name: str | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """See `LearnEstimator.evaluate`."""
        return self._estimator.evaluate(x, y, batch_size=batch_size, steps=steps, metrics=metrics, name=name)

    def predict(self, x: Data, batch_size: int = 128, outputs: Sequence[str] | None = None) -> Any:
        """The predictions of all examples: name -> array."""
        return LearnEstimator.predict(self._estimator, x, None, batch_size, outputs, as_iterable=False)
