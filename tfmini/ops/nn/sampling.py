"""Samplers of negative classes: uniform, log-uniform, learned and given unigrams (``tf.nn.*_candidate_sampler``).

A sampler without repetition draws until it has enough distinct classes. The expected counts follow from the number
of draws, as in TensorFlow.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.checkpoint.files import local_path
from tfmini.core_types import Array, TensorLike
from tfmini.errors import naming_file
from tfmini.export import export
from tfmini.graph.families import Operation, OpHandle, Tensor, all_of, convert_to_tensor, name_scope, op
from tfmini.graph.node import Node
from tfmini.graph.scoping import count_ops
from tfmini.memory import check_room
from tfmini.numerics import philox
from tfmini.ops.array import shape as array_shape
from tfmini.ops.array.filling import ones_like, zeros_like
from tfmini.ops.array.identity import cast, stop_gradient
from tfmini.ops.array.joining import concat, stack
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.array.slicing import getitem
from tfmini.ops.array.slicing import slice as slice_tensor
from tfmini.ops.math.matmul import matmul
from tfmini.ops.math.reductions import reduce_sum
from tfmini.ops.math.unary import log
from tfmini.ops.nn.cross_entropy import sigmoid_cross_entropy_with_logits, softmax_cross_entropy_with_logits
from tfmini.ops.nn.embedding import embedding_lookup
from tfmini.ops.random_functions import seed_attrs
from tfmini.ops.random_ops import generators
from tfmini.ops.sparse.layout import to_dense_op
from tfmini.shapes import RawShape, with_rank

_SIGNATURE = (
    "(true_classes: int64) -> sampled_candidates: int64, true_expected_count: float, sampled_expected_count: float;"
    " num_true: int >= 1; num_sampled: int >= 1; unique: bool; "
)
_SEEDS = "seed: int = 0; seed2: int = 0"
_RANGE = _SIGNATURE + "range_max: int >= 1; "
uniform_op = op("UniformCandidateSampler" + _RANGE + _SEEDS, stateful=True, differentiable=False)
log_uniform_op = op("LogUniformCandidateSampler" + _RANGE + _SEEDS, stateful=True, differentiable=False)
learned_op = op("LearnedUnigramCandidateSampler" + _RANGE + _SEEDS, stateful=True, differentiable=False)
all_op = op("AllCandidateSampler" + _SIGNATURE + _SEEDS, stateful=True, differentiable=False)
fixed_op = op(
    "FixedUnigramCandidateSampler" + _RANGE + "vocab_file: string = ''; distortion: float = 1.0;"
    " num_reserved_ids: int = 0; num_shards: int >= 1 = 1; shard: int >= 0 = 0; unigrams: list(float) = []; " + _SEEDS,
    stateful=True, differentiable=False,
)  # fmt: skip
hits_op: OpHandle[Any] = op(
    "ComputeAccidentalHits(true_classes: int64, sampled_candidates: int64)"
    f" -> indices: int32, ids: int64, weights: float; num_true: int; {_SEEDS}",
    differentiable=False,
)


@all_of(uniform_op, log_uniform_op, learned_op, fixed_op, all_op).shape
def _sampler_shape(node: Operation) -> list[RawShape]:
    if node.attrs["num_sampled"] < 1:
        raise ValueError("num_sampled must be >= 1")
    batch = with_rank(node.inputs[0].raw_shape, 2)[0]
    count = node.attrs["num_sampled"]
    return [(count,), (batch, node.attrs["num_true"]), (count,)]


MANY_TRIES = 1 << 20
MOST_WEIGHT = 2**31 - 1


# Gives the next words of a stream: uint32 [count].
Take = Callable[[int], Any]


class _Distribution:
    """A distribution of classes.

    Args:
      probabilities: of the classes, or weights that are proportional to them.
      pick: draws a number of classes from words, as TensorFlow's sampler does; else they are drawn by inversion.

    Raises:
      InvalidArgumentError: for probabilities that are none.
    """

    def __init__(self, probabilities: Array, pick: Callable[[Take, int], Any] | None = None) -> None:
        if not (np.isfinite(probabilities).all() and (probabilities >= 0).all() and probabilities.any()):
            refuse("The weights of the classes must be finite, not negative, and not all 0")
        self.probabilities = probabilities
        self.draw = pick or partial(_by_inversion, np.cumsum(probabilities))

    def of(self, classes: Array) -> Any:
        inside = (classes >= 0) & (classes < len(self.probabilities))
        return np.where(inside, self.probabilities[np.where(inside, classes, 0)], 0.0)


def _by_inversion(sums: Array, take: Take, count: int) -> Any:
    found = np.searchsorted(sums, philox.doubles_of(take(2 * count)) * sums[-1], "right")
    return np.minimum(found, len(sums) - 1)


def _sample(distribution: _Distribution, take: Take, count: int, unique: bool) -> tuple[Any, int]:
    """``count`` classes, and the number of draws."""
    if not unique:
        return distribution.draw(take, count), count
    chosen: dict[int, None] = {}
    tries = 0
    while len(chosen) < count:
        if tries > MANY_TRIES:  # the rest is so rare that drawing would not end; these draws are not counted
            rest = distribution.probabilities.copy()
            rest[list(chosen)] = 0.0
            distribution = _Distribution(rest / rest.sum())
        for found in distribution.draw(take, max(count, 64)).tolist():
            tries += 1
            chosen.setdefault(found)
            if len(chosen) == count:
                break
    return np.fromiter(chosen, np.int64, count), tries


def _expected(probability: Array, count: int, tries: int) -> Any:
    """The expected count of a class among the samples: p * n, or 1 - (1 - p) ** tries without repetition."""
    if tries == count:
        return (probability * count).astype(np.float32)
    return (-np.expm1(tries * np.log1p(-np.minimum(probability, 1.0 - 1e-12)))).astype(np.float32)


def _attach(handle: OpHandle, make: Callable[[Any], _Distribution], learns: bool = False) -> None:
    @handle.kernel_factory("CPU")
    def factory(node: Node) -> Callable[[Any], tuple[Any, ...]]:
        attrs = node.attrs
        distribution = make(attrs)
        count, unique = attrs["num_sampled"], attrs["unique"]
        possible = np.count_nonzero(distribution.probabilities)
        if unique and count > possible:
            refuse(f"Sampler's range is too small: num_sampled {count} > range {possible}")
        check_room((count,), 32)  # of words, draws and results
        words, lock = _word_source(node, count), threading.Lock()
        weights = np.ones(len(distribution.probabilities), np.int64)

        def kernel(true_classes: Array) -> tuple[Any, ...]:
            if true_classes.ndim != 2:
                refuse("true_classes must be a matrix")
            if true_classes.shape[1] != attrs["num_true"]:
                refuse(
                    f"true_classes must have num_true columns, expected: {true_classes.shape[1]}"
                    f" was: {attrs['num_true']}"
                )
            with lock:
                now = _learned(weights) if learns else distribution
                sampled, tries = _sample(now, words(), count, unique)
                if learns:
                    # As in TensorFlow, whose sum of all weights is an int32.
                    np.add.at(weights, np.ravel(true_classes)[: max(0, MOST_WEIGHT - int(weights.sum()))], 1)
            sampled = sampled.astype(np.int64)
            return (
                sampled,
                _expected(now.of(true_classes), count, tries),
                _expected(now.of(sampled), count, tries),
            )

        return kernel


def _word_source(node: Node, count: int) -> Callable[[], Take]:
    """The words of one call after the other: TensorFlow's for a node with a seed."""
    seeded, free = generators(node)
    if seeded is None:
        return lambda: lambda size: free.integers(1 << 32, size=size, dtype=np.uint32)
    return lambda: philox.WordStream(seeded, seeded.reserve(2 * philox.RESERVED_PER_OUTPUT * count)).take


