"""Models of ``tf.keras`` in files: HDF5 as Keras writes it, SavedModels, and weights as TensorFlow's checkpoints."""

from __future__ import annotations

import functools
import itertools
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from tfmini import errors
from tfmini.compat.old_python.behaviours import mend_attributes
from tfmini.compat.tf_keras import schedules, state
from tfmini.core_types import PathLike
from tfmini.export import export
from tfmini.graph import nest
from tfmini.graph.operation import Tensor
from tfmini.ops.composites import TensorSpec
from tfmini.ops.flow.function import PolymorphicFunction, function
from tfmini.ops.tables import LookupInterface
from tfmini.ops.variables.base import Variable
from tfmini.shapes import Dimension, TensorShape
from tfmini.train.checkpointing import object_saving
from tfmini.train.checkpointing.checkpoint import Checkpoint
from tfmini.train.checkpointing.graph_files import (
    CheckpointReader,
    NewCheckpointReader,
    checkpoint_exists,
    update_checkpoint_state,
)
from tfmini.train.checkpointing.module import Module
from tfmini.train.checkpointing.object_graph import (
    ObjectGraph,
    Trackable,
    children_of,
    is_trackable,
    match,
    object_graph_of,
)
from tfmini.train.checkpointing.saved_model import simple_save
from tfmini.train.checkpointing.saver import Saver

_log = logging.getLogger("tensorflow")
_MODEL = "saved_model.json"  # as TensorFlow names it
_TRAINING = "tfmini_keras.json"
_HDF5 = (".h5", ".hdf5", ".keras")
_FORMATS = {"h5": ("hdf5", "h5", "keras"), "tf": ("tensorflow", "tf")}


def apply(root: ModuleType) -> None:
    """Changes how models of the copy are saved and loaded."""
    import h5py

    mend_attributes(h5py, root.__name__)
    group = root.utils.io_utils.H5Dict
    get = group.__getitem__
    group.__getitem__ = lambda self, attr: _plain(get(self, attr))
    network = root.engine.network.Network
    root.engine.base_layer.Layer._trackable_children = _children
    root.optimizers.Optimizer._trackable_children = _state_of_optimizer
    root.optimizers.TFOptimizer._trackable_children = lambda self: [
        ("optimizer", self.optimizer), ("global_step", self.iterations)
    ]  # fmt: skip
    network.save = _save(root, network.save)
    network._object_to_save = served(trace_model_call)
    network.save_weights = _save_weights(root, network.save_weights)
    network.load_weights = _load_weights(root, network.load_weights)
    root.engine.saving.load_optimizer_weights_from_hdf5_group = functools.partial(_optimizer_weights, group)
    model = root.engine.training.Model
    model._make_train_function = _restored(model._make_train_function)
    root.models.load_model = _load_model(root, root.models.load_model)
    root.engine.saving.load_model = root.models.load_model
    root.models.save_model = _save(root, root.models.save_model)
    saved_models = {
        "export_saved_model": functools.partial(export_saved_model, root),
        "load_from_saved_model": functools.partial(load_saved_model, root),
    }
    private = {"trace_model_call": trace_model_call, "extract_model_metrics": extract_model_metrics}
    vars(root.engine.saving).update(saved_models, **private)  # their private path
    root.experimental = SimpleNamespace(  # type: ignore[attr-defined]
        **saved_models,
        PeepholeLSTMCell=root.layers.PeepholeLSTMCell,
        SequenceFeatures=root.layers.SequenceFeatures,
        **{name: getattr(schedules, name) for name in _EXPERIMENTAL_SCHEDULES},
    )


_EXPERIMENTAL_SCHEDULES = ("CosineDecay", "CosineDecayRestarts", "LinearCosineDecay", "NoisyLinearCosineDecay")


def _plain(value: Any) -> Any:
    """An empty list comes back from a file as an empty array."""
    return [] if isinstance(value, np.ndarray) and value.shape == (0,) else value


