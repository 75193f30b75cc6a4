"""``fit``, ``evaluate`` and ``predict`` of ``tf.keras`` on data sets of ``tf.data``."""

from __future__ import annotations

import functools
import inspect
import weakref
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np

from tfmini import dtypes, errors
from tfmini.compat.tf_keras.model_inputs import more_inputs
from tfmini.compat.tf_keras.training import warn
from tfmini.data.dataset import Dataset
from tfmini.data.iterator import Iterator as DatasetIterator
from tfmini.data.iterator import make_initializable_iterator
from tfmini.data.pipeline import INFINITE, UNKNOWN
from tfmini.data.transformations import cardinality
from tfmini.graph import nest
from tfmini.graph.prune import traverse
from tfmini.train.strategy import get_strategy, in_cross_replica_context


def apply(root: ModuleType) -> None:
    """Lets models of the copy take data sets."""
    model = root.engine.training.Model
    model.fit = _fit(root, model.fit)
    for name in ("evaluate", "predict"):
        setattr(model, name, _run(root, getattr(model, name)))
    for name in ("train_on_batch", "test_on_batch", "predict_on_batch"):
        setattr(model, name, _run_batch(root, getattr(model, name)))
    for name in ("fit_generator", "evaluate_generator", "predict_generator"):
        setattr(model, name, _run_generator(root, getattr(model, name)))
    for name in ("fit", "evaluate", "predict", "train_on_batch", "test_on_batch", "predict_on_batch"):
        setattr(model, name, _on_one_input(getattr(model, name)))
    model.compile = _compile(model.compile)
    root.engine.training_utils.assert_not_batched = _asserts("batched", "Shuffle")
    root.engine.training_utils.assert_not_shuffled = _asserts("shuffled", "Batch PaddedBatch Window")
    root.engine.training_utils.verify_dataset_shuffled = _verify_dataset_shuffled
    root.utils.data_utils.terminate_keras_multiprocessing_pools = _end_pools


def _end_pools(grace_period: float = 0.1, use_sigkill: bool = False) -> set[Any]:
    """The pools that could not be ended: none, since those of generators end with the call that has begun them."""
    return set()


# Stages of data sets that neither make batches nor change the order.
_PLAIN = (
    "Cache Concatenate Filter FixedLengthRecord Map ParallelMap Prefetch Range Repeat Skip TFRecord Take Tensor"
    " TensorSlice TextLine Zip"
)


def _asserts(what: str, more: str) -> Callable[[Dataset], None]:
    """A function that raises ValueError for a data set with other stages than plain ones and ``more``."""
    plain = {*_PLAIN.split(), *more.split()}

    def assert_not(dataset: Dataset) -> None:
        inputs = lambda op: [x.op for x in op.inputs if x.dtype == dtypes.variant]  # noqa: E731
        for op in traverse([dataset._variant_tensor.op], inputs):
            stage, _, version = op.type.rpartition("Dataset")
            if version in ("", "V2") and stage not in plain:
                raise ValueError(f"Could not assert that dataset is not {what}.")

    return assert_not


def _verify_dataset_shuffled(dataset: Dataset) -> None:
    """Warns of a data set that surely is not shuffled."""
    try:
        _asserts("shuffled", "Batch PaddedBatch Window")(dataset)
    except ValueError:
        return
    warn("Expected a shuffled dataset but input dataset `x` is not shuffled. Please invoke `shuffle()` on it.")


