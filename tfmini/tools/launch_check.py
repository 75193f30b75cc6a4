"""`tfmini launch --check`: says what a launch would do, and what would stop or waste it. It starts no task."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import click

from tfmini import errors
from tfmini.cluster import ClusterSpec
from tfmini.command_line import misplaced
from tfmini.compat.roles import defined_options, role_arguments, role_flags_of, texts_of
from tfmini.graph.op_types import ops_with
from tfmini.launch.launch_options import LaunchOptions
from tfmini.launch.local import reserve_cluster, usable_cpus
from tfmini.launch.supervision import EVALUATOR_JOB, TaskId
from tfmini.program import words as words_of
from tfmini.show.inspection.api import inspect
from tfmini.show.inspection.findings import Inspection
from tfmini.show.inspection.lint import ps_devices
from tfmini.show.inspection.sources import ScriptError
from tfmini.terminal import Rows, console, plain
from tfmini.text import printable
from tfmini.tools.dashboard import LOOPBACK, check_installed, listen

_READS_ROLE = re.compile(r"TF_CONFIG|RunConfig|ClusterResolver|\bestimator\b|\bhorovod\b|\bhvd\b")
_PLACEHOLDER = re.compile(r"\{(job|task|ps_hosts|worker_hosts)\}")
_COMMANDS = {"slurm": "srun", "mpi": "mpirun"}
_PACKAGES = {"ray": "ray", "kubernetes": "kubernetes"}
_COLLECTIVES = ops_with("collective")
_SHOWN = 12  # tasks


@dataclass
class _Findings:
    """What a check has found.

    Attributes:
      facts: (subject, text), in the order of the answer.
      problems: what would stop the run, or let it do nothing useful.
    """

    facts: list[tuple[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def check(options: LaunchOptions, script: str, args: Sequence[str]) -> int:
    """Prints what a launch would do; returns the exit code, 1 if there is a problem."""
    found = _Findings()
    if text := misplaced(click.get_current_context(), script, args, defined_options):
        found.problems.append(text)
    flags = _roles(script, args, found)
    spec = _places(options, found)
    _page(options, found)
    _graph(options, script, args, found)
    answer = console()
    table = Rows("", "", show_header=False)
    for subject, text in found.facts:
        table.add_row(subject, text)
    answer.print(table)
    answer.print(_tasks(options, script, args, spec, flags))
    for problem in found.problems:
        answer.print(plain(f"problem: {problem}"))
    count = len(found.problems)
    answer.print(f"nothing was started; {f'{count} problem' + 's' * (count > 1) if count else 'no problem found'}")
    return 1 if count else 0


def _roles(script: str, args: Sequence[str], found: _Findings) -> dict[str, str]:
    """Notes how the script learns its role; returns the role flags that it defines."""
    flags = role_flags_of(script)
    ways = [", ".join(flags.values())] if flags else []
    if any(map(_READS_ROLE.search, texts_of(script))):
        ways.append("TF_CONFIG")
    if any(map(_PLACEHOLDER.search, args)):
        ways.append("the arguments")
    found.facts.append(("role by", ", ".join(ways) or "nothing"))
    if not ways:
        found.problems.append(
            f"{script} defines no role flag (--job_name, --task_index) and does not read TF_CONFIG, so every task would"
            " run the same program, alone."
        )
    return flags


def _places(options: LaunchOptions, found: _Findings) -> ClusterSpec:
    """Notes where the tasks would run; returns a cluster with their addresses, or with stand-ins."""
    tasks = options.tasks()
    if options.on != "local":
        _engine(options.on, found)
        return _stand_ins(tasks)
    found.facts.append(("tasks", f"{len(tasks)} processes on {usable_cpus()} cores of this machine"))
    try:
        reserved = reserve_cluster(tasks, options.port_base)
    except (OSError, OverflowError) as error:
        found.facts.append(("ports", "not free"))
        found.problems.append(f"{str(error).rstrip('.')}. Choose another --port-base, or leave it out.")
        return _stand_ins(tasks)
    reserved.close()
    fixed = "free" if options.port_base else "free ones, which the launch chooses anew"
    found.facts.append(("ports", fixed))
    return reserved.spec


def _engine(name: str, found: _Findings) -> None:
    command, package = _COMMANDS.get(name), _PACKAGES.get(name)
    found.facts.append(("tasks", f"on the hosts of {name}, which are not asked here"))
    if command and shutil.which(command) is None:
        found.problems.append(f"There is no command {command} here, so --on {name} cannot start tasks.")
    if package and importlib.util.find_spec(package) is None:
        found.problems.append(f"--on {name} needs one more package: pip install 'tfmini-cluster[{name}]'.")


def _stand_ins(tasks: Sequence[TaskId]) -> ClusterSpec:
    jobs: dict[str, dict[int, str]] = {}
    for job, task in tasks:
        jobs.setdefault(job, {})[task] = "HOST:PORT"
    return ClusterSpec(jobs)


def _page(options: LaunchOptions, found: _Findings) -> None:
    if (port := options.page_port()) is None:
        return
    try:
        check_installed()
        listen(LOOPBACK, port).close()
    except click.ClickException as error:
        found.problems.append(error.message)


def _graph(options: LaunchOptions, script: str, args: Sequence[str], found: _Findings) -> None:
    """Runs the script up to its first session, as the chief or first worker, and looks at what lies where."""
    jobs = dict(Counter(task.job for task in options.tasks() if task.job != EVALUATOR_JOB))
    try:
        with contextlib.redirect_stdout(sys.stderr):
            graph = inspect(script, cluster=jobs, arguments=args)
    except ScriptError as error:
        found.problems.append(str(error))
    except errors.OpError as error:
        found.problems.append(errors.without_tags(error.message))
    except (ValueError, TypeError, OSError, RuntimeError) as error:
        found.facts.append(("graph", f"not looked at: {error}"))
    else:
        _use(options, graph, found)


def _use(options: LaunchOptions, graph: Inspection, found: _Findings) -> None:
    found.problems += [f"a session would refuse the graph: {refusal.text}" for refusal in graph.refusals()]
    found.facts.append(("graph", f"{len(graph.nodes):,} ops"))
    ps = set(ps_devices(graph))
    used = [d for d in graph.devices if d.device in ps and (d.ops or d.variables)]
    variables = sum(len(d.variables) for d in used)
    if options.ps:
        found.facts.append(("ps", f"{len(used)} of {options.ps} used, with {variables} variables"))
    if options.ps and not used:
        found.problems.append(
            "no variable and no op of the graph lies on a ps, so the ps tasks would have nothing to do. Build the model"
            " under tf.device(tf.train.replica_device_setter(cluster=...)), or give --ps 0."
        )
    collective = any(node.op in _COLLECTIVES for node in graph.nodes.values())
    if options.workers + options.chief + options.master > 1 and not used and not collective:
        text = "the workers share neither variables nor collectives, so each would train a model of its own."
        found.problems.append(text)


def _tasks(options: LaunchOptions, script: str, args: Sequence[str], spec: ClusterSpec, flags: dict[str, str]) -> Rows:
    table = Rows("task", "address", "runs")
    tasks = options.tasks()
    for task in tasks[:_SHOWN]:
        words = role_arguments(*task, spec, flags, args)
        command = ["tfmini run", *words_of(script), *(printable(word, 60) for word in words)]
        address = "" if task.job == EVALUATOR_JOB else spec.task_address(*task)
        table.add_row(str(task), address, " ".join(command))
    if len(tasks) > _SHOWN:
        table.add_row(f"… {len(tasks) - _SHOWN} more", "", "")
    return table
