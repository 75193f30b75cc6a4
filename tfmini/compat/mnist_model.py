"""``tensorflow.examples.tutorials.mnist.mnist``: the two-layer model of TensorFlow's first tutorial."""

from __future__ import annotations

import math

from tfmini import dtypes
from tfmini.core_types import TensorLike
from tfmini.export import export, export_names
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import name_scope
from tfmini.layers.losses import sparse_softmax_cross_entropy
from tfmini.ops.array.casting import cast
from tfmini.ops.array.filling import zeros
from tfmini.ops.math.elementwise import add
from tfmini.ops.math.matmul import matmul
from tfmini.ops.math.reduce_functions import reduce_sum
from tfmini.ops.math.topk import in_top_k
from tfmini.ops.nn.activation import relu
from tfmini.ops.random.functions import truncated_normal
from tfmini.ops.summary.functions import scalar
from tfmini.ops.variables.base import Variable
from tfmini.train.optimizers.fused_optimizer import GradientDescentOptimizer

NUM_CLASSES = 10
IMAGE_SIZE = 28
IMAGE_PIXELS = IMAGE_SIZE * IMAGE_SIZE


def _layer(inputs: TensorLike, width: int, units: int, name: str) -> Tensor:
    with name_scope(name):
        deviation = 1.0 / math.sqrt(float(width))
        weights = Variable(truncated_normal([width, units], stddev=deviation), name="weights")
        biases = Variable(zeros([units]), name="biases")
        return add(matmul(inputs, weights), biases)


@export("tf.examples.tutorials.mnist.mnist.inference")
def inference(images: TensorLike, hidden1_units: int, hidden2_units: int) -> Tensor:
    """Logits ``[batch, 10]`` of images ``[batch, 784]`` (``tf.examples.tutorials.mnist.mnist.inference``)."""
    hidden1 = relu(_layer(images, IMAGE_PIXELS, hidden1_units, "hidden1"))
    hidden2 = relu(_layer(hidden1, hidden1_units, hidden2_units, "hidden2"))
    return _layer(hidden2, hidden2_units, NUM_CLASSES, "softmax_linear")


@export("tf.examples.tutorials.mnist.mnist.loss")
def loss(logits: TensorLike, labels: TensorLike) -> Tensor:
    """The mean cross entropy of int labels ``[batch]`` (``tf.examples.tutorials.mnist.mnist.loss``)."""
    return sparse_softmax_cross_entropy(labels=cast(labels, dtypes.int64), logits=logits)


@export("tf.examples.tutorials.mnist.mnist.training")
def training(loss: TensorLike, learning_rate: TensorLike) -> Operation:
    """Makes an op for a step of gradient descent that also increments a new variable ``global_step``."""
    scalar("loss", loss)
    global_step = Variable(0, name="global_step", trainable=False)
    return GradientDescentOptimizer(learning_rate).minimize(loss, global_step=global_step)


@export("tf.examples.tutorials.mnist.mnist.evaluation")
def evaluation(logits: TensorLike, labels: TensorLike) -> Tensor:
    """The number of correct predictions in a batch, int32 (``tf.examples.tutorials.mnist.mnist.evaluation``)."""
    return reduce_sum(cast(in_top_k(logits, labels, 1), dtypes.int32))


export_names("tf.examples.tutorials.mnist.mnist", "IMAGE_PIXELS IMAGE_SIZE NUM_CLASSES")