def _optimizer_weights(group: Callable[..., Any], hdf5_group: Any) -> list[Any]:
    """The weights of the optimizer in an open file of HDF5, in their order; ``group`` reads lists in several parts."""
    weights = group(hdf5_group["optimizer_weights"])
    return [weights[name if isinstance(name, str) else name.decode()] for name in weights["weight_names"]]


def _is_hdf5(path: Any) -> bool:
    return isinstance(path, (str, os.PathLike)) and os.fspath(path).endswith(_HDF5)


# ---- Whole models ----------------------------------------------------------------------------------------------------


def _save(root: ModuleType, save: Callable[..., None]) -> Callable[..., None]:
    to_hdf5 = root.engine.saving.save_model

    @functools.wraps(save)
    def save_as(
        self: Any, filepath: Any, overwrite: bool = True, include_optimizer: bool = True,
        save_format: str | None = None, **_: object,
    ) -> None:  # fmt: skip
        """Saves the model: HDF5 unless ``save_format`` is another and the path does not end so."""
        if (save_format or "h5") == "h5" or _is_hdf5(filepath) or not isinstance(filepath, (str, os.PathLike)):
            to_hdf5(self, filepath, overwrite, include_optimizer)
        else:
            _check_inputs(root, self)
            object_saving.save(self, filepath)
            _write_layers(root, self, filepath, {})

    return save_as


def export_saved_model(root: ModuleType, model: Any, saved_model_path: PathLike, *_: object, **__: object) -> None:
    """Writes a SavedModel that serves the model's outputs, with its layers as JSON if it is made of such.

    Raises:
      ValueError: the model has not been built: a subclassed one is, by its first call.
    """
    _check_inputs(root, model)
    session = root.backend.get_session()
    with session.graph.as_default():
        simple_save(session, saved_model_path, _named(model.input_names, model.inputs),
                    _named(model.output_names, model.outputs))  # fmt: skip
    _write_layers(root, model, saved_model_path, {"weights": [w.op.name for w in model.weights]})


def _check_inputs(root: ModuleType, model: Any) -> None:
    if not model.inputs and isinstance(model, root.Sequential):
        raise ValueError("Weights for sequential model have not yet been created: call, fit or build it first.")
    if not model.inputs:
        raise ValueError(f"Model {model.name} has no inputs yet: call or fit it before it is saved.")


def _write_layers(root: ModuleType, model: Any, saved_model_path: PathLike, told: dict[str, Any]) -> None:
    """Writes a model's layers as JSON, if it is made of such, and what ``compile`` got."""
    folder = os.path.join(os.fsdecode(saved_model_path), "assets")
    os.makedirs(folder, exist_ok=True)
    if model._is_graph_network or isinstance(model, root.Sequential):
        with open(os.path.join(folder, _MODEL), "w") as file:
            file.write(model.to_json())
    with open(os.path.join(folder, _TRAINING), "w") as file:
        json.dump({**told, "training": _training(root, model)}, file)


def trace_model_call(model: Any, input_signature: list[TensorSpec] | None = None) -> Any:
    """A `tf.function` of a model's inputs that gives its outputs by name, as they are outside training.

    Raises:
      ValueError: neither the model nor its ``call`` says what its inputs are.
    """
    signature = input_signature or getattr(model.call, "input_signature", None)
    if signature is None and not model.inputs:
        raise ValueError(f"Model {model.name}: its input shapes have not been set; call or fit it first.")
    if signature is None:
        specs = [_spec(name, x) for name, x in zip(model.input_names, model.inputs)]
        structure = getattr(model, "_structured_inputs", None) or (specs if len(specs) > 1 else specs[0])
        signature = [nest.pack_sequence_as(structure, specs)]

    @function(input_signature=signature, autograph=False)
    def traced(*inputs: Any) -> dict[str, Any]:
        outputs = nest.flatten(model(inputs[0] if len(signature) == 1 else list(inputs), training=False))
        names = getattr(model, "output_names", None) or [f"output_{i + 1}" for i in range(len(outputs))]
        return dict(zip(names, outputs))

    return traced


