"""``tf.contrib.model_pruning``: the schedule by which masks of weights change, and graphs without masks."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.compat import tf_logging
from tfmini.compat.graph_functions import convert_variables_to_constants
from tfmini.compat.hparams import HParams
from tfmini.export import export
from tfmini.graph.graph import Graph
from tfmini.graph.graph_util import extract_sub_graph
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import control_dependencies, name_scope
from tfmini.layers.contrib.pruning import MASKED_NAME, get_masks, get_thresholds, get_weight_sparsity, get_weights
from tfmini.ops.array.constant import make_ndarray, make_tensor_proto
from tfmini.ops.array.gather import gather
from tfmini.ops.array.identity import cast
from tfmini.ops.array.layout import tile
from tfmini.ops.array.shape import reshape, squeeze
from tfmini.ops.array.shape import size as size_of
from tfmini.ops.control import group, no_op
from tfmini.ops.flow.cond import cond
from tfmini.ops.math.comparison import greater_equal, less, less_equal, logical_and, logical_or
from tfmini.ops.math.elementwise import add, divide, maximum, minimum, multiply, subtract
from tfmini.ops.math.search import top_k
from tfmini.ops.math.sums import add_n
from tfmini.ops.math.unary import abs as absolute
from tfmini.ops.math.unary import pow as power
from tfmini.ops.math.unary import round as round_of
from tfmini.ops.nn.pooling import avg_pool, max_pool
from tfmini.ops.summary import scalar
from tfmini.ops.variables.initializers import Zeros
from tfmini.ops.variables.scope import get_variable, variable_scope
from tfmini.protos import GraphDef
from tfmini.runtime.client.session import Session
from tfmini.train.checkpointing.graph_files import latest_checkpoint
from tfmini.train.checkpointing.saver import import_meta_graph
from tfmini.train.global_steps import get_global_step
from tfmini.train.slim_learning import train as slim_train
from tfmini.train.slim_learning import train_step


@export("tf.contrib.model_pruning.get_pruning_hparams")
def get_pruning_hparams() -> HParams:
    """What `Pruning` does by default, hyperparameters to change (``tf.contrib.model_pruning.get_pruning_hparams``)."""
    return HParams(
        name="model_pruning", begin_pruning_step=0, end_pruning_step=-1, weight_sparsity_map=[""], block_dims_map=[""],
        threshold_decay=0.0, pruning_frequency=10, nbins=256, block_height=1, block_width=1,
        block_pooling_function="AVG", initial_sparsity=0.0, target_sparsity=0.5, sparsity_function_begin_step=0,
        sparsity_function_end_step=100, sparsity_function_exponent=3.0, use_tpu=False,
    )  # fmt: skip


@export("tf.contrib.model_pruning.Pruning")
class Pruning:
    """Masks the smallest weights, more and more of them by a schedule (``tf.contrib.model_pruning.Pruning``).

    The part of masked weights goes from ``initial_sparsity`` at ``sparsity_function_begin_step`` to
    ``target_sparsity`` at ``sparsity_function_end_step``, as target + (initial - target) (1 - done) **
    ``sparsity_function_exponent``. Masks change every ``pruning_frequency`` steps from ``begin_pruning_step`` to
    ``end_pruning_step`` (-1: always).

    Args:
      spec: hyperparameters, those of `get_pruning_hparams` by default. ``weight_sparsity_map`` has other targets of
        single weights, ["name:0.9"], in whose names a regular expression is; ``block_height`` and ``block_width``
        mask matrices by blocks, by their mean or largest (``block_pooling_function`` MAX) size; -1 is the whole side;
        ``block_dims_map`` has those of single weights, ["name:2x4"].
      global_step: default the graph's.
      sparsity: a scalar in place of the schedule.

    Raises:
      ValueError: for a schedule that is not one.
    """

    def __init__(self, spec: HParams | None = None, global_step: Any = None, sparsity: Any = None) -> None:
        given: Any = spec or get_pruning_hparams()
        self._spec = given
        self._check()
        self._targets = dict(_pairs(self._spec.weight_sparsity_map))
        if any(float(target) > 1.0 for target in self._targets.values()):
            raise ValueError("Weight sparsity can not exceed 1.0")
        self._blocks = {name: _block(name, text) for name, text in _pairs(self._spec.block_dims_map)}
        self._step = cast(get_global_step() if global_step is None else global_step, dtypes.int32)
        self._sparsity = self._scheduled() if sparsity is None else sparsity
        with variable_scope(self._spec.name, use_resource=self._spec.use_tpu):
            self._last = get_variable(
                "last_mask_update_step", [], dtypes.int32, initializer=Zeros(dtype=dtypes.int32), trainable=False
            )
        self._assigned: list[Operation] = []

    def _check(self) -> None:
        spec = self._spec
        first, last = spec.begin_pruning_step, spec.end_pruning_step
        if first < 0:
            raise ValueError("Illegal value for begin_pruning_step")
        if first >= last and last != -1:
            raise ValueError(
                f"Pruning must begin before it can end. begin_step={first}, end_step={last}."
                "Set end_pruning_step to -1 if pruning is required till training stops"
            )
        if spec.sparsity_function_begin_step >= spec.sparsity_function_end_step:
            raise ValueError("Sparsity function requires begin_step < end_step")
        for name in ("threshold_decay", "initial_sparsity", "target_sparsity"):
            if not 0.0 <= getattr(spec, name) < 1.0:
                raise ValueError(f"{name} must be in range [0,1)")

    def _scheduled(self) -> Tensor:
        spec = self._spec
        first, last = spec.sparsity_function_begin_step, spec.sparsity_function_end_step
        with name_scope(spec.name):
            done = divide(cast(subtract(self._step, first), dtypes.float32), float(last - first))
            left = subtract(1.0, minimum(1.0, maximum(0.0, done)))
            wide = multiply(
                spec.initial_sparsity - spec.target_sparsity, power(left, float(spec.sparsity_function_exponent))
            )
            return add(wide, spec.target_sparsity, name="sparsity")

    def conditional_mask_update_op(self) -> Tensor:
        """Changes the masks in the steps where the schedule says so; a scalar that tells whether it did."""
        spec = self._spec
        with name_scope(spec.name):
            within = logical_and(
                greater_equal(self._step, spec.begin_pruning_step),
                logical_or(less_equal(self._step, spec.end_pruning_step), less(spec.end_pruning_step, 0)),
            )
            due = logical_and(within, less_equal(add(self._last, spec.pruning_frequency), self._step))

        def updated() -> Operation:
            with control_dependencies([self.mask_update_op()]):
                return no_op()

        return cond(due, updated, no_op)  # type: ignore[no-any-return]

    def mask_update_op(self) -> Operation:
        """Changes the masks for the present step."""
        with name_scope(self._spec.name):
            if not self._assigned:
                self._assigned = [op for parts in zip(get_masks(), get_thresholds(), get_weights(), strict=True)
                                  for op in self._assignments(*parts)]  # fmt: skip
            with control_dependencies(self._assigned):
                last = self._last.assign(self._step, name="last_mask_update_step_assign")
            return group(*self._assigned, last, name="mask_update")

    def _assignments(self, mask: Any, threshold: Any, weights: Any) -> list[Any]:
        flat = squeeze(weights)
        height, width = self._match(self._blocks, weights) or (self._spec.block_height, self._spec.block_width)
        blocks = flat.shape.ndims == 2 and (height, width) != (1, 1)
        with name_scope(f"{weights.op.name}_pruning_ops"):
            limit, kept = (self._kept_blocks(weights, flat, threshold, height, width)
                           if blocks else self._kept(weights, absolute(weights), threshold))  # fmt: skip
        return [
            variable.assign(value, name=f"{variable.op.name}_assign")
            for variable, value in ((threshold, limit), (mask, kept))
        ]

    def _kept(self, weights: Any, sizes: Tensor, threshold: Any) -> tuple[Tensor, Tensor]:
        """The new threshold of sizes of weights, and which ones reach it."""
        decay = self._spec.threshold_decay
        kept = cast(size_of(sizes), dtypes.float32) * (1.0 - self._target(weights))
        ordered, _ = top_k(reshape(sizes, [-1]), k=size_of(sizes))
        present = gather(ordered, cast(round_of(kept), dtypes.int32) - 1)
        limit = add_n([multiply(present, 1.0 - decay), multiply(threshold, decay)])
        return limit, cast(greater_equal(sizes, limit), sizes.dtype)

    def _kept_blocks(
        self, weights: Any, matrix: Tensor, threshold: Any, height: int, width: int
    ) -> tuple[Tensor, Tensor]:
        sides: Any = matrix.shape.as_list()
        window = [side if of == -1 else of for of, side in zip((height, width), sides)]
        sizes = reshape(absolute(matrix), [1, *sides, 1])
        # TensorFlow takes the mean for any name but MAX.
        pool = max_pool if self._spec.block_pooling_function == "MAX" else avg_pool
        pooled = squeeze(pool(sizes, [1, *window, 1], [1, *window, 1], "SAME", name="pool"), [0, 3])
        limit, kept = self._kept(weights, pooled, threshold)
        rows, columns = map(int, kept.shape)
        wide = tile(reshape(kept, [rows, 1, columns, 1]), [1, window[0], 1, window[1]])
        spread = reshape(wide, [rows * window[0], columns * window[1]])
        return limit, reshape(spread[: sides[0], : sides[1]], weights.shape)

    def _target(self, weights: Any) -> Any:
        """The part of these weights to mask now."""
        target = self._match(self._targets, weights)
        if target is None:
            return self._sparsity
        return multiply(self._sparsity, divide(float(target), self._spec.target_sparsity))

    def _match(self, known: dict[str, Any], weights: Any) -> Any:
        found = [name for name in known if re.search(name, weights.op.name)]
        if len(found) > 1:
            raise ValueError(f"Multiple matches in weight_sparsity_map for weight {weights.op.name}")
        return known[found[0]] if found else None

    def add_pruning_summaries(self) -> None:
        """Makes summaries of the sparsity, of each mask's and of the thresholds."""
        with name_scope(f"{self._spec.name}_summaries"):
            scalar("sparsity", self._sparsity)
            scalar("last_mask_update_step", self._last)
            masks, thresholds, found = get_masks(), get_thresholds(), get_weight_sparsity()
            for mask, threshold, sparsity in zip(masks, thresholds, found, strict=True):
                scalar(f"{mask.op.name}/sparsity", sparsity)
                scalar(f"{threshold.op.name}/threshold", threshold)

    def print_hparams(self) -> None:
        """Logs the hyperparameters."""
        tf_logging.info(self._spec.to_json())


