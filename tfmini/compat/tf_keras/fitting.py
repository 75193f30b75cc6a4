"""``fit``, ``evaluate`` and ``predict`` of ``tf.keras`` on data sets of ``tf.data``."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

from tfmini import errors
from tfmini.data.dataset import Dataset
from tfmini.data.iterator import Iterator as DatasetIterator
from tfmini.data.iterator import make_initializable_iterator
from tfmini.data.pipeline import INFINITE, UNKNOWN
from tfmini.data.transformations import cardinality


def apply(root: ModuleType) -> None:
    """Lets models of the copy take data sets."""
    model = root.engine.training.Model
    model.fit = _fit(root, model.fit)
    for name in ("evaluate", "predict"):
        setattr(model, name, _run(root, getattr(model, name)))
    for name in ("fit_generator", "evaluate_generator", "predict_generator"):
        setattr(model, name, _run_generator(getattr(model, name)))
    model.compile = _compile(model.compile)
    root.utils.data_utils.terminate_keras_multiprocessing_pools = _end_pools


def _end_pools(grace_period: float = 0.1, use_sigkill: bool = False) -> None:
    """Does nothing: the pools of generators end with the call that has begun them."""


class Batches:
    """The batches of a data set, as a generator that goes on for ever.

    Attributes:
      steps: the batches of an epoch: those of the data set, unless they are given.
    """

    def __init__(self, root: ModuleType, data: Any, steps: int | None) -> None:
        self._session = root.backend.get_session()
        self._again = steps is None
        self._iterator = data
        with self._session.graph.as_default():
            if isinstance(data, Dataset):
                self.steps = _count(self._session, data) if steps is None else steps
                self._iterator = make_initializable_iterator(data)
                self._session.run(self._iterator.initializer)
            elif steps is None:
                raise ValueError("When an iterator is the data, `steps_per_epoch` or `steps` must be given.")
            else:
                self.steps = steps
            self._next = self._iterator.get_next()

    def __iter__(self) -> Iterator[Any]:
        while True:
            try:
                yield self._session.run(self._next)
            except errors.OutOfRangeError:
                if not self._again:
                    raise errors.OutOfRangeError.of(
                        "The data set ended before the steps did: repeat it, or give fewer steps_per_epoch or epochs."
                    ) from None
                self._session.run(self._iterator.initializer)


def _count(session: Any, data: Dataset) -> int:
    """How many batches a data set has; one that does not know is run through.

    Raises:
      ValueError: it never ends.
    """
    known = int(session.run(cardinality(data)))
    if known == INFINITE:
        raise ValueError(
            "When an infinitely repeating data set is the data, `steps_per_epoch` (for evaluate and predict: `steps`)"
            " must be given."
        )
    if known != UNKNOWN:
        return known
    return int(session.run(data.reduce(np.int64(0), lambda count, *_: count + 1)))


def _is_data(x: Any) -> bool:
    return isinstance(x, (Dataset, DatasetIterator))


def _built_on(model: Any, data: Any) -> Any:
    """The same data; a model without inputs gets those of the first batch of a generator or `Sequence`."""
    is_sequence = hasattr(data, "__getitem__") and hasattr(data, "on_epoch_end")
    if model.inputs or not (is_sequence or hasattr(data, "__next__")):
        return data
    batch = data[0] if is_sequence else next(data)
    model._standardize_user_data(*(batch if isinstance(batch, tuple) else (batch,)))
    return data if is_sequence else _with_first(batch, data)


def _with_first(batch: Any, data: Iterator[Any]) -> Iterator[Any]:
    """A generator, as Keras knows it, of a batch and the others."""
    yield batch
    yield from data


def _run_generator(run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def run_generator(self: Any, generator: Any, *args: Any, **kwargs: Any) -> Any:
        return run(self, _built_on(self, generator), *args, **kwargs)

    return run_generator


def _fit(root: ModuleType, fit: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fit)
    def fit_data(self: Any, x: Any = None, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        validation = kwargs.get("validation_data")
        if _is_data(validation):
            batches = Batches(root, validation, kwargs.get("validation_steps"))
            kwargs.update(validation_data=iter(batches), validation_steps=batches.steps)
        if not _is_data(x):
            return fit(self, x, y, *args, **kwargs)
        batches = Batches(root, x, kwargs.pop("steps_per_epoch", None))
        kwargs.pop("batch_size", None)
        return fit(self, iter(batches), None, *args, steps_per_epoch=batches.steps, **kwargs)

    return fit_data


def _run(root: ModuleType, run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def run_data(self: Any, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        if getattr(self, "optimizer", None) is not None:
            self.reset_metrics()  # a prediction does so too
        if not _is_data(x):
            return run(self, x, *args, **kwargs)
        batches = Batches(root, x, kwargs.pop("steps", None))
        return run(self, iter(batches), *args, steps=batches.steps, **kwargs)

    return run_data


def _compile(compile: Callable[..., None]) -> Callable[..., None]:
    """A ``compile`` that refuses what a graph cannot do, and ignores what it does anyway."""

    @functools.wraps(compile)
    def compile_for_graphs(self: Any, optimizer: Any = "rmsprop", *args: Any, **kwargs: Any) -> None:
        if kwargs.pop("run_eagerly", False):
            raise ValueError("run_eagerly=True needs eager execution, which tfmini does not have: leave it out.")
        if kwargs.pop("distribute", None) is not None:
            raise ValueError(
                "tfmini has no tf.distribute strategies for Keras: build the model under tf.train.replica_device_setter"
            )
        kwargs.pop("experimental_run_tf_function", None)
        compile(self, optimizer, *args, **kwargs)

    return compile_for_graphs
