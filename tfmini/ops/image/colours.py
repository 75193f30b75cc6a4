"""``tf.image``: types, brightness, contrast, saturation, hue."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph.families import convert_to_tensor, name_scope
from tfmini.ops.array.casting import cast, saturate_cast
from tfmini.ops.array.constant import constant
from tfmini.ops.array.filling import zeros_like
from tfmini.ops.array.joining import stack, unstack
from tfmini.ops.array.layout import tile
from tfmini.ops.array.masking import where
from tfmini.ops.math.clip import clip_by_value
from tfmini.ops.math.comparison import equal, greater
from tfmini.ops.math.complex import abs as absolute
from tfmini.ops.math.elementwise import floormod, maximum
from tfmini.ops.math.reduce_functions import reduce_max, reduce_mean, reduce_min, reduce_sum
from tfmini.ops.math.unary import sqrt
from tfmini.ops.random.functions import random_uniform


@export("tf.image.convert_image_dtype")
def convert_image_dtype(image: Any, dtype: Any, saturate: bool = False, name: str | None = None) -> Any:
    """An image of another type: floats in [0, 1], integers in [0, max] (``tf.image.convert_image_dtype``)."""
    image, target = convert_to_tensor(image, name="image"), dtypes.as_dtype(dtype)
    if target == image.dtype:
        return image
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
    """Each image minus its mean, divided by its deviation (``tf.image.per_image_standardization``), float32.

    The deviation is at least ``1 / sqrt(number of values)``, so a uniform image gives zeros.
    """
    with name_scope(None, "per_image_standardization", [image]):
        image = cast(convert_to_tensor(image), dtypes.float32)
        axes = [-1, -2, -3]
        sizes = image.shape.as_list()[-3:]
        if None in sizes:
            raise ValueError("per_image_standardization needs images whose size is known when the graph is built.")
        mean = reduce_mean(image, axis=axes, keepdims=True)
        variance = reduce_mean(image * image, axis=axes, keepdims=True) - mean * mean
        least = constant(1.0 / math.sqrt(math.prod(sizes)), dtypes.float32)
        return (image - mean) / maximum(sqrt(maximum(variance, 0.0)), least)


def _as_floats(image: Any, adjust: Callable[[Any], Any]) -> Any:
    """Applies ``adjust`` to the image as float32; the result has the image's type."""
    image = convert_to_tensor(image, name="image")
    adjusted = adjust(convert_image_dtype(image, dtypes.float32))
    return convert_image_dtype(adjusted, image.dtype, saturate=True)


@export("tf.image.adjust_brightness")
def adjust_brightness(image: Any, delta: Any) -> Any:
    """``delta`` added to the image as floats (``tf.image.adjust_brightness``)."""
    with name_scope(None, "adjust_brightness", [image, delta]):
        return _as_floats(image, lambda floats: floats + cast(delta, dtypes.float32))


@export("tf.image.adjust_contrast")
def adjust_contrast(images: Any, contrast_factor: Any) -> Any:
    """Scales the distance of each pixel from the mean of its channel (``tf.image.adjust_contrast``)."""
    with name_scope(None, "adjust_contrast", [images, contrast_factor]):

        def adjust(floats: Any) -> Any:
            mean = reduce_mean(floats, axis=[-3, -2], keepdims=True)
            return (floats - mean) * cast(contrast_factor, dtypes.float32) + mean

        return _as_floats(images, adjust)


@export("tf.image.adjust_gamma")
def adjust_gamma(image: Any, gamma: float = 1, gain: float = 1) -> Any:
    """``gain * image ** gamma`` of the image as floats (``tf.image.adjust_gamma``)."""
    if isinstance(gamma, (int, float)) and gamma < 0:
        raise ValueError("Gamma should be a non-negative real number.")
    with name_scope(None, "adjust_gamma", [image]):
        return _as_floats(image, lambda floats: gain * floats**gamma)


@export("tf.image.rgb_to_grayscale")
def rgb_to_grayscale(images: Any, name: str | None = None) -> Any:
    """One channel from red, green and blue (``tf.image.rgb_to_grayscale``)."""
    with name_scope(name, "rgb_to_grayscale", [images]):
        weights = constant([0.2989, 0.5870, 0.1140], dtypes.float32)
        return _as_floats(images, lambda floats: reduce_sum(floats * weights, axis=-1, keepdims=True))