def _pairs(texts: list[str]) -> list[tuple[str, str]]:
    """The names and values of a list of "name:value"."""
    pairs = []
    for text in filter(None, texts):
        name, colon, value = text.partition(":")
        if not colon or ":" in value:
            raise ValueError(f"Expected name:value, got {text!r}.")
        pairs.append((name, value))
    return pairs


def _block(name: str, text: str) -> tuple[int, ...]:
    sides = text.split("x")
    if len(sides) != 2:
        raise ValueError(f"Expected 2 values for block dim for {name}, got {sides}")
    return tuple(map(int, sides))


# ---- graphs without masks ----------------------------------------------------------------------


@export("tf.contrib.model_pruning.strip_pruning_vars_fn")
def strip_pruning_vars_fn(input_graph_def: GraphDef, output_node_names: list[str]) -> Any:
    """A graph of constants without masks, whose weights are those under the masks (``….strip_pruning_vars_fn``).

    Args:
      input_graph_def: as `tf.graph_util.convert_variables_to_constants` makes it.
      output_node_names: what the graph computes; nothing else is left.
    """
    nodes = {node.name: node for node in input_graph_def.node}
    made: Any = type(input_graph_def)()
    made.CopyFrom(input_graph_def)
    for node in made.node:
        if MASKED_NAME in node.name and node.op == "Mul":
            value = np.multiply(*(_constant(nodes, name) for name in node.input))
            node.ClearField("input")
            node.ClearField("attr")
            node.op = "Const"
            node.attr["dtype"].type = dtypes.as_dtype(value.dtype).as_datatype_enum
            node.attr["value"].tensor.CopyFrom(make_tensor_proto(value))
    return extract_sub_graph(made, output_node_names)


