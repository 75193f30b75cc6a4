"""``tf.image``: types, brightness, contrast, saturation, hue."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import DTypeLike, TensorLike
from tfmini.export import export
from tfmini.graph.families import Tensor, convert_to_tensor, name_scope
from tfmini.graph.scoping import count_ops, counted_as
from tfmini.ops.array.constant import constant
from tfmini.ops.array.filling import fill, zeros, zeros_like
from tfmini.ops.array.identity import cast, identity, saturate_cast
from tfmini.ops.array.joining import concat, stack, unstack
from tfmini.ops.array.layout import pad, tile
from tfmini.ops.array.partition import where
from tfmini.ops.array.shape import expand_dims, rank, reshape
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.image.codecs import decode_jpeg_op, encode_jpeg_of_quality_op
from tfmini.ops.math.comparison import equal, greater
from tfmini.ops.math.contraction import tensordot
from tfmini.ops.math.elementwise import add, divide, floormod, maximum, multiply, squared_difference, subtract
from tfmini.ops.math.reductions import reduce_max, reduce_mean, reduce_min, reduce_prod, reduce_sum
from tfmini.ops.math.sums import clip_by_value
from tfmini.ops.math.unary import abs as absolute
from tfmini.ops.math.unary import abs_op, log, pow_op, sqrt
from tfmini.ops.nn.activation import relu_op as relu
from tfmini.ops.nn.convolution import depthwise_conv2d_native
from tfmini.ops.nn.pooling import avg_pool
from tfmini.ops.random_functions import random_uniform


@export("tf.image.convert_image_dtype")
def convert_image_dtype(image: TensorLike, dtype: DTypeLike, saturate: bool = False, name: str | None = None) -> Any:
    """An image of another type: floats in [0, 1], integers in [0, max] (``tf.image.convert_image_dtype``)."""
    image, target = convert_to_tensor(image, name="image"), dtypes.as_dtype(dtype)
    if target == image.dtype:
        return identity(image, name=name)
    convert: Callable[..., Any] = saturate_cast if saturate else cast
    with name_scope(name, "convert_image", [image]):
        if image.dtype.is_integer and target.is_integer:
            if image.dtype.max > target.max:
                return convert(image // ((image.dtype.max + 1) // (target.max + 1)), target)
            return cast(image, target) * ((target.max + 1) // (image.dtype.max + 1))
        if image.dtype.is_floating and target.is_floating:
            return cast(image, target)
        if image.dtype.is_integer:
            return cast(image, target) * (1.0 / image.dtype.max)
        return convert(image * (target.max + 0.5), target)


@export("tf.image.per_image_standardization")
def per_image_standardization(image: Any) -> Any:
    """Each image minus its mean, divided by its deviation (``tf.image.per_image_standardization``), in its own type.

    The deviation is at least ``1 / sqrt(number of values)``, so a uniform image gives zeros. Integers become numbers up
    to 1 before, and integers again after it: give floats for a useful result.

    Raises:
      ValueError: the rank is below 3.
    """
    with name_scope(None, "per_image_standardization", [image]):
        given = convert_to_tensor(image, name="image")
        is_small_float = given.dtype in (dtypes.float16, dtypes.float32)
        image = given if is_small_float else convert_image_dtype(given, dtypes.float32)
        axes = [-1, -2, -3]
        least = _least_deviation(image)
        count_ops(8 if image.shape.is_fully_defined() else 30)  # the number of values, another formula, checks of sizes
        mean = reduce_mean(image, axis=axes, keepdims=True)
        variance = reduce_mean(image * image, axis=axes, keepdims=True) - mean * mean
        scaled = (image - mean) / maximum(sqrt(maximum(variance, 0.0)), least)
        return convert_image_dtype(scaled, given.dtype, saturate=True)


def _least_deviation(image: Tensor) -> Tensor:
    sizes = None if image.shape.ndims is None else image.shape.as_list()[-3:]
    if sizes is not None and len(sizes) < 3:
        raise ValueError(f"'image' must be at least three-dimensional, got the shape {image.shape}.")
    if sizes is not None and 0 in sizes:
        raise ValueError(f"All dimensions of 'image' must be > 0, got the shape {image.shape}.")
    if sizes is not None and None not in sizes:
        return constant(1.0 / math.sqrt(image.shape[-3:].num_elements() or 1), image.dtype)
    with counted_as(1):
        number = cast(reduce_prod(shape_of(image)[-3:]), dtypes.float32)
        return cast(divide(1.0, sqrt(number)), image.dtype)


def _as_floats(image: TensorLike, adjust: Callable[[Any], Any], saturate: bool = True) -> Any:
    """Applies ``adjust`` to the image as float32; the result has the image's type."""
    image = convert_to_tensor(image, name="image")
    adjusted = adjust(image if image.dtype == dtypes.float32 else convert_image_dtype(image, dtypes.float32))
    return convert_image_dtype(adjusted, image.dtype, saturate)


