"""The inputs of models that are not made of them: subclasses, and sequences without shapes, which first data build."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini.compat.tf_keras import op_layers, saving, state
from tfmini.graph import nest
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.scoping import name_scope
from tfmini.ops.composites import SparseTensor
from tfmini.shapes import TensorShape


class ModelInputs:
    """The inputs of a model for its first data: placeholders for arrays, and the tensors; of a dictionary, by its keys.

    Args:
      inputs: arrays or tensors: one, a list or a dictionary of them.
    """

    def __init__(self, inputs: object) -> None:
        listed = list(inputs) if isinstance(inputs, (list, tuple)) else [inputs]
        numbered = [(f"input_{i + 1}", x) for i, x in enumerate(listed)]
        named = sorted(inputs.items()) if isinstance(inputs, dict) else numbered
        self._inputs = {name: _placeholder(name, x) for name, x in named}
        self._form = type(inputs) if isinstance(inputs, (list, tuple, dict)) else None

    def get_input_names(self) -> list[str]:
        """Returns the names of the inputs: keys, or numbered."""
        return list(self._inputs)

    def get_symbolic_inputs(self, return_single_as_list: bool = False) -> Any:
        """Returns the tensors in the form of the data; with ``return_single_as_list``, a list of them."""
        if self._form is dict and not return_single_as_list:
            return dict(self._inputs)
        listed = list(self._inputs.values())
        return listed if return_single_as_list or self._form else listed[0]


def _placeholder(name: str, value: object) -> Any:
    """A placeholder for arrays like a value, whose floating numbers are those of Keras; a tensor as it is."""
    backend = state.library_root().backend
    if isinstance(value, SparseTensor):
        return value
    if backend.is_tensor(value):
        return convert_to_tensor(value)
    value = np.asarray(value)
    kind = {"f": backend.floatx(), "U": "string", "S": "string", "O": "string"}.get(value.dtype.kind, value.dtype.name)
    return backend.placeholder(shape=(None, *(value.shape[1:] or (1,))), dtype=kind, name=name)


def set_inputs(self: Any, inputs: Any, outputs: Any = None, training: object = None) -> None:
    """Makes the inputs of a model for its first data, and calls it on them unless there are outputs.

    Raises:
      ValueError: the model has inputs, or a sequence that starts with another layer than features gets a dictionary.
    """
    if self.inputs:
        raise ValueError("Model inputs are already set.")
    is_sequence = isinstance(self, state.library_root().Sequential)
    if is_sequence and isinstance(inputs, dict) and not hasattr(self.layers[0], "feature_columns"):
        raise ValueError(
            "Passing a dictionary input to a Sequential Model which doesn't have FeatureLayer as the first layer is"
            " an error."
        )
    inputs = inputs[0] if isinstance(inputs, (list, tuple)) and len(inputs) == 1 else inputs
    made = ModelInputs(inputs)
    _take_inputs(self, made)
    if is_sequence and not isinstance(inputs, dict):
        self._build_input_shape = (None, *self.inputs[0].shape.as_list()[1:])
    if outputs is None:
        outputs = _called_in_scope(self, made.get_symbolic_inputs(), training)
    self.outputs = nest.flatten(outputs)
    self.output_names = [f"output_{i + 1}" for i in range(len(self.outputs))]
    self.built = True


def after_call(model: Any, inputs: Any, outputs: Any) -> Any:
    """Returns the outputs of a call, whose inputs are those of a model without any, if they come of layers."""
    if not model.inputs and all(hasattr(x, "_keras_history") for x in nest.flatten(inputs)):
        set_inputs(model, inputs, outputs)
    return outputs


def _take_inputs(model: Any, made: ModelInputs) -> None:
    backend = state.library_root().backend
    model.inputs, model.input_names = made.get_symbolic_inputs(return_single_as_list=True), made.get_input_names()
    fed = [(name, x) for name, x in zip(model.input_names, model.inputs) if backend.is_placeholder(x)]
    model._feed_inputs = [x for _, x in fed]
    model._feed_input_names = [name for name, _ in fed]
    model._feed_input_shapes = [backend.int_shape(x) for _, x in fed]


def _called(model: Any, inputs: object, training: object) -> Any:
    """The outputs of a model's first call, which makes its variables."""
    training = state.learning_phase() if training is None else training
    more = {"training": training} if model._expects_training_arg else {}
    with op_layers.explained(model):
        outputs = op_layers.converted(model.call, inputs, **more)
    saving.restore_made(model)
    return outputs