def _constant(nodes: dict[str, Any], name: str) -> np.ndarray[Any, Any]:
    """The value of a constant, behind copies of it."""
    node = nodes[name.partition(":")[0]]
    if node.op == "Const":
        return make_ndarray(node.attr["value"].tensor)
    if node.op != "Identity":
        raise ValueError(f"{node.name} is a {node.op}, not a constant: convert the variables to constants first.")
    return _constant(nodes, node.input[0])


@export("tf.contrib.model_pruning.graph_def_from_checkpoint")
def graph_def_from_checkpoint(checkpoint_dir: str, output_node_names: list[str]) -> Any:
    """The graph of the last checkpoint in a folder, its variables as constants (``….graph_def_from_checkpoint``).

    Raises:
      ValueError: when there is no checkpoint.
    """
    path = latest_checkpoint(checkpoint_dir)
    if path is None:
        raise ValueError(f"Could not find a checkpoint at: {checkpoint_dir}.")
    with Graph().as_default() as graph, Session() as sess:
        saver: Any = import_meta_graph(path + ".meta", clear_devices=True)
        saver.restore(sess, path)
        return convert_variables_to_constants(sess, graph.as_graph_def(), output_node_names)


@export("tf.contrib.model_pruning.train")
def train(train_op: Any, logdir: str | None, mask_update_op: Any, **kwargs: Any) -> Any:
    """Trains as `tf.contrib.slim.learning.train`, and changes masks after each step (``….model_pruning.train``)."""
    step = kwargs.pop("train_step_fn", train_step)

    def stepped(sess: Any, *args: Any) -> Any:
        found = step(sess, *args)
        sess.run(mask_update_op)
        return found

    return slim_train(train_op, logdir, train_step_fn=stepped, **kwargs)