@export("tf.image.adjust_brightness")
def adjust_brightness(image: TensorLike, delta: TensorLike) -> Any:
    """``delta`` added to the image as floats (``tf.image.adjust_brightness``)."""
    with name_scope(None, "adjust_brightness", [image, delta]):
        return _as_floats(image, lambda floats: floats + cast(delta, dtypes.float32))


@export("tf.image.adjust_contrast")
def adjust_contrast(images: TensorLike, contrast_factor: TensorLike) -> Any:
    """Scales the distance of each pixel from the mean of its channel (``tf.image.adjust_contrast``)."""
    with name_scope(None, "adjust_contrast", [images, contrast_factor]):

        def adjust(floats: Tensor) -> Any:
            factor = cast(contrast_factor, dtypes.float32)
            with counted_as(1):
                mean = reduce_mean(floats, axis=[-3, -2], keepdims=True)
                return (floats - mean) * factor + mean

        return _as_floats(images, adjust)


@export("tf.image.adjust_gamma")
def adjust_gamma(image: TensorLike, gamma: float = 1, gain: float = 1) -> Any:
    """``gain * image ** gamma`` of the image as floats (``tf.image.adjust_gamma``)."""
    if isinstance(gamma, (int, float)) and gamma < 0:
        raise ValueError("Gamma should be a non-negative real number.")
    with name_scope(None, "adjust_gamma", [image]):
        return _as_floats(image, lambda floats: gain * floats**gamma)


@export("tf.image.rgb_to_grayscale")
def rgb_to_grayscale(images: TensorLike, name: str | None = None) -> Any:
    """One channel from red, green and blue (``tf.image.rgb_to_grayscale``)."""
    with name_scope(name, "rgb_to_grayscale", [images]):
        weights = constant([0.2989, 0.5870, 0.1140], dtypes.float32)
        return _as_floats(images, lambda floats: reduce_sum(floats * weights, axis=-1, keepdims=True))


@export("tf.image.grayscale_to_rgb")
def grayscale_to_rgb(images: Any, name: str | None = None) -> Any:
    """Three equal channels (``tf.image.grayscale_to_rgb``)."""
    with name_scope(name, "grayscale_to_rgb", [images]):
        images = convert_to_tensor(images, name="images")
        count_ops(12 if images.shape.is_fully_defined() else 44)  # a check of the sizes, and the rank as a tensor
        with counted_as(2):
            return _thrice(images)


def _thrice(images: Tensor) -> Any:
    known = images.shape.ndims
    if known is None:
        return tile(images, concat([fill([rank(images) - 1], 1), [3]], 0))
    colours = tile(images, [1] * (known - 1) + [3])
    colours.set_shape([*images.shape.as_list()[:-1], 3])
    return colours


@export("tf.image.rgb_to_hsv")
def rgb_to_hsv(images: TensorLike, name: str | None = None) -> Any:
    """Hue, saturation and value of floats in [0, 1] (``tf.image.rgb_to_hsv``)."""
    with name_scope(name, "rgb_to_hsv", [images]):
        images = convert_to_tensor(images, name="images")
        r, g, b = unstack(images, num=3, axis=-1)
        value = reduce_max(images, axis=-1)
        spread = value - reduce_min(images, axis=-1)
        zeros = zeros_like(value)
        safe = where(greater(spread, 0.0), spread, zeros + 1.0)
        hue = where(equal(r, value), (g - b) / safe, where(equal(g, value), (b - r) / safe + 2.0, (r - g) / safe + 4.0))
        hue = where(greater(spread, 0.0), floormod(hue / 6.0, 1.0), zeros)
        saturation = where(greater(value, 0.0), spread / where(greater(value, 0.0), value, zeros + 1.0), zeros)
        return stack([hue, saturation, value], axis=-1)


