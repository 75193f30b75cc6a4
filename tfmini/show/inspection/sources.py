"""Reads the sources of an inspection: live graphs and sessions, messages, and files of them, binary or text."""

from __future__ import annotations

import importlib
import os
import re
import runpy
import site
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tfmini import errors, protos
from tfmini.cluster import ClusterSpec
from tfmini.compat import internals
from tfmini.compat.roles import role_arguments, role_flags_of, tf_config
from tfmini.graph.default_graph import as_in_a_new_process, get_default_graph
from tfmini.graph.graph import Graph
from tfmini.graph.graph_def import graph_def_to_nodes, nodes_to_graph_def
from tfmini.graph.importing import import_graph_def
from tfmini.graph.names import GraphKeys
from tfmini.graph.node import INPUT_TYPES, OUTPUT_TYPES, Endpoint, Node, Nodes, output_dtypes
from tfmini.graph.op_types import PLACEHOLDER_OPS
from tfmini.graph.operation import node_of
from tfmini.graph.scopes import without_default_sessions
from tfmini.graph.wire_checks import check_kinds
from tfmini.placement.placer import DeviceAttributes
from tfmini.program import ProgramModule
from tfmini.runtime.client.session import BaseSession, InteractiveSession
from tfmini.runtime.options import SessionOptions
from tfmini.runtime.server import Server, checked_definition
from tfmini.shapes import RawShape
from tfmini.show.inspection.clusters import Jobs, read_cluster
from tfmini.show.inspection.findings import Finding
from tfmini.show.inspection.study import Subject, known_types
from tfmini.train.checkpointing.graph_files import parse_text
from tfmini.train.store.parameter_store import ParameterStore
from tfmini.train.store.work_queue import Shards

_SAVED_MODEL_FILES = ("saved_model.pb", "saved_model.pbtxt")


def read_source(source: Any) -> Subject:
    """Reads a graph, session, message or path.

    Raises:
      TypeError: ``source`` has another type.
      ValueError: the file contains no graph.
      OSError: the file cannot be read.
    """
    if isinstance(source, BaseSession):
        return of_session(source)
    if isinstance(source, Graph):
        return of_graph(source)
    if isinstance(source, (str, Path)):
        return of_file(Path(source))
    descriptor = getattr(source, "DESCRIPTOR", None)
    kind = getattr(descriptor, "name", None)
    if kind in ("GraphDef", "MetaGraphDef", "SavedModel"):
        return _of_message(kind, source.SerializeToString())
    raise TypeError(f"Cannot inspect {type(source).__name__}: give a Graph, a Session, a GraphDef, a MetaGraphDef,"
                    " a SavedModel, or the path of a file of one or of a Python script.")  # fmt: skip


# ---------------------------------------------------------------- live


def of_graph(graph: Graph) -> Subject:
    """Reads the current state of a graph."""
    operations = graph.get_operations()
    shapes = {(op.name, i): out.raw_shape for op in operations for i, out in enumerate(op.outputs)}
    train_ops = [op.name for op in graph.get_collection(GraphKeys.TRAIN_OP) if hasattr(op, "name")]
    local = [variable.op.name for variable in graph.get_collection(GraphKeys.LOCAL_VARIABLES)]
    return Subject({op.name: node_of(op) for op in operations}, shapes, train_ops, local)


def of_session(session: BaseSession) -> Subject:
    """Reads a session's graph and devices; the placement of an in-process master is kept."""
    subject = of_graph(session.graph)
    subject.devices = list(session.list_devices())
    subject.soft_placement = session._options.allow_soft_placement
    placed = getattr(session.master, "_session", None)
    if placed is not None:
        subject.decided = dict(placed.decisions)
        subject.master = placed.cluster.default_device
    else:
        subject.master = subject.devices[0].name
    return subject


# ---------------------------------------------------------------- files


def of_file(path: Path) -> Subject:
    """Reads a file, or a directory with a SavedModel. Raises as `read_source`."""
    if path.is_dir():
        inside = [path / name for name in _SAVED_MODEL_FILES if (path / name).exists()]
        if not inside:
            raise ValueError(f"{path} is a directory without {' or '.join(_SAVED_MODEL_FILES)}."
                             f"{_graph_files_in(path)}")  # fmt: skip
        return of_file(inside[0])
    data = path.read_bytes()
    with errors.reading(str(path), ValueError, also_own=True):
        for kind in ("SavedModel", "MetaGraphDef", "GraphDef"):
            message = _parsed(kind, data)
            if message is not None:
                return _subject_of(kind, message)
    meta = path.with_name(f"{path.name.rpartition('.')[0]}.meta")
    hint = f" The graph of this checkpoint is in {meta}." if meta.exists() and meta != path else ""
    raise ValueError(f"{path} is no GraphDef, MetaGraphDef or SavedModel, neither binary nor text.{hint}")


