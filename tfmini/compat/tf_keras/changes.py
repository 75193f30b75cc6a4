"""Makes the copy of Keras what ``tf.keras`` of TensorFlow 1.15 is, where that is more than a change of its text."""

from __future__ import annotations

import functools
import inspect
import itertools
import math
from collections.abc import Callable
from contextlib import nullcontext
from types import ModuleType
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.compat.tf_keras import losses_metrics, model_inputs, op_layers, recurrent, saving, state, tracking, training
from tfmini.compat.tf_keras.phases import by_phase
from tfmini.devices import DeviceSpec
from tfmini.graph import nest
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import count_ops
from tfmini.ops.array.identity import cast
from tfmini.ops.array.layout import pad
from tfmini.ops.array.shape import reshape
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.composites import TensorSpec
from tfmini.ops.flow import autograph
from tfmini.ops.nn.convolution import note_dilation
from tfmini.ops.nn.normalization import dropout
from tfmini.ops.variables.base import VariableAggregation, VariableSynchronization, checked_kind
from tfmini.shapes import Dimension, TensorShape
from tfmini.train.checkpointing.module import Module
from tfmini.train.checkpointing.object_graph import Trackable

# ---- What changed lines of the library call --------------------------------------------------------------------------


def _output_shape(layer: Any, input_shape: Any, output: Any) -> Any:
    """The shape of a layer's output: that of its tensor, as in TensorFlow; what the layer says, if that is unknown."""
    outputs = output if isinstance(output, (list, tuple)) else [output]
    shapes: list[Any] = [as_tuple(getattr(x, "shape", None)) for x in outputs]
    asks = layer is not None and any(shape is None or None in shape[1:] for shape in shapes)
    if asks and _tells_its_shape(layer):
        told = as_tuple(layer.compute_output_shape(input_shape))
        shapes = [_known(a, b) for a, b in zip(shapes, told if isinstance(told, list) else [told] * len(shapes))]
    return shapes if isinstance(output, (list, tuple)) else shapes[0]


def _tells_its_shape(layer: Any) -> bool:
    """Whether a layer has a `compute_output_shape` of its own; the inherited one gives the shape of the input.

    A Lambda that was given no shape would call its function again.
    """
    if not getattr(layer, "_is_graph_network", True) or getattr(layer, "_output_shape", True) is None:
        return False
    home = next(cls for cls in type(layer).__mro__ if "compute_output_shape" in vars(cls))
    return home.__name__ != "Layer"


def _known(shape: Any, told: Any) -> Any:
    """The sizes of a shape, and for those that are unknown what the layer says."""
    if shape is None or told is None or len(shape) != len(told):
        return told if shape is None else shape
    return tuple(b if a is None else a for a, b in zip(shape, told))


def _mean_activity(layer: Any, output: Any) -> Any:
    """The penalty of an output for each example; Keras takes that of the batch."""
    return layer.activity_regularizer(output) / cast(shape_of(output)[0], output.dtype)


def _dtype_name(dtype: Any) -> str | None:
    """The name of a layer's or spec's dtype, which files of JSON can hold; None if any will do."""
    return None if dtype is None else dtypes.as_dtype(dtype).name


def _flat_shape(shape: Any) -> tuple[int | None, int | None]:
    """The shape of a batch whose examples become vectors."""
    return shape[0], None if None in shape[1:] else math.prod(shape[1:])


def _flattened(inputs: Tensor) -> Tensor:
    """The examples of a batch as vectors, whose length is known when that of the examples is."""
    flat = reshape(inputs, [inputs.shape[0].value or shape_of(inputs)[0], -1])
    if inputs.raw_shape is not None:
        flat.set_shape(_flat_shape(inputs.raw_shape))
    return flat


def _dropout(inputs: Tensor, rate: float, noise_shape: Any, seed: int | None) -> Tensor:
    """Dropout whose seed is the graph's if it has none; that of Keras draws one from NumPy."""
    return dropout(inputs, rate=rate, noise_shape=noise_shape, seed=seed)


def _note_dilation(layer: Any) -> None:
    """Make a convolution's constant of the dilation rate at its first call; see `convolution.note_dilation`."""
    if not hasattr(layer, "_has_dilation_noted"):
        layer._has_dilation_noted = True
        note_dilation(layer.dilation_rate)


