"""``tf.layers.Layer``: an object that owns variables and adds ops each time it is called.

The first use of a layer opens a variable scope and a name scope, both named after the layer. The
variables and ops of all calls are in them.
"""

from __future__ import annotations

import copy
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import DTypeLike, ShapeLike, TensorLike
from tfmini.export import documented_arguments, export, with_arguments
from tfmini.graph import nest
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.names import GraphKeys
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import add_to_collection, counted_as, name_scope
from tfmini.ops.array.identity import cast, identity
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.math.comparison import greater_equal
from tfmini.ops.math.reductions import reduce_sum
from tfmini.ops.math.sums import clip_by_value
from tfmini.ops.math.unary import abs, exp, sigmoid, sqrt, square, tanh
from tfmini.ops.nn.activation import elu, relu, selu, softplus, softsign
from tfmini.ops.nn.cross_entropy import softmax
from tfmini.ops.variables import scope as vs
from tfmini.ops.variables.base import Variable, VariableAggregation, VariableSynchronization
from tfmini.ops.variables.functions import global_variables, trainable_variables
from tfmini.ops.variables.initializers import INITIALIZERS
from tfmini.ops.variables.scope import VariableScope
from tfmini.ops.variables.store import ReuseLike
from tfmini.shapes import TensorShape

_NAMES_KEY = "tfmini.layers.names"


