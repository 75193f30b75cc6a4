"""``tf.keras.estimator.model_to_estimator``: a compiled model of layers as an Estimator."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

from tfmini.compat.tf_keras import state
from tfmini.core_types import PathLike
from tfmini.estimator.estimator import Estimator
from tfmini.estimator.model_spec import EstimatorSpec, ModeKeys, PredictOutput
from tfmini.ops.array.identity import placeholder
from tfmini.ops.array.shape import expand_dims
from tfmini.ops.control import group
from tfmini.ops.variables.assignment import assign
from tfmini.train.global_steps import get_or_create_global_step
from tfmini.train.sessions.scaffold import Scaffold
from tfmini.train.strategy import get_strategy


def apply(root: ModuleType) -> None:
    """Adds ``estimator`` to the copy."""
    made = functools.partial(model_to_estimator, root)
    root.estimator = SimpleNamespace(model_to_estimator=made)  # type: ignore[attr-defined]


def model_to_estimator(
    root: ModuleType, keras_model: Any = None, keras_model_path: PathLike | None = None, custom_objects: Any = None,
    model_dir: PathLike | None = None, config: Any = None, checkpoint_format: str = "saver", **_: object,
) -> Estimator:  # fmt: skip
    """An Estimator that trains, evaluates and serves a compiled model (``tf.keras.estimator.model_to_estimator``).

    Its features are tensors by the names of the model's inputs, or one tensor. Training begins with the model's
    weights, unless ``model_dir`` has a checkpoint.

    Args:
      keras_model: a compiled Sequential or functional model.
      keras_model_path: a file or folder of a saved one, in its place.
      custom_objects: what a saved model needs, by name.
      model_dir, config: of the Estimator.

    Raises:
      ValueError: both or neither of the two are given, or the model is not compiled.
      NotImplementedError: it is a subclassed model.
    """
    if (keras_model is None) == (keras_model_path is None):
        raise ValueError("Either `keras_model` or `keras_model_path` needs to be provided, and not both.")
    model = keras_model if keras_model is not None else root.models.load_model(keras_model_path, custom_objects)
    if not getattr(model, "optimizer", None):
        raise ValueError("The given keras model has not been compiled yet. Compile the model before converting it.")
    if not model._is_graph_network:
        raise NotImplementedError(
            f"Model {model.name} is subclassed: only Sequential and functional models can be converted."
            " Write a model function that calls it."
        )
    return Estimator(_Converted(root, model, custom_objects).model_fn, _text(model_dir), config)


def _text(path: PathLike | None) -> Any:
    return path.decode() if isinstance(path, bytes) else path


class _Converted:
    """A model as a model function: it is built anew, with its name of each layer, in the graph of each call."""

    def __init__(self, root: ModuleType, model: Any, custom_objects: Any) -> None:
        self._root = root
        self._model = model
        self._custom_objects = custom_objects or {}
        self._optimizer = _maker_of_optimizer(root, model.optimizer)
        with root.backend.get_session().graph.as_default():
            self._weights = model.get_weights()

    def model_fn(self, features: Any, labels: Any, mode: str) -> EstimatorSpec:
        """The ops of the model in one mode."""
        root = self._root
        with state.learning_phase_scope(mode == ModeKeys.TRAIN):
            with root.utils.CustomObjectScope(self._custom_objects):
                model = root.models.clone_model(self._model, _in_order(features, self._model.input_names))
            predictions = dict(zip(model.output_names, model.outputs))
            if mode == ModeKeys.PREDICT:
                return EstimatorSpec(
                    mode, predictions=predictions, export_outputs={"serving_default": PredictOutput(predictions)}
                )
            self._compile(model, labels)
            if mode == ModeKeys.EVAL:
                measured = {m.name: (m.result(), group(*m.updates)) for m in model.metrics}
                return EstimatorSpec(mode, predictions, model.total_loss, eval_metric_ops=measured)
            model.optimizer.iterations = get_or_create_global_step()
            model._make_train_function()
            return EstimatorSpec(
                mode, predictions, model.total_loss, model.train_function.updates_op, scaffold=self._scaffold(model)
            )

    def _compile(self, model: Any, labels: Any) -> None:
        old = self._model
        targets = [_shaped(t, output) for t, output in zip(_in_order(labels, model.output_names), model.outputs)]
        model.compile(
            self._optimizer(), old.loss, metrics=old._compile_metrics, loss_weights=old.loss_weights,
            weighted_metrics=old._compile_weighted_metrics, target_tensors=targets,
        )  # fmt: skip
        replicas = get_strategy().num_replicas_in_sync
        if replicas > 1:
            if "sum" in [getattr(loss, "reduction", "") for loss in model.loss_functions]:
                raise NotImplementedError(
                    f"A loss of {old.name} is a sum over the batch: with {get_strategy()} give one that is a mean."
                )
            model.total_loss = model.total_loss * (1.0 / replicas)

    def _scaffold(self, model: Any) -> Scaffold:
        """Gives the variables the weights of the converted model once they are initialized."""
        values = [placeholder(w.dtype.base_dtype, w.shape) for w in model.weights]
        with get_strategy().replica_scope(False):
            assignments = group(*(assign(w, value) for w, value in zip(model.weights, values)))
        feeds = dict(zip(values, self._weights))
        return Scaffold(init_fn=lambda _, session: session.run(assignments, feeds))


def _in_order(tensors: Any, names: list[str]) -> list[Any]:
    """Tensors by name, a list of them or one, in the order of the names."""
    if isinstance(tensors, dict):
        missing = [name for name in names if name not in tensors]
        if missing:
            raise KeyError(f"The model needs {missing}; the input function gives {sorted(tensors)}.")
        return [tensors[name] for name in names]
    return list(tensors) if isinstance(tensors, (list, tuple)) else [tensors]


def _shaped(target: Any, output: Any) -> Any:
    """A target of the rank of its output, if that has one number for each example."""
    ranks = len(target.shape), len(output.shape)
    return expand_dims(target, -1) if ranks[0] == ranks[1] - 1 and output.shape.as_list()[-1] == 1 else target


def _maker_of_optimizer(root: ModuleType, optimizer: Any) -> Callable[[], Any]:
    """A function that makes the optimizer again, in another graph."""
    if isinstance(optimizer, root.optimizers.TFOptimizer):
        return lambda: root.optimizers.TFOptimizer(optimizer.optimizer)
    told = root.optimizers.serialize(optimizer)
    return lambda: root.optimizers.deserialize(told)
