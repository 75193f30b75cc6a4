"""Evaluation of ready ops, and readable reasons why a model is not ready."""

from __future__ import annotations

import logging
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfmini import dtypes, errors, library_log, protos
from tfmini.devices import DeviceSpec, intersects, parse
from tfmini.exit_codes import ExitCode
from tfmini.graph.graph import Graph
from tfmini.graph.names import MODEL_RECORD, GraphKeys
from tfmini.graph.op_types import ops_with
from tfmini.graph.scoping import device
from tfmini.ops.array.identity import placeholder
from tfmini.ops.variables.assignment import assign
from tfmini.ops.variables.functions import Variable
from tfmini.protos import ConfigProto
from tfmini.runtime.client.answer import FIRST_S
from tfmini.runtime.client.master_clients import CHIEF_JOBS, Reachability, chief_of, reach, task_of, unreachable
from tfmini.runtime.client.session import BaseSession, Session
from tfmini.runtime.process import current_process
from tfmini.train.checkpointing.graph_files import GRAPH_FILE, get_checkpoint_state, write_training_graph

_log = logging.getLogger("tensorflow")
_runtime_log = logging.getLogger("tfmini.runtime")
_PREFIX = "Variables not initialized: "
_NAMES_SHOWN = 10
_COLLECTIVES = ops_with("collective")


def ready(op: object, sess: BaseSession, msg: str) -> tuple[bool, str | None]:
    """Runs a ready op.

    Args:
      op: a 1-D string tensor with the names of uninitialized variables. The model is ready if ``op`` or its value
        is None, or the value is empty or of type int32.
      sess: the session.
      msg: the text to log with an error that is not about readiness.

    Returns:
      (whether the model is ready, the reason if not).

    Raises:
      FailedPreconditionError: when the op fails for a reason other than an uninitialized variable.
    """
    if op is None:
        return True, None
    try:
        value = sess.run(op)
    except errors.FailedPreconditionError as error:
        if "uninitialized" not in str(error):
            _log.warning("%s : error [%s]", msg, error)
            raise
        return False, str(error)
    if value is None or value.dtype == np.int32 or value.size == 0:
        return True, None
    return False, _PREFIX + ", ".join(name.decode() for name in value)


def name_of(obj: object) -> str:
    """The name of an op for messages; the op may be None or have no name."""
    if obj is None:
        return "None"
    return getattr(obj, "name", None) or f"<no name for {type(obj)}>"


def with_places(reason: str | None, graph: Graph) -> str:
    """Adds the devices of the variables to a reason of `ready`; of many variables it names only the first ones."""
    if reason is None:
        return "nothing"
    if not reason.startswith(_PREFIX):
        return reason
    return _first(list(_placed(reason[len(_PREFIX) :].split(", "), graph)))


def shortened(reason: str | None) -> str | None:
    """A reason of `ready` that names only the first ones of many variables."""
    if reason is None or not reason.startswith(_PREFIX):
        return reason
    return _PREFIX + _first(reason[len(_PREFIX) :].split(", "))


