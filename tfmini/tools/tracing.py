"""Tracing one run of a session in a script that knows nothing of it.

`tfmini trace` says by an environment variable what it wants; `tfmini run`, in whose process the
script lives, then counts the runs of sessions, runs one of them with FULL_TRACE, and writes its timeline.
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

TRACE_ENV = "TFMINI_TRACE"

Signature = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True)
class TraceRequest:
    """What to trace.

    Attributes:
      path: where the timeline goes.
      run: trace the n-th run of the step that is first run that often.
      task: ``worker/0``: only in that task of a cluster; "": here.
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
    def from_environment(cls, environment: Any = os.environ) -> TraceRequest | None:
        """What is asked of this process, or None."""
        text = environment.get(TRACE_ENV)
        if not text:
            return None
        request = cls(**json.loads(text))
        own = tf_config_object(environment).get("task", {})
        is_here = not request.task or request.task == f"{own.get('type')}/{own.get('index')}"
        return request if is_here else None


class Tracer:
    """Counts runs, traces one and writes it.

    Attributes:
      done: whether the timeline has been written.
    """

    def __init__(self, request: TraceRequest) -> None:
        self.request = request
        self.done = False
        self._counts: Counter[Signature] = Counter()
        self._chosen = False
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """All sessions of the process are watched while the body runs."""
        uninstall = self.install()
        try:
            yield
        finally:
            uninstall()

    def install(self) -> Callable[[], None]:
        """Watches all sessions of the process; returns what ends that."""
        from tfmini.runtime.session import BaseSession

        original = BaseSession._execute

        def execute(
            self_: BaseSession, call: Any, values: list[Any], options: Any = None, run_metadata: Any = None
        ) -> list[Any]:
            if not self._wants(call.signature):
                return original(self_, call, values, options, run_metadata)
            return self._trace(original, self_, call, values, options, run_metadata)

        BaseSession._execute = execute  # type: ignore[method-assign, assignment]

        def uninstall() -> None:
            BaseSession._execute = original  # type: ignore[method-assign]

        return uninstall

    def _wants(self, signature: Signature) -> bool:
        _, wanted, targets = signature
        if self._chosen or not (wanted or targets):
            return False
        fetch = self.request.fetch
        if fetch and fetch not in targets and fetch not in wanted and f"{fetch}:0" not in wanted:
            return False
        with self._lock:
            self._counts[signature] += 1
            if self._chosen or self._counts[signature] < self.request.run:
                return False
            self._chosen = True
        return True

    def _trace(
        self, original: Any, session: Any, call: Any, values: list[Any], options: Any, run_metadata: Any
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

    def complaint(self) -> str:
        """Why there is no timeline; "" if there is one."""
        if self.done:
            return ""
        what = f"of {self.request.fetch} " if self.request.fetch else ""
        if self._chosen:
            return "the step to trace failed."
        if not self._counts:
            return f"no run {what}to trace: the script ran no session."
        (_, wanted, targets), count = self._counts.most_common(1)[0]
        names = ", ".join([*targets, *wanted][:3])
        return (
            f"no step {what}was run {self.request.run} times; the most frequent ({names}) ran {count} times:"
            f" give --run {count} or less."
        )


def install_if_asked() -> None:
    """Watches this process's sessions if `TRACE_ENV` asks for it, and complains at the end if nothing came of it."""
    request = TraceRequest.from_environment()
    if request is None:
        return
    tracer = Tracer(request)
    tracer.install()

    def complain() -> None:
        text = tracer.complaint()
        if text:
            print(f"tfmini: {text}", file=sys.stderr)

    atexit.register(complain)
