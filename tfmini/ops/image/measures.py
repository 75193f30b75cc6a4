"""``tf.image``: YIQ and YUV colours, edges, and measures of the difference of two images."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfmini.export import export
from tfmini.graph.families import Tensor, convert_to_tensor, name_scope
from tfmini.ops.array.filling import zeros
from tfmini.ops.array.joining import concat, stack
from tfmini.ops.array.layout import tile
from tfmini.ops.array.padding import pad
from tfmini.ops.array.shape import expand_dims, reshape
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.image.colours import convert_image_dtype
from tfmini.ops.math.contraction import tensordot
from tfmini.ops.math.elementwise import add, divide, multiply, squared_difference, subtract
from tfmini.ops.math.reduce_functions import reduce_mean, reduce_sum
from tfmini.ops.math.unary import abs_op, log
from tfmini.ops.nn.convolution import depthwise_conv2d_native

# Columns: the contributions of red, green and blue.
_TO_YIQ = np.array([[0.299, 0.59590059, 0.2115], [0.587, -0.27455667, -0.52273617], [0.114, -0.32134392, 0.31119955]])
_FROM_YIQ = np.array([[1, 1, 1], [0.95598634, -0.27201283, -1.10674021], [0.6208248, -0.64720424, 1.70423049]])
_TO_YUV = np.array(
    [[0.299, -0.14714119, 0.61497538], [0.587, -0.28886916, -0.51496512], [0.114, 0.43601035, -0.10001026]]
)
_FROM_YUV = np.array([[1, 1, 1], [0, -0.394642334, 2.03206185], [1.13988303, -0.58062185, 0]])


def _recoloured(images: Any, matrix: Any) -> Tensor:
    images = convert_to_tensor(images, name="images")
    return tensordot(images, matrix.astype(images.dtype.as_numpy_dtype), axes=[[images.shape.ndims - 1], [0]])


@export("tf.image.rgb_to_yiq")
def rgb_to_yiq(images: Any) -> Tensor:
    """Images in YIQ, channels last, values in [0, 1] (``tf.image.rgb_to_yiq``)."""
    return _recoloured(images, _TO_YIQ)


@export("tf.image.yiq_to_rgb")
def yiq_to_rgb(images: Any) -> Tensor:
    """The inverse of `rgb_to_yiq` (``tf.image.yiq_to_rgb``)."""
    return _recoloured(images, _FROM_YIQ)


@export("tf.image.rgb_to_yuv")
def rgb_to_yuv(images: Any) -> Tensor:
    """Images in YUV, channels last, values in [0, 1] (``tf.image.rgb_to_yuv``)."""
    return _recoloured(images, _TO_YUV)


@export("tf.image.yuv_to_rgb")
def yuv_to_rgb(images: Any) -> Tensor:
    """The inverse of `rgb_to_yuv` (``tf.image.yuv_to_rgb``)."""
    return _recoloured(images, _FROM_YUV)


# ---- edges --------------------------------------------------------------------------------------


@export("tf.image.image_gradients")
def image_gradients(image: Any) -> tuple[Tensor, Tensor]:
    """The differences to the next row and to the next column, zero in the last (``tf.image.image_gradients``).

    Args:
      image: (batch, rows, columns, channels).

    Raises:
      ValueError: for another rank.
    """
    image = convert_to_tensor(image)
    if image.shape.ndims != 4:
        raise ValueError(f"image_gradients expects a 4D tensor [batch_size, h, w, d], not {image.shape}.")
    batch, rows, columns, depth = (shape_of(image)[i] for i in range(4))
    dy = concat([image[:, 1:] - image[:, :-1], zeros(stack([batch, 1, columns, depth]), image.dtype)], 1)
    dx = concat([image[:, :, 1:] - image[:, :, :-1], zeros(stack([batch, rows, 1, depth]), image.dtype)], 2)
    return reshape(dy, shape_of(image)), reshape(dx, shape_of(image))


@export("tf.image.sobel_edges")
def sobel_edges(image: Any) -> Tensor:
    """Sobel's two edge maps, (batch, rows, columns, channels, 2) (``tf.image.sobel_edges``)."""
    image = convert_to_tensor(image)
    static, sizes = image.shape, shape_of(image)
    down = np.array([[-1, -2, -1], [0, 0, 0], [1, 2, 1]], image.dtype.as_numpy_dtype)
    filters = np.stack([down, down.T], axis=-1)[:, :, None, :]
    per_channel = tile(filters, stack([1, 1, sizes[3], 1]))
    padded = pad(image, [[0, 0], [1, 1], [1, 1], [0, 0]], mode="REFLECT")
    found = depthwise_conv2d_native(padded, per_channel, [1, 1, 1, 1], "VALID")
    result = reshape(found, concat([sizes, [2]], 0))
    result.set_shape(static.concatenate([2]))
    return result