def _graph_files_in(folder: Path) -> str:
    found = sorted(p.name for p in folder.iterdir() if p.suffix in (".pb", ".pbtxt", ".meta"))
    return f" It has {', '.join(found[:5])}: give one of them." if found else ""


def _of_message(kind: str, data: bytes) -> Subject:
    with errors.reading(f"The {kind}", ValueError, also_own=True):
        return _subject_of(kind, getattr(protos, kind).FromString(data))


def _parsed(kind: str, data: bytes) -> Any:
    """Parses a message of one kind; returns None if the bytes are none or it has no graph."""
    from google.protobuf.message import DecodeError

    message = getattr(protos, kind)()
    try:
        parse_text(data, message)
    except ValueError as error:
        if isinstance(error.__cause__, RecursionError):
            raise
        try:
            message = getattr(protos, kind).FromString(data)
        except DecodeError:
            return None
    return message if _has_graph(kind, message) else None


def _has_graph(kind: str, message: Any) -> bool:
    if kind == "GraphDef":
        return bool(message.node) and all(node.name and node.op for node in message.node)
    metas = message.meta_graphs if kind == "SavedModel" else [message]
    return any(_has_graph("GraphDef", meta.graph_def) for meta in metas)


def _subject_of(kind: str, message: Any) -> Subject:
    if kind == "GraphDef":
        return of_graph_def(message)
    meta = next(m for m in message.meta_graphs if m.graph_def.node) if kind == "SavedModel" else message
    subject = of_graph_def(meta.graph_def)
    if GraphKeys.TRAIN_OP in meta.collection_def:
        subject.train_ops = list(meta.collection_def[GraphKeys.TRAIN_OP].node_list.value)
    if meta.collection_def:
        local = meta.collection_def[GraphKeys.LOCAL_VARIABLES].bytes_list.value
        subject.local_variables = [_variable_name(data) for data in local]
    return subject


def _variable_name(variable_def: bytes) -> str:
    name: str = protos.VariableDef.FromString(variable_def).variable_name
    return name.rpartition(":")[0] or name


def of_graph_def(graph_def: Any) -> Subject:
    """Reads a GraphDef of tfmini or TensorFlow, and infers its shapes as far as possible."""
    nodes = graph_def_to_nodes(graph_def)
    for node in nodes.values():
        check_kinds(node.name, node.op, node.attrs)
    subject = Subject(nodes)
    try:
        subject.shapes = _inferred(nodes)
    except Exception as error:  # noqa: BLE001 - shapes are optional: a graph that cannot be imported has none
        text = f"shapes could not be inferred: {type(error).__name__}: {str(error).splitlines()[0]}"
        subject.notes.append(Finding("shapes", text, "Only the sizes that the graph itself contains are shown."))
    subject.shapes.update(_noted_shapes(graph_def))
    if graph_def.library.function:
        text = f"{len(graph_def.library.function)} function(s) in the library; an op that calls one is shown as one op."
        subject.notes.append(Finding("functions", text, ""))
    return subject


def _noted_shapes(graph_def: Any) -> Mapping[Endpoint, RawShape]:
    """The shapes in a GraphDef that was written with ``add_shapes``."""
    found: dict[Endpoint, RawShape] = {}
    for node_def in graph_def.node:
        if "_output_shapes" in node_def.attr:
            for i, shape in enumerate(node_def.attr["_output_shapes"].list.shape):
                if not shape.unknown_rank:
                    found[node_def.name, i] = tuple(None if d.size < 0 else d.size for d in shape.dim)
    return found


def _inferred(nodes: Nodes) -> dict[Endpoint, RawShape]:
    """Infers shapes by importing the nodes, with placeholders in place of ops that tfmini does not know."""
    graph = Graph()
    with graph.as_default():
        import_graph_def(nodes_to_graph_def(_importable(nodes)), name="")
    operations = [op for op in graph.get_operations() if op.name in nodes]
    return {(op.name, i): out.raw_shape for op in operations for i, out in enumerate(op.outputs)}


