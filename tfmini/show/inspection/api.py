"""``tfmini.inspect``: computes what each task does and sends in one step, without running it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tfmini import errors
from tfmini.export import export
from tfmini.show.inspection.clusters import (
    client_device,
    devices_of,
    read_cluster,
    requested_jobs,
    short,
    tf_config_cluster,
    tf_config_master,
)
from tfmini.show.inspection.findings import GUESSED_CLUSTER, Finding, Inspection
from tfmini.show.inspection.sources import assume_batch, of_script, read_source
from tfmini.show.inspection.study import study
from tfmini.show.inspection.trace import StepTrace, measure


@export("tf.inspect")
def inspect(
    source: Any = None,
    *,
    cluster: Any = None,
    ps: int | None = None,
    workers: int | None = None,
    master: str | None = None,
    fetches: object = (),
    feeds: Any = None,
    batch: int | None = None,
    entry: str | None = None,
    arguments: Sequence[str] = (),
    trace: Any = None,
    gpus: int = 0,
) -> Inspection:
    """Places and partitions one step of a graph exactly as servers do, without any server.

    Args:
      source: a `tf.Graph` (default: the default graph), a `tf.Session`, a GraphDef, MetaGraphDef or SavedModel
        message or the path of a file of one (binary or text), or of a Python script, which runs up to its first
        ``Session.run``.
      cluster: a ClusterSpec, a LocalCluster, a dict, or the path of a JSON or YAML file; or
      ps, workers: the number of tasks of each job. Default: TF_CONFIG, else the tasks in the graph's devices.
      master: the client's task, ``/job:worker/task:1``. Default: the only worker in the graph's devices, else the
        first chief or worker.
      fetches: tensors and ops, or their names, one or several. Default: the training op.
      feeds: tensors, or their names. Default: the placeholders that the step needs.
      batch: the size to assume for unknown first dimensions.
      entry: ``module:function`` that builds the graph, instead of ``source``.
      arguments: the arguments of the script.
      trace: a traced run of the step, to show its times and bytes: what `tf.StepTrace.of` takes.
      gpus: so many GPUs has each task but ps. They need not be here, nor JAX. A live session says itself what it has.

    Raises:
      ValueError, TypeError: the source or cluster is invalid, or a name is not in the graph.
      ScriptError, OpError: the script failed; or the error that a session raises for the graph.
    """
    jobs = read_cluster(cluster, ps, workers)
    is_script = isinstance(source, (str, Path)) and str(source).endswith(".py")
    if entry is not None or is_script:
        subject, script_jobs = of_script(source if is_script else None, entry, arguments, jobs)
        jobs = jobs or script_jobs
    else:
        subject = read_source(_default_graph() if source is None else source)
    if jobs is None:
        jobs = tf_config_cluster(os.environ)
        master = master or (tf_config_master(os.environ) if jobs else None)
    if jobs is None:
        jobs, guess = requested_jobs(subject.nodes)
        if guess and not subject.devices:
            subject.notes.append(Finding(GUESSED_CLUSTER, guess, "Give --ps and --workers, or --cluster."))
    with _guarded(source, is_script):
        if batch is not None:
            assume_batch(subject, batch)
        devices = subject.devices or devices_of(jobs, gpus)
        home = subject.master or client_device(jobs, master, subject.nodes)
        found = study(subject, devices, home, fetches=_names(fetches), feeds=None if feeds is None else _names(feeds))
    if trace is not None:
        _add_trace(found, trace)
    return found


def _guarded(source: Any, is_script: bool) -> AbstractContextManager[None]:
    """The door for a graph from a file or message, which may break its own study at any place; ours is sound."""
    is_foreign = isinstance(source, (str, Path)) and not is_script or hasattr(source, "DESCRIPTOR")
    return errors.reading("The graph cannot be inspected", ValueError) if is_foreign else nullcontext()


def _add_trace(found: Inspection, trace: Any) -> None:
    found.measured = measure(StepTrace.of(trace), found.transfers)
    if not any(op in found.nodes for op in found.measured.ops):
        remedy = "Trace a run of the inspected step: see --fetch of both commands."
        found.warnings.append(Finding("trace", "none of the traced ops is in this graph.", remedy))


def _default_graph() -> Any:
    from tfmini.graph.default_graph import get_default_graph

    return get_default_graph()


def _names(given: Any) -> list[str]:
    """The names of tensors (with a colon) and ops."""
    if isinstance(given, str) or hasattr(given, "name"):
        given = [given]
    return [item if isinstance(item, str) else str(item.name) for item in given]


# ---- Compares two inspections: ops, devices and transfers ----------------------------------------------------------


@dataclass(frozen=True)
class Difference:
    """The differences from one inspection to another.

    Attributes:
      added, removed: ops.
      moved: ops with their old and new device.
      new_transfers, gone_transfers: (tensor, source, destination).
    """

    added: tuple[str, ...]
    removed: tuple[str, ...]
    moved: tuple[tuple[str, str, str], ...]
    new_transfers: tuple[tuple[str, str, str], ...]
    gone_transfers: tuple[tuple[str, str, str], ...]

    def lines(self) -> list[str]:
        """One line per change, with short names of devices."""
        lines = [f"+ {name}" for name in self.added] + [f"- {name}" for name in self.removed]
        lines += [f"~ {name}: {short(old)} -> {short(new)}" for name, old, new in self.moved]
        lines += [f"+ wire {tensor}: {short(src)} -> {short(dst)}" for tensor, src, dst in self.new_transfers]
        lines += [f"- wire {tensor}: {short(src)} -> {short(dst)}" for tensor, src, dst in self.gone_transfers]
        return lines

    def __str__(self) -> str:
        return "\n".join(self.lines()) or "no difference"


def difference(before: Inspection | Mapping[str, Any], after: Inspection | Mapping[str, Any]) -> Difference:
    """Compares two placements of a graph, or two graphs; each is an inspection or the result of its ``to_json``.

    Raises:
      ValueError: a mapping is no inspection.
    """
    old, was = _read(before)
    new, now = _read(after)
    return Difference(
        tuple(name for name in new if name not in old),
        tuple(name for name in old if name not in new),
        tuple((n, old[n], new[n]) for n in old if n in new and old[n] != new[n]),
        tuple(sorted(now - was)),
        tuple(sorted(was - now)),
    )


def _read(found: Inspection | Mapping[str, Any]) -> tuple[dict[str, str], set[tuple[str, str, str]]]:
    """Returns op -> device, and the transfers."""
    data = found.to_json() if isinstance(found, Inspection) else found
    try:
        devices = {name: str(decision["device"]) for name, decision in data["placement"].items()}
        return devices, {(str(t["tensor"]), str(t["src"]), str(t["dst"])) for t in data["transfers"]}
    except (KeyError, TypeError, AttributeError):
        raise ValueError("not the output of tfmini inspect --json: it has no placement and transfers.") from None
