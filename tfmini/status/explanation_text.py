"""An explanation in words, for the terminal."""

from __future__ import annotations

import re

from tfmini.status.bottleneck import Bottleneck
from tfmini.status.explanation import Culprit, Explanation, Hop
from tfmini.status.snapshot import COMPUTES, ClusterSnapshot, TaskSnapshot, WaitSnapshot

_TASK = re.compile(r"/job:(\w+)/replica:\d+/task:(\d+)")
_UNBOUNDED = f" of {2**31 - 1}"  # a queue without a limit
ARROW = "  <- "


def short(text: str) -> str:
    """The text with ``worker/0`` for ``/job:worker/replica:0/task:0``."""
    return _TASK.sub(r"\1/\2", text)


def seconds(value: float) -> str:
    """``0.4 s``, ``12 s``, ``5 min``, ``3.2 h``."""
    if value < 9.95:
        return f"{value:.1f} s"
    if value < 120:
        return f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"


def wait_text(wait: WaitSnapshot) -> str:
    """One wait, such as ``waits for an element of FIFOQueue "jobs" (0 of 3 elements) for 12 s, from worker/1``."""
    text = short(wait.text).replace(_UNBOUNDED, "")
    what = text if wait.kind == COMPUTES else f"waits for {text}"
    since = f" for {seconds(wait.since_s)}" if wait.since_s else ""
    senders = ", ".join(map(short, wait.from_tasks))
    told = bool(senders) and f"from {senders}" not in text and wait.kind != "answer"
    return f"{what}{since}{f', from {senders}' if told else ''}"


def hop_text(hop: Hop) -> str:
    """One wait of a way, with who waits, and where."""
    node = f", node {hop.wait.node}" if hop.wait.node else ""
    where = f" (on {short(hop.task)}{node})" if hop.task != hop.who or node else ""
    return f"{short(hop.who)} {wait_text(hop.wait)}{where}"


def cycle_lines(cycle: tuple[Hop, ...]) -> list[str]:
    """A deadlock: one line per wait, and the first one's task again."""
    lines = [hop_text(hop) for hop in cycle]
    return [lines[0], *(ARROW + line for line in [*lines[1:], f"{short(cycle[0].who)} (see above)"])]


def culprit_head(culprit: Culprit) -> str:
    """What a culprit does: ``worker/2 runs no step``."""
    return f"{short(culprit.task)} {short(culprit.text)}".strip()


def culprit_parts(culprit: Culprit) -> tuple[str, list[str]]:
    """(what it does, and for how long how many steps have waited for it; the longest wait for it, a line per hop)."""
    count, since = len(culprit.steps), seconds(culprit.since_s)
    head = culprit_head(culprit)
    way = [hop_text(hop) for hop in culprit.way if hop.wait.kind != COMPUTES]
    if count == 1 and not way:
        return f"{head}, for {since}", []
    return f"{head}: {count} step{'s wait' if count > 1 else ' waits'} for it, for {since}", [*way, head] if way else []


def culprit_lines(culprit: Culprit) -> list[str]:
    """A culprit: what it does, and the longest wait for it."""
    title, way = culprit_parts(culprit)
    return [f"{title}.", *((ARROW if i else "  ") + line for i, line in enumerate(way))]


def share_text(found: Bottleneck) -> str:
    """``ps/1 is the bottleneck: steps of worker/0, worker/1 wait for it 83 % of the time``."""
    who = [*map(short, found.waiting[:3]), *([f"{len(found.waiting) - 3} more"] if len(found.waiting) > 3 else [])]
    share = f"{100 * found.share:.0f} % of the time"
    return f"{short(found.task)} is the bottleneck: steps of {', '.join(who)} wait for it {share}"


def explanation_lines(explanation: Explanation) -> list[str]:
    """Deadlocks first, then the culprits of the other waits."""
    lines: list[str] = []
    for cycle in explanation.cycles:
        lines += [f"DEADLOCK of {len(cycle)} waits:", *("  " + line for line in cycle_lines(cycle)), ""]
    for culprit in explanation.culprits:
        lines += [*culprit_lines(culprit), ""]
    return lines or ["No step has waited for long.", ""]


def task_lines(task: TaskSnapshot) -> list[str]:
    """The waits of one task."""
    state = "" if task.state == "ok" else f" is {task.state}: {task.why}"
    lines = [f"{short(task.task)}{state}"]
    lines += [
        f"  step {wait.step_id} {wait_text(wait)}{f' (node {wait.node})' if wait.node else ''}" for wait in task.waits
    ]
    if len(lines) == 1 and not state:
        lines[0] += ": no step runs here"
    return lines


def stack_lines(cluster: ClusterSnapshot) -> list[str]:
    """The Python stacks of all threads, innermost frame last."""
    lines: list[str] = []
    for task in cluster.tasks:
        for thread in task.stacks:
            lines += [f"{short(task.task)} thread {thread.name}", *(f"  {frame}" for frame in thread.frames)]
    return lines
