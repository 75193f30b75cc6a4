"""``tf.estimator.Estimator``: trains, evaluates, runs and exports the model that a model function describes."""

from __future__ import annotations

import copy
import logging
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tfmini.estimator import evaluation, model_export
from tfmini.estimator.evaluation import check_positive, checked_hooks, checked_listeners
from tfmini.estimator.input_functions import argument_names, call_input_fn, features_and_labels, known_arguments
from tfmini.estimator.model_spec import EstimatorSpec, ModeKeys, PredictOutput
from tfmini.estimator.run_config import RunConfig, WarmStartSettings, default_session_config, warm_start_settings
from tfmini.export import export
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.ops.composites import SparseTensor
from tfmini.ops.sparse.functions import sparse_tensor_to_dense
from tfmini.placement.device_setter import replica_device_setter
from tfmini.runtime import process
from tfmini.train.checkpointing.graph_files import latest_checkpoint, list_variables, load_variable
from tfmini.train.global_steps import create_global_step
from tfmini.train.hooks import StopAtStepHook
from tfmini.train.strategy import InputContext, Strategy, get_strategy, loss_of_all, share_losses

_log = logging.getLogger("tensorflow")
_MODEL_FN_ARGUMENTS = {"features", "labels", "mode", "params", "self", "config"}


