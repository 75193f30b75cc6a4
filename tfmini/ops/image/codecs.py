"""Images as files: ``DecodePng``, ``DecodeJpeg``, ``DecodeBmp``, ``DecodeGif``, ``EncodePng``, ``EncodeJpeg``.

Only these four formats are read, as in TensorFlow: Pillow knows others, some of which start programs. Each decoder
knows the size of an image before it takes memory for it.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import Array, DTypeLike, TensorLike
from tfmini.errors import InvalidArgumentError, ResourceExhaustedError, reading
from tfmini.export import export
from tfmini.graph.families import Operation, Tensor, all_of, convert_to_tensor, name_scope, op, sized
from tfmini.numerics import images
from tfmini.numerics.images import check_inflated
from tfmini.numerics.images import encode_png as png_of
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.identity import cast
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.array.slicing import getitem
from tfmini.ops.flow.cond import cond
from tfmini.ops.math.comparison import equal
from tfmini.ops.math.elementwise import multiply
from tfmini.ops.string_ops import substr
from tfmini.shapes import RawShape, with_rank

_JPEG_ATTRS = (
    "; channels: int = 0; ratio: int = 1; fancy_upscaling: bool = true; try_recover_truncated: bool = false"
    "; acceptable_fraction: float = 1; dct_method: string = ''"
)
decode_png_op = op("DecodePng(contents: string) -> image: dtype; channels: int = 0; dtype: {uint8, uint16} = DT_UINT8")
decode_jpeg_op = op("DecodeJpeg(contents: string) -> image: uint8" + _JPEG_ATTRS)
crop_jpeg_op = op("DecodeAndCropJpeg(contents: string, crop_window: int32) -> image: uint8" + _JPEG_ATTRS)
decode_bmp_op = op("DecodeBmp(contents: string) -> image: uint8; channels: int = 0")
decode_gif_op = op("DecodeGif(contents: string) -> image: uint8", shape=[(None, None, None, 3)])
jpeg_shape_op = op(
    "ExtractJpegShape(contents: string) -> image_shape: output_type; output_type: {int32, int64} = DT_INT32",
    shape=[(3,)],
)
encode_png_op = op("EncodePng(image: T) -> contents: string; compression: int = -1; T: {uint8, uint16} = DT_UINT8")
encode_jpeg_op = op(
    "EncodeJpeg(image: uint8) -> contents: string; format: {'', 'grayscale', 'rgb'} = ''; quality: int = 95"
    "; progressive: bool = false; optimize_size: bool = false; chroma_downsampling: bool = true"
    "; density_unit: {'in', 'cm'} = 'in'; x_density: int = 300; y_density: int = 300; xmp_metadata: string = ''"
)
encode_jpeg_of_quality_op = op("EncodeJpegVariableQuality(images: uint8, quality: int32) -> contents: string")
all_of(encode_png_op, encode_jpeg_op).shape(sized("_ _ _ -> ()"))
encode_jpeg_of_quality_op.shape(sized("_ _ _, () -> ()"))
_DECODERS = (decode_png_op, decode_jpeg_op, crop_jpeg_op, decode_bmp_op)
all_of(*_DECODERS, decode_gif_op, jpeg_shape_op, encode_png_op, encode_jpeg_op).not_differentiable()
encode_jpeg_of_quality_op.not_differentiable()

_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
_SIGNATURES = {images.SIGNATURE: "PNG", b"\xff\xd8\xff": "JPEG", b"GIF8": "GIF", b"BM": "BMP"}


def _image_shape(node: Operation) -> list[RawShape]:
    with_rank(node.inputs[0].raw_shape, 0)
    channels = node.attrs["channels"]
    if channels < 0:
        raise ValueError(f"channels must be non-negative, got {channels}")
    return [(None, None, channels or None)]


for _handle in _DECODERS:
    if _handle is not crop_jpeg_op:
        _handle.shape(_image_shape)


@crop_jpeg_op.shape
def _crop_shape(node: Operation) -> list[RawShape]:
    window = constant_value(node.inputs[1])
    rows, columns = (None, None) if window is None else window[2:].tolist()
    return [(rows, columns, _image_shape(node)[0][2])]  # type: ignore[index]


# ---- reading ------------------------------------------------------------------------------------


def _pillow() -> Any:
    """Pillow's Image module, which is slow to import."""
    return import_module("PIL.Image")


def _bytes(contents: object) -> bytes:
    data = contents if isinstance(contents, bytes) else np.asarray(contents, object)
    if not isinstance(data, bytes) and data.ndim:
        refuse(f"contents must be scalar, got shape {list(data.shape)}")
    return data if isinstance(data, bytes) else data.item()


