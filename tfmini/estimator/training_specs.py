"""``tf.estimator.TrainSpec`` and ``tf.estimator.EvalSpec``: what `train_and_evaluate` trains and evaluates with."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from tfmini.estimator.exporters import Exporter
from tfmini.estimator.hook_checks import check_positive, checked_hooks, checked_listeners
from tfmini.export import export


class _TrainSpec(NamedTuple):
    input_fn: Callable[..., Any]
    max_steps: int | None
    hooks: tuple[Any, ...]
    saving_listeners: tuple[Any, ...]


@export("tf.estimator.TrainSpec")
class TrainSpec(_TrainSpec):
    """How to train (``tf.estimator.TrainSpec``).

    Args:
      input_fn: returns (features, labels), or a dataset of such pairs.
      max_steps: the global step at which training ends; None trains until the input ends.
      hooks: hooks of all tasks that train.
      saving_listeners: are told of each checkpoint.

    Raises:
      ValueError: when ``max_steps`` is not positive.
      TypeError: when the input function is not callable, or a hook is none.
    """

    __slots__ = ()

    def __new__(
        cls,
        input_fn: Callable[..., Any],
        max_steps: int | None = None,
        hooks: Iterable[Any] | None = None,
        saving_listeners: Iterable[Any] | None = None,
    ) -> TrainSpec:
        _check_input_fn(input_fn)
        check_positive("max_steps", max_steps)
        return super().__new__(
            cls, input_fn, max_steps, tuple(checked_hooks(hooks)), tuple(checked_listeners(saving_listeners))
        )


class _EvalSpec(NamedTuple):
    input_fn: Callable[..., Any]
    steps: int | None
    name: str | None
    hooks: tuple[Any, ...]
    exporters: tuple[Exporter, ...]
    start_delay_secs: float
    throttle_secs: float


@export("tf.estimator.EvalSpec")
class EvalSpec(_EvalSpec):
    """How to evaluate (``tf.estimator.EvalSpec``).

    Args:
      input_fn: returns (features, labels), or a dataset of such pairs.
      steps: number of batches of an evaluation; None reads the input to its end.
      name: distinguishes the summaries of several data sets.
      hooks: hooks of the evaluation.
      exporters: one or several `Exporter`, called after each evaluation.
      start_delay_secs: seconds that the evaluator of a cluster waits before its first evaluation.
      throttle_secs: at least so many seconds lie between the starts of two evaluations.

    Raises:
      ValueError: when a number is negative, or two exporters have the same name.
      TypeError: when something has another type.
    """

    __slots__ = ()

    def __new__(
        cls,
        input_fn: Callable[..., Any],
        steps: int | None = 100,
        name: str | None = None,
        hooks: Iterable[Any] | None = None,
        exporters: Any = None,
        start_delay_secs: float = 120,
        throttle_secs: float = 600,
    ) -> EvalSpec:
        _check_input_fn(input_fn)
        check_positive("steps", steps)
        if name is not None and not isinstance(name, str):
            raise TypeError(f"`name` must be string, given: {name}")
        for label, seconds in (("start_delay_secs", start_delay_secs), ("throttle_secs", throttle_secs)):
            if seconds < 0:
                raise ValueError(f"Must specify {label} >= 0, given: {seconds}")
        found = _checked_exporters(exporters)
        return super().__new__(
            cls, input_fn, steps, name, tuple(checked_hooks(hooks)), found, start_delay_secs, throttle_secs
        )


def _check_input_fn(input_fn: Any) -> None:
    if not callable(input_fn):
        raise TypeError(f"`input_fn` must be callable, given: {input_fn}")


def _checked_exporters(exporters: Any) -> tuple[Exporter, ...]:
    if not exporters:
        return ()
    found = (exporters,) if isinstance(exporters, Exporter) else tuple(exporters)
    names = set()
    for exporter in found:
        if not isinstance(exporter, Exporter):
            raise TypeError(f"`exporters` must be an Exporter, an iterable of Exporter, or `None`, found {exporter}.")
        if not exporter.name:
            raise ValueError(f"An Exporter cannot have a name that is `None` or empty: {type(exporter)}.")
        if exporter.name in names:
            raise ValueError(f"`exporters` must have unique names. Such a name cannot be `{exporter.name}` twice.")
        names.add(exporter.name)
    return found