@export("tf.layers.Layer")
class Layer:
    """Base class of all layers (``tf.layers.Layer``).

    A subclass makes its variables in `build`, with `add_weight`, and its ops in `call`.

    Args:
      trainable: whether the variables are trainable; if False, no weight is.
      name: name of the scope; default: the class name in snake case, made unique.
      dtype: type of the variables; default: that of the first input.
    """

    input_spec: InputSpec | None = None
    updates_collection: str | None = GraphKeys.UPDATE_OPS
    _TF_MODULE_IGNORED_PROPERTIES = frozenset[str]()  # a `tf.Module` finds the variables of its layers

    def __init__(
        self, trainable: bool = True, name: str | None = None, dtype: DTypeLike | None = None, **kwargs: Any
    ) -> None:
        scope = kwargs.pop("_scope", None)
        self._reuse = kwargs.pop("_reuse", None)
        self.activity_regularizer = _named(_REGULARIZERS, "regularizer", kwargs.pop("activity_regularizer", None))
        if kwargs:
            raise TypeError(f"Keyword argument not understood: {next(iter(kwargs))}")
        self.trainable = trainable
        self.built = False
        self._dtype = None if dtype is None else dtypes.as_dtype(dtype)
        self._trainable_weights: list[Any] = []
        self._non_trainable_weights: list[Any] = []
        self._updates: list[Any] = []
        self._losses: list[Any] = []
        # The id of an update or a loss -> the inputs that it was made for; none for what holds for all inputs.
        self._made_for: dict[int, list[Any]] = {}
        self._called_with: Any = None
        self._set_name(name)
        self._scope: vs.VariableScope | None = None
        if scope:
            with vs.variable_scope(scope) as captured:
                self._scope = captured

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Wraps the subclass's `build`: it accepts any form of shape and marks the layer as built.

        A docstring that leaves arguments to a base class gets them from there.
        """
        super().__init_subclass__(**kwargs)
        if cls.__doc__ and cls.__module__.startswith("tfmini."):
            cls.__doc__ = with_arguments(cls.__doc__, arguments_told(cls))
        if "build" in cls.__dict__:
            cls.build = _complete(cls.__dict__["build"])  # type: ignore[method-assign]

    def _set_name(self, name: str | VariableScope | None) -> None:
        if isinstance(name, vs.VariableScope):
            self._base_name, self._name = name.name, name.name.rpartition("/")[2]
        elif name:
            self._base_name = self._name = name
        else:
            self._base_name = to_snake_case(type(self).__name__)
            counts = get_default_graph().attachments.setdefault(_NAMES_KEY, {})
            counts[self._base_name] = number = counts.get(self._base_name, 0) + 1
            self._name = f"{self._base_name}_{number}"

    @property
    def name(self) -> str:
        """The given name, or one derived from the class."""
        return self._name

    @property
    def dtype(self) -> Any:
        """The type of the variables; None until it is known."""
        return None if self._dtype is None else self._dtype.name

    @property
    def scope_name(self) -> str:
        """The name of the variable scope; raises ValueError before the first use."""
        if self._scope is None:
            raise ValueError(
                f'No name available for layer scope because the layer "{self._name}" has not been used yet. The scope'
                " name  is determined the first time the layer instance is called. You must therefore call the layer"
                " before querying `scope_name`."
            )
        return self._scope.name

    @property
    def trainable_weights(self) -> list[Any]:
        return list(self._trainable_weights) if self.trainable else []

    @property
    def non_trainable_weights(self) -> list[Any]:
        if self.trainable:
            return list(self._non_trainable_weights)
        return [*self._trainable_weights, *self._non_trainable_weights]

    @property
    def weights(self) -> list[Any]:
        return self.trainable_weights + self.non_trainable_weights

    @property
    def trainable_variables(self) -> list[Any]:
        return self.trainable_weights

    @property
    def non_trainable_variables(self) -> list[Any]:
        return self.non_trainable_weights

    @property
    def variables(self) -> list[Any]:
        return self.weights

    @property
    def updates(self) -> list[Any]:
        """The ops that update moving averages; they are also in UPDATE_OPS."""
        return list(self._updates)

    @property
    def losses(self) -> list[Any]:
        """The losses of the regularizers; they are also in REGULARIZATION_LOSSES."""
        return list(self._losses)

    def build(self, input_shape: TensorShape) -> None:
        """Makes the variables; it is called once, before the first `call`."""
        self.built = True

    def call(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Adds the ops of the layer and returns the result; subclasses override it."""
        return inputs

    def compute_output_shape(self, input_shape: ShapeLike) -> TensorShape:
        """The shape of the result for an input of shape ``input_shape``."""
        raise NotImplementedError

    def get_updates_for(self, inputs: TensorLike) -> list[Any]:
        """The updates that depend on these inputs; None: those that hold for all inputs."""
        return [update for update in self._updates if self._is_made_for(update, inputs)]

    def get_losses_for(self, inputs: TensorLike) -> list[Any]:
        """The losses that depend on these inputs; None: those that hold for all inputs, as those of weights do."""
        return [loss for loss in self._losses if self._is_made_for(loss, inputs)]

    def _is_made_for(self, item: object, inputs: TensorLike) -> bool:
        asked = [] if inputs is None else nest.flatten(inputs)
        given = self._made_for.get(id(item), [])
        return bool(given) and _depends_on(item, asked) if asked else not given

    def add_update(self, updates: TensorLike, inputs: TensorLike | None = None) -> None:
        """Records update ops for the training step to run; ``inputs``: those of the layer that they depend on."""
        new = [getattr(update, "op", update) for update in _as_list(updates) if update is not None]
        self._updates += new
        given = self._called_with if inputs is None else inputs
        self._made_for.update((id(update), [] if given is None else nest.flatten(given)) for update in new)

    def add_loss(self, losses: TensorLike, inputs: TensorLike | None = None) -> None:
        """Records losses and adds them to REGULARIZATION_LOSSES; ``inputs``: those of the layer that they depend on."""
        new = [loss for loss in _as_list(losses) if loss is not None]
        self._losses += new
        self._made_for.update((id(loss), [] if inputs is None else nest.flatten(inputs)) for loss in new)
        _add_once(GraphKeys.REGULARIZATION_LOSSES, new)

    def add_weight(
        self,
        name: str,
        shape: ShapeLike,
        dtype: DTypeLike | None = None,
        initializer: Callable[..., Any] | None = None,
        regularizer: Callable[..., Any] | None = None,
        trainable: bool | None = None,
        constraint: Callable[..., Any] | None = None,
        use_resource: bool | None = None,
        synchronization: VariableSynchronization | int | None = None,
        aggregation: VariableAggregation | int | None = None,
        partitioner: Callable[..., Any] | None = None,
    ) -> Any:
        """Creates a variable in the layer's scope, or reuses the one of that name.

        The arguments are those of ``tf.get_variable``; the functions may be names of Keras, too.
        """
        if isinstance(initializer, (str, dict)):
            initializer = _named(INITIALIZERS, "initializer", initializer)
        regularizer = _named(_REGULARIZERS, "regularizer", regularizer)
        constraint = _named(_CONSTRAINTS, "constraint", constraint)
        if synchronization is VariableSynchronization.ON_READ and trainable:
            raise ValueError(
                "Synchronization value can be set to VariableSynchronization.ON_READ only for non-trainable variables."
                " You have specified trainable=True and synchronization=VariableSynchronization.ON_READ."
            )
        known = set(map(id, global_variables()))
        with self._in_scope(self.built or self._reuse) as scope, name_scope(scope.original_name_scope):
            variable = vs.get_variable(
                name,
                shape=shape,
                dtype=dtypes.as_dtype(dtype or self._dtype or dtypes.float32),
                initializer=scope.initializer if initializer is None else initializer,
                trainable=(True if trainable is None else trainable) and self.trainable,
                constraint=constraint,
                partitioner=partitioner,
                use_resource=use_resource,
                synchronization=synchronization,
                aggregation=aggregation,
            )
            if regularizer is not None and not any(id(part) in known for part in _parts(variable)):
                self._regularize(name, variable, regularizer)
        wanted = True if trainable is None else trainable
        frozen = wanted and self.trainable and not _is_in(variable, trainable_variables())
        (self._trainable_weights if wanted and not frozen else self._non_trainable_weights).append(variable)
        return variable

    add_variable = add_weight

    def _regularize(self, name: str, variable: Variable, regularizer: Callable[..., Any]) -> None:
        for part in _parts(variable):
            with name_scope(name + "/Regularizer"):
                loss = regularizer(part)
            if loss is not None:
                self.add_loss(loss)

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Builds the layer at the first call, adds its ops and returns their result.

        Raises:
          ValueError: when the inputs do not match the layer's ``input_spec``.
        """
        self._set_scope(kwargs.pop("scope", None))
        with self._in_scope(True if self.built else self._reuse) as scope, name_scope(scope.original_name_scope):
            inputs = _tensors(inputs)
            check_inputs(self.input_spec, inputs, self._name)
            if not self.built:
                self._build_for(inputs)
            self._called_with = inputs
            try:
                outputs = self.call(inputs, *args, **kwargs)
            finally:
                self._called_with = None
            if outputs is None:
                raise ValueError(
                    "A layer's `call` method should return a Tensor or a list of Tensors, not None"
                    f" (layer: {self._name})."
                )
            if outputs is inputs and any(hasattr(tensor, "_keras_history") for tensor in nest.flatten(outputs)):
                outputs = nest.map_structure(lambda tensor: identity(tensor, name=self._name), outputs)
            if self.activity_regularizer is not None:
                self._regularize_activity(inputs, nest.flatten(outputs))
        if self.updates_collection:
            _add_once(self.updates_collection, self._updates)
        return outputs

    def _regularize_activity(self, inputs: Any, outputs: list[Tensor]) -> None:
        """Adds the losses of the outputs, divided by the batch size, as losses of these inputs."""
        with name_scope("ActivityRegularizer"):
            for output in outputs:
                loss = self.activity_regularizer(output)
                if loss is not None:
                    self.add_loss(loss / cast(shape_of(output)[0], loss.dtype), inputs=inputs)

    apply = __call__

    def _build_for(self, inputs: TensorLike) -> None:
        if self._dtype is None:
            self._dtype = nest.flatten(inputs)[0].dtype.base_dtype
        self.build(nest.map_structure(lambda tensor: tensor.shape, inputs))
        self.built = True

    def _set_scope(self, scope: str | VariableScope | None) -> None:
        if self._scope is not None:
            return
        if self._reuse:
            opened = vs.variable_scope(self._base_name if scope is None else scope)
        else:
            opened = vs.variable_scope(scope, default_name=self._base_name)
        with opened as captured:
            self._scope = captured

    def _in_scope(self, reuse: ReuseLike) -> AbstractContextManager[vs.VariableScope]:
        self._set_scope(None)
        return vs.variable_scope(self._scope, reuse=reuse, auxiliary_name_scope=False)

    def __deepcopy__(self, memo: dict[int, Any]) -> Layer:
        """A copy of the layer that shares its variables and tensors; one of an unused layer makes its own."""
        made: Layer = type(self).__new__(type(self))
        memo[id(self)] = made
        for key, value in vars(self).items():
            of_graph = all(map(_is_of_graph, _as_list(value)))
            if key == "_made_for" or of_graph and isinstance(value, (vs.VariableScope, list)):
                vars(made)[key] = copy.copy(value)
            else:
                vars(made)[key] = value if of_graph else copy.deepcopy(value, memo)
        return made

    def get_weights(self) -> list[Any]:
        """The values of all weights in the default session, as arrays."""
        weights = self.weights
        return weights[0].graph._session_hook("eval", weights, None, None) if weights else []

    def set_weights(self, weights: Sequence[Any]) -> None:
        """Assigns arrays to the weights, in their order, in the default session.

        Raises:
          ValueError: for another number of arrays than weights, or another shape than that of its weight.
        """
        own = self.weights
        if len(own) != len(weights):
            raise ValueError(
                f'You called `set_weights(weights)` on layer "{self._name}" with a  weight list of length'
                f" {len(weights)}, but the layer was expecting {len(own)} weights."
            )
        for weight, value in zip(own, weights):
            if (given := np.shape(value)) != tuple(weight.shape.as_list()):
                raise ValueError(f"Layer weight shape {weight.shape} not compatible with provided weight shape {given}")
        for weight, value in zip(own, weights):
            weight.load(value)

    def count_params(self) -> int:
        """The number of elements of all weights; raises ValueError before the layer is built."""
        if not self.built:
            raise ValueError(f"You tried to call `count_params` on {self._name}, but the layer isn't built.")
        return sum(weight.shape.num_elements() for weight in self.weights)


# ---- Functions by the names that Keras gives them --------------------------------------------------------------------


def _of_norms(l1: float = 0.0, l2: float = 0.0) -> Callable[[Any], Tensor]:
    def regularizer(x: Any) -> Tensor:
        loss: Any = 0.0
        for factor, size in ((l1, abs), (l2, square)):
            if factor:
                loss = loss + factor * reduce_sum(size(x))
        return convert_to_tensor(loss)

    return regularizer


_REGULARIZERS: dict[str, Callable[..., Any]] = {
    "L1L2": _of_norms,
    "l1": functools.partial(_of_norms, l1=0.01),
    "l2": functools.partial(_of_norms, l2=0.01),
    "l1_l2": functools.partial(_of_norms, l1=0.01, l2=0.01),
}


def _between(min_value: float, max_value: float, rate: float = 1.0, axis: Any = 0) -> Callable[[Any], Tensor]:
    """Scales vectors along ``axis`` so that their norms come between two bounds; with a ``rate`` below 1 by a part."""

    def constraint(w: Any) -> Tensor:
        norms = sqrt(reduce_sum(square(w), axis, keepdims=True))
        wanted = rate * clip_by_value(norms, min_value, max_value) + (1 - rate) * norms
        return w * (wanted / (1e-7 + norms))  # type: ignore[no-any-return]

    return constraint


def _max_norm(max_value: float = 2, axis: Any = 0) -> Callable[[Any], Tensor]:
    return _between(0, max_value, axis=axis)


def _min_max_norm(
    min_value: float = 0.0, max_value: float = 1.0, rate: float = 1.0, axis: Any = 0
) -> Callable[[Any], Tensor]:
    return _between(min_value, max_value, rate, axis)


def _unit_norm(axis: Any = 0) -> Callable[[Any], Tensor]:
    return _between(1.0, 1.0, axis=axis)


def _non_negative() -> Callable[[Any], Tensor]:
    return lambda w: w * cast(greater_equal(w, 0.0), w.dtype)


_CONSTRAINTS: dict[str, Callable[..., Any]] = {
    "MaxNorm": _max_norm, "max_norm": _max_norm, "NonNeg": _non_negative, "non_neg": _non_negative,
    "nonneg": _non_negative, "MinMaxNorm": _min_max_norm, "min_max_norm": _min_max_norm,
    "UnitNorm": _unit_norm, "unit_norm": _unit_norm,
}  # fmt: skip


def _linear(x: Any) -> Any:
    return x


def _hard_sigmoid(x: Any) -> Any:
    return clip_by_value(0.2 * x + 0.5, 0.0, 1.0)


def _softmax(x: Any) -> Tensor:
    with counted_as(1 if x.shape.ndims == 2 else 7):
        return softmax(x)


def _selu(x: Any) -> Tensor:
    with counted_as(8):
        return selu(x)


_ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "relu": relu, "tanh": tanh, "sigmoid": sigmoid, "linear": _linear, "softmax": _softmax, "selu": _selu, "elu": elu,
    "hard_sigmoid": _hard_sigmoid, "exponential": exp, "softplus": softplus, "softsign": softsign,
}  # fmt: skip


def _named(table: dict[str, Callable[..., Any]], what: str, given: Any) -> Any:
    """What a name of ``table`` or a config of Keras makes; a function and None as they are.

    Raises:
      ValueError: for an unknown name, and for what is neither.
    """
    if given is None or callable(given):
        return given
    if not isinstance(given, (str, dict)):
        raise ValueError(f"Could not interpret {what} identifier: {given}")
    name, config = (given, {}) if isinstance(given, str) else (given["class_name"], given["config"])
    if name not in table:
        raise ValueError(f"Unknown {what}:{name}. Known are: {' '.join(sorted(table))}.")
    return table[name](**config)


def activation_of(given: Any) -> Any:
    """The activation of a name of Keras; a function and None as they are.

    Raises:
      ValueError: for an unknown name.
      TypeError: for what is neither.
    """
    if isinstance(given, str):
        if given not in _ACTIVATIONS:
            raise ValueError(f"Unknown activation function:{given}. Known are: {' '.join(sorted(_ACTIVATIONS))}.")
        return _ACTIVATIONS[given]
    if given is not None and not callable(given):
        raise TypeError(f"Could not interpret activation function identifier: {given}")
    return given


def _is_of_graph(value: TensorLike) -> bool:
    return isinstance(value, (Tensor, Operation, Variable, vs.VariableScope)) or hasattr(value, "_get_partitions")


def _depends_on(item: Any, inputs: list[Any]) -> bool:
    """Whether a tensor or an operation is made from one of the inputs."""
    sources, seen, waiting = set(map(id, inputs)), set(), [item]
    while waiting:
        found = waiting.pop()
        if id(found) in sources:
            return True
        made = getattr(found, "op", found)
        if made not in seen:
            seen.add(made)
            waiting += made.inputs
    return False


def _complete(build: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(build)
    def building(self: Layer, input_shape: ShapeLike) -> None:
        if self._dtype is None:
            self._dtype = dtypes.float32
        several = nest.is_nested(input_shape) and isinstance(nest.flatten(input_shape)[0], TensorShape)
        build(self, input_shape if several else TensorShape(input_shape))
        self.built = True

    return building


def to_snake_case(name: str) -> str:
    """Converts a class name to snake case: ``SeparableConv2D`` becomes ``separable_conv2d``."""
    spaced = re.sub(r"(.)([A-Z][a-z0-9]+)", r"\1_\2", name)
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", spaced).lower()


def _tensors(inputs: TensorLike) -> Any:
    """A tensor, or a list or dictionary of tensors."""
    if isinstance(inputs, dict):
        return {key: convert_to_tensor(value) for key, value in inputs.items()}
    if isinstance(inputs, (list, tuple)):
        return [convert_to_tensor(one) for one in inputs]
    return convert_to_tensor(inputs)


def _as_list(values: TensorLike) -> list[Any]:
    return list(values) if isinstance(values, (list, tuple)) else [values]


def _parts(variable: Variable) -> list[Any]:
    """The parts of a partitioned variable, or the variable itself."""
    return list(variable) if hasattr(variable, "_get_partitions") else [variable]


def _is_in(variable: Variable, known: Iterable[Any]) -> bool:
    ids = set(map(id, known))
    return all(id(part) in ids for part in _parts(variable))


def _add_once(collection: str, items: Iterable[Any]) -> None:
    present = set(map(id, get_default_graph().get_collection_ref(collection)))
    for item in items:
        if id(item) not in present:
            add_to_collection(collection, item)


# ---- ``tf.layers.InputSpec``: the requirements of a layer on its input, and their check ----------------------------


@export("tf.layers.InputSpec")
@dataclass(frozen=True)
class InputSpec:
    """Requirements on an input (``tf.layers.InputSpec``); None means no requirement.

    Attributes:
      dtype: the type.
      shape: the shape; None for an axis of any length.
      ndim, min_ndim, max_ndim: the rank and its bounds.
      axes: axis -> required length.
    """

    dtype: Any = None
    shape: Any = None
    ndim: int | None = None
    max_ndim: int | None = None
    min_ndim: int | None = None
    axes: dict[int, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises TypeError for an axis that is no number, and ValueError for one that the shape does not have."""
        try:
            axes = {int(axis): size for axis, size in (self.axes or {}).items()}
        except ValueError:
            raise TypeError("The keys in axes must be integers.") from None
        object.__setattr__(self, "axes", axes)
        rank = self.ndim if self.shape is None else len(self.shape)
        last = (self.max_ndim if rank is None else rank) or 0
        if axes and last and max(axes) > last - 1:
            raise ValueError(f"Axis {max(axes)} is greater than the maximum allowed value: {last - 1}")

    def get_config(self) -> dict[str, Any]:
        """The requirements by name, as `from_config` takes them; the dtype by its name."""
        config = {name: getattr(self, name) for name in ("dtype", "shape", "ndim", "max_ndim", "min_ndim", "axes")}
        if self.shape is not None:
            config["ndim"] = len(self.shape)
        return {**config, "dtype": None if self.dtype is None else dtypes.as_dtype(self.dtype).name}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> InputSpec:
        """The requirements of such a config."""
        return cls(**config)


