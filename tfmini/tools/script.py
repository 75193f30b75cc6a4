"""Runs an unmodified script in this process, traces one of its steps, and takes the times of its steps."""

from __future__ import annotations

import atexit
import builtins
import contextlib
import io
import json
import logging
import os
import signal
import statistics
import sys
import sysconfig
import threading
import time
import traceback
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib.machinery import SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

import absl

from tfmini import errors, json_log
from tfmini.cluster import tf_config_object
from tfmini.compat import internals, old_python
from tfmini.compat.roles import script_text
from tfmini.exit_codes import ExitCode
from tfmini.graph.graph import Graph
from tfmini.library_log import is_launched
from tfmini.program import ProgramModule
from tfmini.runtime.client.session import BaseSession
from tfmini.runtime.master.registration import Signature
from tfmini.text import similar
from tfmini.tools import python2

if TYPE_CHECKING:
    from tfmini.protos import RunMetadata, RunOptions  # the first message decides how all are named

_log = logging.getLogger("tfmini.run")

# ---- Traces one run of a session in an unmodified script -----------------------------------------------------------
# `tfmini trace` sets an environment variable with its request; `tfmini run`, in the process of the
# script, counts the runs of sessions, runs one of them with FULL_TRACE, and writes its timeline.

TRACE_ENV = "TFMINI_TRACE"


@dataclass(frozen=True)
class TraceOptions:
    """A request to trace one run of a step.

    Attributes:
      path: the file for the timeline.
      run: trace the n-th run of the first training step that runs n times; of any step if the graph trains nothing.
      task: the task of a cluster that traces, such as ``worker/0``; "": this process.
      fetch: count only runs of this tensor or op; "": all.
    """

    path: str
    run: int = 10
    task: str = ""
    fetch: str = ""

    def to_environment(self) -> str:
        """The value of `TRACE_ENV`."""
        return json.dumps(asdict(self))

    @classmethod
    def from_environment(cls, environment: Any = os.environ) -> TraceOptions | None:
        """The request to this process, or None."""
        text = environment.get(TRACE_ENV)
        if not text:
            return None
        request = cls(**json.loads(text))
        own = tf_config_object(environment).get("task", {})
        is_here = not request.task or request.task == f"{own.get('type')}/{own.get('index')}"
        return request if is_here else None


def watch_sessions(execute: Callable[..., list[Any]]) -> Callable[[], None]:
    """Lets a function make the runs of all sessions of this process; returns a function that ends it.

    Args:
      execute: gets the function that makes a run, and its arguments, of which the first is the session.
    """
    original = BaseSession._execute
    BaseSession._execute = lambda *args: execute(original, *args)  # type: ignore[method-assign]

    def end() -> None:
        BaseSession._execute = original  # type: ignore[method-assign]

    return end


def _trains(graph: Graph, names: Sequence[str]) -> bool | None:
    """As `study.trains`; the inspector is imported for scripts that are traced or timed alone."""
    from tfmini.show.inspection.study import trains

    return trains(graph, names)