@export("tf.image.total_variation")
def total_variation(images: Any, name: str | None = None) -> Tensor:
    """The sum of the differences between neighbours, per image (``tf.image.total_variation``).

    Raises:
      ValueError: unless ``images`` has rank 3 or 4.
    """
    with name_scope(name, "total_variation"):
        images = convert_to_tensor(images)
        rank = images.shape.ndims
        if rank not in (3, 4):
            raise ValueError("'images' must be either 3 or 4-dimensional.")
        if rank == 3:
            rows, columns, axes = images[1:] - images[:-1], images[:, 1:] - images[:, :-1], None
        else:
            rows, columns = images[:, 1:] - images[:, :-1], images[:, :, 1:] - images[:, :, :-1]
            axes = [1, 2, 3]
        return add(reduce_sum(abs_op(rows), axis=axes), reduce_sum(abs_op(columns), axis=axes))


# ---- likeness -----------------------------------------------------------------------------------


@export("tf.image.psnr")
def psnr(a: Any, b: Any, max_val: Any, name: str | None = None) -> Tensor:
    """The peak signal-to-noise ratio per image, in decibels (``tf.image.psnr``).

    Args:
      a, b: (…, rows, columns, channels).
      max_val: the range of values, such as 255.
    """
    with name_scope(name, "PSNR", [a, b]):
        peak, a, b = _as_floats(max_val, a, b)
        mean = reduce_mean(squared_difference(a, b), [-3, -2, -1])
        return subtract(20 * log(peak) / np.float32(np.log(10)), np.float32(10 / np.log(10)) * log(mean), name="psnr")


def _as_floats(max_val: Any, *images: Any) -> list[Tensor]:
    first = convert_to_tensor(images[0])
    peak = convert_image_dtype(convert_to_tensor(max_val, dtype=first.dtype), np.float32)
    return [peak, *(convert_image_dtype(convert_to_tensor(image), np.float32) for image in images)]


@export("tf.image.ssim")
def ssim(
    img1: Any, img2: Any, max_val: Any, filter_size: int = 11, filter_sigma: float = 1.5, k1: float = 0.01,
    k2: float = 0.03,
) -> Tensor:  # fmt: skip
    """The structural similarity of images, one value per image (``tf.image.ssim``).

    Args:
      img1, img2: (…, rows, columns, channels), no smaller than the window.
      max_val: the range of values.
      filter_size, filter_sigma: of the Gaussian window.
      k1, k2: keep the quotients away from 0 / 0.
    """
    with name_scope(None, "SSIM", [img1, img2]):
        peak, x, y = _as_floats(max_val, img1, img2)
        sizes = shape_of(x)
        rows_on = concat([[-1], sizes[-3:]], 0)
        x, y = reshape(x, rows_on), reshape(y, rows_on)
        window = _gaussian(filter_size, filter_sigma)

        def smooth(value: Tensor) -> Tensor:
            kernel = tile(window, stack([1, 1, sizes[-1], 1]))
            return depthwise_conv2d_native(value, kernel, [1, 1, 1, 1], "VALID")

        c1, c2 = multiply(peak, k1) ** 2, multiply(peak, k2) ** 2
        mean_x, mean_y = smooth(x), smooth(y)
        product, squares = mean_x * mean_y * 2.0, mean_x * mean_x + mean_y * mean_y
        luminance = divide(product + c1, squares + c1)
        covariance = smooth(x * y) * 2.0 - product
        contrast = divide(covariance + c2, smooth(x * x + y * y) - squares + c2)
        likeness = reduce_mean(luminance * contrast, [-3, -2])
        return reduce_mean(reshape(likeness, concat([sizes[:-3], [-1]], 0)), [-1])


def _gaussian(size: int, sigma: float) -> Tensor:
    """A window (size, size, 1, 1) that adds up to 1."""
    places = np.arange(size, dtype=np.float32) - np.float32(size - 1) / 2
    weights = np.exp(-0.5 * (places[:, None] ** 2 + places**2) / np.float32(sigma) ** 2)
    return expand_dims(expand_dims(convert_to_tensor((weights / weights.sum()).astype(np.float32)), -1), -1)
