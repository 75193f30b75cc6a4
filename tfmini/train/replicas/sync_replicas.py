"""Synchronous training with between-graph replication: one update from the gradients of several workers.

Each worker sends its gradients, with the step for which they were computed, to accumulators on the variables'
devices, and then waits for a token. A thread of the chief takes the mean of ``replicas_to_aggregate`` gradients
per variable, applies it, increments the global step, and enqueues one token per worker with the new step.
Gradients of an earlier step are dropped, so a slow worker skips a step and continues with the others.

Unlike in TensorFlow, a run has a clean end. A worker that ends returns its token, so that the others do not wait
for its gradients. The chief, which makes all updates, closes the token queue when it ends; the others then get
`OutOfRangeError`, the end of the input, instead of waiting forever. Both need the hook of
`SyncReplicasOptimizer.make_session_run_hook`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from threading import Thread
from typing import Any

from tfmini import dtypes, errors, protos
from tfmini.export import export
from tfmini.graph.conversion import IndexedSlices
from tfmini.graph.graph import Graph
from tfmini.graph.names import GraphKeys
from tfmini.graph.omission import STAND_IN
from tfmini.graph.op_types import PLACEHOLDER_OPS
from tfmini.graph.operation import Operation, Tensor
from tfmini.graph.scoping import colocate_with, control_dependencies, device, name_scope
from tfmini.ops.array.filling import fill
from tfmini.ops.control import group, no_op
from tfmini.ops.queues import queue_ops
from tfmini.ops.queues.accumulators import ConditionalAccumulator, SparseConditionalAccumulator
from tfmini.ops.queues.queue_ops import FIRST_ELEMENTS
from tfmini.ops.queues.queues import FIFOQueue
from tfmini.ops.variables.assignment import assign
from tfmini.ops.variables.functions import Variable, global_variables, report_uninitialized_variables
from tfmini.runtime.client.session import BaseSession
from tfmini.runtime.process import current_process
from tfmini.train.coordinator import Coordinator
from tfmini.train.optimizers.loss_scale import OptimizerWrapper
from tfmini.train.optimizers.optimizer import GradAndVar, Optimizer
from tfmini.train.queue_runners import QueueRunner
from tfmini.train.replicas.compressed import CompressedGradientOptimizer, ErrorFeedback
from tfmini.train.replicas.elastic import NumbersFollower, Roster
from tfmini.train.replicas.sync_state import ChangingNumbers, Numbers, SyncLedger, SyncState, added_later, ledger_ops
from tfmini.train.session_run_hook import SessionRunArgs, SessionRunContext, SessionRunHook, SessionRunValues
from tfmini.train.sessions.readiness import ready
from tfmini.train.sessions.wrapped_session import PREEMPTION_ERRORS, add_run_state, cause_of, run_states

# The attr of an accumulator's update that names the contributor of the gradient for the ledger.
_CONTRIBUTOR = "_contributor"


@export("tf.train.SyncReplicasOptimizer")
class SyncReplicasOptimizer(OptimizerWrapper, Optimizer):
    """Wraps an optimizer for synchronous training (``tf.train.SyncReplicasOptimizer``); see the module.

    Args:
      opt: the optimizer that computes and applies gradients.
      replicas_to_aggregate: number of gradients in the mean of one update.
      total_num_replicas: number of workers, default ``replicas_to_aggregate``. If it is larger, the extra workers
        are backups for slow ones; if smaller, workers contribute several gradients per update.
      variable_averages: an `ExponentialMovingAverage` to update after each step.
      variables_to_average: the variables for ``variable_averages``.
      use_locking, name: as in `Optimizer`.
      elastic: both numbers may change during the run: they follow the workers that come, and that leave in good order;
        see also `resize`. The graph then is not TensorFlow's.
      compression: of dense gradients, as in `CompressedGradientOptimizer`.

    Raises:
      ValueError: there is no such compression, or ``opt`` is a `CompressedGradientOptimizer`.
    """

    def __init__(
        self,
        opt: Optimizer,
        replicas_to_aggregate: int,
        total_num_replicas: int | None = None,
        variable_averages: Any = None,
        variables_to_average: Sequence[Variable] | None = None,
        use_locking: bool = False,
        name: str = "sync_replicas",
        elastic: bool = False,
        compression: str | None = None,
    ) -> None:
        super().__init__(opt, use_locking, name)
        if isinstance(opt, CompressedGradientOptimizer):  # it would get means that are on the parameter servers already
            raise ValueError("Give SyncReplicasOptimizer the argument compression, not a CompressedGradientOptimizer.")
        self._feedback = ErrorFeedback(compression, name)
        self._replicas_to_aggregate = replicas_to_aggregate
        self._total_num_replicas = replicas_to_aggregate if total_num_replicas is None else total_num_replicas
        self._variable_averages = variable_averages
        self._variables_to_average = variables_to_average
        self._tokens_per_step = max(self._total_num_replicas, replicas_to_aggregate)
        self._elastic = elastic
        self._numbers: ChangingNumbers | None = None
        self._roster: Roster | None = None
        self._global_step: Any = None
        self._local_step: Any = None
        self._sync_token_queue: Any = None
        self._chief_queue_runner: _ChiefQueueRunner | None = None
        # (name of the variable, accumulator, device) for each variable with a gradient.
        self._accumulators: list[tuple[str, Any, str]] = []
        self.chief_init_op: Operation
        self.local_step_init_op: Any
        self.ready_for_local_init_op: Tensor
        _log.info(
            "SyncReplicasV2: replicas_to_aggregate=%s; total_num_replicas=%s",
            replicas_to_aggregate, self._total_num_replicas,
        )  # fmt: skip

    def apply_gradients(
        self, grads_and_vars: Iterable[GradAndVar], global_step: Any = None, name: str | None = None
    ) -> Any:
        """A worker's train op: sends its gradients and waits for the token of the next step.

        It also adds the chief's ops: see `get_chief_queue_runner`, ``chief_init_op``, ``local_step_init_op``,
        ``ready_for_local_init_op``, `get_init_tokens_op`.

        Args:
          grads_and_vars: the result of `compute_gradients`.
          global_step: the variable that counts updates; it is needed to detect stale gradients.

        Raises:
          ValueError: when gradients or the global step are missing, or a gradient has another type.
        """
        pairs = self._feedback.arrived(grads_and_vars)
        if not pairs:
            raise ValueError("Must supply at least one variable")
        if global_step is None:
            raise ValueError(
                "Global step is required to check staleness: pass global_step=tf.train.get_or_create_global_step()."
            )
        _warn_of_second_call(global_step.graph)
        self._global_step = global_step
        self._add_local_step(global_step)
        with name_scope(None, self._name):
            self._add_numbers(global_step)
            sent, aggregated = self._add_accumulators(pairs)
            with device(global_step.device), name_scope(""):
                update = self._opt.apply_gradients(aggregated, global_step)
            self._add_queues(global_step)
            train_op = self._add_steps(global_step, sent, update, dummy=self._dummy_queue)
            self._add_chief_init(global_step)
        handles = [accumulator.accumulator_ref for _, accumulator, _ in self._accumulators]
        spare = max(0, self._total_num_replicas - self._replicas_to_aggregate)
        self._state = SyncState(
            handles, self._sync_token_queue.queue_ref, global_step, self._anchor.device, spare, self._elastic
        )
        assert self._chief_queue_runner is not None
        self._chief_queue_runner.state = self._state
        add_run_state(global_step.graph, self._state)
        return train_op

    def _add_local_step(self, global_step: Variable) -> None:
        # This op is placed on the worker's own task; colocation keeps the variable off the parameter servers.
        self._anchor = no_op()
        with colocate_with(self._anchor):
            self._local_step = Variable(
                initial_value=0,
                trainable=False,
                collections=[GraphKeys.LOCAL_VARIABLES],
                dtype=global_step.dtype.base_dtype,
                name="sync_rep_local_step",
            )
        self.local_step_init_op = assign(self._local_step, global_step)
        self.ready_for_local_init_op = report_uninitialized_variables(global_variables())

    def _add_numbers(self, global_step: Variable) -> None:
        if self._elastic:
            with device(global_step.device):
                self._numbers = ChangingNumbers(Numbers(self._replicas_to_aggregate, self._total_num_replicas))
            self._roster = Roster(global_step.device, self._anchor.device)

    def _add_accumulators(self, pairs: list[GradAndVar]) -> tuple[list[Operation], list[GradAndVar]]:
        """(the operations that send gradients, pairs of mean gradient and variable)."""
        sent: list[Operation] = []
        aggregated: list[GradAndVar] = []
        for grad, var in pairs:
            with device(var.device):
                mean = None if grad is None else self._accumulate(grad, var, sent)
            aggregated.append((mean, var))
        return sent, aggregated

    def _accumulate(self, grad: Tensor | IndexedSlices, var: Variable, sent: list[Operation]) -> Any:
        accumulator: Any
        shared_name = var.name + "/grad_accum"
        if isinstance(grad, Tensor):
            accumulator = ConditionalAccumulator(grad.dtype, shape=var.get_shape(), shared_name=shared_name)
            apply, take = accumulator.apply_grad, accumulator.take_grad
        elif isinstance(grad, IndexedSlices):
            accumulator = SparseConditionalAccumulator(grad.dtype, shape=(), shared_name=shared_name)
            apply, take = accumulator.apply_indexed_slices_grad, accumulator.take_indexed_slices_grad
        else:
            raise ValueError("Unknown grad type!")
        sending = apply(grad, local_step=self._local_step)
        sending._set_attr(_CONTRIBUTOR, self._anchor.device.encode())
        sent.append(sending)
        self._accumulators.append((var.op.name, accumulator, var.device))
        return take(self._replicas_to_aggregate if self._numbers is None else self._numbers.aggregate)

    def _add_queues(self, global_step: Variable) -> None:
        dtype = global_step.dtype.base_dtype
        with device(global_step.device), name_scope(""):
            self._sync_token_queue = FIFOQueue(-1, dtype, shapes=(), name="sync_token_q", shared_name="sync_token_q")
            # A queue only for the chief's queue runner, which closes its queue at the end. A token queue on a
            # parameter server would stay closed for the next run.
            self._dummy_queue = FIFOQueue(1, dtypes.int32, shapes=(), name="dummy_queue", shared_name="dummy_queue")

    def _add_steps(self, global_step: Variable, sent: list[Operation], update: Operation, dummy: Any) -> Any:
        with device(global_step.device), name_scope(""):
            with control_dependencies(sent):
                token = self._sync_token_queue.dequeue()
            # Where a token got lost on its way, the present step stands for it.
            token.op._set_attr(STAND_IN, global_step.op.name.encode())
            train_op = assign(self._local_step, token)
            with control_dependencies([update]):
                count = self._tokens_per_step if self._numbers is None else self._numbers.tokens
                tokens = fill([count], global_step)
                sync_op = self._sync_token_queue.enqueue_many((tokens,))
            if self._variable_averages is not None:
                with control_dependencies([sync_op]), name_scope(""):
                    sync_op = self._variable_averages.apply(self._variables_to_average)
            self._chief_queue_runner = _ChiefQueueRunner(
                dummy,
                [sync_op],
                queue_closed_exception_types=(errors.OutOfRangeError, errors.CancelledError),
            )
            if self._numbers is not None:
                self._numbers.add_ops(self._sync_token_queue, global_step)
                self._chief_queue_runner.numbers = self._numbers
        return train_op

    def _add_chief_init(self, global_step: Variable) -> None:
        inits = [self.local_step_init_op]
        for _, accumulator, place in self._accumulators:
            with device(place):
                inits.append(accumulator.set_global_step(global_step, name="SetGlobalStep"))
        self.chief_init_op = group(*inits)

    def get_chief_queue_runner(self) -> QueueRunner:
        """The queue runner of the chief's thread, which applies the updates and enqueues the tokens.

        Raises:
          ValueError: when `apply_gradients` was not called before.
        """
        if self._chief_queue_runner is None:
            raise ValueError("Should be called after apply_gradients().")
        return self._chief_queue_runner

    def get_init_tokens_op(self, num_tokens: int = -1) -> Operation:
        """The op that the chief runs once before the first step; it enqueues the workers' first tokens.

        Args:
          num_tokens: default ``replicas_to_aggregate``. With fewer than ``replicas_to_aggregate -
            total_num_replicas`` tokens the first update would wait forever.

        Raises:
          ValueError: when there are too few tokens, or `apply_gradients` was not called before.
        """
        if self._chief_queue_runner is None:
            raise ValueError("get_init_tokens_op() should be called after apply_gradients().")
        needed = self._replicas_to_aggregate - self._total_num_replicas
        if num_tokens == -1:
            num_tokens = self._replicas_to_aggregate
        elif num_tokens < needed:
            raise ValueError(f"Too few tokens to finish the first step: {num_tokens} (given) vs {needed} (needed)")
        if num_tokens <= 0:
            return no_op(name="no_init_tokens")
        with device(self._global_step.device), name_scope(""):
            tokens = fill([num_tokens], self._global_step)
            first: Operation = self._sync_token_queue.enqueue_many((tokens,))
            # A chief that goes on with the tokens of the one before adds none to them.
            first._set_attr(FIRST_ELEMENTS, True)
            return first

    def make_session_run_hook(self, is_chief: bool, num_tokens: int = -1) -> SyncReplicasHook:
        """A hook that initializes local steps, starts the chief's thread, and ends the run (see the module).

        Args:
          is_chief: whether this worker is the chief.
          num_tokens: see `get_init_tokens_op`.
        """
        return SyncReplicasHook(self, is_chief, num_tokens)

    def resize(self, session: BaseSession, total_num_replicas: int, replicas_to_aggregate: int | None = None) -> None:
        """Lets the run go on with another number of workers, from the next update on. Only the chief can do so.

        The effective batch changes with it: scale the learning rate if you scaled it with the batch.

        Args:
          session: the chief's session, plain or monitored.
          total_num_replicas: workers, with the chief.
          replicas_to_aggregate: gradients in the mean of one update; default: the same proportion of the workers as
            in the arguments of the optimizer.

        Raises:
          ValueError: the optimizer is not elastic, `apply_gradients` was not called before, or a number is below 1.
        """
        if self._numbers is None:
            raise ValueError("resize() needs SyncReplicasOptimizer(elastic=True), after apply_gradients().")
        aggregate = replicas_to_aggregate
        if total_num_replicas < 1 or (aggregate is not None and aggregate < 1):
            raise ValueError(f"There must be at least 1 replica, got {total_num_replicas} and {aggregate}.")
        numbers = self._numbers.first.scaled(total_num_replicas)
        numbers = numbers if aggregate is None else Numbers(aggregate, total_num_replicas)
        _log.info("Updates have %d gradients of %d workers from now on.", numbers.aggregate, numbers.total)
        self._numbers.change(session._tf_sess() if hasattr(session, "_tf_sess") else session, numbers)

    def ledger(self, session: BaseSession) -> SyncLedger:
        """Reads the ledger: the workers whose gradients each step applied, dropped as stale, or still holds.

        The parameter servers keep the ledger for all workers; any session of the cluster can read it at any time.

        Args:
          session: a session of this graph, plain or monitored. The first call adds ops to the graph, even if it
            is finalized.

        Raises:
          ValueError: when `apply_gradients` was not called before.
        """
        if self._chief_queue_runner is None:
            raise ValueError("ledger() should be called after apply_gradients().")
        plain = session._tf_sess() if hasattr(session, "_tf_sess") else session
        return SyncLedger.from_json(plain.run(ledger_ops(self._accumulators)))


def _warn_of_second_call(graph: Graph) -> None:
    """Warns once per graph of calls that share tokens and accumulators, as in TensorFlow; most of them hang."""
    calls = 1 + sum(isinstance(state, SyncState) for state in run_states(graph))
    if calls == 2:
        _log.warning(
            "SyncReplicasOptimizer.apply_gradients (or minimize) was called 2 times for one graph. All calls share one"
            " queue of tokens, and get_chief_queue_runner() and make_session_run_hook() of an optimizer serve only its"
            " last call. So steps of the others wait for updates that nobody makes. Pass all gradients in one call:"
            " optimizer.apply_gradients(pairs + more_pairs, global_step)."
        )


class _Unjoined:
    """A view of a coordinator that takes the error of the chief's thread, and neither joins nor stops the thread."""

    def __init__(self, coord: Coordinator) -> None:
        self._coord = coord

    def __getattr__(self, name: str) -> Any:
        return getattr(self._coord, name)

    def register_thread(self, thread: Thread) -> None:
        """Does nothing: the chief's thread waits for gradients until its session is closed, after the join."""

    def should_stop(self) -> bool:
        """False: the workers, also the chief's own step, wait for updates until the end of the run or the session."""
        return False

    def request_stop(self, ex: BaseException) -> None:
        """Stops the chief with the error of its thread; after the join nobody is left to raise it, so it is logged."""
        try:
            self._coord.request_stop(ex)
        except Exception as late:  # noqa: BLE001 - what was reported itself, raised since the coordinator has joined
            _log.info("The updates have failed after the chief's end: %s", late)


