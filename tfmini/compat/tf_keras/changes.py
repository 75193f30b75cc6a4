"""Makes the copy of Keras what ``tf.keras`` of TensorFlow 1.15 is, where that is more than a change of its text."""

from __future__ import annotations

import functools
import inspect
import math
import re
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from tfmini import dtypes
from tfmini.compat.tf_keras import state
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import name_scope
from tfmini.ops.array.identity import cast
from tfmini.ops.array.shape import shape as shape_of
from tfmini.shapes import Dimension, TensorShape

# ---- What changed lines of the library call --------------------------------------------------------------------------


def _output_shape(layer: Any, input_shape: Any, output: Any) -> Any:
    """The shape of a layer's output: that of its tensor, as in TensorFlow; what the layer says, if that is unknown."""
    outputs = output if isinstance(output, (list, tuple)) else [output]
    shapes: list[Any] = [x.raw_shape if isinstance(x, Tensor) else None for x in outputs]
    if any(shape is None or None in shape[1:] for shape in shapes) and _tells_its_shape(layer):
        told = as_tuple(layer.compute_output_shape(input_shape))
        shapes = [_known(a, b) for a, b in zip(shapes, told if isinstance(told, list) else [told] * len(shapes))]
    return shapes if isinstance(output, (list, tuple)) else shapes[0]


def _tells_its_shape(layer: Any) -> bool:
    """Whether a layer has a `compute_output_shape` of its own; the inherited one gives the shape of the input."""
    home = next(cls for cls in type(layer).__mro__ if "compute_output_shape" in vars(cls))
    return home.__name__ != "Layer"


def _known(shape: Any, told: Any) -> Any:
    """The sizes of a shape, and for those that are unknown what the layer says."""
    if shape is None or told is None or len(shape) != len(told):
        return told if shape is None else shape
    return tuple(b if a is None else a for a, b in zip(shape, told))


def _call_in_scope(model: Any, inputs: Any, **kwargs: Any) -> Any:
    """The first call of a subclassed model, in whose scope its layers make their variables."""
    with name_scope(model.name):
        return model.call(inputs, **kwargs)


def _mean_activity(layer: Any, output: Any) -> Any:
    """The penalty of an output for each example; Keras takes that of the batch."""
    return layer.activity_regularizer(output) / cast(shape_of(output)[0], output.dtype)


def _to_snake_case(name: str) -> str:
    name = re.sub("([a-z])([A-Z])", r"\1_\2", re.sub("(.)([A-Z][a-z0-9]+)", r"\1_\2", name)).lower()
    return name if name[0] != "_" else f"private{name}"


def _dtype_name(dtype: Any) -> str | None:
    """The name of a layer's or spec's dtype, which files of JSON can hold; None if any will do."""
    return None if dtype is None else dtypes.as_dtype(dtype).name


def _flat_shape(shape: Any) -> tuple[int | None, int | None]:
    """The shape of a batch whose examples become vectors."""
    return shape[0], None if None in shape[1:] else math.prod(shape[1:])


def _with_flat_shape(flat: Tensor, inputs: Tensor) -> Tensor:
    """The vectors of a batch, whose length is known when that of the examples is."""
    if inputs.raw_shape is not None:
        flat.set_shape(_flat_shape(inputs.raw_shape))
    return flat


HELPERS: dict[str, Any] = {
    "_with_flat_shape": _with_flat_shape,
    "_flat_shape": _flat_shape,
    "_dtype_name": _dtype_name,
    "_unique_name": state.unique_name,
    "_track_all_variables": state.track_all_variables,
    "_in_scope": state.is_in_phase_scope,
    "_output_shape": _output_shape,
    "_call_in_scope": _call_in_scope,
    "_mean_activity": _mean_activity,
    "_to_snake_case": _to_snake_case,
}


def apply(root: ModuleType) -> None:
    """Changes the classes of the copy."""
    layer = root.engine.base_layer.Layer
    for cls in [layer, *_descendants(layer)]:
        if "build" in vars(cls):
            cls.build = _takes_any_shape(cls.build)
    layer.add_weight = _add_weight(root)
    layer.add_variable = lambda self, *args, **kwargs: self.add_weight(*args, **kwargs)
    layer.__init_subclass__ = classmethod(_of_the_program)
    for name, getter in _LAYER_PROPERTIES.items():
        setattr(layer, name, property(getter))
    layer.dtype = property(lambda self: self._dtype, lambda self, dtype: setattr(self, "_dtype", dtype))
    _change_models(root)
    from tfmini.compat.tf_keras import added_layers, estimator, fitting, optimizing, saving

    root.layers.Wrapper = root.layers.wrappers.Wrapper
    for part in (optimizing, added_layers, fitting, saving, estimator):
        part.apply(root)
    root.__version__ = "2.2.4-tf"  # type: ignore[attr-defined]


def _descendants(cls: Any) -> Iterator[Any]:
    for below in cls.__subclasses__():
        yield below
        yield from _descendants(below)


# ---- Shapes ----------------------------------------------------------------------------------------------------------
# Keras's layers compute with tuples of numbers; layers of programs for TensorFlow get TensorShapes.


def as_tuple(shape: Any) -> Any:
    """A shape, or a list of them, as tuples of numbers and None."""
    if isinstance(shape, TensorShape):
        return shape.raw
    if isinstance(shape, Dimension):
        return shape.value
    if isinstance(shape, (list, tuple)):
        return _like(shape, [as_tuple(part) for part in shape])
    return shape