def _shape_of_input(
    batch_shape: Any, shape: Any, batch_size: int | None, ragged: bool, others: dict[str, Any]
) -> tuple[int | None, ...] | None:
    """The shape of an input with its batch; None if it is that of a tensor.

    Raises:
      ValueError: two shapes, other arguments, or a ragged input, which tfmini does not have.
    """
    if others:
        raise ValueError(f"Input got arguments that it does not have: {sorted(others)}")
    if ragged:
        raise ValueError("ragged=True: tf.keras of tfmini takes no ragged tensors; pad them, and use a mask.")
    if batch_shape is not None and shape is not None:
        raise ValueError("Only one of `shape` and `batch_shape` can be given.")
    if batch_shape is not None:
        return tuple(as_tuple(batch_shape))
    return None if shape is None else (batch_size, *as_tuple(_listed(shape)))


def _listed(shape: Any) -> Any:
    return shape if isinstance(shape, (list, tuple, TensorShape)) else (shape,)


def _serialized_activation(activation: Any) -> Any:
    """An activation as JSON has it: its name, or a layer."""
    if hasattr(activation, "get_config"):
        return {"class_name": type(activation).__name__, "config": activation.get_config()}
    return activation.__name__


def _layer_of(config: dict[str, Any]) -> Any:
    return state.library_root().layers.deserialize(config)


def _inputs_of(layer: Any, inputs: Any, kwargs: dict[str, Any]) -> Any:
    """The inputs of a layer as tensors; their ops, and those of its other arguments, have layers of their own."""
    if any(isinstance(x, (np.ndarray, float, int)) for x in nest.flatten(inputs)):
        convert = lambda x: convert_to_tensor(x) if isinstance(x, (np.ndarray, float, int)) else x  # noqa: E731
        inputs = nest.map_structure(convert, inputs)
    op_layers.make_layers(state.library_root(), [inputs, kwargs])
    return op_layers.flat_inputs(layer, inputs)