class _ChiefQueueRunner(QueueRunner):
    """The thread that makes the updates. Its queue is one that nobody waits for; all wait for tokens."""

    numbers: ChangingNumbers | None = None
    state: SyncState
    _is_monitored = False  # by a session that ends its step when a thread loses a task

    def _enqueuing(self, sess: BaseSession, number: int) -> Any:
        enqueue_op = self.enqueue_ops[number]
        try:
            self.state.begin(sess)
        except (errors.OpError, RuntimeError) as error:  # the first update meets the cause
            _log.debug("The workers do not know the chief's name: %s", error)
        with self._failing(sess):
            made = sess.make_callable(enqueue_op) if self.numbers is None else self.numbers.updates(sess, enqueue_op)

        def update() -> None:
            try:
                made()
            except Exception:
                with self._failing(sess):  # only now: to enter it takes longer than to begin an update
                    raise

        return update

    @contextlib.contextmanager
    def _failing(self, sess: BaseSession) -> Iterator[None]:
        """Ends the run of all workers if the block fails: without updates they would wait for ever."""
        try:
            yield
        except PREEMPTION_ERRORS:  # the chief, or the next one, makes a new session and goes on
            if not self._is_monitored and not sess._closed and sess.sess_str:
                with contextlib.suppress(errors.OpError, RuntimeError):  # the waits for a lost task have ended
                    self.state.wake(sess)
            raise
        except Exception as error:
            if sess._closed:  # by the chief's end; whoever waits for the thread's session knows why
                text = "The session of the chief's updates is closed."
                raise error if isinstance(error, errors.OpError) else errors.CancelledError(None, None, text) from error
            failure = _explained(error)
            try:
                self.state.fail_update(sess, failure)
            except Exception as lost:  # the cause is raised in any case
                _log.warning("The workers could not be told that the updates have failed: %s", lost)
            # After the end of the run this is what the runner expects: the token queue is closed.
            raise error if isinstance(error, errors.CancelledError) else failure from error

    def create_threads(
        self, sess: BaseSession, coord: Coordinator | None = None, daemon: bool = False, start: bool = False
    ) -> list[Any]:
        self._is_monitored = coord is not None and coord._on_error is not None
        return super().create_threads(sess, _Unjoined(coord) if coord else None, daemon, start)  # type: ignore[arg-type]


