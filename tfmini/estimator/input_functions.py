"""Calls input functions, and turns what they return into features, labels and hooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfmini.data.dataset import Dataset
from tfmini.estimator.function_arguments import known_arguments
from tfmini.graph.scoping import device
from tfmini.train.hooks.session_run_hook import SessionRunHook


class DatasetInitializerHook(SessionRunHook):
    """Starts the iterator of an input function's dataset in each new session."""

    def __init__(self, iterator: Any) -> None:
        self._iterator = iterator

    def begin(self) -> None:
        self._initializer = self._iterator.initializer

    def after_create_session(self, session: Any, coord: Any) -> None:
        session.run(self._initializer)


def call_input_fn(input_fn: Callable[..., Any], mode: str, params: Any, config: Any) -> Any:
    """The result of the user's function, called with those of mode, params and config that it names.

    Its ops are on a CPU of the task that trains, evaluates or predicts.
    """
    offered = {"mode": mode, "params": params, "config": config}
    with device("/cpu:0"):
        return input_fn(**known_arguments(input_fn, offered))


def features_and_labels(result: Any) -> tuple[Any, Any, list[SessionRunHook]]:
    """(features, labels or None, hooks) of what an input function returned: tensors or a dataset.

    Raises:
      ValueError: when it is a tuple or list of other than two members.
    """
    hooks: list[SessionRunHook] = []
    if isinstance(result, Dataset):
        iterator = result.make_initializable_iterator()
        hooks.append(DatasetInitializerHook(iterator))
        result = iterator.get_next()
    if isinstance(result, (tuple, list)):
        if len(result) != 2:
            raise ValueError("input_fn should return (features, labels) as a len 2 tuple.")
        return result[0], result[1], hooks
    return result, None, hooks
