"""Layers of ``tf.keras`` that Keras 2.3 does not have."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

import numpy as np

from tfmini.compat.tf_keras import attention, normalization
from tfmini.estimator.column_layers import StateManagerOfLayer, side_by_side
from tfmini.estimator.sequence_columns import joined_sequences
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.names import GraphKeys
from tfmini.graph.nest import flatten
from tfmini.ops.array.identity import cast
from tfmini.ops.array.shape import expand_dims
from tfmini.ops.math.matmul import matmul
from tfmini.ops.math.reductions import reduce_sum
from tfmini.ops.math.unary import cos, exp, square
from tfmini.ops.variables.scope import variable_scope
from tfmini.shapes import TensorShape


def apply(root: ModuleType) -> None:
    """Adds the layers to the copy."""
    layers = root.layers
    for function in (conv_kernel_mask, conv_connected_inputs, deconv_output_length, convert_data_format):
        setattr(root.utils.conv_utils, function.__name__, function)
    root.utils.conv_utils.normalize_data_format = root.backend.normalize_data_format
    layers._lower_triangular_mask = attention.lower_triangular_mask
    kernels = root.utils.kernelized_utils = ModuleType(f"{root.utils.__name__}.kernelized_utils")
    for kernel in (exact_gaussian_kernel, exact_laplacian_kernel, inner_product):
        setattr(kernels, kernel.__name__, kernel)
    for make in (
        normalization.layer_normalization,
        normalization.batch_normalization,
        _dense_features,
        attention.classes,
        _abstract_cell,
        _random_features,
    ):
        for cls in make(root):
            cls.__module__ = layers.__name__
            setattr(layers, cls.__name__, cls)
    normalization.place(root)
    for name in ("Conv2DTranspose", "Conv3DTranspose", "SeparableConv1D", "SeparableConv2D"):
        setattr(layers, name.replace("Conv", "Convolution"), getattr(layers, name))


def _dense_features(root: ModuleType) -> list[type]:
    base: Any = root.layers.Layer

    class DenseFeatures(base):
        """A dictionary of features as one tensor, by dense feature columns."""

        _second = False  # whether it is that of TensorFlow 2
        _scope: Any = None

        def __init__(
            self, feature_columns: Any, trainable: bool = True, name: str | None = None, **kwargs: Any
        ) -> None:
            super().__init__(name=name, trainable=trainable, **kwargs)
            self.feature_columns = feature_columns
            self._keys: list[str] = []
            self._manager = StateManagerOfLayer(self, trainable)

        def __call__(self, features: dict[str, Any], **kwargs: Any) -> Any:
            if not isinstance(features, dict):
                raise ValueError(f"{type(self).__name__} takes a dictionary of features, not {features!r}.")
            self._keys = sorted(features)
            return super().__call__([_as_tensor(features[key]) for key in self._keys], **kwargs)

        def call(self, inputs: Any) -> Any:
            features = dict(zip(self._keys, inputs if isinstance(inputs, list) else [inputs]))
            # Another layer of this name is an error in version 1; in version 2 it has variables of its own.
            place, is_known = self._scope if self._second else self.name, bool(self._trainable_weights)
            with variable_scope(place, default_name=self.name, reuse=is_known) as self._scope:
                found, made = self._found(features)
            known = [id(weight) for weight in self._trainable_weights]
            self._trainable_weights += [weight for weight in flatten(made) if id(weight) not in known]
            return found

        def _found(self, features: dict[str, Any]) -> tuple[Any, list[Any]]:
            found, _, made = side_by_side(
                features, self.feature_columns, [GraphKeys.GLOBAL_VARIABLES], self.trainable, self._manager
            )
            return found, list(made.values())

        def compute_output_shape(self, input_shape: Any) -> Any:
            return (None, None)

        def get_config(self) -> dict[str, Any]:
            """The arguments; the columns as they are, so that ``from_config`` takes them, and no JSON does."""
            return {**super().get_config(), "feature_columns": self.feature_columns}

    class SequenceFeatures(DenseFeatures):
        """A dictionary of features as the input of a recurrent layer, and the lengths of its sequences."""

        def _found(self, features: dict[str, Any]) -> tuple[Any, list[Any]]:
            *found, made = joined_sequences(features, self.feature_columns, None, self.trainable)
            return found, made

        def compute_output_shape(self, input_shape: Any) -> Any:
            return [(None, None, None), (None,)]

    return [DenseFeatures, SequenceFeatures]


def _as_tensor(value: Any) -> Any:
    is_array = isinstance(value, (list, tuple, np.ndarray, np.generic, str, bytes, int, float))
    return convert_to_tensor(value) if is_array else value


def _abstract_cell(root: ModuleType) -> list[type]:
    base: Any = root.layers.Layer

    class AbstractRNNCell(base):
        """What a cell of `RNN` has: ``call(input, states)``, ``state_size`` and ``output_size``."""

        @property
        def state_size(self) -> Any:
            """The sizes of the states."""
            raise NotImplementedError("Abstract method")

        @property
        def output_size(self) -> Any:
            """The size of the output."""
            raise NotImplementedError("Abstract method")

        def get_initial_state(self, inputs: Any = None, batch_size: Any = None, dtype: Any = None) -> Any:
            """Zeros."""
            from tfmini.ops.array.filling import zeros
            from tfmini.ops.array.shape import shape

            rows = shape(inputs)[0] if inputs is not None else batch_size
            sizes = self.state_size if isinstance(self.state_size, (list, tuple)) else [self.state_size]
            made = [zeros([rows, int(size)], dtype or root.backend.floatx()) for size in sizes]
            return made if isinstance(self.state_size, (list, tuple)) else made[0]

    return [AbstractRNNCell]


# ---- Kernels of vectors, and random features whose products are near them (``kernelized``) ---------------------------


def _check_features(output_dim: int, kernel: Any, scale: float | None) -> None:
    """ValueError for the arguments of random features that TensorFlow refuses."""
    if output_dim <= 0:
        raise ValueError(f"`output_dim` should be a positive integer. Given: {output_dim}.")
    if isinstance(kernel, str) and kernel.lower() not in ("gaussian", "laplacian"):
        raise ValueError(f"Unsupported kernel type: '{kernel}'. Supported kernel types: gaussian, laplacian.")
    if scale is not None and scale <= 0.0:
        raise ValueError(f"When provided, `scale` should be a positive float. Given: {scale}.")


def _is_kernel(kernel: Any, kind: str) -> bool:
    return isinstance(kernel, str) and kernel.lower() == kind


def _features(initializers: Any, kernel: Any) -> Any:
    """What draws the projections whose inner products are near a kernel."""
    if _is_kernel(kernel, "gaussian"):
        return initializers.RandomNormal(stddev=1.0)
    if _is_kernel(kernel, "laplacian"):  # whose transform is Cauchy's distribution
        return lambda shape, dtype=None: np.tan(np.pi * (np.random.uniform(size=shape) - 0.5)).astype(dtype)
    return kernel() if isinstance(kernel, type) else kernel


def _random_features(root: ModuleType) -> list[type]:
    base: Any = root.layers.Layer

    class RandomFourierFeatures(base):
        """Cosines of random projections, whose inner products are near a Gaussian or Laplacian kernel.

        Raises:
          ValueError: a size or scale that is not positive, or another kernel.
        """

        def __init__(
            self, output_dim: int, kernel_initializer: Any = "gaussian", scale: float | None = None,
            trainable: bool = False, name: str | None = None, **kwargs: Any,
        ) -> None:  # fmt: skip
            _check_features(output_dim, kernel_initializer, scale)
            super().__init__(trainable=trainable, name=name, **kwargs)
            self.output_dim, self.kernel_initializer, self.scale = output_dim, kernel_initializer, scale

        def build(self, input_shape: Any) -> None:
            sizes = TensorShape(input_shape)
            if sizes.ndims != 2:
                raise ValueError(f"The rank of the input tensor should be 2. Got {sizes.ndims} instead.")
            width = sizes.as_list()[1]
            if width is None:
                raise ValueError(
                    "The last dimension of the inputs to `RandomFourierFeatures` should be defined. Found `None`."
                )
            drawn, phases = _features(root.initializers, self.kernel_initializer), (0.0, 2 * np.pi)
            named = functools.partial(self.add_weight, dtype="float32")
            sizes_of_kernel = (width, self.output_dim)
            self.unscaled_kernel = named(
                "unscaled_random_features", sizes_of_kernel, initializer=drawn, trainable=False
            )
            drawn = root.initializers.RandomUniform(*phases)
            self.bias = named("random_features_bias", (self.output_dim,), initializer=drawn, trainable=False)
            usual = np.sqrt(width / 2) if _is_kernel(self.kernel_initializer, "gaussian") else 1.0
            scale = root.initializers.Constant(usual if self.scale is None else self.scale)
            self.kernel_scale = named("random_features_scale", (1,), initializer=scale, constraint="NonNeg")
            super().build(input_shape)

        def call(self, inputs: Any) -> Any:
            kernel = self.unscaled_kernel / self.kernel_scale
            return cos(matmul(cast(convert_to_tensor(inputs), "float32"), kernel) + self.bias)

        def compute_output_shape(self, input_shape: Any) -> TensorShape:
            sizes = TensorShape(input_shape).with_rank(2)
            if sizes.as_list()[1] is None:
                raise ValueError(f"The innermost dimension of input shape must be defined. Given: {input_shape}")
            return TensorShape([sizes.as_list()[0], self.output_dim])

        def get_config(self) -> dict[str, Any]:
            given = self.kernel_initializer
            kernel = given if isinstance(given, (str, type)) else root.initializers.serialize(given)
            own = {"output_dim": self.output_dim, "kernel_initializer": kernel, "scale": self.scale}
            return {**super().get_config(), **own}

    return [RandomFourierFeatures]


def _rows(vectors: Any) -> Any:
    """Vectors as the rows of a matrix; raises ValueError for more than two dimensions."""
    vectors = convert_to_tensor(vectors)
    if (vectors.shape.ndims or 0) not in (1, 2):
        raise ValueError(f"Vectors have one or two dimensions, not those of {vectors.shape}.")
    return vectors if vectors.shape.ndims == 2 else expand_dims(vectors, 0)


def exact_gaussian_kernel(x: Any, y: Any, stddev: float) -> Any:
    """exp(-|x - y|² / (2 stddev²)) for all rows of two matrices: ``[rows of x, rows of y]``."""
    apart = expand_dims(_rows(x), 1) - expand_dims(_rows(y), 0)
    return exp(-reduce_sum(square(apart), 2) / (2 * stddev * stddev))


def exact_laplacian_kernel(x: Any, y: Any, stddev: float) -> Any:
    """exp(-|x - y|₁ / stddev) for all rows of two matrices: ``[rows of x, rows of y]``."""
    return exp(-reduce_sum(abs(expand_dims(_rows(x), 1) - expand_dims(_rows(y), 0)), 2) / stddev)


def inner_product(u: Any, v: Any) -> Any:
    """The inner products of all rows of two matrices: ``[rows of u, rows of v]``."""
    return matmul(_rows(u), _rows(v), transpose_b=True)


# ---- Convolutions (``tensorflow.python.keras.utils.conv_utils``) -----------------------------------------------------

_FORMATS = {"channels_last": "N{}C", "channels_first": "NC{}"}


def convert_data_format(data_format: str, ndim: int) -> str:
    """The data format of an op (``"NHWC"``) for that of a layer (``"channels_last"``) on inputs of a rank."""
    if data_format not in _FORMATS:
        raise ValueError(f"Invalid data_format: {data_format}")
    if ndim not in (3, 4, 5):
        raise ValueError(f"Input rank not supported: {ndim}")
    return _FORMATS[data_format].format("DHW"[5 - ndim :])


def deconv_output_length(
    input_length: int | None, filter_size: int, padding: str, output_padding: int | None = None, stride: int = 0,
    dilation: int = 1,
) -> int | None:  # fmt: skip
    """The length of a transposed convolution's output; without ``output_padding`` the usual one."""
    if input_length is None:
        return None
    width = filter_size + (filter_size - 1) * (dilation - 1)
    if output_padding is not None:
        cut = {"same": width // 2, "valid": 0, "full": width - 1}[padding]
        return (input_length - 1) * stride + width - 2 * cut + output_padding
    more = {"same": 0, "valid": max(width - stride, 0), "full": 2 - stride - width}[padding]
    return input_length * stride + more


def conv_connected_inputs(
    input_shape: Any, kernel_shape: Any, output_position: Any, strides: Any, padding: str
) -> list[range]:
    """For each axis the places of the input from which a place of a convolution's output is computed."""
    found = []
    for size, width, place, stride in zip(input_shape, kernel_shape, output_position, strides):
        start = place * stride - (0 if padding == "valid" else width // 2)
        found.append(range(max(start, 0), min(start + width, size)))
    return found


def conv_kernel_mask(input_shape: Any, kernel_shape: Any, strides: Any, padding: str) -> np.ndarray:
    """Which places of a convolution's input and output are joined by a weight: ``[*input, *output]``, bool.

    Args:
      input_shape: the sizes of the input without batch and channels.
      kernel_shape, strides: of each axis, or a number for all.

    Raises:
      NotImplementedError: another padding than "same" and "valid".
      ValueError: other numbers of axes.
    """
    if padding not in ("same", "valid"):
        raise NotImplementedError(f'Padding type {padding} not supported. Only "valid" and "same" are implemented.')
    rank = len(input_shape)
    widths, steps = ((x,) * rank if isinstance(x, int) else tuple(x) for x in (kernel_shape, strides))
    if len(widths) != rank or len(steps) != rank:
        raise ValueError(
            "Number of strides, input and kernel dimensions must all match. Received: "
            f"{len(steps)}, {rank}, {len(widths)}."
        )
    mask: Any = np.ones((), bool)
    for axis, (size, width, step) in enumerate(zip(input_shape, widths, steps)):
        count = -(-(size if padding == "same" or not size else max(size - width + 1, 0)) // step)
        start = np.arange(count) * step - (0 if padding == "valid" else width // 2)
        places = np.arange(size)[:, None]
        one = (places >= start) & (places < start + width)
        shape = np.ones(2 * rank, int)
        shape[[axis, rank + axis]] = size, count
        mask = mask & one.reshape(shape)
    return np.asarray(mask)