@export("tf.image.hsv_to_rgb")
def hsv_to_rgb(images: TensorLike, name: str | None = None) -> Any:
    """Red, green and blue of hue, saturation and value (``tf.image.hsv_to_rgb``)."""
    with name_scope(name, "hsv_to_rgb", [images]):
        hue, saturation, value = unstack(convert_to_tensor(images, name="images"), num=3, axis=-1)
        sixths = hue * 6.0
        ramps = [absolute(sixths - 3.0) - 1.0, 2.0 - absolute(sixths - 2.0), 2.0 - absolute(sixths - 4.0)]
        channels = [((clip_by_value(ramp, 0.0, 1.0) - 1.0) * saturation + 1.0) * value for ramp in ramps]
        return stack(channels, axis=-1)


def _in_hsv(image: TensorLike, amount: TensorLike, change: Callable[[Any, Any, Any, Any], list[Any]]) -> Any:
    def adjust(floats: Any) -> Any:
        given = convert_to_tensor(amount, dtypes.float32)
        with counted_as(1):
            return hsv_to_rgb(stack(change(given, *unstack(rgb_to_hsv(floats), num=3, axis=-1)), axis=-1))

    return _as_floats(image, adjust, saturate=False)  # the values lie in [0, 1]


@export("tf.image.adjust_saturation")
def adjust_saturation(image: TensorLike, saturation_factor: TensorLike, name: str | None = None) -> Any:
    """Scales the saturation (``tf.image.adjust_saturation``)."""
    with name_scope(name, "adjust_saturation", [image]):
        return _in_hsv(image, saturation_factor, lambda f, h, s, v: [h, clip_by_value(s * f, 0.0, 1.0), v])


@export("tf.image.adjust_hue")
def adjust_hue(image: TensorLike, delta: TensorLike, name: str | None = None) -> Any:
    """Rotates the hue by ``delta``; 1 is the full circle (``tf.image.adjust_hue``)."""
    with name_scope(name, "adjust_hue", [image]):
        return _in_hsv(image, delta, lambda d, h, s, v: [floormod(h + d, 1.0), s, v])


@export("tf.image.random_brightness")
def random_brightness(image: TensorLike, max_delta: float, seed: int | None = None) -> Any:
    """`adjust_brightness` by a random value in ±``max_delta`` (``tf.image.random_brightness``)."""
    if max_delta < 0:
        raise ValueError("max_delta must be non-negative.")
    return adjust_brightness(image, random_uniform([], -max_delta, max_delta, seed=seed))


@export("tf.image.random_contrast")
def random_contrast(image: TensorLike, lower: float, upper: float, seed: int | None = None) -> Any:
    """`adjust_contrast` by a random factor in [lower, upper) (``tf.image.random_contrast``)."""
    return adjust_contrast(image, random_uniform([], *_range(lower, upper), seed=seed))


@export("tf.image.random_saturation")
def random_saturation(image: TensorLike, lower: float, upper: float, seed: int | None = None) -> Any:
    """`adjust_saturation` by a random factor in [lower, upper) (``tf.image.random_saturation``)."""
    return adjust_saturation(image, random_uniform([], *_range(lower, upper), seed=seed))


@export("tf.image.random_hue")
def random_hue(image: TensorLike, max_delta: float, seed: int | None = None) -> Any:
    """`adjust_hue` by a random value in ±``max_delta`` (``tf.image.random_hue``)."""
    if not 0 <= max_delta <= 0.5:
        raise ValueError("max_delta must be in [0, 0.5]." if max_delta >= 0 else "max_delta must be non-negative.")
    return adjust_hue(image, random_uniform([], -max_delta, max_delta, seed=seed))


