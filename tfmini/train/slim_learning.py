"""Training loops: ``tf.train.basic_train_loop`` and ``slim.learning.train`` with a `Supervisor`, and one with hooks."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tfmini import errors, protos
from tfmini.export import export
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.graph import Graph
from tfmini.graph.operation import Operation
from tfmini.graph.scoping import control_dependencies, name_scope
from tfmini.layers.core import sharing
from tfmini.ops.array.constant import constant
from tfmini.ops.control import group
from tfmini.ops.math import comparison as compare
from tfmini.ops.math.elementwise import floormod
from tfmini.ops.summary import merge_all
from tfmini.ops.tables import tables_initializer
from tfmini.ops.variables.base import Variable
from tfmini.ops.variables.functions import (
    global_variables_initializer,
    local_variables_initializer,
    report_uninitialized_variables,
)
from tfmini.protos import ConfigProto, RunMetadata
from tfmini.runtime.client.session import BaseSession
from tfmini.runtime.process import current_process
from tfmini.train.checkpointing.saver import Saver
from tfmini.train.global_steps import get_or_create_global_step
from tfmini.train.global_steps import global_step as value_of_global_step
from tfmini.train.replicas.sync_replicas import SyncReplicasOptimizer
from tfmini.train.sessions.monitored_session import MonitoredTrainingSession
from tfmini.train.sessions.scaffold import Scaffold
from tfmini.train.sessions.supervisor import Supervisor
from tfmini.train.timeline import Timeline

_log = logging.getLogger("tensorflow")
_USE_DEFAULT = 0
_POLL_SECS = 1.0


@export("tf.train.basic_train_loop")
def basic_train_loop(
    supervisor: Supervisor,
    train_step_fn: Callable[..., Any],
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    master: str = "",
) -> None:
    """Calls ``train_step_fn(session, *args, **kwargs)`` until the supervisor stops.

    After a restart of a task of the cluster (AbortedError) the loop continues in a new session.

    Args:
      supervisor: makes the sessions and runs the services.
      train_step_fn: runs one step.
      args, kwargs: further arguments of ``train_step_fn``.
      master: the sessions' target.
    """
    while True:
        try:
            with supervisor.managed_session(master) as session:
                while not supervisor.should_stop():
                    train_step_fn(session, *(args or ()), **(kwargs or {}))
            return
        except errors.AbortedError:
            continue


@export("tf.contrib.slim.learning.train_step")
def train_step(
    sess: BaseSession, train_op: Operation | None, global_step: Variable, train_step_kwargs: dict[str, Any]
) -> tuple[Any, Any]:
    """Runs one step; returns (loss, whether to stop) (``tf.contrib.slim.learning.train_step``).

    Args:
      train_step_kwargs: optional bool tensors ``should_stop``, ``should_log`` and ``should_trace``; a trace is
        written to the directory ``logdir`` and to ``summary_writer``.

    Raises:
      ValueError: when ``should_trace`` is given without ``logdir``.
    """
    now = current_process().now
    started = now()
    options = metadata = None
    if "should_trace" in train_step_kwargs:
        if "logdir" not in train_step_kwargs:
            raise ValueError("logdir must be present in train_step_kwargs when should_trace is present")
        if sess.run(train_step_kwargs["should_trace"]):
            options, metadata = protos.RunOptions(trace_level=protos.RunOptions.FULL_TRACE), protos.RunMetadata()
    loss, step = sess.run([train_op, global_step], options=options, run_metadata=metadata)
    elapsed = now() - started
    if metadata is not None:
        _write_trace(metadata, step, train_step_kwargs)
    if "should_log" in train_step_kwargs and sess.run(train_step_kwargs["should_log"]):
        _log.info("global step %d: loss = %.4f (%.3f sec/step)", step, loss, elapsed)
    return loss, sess.run(train_step_kwargs["should_stop"]) if "should_stop" in train_step_kwargs else False


def _write_trace(metadata: RunMetadata, step: int, kwargs: dict[str, Any]) -> None:
    path = os.path.join(kwargs["logdir"], f"tf_trace-{step}.json")
    _log.info("Writing trace to %s", path)
    with open(path, "w", encoding="utf-8") as file:
        file.write(Timeline(metadata.step_stats).generate_chrome_trace_format())
    if kwargs.get("summary_writer") is not None:
        kwargs["summary_writer"].add_run_metadata(metadata, f"run_metadata-{step}")


@dataclass
class _SlimTraining:
    """The arguments of `train` besides the train op and its directory, and what they mean."""

    train_step_fn: Callable[..., tuple[Any, Any]] = train_step
    train_step_kwargs: Any = _USE_DEFAULT
    log_every_n_steps: int = 1
    graph: Graph | None = None
    master: str = ""
    is_chief: bool = True
    global_step: Any = None
    number_of_steps: int | None = None
    init_op: Any = _USE_DEFAULT
    init_feed_dict: Any = None
    local_init_op: Any = _USE_DEFAULT
    init_fn: Callable[[Any], Any] | None = None
    ready_op: Any = _USE_DEFAULT
    summary_op: Any = _USE_DEFAULT
    save_summaries_secs: float = 600
    summary_writer: Any = _USE_DEFAULT
    startup_delay_steps: int = 0
    saver: Any = None
    save_interval_secs: float = 600
    sync_optimizer: Any = None
    session_config: Any = None
    session_wrapper: Callable[[Any], Any] | None = None
    trace_every_n_steps: int | None = None
    ignore_live_threads: bool = False

    def optimizers(self, train_op: Operation | None, logdir: str | None) -> list[Any]:
        """Checks the arguments and returns the list of synchronous optimizers."""
        if train_op is None:
            raise ValueError("train_op cannot be None.")
        given = {
            "summary_op": not _default(self.summary_op),
            "saver": self.saver is not None,
            "trace_every_n_steps": self.trace_every_n_steps is not None,
        }
        for name in (name for name, is_given in given.items() if is_given and logdir is None):
            raise ValueError(f"Cannot provide {name} because logdir=None")
        one = self.sync_optimizer
        if one is not None and self.startup_delay_steps > 0:
            raise ValueError("startup_delay_steps must be zero when sync_optimizer is supplied.")
        if self.number_of_steps is not None and self.number_of_steps <= 0:
            raise ValueError("`number_of_steps` must be either None or a positive number.")
        optimizers = one if isinstance(one, list) else [one] if one else []
        if not all(isinstance(optimizer, SyncReplicasOptimizer) for optimizer in optimizers):
            raise ValueError("`sync_optimizer` must be a tf.train.SyncReplicasOptimizer.")
        return optimizers

    def ops(self, optimizers: Sequence[Any]) -> dict[str, Any]:
        """The supervisor's ops, in the default graph."""
        global_step = get_or_create_global_step() if self.global_step is None else self.global_step
        saver = self.saver or Saver()
        with name_scope("init_ops"):
            init_op = global_variables_initializer() if _default(self.init_op) else self.init_op
            ready_op = report_uninitialized_variables() if _default(self.ready_op) else self.ready_op
            local_init_op, ready_for_local_init_op = _local_init(self.local_init_op, optimizers, self.is_chief)
        summary_op = merge_all() if _default(self.summary_op) else self.summary_op
        return {
            "global_step": global_step, "saver": saver, "init_op": init_op, "ready_op": ready_op,
            "local_init_op": local_init_op, "ready_for_local_init_op": ready_for_local_init_op,
            "summary_op": summary_op,
        }  # fmt: skip

    def step_arguments(self, global_step: Variable, logdir: str | None) -> dict[str, Any]:
        """The last argument of ``train_step_fn``."""
        if not _default(self.train_step_kwargs):
            return self.train_step_kwargs  # type: ignore[no-any-return]
        with name_scope("train_step"):
            last = self.number_of_steps
            arguments: dict[str, Any] = {
                "should_stop": compare.greater_equal(global_step, last) if last else constant(False)
            }
            if self.log_every_n_steps > 0:
                arguments["should_log"] = compare.equal(floormod(global_step, self.log_every_n_steps), 0)
            if self.is_chief and self.trace_every_n_steps is not None:
                arguments["should_trace"] = compare.equal(floormod(global_step, self.trace_every_n_steps), 0)
                arguments["logdir"] = logdir
        return arguments

    def begin(self, supervisor: Supervisor, sess: BaseSession, chief_ops: Sequence[Any]) -> Sequence[Any]:
        """Starts the queue runners, and on the chief the services, which it returns."""
        services: Sequence[Any] = []
        if self.is_chief and supervisor.save_path:
            services = supervisor.start_standard_services(sess) or []
        elif not self.is_chief and self.startup_delay_steps > 0:
            step = min(self.startup_delay_steps, self.number_of_steps or sys.maxsize)
            _wait_for_step(supervisor, sess, supervisor.global_step, step)
        supervisor.start_queue_runners(sess)
        if chief_ops:
            supervisor.start_queue_runners(sess, [runner for _, runner in chief_ops])
            sess.run([tokens for tokens, _ in chief_ops])
        return services


