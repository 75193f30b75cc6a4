"""``tf.contrib.quantize``: rewrites graphs so that they compute as integers of a few bits would.

Weights and activations of layers go through ops that round them to what so many bits can hold, between a minimum and a
maximum that are variables. `batch_norm_folding` joins batch normalization with the weights first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from tfmini.compat.batch_norm_folding import LAYERS, context_of, fold_batch_norms, layer_of, quantization_step, rewire
from tfmini.export import export
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.graph import Graph
from tfmini.graph.operation import Operation, Tensor
from tfmini.ops.flow.cond import cond
from tfmini.ops.math.comparison import greater_equal
from tfmini.ops.math.elementwise import divide, maximum, minimum, multiply
from tfmini.ops.math.reductions import reduce_max, reduce_min
from tfmini.ops.quantization import fake_quant_with_min_max_vars
from tfmini.ops.variables.initializers import Constant
from tfmini.ops.variables.scope import get_variable, variable_scope
from tfmini.train.optimizers.moving_averages import assign_moving_average

_ACTIVATIONS = ("Relu", "Relu6", "Identity")
_ADDITIONS = ("Add", "AddV2")
_DECAY = 0.999


@dataclass
class _Ways:
    """How a graph is to be quantized."""

    trains: bool
    weight_bits: int = 8
    activation_bits: int = 8
    symmetric: bool = False
    quant_delay: int | None = None
    scope: str | None = None


class _Match(NamedTuple):
    """A layer to quantize: its op, the last op of its own, and what comes behind."""

    layer: Operation
    end: Operation
    activation: Operation | None = None
    bypass: Operation | None = None  # the addition to another layer, before the activation


@export("tf.contrib.quantize.create_training_graph")
def create_training_graph(input_graph: Graph | None = None, quant_delay: int = 0) -> None:
    """Rewrites a graph for training with simulated quantization (``tf.contrib.quantize.create_training_graph``).

    Call it behind the loss and before the optimizer's ops. Convolutions, fully connected layers and what is added to
    them are rounded to 8 bits: the weights between their own minimum and maximum, the activations between moving
    averages of these. Batch normalization becomes a part of the weights.

    Args:
      input_graph: default the default graph. It is changed in place.
      quant_delay: the number of steps before rounding begins.
    """
    _rewrite(input_graph, None, _Ways(True, quant_delay=quant_delay))


@export("tf.contrib.quantize.create_eval_graph")
def create_eval_graph(input_graph: Graph | None = None) -> None:
    """Rewrites a graph for evaluation, with the variables of the other (``tf.contrib.quantize.create_eval_graph``).

    Args:
      input_graph: made with ``is_training=False``; default the default graph. It is changed in place.
    """
    _rewrite(input_graph, None, _Ways(False))


@export("tf.contrib.quantize.experimental_create_training_graph")
def experimental_create_training_graph(
    input_graph: Graph | None = None, weight_bits: int = 8, activation_bits: int = 8, symmetric: bool = False,
    quant_delay: int = 0, freeze_bn_delay: int | None = None, scope: str | None = None,
) -> None:  # fmt: skip
    """`create_training_graph` with more choices (``tf.contrib.quantize.experimental_create_training_graph``).

    Args:
      weight_bits, activation_bits: how many bits hold them.
      symmetric: whether minimum and maximum are of one size.
      freeze_bn_delay: the number of steps after which batch normalization uses its moving averages; None: never.
      scope: quantizes only layers in this name scope.
    """
    ways = _Ways(True, weight_bits, activation_bits, symmetric, quant_delay, scope)
    _rewrite(input_graph, freeze_bn_delay, ways)


@export("tf.contrib.quantize.experimental_create_eval_graph")
def experimental_create_eval_graph(
    input_graph: Graph | None = None, weight_bits: int = 8, activation_bits: int = 8, symmetric: bool = False,
    quant_delay: int | None = None, scope: str | None = None,
) -> None:  # fmt: skip
    """`create_eval_graph` with more choices; see `experimental_create_training_graph`."""
    _rewrite(input_graph, None, _Ways(False, weight_bits, activation_bits, symmetric, quant_delay, scope))


def _rewrite(graph: Graph | None, freeze_bn_delay: int | None, ways: _Ways) -> None:
    graph = graph or get_default_graph()
    with graph.as_default():
        fold_batch_norms(graph, freeze_bn_delay)
        for match in list(_matches(graph)):
            if ways.scope is None or match.layer.name.startswith(ways.scope.rstrip("/") + "/"):
                _quantize(match, ways)


# ---- what is quantized -------------------------------------------------------------------------


def _matches(graph: Graph) -> Iterator[_Match]:
    """Layers with activations, then those added to others before the activation, then those without any."""
    found: dict[Operation, _Match] = {}
    bypassed = []
    for op in graph.get_operations():
        if op.type in _ACTIVATIONS and op.inputs:
            match = _with_activation(op)
            if match is not None and match.layer not in found:
                found[match.layer] = match
                if match.bypass is None:
                    yield match
                else:
                    bypassed.append(match)
    yield from bypassed
    for op in graph.get_operations():
        end = _own_end(op)
        layer = layer_of(op)
        if end and layer is not None and layer not in found:
            found[layer] = _Match(layer, op)
            yield found[layer]


def _own_end(op: Operation) -> bool:
    """Whether an op adds a layer's bias, or the rest of a folded batch normalization."""
    return op.type == "BiasAdd" or op.name.endswith("add_fold")


