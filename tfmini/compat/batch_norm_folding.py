"""Batch normalization as a part of the weights of the layer before it, for `tfmini.compat.quantize_graph`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from tfmini import dtypes
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.graph import Graph
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import name_scope
from tfmini.ops.array.filling import ones, ones_like, zeros_like
from tfmini.ops.array.identity import cast, identity
from tfmini.ops.array.shape import reshape
from tfmini.ops.array.shape import size as size_of
from tfmini.ops.flow.cond import cond
from tfmini.ops.gradients import RegisterGradient
from tfmini.ops.math.comparison import greater_equal
from tfmini.ops.math.elementwise import add, divide, multiply, subtract
from tfmini.ops.math.unary import reciprocal, rsqrt
from tfmini.ops.variables.initializers import Zeros
from tfmini.ops.variables.scope import VariableScope, get_variable, variable_scope

LAYERS = ("Conv2D", "MatMul", "DepthwiseConv2dNative")
_READS = ("Identity", "ReadVariableOp", "VariableV2", "Mul")
_STEP = "fake_quantization_step"
_GRADIENT = "FoldFusedBatchNormGrad"


class _BatchNorm(NamedTuple):
    """A batch normalization behind a layer.

    Attributes:
      output: the normalized tensor.
      scale, shift: what the normalization multiplies with and adds, of the statistics that it uses.
      averages: the moving mean and variance, where the statistics are those of a batch.
      scope: of the ops that correct for the difference between those.
    """

    layer: Operation
    output: Tensor
    gamma: Tensor | None
    mean: Tensor
    variance: Tensor
    epsilon: Any
    scale: Tensor
    shift: Tensor
    averages: list[tuple[Tensor, Operation, int]]
    scope: str


def context_of(op: Operation) -> str:
    """The name scope of an op, empty at the root."""
    return op.name.rpartition("/")[0]


def layer_of(op: Operation) -> Operation | None:
    """The layer that an op is, adds a bias to, or normalizes when folded; None for any other op."""
    if op.type in LAYERS:
        # Weights that are rounded already, and factors that are no weights, do not count.
        kind = op.inputs[1].op.type
        return op if kind in _READS and _is_weights(op.inputs[1].op) else None
    if op.type == "BiasAdd":
        return layer_of(op.inputs[0].op) if op.inputs[0].op.type in LAYERS else None
    if op.name.endswith("add_fold"):
        before = op.inputs[0].op
        while before.type not in LAYERS:
            before = before.inputs[1 if before.name.endswith("post_conv_mul") else 0].op
        return layer_of(before)
    return None


def _is_weights(op: Operation) -> bool:
    """Whether a tensor is a variable's value, that under a mask, or one with a folded normalization."""
    if op.type == "Mul":
        return op.name.endswith(("mul_fold", "masked_weight"))
    return op.type != "Identity" or op.inputs[0].op.type in ("VariableV2", "VarHandleOp", "Variable")


def rewire(old: Tensor, new: Tensor, consumers: Sequence[Operation]) -> None:
    """Gives some ops another tensor in the place of one."""
    for op in consumers:
        for index, tensor in enumerate(op.inputs):
            if tensor is old:
                op._update_input(index, new)


def quantization_step() -> Tensor:
    """The number of steps, one more in each, for delays."""
    graph = get_default_graph()
    try:
        return graph.get_tensor_by_name(f"{_STEP}/Identity:0")
    except KeyError:
        pass
    with name_scope(None), variable_scope(VariableScope(False), auxiliary_name_scope=False):
        step = get_variable(_STEP, [], dtypes.int64, initializer=Zeros(dtype=dtypes.int64), trainable=False)
        with name_scope(f"{_STEP}/"):
            return identity(step.assign_add(1))


def fold_batch_norms(graph: Graph, freeze_bn_delay: int | None) -> None:
    """Folds all batch normalizations of a graph that are right behind layers without bias."""
    ops = graph.get_operations()
    for found in [_fused(op) for op in ops if op.type.startswith("FusedBatchNorm")]:
        if found is not None:
            _fold(found, freeze_bn_delay)
    for op in ops:
        if op.type in ("Add", "AddV2"):
            apart = _apart(op)
            if apart is not None:
                _fold(apart, freeze_bn_delay)


def _averages(mean: Tensor, variance: Tensor) -> list[tuple[Tensor, Operation, int]]:
    """The moving averages of statistics of a batch, each with the op that multiplies with its decay."""
    found = []
    for statistic in (mean, variance):
        for difference in statistic.consumers():
            if difference.type == "Sub" and difference.inputs[1] is statistic and difference.outputs[0].consumers():
                product = difference.outputs[0].consumers()[0]
                assigns = [op for op in product.outputs[0].consumers() if op.type.startswith("Assign")]
                if product.type == "Mul" and assigns:
                    decay = 1 if product.inputs[0] is difference.outputs[0] else 0
                    found.append((difference.inputs[0], product, decay))
                    break
    return found


def _fused(op: Operation) -> _BatchNorm | None:
    """That of one op."""
    layer = layer_of(op.inputs[0].op)
    if layer is None or op.inputs[0].op is not layer:
        return None
    trains, epsilon = op.get_attr("is_training"), op.get_attr("epsilon")
    gamma, beta = op.inputs[1], op.inputs[2]
    mean, variance = op.outputs[1:3] if trains else op.inputs[3:5]
    averages = _averages(mean, variance) if trains else []
    if trains:
        op._set_attr("_gradient_op_type", _GRADIENT.encode())
        with name_scope(f"{context_of(op)}/"):
            count = cast(divide(size_of(layer.outputs[0]), size_of(mean)), dtypes.float32)
            variance = multiply(variance, divide(count - 1.0, count), name="Undo_Bessel_Correction")
    scope = _within(layer, "BatchNorm_Fold")
    with name_scope(scope):
        scale = gamma * rsqrt(variance + epsilon)
        shift = subtract(beta, mean * scale, name="bias")
        scope = f"{get_default_graph().get_name_scope()}/batch_norm_correction"
    return _BatchNorm(layer, op.outputs[0], gamma, mean, variance, epsilon, scale, shift, averages, scope)


