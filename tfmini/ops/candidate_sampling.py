"""Candidate samplers and the losses that use them: ``tf.nn.nce_loss``, ``tf.nn.sampled_softmax_loss``.

Each sampler op draws classes for the whole batch and tells how often each class, true or drawn, was
to be expected. The streams of random numbers are not TensorFlow's; a seed makes them repeatable.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.errors import InvalidArgumentError
from tfmini.graph.conversion import convert_to_tensor
from tfmini.graph.operation import Operation
from tfmini.graph.registry import OpHandle, op
from tfmini.ops.scoping import get_seed
from tfmini.shapes import RawShape

_OUTPUTS = (
    "(true_classes: int64)"
    " -> sampled_candidates: int64, true_expected_count: float, sampled_expected_count: float\n"
    "    num_true: int >= 1\n    num_sampled: int >= 1\n    unique: bool\n"
)
_SEEDS = "    seed: int = 0\n    seed2: int = 0"

log_uniform_op = op("LogUniformCandidateSampler" + _OUTPUTS + "    range_max: int >= 1\n" + _SEEDS, stateful=True)
uniform_op = op("UniformCandidateSampler" + _OUTPUTS + "    range_max: int >= 1\n" + _SEEDS, stateful=True)
learned_unigram_op = op(
    "LearnedUnigramCandidateSampler" + _OUTPUTS + "    range_max: int >= 1\n" + _SEEDS, stateful=True
)
all_op = op("AllCandidateSampler" + _OUTPUTS + _SEEDS, stateful=True)
accidental_hits_op = op(
    "ComputeAccidentalHits(true_classes: int64, sampled_candidates: int64)"
    " -> indices: int32, ids: int64, weights: float\n    num_true: int\n" + _SEEDS
)
for _handle in (log_uniform_op, uniform_op, learned_unigram_op, all_op, accidental_hits_op):
    _handle.not_differentiable()


@log_uniform_op.shape
@uniform_op.shape
@learned_unigram_op.shape
@all_op.shape
def _sampler_shape(node: Operation) -> list[RawShape]:
    true = node._inputs[0]._shape
    batch = None if true is None else true[0]
    count = node.attrs["num_sampled"]
    return [(count,), (batch, node.attrs["num_true"]), (count,)]


@accidental_hits_op.shape
def _hits_shape(node: Operation) -> list[RawShape]:
    return [(None,), (None,), (None,)]


Sampler = tuple[Callable[[int], np.ndarray], Callable[[np.ndarray], np.ndarray]]


def _generator(node: Any) -> np.random.Generator:
    seed, seed2 = node.attrs["seed"], node.attrs["seed2"]
    if not (seed or seed2):
        return np.random.Generator(np.random.SFC64())
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed % 2**64, seed2 % 2**64])))


def _log_uniform(generator: np.random.Generator, limit: int) -> Sampler:
    """Class k with probability ``log((k + 2) / (k + 1)) / log(limit + 1)``."""
    log_range = np.log1p(limit)

    def draw(count: int) -> Any:
        values = np.exp(generator.random(count) * log_range).astype(np.int64) - 1
        return np.minimum(values, limit - 1)

    return draw, lambda ids: np.log((ids + 2.0) / (ids + 1.0)) / log_range


def _uniform(generator: np.random.Generator, limit: int) -> Sampler:
    return lambda count: generator.integers(0, limit, count), lambda ids: np.full(ids.shape, 1.0 / limit)


def _attach(handle: OpHandle, distribution: Callable[[np.random.Generator, int], Sampler]) -> None:
    @handle.kernel_factory("CPU")
    def _factory(node: Any) -> Callable[[Any], Any]:
        limit, count, unique = (node.attrs[name] for name in ("range_max", "num_sampled", "unique"))
        draw, probability = distribution(_generator(node), limit)

        def sample(true_classes: Any) -> Any:
            _check(true_classes, node.attrs["num_true"], limit, count, unique)
            sampled, tries = _distinct(draw, count) if unique else (draw(count), count)

            def expected(ids: np.ndarray) -> Any:
                chance = probability(ids)
                counts = -np.expm1(tries * np.log1p(-chance)) if unique else chance * tries
                return counts.astype(np.float32)

            return sampled, expected(true_classes), expected(sampled)

        return sample


def _check(true_classes: Any, num_true: int, limit: int, count: int, unique: bool) -> None:
    if np.ndim(true_classes) != 2:
        raise InvalidArgumentError(None, None, "true_classes must be a matrix")
    if true_classes.shape[1] != num_true:
        raise InvalidArgumentError(
            None, None, f"true_classes must have num_true columns, expected: {true_classes.shape[1]} was: {num_true}"
        )
    if unique and count > limit:
        raise InvalidArgumentError(None, None, f"Sampler's range is too small: {limit} classes for {count} samples.")


def _distinct(draw: Callable[[int], np.ndarray], count: int) -> tuple[np.ndarray, int]:
    """``count`` different classes in the order of their first draw, and how many draws that took."""
    found: dict[int, None] = {}
    tries = 0
    while True:
        for value in draw(max(count, 16)).tolist():
            tries += 1
            found.setdefault(value)
            if len(found) == count:
                return np.fromiter(found, np.int64, count), tries


_attach(log_uniform_op, _log_uniform)
_attach(uniform_op, _uniform)


@learned_unigram_op.kernel_factory("CPU")
def _learned_unigram(node: Any) -> Callable[[Any], Any]:
    """Learns how frequent classes are from the true classes it sees, starting from one of each."""
    limit, count, unique = (node.attrs[name] for name in ("range_max", "num_sampled", "unique"))
    generator = _generator(node)
    seen = np.ones(limit, np.float64)

    def sample(true_classes: Any) -> Any:
        _check(true_classes, node.attrs["num_true"], limit, count, unique)
        bounds = np.cumsum(seen)
        chances = seen / bounds[-1]

        def draw(number: int) -> Any:
            return np.searchsorted(bounds, generator.random(number) * bounds[-1], side="right")

        sampled, tries = _distinct(draw, count) if unique else (draw(count), count)

        def expected(ids: np.ndarray) -> Any:
            counts = -np.expm1(tries * np.log1p(-chances[ids])) if unique else chances[ids] * tries
            return counts.astype(np.float32)

        result = sampled.astype(np.int64), expected(true_classes), expected(sampled)
        np.add.at(seen, true_classes.ravel(), 1.0)
        return result

    return sample


@all_op.kernel_factory("CPU")
def _all(node: Any) -> Callable[[Any], Any]:
    count = node.attrs["num_sampled"]

    def sample(true_classes: Any) -> Any:
        ones = np.ones(np.shape(true_classes), np.float32)
        return np.arange(count, dtype=np.int64), ones, np.ones(count, np.float32)

    return sample


@accidental_hits_op.kernel("CPU")
def _accidental_hits(true_classes: Any, sampled_candidates: Any, *, num_true: int, seed: int, seed2: int) -> Any:
    rows, _, ids = np.nonzero(true_classes[:, :, None] == sampled_candidates[None, None, :])
    weights = np.full(len(rows), -np.finfo(np.float32).max, np.float32)
    return rows.astype(np.int32), ids.astype(np.int64), weights


# ---- public functions ---------------------------------------------------------------------------

Samples = tuple[Any, Any, Any]


def _sampled(handle: OpHandle, true_classes: Any, seed: int | None, name: str | None, **attrs: Any) -> Samples:
    first, second = get_seed(seed)
    found = handle(
        convert_to_tensor(true_classes, dtype=dtypes.int64), seed=first or 0, seed2=second or 0, name=name, **attrs
    )
    return found[0], found[1], found[2]


def log_uniform_candidate_sampler(
    true_classes: Any,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    seed: int | None = None,
    name: str | None = None,
) -> Samples:
    """Draws classes, frequent ones (small numbers) more often (``tf.nn.log_uniform_candidate_sampler``).

    Args:
      true_classes: int64 ``[batch, num_true]``.
      num_sampled: how many to draw.
      unique: whether no class may be drawn twice.
      range_max: the number of classes.

    Returns:
      (int64 ``[num_sampled]``, expected counts float32 of the true and of the drawn classes).
    """
    return _sampled(
        log_uniform_op, true_classes, seed, name, num_true=num_true, num_sampled=num_sampled, unique=unique,
        range_max=range_max,
    )  # fmt: skip


def uniform_candidate_sampler(
    true_classes: Any,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    seed: int | None = None,
    name: str | None = None,
) -> Samples:
    """Draws classes evenly (``tf.nn.uniform_candidate_sampler``); see `log_uniform_candidate_sampler`."""
    return _sampled(
        uniform_op, true_classes, seed, name, num_true=num_true, num_sampled=num_sampled, unique=unique,
        range_max=range_max,
    )  # fmt: skip


def learned_unigram_candidate_sampler(
    true_classes: Any,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    seed: int | None = None,
    name: str | None = None,
) -> Samples:
    """Draws classes as often as they were true so far (``tf.nn.learned_unigram_candidate_sampler``)."""
    return _sampled(
        learned_unigram_op, true_classes, seed, name, num_true=num_true, num_sampled=num_sampled, unique=unique,
        range_max=range_max,
    )  # fmt: skip


def all_candidate_sampler(
    true_classes: Any, num_true: int, num_sampled: int, unique: bool, seed: int | None = None, name: str | None = None
) -> Samples:
    """All classes (``tf.nn.all_candidate_sampler``)."""
    return _sampled(all_op, true_classes, seed, name, num_true=num_true, num_sampled=num_sampled, unique=unique)


def compute_accidental_hits(
    true_classes: Any, sampled_candidates: Any, num_true: int, seed: int | None = None, name: str | None = None
) -> Samples:
    """Where drawn classes are true ones (``tf.nn.compute_accidental_hits``).

    Returns:
      (int32 rows, int64 positions among the drawn, float32 weights: the lowest number).
    """
    first, second = get_seed(seed)
    found = accidental_hits_op(
        convert_to_tensor(true_classes, dtype=dtypes.int64),
        convert_to_tensor(sampled_candidates, dtype=dtypes.int64),
        num_true=num_true, seed=first or 0, seed2=second or 0, name=name,
    )  # fmt: skip
    return found[0], found[1], found[2]