def _format(data: bytes) -> str:
    """The format that the first bytes tell."""
    for start, name in _SIGNATURES.items():
        if data.startswith(start):
            return name
    refuse(f"Expected image (JPEG, PNG, GIF or BMP), got unknown format starting with {data[:16]!r}")


@contextmanager
def _decoding(data: bytes, kind: str) -> Iterator[None]:
    """Turns the errors of decoders into TensorFlow's."""
    with reading(f"Invalid {kind} data, size {len(data)}", InvalidArgumentError):
        try:
            yield
        except OSError as error:  # Pillow's for damaged data
            raise ValueError(str(error)) from None
        except _pillow().DecompressionBombError as error:
            raise ResourceExhaustedError.of(f"{kind} data of {len(data)} bytes: {error}") from None


def _opened(data: bytes, kind: str) -> Any:
    """A JPEG or GIF file as Pillow's image, of which only the header has been read."""
    return _pillow().open(io.BytesIO(data), formats=(kind,))


def _check_size(image: Any, kind: str, frames: int = 1) -> None:
    nbytes = frames * image.width * image.height * max(3, len(image.getbands()))
    check_inflated(nbytes, f"A {kind} file of {frames} frames" if frames > 1 else f"A {kind} file")


def _decoded(data: bytes, channels: int, wide: bool = False) -> Array:
    """The pixels of a file of any of the formats: uint8, or uint16 if ``wide`` and the file is a PNG."""
    if channels not in (0, *_MODES):
        refuse(f"channels must be 0, 1, 3 or 4, got {channels}")
    kind = _format(data)
    with _decoding(data, kind):
        if kind == "PNG":
            return images.decode_png(data, channels, wide)
        if kind == "BMP":
            return _bmp(data, channels)
        image = _opened(data, kind)
        _check_size(image, kind)
        return _pixels(image, channels)


def _bmp(data: bytes, channels: int) -> Array:
    pixels = images.decode_bmp(data)
    if channels not in (0, pixels.shape[2]):
        refuse(f"channels attribute {channels} does not match bits per pixel from file {pixels.shape[2]}")
    return pixels


def _pixels(image: Any, channels: int) -> Array:
    """(rows, columns, channels) of uint8; 0 channels: as many as the file has."""
    if channels == 0:
        channels = 3 if image.mode in ("P", "CMYK") else len(image.getbands())
    found = np.asarray(image.convert(_MODES[channels]))
    return found[:, :, None] if found.ndim == 2 else found


@decode_png_op.kernel("CPU")
def _decode_png(contents: Array, *, channels: int, dtype: dtypes.DType) -> Array:
    pixels = _decoded(_bytes(contents), channels, dtype is dtypes.uint16)
    # TensorFlow extends 8 bits to 16 by repeating them.
    return pixels if dtype is dtypes.uint8 or pixels.dtype == np.uint16 else pixels.astype(np.uint16) * 257


@decode_jpeg_op.kernel("CPU")
def _decode_jpeg(contents: Array, *, channels: int, ratio: int) -> Array:
    data = _bytes(contents)
    if ratio not in (1, 2, 4, 8):
        refuse(f"ratio must be 1, 2, 4, or 8, got {ratio}")
    if ratio == 1:
        return _decoded(data, channels)
    with _decoding(data, "JPEG"):
        image = _opened(data, "JPEG")
        _check_size(image, "JPEG")
        return _pixels(image.reduce(ratio), channels)


@crop_jpeg_op.kernel("CPU")
def _crop_jpeg(contents: Array, crop_window: Array, *, channels: int) -> Array:
    if np.shape(crop_window) != (4,):
        refuse(f"crop_window must have four elements, got shape {list(np.shape(crop_window))}")
    top, left, height, width = crop_window.tolist()
    pixels = _decoded(_bytes(contents), channels)
    rows, columns = pixels.shape[:2]
    if min(top, left) < 0 or min(height, width) <= 0 or top + height > rows or left + width > columns:
        refuse(f"Invalid JPEG data or crop window, image of {rows} x {columns}")
    return pixels[top : top + height, left : left + width]


@decode_bmp_op.kernel("CPU")
def _decode_bmp(contents: Array, *, channels: int) -> Array:
    data = _bytes(contents)
    with _decoding(data, "BMP"):
        return _bmp(data, channels)


@decode_gif_op.kernel("CPU")
def _decode_gif(contents: Array) -> Array:
    data = _bytes(contents)
    kind = _format(data)
    if kind != "GIF":
        return _decoded(data, 3)[None]
    with _decoding(data, kind):
        return np.stack(list(_frames(_opened(data, kind))))