def _by_name(layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a call, all by their names; without the phase if ``call`` does not take it.

    Raises:
      TypeError: when ``call`` takes fewer arguments.
    """
    if not args and "training" not in kwargs:
        return kwargs
    parameters = inspect.signature(layer.call).parameters
    names = [name for name, one in parameters.items() if one.kind is one.POSITIONAL_OR_KEYWORD][1:]
    takes_more = any(one.kind is one.VAR_POSITIONAL for one in parameters.values())
    if len(args) > len(names) and takes_more:
        return {op_layers.BY_PLACE: args, **kwargs}
    if len(args) > len(names):
        raise TypeError(f"call() of {layer.name} takes {len(names) + 1} arguments, but got {len(args) + 1}.")
    given = {**dict(zip(names, args)), **kwargs}
    if "training" not in parameters and not any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        given.pop("training", None)
    return given


def _arguments_of(layer: Any, mask: Any, training: Any) -> dict[str, Any]:
    """The arguments of a `Lambda`'s function: those of the layer, the mask and the phase, if it takes them."""
    taken = inspect.getfullargspec(layer.function).args if inspect.isroutine(layer.function) else []
    arguments = dict(layer.arguments)
    if "mask" in taken:
        arguments["mask"] = mask
    if "training" in taken:
        arguments["training"] = state.learning_phase() if training is None else training
    return arguments


def _device_type(device: Any) -> str:
    """The type of a device, in small letters: "cpu", "gpu", or "" for any."""
    return (DeviceSpec.from_string(device if isinstance(device, str) else device.to_string()).device_type or "").lower()


def _with_batch(shape: Any, input_shape: Any) -> Any:
    """The shape, or shapes, that a `Lambda` got for its output, with the batch of its input."""
    first = input_shape[0] if isinstance(input_shape, list) else input_shape
    batch = first[0] if first else None
    if any(isinstance(part, (tuple, list)) for part in shape):
        return [(batch, *part) for part in shape]
    return TensorShape([batch, *shape])


def _set_masks(outputs: Any, masks: Any) -> None:
    """Lets the outputs of a layer tell their masks (``tensor._keras_mask``)."""
    outputs = outputs if isinstance(outputs, list) else [outputs]
    for output, mask in zip(outputs, masks if isinstance(masks, (list, tuple)) else [masks] * len(outputs)):
        if isinstance(output, Tensor):
            output._keras_mask = mask  # type: ignore[attr-defined]
            if isinstance(mask, Tensor):  # no layer of its own
                vars(mask)["_keras_history_checked"] = True


def _take_dtype(layer: Any, inputs: Any) -> None:
    """Gives a layer without a dtype that of its first input."""
    first = next((x for x in nest.flatten(inputs) if isinstance(x, Tensor)), None)
    if getattr(layer, "dtype", "") is None and first is not None:
        layer.dtype = first.dtype.base_dtype.name


def _check_floating(layer: Any) -> None:
    """Raises TypeError for a layer of other than floating numbers."""
    if layer.dtype is not None and not dtypes.as_dtype(layer.dtype).is_floating:
        raise TypeError(f"Unable to build `{type(layer).__name__}` layer with non-floating point dtype {layer.dtype}")


def _as_dtype(inputs: Any, dtype: Any) -> Any:
    return inputs if dtype is None or not isinstance(inputs, Tensor) else cast(inputs, dtype)


def _padded(layer: Any, inputs: Any) -> Any:
    """The inputs of a locally connected layer with the zeros that ``padding="same"`` adds around them."""
    if layer.padding == "valid":
        return inputs
    first = 1 if getattr(layer, "data_format", None) != "channels_first" else 2
    sizes = [[0, 0] for _ in inputs.shape]
    for i, (kernel, stride) in enumerate(zip(layer.kernel_size, layer.strides)):
        size = int(inputs.shape[first + i])
        missing = max((-(-size // stride) - 1) * stride + kernel - size, 0)
        sizes[first + i] = [missing // 2, missing - missing // 2]
    return pad(inputs, sizes)


def _padded_before(layer: Any, inputs: Any) -> Any:
    """The steps of a separable convolution with the zeros before them that ``padding="causal"`` adds."""
    if layer.padding != "causal":
        return inputs
    before = [layer.dilation_rate[0] * (layer.kernel_size[0] - 1), 0]
    return pad(inputs, [[0, 0], [0, 0], before] if layer.data_format == "channels_first" else [[0, 0], before, [0, 0]])


def _copy_of(layer: Any, clone: Callable[[Any], Any] | None) -> Any:
    """A copy of a layer: what a function of the program makes of it, or one with the same configuration."""
    return type(layer).from_config(layer.get_config()) if clone is None else clone(layer)


def _input_of(model: Any) -> list[Any]:
    """A new layer like the one that is the input of a sequence, if it has one."""
    return [_copy_of(layer, None) for layer in model._layers[:1] if layer not in model.layers]


def _append_unique(names: list[str], name: str) -> None:
    """Appends a name, with a number if the list has it."""
    count = itertools.count(1)
    names.append(next(one for one in itertools.chain([name], (f"{name}_{i}" for i in count)) if one not in names))


def _shapes_of(layer: Any, input_shapes: Any) -> list[Any]:
    """The shapes of a layer's outputs as tuples; of a dictionary in the order of its keys."""
    found = layer.compute_output_shape(input_shapes)
    found = as_tuple([found[name] for name in sorted(found)] if isinstance(found, dict) else found)
    return found if isinstance(found, list) else [found]


def _has_layers(value: Any) -> bool:
    layer = state.library_root().engine.base_layer.Layer
    return isinstance(value, layer) or type(value) in (list, tuple, dict) and any(
        isinstance(part, layer) for part in nest.flatten(value)
    )  # fmt: skip


def _needs_a_gpu(layer: Any) -> Callable[..., Any]:
    """What computes a layer of cuDNN, which tfmini does not have; the layer's weights can be read and converted."""

    def compute(*_: object, **__: object) -> Any:
        raise NotImplementedError(
            f"{type(layer).__name__} needs a GPU and cuDNN: use {type(layer).__name__.removeprefix('CuDNN')}."
        )

    return compute


def _strides_of(inputs: Any, strides: Any) -> tuple[int, ...]:
    """The strides of a convolution or pooling, one for each dimension of a position.

    Raises:
      ValueError: for others than the inputs have.
    """
    positions = len(inputs.shape) - 2
    if len(strides) != positions:
        raise ValueError(f"`strides` must be a tuple of {positions} integers, not {strides!r}.")
    return tuple(strides)


def _along(vector: Any, axis: int, rank: int | None) -> Any:
    """A vector as values along an axis of a tensor; along the last one, and other values, as they are."""
    if vector is None or rank is None or len(vector.shape) != 1 or axis % rank == rank - 1:
        return vector
    return reshape(vector, [-1 if i == axis % rank else 1 for i in range(rank)])


HELPERS: dict[str, Any] = {
    "_origins": op_layers.origins,
    "_add_inputs": op_layers.add_inputs,
    "_arguments_now": op_layers.arguments_now,
    "_arguments_as_config": op_layers.arguments_as_config,
    "_arguments_of_config": op_layers.arguments_of_config,
    "_with_added": op_layers.with_added,
    "_in_form": op_layers.in_form,
    "_in_form_of": op_layers.in_form_of,
    "_origins_in": op_layers.origins_in,
    "_shapes_of": _shapes_of,
    "_network": lambda: state.library_root().engine.network.Network,
    "_copy_of": _copy_of,
    "_input_of": _input_of,
    "_append_unique": _append_unique,
    "_has_layers": _has_layers,
    "_strides_of": _strides_of,
    "_needs_a_gpu": _needs_a_gpu,
    "_along": _along,
    "_shape_of_input": _shape_of_input,
    "_serialized_activation": _serialized_activation,
    "_layer_of": _layer_of,
    **op_layers.HELPERS,
    "_make_optimizer_weights": saving.make_optimizer_weights,
    "_nested_weights": saving.nested_weights,
    "_with_variables": tracking.with_variables,
    "_with_batch": _with_batch,
    "_device_type": _device_type,
    "_as_text": lambda name: name.decode() if isinstance(name, bytes) else name,
    "_inputs_of": _inputs_of,
    "_set_masks": _set_masks,
    "_no_node": lambda *_, **__: None,
    "_arguments_of": _arguments_of,
    "_by_name": _by_name,
    "_take_dtype": _take_dtype,
    "_as_dtype": _as_dtype,
    "_check_floating": _check_floating,
    "_tracked": tracking.tracked,
    "_untracked": tracking.untracked,
    "_layers_of": tracking.layers_of,
    "_own_weights": tracking.own_weights,
    "_takes_layers": tracking.takes_layers,
    "_padded": _padded,
    "_padded_before": _padded_before,
    "_make_op_layers": lambda tensors: op_layers.make_layers(state.library_root(), tensors),
    "_flattened": _flattened,
    "_dropout": _dropout,
    "_note_dilation": _note_dilation,
    "_flat_shape": _flat_shape,
    "_dtype_name": _dtype_name,
    "_unique_name": state.unique_name,
    "_track_all_variables": state.track_all_variables,
    "_in_scope": state.is_in_phase_scope,
    "_phase_scope": state.learning_phase_scope,
    "_output_shape": _output_shape,
    "_mean_activity": _mean_activity,
    "_to_snake_case": state.to_snake_case,
    **training.HELPERS,
    "_check_wrapped": recurrent.check_wrapped,
    "_is_builtin": lambda layer: type(layer).__module__.startswith(state.LIBRARY),
    "_as_tuple": lambda shape: as_tuple(shape),
    "_casts_targets": losses_metrics.casts_targets,
    "_reduced_to_weights": losses_metrics.reduced_to_weights,
    "_div_no_nan": losses_metrics.div_no_nan,
    "_update_of": losses_metrics.update_of,
}


def apply(root: ModuleType) -> None:
    """Changes the classes of the copy."""
    layer = root.engine.base_layer.Layer
    layer.activity_regularizer = None
    root.engine.base_layer_utils = op_layers.base_layer_utils(root)
    own = root.backend.tensorflow_backend.tf_keras_backend
    for name in ("get_session", "local_conv", "local_conv1d", "local_conv2d"):
        setattr(root.backend, name, getattr(own, name))
    for cls in [layer, *training.descendants(layer)]:
        if "build" in vars(cls):
            cls.build = _takes_any_shape(cls.build)
        if "compute_output_shape" in vars(cls):
            cls.compute_output_shape = _tells_any_shape(cls.compute_output_shape)
    layer.add_weight = _add_weight(root)
    layer.compute_output_signature = _output_signature
    layer.dynamic = property(lambda self: any(getattr(x, "_dynamic", False) for x in (self, *self.submodules)))
    layer.submodules = property(tracking.submodules)
    layer._TF_MODULE_IGNORED_PROPERTIES = frozenset({"_updates", "_per_input_updates", "_noted"})  # of assignments
    layer._flatten = Module._flatten
    layer.apply = lambda self, inputs, *args, **kwargs: self(inputs, *args, **kwargs)
    root.layers.Lambda._variable_creator = tracking.create_once
    for name in ("_track_trackable", "_named_children", "_checkpoint_dependencies", *_UNCONDITIONAL):
        setattr(layer, name, vars(Trackable)[name])
    root.layers.TensorFlowOpLayer = op_layers.op_layer(root)
    root.layers.AddLoss, root.layers.AddMetric = op_layers.added_layers(root)
    layer.add_variable = lambda self, *args, **kwargs: self.add_weight(*args, **kwargs)
    layer.__init_subclass__ = classmethod(_of_the_program)
    layer._batch_input_shape = property(
        lambda self: self.batch_input_shape, lambda self, shape: setattr(self, "batch_input_shape", shape)
    )
    for name, getter in _LAYER_PROPERTIES.items():
        setattr(layer, name, property(getter))
    layer.trainable = property(lambda self: vars(self).get("_trainable", True), tracking.set_trainable)
    layer.dtype = property(lambda self: self._dtype, lambda self, dtype: setattr(self, "_dtype", _dtype_name(dtype)))
    _change_models(root)
    layer.__init__ = tracking.takes_positions(layer.__init__)
    root.utils.generic_utils.to_snake_case = state.to_snake_case
    layer.get_config = _refuses_arguments(layer.get_config)
    recurrent.apply(root)
    losses_metrics.apply(root)
    for cls in (root.layers.SimpleRNN, root.layers.GRU, root.layers.LSTM):
        cls.__init__ = _with_cell_dtype(cls.__init__)
    from tfmini.compat.tf_keras import added_layers, callbacks, cloning, estimator, fitting, initializers, optimizing

    root.engine.get_source_inputs = root.engine.network.get_source_inputs
    root.layers.Wrapper = root.layers.wrappers.Wrapper
    for part in (initializers, optimizing, added_layers, training, fitting, callbacks, cloning, saving, estimator):
        part.apply(root)
    _link(root)
    root.__version__ = "2.2.4-tf"  # type: ignore[attr-defined]


# Modules that TensorFlow has in other places than Keras.
MOVED: dict[str, str] = {
    "engine.base_layer_v1": "engine.base_layer",
    "layers.dense_attention": "layers",
    "layers.kernelized": "layers",
    "callbacks_v1": "callbacks.tensorboard_v1",
    "optimizer_v2.learning_rate_schedule": "optimizers.schedules",
}


def _link(root: ModuleType) -> None:
    """Makes the moved modules attributes of their packages, by whose own names Python would seek them."""
    for place, home in MOVED.items():
        package, _, name = place.rpartition(".")
        if package in ("layers", "engine"):
            setattr(value_at(root, package), name, value_at(root, home))


def value_at(root: Any, below: str) -> Any:
    """The value at a dotted path below the root; None if there is none."""
    return functools.reduce(lambda owner, part: getattr(owner, part, None), below.split("."), root)


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
    """A shape, or a structure of them, as TensorShapes."""
    if not isinstance(shape, (list, tuple)):
        return shape
    if any(isinstance(part, _SHAPES) for part in shape):
        return _like(shape, [_as_tensor_shape(part) for part in shape])
    return TensorShape(shape)


def _tells_any_shape(compute: Callable[..., Any]) -> Callable[..., Any]:
    """A ``compute_output_shape`` that answers in the kind of shapes in which it is asked."""

    @functools.wraps(compute)
    def compute_output_shape(self: Any, input_shape: Any, *args: Any, **kwargs: Any) -> Any:
        found = compute(self, as_tuple(input_shape), *args, **kwargs)
        return _as_tensor_shape(found) if _has_tensor_shapes(input_shape) else found

    return compute_output_shape


def _has_tensor_shapes(shape: Any) -> bool:
    return isinstance(shape, TensorShape) or isinstance(shape, list) and any(isinstance(s, TensorShape) for s in shape)


def _output_signature(self: Any, input_signature: Any) -> Any:
    """The specs of a layer's outputs for those of its inputs (``tf.keras.layers.Layer.compute_output_signature``)."""
    specs = input_signature if isinstance(input_signature, (list, tuple)) else [input_signature]
    if not all(isinstance(spec, TensorSpec) for spec in specs):
        raise TypeError(f"compute_output_signature takes tf.TensorSpecs, not {input_signature!r}")
    shapes = [spec.shape for spec in specs]
    found = self.compute_output_shape(shapes if isinstance(input_signature, (list, tuple)) else shapes[0])
    dtype = self.dtype or specs[0].dtype
    if isinstance(found, list):
        return [TensorSpec(shape, dtype) for shape in found]
    return TensorSpec(found, dtype)


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
        use_resource: object = None, synchronization: Any = None, aggregation: Any = None, **_: object,
    ) -> Any:  # fmt: skip
        """A variable of the layer; without an initializer Glorot's, zeros for integers."""
        if not isinstance(name, str) and shape is None and name is not None:
            name, shape = None, name
        dtype = dtypes.as_dtype(dtype or self.dtype or K.floatx()).name
        initializer = initializer or ("glorot_uniform" if dtypes.as_dtype(dtype).is_floating else "zeros")
        initializer = initializer() if isinstance(initializer, type) else initializer
        trains = trainable is not False
        sizes = tuple(int(size) for size in as_tuple(TensorShape(() if shape is None else shape).as_list()))
        with state.variables_train(trains, local=isinstance(self, root.metrics.Metric)):
            # A function: the value of a variable that is made in a cond or a loop is computed outside.
            value = functools.partial(initializers.get(initializer), sizes, dtype=dtype)
            weight = K.variable(value, dtype=dtype, name=name, constraint=root.constraints.get(constraint))
        if isinstance(self, root.metrics.Metric):
            synchronization, aggregation = VariableSynchronization.ON_READ, VariableAggregation.SUM
        weight._synchronization, weight._aggregation = checked_kind(synchronization, aggregation, trains, name)[:2]
        if regularizer is not None:
            before = get_default_graph().version
            with K.name_scope(f"{weight.op.name}/Regularizer/"):
                self.add_loss(root.regularizers.get(regularizer)(weight))
            count_ops(before - get_default_graph().version)  # TensorFlow makes them later
        (self._trainable_weights if trains else self._non_trainable_weights).append(weight)
        weight._tracked = True
        return weight if name is None else self._track_trackable(weight, name, overwrite=True)

    return add_weight


def _refuses_arguments(get_config: Callable[..., Any]) -> Callable[..., Any]:
    """A ``get_config`` that does not leave out what the layer's ``__init__`` needs."""

    @functools.wraps(get_config)
    def get_whole_config(self: Any) -> Any:
        own = type(self).get_config is get_whole_config
        config = get_config(self)
        asked = [name for name in inspect.getfullargspec(type(self).__init__).args[1:] if name not in config]
        if own and asked:
            raise NotImplementedError(
                f"{type(self).__name__}.__init__ takes {asked}: layers with arguments in `__init__` must override"
                " `get_config`."
            )
        return config

    return get_whole_config


def _with_cell_dtype(init: Callable[..., None]) -> Callable[..., None]:
    """An ``__init__`` of a recurrent layer, whose cell has its dtype."""

    @functools.wraps(init)
    def init_with_cell(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        self.cell.dtype = self.dtype

    return init_with_cell


def _of_the_program(cls: type, **_: object) -> None:
    """A layer or model class of a program, when it is made: what it gets from the library becomes TensorFlow's."""
    own = vars(cls)
    if "build" in own:
        build = own["build"]

        @functools.wraps(build)
        def build_with_shapes(self: Any, input_shape: Any = None, *args: Any, **kwargs: Any) -> Any:
            shapes = op_layers.as_given(self, _as_tensor_shape(input_shape))
            return build(self, shapes, *args, **kwargs)

        cls.build = build_with_shapes  # type: ignore[attr-defined]
    if "call" in own and "training" in inspect.signature(own["call"]).parameters:
        cls.call = _knows_the_phase(own["call"])  # type: ignore[attr-defined]


def _knows_the_phase(call: Callable[..., Any]) -> Callable[..., Any]:
    """A ``call`` whose ``training``, unless given, is that of the calling layer; a tensor may be used in an ``if``."""
    position = list(inspect.signature(call).parameters).index("training")

    @functools.wraps(call)
    def call_in_phase(*args: Any, **kwargs: Any) -> Any:
        convert = functools.partial(op_layers.converted, call, *args)
        by_place = len(args) > position
        phase = args[position] if by_place else kwargs.get("training")
        if phase is None and not by_place:
            phase = state.callers_phase()
            if phase is not None:
                kwargs["training"] = phase
        with state.calls_in_phase(phase):
            return convert(**kwargs) if by_place or phase is None else by_phase(args[0], convert, kwargs)

    return autograph.mark(call_in_phase)  # type: ignore[no-any-return]


class _SeenNode:
    """A node as ``tf.keras`` shows it: of one tensor, shape or layer it makes no list."""

    def __init__(self, node: Any) -> None:
        self._node = node

    def __getattr__(self, name: str) -> Any:
        if name == "_node":  # while it is copied
            raise AttributeError(name)
        value = getattr(self._node, name)
        return value[0] if type(value) is list and len(value) == 1 else value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _SeenNode) and self._node is other._node

    def __hash__(self) -> int:
        return hash(self._node)


_UNCONDITIONAL = "_unconditional_checkpoint_dependencies", "_unconditional_dependency_names"
_LAYER_PROPERTIES: dict[str, Callable[[Any], Any]] = {
    "variables": lambda self: self.weights,
    "trainable_variables": lambda self: self.trainable_weights,
    "non_trainable_variables": lambda self: self.non_trainable_weights,
    "_call_fn_args": lambda self: list(inspect.signature(self.call).parameters),
    "inbound_nodes": lambda self: [*map(_SeenNode, self._inbound_nodes)],
    "outbound_nodes": lambda self: [*map(_SeenNode, self._outbound_nodes)],
}


# ---- Models ----------------------------------------------------------------------------------------------------------


def _change_models(root: ModuleType) -> None:
    network = root.engine.network.Network
    original = network.__call__

    def call(self: Any, inputs: Any, *args: Any, training: Any = None, **kwargs: Any) -> Any:
        """Calls the model on tensors; ``training`` is the phase of all its layers."""
        more = {} if training is None or self._is_graph_network else {"training": training}
        with state.calls_in_phase(training):
            outputs = original(self, inputs, *args, **more, **kwargs)
        return model_inputs.after_call(self, inputs, outputs)

    network.__call__ = call
    del network.__getstate__, network.__setstate__  # of pickles of Keras; a copy shares the layers
    del network.get_weights, network.set_weights  # all find them as `Layer` does
    network.weights = property(tracking.weights_by_layer)
    network.trainable_weights = property(tracking.trained_by_layer)
    network.non_trainable_weights = property(tracking.others_by_layer)
    sequence = root.engine.sequential.Sequential
    sequence.call = _by_layers(sequence.call)
    network.compute_output_shape = _shapes_of_models(network.compute_output_shape)
    root.engine.training_utils.get_metric_name = functools.partial(losses_metrics.metric_name, root.metrics)


def _shapes_of_models(compute: Callable[..., Any]) -> Callable[..., Any]:
    """A model's ``compute_output_shape``: TensorShapes, in the form of its outputs; of a sequence layer by layer."""

    @functools.wraps(compute)
    def compute_output_shape(self: Any, input_shape: Any) -> Any:
        if isinstance(input_shape, dict):
            input_shape = [input_shape[name] for name in sorted(input_shape)]
        if not self._is_graph_network and isinstance(self, state.library_root().Sequential):
            following = lambda shape, layer: as_tuple(layer.compute_output_shape(shape))  # noqa: E731
            return _as_tensor_shape(functools.reduce(following, self.layers, as_tuple(input_shape)))
        found = _as_tensor_shape(compute(self, as_tuple(input_shape)))
        structured = getattr(self, "_structured_outputs", None) is not None
        return op_layers.in_form(self, "outputs", nest.flatten(found)) if structured else found

    return compute_output_shape


def _by_layers(call: Callable[..., Any]) -> Callable[..., Any]:
    """A sequence's ``call``: until it is built, its layers on each other's outputs."""

    @functools.wraps(call)
    def call_layers(self: Any, inputs: Any, training: Any = None, mask: Any = None) -> Any:
        if self._is_graph_network:
            return call(self, inputs, training=training, mask=mask)
        with nullcontext() if training is None else state.learning_phase_scope(training):
            return functools.reduce(lambda made, layer: layer(made), self.layers, inputs)

    return call_layers
