"""Layers of channels (``tf.contrib.layers``): one kernel for all, norms by others; volumes, sequences, old names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tfmini.core_types import ShapeLike, TensorLike
from tfmini.export import export, export_names
from tfmini.graph import raw_ops
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import add_to_collections, count_ops
from tfmini.layers.base import InputSpec, Layer
from tfmini.layers.contrib.layers import Weighted
from tfmini.layers.contrib.model_variables import add_arg_scope, collect_named_outputs
from tfmini.layers.contrib.regularizers import xavier_initializer
from tfmini.layers.convolutional import around, deconvolved_length, normalized_tuple, within
from tfmini.layers.core import as_function, sharing
from tfmini.ops.array.joining import stack
from tfmini.ops.array.layout import transpose
from tfmini.ops.array.shape import reshape
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.custom_gradient import custom_gradient
from tfmini.ops.math.matmul import matmul
from tfmini.ops.nn import activation
from tfmini.ops.nn.batch_norm import bias_add
from tfmini.ops.nn.convolution import conv3d_transpose as deconvolve
from tfmini.ops.nn.convolution import depthwise_conv2d
from tfmini.ops.variables.initializers import Zeros
from tfmini.ops.variables.scope import VariableScope, get_variable, variable_scope
from tfmini.shapes import TensorShape

Ints = int | Sequence[int]


@export(
    "tf.contrib.layers.convolution2d_in_plane", "tf.contrib.layers.conv2d_in_plane",
    "tf.contrib.slim.convolution2d_in_plane", "tf.contrib.slim.layers.convolution2d_in_plane",
    "tf.contrib.slim.conv2d_in_plane", "tf.contrib.slim.layers.conv2d_in_plane",
)  # fmt: skip
@add_arg_scope
@sharing(Weighted)
def convolution2d_in_plane(
    given: Weighted, inputs: TensorLike, kernel_size: Ints, stride: Ints = 1, padding: str = "SAME"
) -> Any:
    """The same convolution of each channel by itself (``tf.contrib.layers.conv2d_in_plane``).

    The other arguments are those of `Weighted`.

    Args:
      inputs: images, [batch, rows, columns, channels].
      kernel_size, stride: one int, or one per spatial axis.
      padding: SAME or VALID.
    """
    with given.opened("ConvInPlane", inputs) as opened:
        inputs = convert_to_tensor(inputs)
        channels: Any = inputs.shape.as_list()[-1]
        window, steps = normalized_tuple(kernel_size, 2, "kernel_size"), normalized_tuple(stride, 2, "stride")
        weights = given.weights(inputs, [*window, 1, 1])
        outputs = depthwise_conv2d(inputs, raw_ops.Tile(weights, [1, 1, channels, 1]), [1, *steps, 1], padding.upper())
        return given.finished(outputs, channels, opened)


conv2d_in_plane = convolution2d_in_plane


@export(
    "tf.contrib.layers.convolution3d_transpose", "tf.contrib.layers.conv3d_transpose",
    "tf.contrib.slim.convolution3d_transpose", "tf.contrib.slim.layers.convolution3d_transpose",
    "tf.contrib.slim.conv3d_transpose", "tf.contrib.slim.layers.conv3d_transpose",
)  # fmt: skip
@add_arg_scope
@sharing(Weighted, before={"data_format": "activation_fn"})
def convolution3d_transpose(
    given: Weighted, inputs: TensorLike, num_outputs: int, kernel_size: Ints, stride: Ints = 1,
    padding: str = "SAME", *, data_format: str = "NDHWC",
) -> Any:  # fmt: skip
    """A transposed convolution of volumes (``tf.contrib.layers.conv3d_transpose``).

    The other arguments are those of `Weighted`.

    Args:
      inputs: volumes, [batch, depth, rows, columns, channels], or channels second for NCDHW.
      num_outputs: the number of output channels.
      kernel_size, stride: one int, or one per spatial axis.
      padding: SAME or VALID.
      data_format: NDHWC or NCDHW.

    Raises:
      ValueError: for another format.
    """
    if data_format not in ("NDHWC", "NCDHW"):
        raise ValueError("data_format has to be either NCDHW or NDHWC.")
    with given.opened("Conv3d_transpose", inputs) as opened:
        inputs = convert_to_tensor(inputs)
        window, steps = normalized_tuple(kernel_size, 3, "kernel_size"), normalized_tuple(stride, 3, "stride")
        sizes = inputs.shape.as_list()
        weights = given.weights(inputs, [*window, num_outputs, sizes[data_format.index("C")]])

        def lengths(known: Any) -> list[Any]:
            batch, *space = (known[i] for i in (0, *within(range(5), data_format)))
            made = [deconvolved_length(*each, padding.lower()) for each in zip(space, window, steps)]
            return around(made, data_format, batch, num_outputs)

        wanted = stack(lengths(shape_of(inputs)))
        outputs = deconvolve(inputs, weights, wanted, around(steps, data_format), padding.upper(), data_format)
        outputs.set_shape(lengths(sizes))
        return given.finished(outputs, num_outputs, opened, data_format)


conv3d_transpose = convolution3d_transpose

# ---- images as sequences -------------------------------------------------------------------------------------------


@export(
    "tf.contrib.layers.images_to_sequence",
    "tf.contrib.slim.images_to_sequence",
    "tf.contrib.slim.layers.images_to_sequence",
)
@add_arg_scope
def images_to_sequence(
    inputs: TensorLike, data_format: str = "NHWC", outputs_collections: str | Sequence[str] | None = None,
    scope: str | None = None,
) -> Any:  # fmt: skip
    """The columns of images as steps of sequences (``tf.contrib.layers.images_to_sequence``).

    Args:
      inputs: images, [batch, rows, columns, channels], or channels second for NCHW.

    Returns:
      [columns, batch * rows, channels].

    Raises:
      ValueError: for another format.
    """
    if data_format not in ("NCHW", "NHWC"):
        raise ValueError("data_format has to be either NCHW or NHWC.")
    with variable_scope(scope, "ImagesToSequence", [inputs]) as opened:
        images = convert_to_tensor(inputs)
        images = transpose(images, [0, 2, 3, 1]) if data_format == "NCHW" else images
        depth, sizes = images.shape.as_list()[-1], shape_of(images)
        columns_first = transpose(images, [2, 0, 1, 3])
        outputs = reshape(columns_first, [-1, sizes[0] * sizes[1], sizes[3] if depth is None else depth])
        known: list[Any] = images.shape.as_list()
        rows = None if None in known[:2] else known[0] * known[1]
        outputs.set_shape([known[2], rows, depth])
        return collect_named_outputs(outputs_collections, opened.original_name_scope[:-1], outputs)


@export(
    "tf.contrib.layers.sequence_to_images",
    "tf.contrib.slim.sequence_to_images",
    "tf.contrib.slim.layers.sequence_to_images",
)
@add_arg_scope
def sequence_to_images(
    inputs: TensorLike, height: int, output_data_format: str = "channels_last",
    outputs_collections: str | Sequence[str] | None = None, scope: str | None = None,
) -> Any:  # fmt: skip
    """The inverse of `images_to_sequence` (``tf.contrib.layers.sequence_to_images``).

    Args:
      inputs: [columns, batch * rows, channels].
      height: the number of rows.
      output_data_format: ``channels_last`` or ``channels_first``.
    """
    with variable_scope(scope, "SequenceToImages", [inputs]) as opened:
        sequence = convert_to_tensor(inputs)
        width, batches, depth = sequence.shape.as_list()
        images = -1 if batches is None else batches // height
        columns = shape_of(sequence)[0] if width is None else width
        order = [1, 3, 2, 0] if output_data_format == "channels_first" else [1, 2, 0, 3]
        outputs = transpose(reshape(sequence, [columns, images, height, depth]), order)
        return collect_named_outputs(outputs_collections, opened.original_name_scope[:-1], outputs)


# ---- the first fully connected layers ------------------------------------------------------------------------------


@export(
    "tf.contrib.layers.legacy_fully_connected",
    "tf.contrib.slim.legacy_fully_connected",
    "tf.contrib.slim.layers.legacy_fully_connected",
)
def legacy_fully_connected(
    x: TensorLike, num_output_units: int, activation_fn: Callable[..., Any] | None = None,
    weight_init: Any = xavier_initializer(),  # noqa: B008 - initializers are stateless
    bias_init: Any = Zeros(),  # noqa: B008
    name: str | VariableScope | None = None, weight_collections: Sequence[str] = ("weights",),
    bias_collections: Sequence[str] = ("biases",), output_collections: Sequence[str] = ("activations",),
    trainable: bool = True, weight_regularizer: Callable[..., Any] | None = None,
    bias_regularizer: Callable[..., Any] | None = None,
) -> Any:  # fmt: skip
    """``activation_fn(x @ weights + bias)`` over the last axis (``tf.contrib.layers.legacy_fully_connected``).

    Args:
      x: a float tensor with at least two axes; the last one is static.
      num_output_units: the length of the last axis of the result.
      activation_fn: a function of a tensor, or None.
      weight_init, bias_init: initializers; None for the bias: no bias.
      name: scope of the variables.
      weight_collections, bias_collections, output_collections: the collections of each.
      trainable: whether optimizers update the variables.
      weight_regularizer, bias_regularizer: functions from a variable to a loss, or None.

    Raises:
      ValueError: for fewer axes, or a last one that is not known.
    """
    with variable_scope(name, "fully_connected", [x]):
        x = convert_to_tensor(x)
        sizes = x.shape.with_rank_at_least(2).as_list()
        if sizes[-1] is None:
            raise ValueError(f"last dimension of x must be known but is None: {x}")
        kind = x.dtype.base_dtype
        weights = get_variable(
            "weights", [sizes[-1], num_output_units], kind, weight_init, weight_regularizer, trainable,
            list(_with_variables(weight_collections)),
        )  # fmt: skip
        flat = x if len(sizes) == 2 else reshape(x, [-1, sizes[-1]])
        made = matmul(flat, weights)
        if bias_init is not None:
            made = bias_add(made, get_variable(
                "bias", [num_output_units], kind, bias_init, bias_regularizer, trainable,
                list(_with_variables(bias_collections)),
            ))  # fmt: skip
        if len(sizes) > 2:
            made = reshape(made, raw_ops.ConcatV2([shape_of(x)[:-1], [num_output_units]], 0))
            made.set_shape([*sizes[:-1], num_output_units])
            count_ops(-4)  # 1.15 makes fewer for the shape: the default seeds of later ops count them
        made = made if activation_fn is None else activation_fn(made)
        add_to_collections(output_collections, made)
        return made


def _with_variables(collections: Sequence[str]) -> set[str]:
    return {"variables", *(collections or ())}


def _legacy(name: str, activation_fn: Callable[..., Any] | None) -> Callable[..., Any]:
    def function(x: TensorLike, num_output_units: int, **kwargs: Any) -> Any:
        return legacy_fully_connected(x, num_output_units, **{"activation_fn": activation_fn, **kwargs})

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`legacy_fully_connected` with another activation (``tf.contrib.layers.{name}``)."
    return function


legacy_linear = _legacy("legacy_linear", None)
legacy_relu = _legacy("legacy_relu", activation.relu)

# ---- normalization by other channels -------------------------------------------------------------------------------


@custom_gradient
def _at_least(inputs: Tensor, bound: Tensor) -> Any:
    """The greater one; a gradient passes if it leads away from the bound."""

    def gradient(upstream: Tensor) -> list[Any]:
        passes = raw_ops.LogicalOr(raw_ops.GreaterEqual(inputs, bound), raw_ops.Less(upstream, 0.0))
        return [raw_ops.Mul(upstream, raw_ops.Cast(passes, DstT=upstream.dtype)), None]

    return raw_ops.Maximum(inputs, bound), gradient


@export("tf.contrib.layers.GDN", "tf.contrib.slim.GDN", "tf.contrib.slim.layers.GDN")
class GDN(Layer):
    """Divides each channel by a norm of all channels, with learned weights (``tf.contrib.layers.GDN``).

    ``y[i] = x[i] / sqrt(beta[i] + sum_j gamma[j, i] * x[j] ** 2)``.

    Args:
      inverse: whether it multiplies.
      beta_min: what ``beta`` is at least.
      gamma_init: the diagonal of ``gamma`` at first.
      reparam_offset: what keeps the variables, roots of both, away from 0.
      data_format: ``channels_last`` or ``channels_first``.
      activity_regularizer: a function from the result to a loss.
      trainable: whether optimizers update the variables.
      name: of the layer.
    """

    def __init__(
        self,
        inverse: bool = False,
        beta_min: float = 1e-6,
        gamma_init: float = 0.1,
        reparam_offset: float = 2**-18,
        data_format: str = "channels_last",
        activity_regularizer: Any = None,
        trainable: bool = True,
        name: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(trainable, name, activity_regularizer=activity_regularizer, **kwargs)
        self.inverse, self.data_format = inverse, data_format
        self._beta_min, self._gamma_init, self._offset = beta_min, gamma_init, reparam_offset
        self.input_spec = InputSpec(min_ndim=3)

    def _axis(self) -> int:
        if self.data_format not in ("channels_first", "channels_last"):
            raise ValueError(f"Unknown data_format: '{self.data_format}'.")
        return 1 if self.data_format == "channels_first" else -1

    def build(self, input_shape: ShapeLike) -> None:
        channels = TensorShape(input_shape).as_list()[self._axis()]
        if channels is None:
            raise ValueError("The channel dimension of the inputs to `GDN` must be defined.")
        self.input_spec = InputSpec(min_ndim=3, axes={self._axis(): channels})
        pedestal = self._offset**2

        def start(of: Callable[[Any, Any], Any]) -> Callable[..., Any]:
            return lambda shape, dtype=None, **_: raw_ops.Sqrt(raw_ops.Add(of(shape, dtype), pedestal))

        ones = start(lambda shape, dtype: raw_ops.Fill(shape, raw_ops.Cast(1.0, DstT=dtype)))
        diagonal = start(
            lambda shape, dtype: raw_ops.Diag(raw_ops.Fill(shape[:1], raw_ops.Cast(self._gamma_init, DstT=dtype)))
        )
        beta = self.add_weight("reparam_beta", [channels], initializer=ones)
        gamma = self.add_weight("reparam_gamma", [channels, channels], initializer=diagonal)
        self.beta = self._squared(beta, self._beta_min)
        self.gamma = self._squared(gamma, 0.0)
        super().build(TensorShape(input_shape))

    def _squared(self, variable: Any, least: float) -> Any:
        pedestal = self._offset**2
        bound = convert_to_tensor((least + pedestal) ** 0.5, variable.dtype.base_dtype)
        return raw_ops.Sub(raw_ops.Square(_at_least(convert_to_tensor(variable), bound)), pedestal)

    def call(self, inputs: TensorLike) -> Any:
        inputs = convert_to_tensor(inputs)
        rank = inputs.shape.ndims or 0
        channels_first = self.data_format == "channels_first"
        squares = raw_ops.Square(transpose(inputs, [0, *range(2, rank), 1]) if channels_first else inputs)
        channels = int(self.gamma.shape.as_list()[0])
        norm = reshape(matmul(reshape(squares, [-1, channels]), self.gamma), shape_of(squares)) + self.beta
        norm = transpose(norm, [0, rank - 1, *range(1, rank - 1)]) if channels_first else norm
        outputs = raw_ops.Mul(inputs, raw_ops.Sqrt(norm) if self.inverse else raw_ops.Rsqrt(norm))
        outputs.set_shape(inputs.shape)
        if rank == 4:
            count_ops(-9)  # 1.15 makes a convolution: the default seeds of later ops count its ops
        return outputs

    def compute_output_shape(self, input_shape: ShapeLike) -> TensorShape:
        return TensorShape(input_shape)


gdn = as_function(GDN)
export_names("tf.contrib.layers tf.contrib.slim", "gdn legacy_linear legacy_relu")