def _spec(name: str, tensor: Tensor) -> TensorSpec:
    """What an input may be: a batch of any size."""
    return TensorSpec([None, *tensor.shape.as_list()[1:]], tensor.dtype, name)


def extract_model_metrics(model: Any) -> dict[str, Any] | None:
    """The metrics that ``compile`` got, by their names; None if there are none."""
    metrics = getattr(model, "_compile_metric_functions", None)
    return {metric.name: metric for metric in metrics} if metrics else None


def _named(names: list[str], tensors: list[Any]) -> dict[str, Any]:
    return dict(zip(names, tensors))


@export("tensorflow.python.util.serialization.get_json_type")
def get_json_type(obj: Any) -> Any:
    """What stands for an object in JSON: objects of Keras by class and config, arrays by lists, functions by name.

    Raises:
      TypeError: nothing does.
    """
    if hasattr(obj, "get_config"):
        return {"class_name": type(obj).__name__, "config": obj.get_config()}
    if isinstance(obj, (np.ndarray, np.generic)):
        return obj.tolist()
    if callable(obj):
        return obj.__name__
    if isinstance(obj, Dimension):
        return obj.value
    if isinstance(obj, TensorShape):
        return obj.as_list()
    if isinstance(obj, Mapping):
        return dict(obj)
    raise TypeError(f"Not JSON Serializable: {obj}")


def _training(root: ModuleType, model: Any) -> dict[str, Any] | None:
    """What ``compile`` got, as far as JSON can say it; None for a model that is not compiled."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None or not hasattr(optimizer, "get_config"):
        return None
    try:
        told = {
            "optimizer": root.optimizers.serialize(optimizer), "loss": model.loss, "metrics": model._compile_metrics,
            "loss_weights": model.loss_weights, "sample_weight_mode": model.sample_weight_mode,
        }  # fmt: skip
        return json.loads(json.dumps(told, default=get_json_type))  # type: ignore[no-any-return]
    except (NotImplementedError, TypeError, AttributeError) as error:
        _log.warning("The model is saved without what compile() got: %s. Compile it again when it is loaded.", error)
        return None


def _of_json(get: Callable[[Any], Any], told: Any) -> Any:
    """The losses or metrics that a configuration tells: objects for their configurations."""
    if isinstance(told, dict):
        return get(told) if "class_name" in told else {key: _of_json(get, part) for key, part in told.items()}
    return [_of_json(get, part) for part in told] if isinstance(told, list) else told


def _load_model(root: ModuleType, load: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(load)
    def load_model(filepath: Any, custom_objects: Any = None, compile: bool = True) -> Any:
        if isinstance(filepath, (str, os.PathLike)) and os.path.isdir(filepath):
            return load_saved_model(root, filepath, custom_objects, compile)
        return load(filepath, custom_objects, compile)

    return load_model


def load_saved_model(
    root: ModuleType, saved_model_path: PathLike, custom_objects: Any = None, compile: bool = True
) -> Any:
    """The model of a SavedModel that `export_saved_model`, of tfmini or of TensorFlow 1.15, has written.

    Raises:
      NotFoundError: it has no layers as JSON.
    """
    path = os.fsdecode(saved_model_path)
    layers = os.path.join(path, "assets", _MODEL)
    if not os.path.exists(layers):
        raise errors.NotFoundError.of(
            f"{path} has no assets/{_MODEL}: its model is not made of layers, or something else than tf.keras wrote it."
            " tf.saved_model.load(session, ['serve'], path) loads its graph."
        )
    with open(layers) as file:
        model = root.models.model_from_json(file.read(), custom_objects=custom_objects)
    told: dict[str, Any] = {}
    if os.path.exists(os.path.join(path, "assets", _TRAINING)):
        with open(os.path.join(path, "assets", _TRAINING)) as file:
            told = json.load(file)
    _restore(root, model, os.path.join(path, "variables", "variables"), told.get("weights"))
    if compile and told.get("training"):
        training = told["training"]
        optimizer = root.optimizers.deserialize(training.pop("optimizer"), custom_objects=custom_objects)
        with root.utils.CustomObjectScope(custom_objects or {}):
            objects = {name: _of_json(get, training.pop(name)) for name, get in
                       (("loss", root.losses.get), ("metrics", root.metrics.get))}  # fmt: skip
            model.compile(optimizer, **objects, **training)
    return model


def _restore(root: ModuleType, model: Any, path: str, names: list[str] | None) -> None:
    session = root.backend.get_session()
    with session.graph.as_default():
        if names is None:
            vars(model)["_restores_from"] = path, set()
            restore_made(model)
        else:
            Saver(dict(zip(names, model.weights))).restore(session, path)


def restore_made(model: Any) -> None:
    """Restores those weights from the checkpoint of `load_weights` that were made since.

    Raises:
      AssertionError: the checkpoint has none of the weights.
    """
    path, done = vars(model).get("_restores_from", ("", set()))
    if not path:
        return
    root = state.library_root()
    tree = tree_of(root, model)
    variables = match(tree, object_graph_of(CheckpointReader(path))).variables
    has_weights = any(not key.startswith("optimizer/") for key in ObjectGraph(tree).variables)
    if has_weights and not variables:
        raise AssertionError(
            f"Nothing except the root object matched a checkpointed value: {path} has no weight of {model.name}."
        )
    new = {key: variable for key, variable in variables.items() if id(variable) not in done}
    done.update(map(id, new.values()))
    if new:
        tree._saver_of(new).restore(root.backend.get_session(), path)


# ---- Weights ---------------------------------------------------------------------------------------------------------


class _Tree(Checkpoint):
    """A checkpoint whose root is a model: its weights, and the state of its optimizer."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self._model = model

    def _trackable_children(self) -> list[tuple[str, Any]]:
        return _children(self._model)