class Batches:
    """The batches of a data set or of an iterator: an iterator of ``(x, y)`` or ``(x, y, weights)``, or of ``x``.

    Args:
      steps: the batches of an epoch; without it a data set says how many it has, and begins again after them.
      name: the argument that gives the steps.
      is_labelled: whether the batches are to have targets, which are None if the data set has none.

    Attributes:
      steps: the batches of an epoch.
    """

    def __init__(self, root: ModuleType, data: Any, steps: int | None, name: str, is_labelled: bool = True) -> None:
        self._session = root.backend.get_session()
        self._again, self._is_labelled = steps is None, is_labelled
        self._initializer: Any = None
        with self._session.graph.as_default():
            if isinstance(data, Dataset):
                self.steps = _count(self._session, data, name) if steps is None else steps
                iterator = make_initializable_iterator(data)
                self._initializer = iterator.initializer
                self._next = iterator.get_next()
                self.restart()
            elif steps is None:
                raise ValueError(f"When an iterator is the data, you must specify the `{name}` argument.")
            else:
                self.steps = steps
                self._next = _element(data)

    def restart(self) -> None:
        """Begins a data set anew; an iterator goes on."""
        if self._initializer is not None:
            self._session.run(self._initializer)

    def __iter__(self) -> Batches:
        return self

    def __next__(self) -> Any:
        try:
            return self._as_batch(self._session.run(self._next))
        except errors.OutOfRangeError:
            if not self._again:
                raise StopIteration from None
            self.restart()
            return self._as_batch(self._session.run(self._next))

    def _as_batch(self, element: Any) -> Any:
        if not isinstance(element, tuple):
            return (element, None) if self._is_labelled else element
        parts = tuple(list(part) if type(part) is tuple else part for part in element)
        return (*parts, None) if len(parts) == 1 else parts


_elements: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def _element(iterator: Any) -> Any:
    """The next element of an iterator, by the same op at each call."""
    if iterator not in _elements:
        _elements[iterator] = iterator.get_next()
    return _elements[iterator]


def _count(session: Any, data: Dataset, name: str) -> int:
    """How many batches a data set has; one that does not know is run through.

    Raises:
      ValueError: it never ends.
    """
    known = int(session.run(cardinality(data)))
    if known == INFINITE:
        raise ValueError(f"The data set repeats for ever: you must specify the `{name}` argument.")
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
    parts = batch if isinstance(batch, tuple) else (batch,)
    if len(parts) > 3:
        raise ValueError(
            f"Output of generator should be a tuple of 1 or 2 or 3 elements: x, y, weights. Found: {batch}"
        )
    model._standardize_user_data(*(parts if getattr(model, "optimizer", None) else parts[:1]))
    return data if is_sequence else _with_first(batch, data)


def _with_first(batch: Any, data: Iterator[Any]) -> Iterator[Any]:
    """A generator, as Keras knows it, of a batch and the others."""
    yield batch
    yield from data


