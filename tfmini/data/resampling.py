"""``tf.data.experimental.rejection_resample``: drops elements so that their classes have a given distribution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import TensorLike
from tfmini.data.dataset import Dataset
from tfmini.data.grouping import sample_from_datasets
from tfmini.data.transformations import scan
from tfmini.export import export
from tfmini.graph.families import Tensor, convert_to_tensor
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.array.gather import gather
from tfmini.ops.array.identity import cast
from tfmini.ops.array.joining import stack
from tfmini.ops.array.layout import tile
from tfmini.ops.array.partition import one_hot
from tfmini.ops.array.shape import size
from tfmini.ops.math.reductions import reduce_max, reduce_min, reduce_sum
from tfmini.ops.random_functions import random_uniform

_ESTIMATED_FROM, _SMOOTHING = 32, 10


@export("tf.contrib.data.rejection_resample", "tf.data.experimental.rejection_resample")
def rejection_resample(
    class_func: Callable[..., Any], target_dist: TensorLike, initial_dist: TensorLike | None = None,
    seed: Any = None,
) -> Callable[[Dataset], Dataset]:  # fmt: skip
    """Drops elements so that the classes of the others have a distribution; gives pairs (class, element).

    Args:
      class_func: element -> its class, an int scalar.
      target_dist: the wanted probability of each class, floats [number of classes].
      initial_dist: the probabilities in the dataset; None estimates them from the elements read so far.
      seed: of the random choice.
    """

    def transform(dataset: Dataset) -> Dataset:
        target = convert_to_tensor(target_dist, name="target_dist")
        classes = dataset.map(class_func)
        pairs = Dataset.zip((classes, dataset))
        kept = None
        if initial_dist is None:
            estimates = _estimates(classes, target)
        else:
            initial = convert_to_tensor(initial_dist, name="initial_dist")
            estimates = Dataset.from_tensors(initial).repeat()
            kept = _known_part(initial, target)
        rates = estimates.map(lambda initial: _rates(initial, target))
        # What is read of all elements, without a choice, makes that more of the chosen ones have rare classes.
        chosen = Dataset.zip((pairs, rates)).filter(
            lambda pair, rates: random_uniform([], seed=seed, dtype=target.dtype) < gather(rates[0], pair[0])
        )
        chosen = chosen.map(lambda pair, _: pair).prefetch(3)
        if kept in (0, 1):
            return pairs if kept else chosen
        weights = rates.map(lambda _, kept: stack([kept, 1 - kept]))
        return sample_from_datasets([pairs, chosen], weights, seed)

    return transform


def _rates(initial: Tensor, target: Tensor) -> tuple[Any, Any]:
    """(the rate at which each class is chosen, the part of the result that is taken without a choice)."""
    ratios = target / (initial + np.finfo(initial.dtype.as_numpy_dtype).tiny)
    least, most = reduce_min(ratios), reduce_max(ratios)
    return (ratios - least) / (most - least), least


def _known_part(initial: Tensor, target: Tensor) -> float | None:
    """The second of `_rates` if both distributions are constants."""
    before, after = constant_value(initial), constant_value(target)
    return None if before is None or after is None else float(np.min(after / (before + np.finfo(before.dtype).tiny)))


def _estimates(classes: Dataset, target: Tensor) -> Dataset:
    """For each element an estimate of the distribution of classes, from the batches up to its own."""
    known = target.shape.as_list()[0]
    count = size(target) if known is None else known

    def update(seen: Tensor, batch: Tensor) -> tuple[Any, Any]:
        seen += reduce_sum(one_hot(batch, count, dtype=dtypes.int64), 0)
        share = cast(seen, target.dtype) / cast(reduce_sum(seen), target.dtype)
        return seen, tile(share[None], [_ESTIMATED_FROM, 1])

    begin = tile(convert_to_tensor([_SMOOTHING], dtype=dtypes.int64), [count])
    shares: Dataset = classes.batch(_ESTIMATED_FROM).apply(scan(begin, update))
    return shares.unbatch()
