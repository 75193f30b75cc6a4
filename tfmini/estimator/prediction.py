"""The predictions of an `Estimator`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tfmini.estimator.evaluation import scaffold_with_local_variables
from tfmini.estimator.modes import ModeKeys
from tfmini.graph import nest
from tfmini.graph.graph import Graph
from tfmini.graph.keys import GraphKeys
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import get_collection, set_random_seed
from tfmini.train.checkpointing.state_file import latest_checkpoint
from tfmini.train.global_steps import create_global_step
from tfmini.train.sessions.monitored_session import MonitoredSession
from tfmini.train.sessions.session_creators import ChiefSessionCreator

if TYPE_CHECKING:
    from tfmini.estimator.estimator import Estimator

_log = logging.getLogger("tensorflow")
_ITERATOR_OPS = ("IteratorGetNext", "IteratorGetNextSync")


def predict(
    estimator: Estimator,
    input_fn: Callable[..., Any],
    keys: Iterable[str] | None,
    hooks: list[Any],
    checkpoint_path: str | None,
    single: bool,
) -> Iterator[Any]:
    """See `Estimator.predict`."""
    path = checkpoint_path or latest_checkpoint(estimator.model_dir)
    if not path:
        _log.info(
            "Could not find trained model in model_dir: %s, running initialization to predict.", estimator.model_dir
        )
    graph = Graph()
    with graph.as_default():
        set_random_seed(estimator.config.tf_random_seed)
        create_global_step(graph)
        features, _, input_hooks = estimator._inputs(input_fn, ModeKeys.PREDICT)
        _warn_of_endless_input(features)
        spec = estimator._call_model_fn(features, None, ModeKeys.PREDICT, estimator.config)
        wanted = chosen(spec.predictions, keys)
        creator = ChiefSessionCreator(
            checkpoint_filename_with_path=path,
            master=estimator.config.master,
            scaffold=scaffold_with_local_variables(spec.scaffold),
            config=estimator._session_config,
        )
        session = MonitoredSession(session_creator=creator, hooks=[*input_hooks, *hooks, *spec.prediction_hooks])
    for batch in _batches(graph, session, wanted):
        yield from examples(batch) if single else [batch]


def _batches(graph: Graph, session: MonitoredSession, wanted: Any) -> Iterator[Any]:
    """Yields batches until the input ends. Between two of them, the caller's graph is the default graph."""
    with _closing(graph, session):
        while True:
            with graph.as_default():
                if session.should_stop():
                    return
                batch = session.run(wanted)
            yield batch


@contextmanager
def _closing(graph: Graph, session: MonitoredSession) -> Iterator[None]:
    """As ``with session``, with the session's graph as default graph only while it closes."""
    try:
        yield
    except BaseException as error:
        with graph.as_default():
            if not session.__exit__(type(error), error, error.__traceback__):
                raise
    else:
        with graph.as_default():
            session.__exit__(None, None, None)


def chosen(predictions: Any, keys: Iterable[str] | None) -> Any:
    """The predictions with the given names; all without names.

    Raises:
      ValueError: when there is none, or the predictions have no names.
    """
    if not keys:
        return predictions
    if not isinstance(predictions, Mapping):
        raise ValueError("predict_keys argument is not valid in case of non-dict predictions.")
    keys = list(keys)
    found = {name: value for name, value in predictions.items() if name in keys}
    if not found:
        raise ValueError(f"Expected to run at least one output from {list(predictions)}, provided {keys}.")
    return found


def examples(batch: Any) -> Iterator[Any]:
    """The examples of a batch of predictions.

    Raises:
      ValueError: when the predictions have different batch lengths.
    """
    if not isinstance(batch, Mapping):
        yield from batch
        return
    lengths = {name: value.shape[0] for name, value in batch.items()}
    first = next(iter(lengths.values()))
    for name, length in lengths.items():
        if length != first:
            raise ValueError(
                f"Batch length of predictions should be same. {name} has different batch length than others."
            )
    for index in range(first):
        yield {name: value[index] for name, value in batch.items()}


def _warn_of_endless_input(features: Any) -> None:
    tensors = [value for value in nest.flatten(features, expand_composites=True) if isinstance(value, Tensor)]
    if any(tensor.op.type in _ITERATOR_OPS for tensor in tensors) or get_collection(GraphKeys.QUEUE_RUNNERS):
        return
    _log.warning(
        "Input graph does not use tf.data.Dataset or contain a QueueRunner. That means predict yields forever. This is"
        " probably a mistake."
    )
