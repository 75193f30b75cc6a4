"""Lowerings of the ops that resize images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tfmini.graph.lowering import DeviceValue, jnp, lower, lower_on_host
from tfmini.graph.node import Node
from tfmini.ops.image.resize import matrices


def _weighed(images: DeviceValue, rows: DeviceValue, columns: DeviceValue) -> Any:
    return jnp.einsum("ni,bijc,mj->bnmc", rows, images, columns)


def _sizes(images: DeviceValue) -> Sequence[int]:
    return tuple(images.shape[1:3])


@lower("ResizeBilinear ResizeBicubic ResizeArea", host="size")
def _resize(images: DeviceValue, size: DeviceValue, *, node: Node) -> Any:
    return _weighed(images.astype(jnp.float32), *matrices(node, _sizes(images), size.tolist()))


@lower("ResizeBilinearGrad ResizeBicubicGrad")
def _resize_grad(grads: DeviceValue, original: DeviceValue, *, node: Node) -> Any:
    rows, columns = matrices(node, _sizes(original), _sizes(grads))
    return _weighed(grads, rows.T, columns.T).astype(original.dtype)


@lower("ResizeNearestNeighbor", host="size")
def _nearest(images: DeviceValue, size: DeviceValue, *, node: Node) -> Any:
    rows, columns = (np.argmax(matrix, 1) for matrix in matrices(node, _sizes(images), size.tolist()))
    return jnp.asarray(images)[:, rows[:, None], columns[None, :]]


@lower("ResizeNearestNeighborGrad", host="size")
def _nearest_grad(grads: DeviceValue, size: DeviceValue, *, node: Node) -> Any:
    rows, columns = matrices(node, size.tolist(), _sizes(grads))
    return _weighed(grads.astype(jnp.float32), rows.T, columns.T).astype(grads.dtype)


# TensorFlow has kernels for GPUs of these; here they have no lowering yet.
lower_on_host(
    "CropAndResize CropAndResizeGradImage CropAndResizeGradBoxes NonMaxSuppressionV3 NonMaxSuppressionV4"
    " NonMaxSuppressionV5 DrawBoundingBoxes DrawBoundingBoxesV2 ExtractImagePatches"
)
