"""The options of growing tables: `tf.EmbeddingVariableOption` and its parts. The names are DeepRec's."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph.families import Tensor, convert_to_tensor, get_default_graph
from tfmini.ops.growing.state import Settings
from tfmini.ops.variables.initializers import RandomInitializer, TruncatedNormal

_WORD = 0xFFFFFFFF


@export("tf.InitializerOption")
class InitializerOption:
    """The values of new rows (``tf.InitializerOption`` of DeepRec).

    Args:
      initializer: as for `tf.get_variable`; default: a truncated normal. Where it draws each number at random, a row
        follows from the seed and the id, whatever the order of ids and the number of parts; without a seed, the
        name of the table is the seed. Of another initializer the table keeps a matrix, and id ``i`` gets its row
        ``i % default_value_dim``.
      default_value_dim: the rows of that matrix, and of the shape for which the initializer is asked.
      default_value_no_permission: the numbers in the row of an id that is not admitted.

    Raises:
      ValueError: ``default_value_dim`` is not positive.
    """

    def __init__(
        self, initializer: Any = None, default_value_dim: int = 4096, default_value_no_permission: float = 0.0
    ) -> None:
        if default_value_dim < 1:
            raise ValueError(f"default_value_dim must be positive: {default_value_dim}")
        self.initializer = initializer
        self.default_value_dim = default_value_dim
        self.default_value_no_permission = default_value_no_permission


class _Filter:
    """Decides which ids get a row."""

    def settings(self) -> dict[str, Any]:
        """Its part of the `Settings`."""
        raise NotImplementedError


@export("tf.CounterFilter")
class CounterFilter(_Filter):
    """Admits an id once it has been looked up ``filter_freq`` times (``tf.CounterFilter`` of DeepRec).

    Until then its row is `InitializerOption`'s ``default_value_no_permission``, and its gradients are dropped. Each id
    that waits takes some 16 bytes.

    Args:
      filter_freq: 0 and 1 admit all.

    Raises:
      ValueError: it is negative.
    """

    def __init__(self, filter_freq: int = 0) -> None:
        if filter_freq < 0:
            raise ValueError(f"filter_freq must not be negative: {filter_freq}")
        self.filter_freq = filter_freq

    def settings(self) -> dict[str, Any]:
        return {"filter_freq": self.filter_freq}


@export("tf.CBFFilter")
class CBFFilter(CounterFilter):
    """A `CounterFilter` whose counts are in a Bloom filter, of a fixed size (``tf.CBFFilter`` of DeepRec).

    Args:
      filter_freq: as for `CounterFilter`.
      max_element_size: the number of ids that are expected to wait.
      false_positive_probability: the chance that an id is admitted too early when that many have come.
      counter_type: accepted and ignored: counters have 32 bits.

    Raises:
      ValueError: a size or probability makes no sense.
    """

    def __init__(
        self, filter_freq: int = 0, max_element_size: int = 0, false_positive_probability: float = 0.01,
        counter_type: Any = dtypes.uint64,
    ) -> None:  # fmt: skip
        super().__init__(filter_freq)
        if max_element_size < 1 or not 0 < false_positive_probability < 1:
            raise ValueError(
                "max_element_size must be positive, and false_positive_probability between 0 and 1:"
                f" {max_element_size}, {false_positive_probability}"
            )
        self.max_element_size = max_element_size
        self.false_positive_probability = false_positive_probability
        self.counter_type = counter_type

    def settings(self) -> dict[str, Any]:
        sizes = {"filter_size": self.max_element_size, "false_positives": self.false_positive_probability}
        return {**super().settings(), **sizes}


@export("tf.ProbabilityFilter")
class ProbabilityFilter(_Filter):
    """Admits an unknown id by chance, each time that it comes: frequent ids soon, rare ones seldom. Not in DeepRec.

    The draws follow from the table's seed, so a run can be repeated.

    Args:
      probability: above 0, and 1 at most.

    Raises:
      ValueError: it is not.
    """

    def __init__(self, probability: float) -> None:
        if not 0 < probability <= 1:
            raise ValueError(f"probability must be above 0, and 1 at most: {probability}")
        self.probability = probability

    def settings(self) -> dict[str, Any]:
        return {"admit_probability": self.probability}


class _Evict(_Filter):
    """Decides which rows go."""


@export("tf.GlobalStepEvict")
class GlobalStepEvict(_Evict):
    """Evicts the rows without an update for more than ``steps_to_live`` steps (``tf.GlobalStepEvict`` of DeepRec).

    That happens when a checkpoint is saved, and in `EmbeddingVariable.evict`. The optimizer must get a global step.

    Args:
      steps_to_live: None and 0: rows live for ever.

    Raises:
      ValueError: it is negative.
    """

    def __init__(self, steps_to_live: int | None = None) -> None:
        if steps_to_live is not None and steps_to_live < 0:
            raise ValueError(f"steps_to_live must not be negative: {steps_to_live}")
        self.steps_to_live = steps_to_live

    def settings(self) -> dict[str, Any]:
        return {"steps_to_live": self.steps_to_live or 0}


@export("tf.L2WeightEvict")
class L2WeightEvict(_Evict):
    """Evicts the rows whose L2 norm is below a threshold (``tf.L2WeightEvict`` of DeepRec).

    That happens when a checkpoint is saved, and in `EmbeddingVariable.evict`.

    Args:
      l2_weight_threshold: negative: no row is evicted.
    """

    def __init__(self, l2_weight_threshold: float = -1.0) -> None:
        self.l2_weight_threshold = l2_weight_threshold

    def settings(self) -> dict[str, Any]:
        return {"l2_weight_threshold": max(0.0, self.l2_weight_threshold)}


@export("tf.LFUEvict")
class LFUEvict(_Evict):
    """Holds each part of a table to a number of rows: the least frequently used ones go. Not in DeepRec.

    Before new rows would exceed it, at least a sixteenth of the rows goes: those that were looked up least, the oldest
    of equals first, and none of the lookup that brings the new ones. Ids that still have no room get the row of ids
    that are not admitted.

    Args:
      capacity: rows per part.

    Raises:
      ValueError: it is not positive.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be positive: {capacity}")
        self.capacity = capacity

    def settings(self) -> dict[str, Any]:
        return {"capacity": self.capacity}


