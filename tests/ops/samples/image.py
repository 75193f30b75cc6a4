"""Samples of the ops in tfmini/ops/image."""

import struct
from typing import Any

from tests.ops.samples.notation import each

GIF = (
    b"GIF87a\x03\0\x02\0\x81\0\0\xff\0\0\0\xff\0\0\0\xff\t\t\t,\0\0\0\0\x03\0\x02\0\0\x08\t\0\x01\x04\x100@@\x80\x80\0;"
)


def bmp(pixels: Any) -> bytes:
    """A picture [height, width, channels] as a BMP file."""
    height, width, channels = pixels.shape
    rows = b"".join(row.tobytes().ljust((width * channels + 3) // 4 * 4, b"\0") for row in pixels[::-1])
    head = struct.pack("<IiiHHIIiiII", 40, width, height, 1, 8 * channels, 0, len(rows), 1, 1, 0, 0)
    return struct.pack("<2sIII", b"BM", 54 + len(rows), 0, 54) + head + rows


_BOXES = "f32([[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11], [0, 10.1, 1, 11.1]])"
_SCORES = "f32([0.9, 0.75, 0.6, 0.95, 0.5])"
_SUPPRESSION = f"boxes={_BOXES}, scores={_SCORES}, max_output_size=4, iou_threshold=0.5"
# No sampling point is on a pixel or on the border, where the gradient of the boxes jumps.
_BETWEEN = "boxes=f32([[0.03, 0.1, 0.92, 0.85], [0.2, 0.9, 0.7, -0.2], [-0.4, 0.05, 1.3, 0.95]]), box_ind=[0, 1, 0]"
_CROPS = "boxes=f32([[0, 0, 1, 1], [0.2, 0.9, 0.7, -0.2], [-0.5, 0, 1.5, 1]]), box_ind=[0, 1, 0]"
_PATCHES = "ksizes=[1, 3, 2, 1], strides=[1, 2, 1, 1], rates=[1, 1, 2, 1]"
_SIZES = ("size=[5, 3]", "size=[2, 7], align_corners=True", "size=[6, 2], half_pixel_centers=True")
_DISTORTED = "image_size=[40, 50, 3], bounding_boxes=f32([[[0.1, 0.2, 0.8, 0.9]]]), seed=1, seed2=2"

SAMPLES = (
    each("NonMaxSuppressionV3", f"{_SUPPRESSION}, score_threshold=-inf", f"{_SUPPRESSION}, score_threshold=0.7")
    + each("NonMaxSuppressionV4", f"{_SUPPRESSION}, score_threshold=0.0, pad_to_max_output_size=True")
    + each("NonMaxSuppressionV5",
           f"{_SUPPRESSION}, score_threshold=0.0, soft_nms_sigma=0.0, pad_to_max_output_size=True")
    + each("CropAndResize", f"image=f32(2, 4, 5, 2), {_BETWEEN}, crop_size=[3, 2]",
           f"image=u8(2, 4, 5, 1), {_CROPS}, crop_size=[3, 3], method='nearest', extrapolation_value=7.5")
    + each("CropAndResizeGradImage",
           f"grads=f32(3, 3, 2, 2), {_CROPS}, image_size=[2, 4, 5, 2], T=float32",
           f"grads=f32(3, 3, 2, 1), {_CROPS}, image_size=[2, 4, 5, 1], T=float64, method='nearest'")
    + each("CropAndResizeGradBoxes", f"grads=f32(3, 3, 2, 2), image=f32(2, 4, 5, 2), {_CROPS}",
           f"grads=f32(3, 1, 3, 1), image=u8(2, 4, 5, 1), {_CROPS}")
    + each("ResizeBilinear ResizeBicubic ResizeNearestNeighbor",
           *(f"images=f32(1, 3, 4, 2), {size}" for size in _SIZES), "images=u8(2, 3, 3, 1), size=[5, 4]")
    + each("ResizeArea", "images=f32(1, 3, 4, 2), size=[2, 3]",
           "images=u8(1, 4, 4, 1), size=[2, 7], align_corners=True")
    + each("ScaleAndTranslate", "images=f32(1, 3, 4, 2), size=[2, 7], scale=[0.7, 1.6], translation=[0.5, -1.0]",
           "images=f32(2, 3, 3, 1), size=[5, 2], scale=[1.5, 0.5], translation=[0.0, 0.0], kernel_type='gaussian', "
           "antialias=False")
    + each("ScaleAndTranslateGrad", "grads=f32(1, 2, 7, 2), original_image=f32(1, 3, 4, 2), scale=[0.7, 1.6], "
           "translation=[0.5, -1.0], kernel_type='triangle'")
    + each("ResizeBilinearGrad ResizeBicubicGrad", *(
        f"grads=f32(1, {new}, 2), original_image=f32(1, 3, 4, 2), {flag}=True"
        for new, flag in (("2, 7", "align_corners"), ("6, 2", "half_pixel_centers"))))
    + each("ResizeNearestNeighborGrad", "grads=f32(1, 5, 3, 2), size=[3, 4]", "grads=f32(1, 6, 7, 1), size=[3, 4], "
           "half_pixel_centers=True", "grads=i32(1, 5, 5, 1), size=[2, 2], align_corners=True")
    + each("CombinedNonMaxSuppression", "boxes=f32(2, 6, 1, 4, low=0, high=1), scores=f32(2, 6, 3), "
           "max_output_size_per_class=2, max_total_size=5, iou_threshold=0.3, score_threshold=0.0",
           "boxes=f32(1, 5, 2, 4), scores=f32(1, 5, 2), max_output_size_per_class=3, max_total_size=9, "
           "iou_threshold=0.1, score_threshold=-1.0, pad_per_class=True, clip_boxes=False")
    + each("ExtractVolumePatches",
           "input=f32(2, 3, 4, 5, 2), ksizes=[1, 2, 2, 3, 1], strides=[1, 1, 2, 2, 1], padding='SAME'",
           "input=i32(1, 4, 3, 6, 1), ksizes=[1, 2, 1, 3, 1], strides=[1, 2, 1, 1, 1], padding='VALID'")
    + each("DecodePng", "contents=EncodePng(image=u8(3, 2, 3))", "contents=EncodePng(image=u8(3, 2, 1)), channels=3",
           "contents=EncodePng(image=u16(3, 2, 4, high=65536)), dtype=uint16",
           "contents=EncodePng(image=u8(3, 4, 3, high=256)), channels=1",
           "contents=EncodePng(image=u16(3, 4, 3, high=65536)), channels=1, dtype=uint16",
           "contents=EncodePng(image=u8(3, 2, 2)), channels=4")
    + each("DecodeBmp", "contents=bmp(u8(2, 3, 3))", "contents=bmp(u8(2, 3, 4)), channels=4")
    + each("DecodeGif", "contents=GIF")
    + each("SampleDistortedBoundingBox", _DISTORTED, f"{_DISTORTED}, area_range=[0.1, 0.5], min_object_covered=0.9")
    + each("SampleDistortedBoundingBoxV2", f"{_DISTORTED}, min_object_covered=0.3",
           "image_size=i64([9, 9, 1]), bounding_boxes=f32(0, 0, 4), min_object_covered=0.5, seed=3, "
           "use_image_if_no_bounding_boxes=True")
    + each("DrawBoundingBoxes", "images=f32(1, 5, 6, 3), boxes=f32([[[0.1, 0.2, 0.8, 0.7], [0, 0.5, 1, 1.5]]])",
           "images=f16(1, 4, 4, 3), boxes=f32([[[0, 0, 1, 1]]])")
    + each("DrawBoundingBoxesV2", "images=f32(1, 5, 6, 3), boxes=f32([[[0.1, 0.2, 0.8, 0.7], [0, 0.5, 1, 1]]]), "
           "colors=f32([[0.5, 0.25, 0.75]])")
    + each("ExtractImagePatches", f"images=f32(2, 5, 4, 2), {_PATCHES}, padding='VALID'",
           f"images=f32(1, 5, 4, 1), {_PATCHES}, padding='SAME'",
           f"images=i32(1, 5, 4, 1), {_PATCHES}, padding='VALID'")
    + r"""
NonMaxSuppressionWithOverlaps(overlaps=f32([[1, 0.2, 0.9], [0.2, 1, 0.4], [0.9, 0.4, 1]]),
    scores=f32([0.3, 0.9, 0.8]), max_output_size=3, overlap_threshold=0.5, score_threshold=0.0)
ExtractGlimpse(input=f32(2, 5, 6, 2), size=[3, 4], offsets=f32([[0.1, -0.2], [1, 1]]), uniform_noise=False,
    noise='zero')
ExtractGlimpse(input=f32(2, 5, 6, 1), size=[7, 9], offsets=f32([[2, -9], [0.5, 1.5]]), centered=False, normalized=False,
    uniform_noise=False, noise='zero')
ExtractJpegShape(contents=EncodeJpeg(image=u8(3, 5, 3)))
ExtractJpegShape(contents=EncodeJpeg(image=u8(3, 5, 1)), output_type=int64)
"""
)  # fmt: skip

# Other libraries compress: the bytes of files differ, and the pixels of a JPEG file by rounding.
SHAPES = r"""
EncodePng(image=u8(3, 2, 3))
EncodePng(image=u16(3, 2, 1), compression=9)
EncodeJpeg(image=u8(8, 8, 3), quality=80)
EncodeJpegVariableQuality(images=u8(8, 8, 3), quality=50)
EncodeJpeg(image=u8(8, 8, 1), format='grayscale')
DecodeJpeg(contents=EncodeJpeg(image=u8(8, 8, 3)))
DecodeJpeg(contents=EncodeJpeg(image=u8(8, 8, 3)), channels=1, ratio=2)
DecodeAndCropJpeg(contents=EncodeJpeg(image=u8(8, 8, 3)), crop_window=[1, 2, 4, 3])
# Doubles of sums in single precision, in another order.
ResizeBilinearGrad(grads=f32(1, 5, 3, 1), original_image=f64(1, 3, 4, 1))
ResizeBicubicGrad(grads=f32(1, 5, 3, 1), original_image=f64(1, 3, 4, 1))
"""

OURS = (
    # The gradient of ExtractImagePatches, which TensorFlow builds of other ops.
    each("_PlaceImagePatches", f"sizes=[2, 5, 4, 2], patches=f32(2, 2, 2, 12), {_PATCHES}, padding='VALID'",
         f"sizes=[1, 5, 4, 1], patches=f32(1, 3, 4, 6), {_PATCHES}, padding='SAME'")
    + each("_PlaceVolumePatches", "sizes=[1, 3, 4, 5, 2], patches=f32(1, 3, 2, 3, 24), ksizes=[1, 2, 2, 3, 1], "
           "strides=[1, 1, 2, 2, 1], padding='SAME'")
    # As in TensorFlow 1.15: a box above the threshold is dropped; later only its score is reduced.
    + each("NonMaxSuppressionV5", f"{_SUPPRESSION}, score_threshold=0.0, soft_nms_sigma=0.5")
    # TensorFlow 2 has no contrib; era_ops has the answers of 1.15.
    + each("Resampler", "data=f32(2, 4, 5, 3), warp=f32(2, 7, 2, low=-1.5, high=5.5)",
         "data=f64(1, 3, 3, 1), warp=[[[[-0.5, 2.5], [2.25, 0.75]]]]")
    + each("ResamplerGrad", "data=f32(1, 3, 4, 2), warp=f32(1, 5, 2, low=-1.5, high=4.5), grad_output=f32(1, 5, 2)")
    # The regions and pairs of 1.15 are in era_contrib.
    + each("ImageConnectedComponents", "image=[[[1, 1, 0], [0, 2, 2]]]", "image=[[[0.5, 0.0], [0.5, 0.5]]]")
    + each("BipartiteMatch", "distance_mat=f32(4, 3), num_valid_rows=-1.0",
           "distance_mat=f32(4, 3), num_valid_rows=[2.0], top_k=1")
)  # fmt: skip