class Tracer:
    """Counts runs, traces one and writes its timeline.

    Attributes:
      done: whether the timeline has been written.
    """

    def __init__(self, request: TraceOptions) -> None:
        self.request = request
        self.done = False
        self._counts: Counter[Signature] = Counter()
        self._trains: dict[Signature, bool] = {}  # of the steps that have run often enough
        self._others: dict[Signature, None] = {}  # runs that do not count, in their order
        self._chosen = False
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Watches all sessions of the process within the block."""
        uninstall = self.install()
        try:
            yield
        finally:
            uninstall()

    def install(self) -> Callable[[], None]:
        """Watches all sessions of the process; returns a function that stops it."""

        def execute(original: Any, session: BaseSession, call: Any, values: list[Any], *more: Any) -> list[Any]:
            if not self._wants(call.signature, session.graph):
                return original(session, call, values, *more)  # type: ignore[no-any-return]
            return self._trace(original, session, call, values, *more)

        return watch_sessions(execute)

    def _wants(self, signature: Signature, graph: Graph) -> bool:
        _, wanted, targets = signature
        if self._chosen or not (wanted or targets):
            return False
        fetch = self.request.fetch
        if fetch and fetch not in targets and fetch not in wanted and f"{fetch}:0" not in wanted:
            self._others[signature] = None
            return False
        with self._lock:
            self._counts[signature] += 1
            if self._chosen or self._counts[signature] < self.request.run:
                return False
            if not fetch and not self._may_train(signature, graph):
                return False
            self._chosen = True
        return True

    def _may_train(self, signature: Signature, graph: Graph) -> bool:
        """Whether a step is a training step, or its graph trains nothing."""
        if signature not in self._trains:
            self._trains[signature] = _trains(graph, [*signature[1], *signature[2]]) is not False
        return self._trains[signature]

    def _trace(
        self,
        original: Any,
        session: BaseSession,
        call: Any,
        values: list[Any],
        options: RunOptions | None = None,
        run_metadata: RunMetadata | None = None,
    ) -> list[Any]:
        from tfmini import protos

        asked, metadata = protos.RunOptions(), protos.RunMetadata()
        if options is not None:
            asked.ParseFromString(options.SerializeToString())
        asked.trace_level = protos.RunOptions.FULL_TRACE
        found: list[Any] = original(session, call, values, asked, metadata)
        self._write(metadata.step_stats)
        if run_metadata is not None:
            run_metadata.ParseFromString(metadata.SerializeToString())
        return found

    def _write(self, step_stats: Any) -> None:
        from tfmini.show.inspection.pages import timeline
        from tfmini.show.inspection.trace import StepTrace

        path = Path(self.request.path)
        part = path.with_name(f"{path.name}.{os.getpid()}.part")
        part.write_text(timeline(StepTrace.of(step_stats)))
        part.replace(path)
        self.done = True

    def failure(self) -> str:
        """The reason why there is no timeline; "" if there is one."""
        if self.done:
            return ""
        if self._chosen:
            return "the step to trace failed."
        fetch = self.request.fetch
        if not self._counts and not self._others:
            return "the script ran no session."
        if not self._counts:
            seen = list(dict.fromkeys(name for _, wanted, targets in self._others for name in (*targets, *wanted)))
            names = ", ".join(similar(fetch, seen) or seen[:3])
            return f"no run fetched or ran {fetch}; other runs did so with {names}. Give such a name with --fetch."
        (_, wanted, targets), count = self._counts.most_common(1)[0]
        names = ", ".join([*targets, *wanted][:3])
        if count >= self.request.run:  # and does not train
            name = [*targets, *wanted][0]
            return (
                f"no training step ran {self.request.run} times; others did, most often {names} ({count} times)."
                f" Give a smaller --run, or --fetch {name} to trace that step."
            )
        return (
            f"no step{f' of {fetch}' if fetch else ''} ran {self.request.run} times. The most frequent one ({names})"
            f" ran {'once' if count == 1 else f'{count} times'}; give --run {count} or less."
        )


def install_if_requested() -> None:
    """Watches this process's sessions if `TRACE_ENV` is set; prints the reason at exit if there is no timeline."""
    request = TraceOptions.from_environment()
    if request is None:
        return
    tracer = Tracer(request)
    tracer.install()

    def print_failure() -> None:
        text = tracer.failure()
        if text:
            print(f"tfmini: no step was traced: {text}", file=sys.stderr)

    atexit.register(print_failure)


# ---- Takes the times of the training steps of such a script --------------------------------------------------------
# How long the training steps of an unmodified script take; each task writes it at its end, for `launch --predict`.
# The launcher sets an environment variable to a folder; `tfmini run`, in the process of the script, times the runs of
# all sessions.

STEP_TIMES_ENV = "TFMINI_STEP_TIMES"
_WARM_UP = 10  # the first runs of a step compile it
_KEPT = 4096  # the latest runs


@dataclass(frozen=True)
class StepTimes:
    """The training steps of a task.

    Attributes:
      step_s: the median, without the first runs.
      steps: how many.
      batch: the largest first dimension of a fed value; None: nothing was fed.
    """

    step_s: float
    steps: int
    batch: int | None


@dataclass
class _Runs:
    graph: Any
    batch: int | None = None
    count: int = 0
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=_KEPT))


class StepTimer:
    """Times the runs of all sessions of this process."""

    def __init__(self) -> None:
        self._runs: dict[Signature, _Runs] = {}

    def install(self) -> Callable[[], None]:
        """Begins; returns a function that ends it."""

        def execute(original: Any, session: BaseSession, call: Any, values: list[Any], *more: Any) -> list[Any]:
            begin = time.perf_counter()
            results: list[Any] = original(session, call, values, *more)
            self._note(call.signature, session.graph, values, time.perf_counter() - begin)
            return results

        return watch_sessions(execute)

    def _note(self, signature: Signature, graph: Graph, values: list[Any], seconds: float) -> None:
        runs = self._runs.get(signature)
        if runs is None:
            sizes = [value.shape[0] for value in values if getattr(value, "ndim", 0)]
            runs = self._runs[signature] = _Runs(graph, max(sizes, default=None))
        runs.count += 1
        if runs.count > _WARM_UP:
            runs.seconds.append(seconds)

    def times(self) -> StepTimes | None:
        """Of the training step that ran most often; None if none ran often enough."""
        found = [
            runs for (_, fetched, targets), runs in list(self._runs.items())
            if runs.seconds and _trains(runs.graph, [*fetched, *targets])
        ]  # fmt: skip
        if not found:
            return None
        runs = max(found, key=lambda runs: runs.count)
        return StepTimes(statistics.median(runs.seconds), len(runs.seconds), runs.batch)