def tree_of(root: ModuleType, model: Any) -> Checkpoint:
    """A model's weights, and the state of its optimizer, as TensorFlow 1.15's checkpoints of models name them."""
    if "_tree" not in vars(model):  # its ops stay in the graph
        vars(model)["_tree"] = _Tree(model)
    kept: Checkpoint = vars(model)["_tree"]
    return kept


def _state_of_optimizer(optimizer: Any) -> list[tuple[str, Any]]:
    """The variables of an optimizer of Keras, by name, as checkpoints have them beside its slots."""
    named = {"iter": optimizer._iterations, **optimizer._named_weights, **optimizer._hyper}
    return [(name, value) for name, value in named.items() if isinstance(value, Variable)]


def _restored(make: Callable[..., None]) -> Callable[..., None]:
    """A function that makes a model's step, and restores the state of the optimizer that a checkpoint has."""

    @functools.wraps(make)
    def make_restored(self: Any) -> None:
        is_new = getattr(self, "train_function", None) is None
        make(self)
        if is_new:
            restore_made(self)

    return make_restored


def nested_weights(convert: Callable[..., list[Any]], model: Any, weights: list[Any]) -> list[Any]:
    """The weights of a model in a model, converted: each layer gets its own together; what is trained comes first."""
    trained, others = weights[: len(model.trainable_weights)], weights[len(model.trainable_weights) :]
    first: list[Any] = []
    last: list[Any] = []
    for layer in model.layers:
        count, more = len(layer.trainable_weights), len(layer.non_trainable_weights)
        made = convert(layer, trained[:count] + others[:more]) if count + more else []
        first, last = first + made[:count], last + made[count:]
        trained, others = trained[count:], others[more:]
    return first + last