@RegisterGradient(_GRADIENT)
def _of_statistics(op: Operation, *grads: Any) -> list[Any]:
    """Of the mean and the variance of a batch, all that is left of a folded op; that op's own gradient ignores them."""
    x, of_mean, of_variance = op.inputs[0], grads[1], grads[2]
    count = cast(divide(size_of(x), size_of(op.outputs[1])), dtypes.float32)
    slope = of_mean / count + 2.0 * (x - op.outputs[1]) * of_variance / (count - 1.0)
    return [slope, None, None, None, None]


def _apart(op: Operation) -> _BatchNorm | None:
    """That of ops: scale * x + (beta - scale * mean) with scale = gamma * rsqrt(variance + epsilon)."""
    product, shift = (tensor.op for tensor in op.inputs)
    if product.type != "Mul" or shift.type != "Sub" or shift.inputs[1].op.type != "Mul":
        return None
    layer, scale = layer_of(product.inputs[0].op), product.inputs[1]
    mean, same = shift.inputs[1].op.inputs
    if layer is None or product.inputs[0].op is not layer or same is not scale:
        return None
    root = scale.op if scale.op.type == "Rsqrt" else scale.op.inputs[0].op
    if root.type != "Rsqrt" or root.inputs[0].op.type not in ("Add", "AddV2"):
        return None
    gamma = None if root is scale.op else scale.op.inputs[1]
    variance, epsilon = root.inputs[0].op.inputs
    averages = _averages(mean, variance)
    return _BatchNorm(layer, op.outputs[0], gamma, mean, variance, epsilon, scale, shift.outputs[0], averages,
                      _within(layer, "batch_norm_correction"))  # fmt: skip


def _within(layer: Operation, name: str) -> str:
    context = context_of(layer)
    return f"{context}/{name}" if context else name


def _fold(norm: _BatchNorm, freeze_bn_delay: int | None) -> None:
    """Multiplies weights with the scale, and gives what used the normalized tensor the layer of these weights."""
    layer = norm.layer
    consumers, weights, scale = list(norm.output.consumers()), layer.inputs[1], norm.scale
    correction = _corrected(norm, freeze_bn_delay) if norm.averages else None
    context = context_of(layer)
    depthwise = layer.type == "DepthwiseConv2dNative"
    if depthwise:
        # Their channels are those of the input times a multiplier, the last two axes of the weights.
        axes = weights.shape.as_list()[2:]
        with name_scope(f"{_within(layer, 'BatchNorm_Fold')}/"):
            scale = reshape(scale, axes, name="scale_reshape")
            if correction:
                correction = correction._replace(scale=reshape(correction.scale, axes, name="correction_reshape"))
    with name_scope(f"{context}/" if context else None):
        if correction:
            weights = multiply(correction.scale, weights, name="correction_mult")
        folded = _copied(layer, multiply(weights, scale, name="mul_fold"))
        if correction:
            folded = multiply(correction.reciprocal, folded, name="post_conv_mul")
            folded = add(folded, correction.offset, name="correction_add")
        made = add(folded, norm.shift, name="add_fold")
    rewire(norm.output, made, consumers)


def _copied(layer: Operation, weights: Tensor) -> Tensor:
    """A layer's op with other weights."""
    made = layer.graph.create_op(
        layer.type, [layer.inputs[0], weights], name=f"{layer.name.rpartition('/')[2]}_Fold", attrs=dict(layer.attrs)
    )
    return made.outputs[0]


class _Correction(NamedTuple):
    """What makes the weights those of the moving averages, and the results those of the batch."""

    scale: Tensor
    reciprocal: Tensor
    offset: Tensor


def _corrected(norm: _BatchNorm, freeze_bn_delay: int | None) -> _Correction:
    """Weights are rounded as they will be in evaluation; only afterwards the batch's own statistics come in."""
    (moving_mean, *_), (moving_variance, *_) = norm.averages
    gamma = ones(norm.mean.shape, norm.mean.dtype) if norm.gamma is None else norm.gamma
    with name_scope(norm.scope):
        wanted = rsqrt(moving_variance + norm.epsilon)
        present = rsqrt(norm.variance + norm.epsilon)
        scale = identity(divide(wanted, present, name="scale_compute"), name="correction_scale")
        back = reciprocal(scale, name="reciprocal_compute")
        apart = norm.mean * present - moving_mean * wanted
        offset = multiply(gamma, apart, name="offset_compute")
        if freeze_bn_delay is None:
            return _Correction(scale, back, zeros_like(offset))
        frozen = greater_equal(quantization_step(), freeze_bn_delay, name="use_moving_average")
        for (_, product, index), name in zip(norm.averages, ("freeze_moving_mean", "freeze_moving_var")):
            _freeze(product, index, frozen, name)
        return _Correction(
            scale,
            cond(frozen, lambda: ones_like(back), lambda: back, name="correction_recip"),
            cond(frozen, lambda: offset, lambda: zeros_like(offset), name="correction_offset"),
        )


def _freeze(product: Operation, index: int, frozen: Tensor, name: str) -> None:
    """Leaves a moving average alone once it is frozen."""
    decay = product.inputs[index]
    product._update_input(index, cond(frozen, lambda: zeros_like(decay), lambda: decay, name=name))