def assume_batch(subject: Subject, batch: int) -> None:
    """Infers the shapes again, with ``batch`` as the first dimension of every placeholder where it is unknown."""
    fixed = dict(subject.nodes)
    for name, node in fixed.items():
        shape = node.attrs.get("shape")
        if node.op in PLACEHOLDER_OPS and shape and shape[0] is None:
            fixed[name] = node.replace(attrs={**node.attrs, "shape": (batch, *shape[1:])})
    try:
        for endpoint, shape in _inferred(fixed).items():
            subject.shapes[endpoint] = _completed(shape, subject.shapes.get(endpoint))
    except Exception as error:  # noqa: BLE001 - as in `of_graph_def`: shapes are optional
        text = f"the batch size could not be propagated: {type(error).__name__}: {str(error).splitlines()[0]}"
        subject.notes.append(Finding("shapes", text, ""))


def _completed(inferred: RawShape, known: RawShape) -> RawShape:
    """Completes the inferred shape by the shape known before: a script may have called `set_shape`."""
    if inferred is None or known is None or len(inferred) != len(known):
        return known if inferred is None else inferred
    return tuple(k if i is None else i for i, k in zip(inferred, known))


def _importable(nodes: Nodes) -> list[Node]:
    typed, foreign = known_types(nodes)
    moved: dict[Endpoint, Endpoint] = {}
    stand_ins: list[Node] = []
    for name in foreign:
        if typed[name].handle is None:
            stand_ins += _stand_ins(typed[name], moved)
    kept = [_plain(node, moved) for name, node in typed.items() if name not in foreign or node.handle is not None]
    return [*stand_ins, *kept]


def _stand_ins(node: Node, moved: dict[Endpoint, Endpoint]) -> list[Node]:
    made = []
    for i, dtype in enumerate(output_dtypes(node) or [None]):
        if dtype is None:
            return [Node(node.name, "NoOp")]
        name = node.name if i == 0 else f"{node.name}/_output_{i}"
        moved[node.name, i] = (name, 0)
        made.append(Node(name, "Placeholder", "", (), (), {"dtype": dtype.base_dtype, "shape": None}))
    return made


def _plain(node: Node, moved: dict[Endpoint, Endpoint]) -> Node:
    """The node without attrs that only other versions of TensorFlow know."""
    known = node.handle.op_def.attrs if node.handle is not None else {}
    attrs = {
        key: value
        for key, value in node.attrs.items()
        if (key in known or key.startswith("_")) and key not in (INPUT_TYPES, OUTPUT_TYPES, "_output_shapes", "_class")
    }
    return Node(node.name, node.op, "", [moved.get(e, e) for e in node.inputs], node.controls, attrs)


# ---- Runs a script up to its first ``Session.run``, to get its graph. No server opens a socket ---------------------

_NEVER_TO_BLAME = (str(Path(__file__).parents[2]), str(Path(importlib.__file__).parent), "<frozen")
_LIBRARIES = (str(Path(os.__file__).parent), *site.getsitepackages(), site.getusersitepackages())
_HINT = "Does it need arguments (as in: -- worker 0), or a cluster (--ps, --workers)?"


class ScriptError(ValueError):
    """A script, or the function of ``--entry``, failed before its graph was complete."""