@export("tf.estimator.Estimator", "tensorflow.python.estimator.estimator.EstimatorV2")
class Estimator:
    """A model and the directory of its checkpoints (``tf.estimator.Estimator``).

    Args:
      model_fn: called as ``model_fn(features, labels, mode, params, config)`` with those arguments that it names;
        returns an `EstimatorSpec`. Each call builds its model in a new graph.
      model_dir: directory of checkpoints and summaries; default: the config's, else a temporary one.
      config: a `RunConfig`; default: a new one, which reads TF_CONFIG.
      params: hyper-parameters for the model function and input functions.
      warm_start_from: a checkpoint, or `WarmStartSettings`, that training starts from.

    Raises:
      ValueError: when the model function's arguments, or the directories, do not fit.
    """

    def __init__(
        self,
        model_fn: Callable[..., Any],
        model_dir: str | None = None,
        config: RunConfig | None = None,
        params: Any = None,
        warm_start_from: str | WarmStartSettings | None = None,
    ) -> None:
        if type(self)._call_model_fn is not Estimator._call_model_fn:
            raise ValueError(f"Subclasses of Estimator cannot override members of Estimator: {type(self)}")
        self._config = maybe_overwrite_model_dir_and_session_config(config, model_dir)
        self._model_dir: str = self._config.model_dir
        self._session_config = self._config.session_config
        _log.info("Using config: %s", self._config._values)
        self._device_fn = self._config.device_fn or _replica_device_fn(self._config)
        if model_fn is None:
            raise ValueError("model_fn must be provided to Estimator.")
        _check_model_fn(model_fn, params)
        self._model_fn = model_fn
        self._params = copy.deepcopy(params or {})
        self._warm_start_settings = warm_start_settings(warm_start_from)

    @property
    def model_dir(self) -> str:
        """The directory of checkpoints and summaries."""
        return self._model_dir

    @property
    def config(self) -> RunConfig:
        """A copy of the settings."""
        return copy.copy(self._config)

    @property
    def params(self) -> Any:
        """A copy of the hyper-parameters."""
        return copy.deepcopy(self._params)

    @property
    def model_fn(self) -> Callable[..., EstimatorSpec]:
        """The model function, bound to the params."""

        def public_model_fn(features: object, labels: object, mode: str, config: RunConfig) -> EstimatorSpec:
            return self._call_model_fn(features, labels, mode, config)

        return public_model_fn

    def get_variable_value(self, name: str) -> Any:
        """The value of a variable in the latest checkpoint."""
        self._checked_checkpoint()
        return load_variable(self.model_dir, name)

    def get_variable_names(self) -> list[str]:
        """The names of the variables in the latest checkpoint."""
        self._checked_checkpoint()
        return [name for name, _ in list_variables(self.model_dir)]

    def latest_checkpoint(self) -> str | None:
        """The path of the latest checkpoint; None if there is none."""
        return latest_checkpoint(self.model_dir)

    def train(
        self,
        input_fn: Callable[..., Any],
        hooks: Iterable[Any] | None = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Iterable[Any] | None = None,
    ) -> Estimator:
        """Trains from the latest checkpoint on, until the input ends.

        Args:
          input_fn: returns (features, labels), or a dataset of such pairs.
          hooks: hooks of the training session.
          steps: at most so many steps more.
          max_steps: the global step at which training ends; if a checkpoint has reached it, nothing is done.
          saving_listeners: are told of each checkpoint.

        Raises:
          ValueError: when both ``steps`` and ``max_steps`` are given, or one is not positive.
        """
        if steps is not None and max_steps is not None:
            raise ValueError("Can not provide both steps and max_steps.")
        check_positive("steps", steps)
        check_positive("max_steps", max_steps)
        all_hooks, listeners = checked_hooks(hooks), checked_listeners(saving_listeners)
        if max_steps is not None and evaluation.step_of_checkpoint(self.model_dir) >= max_steps:
            _log.info("Skipping training since max_steps has already saved.")
            return self
        if steps is not None or max_steps is not None:
            all_hooks.append(StopAtStepHook(steps, max_steps))
        loss = evaluation.train(self, input_fn, all_hooks, listeners)
        _log.info("Loss for final step: %s.", loss)
        return self

    def evaluate(
        self,
        input_fn: Callable[..., Any],
        steps: int | None = None,
        hooks: Iterable[Any] | None = None,
        checkpoint_path: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """The values of the metrics, the loss and the global step, by name.

        Args:
          input_fn: returns (features, labels), or a dataset of such pairs.
          steps: number of batches; None reads the input to its end.
          hooks: hooks of the session.
          checkpoint_path: default: the latest checkpoint; without any, the model's initial values.
          name: distinguishes the summaries of several data sets.
        """
        check_positive("steps", steps)
        return evaluation.evaluate(self, input_fn, steps, checked_hooks(hooks), checkpoint_path, name)

    def eval_dir(self, name: str | None = None) -> str:
        """The directory of an evaluation's summaries."""
        return os.path.join(self.model_dir, f"eval_{name}" if name else "eval")

    def predict(
        self,
        input_fn: Callable[..., Any],
        predict_keys: Iterable[str] | None = None,
        hooks: Iterable[Any] | None = None,
        checkpoint_path: str | None = None,
        yield_single_examples: bool = True,
    ) -> Iterator[Any]:
        """Yields the predictions, one example at a time.

        Args:
          input_fn: returns features, or a dataset of them; labels are ignored.
          predict_keys: the names of the predictions to compute; default: all.
          hooks: hooks of the session.
          checkpoint_path: default: the latest checkpoint; without any, the model's initial values.
          yield_single_examples: False yields whole batches.

        Raises:
          ValueError: when predictions have different batch lengths, or no key fits.
        """
        return evaluation.predict(
            self, input_fn, predict_keys, checked_hooks(hooks), checkpoint_path, yield_single_examples
        )

    def export_saved_model(
        self,
        export_dir_base: str,
        serving_input_receiver_fn: Callable[[], Any] | None,
        assets_extra: dict[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        experimental_mode: str = ModeKeys.PREDICT,
    ) -> bytes:
        """Writes the model as a SavedModel to a new directory, whose name is the time; returns its path.

        Args:
          export_dir_base: the directory in which that one is made.
          serving_input_receiver_fn: returns a `ServingInputReceiver`.
          assets_extra: path below ``assets.extra`` -> file to copy there.
          as_text: write the message as text.
          checkpoint_path: default: the latest checkpoint.
          experimental_mode: the mode of the exported graph.

        Raises:
          ValueError: when there is no checkpoint, or no receiver function.
        """
        if not serving_input_receiver_fn:
            raise ValueError("An input_receiver_fn must be defined.")
        receivers = {experimental_mode: serving_input_receiver_fn}
        return model_export.export_model(self, export_dir_base, receivers, assets_extra, as_text, checkpoint_path, True)

    def export_savedmodel(
        self,
        export_dir_base: str,
        serving_input_receiver_fn: Callable[[], Any],
        assets_extra: dict[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
        strip_default_attrs: bool = False,
    ) -> bytes:
        """`export_saved_model` under its older name."""
        receivers = {ModeKeys.PREDICT: serving_input_receiver_fn}
        strip = strip_default_attrs
        return model_export.export_model(
            self, export_dir_base, receivers, assets_extra, as_text, checkpoint_path, strip
        )

    def experimental_export_all_saved_models(
        self,
        export_dir_base: str,
        input_receiver_fn_map: dict[str, Callable[[], Any]],
        assets_extra: dict[str, str] | None = None,
        as_text: bool = False,
        checkpoint_path: str | None = None,
    ) -> bytes:
        """`export_saved_model` with a graph for each mode: ``input_receiver_fn_map`` is mode -> receiver function."""
        receivers = input_receiver_fn_map
        return model_export.export_model(self, export_dir_base, receivers, assets_extra, as_text, checkpoint_path, True)

    def _checked_checkpoint(self) -> str:
        found = self.latest_checkpoint()
        if not found:
            raise ValueError(f"Couldn't find trained model at {self.model_dir}.")
        return found

    def _inputs(self, input_fn: Callable[..., Any], mode: str) -> tuple[Any, Any, list[Any]]:
        """(features, labels, hooks) of an input function."""
        config = self.config
        strategy = self._strategy(mode)
        part = None if strategy is None else strategy.input_context()
        if strategy is not None and mode == ModeKeys.TRAIN and strategy.num_replicas_in_sync == 1:
            part = InputContext(config.num_worker_replicas, config.global_id_in_cluster)
        with (strategy or get_strategy()).replica_scope(False):
            return features_and_labels(call_input_fn(input_fn, mode, self.params, config, part))

    _create_and_assert_global_step = staticmethod(create_global_step)  # AdaNet calls it for its own graphs

    def _strategy(self, mode: str) -> Strategy | None:
        """The strategy that the settings have for a mode.

        Raises:
          ValueError: one of several workers, to evaluate; or to train without this task's server.
        """
        config = self._config
        strategies = {ModeKeys.TRAIN: config.train_distribute, ModeKeys.EVAL: config.eval_distribute}
        found: Strategy | None = strategies.get(mode)
        if found is not None and found.num_replicas_in_sync > 1:
            if mode == ModeKeys.EVAL:
                raise ValueError(f"{found} does not evaluate: set eval_distribute to None, or start an evaluator task.")
            if process.server_at(process.address_of_target(config.master)) is None:
                raise ValueError(f"{found} trains by tf.estimator.train_and_evaluate, which starts this task's server.")
        return found

    def _call_model_fn(self, features: object, labels: object, mode: str, config: RunConfig) -> EstimatorSpec:
        """The `EstimatorSpec` of the model function.

        Raises:
          ValueError: when it returns something else, or takes no labels although there are some.
        """
        offered = {"labels": labels, "mode": mode, "params": self.params, "config": config}
        if labels is not None and "labels" not in argument_names(self._model_fn):
            raise ValueError("model_fn does not take labels, but input_fn returns labels.")
        _log.info("Calling model_fn.")
        with (self._strategy(mode) or get_strategy()).replica_scope(True):
            share_losses()
            spec = self._model_fn(features=features, **known_arguments(self._model_fn, offered))
            if isinstance(spec, EstimatorSpec) and spec.loss is not None and mode == ModeKeys.TRAIN:
                spec = spec._replace(loss=loss_of_all(spec.loss))
        _log.info("Done calling model_fn.")
        if not isinstance(spec, EstimatorSpec):
            raise ValueError("model_fn should return an EstimatorSpec.")
        return spec


@export("tf.estimator.add_metrics", "tf.contrib.estimator.add_metrics")
def add_metrics(estimator: Estimator, metric_fn: Callable[..., Any]) -> Estimator:
    """An estimator of the same model and directory with further metrics (``tf.estimator.add_metrics``).

    Args:
      estimator: an `Estimator`.
      metric_fn: a function of those of features, labels, predictions and config that it names; returns name -> metric.

    Raises:
      ValueError: when the function names other arguments.
    """
    offered: dict[str, Any] = dict.fromkeys(("features", "labels", "predictions", "config"))
    unknown = sorted(set(argument_names(metric_fn)) - set(offered))
    if unknown:
        raise ValueError(f"metric_fn ({metric_fn}) has following not expected args: {unknown}")

    def model_fn(features: Any, labels: Any, mode: str, config: RunConfig) -> EstimatorSpec:
        spec = estimator.model_fn(features, labels, mode, config)
        if mode != ModeKeys.EVAL:
            return spec
        given = {"features": features, "labels": labels, "predictions": spec.predictions, "config": config}
        more = metric_fn(**known_arguments(metric_fn, given))
        return spec._replace(eval_metric_ops={**(spec.eval_metric_ops or {}), **(more or {})})

    return Estimator(model_fn, estimator.model_dir, estimator.config, warm_start_from=estimator._warm_start_settings)


@export("tf.contrib.estimator.forward_features")
def forward_features(
    estimator: Estimator, keys: str | Sequence[str] | None = None,
    sparse_default_values: Mapping[str, Any] | None = None,
) -> Estimator:  # fmt: skip
    """An estimator of the same model and directory whose predictions have features, too.

    Args:
      estimator: an `Estimator` whose predictions are a dictionary.
      keys: the names of these features; all by default.
      sparse_default_values: name of a sparse feature -> what stands in its gaps, since predictions are dense.

    Raises:
      TypeError: ``keys`` are no strings.
      ValueError: (when the model is built) a feature is absent, sparse, or has the name of a prediction.
    """
    names = [keys] if isinstance(keys, str) else keys
    if names is not None and not (isinstance(names, (list, tuple)) and all(isinstance(key, str) for key in names)):
        raise TypeError(f"keys should be either a string or a list of strings. Given: {keys!r}")

    def model_fn(features: Any, labels: Any, mode: str, config: RunConfig) -> EstimatorSpec:
        spec = estimator.model_fn(features, labels, mode, config)
        if spec.predictions is None:
            return spec
        if not isinstance(spec.predictions, dict):
            raise ValueError(
                f"Predictions should be a dict to be able to forward features. Given: {type(spec.predictions)}"
            )
        chosen = list(features) if names is None else names
        more = {key: _forwarded(key, features, spec.predictions, sparse_default_values or {}) for key in chosen}
        served = {
            key: PredictOutput({**output.outputs, **more})
            for key, output in (spec.export_outputs or {}).items()
            if key in ("predict", "serving_default") and isinstance(output, PredictOutput)
        }
        outputs = {**spec.export_outputs, **served} if served else spec.export_outputs
        return spec._replace(predictions={**spec.predictions, **more}, export_outputs=outputs)

    return Estimator(model_fn, estimator.model_dir, estimator.config)


def _forwarded(key: str, features: Any, predictions: Mapping[str, Any], gaps: Mapping[str, Any]) -> Tensor:
    """A feature as a prediction; ValueError where it can't be one."""
    if key not in features:
        raise ValueError(f"keys should be exist in features. Key {key!r} is not in features: {sorted(features)}")
    if key in predictions:
        raise ValueError(f"Cannot forward feature key ({key}), since predictions have it: {sorted(predictions)}")
    value = features[key]
    if not isinstance(value, SparseTensor):
        if key in gaps:
            raise ValueError(f"Feature ({key}) is expected to be a `SparseTensor`.")
        return convert_to_tensor(value)
    if key not in gaps:
        raise ValueError(
            f"Feature ({key}) should be a Tensor. Filter unwanted features by `keys`, or add it to"
            " `sparse_default_values`."
        )
    return sparse_tensor_to_dense(value, gaps[key])


@export("tensorflow.python.estimator.estimator.maybe_overwrite_model_dir_and_session_config")
def maybe_overwrite_model_dir_and_session_config(given: object, model_dir: str | None) -> RunConfig:
    """The settings with a directory and a session config."""
    if given is None:
        _log.info("Using default config.")
    elif not isinstance(given, RunConfig):
        raise ValueError(f"config must be an instance of `RunConfig`. Received {given}.")
    config: RunConfig = RunConfig() if given is None else given
    if model_dir == "":
        raise ValueError("model_dir should be non-empty.")
    if model_dir is not None:
        model_dir = os.fspath(model_dir)
        if config.model_dir is not None and config.model_dir != model_dir:
            raise ValueError(
                "`model_dir` are set both in constructor and `RunConfig`, but with different values. In constructor:"
                f" '{model_dir}', in `RunConfig`: '{config.model_dir}' "
            )
        config = config.replace(model_dir=model_dir)
    elif config.model_dir is None:
        made = tempfile.mkdtemp()
        _log.warning("Using temporary folder as model directory: %s", made)
        config = config.replace(model_dir=made)
    return config if config.session_config is not None else config.replace(session_config=default_session_config())


def _replica_device_fn(config: RunConfig) -> Any:
    """Variables on the ps, in turn, and all else on this task; None without a ps. In step, all is on this task."""
    if config.train_distribute is not None and config.train_distribute.num_replicas_in_sync > 1:
        return config.train_distribute.worker_devices[0]
    if config.num_ps_replicas == 0:
        return None
    worker = f"/job:{config.task_type}/task:{config.task_id}"
    return replica_device_setter(config.num_ps_replicas, worker_device=worker, cluster=config.cluster_spec)


def _check_model_fn(model_fn: Callable[..., Any], params: Any) -> None:
    names = set(argument_names(model_fn))
    if "features" not in names:
        raise ValueError(f"model_fn ({model_fn}) must include features argument.")
    if params is not None and "params" not in names:
        raise ValueError(
            f"model_fn ({model_fn}) does not include params argument, but params ({params}) is passed to Estimator."
        )
    if params is None and "params" in names:
        _log.warning("Estimator's model_fn (%s) includes params argument, but params are not passed to it.", model_fn)
    unknown = sorted(names - _MODEL_FN_ARGUMENTS)
    if unknown:
        raise ValueError(f"model_fn ({model_fn}) has following not expected args: {unknown}")