@export("tf.image.adjust_jpeg_quality")
def adjust_jpeg_quality(image: TensorLike, jpeg_quality: TensorLike, name: str | None = None) -> Any:
    """An image as it is after JPEG of a quality, which 0 and 100 bound (``tf.image.adjust_jpeg_quality``).

    Args:
      image: [rows, columns, 3 or 1], floats between 0 and 1 or integers.
    """
    with name_scope(name, "adjust_jpeg_quality", [image]):
        image = convert_to_tensor(image, name="image")
        pixels = convert_image_dtype(image, dtypes.uint8)
        coded = encode_jpeg_of_quality_op(pixels, convert_to_tensor(jpeg_quality, dtypes.int32))
        return convert_image_dtype(decode_jpeg_op(coded), image.dtype)


@export("tf.image.random_jpeg_quality")
def random_jpeg_quality(
    image: TensorLike, min_jpeg_quality: int, max_jpeg_quality: int, seed: int | None = None
) -> Any:
    """`adjust_jpeg_quality` with a random quality (``tf.image.random_jpeg_quality``), below ``max_jpeg_quality``."""
    if not (0 <= min_jpeg_quality <= 100 and 0 <= max_jpeg_quality <= 100):
        raise ValueError("jpeg encoding range must be between 0 and 100.")
    if min_jpeg_quality >= max_jpeg_quality:
        raise ValueError("`min_jpeg_quality` must be less than `max_jpeg_quality`.")
    quality = random_uniform([], min_jpeg_quality, max_jpeg_quality, dtypes.int32, seed)
    return adjust_jpeg_quality(image, quality)


def _range(lower: float, upper: float) -> tuple[float, float]:
    if upper <= lower:
        raise ValueError("upper must be > lower.")
    if lower < 0:
        raise ValueError("lower must be non-negative.")
    return lower, upper


# ---- ``tf.image``: YIQ and YUV colours, edges, and measures of the difference of two images ------------------------

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
def rgb_to_yiq(images: TensorLike) -> Tensor:
    """Images in YIQ, channels last, values in [0, 1] (``tf.image.rgb_to_yiq``)."""
    return _recoloured(images, _TO_YIQ)


@export("tf.image.yiq_to_rgb")
def yiq_to_rgb(images: TensorLike) -> Tensor:
    """The inverse of `rgb_to_yiq` (``tf.image.yiq_to_rgb``)."""
    return _recoloured(images, _FROM_YIQ)


@export("tf.image.rgb_to_yuv")
def rgb_to_yuv(images: TensorLike) -> Tensor:
    """Images in YUV, channels last, values in [0, 1] (``tf.image.rgb_to_yuv``)."""
    return _recoloured(images, _TO_YUV)


@export("tf.image.yuv_to_rgb")
def yuv_to_rgb(images: TensorLike) -> Tensor:
    """The inverse of `rgb_to_yuv` (``tf.image.yuv_to_rgb``)."""
    return _recoloured(images, _FROM_YUV)


# ---- edges --------------------------------------------------------------------------------------


@export("tf.image.image_gradients")
def image_gradients(image: TensorLike) -> tuple[Tensor, Tensor]:
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
def sobel_edges(image: TensorLike) -> Tensor:
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
def total_variation(images: TensorLike, name: str | None = None) -> Tensor:
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
def psnr(a: TensorLike, b: TensorLike, max_val: TensorLike, name: str | None = None) -> Tensor:
    """The peak signal-to-noise ratio per image, in decibels (``tf.image.psnr``).

    Args:
      a, b: (…, rows, columns, channels).
      max_val: the range of values, such as 255.
    """
    with name_scope(name, "PSNR", [a, b]):
        peak, a, b = _peak_and_images(max_val, a, b)
        mean = reduce_mean(squared_difference(a, b), [-3, -2, -1])
        return subtract(20 * log(peak) / np.float32(np.log(10)), np.float32(10 / np.log(10)) * log(mean), name="psnr")


def _peak_and_images(max_val: TensorLike, *images: object) -> list[Tensor]:
    first = convert_to_tensor(images[0])
    peak = convert_image_dtype(cast(max_val, first.dtype), np.float32)
    return [peak, *(convert_image_dtype(convert_to_tensor(image), np.float32) for image in images)]