@export("tf.contrib.slim.learning.train")
@sharing(_SlimTraining)
def train(given: _SlimTraining, train_op: Operation | None, logdir: str | None) -> Any:
    """Trains with a `Supervisor` until a step returns stop or the input ends; returns the last loss.

    TF name: ``tf.contrib.slim.learning.train``.

    Args:
      train_op: a tensor that trains and returns the loss, for instance from `create_train_op`.
      logdir: directory of checkpoints and events; None writes nothing.
      train_step_fn, train_step_kwargs: a function (session, train_op, global_step, train_step_kwargs) for one step.
      number_of_steps: the last value of the global step; None for no limit.
      startup_delay_steps: the global step that workers other than the chief wait for.
      sync_optimizer: a `SyncReplicasOptimizer`, or a list of such optimizers.
      session_wrapper: a function from the session to the session to use in its place.
      trace_every_n_steps: period of the chief's traces, in steps.
      ignore_live_threads: accepted and ignored; threads that outlive the grace period are never an error.
      The others are those of `Supervisor`.

    Raises:
      ValueError: when arguments contradict each other.
    """
    optimizers = given.optimizers(train_op, logdir)
    graph = given.graph or get_default_graph()
    with graph.as_default():
        ops = given.ops(optimizers)
        chief_ops = [(o.get_init_tokens_op(), o.get_chief_queue_runner()) for o in optimizers if given.is_chief]
        arguments = given.step_arguments(ops["global_step"], logdir)
    supervisor = Supervisor(
        graph=graph,
        is_chief=given.is_chief,
        logdir=logdir,
        init_feed_dict=given.init_feed_dict,
        summary_writer=Supervisor.USE_DEFAULT if _default(given.summary_writer) else given.summary_writer,
        save_summaries_secs=given.save_summaries_secs,
        save_model_secs=given.save_interval_secs,
        init_fn=given.init_fn,
        **ops,
    )
    if given.summary_writer is not None:
        arguments["summary_writer"] = supervisor.summary_writer

    def until_the_end(sess: BaseSession) -> Any:
        sess = given.session_wrapper(sess) if given.session_wrapper is not None else sess
        services = given.begin(supervisor, sess, chief_ops)
        loss = _steps(supervisor, sess, train_op, ops["global_step"], given.train_step_fn, arguments)
        if given.is_chief and logdir:
            _save(supervisor, sess, services)
        return loss

    return _with_new_sessions(supervisor, given.master, given.session_config, until_the_end)