def _explained(error: Exception) -> Exception:
    """The error of an update as the user sees it."""
    if isinstance(error, errors.OutOfRangeError):  # else it would count as the end of the workers' input
        text = f"An input of the update has ended, such as the dataset of a learning rate: {cause_of(error)}"
        return errors.UnknownError(None, error.op, text)
    op = getattr(error, "op", None)
    if op is None or op.type not in PLACEHOLDER_OPS:
        return error
    text = (
        f"The placeholder {op.name!r} has no value in the chief's thread that makes the updates. The thread feeds"
        " nothing, and what workers feed to their steps does not reach it. Take a value that needs no feed: a variable"
        " that the chief assigns (tf.Variable(…, trainable=False)), or a function of the global step such as"
        " tf.train.exponential_decay."
    )
    return errors.InvalidArgumentError(None, op, text)


# ---- The hook of `SyncReplicasOptimizer`, which starts and ends a synchronous run ----------------------------------

_log = logging.getLogger("tensorflow")
REOPEN_WAIT_S = 10.0
_POLL_S = 0.1
_LEAVE_MS = 2000
# Errors at a worker's end that mean that other tasks have ended before.
_OTHERS_ENDED = (errors.CancelledError, errors.OutOfRangeError, errors.AbortedError, errors.UnavailableError)


