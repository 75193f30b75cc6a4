"""``tf.estimator.tpu`` without a TPU: models that are written for `TPUEstimator` train on CPUs, with ``use_tpu=False``.

A TPUEstimator is an `Estimator` that adds the batch size to the params of model and input functions, and takes a
`TPUEstimatorSpec`, whose metrics and host calls are functions of tensors.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from tfmini import dtypes
from tfmini.core_types import TensorLike
from tfmini.estimator.estimator import Estimator
from tfmini.estimator.input_functions import argument_names, call_input_fn, features_and_labels, known_arguments
from tfmini.estimator.model_spec import EstimatorSpec, ModeKeys
from tfmini.estimator.run_config import RunConfig
from tfmini.export import export
from tfmini.ops.array.identity import cast
from tfmini.ops.variables.scope import VariableScope, variable_scope
from tfmini.runtime.client.session import BaseSession
from tfmini.train import contrib_summary
from tfmini.train.coordinator import Coordinator
from tfmini.train.session_run_hook import SessionRunArgs, SessionRunContext, SessionRunHook

_BATCH_SIZE = "batch_size"
_RESERVED = (_BATCH_SIZE, "context")


@export("tf.contrib.tpu.InputPipelineConfig", "tf.estimator.tpu.InputPipelineConfig")
class InputPipelineConfig:
    """Where the input of a TPU is computed (``tf.estimator.tpu.InputPipelineConfig``); without one it says nothing."""

    PER_SHARD_V1, PER_HOST_V1, PER_HOST_V2, BROADCAST, SLICED = range(1, 6)


class _TPUConfig(NamedTuple):
    iterations_per_loop: int = 2
    num_shards: int | None = None
    num_cores_per_replica: int | None = None
    per_host_input_for_training: bool | int = True
    tpu_job_name: str | None = None
    initial_infeed_sleep_secs: float | None = None
    input_partition_dims: Sequence[Any] | None = None
    eval_training_input_configuration: int = InputPipelineConfig.PER_HOST_V1
    experimental_host_call_every_n_steps: int = 1


@export("tf.contrib.tpu.TPUConfig", "tf.estimator.tpu.TPUConfig")
class TPUConfig(_TPUConfig):
    """The settings of TPUs (``tf.estimator.tpu.TPUConfig``); without a TPU they say nothing."""

    __slots__ = ()

    def __new__(cls, *args: Any, **kwargs: Any) -> TPUConfig:
        made = super().__new__(cls, *args, **kwargs)
        per_host = made.per_host_input_for_training
        if not isinstance(per_host, bool):
            return made
        named = InputPipelineConfig.PER_HOST_V1 if per_host else InputPipelineConfig.PER_SHARD_V1
        return made._replace(per_host_input_for_training=named)


@export("tf.contrib.tpu.RunConfig", "tf.estimator.tpu.RunConfig")
class TPURunConfig(RunConfig):
    """A `RunConfig` with a `TPUConfig` (``tf.estimator.tpu.RunConfig``).

    Args:
      tpu_config: default: one of defaults.
      evaluation_master, master: addresses, kept for the model function to read; TF_CONFIG tells where tasks are.
      cluster: a cluster resolver, or None.
      **kwargs: those of `RunConfig`.
    """

    def __init__(
        self,
        tpu_config: TPUConfig | None = None,
        evaluation_master: str | None = None,
        master: str | None = None,
        cluster: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._tpu = {"tpu_config": tpu_config or TPUConfig(), "cluster": cluster}
        self._tpu |= {"evaluation_master": evaluation_master or "", "master": master or ""}

    def __getattr__(self, name: str) -> Any:
        own = vars(self).get("_tpu", {})
        return own[name] if name in own else super().__getattr__(name)

    def replace(self, **kwargs: Any) -> RunConfig:
        """`RunConfig.replace`, for ``tpu_config`` as well."""
        tpu_config = kwargs.pop("tpu_config", None)
        made: Any = super().replace(**kwargs)
        if tpu_config is not None:
            made._tpu = {**self._tpu, "tpu_config": tpu_config}
        return made  # type: ignore[no-any-return]


class _TPUEstimatorSpec(NamedTuple):
    mode: str
    predictions: Any = None
    loss: Any = None
    train_op: Any = None
    eval_metrics: Any = None
    export_outputs: Any = None
    scaffold_fn: Any = None
    host_call: Any = None
    training_hooks: Any = None
    evaluation_hooks: Any = None
    prediction_hooks: Any = None


@export("tf.contrib.tpu.TPUEstimatorSpec", "tf.estimator.tpu.TPUEstimatorSpec")
class TPUEstimatorSpec(_TPUEstimatorSpec):
    """What a model function of a `TPUEstimator` returns (``tf.estimator.tpu.TPUEstimatorSpec``).

    The fields are those of `EstimatorSpec` but for these.

    Attributes:
      eval_metrics: (a function that returns ``eval_metric_ops``, its tensors as a list or by name).
      host_call: (a function that returns an op to run in every step, its tensors).
      scaffold_fn: a function that returns the scaffold.

    Raises:
      TypeError, ValueError: as for `EstimatorSpec`, and for a metric or host call of another form.
      RuntimeError: when such a function takes another number of tensors.
    """

    __slots__ = ()

    def __new__(
        cls, mode: str, predictions: Any = None, loss: Any = None, train_op: Any = None, eval_metrics: Any = None,
        export_outputs: Any = None, scaffold_fn: Any = None, host_call: Any = None, training_hooks: Any = None,
        evaluation_hooks: Any = None, prediction_hooks: Any = None,
    ) -> TPUEstimatorSpec:  # fmt: skip
        for what, call in (("eval_metrics", eval_metrics), ("host_call", host_call)):
            if call is not None:
                _check_call(what, call)
        checked = EstimatorSpec(
            mode, predictions, loss, train_op, export_outputs=export_outputs, training_hooks=training_hooks,
            evaluation_hooks=evaluation_hooks, prediction_hooks=prediction_hooks,
        )  # fmt: skip
        return super().__new__(
            cls, mode, checked.predictions, checked.loss, checked.train_op, eval_metrics, checked.export_outputs,
            scaffold_fn, host_call, checked.training_hooks, checked.evaluation_hooks, checked.prediction_hooks,
        )  # fmt: skip

    def as_estimator_spec(self) -> EstimatorSpec:
        """The `EstimatorSpec` of the same model."""
        hooks = [] if self.host_call is None else [_HostCallHook(_called(self.host_call))]
        metrics = None if self.eval_metrics is None else _called(self.eval_metrics)
        scaffold = self.scaffold_fn() if self.scaffold_fn else None
        return EstimatorSpec(
            self.mode, self.predictions, self.loss, self.train_op, metrics, self.export_outputs, scaffold=scaffold,
            training_hooks=[*(self.training_hooks or ()), *hooks],
            evaluation_hooks=[*(self.evaluation_hooks or ()), *hooks],
            prediction_hooks=[*(self.prediction_hooks or ()), *hooks],
        )  # fmt: skip


def _check_call(what: str, call: Any) -> None:
    if not isinstance(call, (tuple, list)):
        raise ValueError(f"{what} should be tuple or list")
    if len(call) != 2:
        raise ValueError(f"{what} should have two elements.")
    function, tensors = call
    if not callable(function):
        raise TypeError(f"{what}[0] should be callable.")
    if not isinstance(tensors, (tuple, list, dict)):
        raise ValueError(f"{what}[1] should be tuple or list, or dict.")
    found = inspect.getfullargspec(function)
    wanted = len(found.args) - (1 if inspect.ismethod(function) else 0)
    if not isinstance(tensors, dict) and not found.varargs and len(tensors) != wanted:
        raise RuntimeError(
            f"In TPUEstimatorSpec.{what}, length of tensors {len(tensors)} does not match method args of the function,"
            f" which takes {wanted}."
        )


def _called(call: Any) -> Any:
    """The result of a function with its tensors."""
    function, tensors = call
    return function(**tensors) if isinstance(tensors, Mapping) else function(*tensors)


class _HostCallHook(SessionRunHook):
    """Runs the op of a host call with every step; opens the writers of summaries before, and flushes them after."""

    def __init__(self, op: Any) -> None:
        self._op = op

    def begin(self) -> None:
        self._opened = contrib_summary.summary_writer_initializer_op()
        self._flushed = [contrib_summary.flush(writer=op.inputs[0]) for op in self._opened]

    def after_create_session(self, session: BaseSession, coord: Coordinator) -> None:
        session.run(self._opened)

    def end(self, session: BaseSession) -> None:
        session.run(self._flushed)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs(self._op)


@export("tf.contrib.tpu.TPUEstimator", "tf.estimator.tpu.TPUEstimator")
class TPUEstimator(Estimator):
    """An `Estimator` for model functions of TPUs (``tf.estimator.tpu.TPUEstimator``), which run on CPUs.

    Args:
      model_fn: returns a `TPUEstimatorSpec` or an `EstimatorSpec`; its params have the batch size of the mode.
      config: a `RunConfig` of this module.
      params: hyper-parameters, without the keys ``batch_size`` and ``context``.
      use_tpu: must be False.
      train_batch_size, eval_batch_size, predict_batch_size: what ``params["batch_size"]`` is in each mode.
      model_dir, warm_start_from: as for `Estimator`. The others concern a TPU alone.

    Raises:
      NotImplementedError: with ``use_tpu``, whose default is True as in TensorFlow.
      ValueError: when the config is of another type or params have a reserved key.
    """

    def __init__(
        self,
        model_fn: Callable[..., Any],
        model_dir: str | None = None,
        config: RunConfig | None = None,
        params: Any = None,
        use_tpu: bool = True,
        train_batch_size: int | None = None,
        eval_batch_size: int | None = None,
        predict_batch_size: int | None = None,
        batch_axis: Sequence[int] | None = None,
        eval_on_tpu: bool = True,
        export_to_tpu: bool = True,
        export_to_cpu: bool = True,
        warm_start_from: Any = None,
        embedding_config_spec: Any = None,
        export_saved_model_api_version: Any = None,
    ) -> None:
        if not isinstance(config, TPURunConfig):
            raise ValueError("`config` must be provided with type `tpu_config.RunConfig`")
        if use_tpu:
            raise NotImplementedError("TPUEstimator(use_tpu=True) needs a TPU. Give use_tpu=False: it trains on CPUs.")
        if params is not None and any(key in params for key in _RESERVED):
            raise ValueError(f"{_RESERVED} are reserved keys but existed in params {params}.")
        self._has_input = False
        modes = ModeKeys.TRAIN, ModeKeys.EVAL, ModeKeys.PREDICT
        given = zip(modes, (train_batch_size, eval_batch_size, predict_batch_size))
        self._batch_sizes = {mode: size for mode, size in given if size is not None}
        if self._batch_sizes and "params" not in argument_names(model_fn):
            raise ValueError(
                f"model_fn ({model_fn}) does not include params argument, required by TPUEstimator to pass batch size"
                ' as params["batch_size"]'
            )
        super().__init__(self._on_cpu(model_fn), model_dir, config, params or {}, warm_start_from)

    def _inputs(self, input_fn: Callable[..., Any], mode: str) -> tuple[Any, Any, list[Any]]:
        params = self._with_batch_size(self.params, mode)
        self._has_input = True
        return features_and_labels(call_input_fn(input_fn, mode, params, self.config))

    def _with_batch_size(self, params: Any, mode: str) -> Any:
        size = self._batch_sizes.get(mode)
        return params if size is None else _with_param(params, _BATCH_SIZE, size)

    def _on_cpu(self, model_fn: Callable[..., Any]) -> Callable[..., EstimatorSpec]:
        """The model function for `Estimator`."""

        def on_cpu(features: Any, labels: Any, mode: str, params: Any, config: RunConfig) -> EstimatorSpec:
            if labels is not None and "labels" not in argument_names(model_fn):
                raise ValueError("model_fn does not take labels, but input_fn returns labels.")
            if self._has_input:  # an exported model has no batch size
                params, self._has_input = self._with_batch_size(params, mode), False
            params = _with_param(params, "use_tpu", False)
            offered = {"labels": labels, "mode": mode, "config": config, "params": params}
            spec = model_fn(features=features, **known_arguments(model_fn, offered))
            return spec.as_estimator_spec() if isinstance(spec, TPUEstimatorSpec) else spec

        return on_cpu


def _with_param(params: Any, key: str, value: object) -> Any:
    """A copy of the params, a dictionary or `tf.contrib.training.HParams`, with another one."""
    params = copy.deepcopy(params)
    if not hasattr(params, "add_hparam"):
        params[key] = value
    elif key in params:
        params.set_hparam(key, value)
    else:
        params.add_hparam(key, value)
    return params


# ---- ``tf.tpu.bfloat16_scope`` -------------------------------------------------------------------------------------


@export("tf.contrib.tpu.bfloat16_scope", "tf.tpu.bfloat16_scope")
@contextmanager
def bfloat16_scope() -> Iterator[VariableScope]:
    """A variable scope whose bfloat16 variables are stored as float32 (``tf.tpu.bfloat16_scope``)."""
    with variable_scope("", custom_getter=_stored_as_float32) as scope:
        yield scope


def _stored_as_float32(getter: Callable[..., Any], *args: Any, **kwargs: Any) -> TensorLike:
    wanted = kwargs.get("dtype")
    if wanted is None or dtypes.as_dtype(wanted) is not dtypes.bfloat16:
        return getter(*args, **kwargs)  # type: ignore[no-any-return]
    return cast(getter(*args, **{**kwargs, "dtype": dtypes.float32}), dtypes.bfloat16)  # type: ignore[no-any-return]
