"""The layers of networks whose training was published: parameters and multiplications, from their papers' shapes."""

from __future__ import annotations

from typing import NamedTuple


class Layer(NamedTuple):
    """A layer. ``work``: multiplications for one image."""

    parameters: int
    work: int


def _convolution(inputs: int, outputs: int, side: int, size: int = 3) -> Layer:
    parameters = inputs * outputs * size * size
    return Layer(parameters, parameters * side * side)


def vgg16() -> list[Layer]:
    """VGG-16 (arXiv:1409.1556, configuration D): 138 million parameters, three quarters of them in its first
    fully connected layer.
    """
    widths = [(64, 2, 224), (128, 2, 112), (256, 3, 56), (512, 3, 28), (512, 3, 14)]
    layers, inputs = [], 3
    for outputs, count, side in widths:
        for _ in range(count):
            layers.append(_convolution(inputs, outputs, side))
            inputs = outputs
    return [*layers, *(Layer(n * m, n * m) for n, m in ((25088, 4096), (4096, 4096), (4096, 1000)))]


def resnet(blocks: tuple[int, int, int, int]) -> list[Layer]:
    """A ResNet (arXiv:1512.03385) of so many bottleneck blocks per stage: (3, 4, 23, 3) is ResNet-101, of 44 million
    parameters.
    """
    layers, inputs = [_convolution(3, 64, 112, 7)], 64
    for width, count, side in zip((64, 128, 256, 512), blocks, (56, 28, 14, 7)):
        for block in range(count):
            layers += [_convolution(inputs, width, side, 1), _convolution(width, width, side)]
            layers.append(_convolution(width, 4 * width, side, 1))
            if block == 0:
                layers.append(_convolution(inputs, 4 * width, side, 1))
            inputs = 4 * width
    return [*layers, Layer(2048 * 1000, 2048 * 1000)]


def inception3() -> list[Layer]:
    """Inception V3 (arXiv:1512.00567): 23.8 million parameters, here spread evenly over its 94 convolutions of equal
    work, beside the fully connected layer.
    """
    return [*[Layer(232_000, 1)] * 94, Layer(2048 * 1000, 0)]


NETWORKS = {
    "Inception V3": inception3(),
    "ResNet-50": resnet((3, 4, 6, 3)),
    "ResNet-101": resnet((3, 4, 23, 3)),
    "ResNet-152": resnet((3, 8, 36, 3)),
    "VGG-16": vgg16(),
}