class SyncReplicasHook(SessionRunHook):
    """Starts and ends a worker's part in a synchronous run; see `SyncReplicasOptimizer.make_session_run_hook`."""

    def __init__(self, optimizer: SyncReplicasOptimizer, is_chief: bool, num_tokens: int) -> None:
        self._optimizer = optimizer
        self._is_chief = is_chief
        self._num_tokens = num_tokens
        self._runner: Any = None
        self._init_tokens: Any = None
        self._follower: NumbersFollower | None = None

    def begin(self) -> None:
        """Adds the ops that the hook runs.

        Raises:
          ValueError: when the optimizer's `apply_gradients` was not called before.
        """
        optimizer = self._optimizer
        if optimizer._chief_queue_runner is None:
            raise ValueError("SyncReplicasOptimizer.apply_gradient should be called before using the hook.")
        optimizer._state.has_hook = True
        self._roster = optimizer._roster
        self._ready_op = optimizer.ready_for_local_init_op
        queue = optimizer._sync_token_queue
        if self._is_chief:
            self._local_init = optimizer.chief_init_op
            self._runner = optimizer.get_chief_queue_runner()
            self._init_tokens = optimizer.get_init_tokens_op(self._num_tokens)
        else:
            self._local_init = optimizer.local_step_init_op
        with device(optimizer._global_step.device), name_scope(""):
            self._is_closed = queue.is_closed()
            self._leave_op = queue.enqueue(optimizer._local_step)
        optimizer._state.leave = self._leave

    def after_create_session(self, session: BaseSession, coord: Coordinator) -> None:
        """Sets the local step; on the chief, also enqueues the first tokens and starts the update thread.

        Raises:
          RuntimeError: when global variables are not initialized.
        """
        success, reason = ready(self._ready_op, session, "Model is not ready for SyncReplicasOptimizer local init.")
        if not success:
            raise RuntimeError(
                "Init operations did not make model ready for SyncReplicasOptimizer local_init."
                f" Init op: {self._local_init.name}, error: {reason}"
            )
        session.run(self._local_init)
        if session.run(self._is_closed):
            self._wait_for_reopening(session)
        if self._init_tokens is not None:
            session.run(self._init_tokens)
        numbers = self._optimizer._numbers
        if self._is_chief and numbers is not None and session.run(self._optimizer._global_step) > 0:
            numbers.go_on(session)
        if self._roster is not None:
            session.run(self._roster.enter)
        if self._is_chief and numbers is not None:
            self._follower = NumbersFollower(numbers)
        if self._runner is not None:
            self._runner.create_threads(session, coord=coord, daemon=True, start=True)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """On the chief of an elastic run: also counts the workers."""
        return SessionRunArgs(self._roster.count) if self._roster and self._follower else None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Lets the number of gradients follow the number of workers."""
        wanted = self._follower.wanted(int(run_values.results)) if self._follower else None
        if wanted is not None:
            self._optimizer.resize(run_context.session, wanted)

    def _wait_for_reopening(self, session: BaseSession) -> None:
        """Handles a queue that the chief of an earlier run closed: the new chief reopens it, workers wait for that."""
        if self._is_chief:
            session.run(self._reopen_op())
            return
        process = current_process()
        deadline = process.now() + REOPEN_WAIT_S
        while process.now() < deadline:
            process.sleep(_POLL_S)
            if not session.run(self._is_closed):
                return
        _log.warning(
            "The synchronous run that this worker wants to join has ended or failed, and no chief has started another"
            " within %.0f s. The worker's first step says which.", REOPEN_WAIT_S,
        )  # fmt: skip

    def _reopen_op(self) -> Any:
        """The op is added only when it is needed, so that graphs exported to TensorFlow do not contain it."""
        queue_ref = self._optimizer._sync_token_queue.queue_ref
        return added_later(queue_ref, lambda: queue_ops.queue_reopen(queue_ref, name="reopen"))

    def end(self, session: BaseSession) -> None:
        """Returns the worker's token; the chief instead closes the token queue, which ends the run for all.

        A chief that only leaves, because its process was told to end, returns its token, too: the others wait for it.
        """
        try:
            if self._roster is not None:
                session.run(self._roster.leave)
            if self._is_chief and not current_process().is_leaving:
                self._optimizer._state.end_in(session)
            else:
                session.run(self._leave_op)
        except _OTHERS_ENDED as error:
            _log.debug("The synchronous run has ended on other tasks: %s", error)

    def _leave(self, session: BaseSession) -> None:
        """Returns the worker's token when it goes in the middle; `RunState.leave`."""
        soon = protos.RunOptions(timeout_in_ms=_LEAVE_MS)
        try:
            if self._roster is not None:
                session.run(self._roster.leave, options=soon)
            session.run(self._leave_op, options=soon)
        except (errors.OpError, RuntimeError) as error:  # the worker ends anyway
            _log.debug("The worker could not return its token: %s", error)