def _log_uniform(attrs: Mapping[str, Any]) -> _Distribution:
    size = attrs["range_max"]
    check_room((size,), 32)
    classes, whole = np.arange(size, dtype=np.float64), np.log1p(size)

    def pick(take: Take, count: int) -> Any:
        return (np.exp(philox.doubles_of(take(2 * count)) * whole).astype(np.int64) - 1) % size

    return _Distribution((np.log(classes + 2.0) - np.log(classes + 1.0)) / whole, pick)


def _learned(weights: Array) -> _Distribution:
    sums = np.cumsum(weights)
    total = int(sums[-1])
    return _Distribution(
        weights / total, lambda take, count: np.searchsorted(sums, philox.below(take, count, total, 32), "right")
    )


def _fixed(attrs: Mapping[str, Any]) -> _Distribution:
    weights = _file_weights(attrs["vocab_file"]) if attrs["vocab_file"] else list(attrs["unigrams"])
    if not weights:
        refuse("Must provide either vocab_file or unigrams.")
    reserved = attrs["num_reserved_ids"]
    if reserved < 0 or reserved + len(weights) != attrs["range_max"]:
        refuse(f"range_max is {attrs['range_max']}, but there are {len(weights)} weights and {reserved} reserved ids")
    check_room((attrs["range_max"],), 16)
    table = np.zeros(attrs["range_max"])
    table[reserved:] = [float(w) ** attrs["distortion"] for w in weights]
    table[np.arange(len(table)) % attrs["num_shards"] != attrs["shard"]] = 0.0
    with np.errstate(invalid="ignore"):
        probabilities = table / table.sum()
    return _Distribution(probabilities, _Alias(table).pick if np.isfinite(probabilities).all() else None)