def _run_generator(root: ModuleType, run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def run_generator(self: Any, generator: Any, *args: Any, **kwargs: Any) -> Any:
        if _is_data(generator):
            name = "steps_per_epoch" if run.__name__ == "fit_generator" else "steps"
            given = inspect.signature(run).bind(self, generator, *args, **kwargs).arguments
            generator = Batches(root, generator, given.get(name), name, "predict" not in run.__name__)
            args, kwargs = (), {key: given[key] for key in given if key not in ("self", "generator")}
            kwargs[name] = generator.steps
        if isinstance(generator, Batches):
            kwargs["workers"] = 0  # a data set reads ahead by itself
        if isinstance(generator, Batches) and run.__name__ == "evaluate_generator":
            generator.restart()
        validation = kwargs.get("validation_data")
        if _is_data(validation):
            batches = Batches(root, validation, kwargs.get("validation_steps"), "validation_steps")
            kwargs.update(validation_data=batches, validation_steps=batches.steps)
        before, self._reads_data = getattr(self, "_reads_data", False), isinstance(generator, Batches)
        try:
            return run(self, _built_on(self, generator), *args, **kwargs)
        finally:
            self._reads_data = before  # of the training whose validation this is

    return run_generator


def _on_one_input(run: Callable[..., Any]) -> Callable[..., Any]:
    """A method of models whose ``call`` gets the data in its first argument; ValueError if it must have more."""

    @functools.wraps(run)
    def run_on_one(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not self._is_graph_network and more_inputs(self):
            raise ValueError(
                f"Models passed to `{run.__name__}` can only have `training` and the first argument in `call` as"
                f" positional arguments, found: {more_inputs(self)}."
            )
        return run(self, *args, **kwargs)

    return run_on_one


def _fit(root: ModuleType, fit: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(fit)

    @functools.wraps(fit)
    def fit_data(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = signature.bind(self, *args, **kwargs).arguments
        given.update(given.pop("kwargs", {}))
        x, validation = given.get("x"), given.get("validation_data")
        if _is_data(validation):
            batches = Batches(root, validation, given.get("validation_steps"), "validation_steps")
            is_read = _is_data(x) or root.engine.training_utils.is_generator_or_sequence(x)
            given.update(validation_data=batches, validation_steps=batches.steps)
            if not is_read:
                given.update(validation_data=_whole(batches), validation_steps=None)
        if not _is_data(x):
            self._validation_batch_size = None if given.get("validation_steps") else given.get("batch_size")
            return fit(**_of_steps(given, "steps_per_epoch"))
        _refuse(given, "validation_split")
        batches = Batches(root, x, given.get("steps_per_epoch"), "steps_per_epoch")
        more = {name: value for name, value in given.items() if name not in ("self", "x", "y", *_REFUSED)}
        if given.get("verbose", 1):
            _tell(batches, given)
        return self.fit_generator(batches, **{**more, "steps_per_epoch": batches.steps})

    return fit_data


def _of_steps(given: dict[str, Any], steps: str) -> dict[str, Any]:
    """The arguments, without a batch size if there is a number of steps: each takes the whole arrays."""
    return given if given.get(steps) is None else {**given, "batch_size": None}


def _tell(batches: Batches, given: dict[str, Any]) -> None:
    validation = given.get("validation_data")
    also = f", validate on {validation.steps} steps" if isinstance(validation, Batches) else ""
    print(f"Train on {batches.steps} steps{also}")


def _whole(batches: Batches) -> tuple[Any, ...]:
    """The batches of an epoch as one."""
    read = [next(batches) for _ in range(batches.steps)]
    return tuple(nest.map_structure(lambda *parts: np.concatenate(parts), *parts) for parts in zip(*read))


_REFUSED = ("sample_weight", "batch_size", "validation_split")


def _refuse(given: dict[str, Any], *more: str) -> None:
    """Raises ValueError for an argument that a data set takes the place of."""
    if given.get("batch_size") is not None:
        raise ValueError(
            "The `batch_size` argument must not be specified when the data are a data set: it has batches."
        )
    if given.get("y") is not None:
        raise ValueError("When a data set is the data, you should not specify a target: it has them.")
    for name in ("sample_weight", *more):
        if given.get(name) is not None and not (name in more and not given[name]):
            raise ValueError(
                f"`{name}` argument is not supported when input `x` is a dataset or a dataset iterator: it has what"
                " belongs to its examples."
            )


def _run(root: ModuleType, run: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(run)

    @functools.wraps(run)
    def run_data(self: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(self, "optimizer", None) is not None:
            self.reset_metrics()  # a prediction does so too
        given = signature.bind(self, *args, **kwargs).arguments
        if not _is_data(given.get("x")):
            return run(**_of_steps(given, "steps"))
        _refuse(given)
        batches = Batches(root, given["x"], given.get("steps"), "steps", run.__name__ == "evaluate")
        more = {name: value for name, value in given.items() if name not in ("self", "x", "y", *_REFUSED)}
        return getattr(self, f"{run.__name__}_generator")(batches, **{**more, "steps": batches.steps})

    return run_data


def _run_batch(root: ModuleType, run: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(run)
    def run_batch(self: Any, x: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not _is_data(x):
            return run(self, x, *args, **kwargs)
        is_labelled = run.__name__ != "predict_on_batch"
        batch = next(Batches(root, x, 1, "steps", is_labelled))
        parts = batch if isinstance(batch, tuple) else (batch,)
        return run(self, *parts[: 3 if is_labelled else 1], *args, **kwargs)

    return run_batch


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
        if get_strategy().num_replicas_in_sync > 1 and in_cross_replica_context():
            raise NotImplementedError(
                f"Models of tf.keras are not fitted under {get_strategy()}: compile the model outside of the scope, and"
                " give it and the strategy to tf.keras.estimator.model_to_estimator, or use horovod.tensorflow.keras."
            )
        if self.dynamic:
            raise ValueError("You must enable eager execution for layers with dynamic=True, and tfmini has none.")
        kwargs.pop("experimental_run_tf_function", None)
        vars(self)["_trained_at_compile"] = [(layer, layer.trainable) for layer in (self, *self.submodules)]
        compile(self, optimizer, *args, **kwargs)

    return compile_for_graphs
