"""Runs a script up to its first ``Session.run``, to get its graph. No server opens a socket."""

from __future__ import annotations

import importlib
import os
import runpy
import site
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tfmini.cluster import ClusterSpec
from tfmini.compat import alias
from tfmini.compat.role_flags import role_flags_of
from tfmini.compat.roles import role_arguments, tf_config
from tfmini.graph.default_graph import as_in_a_new_process, get_default_graph
from tfmini.graph.graph import Graph
from tfmini.inspection.clusters import Jobs, read_cluster
from tfmini.inspection.sources import of_graph
from tfmini.inspection.study import Subject
from tfmini.runtime.client.session import BaseSession
from tfmini.runtime.server import Server, checked_definition

_NEVER_TO_BLAME = (str(Path(__file__).parents[1]), str(Path(importlib.__file__).parent), "<frozen")
_LIBRARIES = (str(Path(os.__file__).parent), *site.getsitepackages(), site.getusersitepackages())
_HINT = "Does it need arguments (after --), or a cluster (--ps, --workers)?"


class ScriptError(ValueError):
    """A script, or the function of ``--entry``, failed before its graph was complete."""


class _Reached(BaseException):
    """Raised at the script's first run; a BaseException, so that no ``except Exception`` catches it."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph


class _NoMaster:
    """Replaces the master of a session, which does not run."""

    def drop(self) -> None:
        """Does nothing: the end of a session that nobody closed is no run."""

    def __getattr__(self, name: str) -> Any:
        raise _Reached(get_default_graph())


def of_script(
    script: Any, entry: str | None, arguments: Sequence[str], jobs: Jobs | None
) -> tuple[Subject, Jobs | None]:
    """Returns the graph that a script (or ``module:function``) builds, and the cluster of its server.

    With ``jobs``, the script gets the task of the chief or first worker, as from `tfmini launch`: in TF_CONFIG,
    and in role flags before its ``arguments`` if it defines them.

    Raises:
      ValueError: the script ended without a graph.
      ScriptError: the script raised an error (the cause of this one), or ``entry`` is no function.
      OSError: there is no such script.
    """
    seen: list[ClusterSpec] = []
    if entry is None:
        Path(script).stat()
    origin = str(script) if entry is None else f"--entry {entry}"
    with as_in_a_new_process(), _stopping(seen), _environment(jobs), _script_errors(origin):
        alias.install()
        graph = _entry(entry) if entry is not None else _script(Path(script), arguments, jobs)
    if not graph.get_operations():
        raise ValueError(f"{entry or script} built no graph before its first session or its end. {_HINT}")
    return of_graph(graph), read_cluster(seen[-1]) if seen else None


def _entry(entry: str) -> Graph:
    module, colon, name = entry.partition(":")
    if not colon or not name:
        raise ScriptError(f"--entry must be module:function, got {entry!r}.")
    sys.path.insert(0, os.getcwd())
    try:
        function = getattr(importlib.import_module(module), name, None)
        if not callable(function):
            raise ScriptError(f"--entry {entry}: the module {module} has no function {name}.")
        made = function()
    except _Reached as reached:
        return reached.graph
    finally:
        sys.path.remove(os.getcwd())
    return made if isinstance(made, Graph) else get_default_graph()


def _script(script: Path, arguments: Sequence[str], jobs: Jobs | None) -> Graph:
    old_argv, folder = sys.argv[:], str(script.resolve().parent)
    sys.argv[:] = [str(script), *arguments]
    if jobs is not None:
        sys.argv[1:] = role_arguments(*_role(jobs), role_flags_of(script), arguments)
    sys.path.insert(0, folder)
    try:
        runpy.run_path(str(script), run_name="__main__")
    except _Reached as reached:
        return reached.graph
    except SystemExit as ended:  # a script may end without a session, after building its graph
        if ended.code and not get_default_graph().get_operations():
            said = str(ended.code).rstrip(".")
            raise ScriptError(f"{script} ended before it had built a graph: {said}. {_HINT}") from None
        return get_default_graph()
    finally:
        sys.argv[:] = old_argv
        sys.path.remove(folder)
    return get_default_graph()


def _role(jobs: Jobs) -> tuple[str, int, ClusterSpec]:
    """The (job, task, cluster) of the script: the chief or the first worker if there is one."""
    job = next((name for name in ("chief", "worker") if jobs.get(name)), next(iter(jobs)))
    first = {name: 20000 + 1000 * i for i, name in enumerate(jobs)}
    addresses = {name: {task: f"localhost:{first[name] + task}" for task in tasks} for name, tasks in jobs.items()}
    return job, min(jobs[job]), ClusterSpec(addresses)


@contextmanager
def _script_errors(origin: str) -> Iterator[None]:
    """Converts errors of a script to ScriptErrors that name the script and its line."""
    try:
        yield
    except ScriptError:
        raise
    except Exception as error:  # noqa: BLE001 - a script may raise any error
        line = _line_to_blame(traceback.extract_tb(error.__traceback__))
        at = f" at {line.filename}, line {line.lineno} ({line.line})" if line else ""
        text = f"{origin} failed before its first session{at}: {type(error).__name__}: {error}"
        raise ScriptError(text) from error


def _line_to_blame(frames: Sequence[traceback.FrameSummary]) -> traceback.FrameSummary | None:
    """The innermost line of the user's own code, else of a library: never one of tfmini or of the import system."""
    foreign = [f for f in frames if not f.filename.startswith(_NEVER_TO_BLAME)]
    own = [f for f in foreign if not f.filename.startswith(_LIBRARIES)]
    return own[-1] if own else foreign[-1] if foreign else None


@contextmanager
def _environment(jobs: Jobs | None) -> Iterator[None]:
    """Sets TF_CONFIG for the script's task within the block."""
    old = os.environ.get("TF_CONFIG")
    if jobs is not None:
        os.environ["TF_CONFIG"] = tf_config(*_role(jobs))
    try:
        yield
    finally:
        os.environ.pop("TF_CONFIG", None)
        if old is not None:
            os.environ["TF_CONFIG"] = old


@contextmanager
def _stopping(seen: list[ClusterSpec]) -> Iterator[None]:
    """Within the block, servers only check and record their cluster, and sessions do not connect."""

    def make_server(
        self: Any, server_or_cluster_def: Any, job_name: Any = None, task_index: Any = None, protocol: Any = None,
        config: Any = None, start: bool = True,
    ) -> None:  # fmt: skip
        (cluster, *_), _ = checked_definition(server_or_cluster_def, job_name, task_index, protocol, config)
        seen.append(cluster)

    def first_run(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise _Reached(self._graph)

    def joined(self: Any) -> None:
        raise _Reached(get_default_graph())

    changes: list[tuple[type, str, Any]] = [
        (Server, "__init__", make_server),
        (Server, "target", property(lambda self: "zmq://inspected:1")),
        (Server, "join", joined),
        (Server, "stop", lambda self: None),
        (BaseSession, "_connect", lambda self: _NoMaster()),
        (BaseSession, "run", first_run),
        (BaseSession, "close", lambda self: None),
    ]
    undo = [_changed(owner, name, value) for owner, name, value in changes]
    try:
        yield
    finally:
        for back in undo:
            back()


def _changed(owner: type, name: str, value: Any) -> Callable[[], None]:
    """Sets an attribute of a class; returns a function that restores it."""
    had, old = name in vars(owner), vars(owner).get(name)
    setattr(owner, name, value)
    return lambda: setattr(owner, name, old) if had else delattr(owner, name)