def _called_in_scope(model: Any, inputs: object, training: object) -> Any:
    """The outputs of a model's first call on data; after a program's `build`, and both in the scope of its name."""
    with name_scope(model.name):
        if not model.built and not op_layers.is_librarys(type(model).build):
            model.build(nest.map_structure(lambda x: TensorShape(x.shape), inputs))
            model.built = True
        return _called(model, inputs, training)


def more_inputs(model: Any) -> list[str]:
    """The arguments of a model's ``call`` that must be given, beside the first one and ``training``."""
    taken = inspect.signature(model.call).parameters.values()
    must = [one.name for one in taken if one.kind is one.POSITIONAL_OR_KEYWORD and one.default is one.empty]
    return [name for name in must[1:] if name != "training"]


def build_model(self: Any, input_shape: object = None) -> None:
    """Makes the variables of a subclassed model for inputs of a shape, or a list or dictionary of shapes.

    Raises:
      ValueError: there is no shape, or ``call`` takes more than floating numbers of these shapes.
    """
    if self._is_graph_network or self.built:
        return
    if input_shape is None:
        raise ValueError("Input shape must be defined when calling build on a model subclass network.")
    if not isinstance(input_shape, (list, tuple, dict, TensorShape)):
        raise ValueError(
            "Specified input shape is not one of the valid types. Please specify a batch input shape of type tuple"
            f" or list of input shapes. User provided input type: {type(input_shape)}"
        )
    if more_inputs(self):
        raise ValueError(
            "Currently, you cannot build your model if it has positional or keyword arguments that are required by"
            f" `call`, beside the inputs: {more_inputs(self)}. Instead, call it on tensors."
        )
    try:
        _called(self, _held(input_shape), None)
    except TypeError as error:
        raise ValueError(
            "You cannot build your model by calling `build` if your layers do not support float type inputs."
            " Instead, call it on tensors of the right types."
        ) from error
    self.built = True


def _held(shape: object) -> Any:
    """Placeholders of a shape, or of a list or dictionary of shapes."""
    if isinstance(shape, dict):
        return {key: _held(part) for key, part in shape.items()}
    if isinstance(shape, list) and isinstance(shape[0], (list, tuple, TensorShape)):
        return [_held(part) for part in shape]
    return state.library_root().backend.placeholder(shape=tuple(TensorShape(shape).as_list()))


def build_sequence(build: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(build)
    def build_or_call(self: Any, input_shape: object = None) -> None:
        """Makes a functional model of layers that have inputs; the variables of others, for inputs of a shape."""
        if self.inputs or input_shape is None:
            build(self, input_shape)
            return
        build_model(self, input_shape)
        self._build_input_shape = tuple(TensorShape(input_shape).as_list())

    return build_or_call


def config_with_shape(get_config: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(get_config)
    def get_whole_config(self: Any) -> Any:
        """A sequence's configuration, whose first layer has the shape of the `InputLayer` before it."""
        config = get_config(self)
        first = self.layers[0] if self._is_graph_network else None
        if first is not None and not hasattr(first, "_is_graph_network") and not hasattr(first, "batch_input_shape"):
            config["layers"][0]["config"]["batch_input_shape"] = state.library_root().backend.int_shape(self.inputs[0])
        return config

    return get_whole_config