@export("tf.image.grayscale_to_rgb")
def grayscale_to_rgb(images: Any, name: str | None = None) -> Any:
    """Three equal channels (``tf.image.grayscale_to_rgb``)."""
    with name_scope(name, "grayscale_to_rgb", [images]):
        images = convert_to_tensor(images, name="images")
        return tile(images, [1] * (images.shape.ndims - 1) + [3])


@export("tf.image.rgb_to_hsv")
def rgb_to_hsv(images: Any, name: str | None = None) -> Any:
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
def hsv_to_rgb(images: Any, name: str | None = None) -> Any:
    """Red, green and blue of hue, saturation and value (``tf.image.hsv_to_rgb``)."""
    with name_scope(name, "hsv_to_rgb", [images]):
        hue, saturation, value = unstack(convert_to_tensor(images, name="images"), num=3, axis=-1)
        sixths = hue * 6.0
        ramps = [absolute(sixths - 3.0) - 1.0, 2.0 - absolute(sixths - 2.0), 2.0 - absolute(sixths - 4.0)]
        channels = [((clip_by_value(ramp, 0.0, 1.0) - 1.0) * saturation + 1.0) * value for ramp in ramps]
        return stack(channels, axis=-1)


def _in_hsv(image: Any, change: Callable[[Any, Any, Any], list[Any]]) -> Any:
    def adjust(floats: Any) -> Any:
        return hsv_to_rgb(stack(change(*unstack(rgb_to_hsv(floats), num=3, axis=-1)), axis=-1))

    return _as_floats(image, adjust)


@export("tf.image.adjust_saturation")
def adjust_saturation(image: Any, saturation_factor: Any, name: str | None = None) -> Any:
    """Scales the saturation (``tf.image.adjust_saturation``)."""
    with name_scope(name, "adjust_saturation", [image]):
        return _in_hsv(image, lambda h, s, v: [h, clip_by_value(s * saturation_factor, 0.0, 1.0), v])


@export("tf.image.adjust_hue")
def adjust_hue(image: Any, delta: Any, name: str | None = None) -> Any:
    """Rotates the hue by ``delta``; 1 is the full circle (``tf.image.adjust_hue``)."""
    with name_scope(name, "adjust_hue", [image]):
        return _in_hsv(image, lambda h, s, v: [floormod(h + delta, 1.0), s, v])


@export("tf.image.random_brightness")
def random_brightness(image: Any, max_delta: float, seed: int | None = None) -> Any:
    """`adjust_brightness` by a random value in ±``max_delta`` (``tf.image.random_brightness``)."""
    if max_delta < 0:
        raise ValueError("max_delta must be non-negative.")
    return adjust_brightness(image, random_uniform([], -max_delta, max_delta, seed=seed))


@export("tf.image.random_contrast")
def random_contrast(image: Any, lower: float, upper: float, seed: int | None = None) -> Any:
    """`adjust_contrast` by a random factor in [lower, upper) (``tf.image.random_contrast``)."""
    return adjust_contrast(image, random_uniform([], *_range(lower, upper), seed=seed))


@export("tf.image.random_saturation")
def random_saturation(image: Any, lower: float, upper: float, seed: int | None = None) -> Any:
    """`adjust_saturation` by a random factor in [lower, upper) (``tf.image.random_saturation``)."""
    return adjust_saturation(image, random_uniform([], *_range(lower, upper), seed=seed))


@export("tf.image.random_hue")
def random_hue(image: Any, max_delta: float, seed: int | None = None) -> Any:
    """`adjust_hue` by a random value in ±``max_delta`` (``tf.image.random_hue``)."""
    if not 0 <= max_delta <= 0.5:
        raise ValueError("max_delta must be in [0, 0.5]." if max_delta >= 0 else "max_delta must be non-negative.")
    return adjust_hue(image, random_uniform([], -max_delta, max_delta, seed=seed))


def _range(lower: float, upper: float) -> tuple[float, float]:
    if upper <= lower:
        raise ValueError("upper must be > lower.")
    if lower < 0:
        raise ValueError("lower must be non-negative.")
    return lower, upper