def _frames(image: Any) -> Iterator[Array]:
    """The frames of a GIF file; one that is larger than the file's header says is an error."""
    _check_size(image, "GIF", image.n_frames)
    size = image.size
    for i in range(image.n_frames):
        image.seek(i)
        if image.size != size:
            raise ValueError(f"frame {i} does not lie within the image")
        yield np.asarray(image.convert("RGB"))


@jpeg_shape_op.kernel("CPU")
def _jpeg_shape(contents: Array, *, output_type: dtypes.DType) -> Array:
    data = _bytes(contents)
    with _decoding(data, "JPEG"):
        image = _opened(data, "JPEG")
        return np.array([image.height, image.width, len(image.getbands())], output_type.numpy)


# ---- writing ------------------------------------------------------------------------------------


@encode_png_op.kernel("CPU")
def _encode_png(image: Array, *, compression: int) -> bytes:
    if image.ndim != 3 or image.shape[2] not in _MODES:
        refuse(f"image must have 1, 2, 3, or 4 channels, got shape {list(image.shape)}")
    if not -1 <= compression <= 9:
        refuse(f"compression should be between -1 and 9, got {compression}")
    return png_of(image, compression)


@encode_jpeg_op.kernel("CPU")
def _encode_jpeg(
    image: Array, *, format: bytes, quality: int, progressive: bool, optimize_size: bool, chroma_downsampling: bool,
    x_density: int, y_density: int,
) -> bytes:  # fmt: skip
    wanted = {b"": (1, 3), b"grayscale": (1,), b"rgb": (3,)}[format]
    if image.ndim != 3 or image.shape[2] not in wanted:
        refuse(f"image must be 3-dimensional with {' or '.join(map(str, wanted))} channels, got {list(image.shape)}")
    if not 0 <= quality <= 100:
        refuse(f"quality must be in [0,100], got {quality}")
    pixels = image[:, :, 0] if image.shape[2] == 1 else image
    out = io.BytesIO()
    _pillow().fromarray(pixels).save(
        out, "JPEG", quality=quality, progressive=progressive, optimize=optimize_size,
        subsampling=2 if chroma_downsampling else 0, dpi=(x_density, y_density),
    )  # fmt: skip
    return out.getvalue()


@encode_jpeg_of_quality_op.kernel("CPU")
def _encode_jpeg_of_quality(image: Array, quality: Array) -> bytes:
    if np.ndim(quality):
        refuse(f"quality must be scalar: {list(np.shape(quality))}")
    return _encode_jpeg(
        image, format=b"", quality=min(max(int(quality), 0), 100), progressive=False, optimize_size=False,
        chroma_downsampling=True, x_density=300, y_density=300,
    )  # fmt: skip


# ---- public functions ---------------------------------------------------------------------------


@export("tf.image.decode_png", "tf.io.decode_png")
def decode_png(
    contents: TensorLike, channels: int = 0, dtype: DTypeLike = dtypes.uint8, name: str | None = None
) -> Tensor:
    """A PNG file's pixels, (rows, columns, channels) (``tf.image.decode_png``, ``tf.io.decode_png``).

    Args:
      contents: a scalar string.
      channels: 0: as in the file; 1, 3 or 4: converted.
      dtype: uint8 or uint16.

    Raises:
      InvalidArgumentError: in the step, for other data.
      ResourceExhaustedError: in the step, when the image is larger than ``TFMINI_INFLATE_LIMIT``.
    """
    return decode_png_op(contents, channels=channels or 0, dtype=dtypes.as_dtype(dtype), name=name)