@export("tensorflow.python.keras.engine.input_spec.to_tensor_shape")
def to_tensor_shape(spec: InputSpec) -> TensorShape:
    """The shape that a spec tells: unknown unless it has a shape or a rank."""
    if spec.ndim is None and spec.shape is None:
        return TensorShape(None)
    if spec.shape is not None:
        return TensorShape(spec.shape)
    sizes: list[Any] = [None] * (spec.ndim or 0)
    for axis, size in spec.axes.items():
        sizes[axis] = size
    return TensorShape(sizes)


def check_inputs(spec: InputSpec | None, inputs: Any, name: str) -> None:
    """Raises ValueError, with TensorFlow's message, if the input of layer ``name`` does not match ``spec``."""
    if spec is None or isinstance(inputs, (list, tuple, dict)):
        return
    shape: TensorShape = inputs.shape
    rank = shape.ndims
    start = f"Input 0 of layer {name} is incompatible with the layer: "
    if rank is None:
        if spec.ndim is not None or spec.min_ndim is not None or spec.max_ndim is not None:
            raise ValueError(start + "its rank is undefined, but the layer requires a defined rank.")
        return
    if spec.ndim is not None and rank != spec.ndim:
        raise ValueError(f"{start}expected ndim={spec.ndim}, found ndim={rank}. Full shape received: {shape.as_list()}")
    if spec.max_ndim is not None and rank > spec.max_ndim:
        raise ValueError(f"{start}expected max_ndim={spec.max_ndim}, found ndim={rank}")
    if spec.min_ndim is not None and rank < spec.min_ndim:
        raise ValueError(
            f"{start}: expected min_ndim={spec.min_ndim}, found ndim={rank}. Full shape received: {shape.as_list()}"
        )
    sizes = shape.as_list()
    for axis, size in spec.axes.items():
        if size is not None and sizes[axis] not in (size, None):
            raise ValueError(
                f"{start}expected axis {axis} of input shape to have value {size} but received input with shape {sizes}"
            )
    for axis, size in enumerate(spec.shape or ()):
        if size is not None and sizes[axis] not in (size, None):
            raise ValueError(f"{start}expected shape={spec.shape}, found shape={sizes}")


@export("tensorflow.python.keras.engine.input_spec.assert_input_compatibility")
def assert_input_compatibility(input_spec: Any, inputs: Any, layer_name: str) -> None:
    """Raises ValueError if inputs, one or a list, do not match their specs (none: they match)."""
    if not input_spec:
        return
    specs, values = nest.flatten(input_spec), nest.flatten(inputs)
    if len(specs) != len(values):
        raise ValueError(
            f"Layer {layer_name} expects {len(specs)} inputs, but it received {len(values)} input tensors. "
            f"Inputs received: {inputs}"
        )
    for spec, value in zip(specs, values):
        check_inputs(spec, value, layer_name)


# ---- The arguments of layers in their docstrings ---------------------------------------------------------------------


def arguments_told(layer: type[Layer]) -> dict[str, str]:
    """The text of each argument of a layer's constructor: from the docstrings of the class and of its bases."""
    found: dict[str, str] = {}
    for cls in layer.__mro__[:-1]:
        found = {**documented_arguments(vars(cls).get("__doc__")), **found}
    return {name: found[name] for name in inspect.signature(layer).parameters if name in found}
