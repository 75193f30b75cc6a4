"""Dense, dropout and flatten layers (``tf.layers``)."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from tfmini.core_types import GraphTensor, ShapeLike, TensorLike
from tfmini.export import documented_arguments, export, export_names, with_arguments
from tfmini.graph.operation import Tensor
from tfmini.layers.base import InputSpec, Layer, activation_of, arguments_told, to_snake_case
from tfmini.ops.array.identity import identity
from tfmini.ops.array.joining import stack
from tfmini.ops.array.layout import transpose
from tfmini.ops.array.shape import reshape
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.flow.cond import smart_cond
from tfmini.ops.math.contraction import tensordot
from tfmini.ops.math.matmul import matmul
from tfmini.ops.nn.batch_norm import bias_add
from tfmini.ops.nn.normalization import dropout as drop_out
from tfmini.ops.variables.initializers import Zeros
from tfmini.shapes import TensorShape

# ---- Base class of dense layers and convolutions: a kernel, a bias and an activation -------------------------------


class KernelLayer(Layer):
    """Base class of layers ``activation(kernel * inputs + bias)``; subclasses define the product ``*``.

    Args:
      activation: a function of a tensor, such as `relu`, its name in Keras, or None.
      use_bias: whether to add a bias, a variable with one element per output channel.
      kernel_initializer: default: the variable scope's, else Glorot uniform. Initializers, regularizers
        and constraints may be names of Keras, such as "zeros" and "l2", too.
      bias_initializer: default: zeros.
      kernel_regularizer, bias_regularizer, activity_regularizer: functions from a tensor to a loss.
      kernel_constraint, bias_constraint: functions that an optimizer applies after each update.
      trainable: whether optimizers update the variables.
      name: of the layer and of its variable scope; default: the class name in snake case, made unique.
    """

    def __init__(
        self,
        activation: Callable[..., Any] | None,
        use_bias: bool,
        kernel_initializer: Callable[..., Any] | None,
        bias_initializer: Callable[..., Any] | None,
        kernel_regularizer: Callable[..., Any] | None,
        bias_regularizer: Callable[..., Any] | None,
        activity_regularizer: Any,
        kernel_constraint: Callable[..., Any] | None,
        bias_constraint: Callable[..., Any] | None,
        trainable: bool,
        name: str | None,
        **kwargs: Any,
    ) -> None:
        super().__init__(trainable, name, activity_regularizer=activity_regularizer, **kwargs)
        self.activation, self.use_bias = activation_of(activation), use_bias
        self.kernel_initializer, self.bias_initializer = kernel_initializer, bias_initializer
        self.kernel_regularizer, self.bias_regularizer = kernel_regularizer, bias_regularizer
        self.kernel_constraint, self.bias_constraint = kernel_constraint, bias_constraint

    def _build_kernel(self, shape: Sequence[int]) -> None:
        self.kernel = self.add_weight(
            "kernel",
            shape,
            initializer=self.kernel_initializer,
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )

    def _build_bias(self, length: int) -> None:
        self.bias = None
        if self.use_bias:
            self.bias = self.add_weight(
                "bias",
                [length],
                initializer=self.bias_initializer,
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
            )

    def _finished(self, outputs: Tensor, data_format: str | None = None) -> Any:
        """Applies bias and activation."""
        if self.bias is not None:
            outputs = bias_add(outputs, self.bias, data_format, name="BiasAdd")
        if self.activation is not None:
            outputs = self.activation(outputs)
        return outputs


# ---- functional ----------------------------------------
# Functions from a description of what is their own: layers from their classes, kin from the arguments that they share.
# ``tf.layers.conv2d(x, 8, 3)`` makes a `Conv2D` and applies it, so its arguments are those of the class. The losses,
# the metrics and the layers of ``tf.contrib`` share blocks of arguments, which `sharing` adds to each function.
#
# `inspect.signature` and ``help`` show TensorFlow's arguments in TensorFlow's order, and so do the generated stubs of
# the public namespaces. Inside tfmini, type checkers see only the result of what `sharing` and `without` make: a
# `ParamSpec` can add arguments in front, but not at the end.

P = ParamSpec("P")
R = TypeVar("R")
_EITHER = inspect.Parameter.POSITIONAL_OR_KEYWORD


def as_function(
    layer: Callable[P, Layer], has_weights: bool = True, at_call: Sequence[str] = (), order: str = "", **defaults: Any
) -> Callable[Concatenate[Any, P], Any]:
    """A function ``f(inputs, *arguments of the layer, reuse=None)`` that makes and applies a layer.

    The variables are in the scope ``name``; a second call with that name and ``reuse`` shares them.

    Args:
      layer: a class of layers.
      has_weights: whether the layer has variables; otherwise the function has no argument ``reuse``.
      at_call: the arguments of the layer's call besides the inputs; ``defaults`` has their defaults.
      order: the names of the last arguments, in their order; by default that of the class, then ``reuse``.
      **defaults: the function's defaults that are written differently than the class's.
    """
    own = {p.name: p for p in inspect.signature(layer).parameters.values() if p.kind is _EITHER}
    for name in ("inputs", *at_call, *(["reuse"] if has_weights else [])):
        default = inspect.Parameter.empty if name == "inputs" else None
        own[name] = inspect.Parameter(name, _EITHER, default=default, annotation="Any")
    last = order.split()
    names = ["inputs", *(name for name in own if name not in ("inputs", *last)), *last]
    parameters = [own[name].replace(default=defaults.get(name, own[name].default)) for name in names]
    signature = inspect.Signature(parameters, return_annotation="Any")

    def function(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        given = bound.arguments
        inputs, for_call = given.pop("inputs"), {name: given.pop(name, defaults[name]) for name in at_call}
        if has_weights:
            given.update(_scope=given.get("name"), _reuse=given.pop("reuse", None))
        return layer(**given)(inputs, **for_call)  # type: ignore[call-arg]

    function.__name__ = function.__qualname__ = name = to_snake_case(layer.__name__)
    function.__module__ = layer.__module__
    function.__doc__ = _as_function_doc(layer, name, parameters)
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


_OF_CALLS = {
    "inputs": 'a tensor, [batch, ..., channels]; [batch, channels, ...] for "channels_first".',
    "training": "a bool or a bool tensor: whether to do what training does.",
    "reuse": "True: share the variables of an earlier layer of that ``name``; None: as the variable scope says.",
}


def _as_function_doc(layer: Any, name: str, parameters: Sequence[inspect.Parameter]) -> str:
    """The docstring of a function that makes and applies a layer: what the layer does, and all arguments."""
    does = inspect.cleandoc(layer.__doc__).partition("\n\n")[0]
    made = f"Makes a layer `{layer.__name__}` and applies it to ``inputs`` (``tf.layers.{name}``)."
    texts = {**arguments_told(layer), **_OF_CALLS}
    told = {p.name: texts[p.name] for p in parameters if p.name in texts}
    return with_arguments(f"{made}\n\nThe layer: {does}\n\nReturns:\n  The outputs, a tensor.\n", told)


def without(function: Callable[..., R], name: str, **renamed: inspect.Parameter) -> Callable[..., R]:
    """The same function without the argument ``name``, which keeps its default.

    Args:
      **renamed: the former name of an argument -> the parameter in its place.
    """
    parameters = [p for p in inspect.signature(function).parameters.values() if p.name != name]
    signature = inspect.Signature([renamed.get(p.name, p) for p in parameters])
    former = {new.name: old for old, new in renamed.items()}

    @functools.wraps(function)
    def reduced(*args: Any, **kwargs: Any) -> R:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        more = bound.arguments.pop("kwargs", {})
        return function(**{former.get(name, name): value for name, value in bound.arguments.items()}, **more)

    reduced.__signature__ = signature  # type: ignore[attr-defined]
    return reduced


def sharing(
    shared: Callable[..., Any], before: Mapping[str, str] | None = None, of: Callable[..., Any] | None = None
) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """A decorator that adds the arguments of a class to those of a function.

    The function's first parameter, ``given``, gets an instance of the class. The shared arguments come after the
    function's own, all with their defaults. Keyword-only ones of the function come after them.

    Args:
      shared: the class, or another function that makes ``given`` of the shared arguments.
      before: a keyword-only argument -> the shared one before which it comes instead.
      of: has the name, the docstring and the own arguments if the decorated function takes any; it has no ``given``.
    """
    theirs = list(inspect.signature(shared).parameters.values())

    def decorate(own: Callable[..., R]) -> Callable[..., R]:
        signature = inspect.signature(of or own)
        mine = list(signature.parameters.values())[0 if of else 1 :]
        parameters = [*(p for p in mine if p.kind is _EITHER), *theirs]
        for p in (p for p in mine if p.kind is p.KEYWORD_ONLY):
            names = [*(other.name for other in parameters), None]
            parameters.insert(names.index((before or {}).get(p.name)), p.replace(kind=_EITHER))
        signature = signature.replace(parameters=parameters)

        @functools.wraps(of or own)
        def function(*args: Any, **kwargs: Any) -> R:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            arguments = bound.arguments
            given = shared(**{p.name: arguments.pop(p.name) for p in theirs})
            return own(given, **arguments)

        function.__signature__ = signature  # type: ignore[attr-defined]
        texts = {**documented_arguments(shared.__doc__), **documented_arguments(function.__doc__)}
        told = {name: texts[name] for name in signature.parameters if name in texts}
        function.__doc__ = with_arguments(function.__doc__ or "", told)
        return function

    return decorate


# ---- The layers, and `flatten` -------------------------------------------------------------------------------------


@export("tf.layers.Dense")
class Dense(KernelLayer):
    """``activation(inputs @ kernel + bias)`` over the last axis (``tf.layers.Dense``).

    Args:
      units: the length of the last axis of the result.
      The others are those of `KernelLayer`.
    """

    def __init__(
        self,
        units: int,
        activation: Callable[..., Any] | None = None,
        use_bias: bool = True,
        kernel_initializer: Callable[..., Any] | None = None,
        bias_initializer: Callable[..., Any] | None = Zeros(),  # noqa: B008 - initializers are stateless
        kernel_regularizer: Callable[..., Any] | None = None,
        bias_regularizer: Callable[..., Any] | None = None,
        activity_regularizer: Any = None,
        kernel_constraint: Callable[..., Any] | None = None,
        bias_constraint: Callable[..., Any] | None = None,
        trainable: bool = True,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            activation, use_bias, kernel_initializer, bias_initializer, kernel_regularizer, bias_regularizer,
            activity_regularizer, kernel_constraint, bias_constraint, trainable, name, **kwargs,
        )  # fmt: skip
        self.units = int(units)
        self.input_spec = InputSpec(min_ndim=2)

    def build(self, input_shape: TensorShape) -> None:
        if not self._dtype.is_floating and not self._dtype.is_complex:  # type: ignore[union-attr]
            raise TypeError(f"Unable to build `Dense` layer with non-floating point dtype {self._dtype}")
        width = input_shape.as_list()[-1]
        if width is None:
            raise ValueError("The last dimension of the inputs to `Dense` should be defined. Found `None`.")
        self.input_spec = InputSpec(min_ndim=2, axes={-1: width})
        self._build_kernel([width, self.units])
        self._build_bias(self.units)

    def call(self, inputs: Any) -> Any:
        rank = inputs.shape.ndims
        if rank > 2:
            outputs = tensordot(inputs, self.kernel, [[rank - 1], [0]], name="Tensordot")
            outputs.set_shape(self.compute_output_shape(inputs.shape))
        else:
            outputs = matmul(inputs, self.kernel)
        return self._finished(outputs)

    def compute_output_shape(self, input_shape: ShapeLike) -> TensorShape:
        shape = TensorShape(input_shape).with_rank_at_least(2).as_list()
        if shape[-1] is None:
            raise ValueError(f"The innermost dimension of input_shape must be defined, but saw: {input_shape}")
        return TensorShape([*shape[:-1], self.units])


@export("tf.layers.Dropout")
class Dropout(Layer):
    """Sets random elements to zero in training and scales up the others (``tf.layers.Dropout``).

    Args:
      rate: the fraction of elements to set to zero.
      noise_shape: the shape of the random mask; None in an axis means the input's length.
      seed: seed of the mask.
    """

    def __init__(
        self,
        rate: TensorLike = 0.5,
        noise_shape: ShapeLike | GraphTensor | None = None,
        seed: int | None = None,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(True, name, **kwargs)
        self.rate, self.noise_shape, self.seed = rate, noise_shape, seed

    def call(self, inputs: TensorLike, training: TensorLike = False) -> Any:
        """Applies dropout if ``training`` (a bool or bool tensor); otherwise the identity."""

        def dropped() -> Any:
            return drop_out(inputs, noise_shape=self._noise_shape(inputs), seed=self.seed, rate=self.rate)

        return smart_cond(training, dropped, lambda: identity(inputs))

    def _noise_shape(self, inputs: TensorLike) -> Any:
        if self.noise_shape is None or not isinstance(self.noise_shape, (list, tuple)):
            return self.noise_shape
        sizes = shape_of(inputs)
        return stack([sizes[i] if size is None else size for i, size in enumerate(self.noise_shape)])

    def compute_output_shape(self, input_shape: ShapeLike) -> TensorShape:
        return TensorShape(input_shape)


@export("tf.layers.Flatten")
class Flatten(Layer):
    """Flattens all axes but the first (``tf.layers.Flatten``).

    Args:
      data_format: "channels_first" moves the channels of the inputs to the end first.
    """

    def __init__(self, data_format: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.data_format = data_format or "channels_last"
        self.input_spec = InputSpec(min_ndim=1)

    def call(self, inputs: Any) -> Any:
        rank = inputs.shape.ndims
        if self.data_format == "channels_first" and rank is not None and rank > 2:
            inputs = transpose(inputs, [0, *range(2, rank), 1])  # to channels_last
        outputs = reshape(inputs, [inputs.shape[0].value or shape_of(inputs)[0], -1])
        outputs.set_shape(self.compute_output_shape(inputs.shape))
        return outputs

    def compute_output_shape(self, input_shape: ShapeLike) -> TensorShape:
        sizes = TensorShape(input_shape).as_list()
        return TensorShape([sizes[0], None if None in sizes[1:] else math.prod(sizes[1:])])


dense = as_function(Dense)
dropout = as_function(Dropout, has_weights=False, at_call=["training"], order="training name", training=False)


@export("tf.layers.flatten")
def flatten(inputs: TensorLike, name: str | None = None, data_format: str = "channels_last") -> Any:
    """Applies a `Flatten` layer (``tf.layers.flatten``).

    Args:
      inputs: a tensor with at least one axis.
      name: of the layer and of the op's scope.
      data_format: "channels_first" moves the channels of the inputs to the end first.

    Returns:
      [batch, the product of the other sizes].
    """
    return Flatten(data_format, name=name)(inputs)


export_names("tf.layers", "dense dropout")