def install_step_times() -> None:
    """Times this process's steps if `STEP_TIMES_ENV` is set, and writes the result at its end."""
    folder = os.environ.get(STEP_TIMES_ENV)
    if not folder:
        return
    timer = StepTimer()
    timer.install()

    def write() -> None:
        found = timer.times()
        if found is not None and os.path.isdir(folder):
            text = json.dumps({"step_s": found.step_s, "steps": found.steps, "batch": found.batch})
            Path(folder, f"{os.getpid()}-{time.time_ns()}.json").write_text(text)

    atexit.register(write)


def read_times(folder: str) -> StepTimes | None:
    """The steps of all tasks together: the median of their medians; None if no task has trained."""
    found: dict[str, list[Any]] = defaultdict(list)
    for path in Path(folder).glob("*.json"):
        for key, value in json.loads(path.read_text()).items():
            found[key].append(value)
    if not found:
        return None
    batches = [batch for batch in found["batch"] if batch is not None]
    return StepTimes(statistics.median(found["step_s"]), sum(found["steps"]), max(batches, default=None))


# ---- Runs a script in this process as ``python SCRIPT ARGS...`` does, with tfmini as ``tensorflow`` ----------------


def run_script(script: str, args: Sequence[str]) -> int:
    """Runs ``script`` as ``__main__`` and returns its exit code.

    The script sees ``sys.argv``, ``__file__`` and ``sys.path[0]`` as in Python: its own directory, or, as a module, the
    working directory. For an error it prints the script's traceback and, if the cause is a Python 2 form, that form.

    Raises:
      SystemExit: raised by the script.
      OSError: when the script cannot be read.
    """
    internals.install()
    internals.install_in_children()
    old_python.install()
    install_if_requested()
    install_step_times()
    with io.open_code(os.path.abspath(script)) as file:
        data = file.read()
    main = _main_module(script, args)
    try:
        if main.__package__:
            __import__(main.__package__)
        if is_launched():  # `TaskProcess` has blocked it: a Ctrl-C during the imports now ends the task
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        code = compile(data, script, "exec", dont_inherit=True)
        exec(code, main.__dict__)
    except SystemExit:
        raise
    except BaseException as error:  # any error of the script, Ctrl-C too, is printed as Python does
        return _report(error, script)
    return 0


def _main_module(script: str, args: Sequence[str]) -> ModuleType:
    main = ModuleType("__main__")
    main.__file__ = script
    loader = SourceFileLoader("__main__", script)
    main.__dict__.update(__builtins__=builtins, __cached__=None, __loader__=loader)
    sys.modules["__main__"] = main
    sys.argv[:] = [script, *args]
    folder = os.path.dirname(os.path.realpath(script))
    if isinstance(script, ProgramModule):
        spec = spec_from_file_location(script.name, script)
        main.__dict__.update(__package__=script.package, __spec__=spec)
        folder = os.getcwd()
    # Python has put another folder first, unless it runs with -P.
    if sys.flags.safe_path:
        sys.path.insert(0, folder)
    else:
        sys.path[0] = folder
    return main


def _report(error: BaseException, script: str) -> int:
    # As Python does for an exception that nobody has handled: what runs at exit looks whether there was one.
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, error.__traceback__
    if isinstance(error, KeyboardInterrupt) and is_launched():
        return ExitCode.INTERRUPTED  # the launcher forwards Ctrl-C to all tasks: a traceback of each would be noise
    if end := _end_of_run(error):
        print(f"tfmini: {end}", file=sys.stderr)
        return 0
    shown = _below_this_file(error.__traceback__)
    error.__traceback__ = shown
    # For handlers at exit, and for a debugger after the end, which shows all frames.
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, shown
    hidden = 0 if os.environ.get(TRACEBACK_ENV) == "full" else _hide_internal_frames(error)
    if json_log.is_wanted():
        _log.error("%s: %s", type(error).__name__, error, exc_info=error)
    else:
        sys.excepthook(type(error), error, error.__traceback__)
        sys.stderr.flush()
    frames = "1 frame" if hidden == 1 else f"{hidden} frames"
    left_out = [f"{frames} inside tfmini left out; {TRACEBACK_ENV}=full shows them."] if hidden else []
    for line in [*_hints(error, script), *left_out]:
        print(f"tfmini: {line}", file=sys.stderr)
    return ExitCode.INTERRUPTED if isinstance(error, KeyboardInterrupt) else ExitCode.FAILED