class _Alias:
    """Walker's method of aliases, in the order in which TensorFlow pairs the classes."""

    def __init__(self, weights: Array) -> None:
        narrow, size = weights.astype(np.float32), len(weights)
        shares = ((narrow * np.float32(size)).astype(np.float64) / narrow.sum(dtype=np.float64)).tolist()
        others = list(range(size))
        low = [i for i, share in enumerate(shares) if share < 1.0]
        high = [i for i, share in enumerate(shares) if share >= 1.0]
        while low and high:
            few, many = low.pop(), high.pop()
            others[few] = many
            shares[many] -= 1.0 - shares[few]
            (low if shares[many] < 1.0 else high).append(many)
        for i in low + high:  # all but 1, for rounding
            shares[i] = 1.0
        self._shares, self._others = np.array(shares, np.float32), np.array(others)

    def pick(self, take: Take, count: int) -> Any:
        """Takes a word for a share and one for a class, again and again.

        TensorFlow takes another word in place of one in ``2**32 / classes``, so that classes are equally likely.
        """
        pairs = take(2 * count).reshape(-1, 2)
        at = (pairs[:, 1] % np.uint32(len(self._shares))).astype(np.intp)
        return np.where(philox.float32_of(pairs[:, 0]) < self._shares[at], at, self._others[at])


def _even(attrs: Mapping[str, Any]) -> _Distribution:
    size = attrs["range_max"]
    check_room((size,), 32)
    pick = partial(philox.below, limit=size, bits=64)
    return _Distribution(np.full(size, 1.0 / size), lambda take, count: pick(take, count).astype(np.int64))


def _file_weights(name: bytes) -> list[float]:
    """The last comma-separated column of each line."""
    with naming_file(name), open(local_path(os.fsdecode(name)), encoding="utf-8") as file:
        return [float(line.rstrip("\n").rsplit(",", 1)[-1]) for line in file if line.strip()]


_attach(uniform_op, _even)
_attach(log_uniform_op, _log_uniform)
_attach(learned_op, _even, learns=True)
_attach(fixed_op, _fixed)


@all_op.kernel("CPU")
def _all_kernel(true_classes: Array, *, num_sampled: int, num_true: int) -> tuple[Any, ...]:
    if true_classes.ndim != 2 or true_classes.shape[1] != num_true:
        refuse(f"true_classes must be a matrix with {num_true} columns, got shape {list(true_classes.shape)}")
    check_room((num_sampled,), 16)
    ones = np.ones(num_sampled, np.float32)
    return np.arange(num_sampled, dtype=np.int64), np.ones(true_classes.shape, np.float32), ones