def make_optimizer_weights(model: Any) -> None:
    """Makes the state of a compiled model's optimizer, before its first step."""
    if model.inputs:
        model._make_train_function()
    else:
        model.optimizer._create_all_weights(model.trainable_weights)


def _children(layer: Any) -> list[tuple[str, Any]]:
    """What checkpoints have of a layer or model, by name: layers, variables, lists and dictionaries of them.

    Private attributes of the library are none; those of programs, which are noted when they are set, are.
    """
    members = vars(layer)
    weights = [*members.get("_trainable_weights", ()), *members.get("_non_trainable_weights", ())]
    noted = set(map(id, [*members.get("_noted", ()), *members.get("_layers", ()), *weights]))
    found: dict[str, Any] = {}
    if getattr(layer, "_is_graph_network", False) or isinstance(layer, state.library_root().Sequential):
        found, members, weights = _numbered(layer), {"optimizer": members.get("optimizer")}, []
    for name, member in (layer._unconditional_dependency_names | members).items():
        is_known = id(member) in noted or isinstance(member, (Module, LookupInterface)) or not name.startswith("_")
        if is_known and is_trackable(member, inside=True):
            found[name] = member
    known = set(map(id, found.values()))
    for weight in weights:
        if id(weight) not in known:  # of add_weight, whose result is no attribute
            found.setdefault(weight.op.name.rpartition("/")[2], weight)
    return list(found.items())


def _numbered(model: Any) -> dict[str, Any]:
    """The layers of a model by their numbers among all, and of one of inputs also among those with weights."""
    found: dict[str, Any] = {}
    count = itertools.count()
    for number, layer in enumerate(model.layers):
        if layer.weights and model._is_graph_network:
            found[f"layer_with_weights-{next(count)}"] = layer
        found[f"layer-{number}"] = layer
    return found