@export("tf.EmbeddingVariableOption")
class EmbeddingVariableOption:
    """How a growing table behaves (``tf.EmbeddingVariableOption`` of DeepRec).

    DeepRec's other options, such as ``storage_option``, are about tiers of storage, which tfmini does not have.

    Args:
      evict_option: `GlobalStepEvict`, `L2WeightEvict` or `LFUEvict`, or a list of those; None: no row is evicted.
      filter_option: `CounterFilter`, `CBFFilter` or `ProbabilityFilter`; None: each id gets a row.
      init_option: an `InitializerOption`.

    Raises:
      TypeError: an option is none of those.
    """

    def __init__(
        self, *, evict_option: Any = None, filter_option: Any = None, init_option: InitializerOption | None = None
    ) -> None:
        given = evict_option if isinstance(evict_option, (list, tuple)) else [evict_option]
        self.evict_options = [option for option in given if option is not None]
        self.evict_option = evict_option
        self.filter_option = filter_option
        self.init_option = InitializerOption() if init_option is None else init_option
        wrong = [option for option in self.evict_options if not isinstance(option, _Evict)]
        if filter_option is not None and (not isinstance(filter_option, _Filter) or isinstance(filter_option, _Evict)):
            wrong.append(filter_option)
        if wrong:
            raise TypeError(f"{wrong[0]!r} is no option of an embedding variable.")

    def settings(self, name: str, width: int, initializer: Any) -> Settings:
        """The attrs of a handle.

        Args:
          name: of the whole table.
          width: the numbers in a row.
          initializer: of new rows.
        """
        found: dict[str, Any] = {
            "seed": _seed(initializer, name), "distribution": "", "low": 0.0, "high": 1.0, "filter_freq": 0,
            "filter_size": 0, "false_positives": 0.01, "admit_probability": 1.0, "steps_to_live": 0,
            "l2_weight_threshold": 0.0, "capacity": 0,
        }  # fmt: skip
        drawn = drawn_from(initializer, self.init_option.default_value_dim, width)
        if drawn is not None:
            found |= dict(zip(("distribution", "low", "high"), drawn))
        for option in [*self.evict_options, *([] if self.filter_option is None else [self.filter_option])]:
            found |= option.settings()
        return Settings(**found)


def _seed(initializer: Any, name: str) -> int:
    first, second = get_default_graph().seed, getattr(initializer, "seed", None)
    return (first or 0) % (1 << 31) << 32 | (zlib.crc32(name.encode()) if second is None else second & _WORD)


def drawn_from(initializer: Any, rows: int, width: int) -> tuple[str, float, float] | None:
    """The distribution of an initializer and its two numbers; None if it is not one whose numbers are known."""
    if not isinstance(initializer, RandomInitializer):
        return None
    name, *given = initializer.drawn_from((rows, width))
    numbers = [1.0 if value is None else value for value in given]  # None: the default upper bound
    if any(np.ndim(value) or isinstance(value, Tensor) for value in numbers):
        return None
    return name, float(numbers[0]), float(numbers[1])


def chosen_initializer(*given: Any) -> Any:
    """The first initializer that is not None, made if it is a class; by default DeepRec's."""
    found = next((each for each in given if each is not None), None)
    if found is None:
        return TruncatedNormal()
    return found() if isinstance(found, type) else found


def default_values(initializer: Callable[..., Any] | Any, rows: int, width: int, dtype: dtypes.DType) -> Tensor:
    """The matrix from which new rows come, where they are not drawn: [rows, width]; one row of zeros otherwise."""
    if drawn_from(initializer, rows, width) is not None:
        return convert_to_tensor(np.zeros((1, width), dtype.numpy), name="default_values")
    if callable(initializer):
        return convert_to_tensor(initializer([rows, width], dtype=dtype), dtype, name="default_values")
    values = np.asarray(initializer, dtype.numpy)  # a number, a row, or some rows
    return convert_to_tensor(np.array(np.broadcast_to(values, (*(values.shape[:-1] or (1,)), width))), dtype)