# ---- accidental hits ------------------------------------------------------------------------


@hits_op.shape
def _hits_shape(node: Operation) -> list[RawShape]:
    merged = with_rank(node.inputs[0].raw_shape, 2)
    if merged[1] is not None and merged[1] != node.attrs["num_true"]:
        raise ValueError(f"Dimension 1 in both shapes must be equal, but are {merged[1]} and {node.attrs['num_true']}")
    with_rank(node.inputs[1].raw_shape, 1)
    return [(None,), (None,), (None,)]


@hits_op.kernel("CPU")
def _hits_kernel(true_classes: Array, sampled: Array, *, num_true: int) -> tuple[Any, ...]:
    if true_classes.ndim != 2 or true_classes.shape[1] != num_true:
        refuse(f"true_candidates must be a batch_size * num_true matrix, got shape {list(true_classes.shape)}")
    order = np.argsort(sampled, kind="stable")
    if not sampled.size:
        return np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.float32)
    last = np.searchsorted(sampled[order], true_classes.ravel(), "right") - 1  # of a class that was drawn repeatedly
    found = np.flatnonzero((last >= 0) & (sampled[order[last]] == true_classes.ravel()))
    rows, ids = (found // num_true).astype(np.int32), order[last[found]].astype(np.int64)
    return rows, ids, np.full(len(rows), -np.finfo(np.float32).max, np.float32)


# ---- public functions -----------------------------------------------------------------------


@export("tf.nn.uniform_candidate_sampler", "tf.random.uniform_candidate_sampler")
def uniform_candidate_sampler(
    true_classes: TensorLike, num_true: int, num_sampled: int, unique: bool, range_max: int, seed: int | None = None,
    name: str | None = None,
) -> Any:  # fmt: skip
    """Classes of equal probability (``tf.nn.uniform_candidate_sampler``).

    Args:
      true_classes: int64 [batch, num_true].
      num_true: target classes per example.
      num_sampled: the number of classes to draw.
      unique: whether they must be distinct.
      range_max: classes are in [0, range_max).
      seed: makes the draws reproducible.
      name: of the op.

    Returns:
      (sampled classes [num_sampled], expected counts of the true classes, expected counts of the sampled classes).
    """
    return uniform_op(
        true_classes, num_true=num_true, num_sampled=num_sampled, unique=unique, range_max=range_max, name=name,
        **seed_attrs(seed),
    )  # fmt: skip


@export("tf.nn.log_uniform_candidate_sampler", "tf.random.log_uniform_candidate_sampler")
def log_uniform_candidate_sampler(
    true_classes: TensorLike, num_true: int, num_sampled: int, unique: bool, range_max: int, seed: int | None = None,
    name: str | None = None,
) -> Any:  # fmt: skip
    """Classes by Zipf's law, for classes ordered by frequency (``tf.nn.log_uniform_candidate_sampler``)."""
    return log_uniform_op(
        true_classes, num_true=num_true, num_sampled=num_sampled, unique=unique, range_max=range_max, name=name,
        **seed_attrs(seed),
    )  # fmt: skip


@export("tf.nn.learned_unigram_candidate_sampler", "tf.random.learned_unigram_candidate_sampler")
def learned_unigram_candidate_sampler(
    true_classes: TensorLike, num_true: int, num_sampled: int, unique: bool, range_max: int, seed: int | None = None,
    name: str | None = None,
) -> Any:  # fmt: skip
    """Classes by their frequency among the true classes so far (``tf.nn.learned_unigram_candidate_sampler``)."""
    return learned_op(
        true_classes, num_true=num_true, num_sampled=num_sampled, unique=unique, range_max=range_max, name=name,
        **seed_attrs(seed),
    )  # fmt: skip


@export("tf.nn.fixed_unigram_candidate_sampler", "tf.random.fixed_unigram_candidate_sampler")
def fixed_unigram_candidate_sampler(
    true_classes: TensorLike, num_true: int, num_sampled: int, unique: bool, range_max: int, vocab_file: str = "",
    distortion: float = 1.0, num_reserved_ids: int = 0, num_shards: int = 1, shard: int = 0,
    unigrams: Sequence[float] = (), seed: int | None = None, name: str | None = None,
) -> Any:  # fmt: skip
    """Classes by weights raised to the power ``distortion`` (``tf.nn.fixed_unigram_candidate_sampler``).

    Args:
      vocab_file: a file whose lines end with the weight, after a comma; or
      unigrams: the weights themselves.
      num_reserved_ids: the number of first classes that are never drawn.
      num_shards, shard: draw only classes c with c % num_shards == shard.
    """
    return fixed_op(
        true_classes, num_true=num_true, num_sampled=num_sampled, unique=unique, range_max=range_max,
        vocab_file=vocab_file, distortion=distortion, num_reserved_ids=num_reserved_ids, num_shards=num_shards,
        shard=shard, unigrams=list(unigrams), name=name, **seed_attrs(seed),
    )  # fmt: skip


@export("tf.nn.all_candidate_sampler", "tf.random.all_candidate_sampler")
def all_candidate_sampler(
    true_classes: TensorLike,
    num_true: int,
    num_sampled: int,
    unique: bool,
    seed: int | None = None,
    name: str | None = None,
) -> Any:
    """All classes, for checks and comparisons (``tf.nn.all_candidate_sampler``)."""
    return all_op(
        true_classes, num_true=num_true, num_sampled=num_sampled, unique=unique, name=name, **seed_attrs(seed)
    )


@export("tf.nn.compute_accidental_hits")
def compute_accidental_hits(
    true_classes: TensorLike, sampled_candidates: TensorLike, num_true: int, seed: int | None = None,
    name: str | None = None,
) -> Any:  # fmt: skip
    """The sampled classes that are true: (example, sample, the lowest float) (``tf.nn.compute_accidental_hits``)."""
    classes = convert_to_tensor(true_classes, dtypes.int64)
    return hits_op(classes, sampled_candidates, num_true=num_true, name=name, **seed_attrs(seed))


# ---- Losses over sampled classes: noise-contrastive estimation and sampled softmax ---------------------------------


def _looked_up(table: TensorLike, labels: Tensor, sampled: Tensor, strategy: str) -> tuple[Tensor, Tensor]:
    """The rows of the true and of the sampled classes, by one lookup."""
    both = embedding_lookup(table, concat([labels, sampled], 0), partition_strategy=strategy)
    count = getitem(array_shape.shape(labels), 0)
    more = len(both.raw_shape or ()) - 1
    first = slice_tensor(both, [0] * (more + 1), stack([count, *[-1] * more]))
    return first, slice_tensor(both, stack([count, *[0] * more]), [-1] * (more + 1))


def _sampled_logits(
    weights: TensorLike, biases: TensorLike, labels: TensorLike, inputs: TensorLike, num_sampled: int, num_classes: int,
    num_true: int, sampled_values: Sequence[TensorLike] | None, subtract_log_q: bool, remove_accidental_hits: bool,
    partition_strategy: str, name: str | None, seed: int | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Logits and labels, [batch, num_true + num_sampled] each."""
    with name_scope(name, "compute_sampled_logits", [inputs, labels]):
        labels = cast(convert_to_tensor(labels), dtypes.int64)
        inputs = convert_to_tensor(inputs)
        flat = array_shape.reshape(labels, [-1])
        if sampled_values is None:
            sampled_values = log_uniform_candidate_sampler(labels, num_true, num_sampled, True, num_classes, seed)
        sampled, true_counts, sampled_counts = (stop_gradient(v) for v in sampled_values)
        sampled = cast(sampled, dtypes.int64)
        true_w, sampled_w = _looked_up(weights, flat, sampled, partition_strategy)
        true_b, sampled_b = _looked_up(biases, flat, sampled, partition_strategy)
        size = getitem(array_shape.shape(true_w), slice(1, 2))
        rows = array_shape.reshape(true_w, concat([[-1, num_true], size], 0))
        true_logits = reduce_sum(array_shape.expand_dims(inputs, 1) * rows, -1)
        true_logits = true_logits + array_shape.reshape(true_b, [-1, num_true])
        sampled_logits = matmul(inputs, sampled_w, transpose_b=True) + sampled_b
        if remove_accidental_hits:
            sampled_logits = sampled_logits + _hits(labels, sampled, num_true, sampled_logits)
        if subtract_log_q:
            true_logits = true_logits - log(true_counts)
            sampled_logits = sampled_logits - log(sampled_counts)
        logits = concat([true_logits, sampled_logits], 1)
        targets = concat([ones_like(true_logits) / num_true, zeros_like(sampled_logits)], 1)
        count_ops(14 + 9 * remove_accidental_hits)  # sums by products, and shapes
        return logits, targets


def _hits(labels: Tensor, sampled: Tensor, num_true: int, like: Tensor) -> Tensor:
    """The lowest float where a sampled class is a true class of its example, else 0."""
    rows, ids, weights = compute_accidental_hits(labels, sampled, num_true)
    indices = concat([array_shape.reshape(rows, [-1, 1]), array_shape.reshape(cast(ids, dtypes.int32), [-1, 1])], 1)
    found = to_dense_op(indices, array_shape.shape(like), weights, 0.0, validate_indices=False)
    return cast(found, like.dtype.base_dtype)


@export("tf.nn.nce_loss")
def nce_loss(
    weights: TensorLike, biases: TensorLike, labels: TensorLike, inputs: TensorLike, num_sampled: int, num_classes: int,
    num_true: int = 1, sampled_values: Sequence[TensorLike] | None = None, remove_accidental_hits: bool = False,
    partition_strategy: str = "mod", name: str = "nce_loss",
) -> Tensor:  # fmt: skip
    """The noise-contrastive estimation loss of each example (``tf.nn.nce_loss``).

    Args:
      weights: [num_classes, dim], or a list of its parts.
      biases: [num_classes].
      labels: int64 [batch, num_true].
      inputs: [batch, dim].
      num_sampled: the number of negative classes per batch.
      num_classes: the number of all classes.
      num_true: target classes per example.
      sampled_values: the result of a candidate sampler; default: the log-uniform one.
      remove_accidental_hits: ignore sampled classes that are targets.
      partition_strategy: the distribution of ``weights`` over a list; see `embedding_lookup`.
      name: of the scope.
    """
    logits, targets = _sampled_logits(
        weights, biases, labels, inputs, num_sampled, num_classes, num_true, sampled_values, True,
        remove_accidental_hits, partition_strategy, name, None,
    )  # fmt: skip
    losses = sigmoid_cross_entropy_with_logits(labels=targets, logits=logits, name="sampled_losses")
    count_ops(10)  # a sum by a product
    return reduce_sum(losses, -1)


@export("tf.nn.sampled_softmax_loss")
def sampled_softmax_loss(
    weights: TensorLike, biases: TensorLike, labels: TensorLike, inputs: TensorLike, num_sampled: int, num_classes: int,
    num_true: int = 1, sampled_values: Sequence[TensorLike] | None = None, remove_accidental_hits: bool = True,
    partition_strategy: str = "mod", name: str = "sampled_softmax_loss", seed: int | None = None,
) -> Tensor:  # fmt: skip
    """The softmax loss of each example over true and sampled classes (``tf.nn.sampled_softmax_loss``).

    The arguments are those of `nce_loss`; ``seed`` makes the draws reproducible.
    """
    logits, targets = _sampled_logits(
        weights, biases, labels, inputs, num_sampled, num_classes, num_true, sampled_values, True,
        remove_accidental_hits, partition_strategy, name, seed,
    )  # fmt: skip
    targets = stop_gradient(targets, name="labels_stop_gradient")
    count_ops(-1)
    return softmax_cross_entropy_with_logits(labels=targets, logits=logits)