def _first(names: list[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def advice(reason: str | None, graph: Graph, task: str) -> str:
    """What to do about uninitialised variables that lie on this task, a worker's; "" without any."""
    if reason is None or not reason.startswith(_PREFIX) or not task:
        return ""
    names = [name for name in reason[len(_PREFIX) :].split(", ") if _lies_on(name, graph, task)]
    if not names:
        return ""
    if any(op.type in _COLLECTIVES for op in graph.get_operations()):
        return (
            f". The variable {names[0]} lies on this task, {task}, and the graph has collectives: each rank initialises"
            " its own variables, so make the session of every rank with is_chief=True"
        )
    if not _device_of(names[0], graph):
        return (
            f". The variable {names[0]} has no device, so it lies on this task, {task}, and the chief has one of its"
            " own: make it under tf.device(tf.train.replica_device_setter(...)), and all tasks share one on a ps"
        )
    return (
        f". The variable {names[0]} lies on this task, {task}, so the chief's graph probably has no such variable, and"
        " nobody initialises it: make it with collections=[tf.GraphKeys.LOCAL_VARIABLES], which each worker initialises"
        " itself"
    )


def _lies_on(name: str, graph: Graph, task: str) -> bool:
    wanted = _device_of(name, graph)
    if wanted is None:
        return False
    device = parse(wanted)  # without a request it lies on the client's task
    return not wanted or device.job is not None and device.task is not None and intersects(device, parse(task))


def _device_of(name: str, graph: Graph) -> str | None:
    """The device that a variable requests; None if it is not in the graph: a user's ready op may return any string."""
    try:
        return graph.get_operation_by_name(name.partition(":")[0]).device
    except (KeyError, ValueError):
        return None


def _placed(names: Iterable[str], graph: Graph) -> Iterable[str]:
    for name in names:
        device = _device_of(name, graph)
        yield f"{name} ({device})" if device else name


class LongWait:
    """Warns of a wait for other tasks after `FIRST_S` seconds, and again whenever the time has doubled.

    The warning is one of the runtime, as for a step that has no answer: `tf.logging.set_verbosity` does not hide it.
    """

    def __init__(self) -> None:
        self._now = current_process().now
        self._begin = self._now()
        self._next_s = FIRST_S

    def look(self, text: Callable[[], str]) -> None:
        """Warns if it is time; ``text``: what the wait is for."""
        waited_s = self._now() - self._begin
        if waited_s >= self._next_s:
            self._next_s = max(2 * self._next_s, waited_s)
            _runtime_log.warning("For %.0f s this task has been %s.", waited_s, text())


# ---- The wait of a worker until the chief has initialized the model ------------------------------------------------
# A thread probes the model, because a probe can block while a task is not running. The waiting thread logs the
# missing variables and tasks. It gives up at the deadline, at a cancellation, or when the chief stays lost.

# The pause between two probes, which doubles from the first to the last value.
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.02, 0.25
_TICK_S = 0.1
_LOG_AGAIN_S = 30.0
_JOIN_S = 1.0

# session -> (whether local init is done, reason if not).
LocalInit = Callable[[Any], tuple[bool, str | None]]
# session -> (whether the model is ready, reason if not).
Ready = Callable[[Any], tuple[bool, str | None]]


class ReadinessProbe:
    """Probes the model, in a thread, until it is ready; after an error of the session it uses a new one.

    Attributes:
      session: the session with the ready model, or None.
      error: the error that ended the thread, or None.
      local_reason, reason: the reasons of the last probe: not ready for local init, not ready.
      failing_since: time since when every probe failed because a task is lost; None if the last one succeeded.
      failure: the error of the last probe, or None.
    """

    def __init__(self, connect: Callable[[], Any], local_init: LocalInit, ready: Ready, retried: Any) -> None:
        self._process = current_process()
        self._thread = self._process.thread(self._run, name="wait_for_session", daemon=True)
        self._connect, self._local_init, self._ready, self._retried = connect, local_init, ready, retried
        self._given_up = self._process.event()
        self._current: Any = None
        self.over = self._process.event()
        self.session: Any = None
        self.error: BaseException | None = None
        self.probes = 0
        self.local_reason: str | None = None
        self.reason: str | None = None
        self.failing_since: float | None = None
        self.failure: errors.OpError | None = None

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def _run(self) -> None:
        try:
            while self.session is None and not self._given_up.is_set():
                self._probe_in_new_session()
        except BaseException as error:  # the waiting thread raises it
            self.error = error
        finally:
            self.over.set()

    def _probe_in_new_session(self) -> None:
        session = self._current = self._connect()
        try:
            if self._probe_until_ready(session):
                self.session = session
        except self._retried as error:
            self.failure = error
            self.failing_since = self.failing_since or self._process.now()
            _log.debug("A readiness probe failed: %s", error)
        finally:
            if self.session is not session:
                close_quietly(session)
        if self.session is None:
            self._given_up.wait(_LAST_PAUSE_S)

    def _probe_until_ready(self, session: BaseSession) -> bool:
        local_done, pause_s = False, _FIRST_PAUSE_S
        while not self._given_up.is_set():
            is_ready = False
            self.reason = None
            if not local_done:
                local_done, self.local_reason = self._local_init(session)
            if local_done:
                is_ready, self.reason = self._ready(session)
            self.failing_since = self.failure = None
            self.probes += 1
            if is_ready:
                return True
            self._given_up.wait(pause_s)
            pause_s = min(2 * pause_s, _LAST_PAUSE_S)
        return False

    def give_up(self) -> None:
        """Ends the thread; closes the session of a probe that hangs, which cancels it."""
        self._given_up.set()
        self._thread.join(_JOIN_S)
        if self._thread.is_alive():
            close_quietly(self._current)
        elif self.session is not None:
            close_quietly(self.session)


def close_quietly(session: Any) -> None:
    """Closes a session; an error is only logged."""
    try:
        session.close()
    except Exception as error:  # the error that led here, if any, is more important
        _log.debug("Closing a session failed: %s", error)


class ReadinessWait:
    """One wait for a ready model.

    Args:
      probe: the probe, not started.
      target: the session's target.
      graph: the graph, for the devices of the variables.
      recovery_wait_s: seconds that a connected chief or task may be lost before the wait fails.
      max_wait_s: seconds to wait for the model.
      cancelled: a function that cancels the wait by returning True; it is called ten times per second.
    """

    def __init__(
        self,
        probe: ReadinessProbe,
        target: str,
        graph: Graph,
        recovery_wait_s: float,
        max_wait_s: float,
        cancelled: Callable[[], bool] | None,
    ) -> None:
        self._probe = probe
        self._target = target
        self._graph = graph
        self._recovery_wait_s = recovery_wait_s
        self._max_wait_s = max_wait_s
        self._cancelled = cancelled
        self._now = current_process().now
        self._begin = self._now()
        self._chief = chief_of(target)
        self._chief_gone_since: float | None = None
        self._logged, self._logged_at = "", float("-inf")
        self._long = LongWait()

    def result(self) -> Any:
        """Waits for the model and returns the session.

        Raises:
          DeadlineExceededError: after ``max_wait_s``.
          UnavailableError: when the chief, or a task with variables, was connected and is lost.
          CancelledError: when ``cancelled`` returns True.
        """
        probe = self._probe
        probe.start()
        try:
            while not probe.over.wait(min(_TICK_S, self._left_s())):
                self._check()
        except BaseException:  # even Ctrl-C, since only the probe has a reference to close its session
            probe.give_up()
            raise
        if probe.error is not None:
            raise probe.error
        return probe.session

    def _left_s(self) -> float:
        return max(0.0, self._begin + self._max_wait_s - self._now())

    def _check(self) -> None:
        if self._cancelled is not None and self._cancelled():
            raise errors.CancelledError.of(f"A stop was requested while {self._waiting_for()}.")
        if self._left_s() <= 0:
            raise errors.DeadlineExceededError.of(
                f"Session was not ready after waiting {self._max_wait_s:g} secs. It was {self._waiting_for()}.",
            )
        self._check_tasks()
        if self._probe.probes or self._now() - self._begin > 1.0:
            self._log_if_new()
        self._long.look(lambda: f"{self._waiting_for()}{self._remedy()}")

    def _remedy(self) -> str:
        chief = self._chief_state()
        reason = self._probe.local_reason or self._probe.reason
        if chief is None or chief.connected or advice(reason, self._graph, task_of(self._target)):
            return ""
        return (
            ". Start the chief, or look at its output: the first task of the job chief, master or worker is the chief"
        )

    def _check_tasks(self) -> None:
        now = self._now()
        chief = self._chief_state()
        gone = chief is not None and chief.was_connected and not chief.connected
        self._chief_gone_since = (self._chief_gone_since or now) if gone else None
        if self._chief_gone_since is not None and now - self._chief_gone_since >= self._recovery_wait_s:
            raise errors.UnavailableError.of(
                f"The chief, {chief}, is gone ({chief.why if chief else ''}) and has not come back in"
                f" {self._recovery_wait_s:g} s, {self._waiting_for()}. Start it again, then this task."
            )
        failing_since, failure = self._probe.failing_since, self._probe.failure
        # A DeadlineExceededError comes from a task that has never started; the wait for it continues.
        is_lost = failing_since is not None and now - failing_since >= self._recovery_wait_s
        if is_lost and isinstance(failure, errors.UnavailableError):
            raise failure

    def _chief_state(self) -> Reachability | None:
        return reach(self._target, self._chief) if self._chief is not None else None

    def _log_if_new(self) -> None:
        text = self._waiting_for()
        now = self._now()
        if text != self._logged or now - self._logged_at >= _LOG_AGAIN_S:
            self._logged, self._logged_at = text, now
            _log.info(
                "Waiting for model to be ready.  Ready_for_local_init_op:  %s, ready: %s. %s.",
                shortened(self._probe.local_reason), shortened(self._probe.reason), text[0].upper() + text[1:],
            )  # fmt: skip

    def _waiting_for(self) -> str:
        probe = self._probe
        away = [f"{each} ({each.why})" for each in unreachable(self._target) if each.task != self._chief]
        chief = self._chief_state()
        whom = "the chief" if chief is None else f"the chief, {chief},"
        if chief is not None and not chief.connected:
            whom = f"the chief, {chief} (not connected: {chief.why}),"
        if probe.failure is not None:
            text = f"waiting for a task to come back ({probe.failure.message})"
        elif probe.local_reason is not None or probe.reason is not None:
            reason = probe.local_reason or probe.reason
            text = f"waiting for {whom} to initialise {with_places(reason, self._graph)}"
            own = task_of(self._target)
            if self._chief is not None:
                text += advice(reason, self._graph, own)
            elif parse(own).job in CHIEF_JOBS:  # nobody else is
                text += (
                    f". This task, {own}, is the chief by convention: make its session with is_chief=True, or start the"
                    " task that the script takes for the chief (tfmini launch --chief or --master)"
                )
        else:
            text = f"waiting for an answer about the model's variables, which {whom} initialises"
        return f"{text}; no connection to {', '.join(away)}" if away else text


# ---- model record ----------------------------------------
# The record of a model in a cluster: which run gave its variables their values, and whether it has finished that.
# The record is a string variable on the task of the model's first variable, so it is lost with that task. It has a
# graph of its own, since the graphs of users have only TensorFlow's ops. A restarted chief learns from it that the
# variables are those of its own run; a worker, that the chief is still restoring them.


@dataclass(frozen=True)
class ModelRecord:
    """Attributes:
    model: an identifier that differs after every initialisation and every restore of the model.
    is_set: whether all variables have their values; the chief restores or initialises them until then.
    run: the checkpoints of the run: an absolute path, or an identifier of the chief without checkpoints; "" when the
      run has ended in good order. Workers may still train on the model then, and repeat a step of theirs.
    """

    model: str
    is_set: bool
    run: str

    def to_text(self) -> str:
        """The value of the record's variable."""
        return f"{self.model} {self.is_set:d} {self.run}"

    @staticmethod
    def from_text(text: str) -> ModelRecord | None:
        """The record of a variable's value; None for its initial value."""
        model, is_set, run = text.split(" ", 2) if text else ("", "", "")
        return ModelRecord(model, is_set == "1", run) if model else None


class ModelRecords:
    """Reads and writes the record of a graph's model.

    Args:
      master: the target of the sessions that use the model.
      graph: the graph with the model's variables, at least one.
      config: the ConfigProto of those sessions, or None.
    """

    def __init__(self, master: str, graph: Graph, config: ConfigProto) -> None:
        self.master = master
        self._config = protos.ConfigProto()
        if config is not None:
            self._config.CopyFrom(config)
        self._config.log_device_placement = False
        first = graph.get_collection(GraphKeys.GLOBAL_VARIABLES)[0].op
        place = DeviceSpec.from_string(first.device)
        place.device_type = place.device_index = None
        with Graph().as_default() as self._graph, device(place.to_string()):
            self._text = placeholder(dtypes.string, [])
            self._variable = Variable("", name=f"{first.name}{MODEL_RECORD}")
            self._assign = assign(self._variable, self._text)

    def read(self) -> ModelRecord | None:
        """The record; None if no chief has written one."""
        with Session(self.master, graph=self._graph, config=self._config) as session:
            try:
                return ModelRecord.from_text(session.run(self._variable).decode())
            except errors.FailedPreconditionError:  # uninitialized
                return None

    def write(self, record: ModelRecord) -> None:
        """Replaces the record."""
        self._write(record.to_text(), self._config)

    def end(self, model: str, timeout_s: float) -> None:
        """Notes that the run of a model has ended, unless the record's task cannot be reached in time."""
        self._write(ModelRecord(model, True, "").to_text(), self.limited(timeout_s))

    def limited(self, timeout_s: float) -> Any:
        """The ConfigProto of a session whose operations may take so long."""
        return limited(self._config, timeout_s)

    def _write(self, text: str, config: ConfigProto) -> None:
        with Session(self.master, graph=self._graph, config=config) as session:
            session.run(self._assign.op, {self._text: text})


def limited(config: ConfigProto, timeout_s: float) -> Any:
    """A copy of a ConfigProto, or of the default one, for a session whose operations may take so long."""
    copy = protos.ConfigProto()
    if config is not None:
        copy.CopyFrom(config)
    copy.operation_timeout_in_ms = round(1000 * timeout_s)
    return copy


def latest_state(directory: str) -> Any:
    """The state of a directory with a checkpoint, or None."""
    state = get_checkpoint_state(directory)
    return state if state and state.model_checkpoint_path else None


def is_used(directory: str) -> bool:
    """Whether a chief has trained here; it may have been killed before its first checkpoint."""
    return latest_state(directory) is not None or os.path.exists(os.path.join(directory, GRAPH_FILE))


def mark_used(directory: str, graph: Graph) -> None:
    """Writes the graph before other workers train, so that a chief that is killed after this continues their run."""
    if not is_used(directory):
        try:
            write_training_graph(graph, directory)
        except errors.OpError as error:  # the hooks report it if they write there
            _log.debug("The graph was not written to %s: %s", directory, error)


# ---- leaving ----------------------------------------
# A worker that is told to end leaves its run: it finishes its step, hands in what it has, and the others go on.
# A preempted machine, a time limit or a cluster engine sends SIGTERM some time before the end. While a monitored
# session is open, SIGTERM therefore means: make this step the last one, call the hooks' ``end`` (a chief saves a
# checkpoint, a synchronous worker returns its token), close the session, and exit with code 143. The code after the
# session does not run, because training has not come to its end. A step that takes longer than `LAST_STEP_S` is given
# up before. A second SIGTERM ends the process without the hooks. Signals within a quarter of that time are one
# request: Slurm signals a task's process and also its agent, which forwards the signal.
#
# SIGINT means the same where `tfmini launch` has started the process, since it forwards a Ctrl-C to all tasks. The
# session then ends with a KeyboardInterrupt, which a script may handle as it would alone.
#
# A script that handles a signal itself is left alone.

LAST_STEP_S = 4.0
_open = 0  # monitored sessions of the main thread
_timer: threading.Timer | None = None  # runs while the last step does
_gives_up = False  # whether the next signal is the timer's
_told_at, _told_by = 0.0, int(signal.SIGTERM)


class Left(SystemExit):
    """Ends the process after its last step; the ``with`` block of the session closes it in good order."""

    def __init__(self) -> None:
        super().__init__(ExitCode.LEFT)


class Interrupted(KeyboardInterrupt):
    """The same as `Left`, after a Ctrl-C."""


def left() -> Left | Interrupted:
    """The exception that ends the process after its last step."""
    return Interrupted() if _told_by == signal.SIGINT else Left()


def _defaults() -> dict[int, Any]:
    """The signals that mean an end, with Python's handlers of them."""
    found: dict[int, Any] = {signal.SIGTERM: signal.SIG_DFL}
    if library_log.is_launched():
        found[signal.SIGINT] = signal.default_int_handler
    return found


def begin() -> bool:
    """A session has been opened; returns whether a signal is handled, so that `end` must be called."""
    global _open
    if threading.current_thread() is not threading.main_thread():
        return False
    wanted = [number for number, default in _defaults().items() if signal.getsignal(number) in (_told, default)]
    for number in wanted:
        signal.signal(number, _told)
    _open += bool(wanted)
    return bool(wanted)


def end() -> None:
    """A session has been closed for which `begin` returned true."""
    global _open
    _open -= 1
    last_step_is_over()
    for number, default in _defaults().items():
        if not _open and signal.getsignal(number) is _told:
            signal.signal(number, default)


def is_wanted() -> bool:
    """Whether this process has been told to end while a session was open."""
    return current_process().is_leaving


def note_own_handler(error: BaseException | None) -> None:
    """Notes that a script's own handler of SIGTERM ends this process: others do not count it as having ended."""
    handler = getattr(signal.getsignal(signal.SIGTERM), "__code__", None)
    frames = traceback.walk_tb(error.__traceback__) if isinstance(error, SystemExit) else ()
    if any(frame.f_code is handler for frame, _ in frames):
        current_process().is_leaving = True


def last_step_is_over() -> None:
    """From now on the end may take as long as whoever wants it waits."""
    global _timer
    timer, _timer = _timer, None
    if timer is not None:
        timer.cancel()


def _told(signum: int, frame: object) -> None:
    global _timer, _told_at, _told_by, _gives_up
    process = current_process()
    if not process.is_leaving:
        process.is_leaving, _told_at, _told_by = True, process.now(), signum
        how = "Ctrl-C" if signum == signal.SIGINT else f"SIGTERM: exit code {ExitCode.LEFT}"
        _log.warning("This task leaves the run after its step (%s)", how)
        _timer = threading.Timer(LAST_STEP_S, _give_up)
        _timer.daemon = True
        _timer.start()
    elif _gives_up:
        _gives_up = False
        if _timer is not None:  # else the step has ended meanwhile, and the hooks are at work
            raise left()
    elif process.now() - _told_at >= LAST_STEP_S / 4:
        raise KeyboardInterrupt if signum == signal.SIGINT else SystemExit(ExitCode.LEFT)


def _give_up() -> None:
    """Ends the last step, wherever the main thread is: only a signal's handler can raise an exception there."""
    global _gives_up
    _gives_up = True
    os.kill(os.getpid(), _told_by)