def _save_weights(root: ModuleType, save: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(save)
    def save_weights(self: Any, filepath: Any, overwrite: bool = True, save_format: str | None = None) -> None:
        """Saves the weights: HDF5 if the path ends so or ``save_format`` is "h5"; else as a checkpoint."""
        if _format_of_weights(filepath, save_format) == "h5":
            save(self, filepath, overwrite)
            return
        session = root.backend.get_session()
        with session.graph.as_default():
            exists = not overwrite and checkpoint_exists(os.fsdecode(filepath))
            if exists and not root.utils.io_utils.ask_to_proceed_with_overwrite(filepath):
                return
            tree_of(root, self).write(filepath, session)
            path = os.path.abspath(os.fsdecode(filepath))
            update_checkpoint_state(os.path.dirname(path), path)

    return save_weights


def _format_of_weights(path: Any, asked: str | None) -> str:
    """The format of a file of weights, "h5" or "tf".

    Raises:
      ValueError: for another, or a checkpoint whose name is that of an HDF5 file.
    """
    if asked is None:
        return "h5" if _is_hdf5(path) else "tf"
    found = next((name for name, names in _FORMATS.items() if asked.lower().strip() in names), None)
    if found is None:
        raise ValueError(f'Unknown format "{asked}". Was expecting one of {{"tf", "h5"}}.')
    if found == "tf" and _is_hdf5(path):
        raise ValueError(
            f'save_weights got save_format="tf"/"tensorflow", but the filepath ("{path}") looks like an HDF5 file. Omit'
            ' the ".h5"/".keras" when saving in TensorFlow format.'
        )
    return found


def _load_weights(root: ModuleType, load: Callable[..., None]) -> Callable[..., Any]:
    @functools.wraps(load)
    def load_weights(self: Any, filepath: Any, by_name: bool = False, *args: Any, **kwargs: Any) -> Any:
        if (
            _is_hdf5(filepath)
            or not isinstance(filepath, (str, os.PathLike))
            or not checkpoint_exists(os.fsdecode(filepath))
        ):
            return load(self, filepath, by_name, *args, **kwargs)
        if by_name:
            raise NotImplementedError("Weights may only be loaded by_name from HDF5; this is a checkpoint.")
        path = os.fsdecode(filepath)
        names = None if _is_of_objects(path) else [w.op.name for w in self.weights]
        return _restore(root, self, path, names)

    return load_weights


def _is_of_objects(path: str) -> bool:
    names = NewCheckpointReader(path).get_variable_to_shape_map()
    return any(name.endswith(".ATTRIBUTES/VARIABLE_VALUE") for name in names)


# ---- Models as objects of SavedModels: a call with and without training, variables, losses of weights ----------------

_TRACES = ("_updates", "_losses", "_per_input_updates", "_per_input_losses", "_inbound_nodes", "_outbound_nodes")


class _List(list[Any], Trackable):
    """A list that models of SavedModels have also if it is empty, or has functions in it."""

    def _trackable_children(self) -> list[tuple[str, Any]]:
        return [(str(number), item) for number, item in enumerate(self) if isinstance(item, Variable)]


class ServedModel(Trackable):
    """What is saved of a model.

    Attributes:
      variables, trainable_variables: its weights.
      regularization_losses: functions that give the losses of its weights.
      __call__: a `tf.function` of its inputs and ``training``.
    """

    def __init__(self, model: Any, signature: PolymorphicFunction) -> None:
        self._model = model
        self.variables, self.trainable_variables = _List(model.weights), _List(model.trainable_weights)
        self.regularization_losses = _List(_losses_of_weights(model))
        self._default_save_signature = signature
        assert signature.input_signature is not None
        specs = signature.input_signature
        call = PolymorphicFunction(self._called, autograph=False)
        for training in (False, True):
            call.get_concrete_function(specs[0] if len(specs) == 1 else [*specs], training)
        vars(self)["__call__"] = call

    def _called(self, inputs: Any, training: bool = False) -> Any:
        return self._model(inputs, training=training)

    def _trackable_children(self) -> list[tuple[str, Any]]:
        names = ("variables", "trainable_variables", "regularization_losses")
        layers = [(name, child) for name, child in children_of(self._model) if name != "optimizer"]
        return [*layers, *((name, getattr(self, name)) for name in names)]


def _losses_of_weights(model: Any) -> list[PolymorphicFunction]:
    """A function for each weight that has a regularizer."""
    found = []
    for layer in _layers_of(model):
        for name, regularizer in vars(layer).items():
            what, _, kind = name.rpartition("_")
            weight = vars(layer).get(what, vars(layer).get(f"{what}_kernel"))
            if kind == "regularizer" and regularizer is not None and isinstance(weight, Variable):
                loss = functools.partial(_loss, regularizer, weight)
                found.append(PolymorphicFunction(loss, (), autograph=False))
    return found


def _loss(regularizer: Callable[[Any], Any], weight: Variable) -> Any:
    return regularizer(weight)


def _layers_of(layer: Any) -> Iterator[Any]:
    yield layer
    for part in [*getattr(layer, "layers", ())]:
        yield from _layers_of(part)


@contextmanager
def _as_before(model: Any) -> Iterator[None]:
    """Afterwards the layers know nothing of calls that were made meanwhile."""
    kept = [(layer, name, vars(layer)[name]) for layer in _layers_of(model) for name in _TRACES if name in vars(layer)]
    for layer, name, value in kept:
        vars(layer)[name] = {k: list(v) for k, v in value.items()} if isinstance(value, dict) else list(value)
    try:
        yield
    finally:
        for layer, name, value in kept:
            vars(layer)[name] = value


def served(trace: Callable[[Any], PolymorphicFunction]) -> Callable[[Any], AbstractContextManager[ServedModel]]:
    """A method of models that `tf.saved_model.save` asks for what to save; ``trace`` gives the default signature."""

    @contextmanager
    def object_to_save(model: Any) -> Iterator[ServedModel]:
        with _as_before(model):
            yield ServedModel(model, trace(model))

    return object_to_save