def _default(value: object) -> bool:
    return isinstance(value, int) and value == _USE_DEFAULT


def _local_init(given: object, optimizers: Sequence[Any], is_chief: bool) -> tuple[Any, Any]:
    """(local init op, its ready op or None)."""
    local = group(local_variables_initializer(), tables_initializer()) if _default(given) else given
    if not optimizers:
        return local, None
    with control_dependencies([] if local is None else [local]):
        local = group(*(o.chief_init_op if is_chief else o.local_step_init_op for o in optimizers))
    return local, group(*(o.ready_for_local_init_op for o in optimizers))


def _wait_for_step(supervisor: Supervisor, sess: BaseSession, global_step: Variable, step: int) -> None:
    _log.info("Waiting for the other workers to reach global step %d (startup_delay_steps).", step)
    while value_of_global_step(sess, global_step) < step and not supervisor.should_stop():
        supervisor.coord.wait_for_stop(_POLL_SECS)


def _steps(
    supervisor: Supervisor,
    sess: BaseSession,
    train_op: Operation | None,
    global_step: Variable,
    train_step_fn: Callable[..., Any],
    kwargs: Mapping[str, Any],
) -> Any:
    """Runs steps until one returns stop or the input ends; returns the last loss."""
    loss = None
    try:
        while not supervisor.should_stop():
            loss, should_stop = train_step_fn(sess, train_op, global_step, kwargs)
            if should_stop:
                _log.info("Stopping Training.")
                supervisor.request_stop()
    except errors.OutOfRangeError as error:
        # The end of the input is the end of the training, not an error.
        _log.info("Caught OutOfRangeError. Stopping Training. %s", error)
    return loss


