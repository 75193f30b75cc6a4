"""`tfmini stacks`: which step waits for what, since when and from whom; deadlocks and culprits."""

from __future__ import annotations

import json
import threading
import time

import click

from tfmini import errors
from tfmini.printable import printable
from tfmini.status.bottleneck import Bottleneck, Looks
from tfmini.status.explanation import LEAST_S, MISSING, Explanation, explain, without_passing
from tfmini.status.explanation_text import explanation_lines, share_text, stack_lines, task_lines
from tfmini.status.gather import Gatherer
from tfmini.status.snapshot import ClusterSnapshot, to_json
from tfmini.tools.cluster_target import find_cluster
from tfmini.tools.usage import Command, OptionalArgument

_ANSWER_S = 2.0  # a loaded machine is no silent task
_LOOKS = 10  # at a job that moves, to see whom its steps wait for
_BETWEEN_S = 0.12  # a task gives an answer again for 0.1 s


@click.command(cls=Command, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--python", "python", is_flag=True, help="Show the Python stacks of all threads, too.")
@click.option("--least", type=click.FloatRange(0), default=LEAST_S, show_default=True, metavar="S",
              help="Explain the waits that have lasted for so many seconds.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print deadlocks, culprits and the waits of each task as JSON.")
@click.argument("target", required=False, cls=OptionalArgument)
def stacks(python: bool, least: float, as_json: bool, target: str | None) -> None:
    """Explain why the steps of the cluster of TARGET wait: deadlocks first, then whom all wait for, then each task.

    If no step has waited for long, it looks ten times within about a second and names the task that the steps wait for
    most of the time.

    TARGET is as in `tfmini status`.
    """
    where = find_cluster(target)
    try:
        with Gatherer(where.target, tasks=where.tasks, keys=where.keys) as gatherer:
            cluster = gatherer.gather(stacks=python, timeout_s=_ANSWER_S)
            explanation, bottleneck = explain(cluster, least), None
            if _moves(explanation):
                cluster, bottleneck = _look_often(gatherer, cluster)
                explanation = without_passing(explanation, explain(cluster, least))
    except errors.OpError as error:
        raise click.ClickException(error.message) from None
    if as_json:
        tasks = {
            task.task: {"state": task.state, "why": task.why, **_lists(to_json(task), "waits", "stacks")}
            for task in cluster.tasks
        }
        found = None if bottleneck is None else to_json(bottleneck)
        click.echo(json.dumps({**to_json(explanation), "bottleneck": found, "tasks": tasks}, indent=1))
        return
    lines = explanation_lines(explanation)
    if bottleneck is not None:
        lines[-1:] = [share_text(bottleneck) + ".", ""]
    for task in cluster.tasks:
        lines += task_lines(task)
    lines += ["", *stack_lines(cluster)] if python else []
    click.echo("\n".join(map(printable, lines)))


def _moves(explanation: Explanation) -> bool:
    """Whether nothing has waited for long, but for what may have ended between the answers of two tasks."""
    return not explanation.cycles and all(culprit.kind == MISSING for culprit in explanation.culprits)


def _look_often(gatherer: Gatherer, cluster: ClusterSnapshot) -> tuple[ClusterSnapshot, Bottleneck | None]:
    """The last one of several snapshots, and the task that the steps wait for."""
    looks, pause = Looks(), threading.Event()
    looks.take(cluster)
    end = time.monotonic() + 2 * _LOOKS * _BETWEEN_S
    for _ in range(_LOOKS - 1):
        if time.monotonic() > end:
            break
        pause.wait(_BETWEEN_S)
        cluster = gatherer.gather(timeout_s=_ANSWER_S)
        looks.take(cluster)
    return cluster, looks.bottleneck()


def _lists(task: dict[str, object], *names: str) -> dict[str, object]:
    return {name: task[name] for name in names}