@export("tf.image.decode_jpeg", "tf.io.decode_jpeg")
def decode_jpeg(
    contents: TensorLike, channels: int = 0, ratio: int = 1, fancy_upscaling: bool = True,
    try_recover_truncated: bool = False, acceptable_fraction: float = 1, dct_method: str = "",
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """A JPEG file's pixels, uint8 (rows, columns, channels) (``tf.image.decode_jpeg``); see `decode_png`.

    Args:
      ratio: divide the size of the image by 1, 2, 4 or 8.
      fancy_upscaling, try_recover_truncated, acceptable_fraction, dct_method: accepted and unused.
    """
    return decode_jpeg_op(
        contents, channels=channels or 0, ratio=ratio, fancy_upscaling=fancy_upscaling,
        try_recover_truncated=try_recover_truncated, acceptable_fraction=acceptable_fraction, dct_method=dct_method,
        name=name,
    )  # fmt: skip


@export("tf.image.decode_and_crop_jpeg", "tf.io.decode_and_crop_jpeg")
def decode_and_crop_jpeg(
    contents: TensorLike, crop_window: TensorLike, channels: int = 0, ratio: int = 1, fancy_upscaling: bool = True,
    try_recover_truncated: bool = False, acceptable_fraction: float = 1, dct_method: str = "",
    name: str | None = None,
) -> Tensor:  # fmt: skip
    """A window ``[top, left, rows, columns]`` of a JPEG file (``tf.image.decode_and_crop_jpeg``)."""
    return crop_jpeg_op(
        contents, crop_window, channels=channels or 0, ratio=ratio, fancy_upscaling=fancy_upscaling,
        try_recover_truncated=try_recover_truncated, acceptable_fraction=acceptable_fraction, dct_method=dct_method,
        name=name,
    )  # fmt: skip


@export("tf.image.decode_bmp", "tf.io.decode_bmp")
def decode_bmp(contents: TensorLike, channels: int = 0, name: str | None = None) -> Tensor:
    """A BMP file's pixels (``tf.image.decode_bmp``); see `decode_png`."""
    return decode_bmp_op(contents, channels=channels or 0, name=name)


@export("tf.image.is_jpeg", "tf.io.is_jpeg")
def is_jpeg(contents: TensorLike, name: str | None = None) -> Tensor:
    """Whether a string starts like a JPEG file (``tf.image.is_jpeg``)."""
    with name_scope(name, "is_jpeg"):
        return equal(substr(contents, 0, 3), b"\xff\xd8\xff", name=name)


@export("tf.image.decode_image", "tf.io.decode_image")
def decode_image(
    contents: TensorLike, channels: int | None = None, dtype: DTypeLike = dtypes.uint8, name: str | None = None,
    expand_animations: bool = True,
) -> Tensor:  # fmt: skip
    """The pixels of a PNG, JPEG, BMP or GIF file (``tf.image.decode_image``).

    The rank is unknown: a GIF file gives frames, unless ``expand_animations`` is False.

    Args:
      contents: a scalar string.
      channels: as in `decode_png`.
      dtype: uint8, or another type to convert to; float types get values in [0, 1].
    """
    with name_scope(name, "decode_image"):
        start = substr(contents, 0, 3)

        def still() -> Tensor:
            return decode_png(contents, channels or 0)  # that kernel reads all formats

        def frames() -> Tensor:
            decoded = decode_gif(contents)
            return decoded if expand_animations else getitem(decoded, 0)

        pixels = cond(equal(start, b"GIF"), frames, still)
        if not expand_animations:
            pixels.set_shape([None, None, channels or None])
        kind = dtypes.as_dtype(dtype)
        if kind is dtypes.uint8:
            return pixels  # type: ignore[no-any-return]
        if kind.is_floating:
            return multiply(cast(pixels, kind), np.array(1 / 255, kind.numpy))
        return cast(pixels, kind)  # type: ignore[no-any-return]


@export("tf.image.decode_gif", "tf.io.decode_gif")
def decode_gif(contents: TensorLike, name: str | None = None) -> Tensor:
    """A GIF file's frames, uint8 (frame, row, column, 3) (``tf.image.decode_gif``)."""
    return decode_gif_op(contents, name=name)


@export("tf.image.encode_png")
def encode_png(image: TensorLike, compression: int = -1, name: str | None = None) -> Tensor:
    """A PNG file of uint8 or uint16 pixels (rows, columns, channels) (``tf.image.encode_png``)."""
    return encode_png_op(convert_to_tensor(image), compression=compression, name=name)


@export("tf.image.encode_jpeg", "tf.io.encode_jpeg")
def encode_jpeg(
    image: TensorLike, format: str = "", quality: int = 95, progressive: bool = False, optimize_size: bool = False,
    chroma_downsampling: bool = True, density_unit: str = "in", x_density: int = 300, y_density: int = 300,
    xmp_metadata: str = "", name: str | None = None,
) -> Tensor:  # fmt: skip
    """A JPEG file of uint8 pixels (rows, columns, 1 or 3) (``tf.image.encode_jpeg``)."""
    return encode_jpeg_op(
        image, format=format, quality=quality, progressive=progressive, optimize_size=optimize_size,
        chroma_downsampling=chroma_downsampling, density_unit=density_unit, x_density=x_density,
        y_density=y_density, xmp_metadata=xmp_metadata, name=name,
    )  # fmt: skip


@export("tf.image.extract_jpeg_shape", "tf.io.extract_jpeg_shape")
def extract_jpeg_shape(contents: TensorLike, output_type: DTypeLike = dtypes.int32, name: str | None = None) -> Tensor:
    """Rows, columns and channels of a JPEG file (``tf.image.extract_jpeg_shape``)."""
    return jpeg_shape_op(contents, output_type=output_type, name=name)
