"""Traces one run of a session in an unmodified script.

`tfmini trace` sets an environment variable with its request; `tfmini run`, in the process of the
script, counts the runs of sessions, runs one of them with FULL_TRACE, and writes its timeline.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tfmini.cluster import tf_config_object
from tfmini.suggestions import similar

TRACE_ENV = "TFMINI_TRACE"

Signature = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]


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
    from tfmini.runtime.client.session import BaseSession

    original = BaseSession._execute
    BaseSession._execute = lambda *args: execute(original, *args)  # type: ignore[method-assign]

    def end() -> None:
        BaseSession._execute = original  # type: ignore[method-assign]

    return end


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

        def execute(original: Any, session: Any, call: Any, values: list[Any], *more: Any) -> list[Any]:
            if not self._wants(call.signature, session.graph):
                return original(session, call, values, *more)  # type: ignore[no-any-return]
            return self._trace(original, session, call, values, *more)

        return watch_sessions(execute)

    def _wants(self, signature: Signature, graph: Any) -> bool:
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

    def _may_train(self, signature: Signature, graph: Any) -> bool:
        """Whether a step is a training step, or its graph trains nothing."""
        from tfmini.inspection.train_op import trains

        if signature not in self._trains:
            self._trains[signature] = trains(graph, [*signature[1], *signature[2]]) is not False
        return self._trains[signature]

    def _trace(
        self, original: Any, session: Any, call: Any, values: list[Any], options: Any = None, run_metadata: Any = None
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
        from tfmini.inspection.step_trace import StepTrace
        from tfmini.inspection.trace_events import timeline

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