def _with_activation(op: Operation) -> _Match | None:
    """A layer before an activation, alone or added to another."""
    before = op.inputs[0].op
    layer = layer_of(before)
    if layer is not None:
        return _Match(layer, before, op)
    if before.type not in _ADDITIONS:
        return None
    sides = [tensor.op for tensor in before.inputs]
    for side in sides:
        if side.type in LAYERS and layer_of(side) is not None:
            return _Match(side, before, op)  # what is added to a layer without a bias counts as one
    for side in sides:
        layer = layer_of(side)
        if layer is not None:
            return _Match(layer, side, op, before)
    return None


# ---- how ---------------------------------------------------------------------------------------


def _quantize(match: _Match, ways: _Ways) -> None:
    context = context_of(match.layer)
    _insert(match.layer.inputs[1], [match.layer], context, "weights_quant", ways, weights=True)
    if match.bypass is not None:
        _insert(match.end.outputs[0], None, context, "conv_quant", ways)
    output = match.activation or match.end
    within = context if match.bypass is None else context_of(match.bypass)
    _insert(output.outputs[0], None, within, "act_quant", ways)


def _insert(
    tensor: Tensor, consumers: list[Operation] | None, context: str, name: str, ways: _Ways, weights: bool = False
) -> None:
    """Rounds a tensor for some of its consumers, by default for all."""
    consumers = list(tensor.consumers()) if consumers is None else consumers
    bits = ways.weight_bits if weights else ways.activation_bits
    with variable_scope(None, default_name=f"{context}/{name}" if context else name):
        least = 0.0 if name == "act_quant" else -6.0
        ends = [get_variable(end, [], initializer=Constant(value), trainable=False)
                for end, value in (("min", least), ("max", 6.0))]  # fmt: skip
        limits: list[Any] = ends
        if ways.trains:
            limits = _moved(ends, _range(tensor, bits, weights, ways.symmetric), weights)
        rounded: Tensor = fake_quant_with_min_max_vars(tensor, limits[0], limits[1], bits, weights)
        if ways.quant_delay and ways.quant_delay > 0:
            begun = greater_equal(quantization_step(), ways.quant_delay, name="activate_quant")
            rounded = cond(begun, lambda: rounded, lambda: tensor, name="delayed_quant")
    rewire(tensor, rounded, consumers)


def _range(tensor: Tensor, bits: int, weights: bool, symmetric: bool) -> list[Tensor]:
    """The least and the largest value, with zero between them, or of one size."""
    low, high = reduce_min(tensor, name="BatchMin"), reduce_max(tensor, name="BatchMax")
    if not symmetric:
        return [minimum(low, 0.0), maximum(high, 0.0)]
    # Without the lowest integer both sides have as many; with it the lower side has one more.
    ratio = -1.0 if weights else -((1 << bits) - 2) / (1 << bits)
    return [minimum(low, divide(high, ratio)), maximum(high, multiply(low, ratio))]


def _moved(ends: list[Any], found: list[Tensor], weights: bool) -> list[Tensor]:
    """The ends after a step: those of the weights as they are, those of activations in moving averages."""
    if weights:
        return [end.assign(value, name=f"Assign{name}Last") for end, value, name in zip(ends, found, ("Min", "Max"))]
    return [assign_moving_average(end, value, _DECAY, name=f"Assign{name}Ema")
            for end, value, name in zip(ends, found, ("Min", "Max"))]  # fmt: skip