def _save(supervisor: Supervisor, sess: BaseSession, services: Sequence[Any]) -> None:
    """Saves the model after the service threads have ended, so that this is the last checkpoint."""
    supervisor.request_stop()
    for thread in services:
        thread.join()
    _log.info("Finished training! Saving model to disk.")
    supervisor.saver.save(sess, supervisor.save_path, global_step=supervisor.global_step)


def _with_new_sessions(supervisor: Supervisor, master: str, config: ConfigProto, run: Callable[[Any], Any]) -> Any:
    """Calls ``run(session)``, again with a new session after a restart of a task; returns its result."""
    while True:
        try:
            with supervisor.managed_session(master, start_standard_services=False, config=config) as sess:
                _log.info("Starting Session.")
                return run(sess)
        except errors.AbortedError:
            _log.info("Retrying training!")


@export("tf.contrib.training.train")
def train_with_hooks(
    train_op: Operation | None,
    logdir: str | None,
    master: str = "",
    is_chief: bool = True,
    scaffold: Scaffold | None = None,
    hooks: Sequence[Any] | None = None,
    chief_only_hooks: Sequence[Any] | None = None,
    save_checkpoint_secs: float | None = 600,
    save_summaries_steps: int | None = 100,
    config: ConfigProto | None = None,
    max_wait_secs: float = 7200,
    run_metadata: RunMetadata | None = None,
) -> Any:
    """Trains in a `MonitoredTrainingSession` until a hook requests a stop; returns the last loss.

    TF name: ``tf.contrib.training.train``. Every step fills ``run_metadata``; the other arguments are those of
    `MonitoredTrainingSession`.

    Raises:
      ValueError: when the chief is to save summaries or checkpoints, but ``logdir`` is None.
    """
    if logdir is None and is_chief:
        given = {"save_summaries_steps": save_summaries_steps, "save_checkpoint_secs": save_checkpoint_secs}
        for name in (name for name, value in given.items() if value):
            raise ValueError(f"logdir cannot be None when {name} is not None")
    loss = None
    with MonitoredTrainingSession(
        master=master,
        is_chief=is_chief,
        checkpoint_dir=logdir,
        scaffold=scaffold,
        hooks=hooks,
        chief_only_hooks=chief_only_hooks,
        save_checkpoint_secs=save_checkpoint_secs,
        save_summaries_steps=save_summaries_steps,
        config=config,
        max_wait_secs=max_wait_secs,
    ) as session:
        while not session.should_stop():
            loss = session.run(train_op, run_metadata=run_metadata)
    return loss
