"""Evaluation of checkpoints (``tf.contrib.training.evaluate_once``, ``tf.contrib.slim.evaluation``)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tfmini import dtypes
from tfmini.export import export, export_names
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.names import GraphKeys
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import control_dependencies
from tfmini.layers.core import sharing
from tfmini.ops.array.identity import identity
from tfmini.ops.summary import merge_all
from tfmini.ops.variables.assignment import assign_add
from tfmini.ops.variables.initializers import Zeros
from tfmini.ops.variables.scope import get_variable
from tfmini.runtime.client.session import BaseSession
from tfmini.train.checkpointing.graph_files import checkpoints_iterator
from tfmini.train.checkpointing.saver import Saver
from tfmini.train.coordinator import Coordinator
from tfmini.train.global_steps import get_or_create_global_step
from tfmini.train.global_steps import global_step as value_of_global_step
from tfmini.train.hooks import FinalOpsHook
from tfmini.train.session_run_hook import SessionRunArgs, SessionRunContext, SessionRunHook, SessionRunValues
from tfmini.train.sessions.monitored_session import ChiefSessionCreator, MonitoredSession
from tfmini.train.sessions.scaffold import Scaffold
from tfmini.train.summary_writer import FileWriterCache

_log = logging.getLogger("tensorflow")
_USE_DEFAULT = 0
_ALL_LOGGED_BELOW = 20  # with fewer evaluations each one is logged


@export("tf.contrib.training.get_or_create_eval_step")
def get_or_create_eval_step() -> Any:
    """The local variable that counts evaluations (``tf.contrib.training.get_or_create_eval_step``).

    Raises:
      ValueError: when the graph has several.
    """
    found = get_default_graph().get_collection(GraphKeys.EVAL_STEP)
    if len(found) > 1:
        raise ValueError("Multiple tensors added to tf.GraphKeys.EVAL_STEP")
    if found:
        return found[0]
    return get_variable(
        "eval_step", shape=[], dtype=dtypes.int64, initializer=Zeros(), trainable=False,
        collections=[GraphKeys.LOCAL_VARIABLES, GraphKeys.EVAL_STEP],
    )  # fmt: skip


@export("tf.contrib.training.StopAfterNEvalsHook")
class StopAfterNEvalsHook(SessionRunHook):
    """Requests a stop after a number of evaluations (``tf.contrib.training.StopAfterNEvalsHook``).

    Args:
      num_evals: number of evaluations; None runs until the end of the input.
      log_progress: whether to log the progress.
    """

    def __init__(self, num_evals: int | None, log_progress: bool = True) -> None:
        self._num_evals = num_evals
        self._log_progress = log_progress
        self._every = 1 if num_evals is None or num_evals < _ALL_LOGGED_BELOW else num_evals // 10
        self._completed: Tensor | None = None

    def _set_evals_completed_tensor(self, completed: Tensor) -> None:
        """Sets the tensor that holds the number of completed evaluations."""
        self._completed = completed

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return SessionRunArgs({"evals_completed": self._completed})

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        done, wanted = run_values.results["evals_completed"], self._num_evals
        if self._log_progress and (done % self._every == 0 or done == wanted):
            _log.info("Evaluation [%s]", done if wanted is None else f"{done}/{wanted}")
        if wanted is not None and done >= wanted:
            run_context.request_stop()


@export("tf.contrib.training.SummaryAtEndHook")
class SummaryAtEndHook(SessionRunHook):
    """Writes summaries at the end of a session (``tf.contrib.training.SummaryAtEndHook``).

    Args:
      log_dir: directory of the summaries.
      summary_writer: a writer in place of ``log_dir``.
      summary_op: a serialized Summary; default: all summaries of the collection SUMMARIES.
      feed_dict: feeds for ``summary_op``.

    Raises:
      ValueError: when both directory and writer are missing.
    """

    def __init__(
        self,
        log_dir: str | None = None,
        summary_writer: Any = None,
        summary_op: object = None,
        feed_dict: Mapping[Any, Any] | None = None,
    ) -> None:
        if log_dir is None and summary_writer is None:
            raise ValueError("One of log_dir or summary_writer should be used.")
        self._log_dir, self._writer = log_dir or "", summary_writer
        self._given_op, self._summary_op, self._feed_dict = summary_op, summary_op, feed_dict

    def begin(self) -> None:
        self._summary_op = merge_all() if self._given_op is None else self._given_op
        self._global_step = get_or_create_global_step()

    def after_create_session(self, session: BaseSession, coord: Coordinator) -> None:
        if self._writer is None:
            self._writer = FileWriterCache.get(self._log_dir)

    def end(self, session: BaseSession) -> None:
        if self._summary_op is not None:
            step = value_of_global_step(session, self._global_step)
            self._writer.add_summary(session.run(self._summary_op, self._feed_dict), step)
        self._writer.flush()


def _counted(eval_ops: object, hooks: Sequence[Any]) -> Any:
    """Adds an op that counts evaluations to ``eval_ops``, and passes the count to the hooks."""
    if eval_ops is None:
        return None
    update = assign_add(get_or_create_eval_step(), 1, use_locking=True)
    if isinstance(eval_ops, dict):
        eval_ops = {**eval_ops, "update_eval_step": update}
        listed = list(eval_ops.values())
    else:
        listed = eval_ops = [*(eval_ops if isinstance(eval_ops, (tuple, list)) else [eval_ops]), update]
    with control_dependencies(listed):
        completed = identity(get_or_create_eval_step().read_value())
    for hook in hooks:
        if isinstance(hook, StopAfterNEvalsHook):
            hook._set_evals_completed_tensor(completed)
    return eval_ops


@dataclass
class _Evaluation:
    """The arguments of `evaluate_once` besides the checkpoint."""

    master: str = ""
    scaffold: Scaffold | None = None
    eval_ops: Any = None
    feed_dict: Any = None
    final_ops: Any = None
    final_ops_feed_dict: Any = None
    hooks: Sequence[Any] | None = None
    config: Any = None

    def of(self, checkpoints: Iterable[str | None]) -> Any:
        """Evaluates the checkpoints; returns the last value of ``final_ops``."""
        final = FinalOpsHook(self.final_ops, self.final_ops_feed_dict)
        get_or_create_eval_step()
        hooks = [*(self.hooks or []), final]
        counted = _counted(self.eval_ops, hooks)
        for checkpoint in checkpoints:
            creator = ChiefSessionCreator(self.scaffold, self.master, self.config, None, checkpoint)
            _log.info("Starting evaluation of %s", checkpoint)
            with MonitoredSession(session_creator=creator, hooks=hooks) as session:
                while counted is not None and not session.should_stop():
                    session.run(counted, self.feed_dict)
            _log.info("Finished evaluation of %s", checkpoint)
        return final.final_ops_values


@export("tf.contrib.training.evaluate_once")
@sharing(_Evaluation)
def evaluate_once(given: _Evaluation, checkpoint_path: str | None) -> Any:
    """Restores a checkpoint, runs ``eval_ops`` until a hook requests a stop, and returns the value of ``final_ops``.

    TF name: ``tf.contrib.training.evaluate_once``.

    Args:
      checkpoint_path: the checkpoint; None evaluates the model's initial values.
      eval_ops: a tensor, or a list or dictionary of tensors; None runs only the final ops.
      hooks: hooks of the session, usually with a `StopAfterNEvalsHook`.
    """
    return given.of([checkpoint_path])


@export("tf.contrib.training.evaluate_repeatedly")
@sharing(_Evaluation, before={"eval_interval_secs": "hooks"})
def evaluate_repeatedly(
    given: _Evaluation, checkpoint_dir: str, *, eval_interval_secs: float = 60,
    max_number_of_evaluations: int | None = None, timeout: float | None = None,
    timeout_fn: Callable[[], bool] | None = None,
) -> Any:  # fmt: skip
    """`evaluate_once` for each new checkpoint of a directory; returns the last value of ``final_ops``.

    TF name: ``tf.contrib.training.evaluate_repeatedly``.

    Args:
      eval_interval_secs: the minimum time between the starts of two evaluations.
      max_number_of_evaluations: the maximum number of evaluations; None for no limit.
      timeout, timeout_fn: as in `tf.train.checkpoints_iterator`.
      The others are those of `evaluate_once`.
    """
    found = checkpoints_iterator(checkpoint_dir, eval_interval_secs, timeout, timeout_fn)
    most = None if max_number_of_evaluations is None else max(1, max_number_of_evaluations)
    return given.of(islice(found, most))


# ---- tf.contrib.slim.evaluation -----------------------------------------------------------------


@dataclass
class _SlimEvaluation:
    """The arguments of `slim_evaluate_once` besides the checkpoint.

    Attributes:
      initial_op: an op to run first, in place of the initializers.
      summary_op: a serialized Summary; default: all summaries; None for none.
      variables_to_restore: the variables to restore; None for all.
    """

    num_evals: int = 1
    initial_op: Any = None
    initial_op_feed_dict: Any = None
    eval_op: Any = None
    eval_op_feed_dict: Any = None
    final_op: Any = None
    final_op_feed_dict: Any = None
    summary_op: Any = _USE_DEFAULT
    summary_op_feed_dict: Any = None
    variables_to_restore: Any = None
    session_config: Any = None
    hooks: Sequence[Any] | None = None

    def plain(self, master: str, logdir: str, init_fn: Callable[[Any], Any] | None = None) -> _Evaluation:
        """The same evaluation with a scaffold and hooks."""
        saver = None if self.variables_to_restore is None else Saver(self.variables_to_restore)
        call = None if init_fn is None else lambda _, session: init_fn(session)
        scaffold = Scaffold(self.initial_op, self.initial_op_feed_dict, call, saver=saver)
        summary_op = self.summary_op
        if isinstance(summary_op, int) and summary_op == _USE_DEFAULT:
            summary_op = merge_all()
        hooks: list[Any] = [StopAfterNEvalsHook(self.num_evals)]
        if summary_op is not None:
            feeds = self.summary_op_feed_dict
            hooks.append(SummaryAtEndHook(log_dir=logdir, summary_op=summary_op, feed_dict=feeds))
        return _Evaluation(
            master, scaffold, self.eval_op, self.eval_op_feed_dict, self.final_op, self.final_op_feed_dict,
            [*hooks, *(self.hooks or [])], self.session_config,
        )  # fmt: skip


@export("tf.contrib.slim.evaluation.evaluate_once")
@sharing(_SlimEvaluation)
def slim_evaluate_once(given: _SlimEvaluation, master: str, checkpoint_path: str, logdir: str) -> Any:
    """Restores a checkpoint, runs ``eval_op`` ``num_evals`` times, writes summaries, and returns ``final_op``'s value.

    TF name: ``tf.contrib.slim.evaluation.evaluate_once``. The other arguments are those of `_SlimEvaluation`.
    """
    return given.plain(master, logdir).of([checkpoint_path])


_LOOP = {
    "init_fn": "eval_op", "eval_interval_secs": "session_config", "max_number_of_evaluations": "session_config",
    "timeout": "hooks", "timeout_fn": "hooks",
}  # fmt: skip


@export("tf.contrib.slim.evaluation.evaluation_loop")
@sharing(_SlimEvaluation, before=_LOOP)
def evaluation_loop(
    given: _SlimEvaluation, master: str, checkpoint_dir: str, logdir: str, *,
    init_fn: Callable[[Any], Any] | None = None, eval_interval_secs: float = 60,
    max_number_of_evaluations: int | None = None, timeout: float | None = None,
    timeout_fn: Callable[[], bool] | None = None,
) -> Any:  # fmt: skip
    """`slim_evaluate_once` for each new checkpoint of a directory (``tf.contrib.slim.evaluation.evaluation_loop``).

    Args:
      init_fn: a function of the session, called after the initializers.
      The others are those of `slim_evaluate_once` and `evaluate_repeatedly`.
    """
    found = checkpoints_iterator(checkpoint_dir, eval_interval_secs, timeout, timeout_fn)
    most = None if max_number_of_evaluations is None else max(1, max_number_of_evaluations)
    return given.plain(master, logdir, init_fn).of(islice(found, most))


export_names(
    "tensorflow.python.training.evaluation",
    "_StopAfterNEvalsHook=StopAfterNEvalsHook _evaluate_once=evaluate_once "
    "_get_or_create_eval_step=get_or_create_eval_step",
)