def _as_tensor_shape(shape: Any) -> Any:
    """A tuple of numbers as a TensorShape, also in a structure, such as the states of cells."""
    if isinstance(shape, list) or (isinstance(shape, tuple) and any(isinstance(part, _SHAPES) for part in shape)):
        return _like(shape, [_as_tensor_shape(part) for part in shape])
    return TensorShape(shape) if isinstance(shape, tuple) else shape


_SHAPES = (list, tuple, TensorShape)


def _like(structure: Any, parts: list[Any]) -> Any:
    """A structure of the type of another; named tuples take their parts one by one."""
    return type(structure)(*parts) if hasattr(structure, "_fields") else type(structure)(parts)


def _takes_any_shape(build: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(build)
    def build_with_tuples(self: Any, input_shape: Any = None, *args: Any, **kwargs: Any) -> Any:
        return build(self, as_tuple(input_shape), *args, **kwargs)

    return build_with_tuples


# ---- Layers ----------------------------------------------------------------------------------------------------------


def _add_weight(root: ModuleType) -> Callable[..., Any]:
    initializers, K = root.initializers, root.backend  # noqa: N806 - as everybody calls it

    def add_weight(
        self: Any, name: Any = None, shape: Any = None, dtype: Any = None, initializer: Any = None,
        regularizer: Any = None, trainable: bool | None = None, constraint: Any = None, partitioner: object = None,
        use_resource: object = None, **_: object,
    ) -> Any:  # fmt: skip
        """A variable of the layer; without an initializer Glorot's, zeros for integers."""
        if not isinstance(name, str) and shape is None and name is not None:
            name, shape = None, name
        dtype = dtypes.as_dtype(dtype or self.dtype or K.floatx()).name
        initializer = initializer or ("glorot_uniform" if dtypes.as_dtype(dtype).is_floating else "zeros")
        trains = trainable is not False
        sizes = tuple(int(size) for size in as_tuple(TensorShape(shape or ()).as_list()))
        with state.variables_train(trains, local=isinstance(self, root.metrics.Metric)):
            weight = K.variable(
                initializers.get(initializer)(sizes, dtype=dtype), dtype=dtype, name=name, constraint=constraint
            )
        if regularizer is not None:
            with K.name_scope("weight_regularizer"):
                self.add_loss(regularizer(weight))
        (self._trainable_weights if trains else self._non_trainable_weights).append(weight)
        weight._tracked = True
        return weight

    return add_weight


def _of_the_program(cls: type, **_: object) -> None:
    """A layer or model class of a program, when it is made: what it gets from the library becomes TensorFlow's."""
    own = vars(cls)
    if "build" in own:
        build = own["build"]

        @functools.wraps(build)
        def build_with_shapes(self: Any, input_shape: Any = None, *args: Any, **kwargs: Any) -> Any:
            return build(self, _as_tensor_shape(input_shape), *args, **kwargs)

        cls.build = build_with_shapes  # type: ignore[attr-defined]
    if "call" in own and "training" in inspect.signature(own["call"]).parameters:
        cls.call = _knows_the_phase(own["call"])  # type: ignore[attr-defined]


def _knows_the_phase(call: Callable[..., Any]) -> Callable[..., Any]:
    """A ``call`` whose argument ``training`` is the learning phase unless it is given."""
    position = list(inspect.signature(call).parameters).index("training")

    @functools.wraps(call)
    def call_in_phase(*args: Any, **kwargs: Any) -> Any:
        if len(args) <= position and kwargs.get("training") is None:
            kwargs["training"] = state.learning_phase()
        return call(*args, **kwargs)

    return call_in_phase


_LAYER_PROPERTIES: dict[str, Callable[[Any], Any]] = {
    "variables": lambda self: self.weights,
    "trainable_variables": lambda self: self.trainable_weights,
    "non_trainable_variables": lambda self: self.non_trainable_weights,
}


# ---- Models ----------------------------------------------------------------------------------------------------------


def _change_models(root: ModuleType) -> None:
    network = root.engine.network.Network
    original = network.__call__

    def call(self: Any, inputs: Any, *args: Any, training: Any = None, **kwargs: Any) -> Any:
        """Calls the model on tensors; ``training`` is the phase of all its layers."""
        if training is None or not self._is_graph_network:
            more = {} if training is None else {"training": training}
            return original(self, inputs, *args, **more, **kwargs)
        with state.learning_phase_scope(training):
            return original(self, inputs, *args, **kwargs)

    network.__call__ = call
    network.weights = property(_weights_by_layer)
    root.engine.training_utils.get_metric_name = functools.partial(_metric_name, root.metrics)


def _weights_by_layer(self: Any) -> list[Any]:
    """All weights in the order of the layers; Keras 2.3 puts those that are trained first."""
    own = [*self._trainable_weights, *self._non_trainable_weights]
    listed = [weight for layer in self.layers for weight in layer.weights]
    return list(dict.fromkeys([*own, *listed]))


def _metric_name(metrics: Any, metric: Any, weighted: bool = False) -> str:
    """The name of a metric in logs and histories, which is not the string that ``compile`` got."""
    prefix = "weighted_" if weighted else ""
    if metric in ("accuracy", "acc", "crossentropy", "ce"):
        return prefix + ("acc" if metric in ("accuracy", "acc") else "ce")
    found = metrics.get(metric)
    return prefix + str(getattr(found, "name", None) or found.__name__)