class _Reached(BaseException):
    """Raised at the script's first run; a BaseException, so that no ``except Exception`` catches it."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph


@dataclass
class _Seen:
    """What a script has said beside its graph.

    Attributes:
      cluster: of its latest server.
      server_soft: whether the default session config of that server allows soft placement.
      soft: whether its latest session, which is the one that runs, or else its server does.
    """

    cluster: ClusterSpec | None = None
    server_soft: bool = False
    soft: bool = False

    def serve(self, cluster: ClusterSpec, config: Any) -> None:
        """The script makes a server."""
        self.cluster = cluster
        self.soft = self.server_soft = SessionOptions.from_proto(config).allow_soft_placement

    def use(self, session: BaseSession) -> None:
        """The script makes a session, or runs a step of it. A server's config holds for sessions of its target."""
        self.soft = session._options.allow_soft_placement or bool(session._target) and self.server_soft


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

    Soft placement is as the config of its session, or of its server, says.

    With ``jobs``, the script gets the task of the chief or first worker, as from `tfmini launch`: in TF_CONFIG,
    and in role flags before its ``arguments`` if it defines them.

    Raises:
      ValueError: the script ended without a graph.
      ScriptError: the script raised an error (the cause of this one), or ``entry`` is no function.
      OSError: there is no such script.
    """
    seen = _Seen()
    if entry is None:
        Path(script).stat()
    origin = str(script) if entry is None else f"--entry {entry}"
    with as_in_a_new_process(), without_default_sessions(), _stopping(seen), _environment(jobs), _script_errors(origin):
        internals.install()
        graph = _entry(entry) if entry is not None else _script(script, arguments, jobs)
    if not graph.get_operations():
        raise ValueError(f"{entry or script} built no graph before its first session or its end. {_HINT}")
    subject = of_graph(graph)
    subject.soft_placement = seen.soft
    return subject, read_cluster(seen.cluster) if seen.cluster is not None else None


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


def _script(script: str | Path, arguments: Sequence[str], jobs: Jobs | None) -> Graph:
    old_argv = sys.argv[:]
    folder = os.getcwd() if isinstance(script, ProgramModule) else str(Path(script).resolve().parent)
    sys.argv[:] = [str(script), *arguments]
    if jobs is not None:
        sys.argv[1:] = role_arguments(*_role(jobs), role_flags_of(script), arguments)
    sys.path.insert(0, folder)
    try:
        if isinstance(script, ProgramModule):
            runpy.run_module(script.name, run_name="__main__")
        else:
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
    job = next((name for name in ("chief", "master", "worker") if jobs.get(name)), next(iter(jobs)))
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
        if line and isinstance(error, LookupError) and re.search(r"\b(argv|environ)\b", line.line or ""):
            text += f"\n{_HINT}"
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
def _stopping(seen: _Seen) -> Iterator[None]:
    """Within the block, servers only check and record their cluster, and sessions do not connect."""

    def make_server(
        self: Any, server_or_cluster_def: Any, job_name: Any = None, task_index: Any = None, protocol: Any = None,
        config: Any = None, start: bool = True,
    ) -> None:  # fmt: skip
        definition, _ = checked_definition(server_or_cluster_def, job_name, task_index, protocol, config)
        seen.serve(definition[0], definition[-1])

    def first_run(self: Any, *args: Any, **kwargs: Any) -> Any:
        seen.use(self)
        raise _Reached(self._graph)

    def connected(self: Any) -> Any:
        seen.use(self)
        return _NoMaster()

    def joined(self: Any) -> None:
        raise _Reached(get_default_graph())

    changes: list[tuple[type, str, Any]] = [
        (Server, "__init__", make_server),
        (Server, "target", property(lambda self: "zmq://inspected:1")),
        (Server, "join", joined),
        (Server, "stop", lambda self: None),
        (BaseSession, "_connect", connected),
        (InteractiveSession, "_active", 0),
        (BaseSession, "run", first_run),
        (BaseSession, "close", lambda self: None),
        (ParameterStore, "_cluster_spec", lambda self, *args: seen.cluster),
        (ParameterStore, "_devices", lambda self: [DeviceAttributes("/job:localhost/task:0", "CPU")]),
        (ParameterStore, "_set_up", lambda self, *args: ()),
        (ParameterStore, "_answers", _first_push),
        (Shards, "take", Shards.example),
    ]
    undo = [_changed(owner, name, value) for owner, name, value in changes]
    try:
        yield
    finally:
        for back in undo:
            back()


def _first_push(store: ParameterStore, call: Any, feeds: Any, pushes: bool, pulled: Any) -> list[Any]:
    """Of a `tf.ParameterStore`: what it pulls is zeros, until the script pushes something."""
    if pushes:
        raise _Reached(store.graph)
    return [
        np.zeros(part.shape if ids is None else (len(part_ids), *part.shape[1:]))
        for array, ids in pulled
        for part, part_ids in zip(array.parts, [()] * len(array.parts) if ids is None else array.split_ids(ids))
    ]


def _changed(owner: type, name: str, value: Any) -> Callable[[], None]:
    """Sets an attribute of a class; returns a function that restores it."""
    had, old = name in vars(owner), vars(owner).get(name)
    setattr(owner, name, value)
    return lambda: setattr(owner, name, old) if had else delattr(owner, name)