def _end_of_run(error: BaseException) -> str:
    """The message, if a synchronous worker comes after the end of its run or does not handle it; else ""."""
    if not isinstance(error, errors.OutOfRangeError):
        return ""
    from tfmini.train.sessions.wrapped_session import RUN_HAS_ENDED  # late: a script may use no training

    return error.message if RUN_HAS_ENDED in error.message else ""


def _below_this_file(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames that started the script."""
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace


# ---- The frames of tfmini in a script's traceback ------------------------------------------------------------------
# They tell the script's author nothing when tfmini has refused what the script gave it. They are left out then, and
# stay when tfmini may be to blame: whoever looks for the bug cannot always run the script again.

TRACEBACK_ENV = "TFMINI_TRACEBACK"
_PACKAGE = str(Path(__file__).parents[1]) + os.sep
_STANDARD = str(Path(os.__file__).parent) + os.sep
_BETWEEN = (_STANDARD, str(Path(absl.__file__).parent) + os.sep)  # absl runs the main function of tf.app.run
_INSTALLED = (_STANDARD, *sysconfig.get_paths().values(), "<frozen")


def _hide_internal_frames(error: BaseException) -> int:
    """Removes the frames of tfmini from the tracebacks of an error and of its causes; returns how many.

    An error behind which nothing but tfmini is left (it was handled there) is no longer shown as the context.
    """
    if not _is_refusal(error):
        return 0
    hidden = 0
    each: BaseException | None = error
    while each is not None:
        frames = _frames(each)
        kept = _kept(frames)
        hidden += len(frames) - len(kept)
        each.__traceback__ = _chain(kept)
        context = None if each.__suppress_context__ else each.__context__
        if each.__cause__ is None and context is not None and not _kept(_frames(context)):
            each.__suppress_context__, context = True, None
        each = each.__cause__ or context
    return hidden


def _is_refusal(error: BaseException) -> bool:
    """Whether a ``raise`` statement of tfmini has refused something, or code of the user that tfmini calls has failed.

    A Ctrl-C counts as one. Anything else that fails inside tfmini may be a bug of it, and so is an InternalError.
    """
    frames = traceback.extract_tb(error.__traceback__)
    if not frames or isinstance(error, errors.InternalError):
        return False
    innermost = frames[-1]
    if isinstance(error, KeyboardInterrupt):
        return True
    if innermost.filename.startswith(_PACKAGE):
        return (innermost.line or "").startswith("raise ")
    return not innermost.filename.startswith(_INSTALLED)


def _kept(frames: Sequence[TracebackType]) -> list[TracebackType]:
    """The frames without those of tfmini, and without those of the standard library and of absl before or after them.

    Such are the ``contextlib`` between a ``with`` statement and the context manager of tfmini, and absl's ``run``.
    """
    files = [frame.tb_frame.f_code.co_filename for frame in frames]
    hidden = [file.startswith(_PACKAGE) for file in files]
    for order in (range(len(files)), range(len(files) - 1, -1, -1)):
        is_inside = False
        for i in order:
            is_inside = hidden[i] or is_inside and files[i].startswith(_BETWEEN)
            hidden[i] = is_inside
    return [frame for frame, is_hidden in zip(frames, hidden) if not is_hidden]


def _frames(error: BaseException) -> list[TracebackType]:
    frames, frame = [], error.__traceback__
    while frame is not None:
        frames.append(frame)
        frame = frame.tb_next
    return frames


def _chain(frames: Sequence[TracebackType]) -> TracebackType | None:
    """A traceback of these frames. It is a new one, so that the old one stays whole."""
    following = None
    for frame in reversed(frames):
        following = TracebackType(following, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return following


def _hints(error: BaseException, script: str) -> list[str]:
    if isinstance(error, SyntaxError):
        path = error.filename or script
        return _syntax_hints(path)
    frames = traceback.extract_tb(error.__traceback__)
    where = next((f for f in reversed(frames) if "site-packages" not in f.filename and "<" not in f.filename), None)
    found = python2.of_error(error, where.lineno or 0 if where else 0)
    return [f"{where.filename if where else script}, {found}"] if found else []


def _syntax_hints(path: str) -> list[str]:
    try:
        findings = python2.in_source(script_text(path))
    except OSError:  # the code is not in a file
        return []
    if not findings:
        return []
    shown = [f"  {path}, {finding}" for finding in findings[:20]]
    more = [f"  and {len(findings) - 20} more"] if len(findings) > 20 else []
    head = f"{path} is written for Python 2; this is Python {sys.version_info.major}.{sys.version_info.minor}."
    return [head + " `tfmini migrate --fix SCRIPT` rewrites most of it. Lines to change:", *shown, *more]