@export("tf.image.ssim")
def ssim(
    img1: TensorLike, img2: TensorLike, max_val: TensorLike, filter_size: int = 11, filter_sigma: float = 1.5,
    k1: float = 0.01, k2: float = 0.03,
) -> Tensor:  # fmt: skip
    """The structural similarity of images, one value per image (``tf.image.ssim``).

    Args:
      img1, img2: (…, rows, columns, channels), no smaller than the window.
      max_val: the range of values.
      filter_size, filter_sigma: of the Gaussian window.
      k1, k2: keep the quotients away from 0 / 0.
    """
    with name_scope(None, "SSIM", [img1, img2]):
        peak, x, y = _peak_and_images(max_val, img1, img2)
        return reduce_mean(_likeness(x, y, peak, _gaussian(filter_size, filter_sigma), k1, k2)[0], [-1])


def _likeness(x: Tensor, y: Tensor, peak: Tensor, window: Tensor, k1: float, k2: float) -> tuple[Tensor, Tensor]:
    """The structural similarity of each channel, and the part of it that is of contrast: (…, channels) each."""
    sizes = shape_of(x)
    rows_on = concat([[-1], sizes[-3:]], 0)
    x, y = reshape(x, rows_on), reshape(y, rows_on)

    def smooth(value: Tensor) -> Tensor:
        kernel = tile(window, stack([1, 1, sizes[-1], 1]))
        return depthwise_conv2d_native(value, kernel, [1, 1, 1, 1], "VALID")

    c1, c2 = multiply(peak, k1) ** 2, multiply(peak, k2) ** 2
    mean_x, mean_y = smooth(x), smooth(y)
    product, squares = mean_x * mean_y * 2.0, mean_x * mean_x + mean_y * mean_y
    luminance = divide(product + c1, squares + c1)
    covariance = smooth(x * y) * 2.0 - product
    contrast = divide(covariance + c2, smooth(x * x + y * y) - squares + c2)
    per_image = concat([sizes[:-3], [-1]], 0)
    means = (reduce_mean(value, [-3, -2]) for value in (luminance * contrast, contrast))
    both, second = (reshape(mean, per_image) for mean in means)
    return both, second


@export("tf.image.ssim_multiscale")
def ssim_multiscale(
    img1: TensorLike, img2: TensorLike, max_val: TensorLike,
    power_factors: Sequence[float] = (0.0448, 0.2856, 0.3001, 0.2363, 0.1333), filter_size: int = 11,
    filter_sigma: float = 1.5, k1: float = 0.01, k2: float = 0.03,
) -> Tensor:  # fmt: skip
    """The structural similarity of images of several scales (``tf.image.ssim_multiscale``); see `ssim`.

    Args:
      img1, img2: (…, rows, columns, channels), also at the smallest scale no smaller than the window.
      power_factors: the weight of each scale. The first is that of the images, each next has half the rows and columns.
    """
    with name_scope(None, "MS-SSIM", [img1, img2]):
        peak, x, y = _peak_and_images(max_val, img1, img2)
        window, factors = _gaussian(filter_size, filter_sigma), list(power_factors)
        parts: list[Tensor] = []
        for scale in range(len(factors)):
            if scale:
                x, y = _halved(x), _halved(y)
            whole, contrast = _likeness(x, y, peak, window, k1, k2)
            parts.append(contrast)
        found = stack([relu(part) for part in [*parts[:-1], whole]], axis=-1)
        return reduce_mean(reduce_prod(pow_op(found, constant(factors, dtypes.float32)), [-1]), [-1])


def _halved(images: Tensor) -> Tensor:
    """The means of squares of four pixels; an odd last row or column counts twice."""
    sizes = shape_of(images)
    flat = reshape(images, concat([[-1], sizes[-3:]], 0))
    odd = pad(expand_dims(sizes[-3:] % constant([2, 2, 1]), -1), [[1, 0], [1, 0]])
    smaller = avg_pool(pad(flat, odd, mode="SYMMETRIC"), [1, 2, 2, 1], [1, 2, 2, 1], "VALID")
    return reshape(smaller, concat([sizes[:-3], shape_of(smaller)[1:]], 0))


def _gaussian(size: int, sigma: float) -> Tensor:
    """A window (size, size, 1, 1) that adds up to 1."""
    places = np.arange(size, dtype=np.float32) - np.float32(size - 1) / 2
    weights = np.exp(-0.5 * (places[:, None] ** 2 + places**2) / np.float32(sigma) ** 2)
    return expand_dims(expand_dims(convert_to_tensor((weights / weights.sum()).astype(np.float32)), -1), -1)
