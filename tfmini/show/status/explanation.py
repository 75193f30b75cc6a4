"""Why steps do not end: who waits for whom, deadlocks, culprits; in words, and a snapshot as metrics.

`explain` is a pure function of a snapshot. Steps and their waits become the nodes of a wait-for graph (`deadlocked`).
A step leads to the waits of all its parts; a tensor that has not arrived only says that another part waits, or that a
task is gone. A wait for an element leads to the steps that have still to enqueue one, and to the tasks that could begin
such a step. What leads nowhere is a culprit: a kernel that computes, a silent task, a client that runs no step.

A step counts as a whole: whatever it has still to do is taken to need all that it waits for.
"""

from __future__ import annotations

import collections
import math
import re
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from tfmini.devices import parse
from tfmini.export import export
from tfmini.runtime.snapshot import (
    COLLECTIVE,
    COMPUTES,
    CONSEQUENCES,
    ELEMENT,
    GRADIENT,
    LOCK,
    OK,
    PUT,
    RELEASE,
    ROOM,
    SILENT,
    STUCK,
    TAKE,
    TENSOR,
    TOKEN,
    ClusterSnapshot,
    StalenessSnapshot,
    TaskSnapshot,
    WaitSnapshot,
)

if TYPE_CHECKING:
    import networkx

# ---- Deadlocks in a wait-for graph, where a node waits for all of its successors or for any of them ----------------
# A step waits for all that its parts wait for. A dequeue waits for any step that may enqueue. So a cycle alone is no
# deadlock: another step may end one of its waits. A set of nodes is deadlocked if none of them can end however the
# others go on: each has a successor in the set, and those that wait for any successor have all of theirs in it.

N = TypeVar("N", bound=Hashable)

ALL, ANY = "all", "any"
Graph = Mapping[N, tuple[str, Sequence[N]]]
"""Node -> (`ALL` or `ANY`, its successors). A node without successors, or that is no key, waits for nothing."""


def deadlocked(graph: Graph[N]) -> set[N]:
    """The largest deadlocked set of nodes."""
    blocked = {node for node, (_, successors) in graph.items() if successors}
    waiting: dict[N, list[N]] = collections.defaultdict(list)
    open_count: dict[N, int] = {}
    for node in blocked:
        mode, successors = graph[node]
        distinct = set(successors)
        open_count[node] = len(distinct) if mode == ALL else 1
        for successor in distinct:
            waiting[successor].append(node)
    free = [node for node in waiting if node not in blocked]
    while free:
        for node in waiting[free.pop()]:
            if node in blocked:
                open_count[node] -= 1
                if not open_count[node]:
                    blocked.discard(node)
                    free.append(node)
    return blocked


def edges_of(graph: Graph[N]) -> networkx.DiGraph:
    """The graph with an edge from each node to its successors."""
    import networkx  # slow to import

    return networkx.from_dict_of_lists({n: successors for n, (_, successors) in graph.items()}, networkx.DiGraph)


def cycles(edges: networkx.DiGraph, among: Collection[N], limit: int = 10) -> list[list[N]]:
    """Cycles among these nodes, each as short as it gets from its first node; no node is in two of them.

    Args:
      edges: see `edges_of`.
      among: in the order in which cycles are looked for.
      limit: how many are enough.
    """
    found: list[list[N]] = []
    left = edges.subgraph(among).copy()
    for start in among:
        if len(found) < limit and start in left:
            cycle = _shortest(left, start)
            left.remove_nodes_from(cycle)
            found += [cycle] if cycle else []
    return found


def _shortest(edges: networkx.DiGraph, start: N) -> list[N]:
    """The shortest cycle through a node; [] if there is none."""
    import networkx

    paths = networkx.single_source_shortest_path(edges, start)
    return min((paths[last] for last in edges.predecessors(start) if last in paths), key=len, default=[])


def paths_to_ends(edges: networkx.DiGraph, start: N) -> dict[N, list[N]]:
    """Each node without successors that can be reached -> a shortest path to it, the nearest first."""
    import networkx

    if start not in edges:
        return {start: [start]}
    return {n: path for n, path in networkx.single_source_shortest_path(edges, start).items() if not edges[n]}


# ---- `explain`: the culprits of steps that do not end, and the chains that lead to them ----------------------------

LEAST_S = 1.0
"""Shorter waits belong to steps that move: the tasks are not asked at exactly the same time."""

RUNS_NOTHING, MISSING, NO_STEP, MOVES = "runs no step", "missing", "no step", "moves"
"""Kinds of culprits beside `COMPUTES` and the states of tasks. ``no step``: no step can end the wait. ``moves``: it
waits, but not for long."""

_MISSING_TEXT = "does not run its part of the step, or has just ended it"
_SHOWN = 2  # ops that a culprit computes
_NEEDS = {ELEMENT: PUT, TOKEN: PUT, GRADIENT: PUT, ROOM: TAKE, LOCK: RELEASE}


@dataclass(frozen=True)
class Hop:
    """One wait on a way: ``who`` (a task) waits in a step. ``task``: where the wait is, full name."""

    who: str
    task: str
    wait: WaitSnapshot


@dataclass(frozen=True)
class Culprit:
    """What waits come down to.

    Attributes:
      task: full name; "": none is known.
      kind: `COMPUTES`, `RUNS_NOTHING`, ``stuck``, ``silent``, `MISSING`, `NO_STEP`, or the kind of a wait that no task
        is known to end.
      text: what it does, for people.
      since_s: for how long it has been waited for.
      steps: the ids of the steps that wait for it.
      way: the longest way to it, from the wait of one of these steps on.
    """

    task: str
    kind: str
    text: str
    since_s: float
    steps: tuple[str, ...]
    way: tuple[Hop, ...]


@dataclass(frozen=True)
class Explanation:
    """``cycles``: deadlocks, each wait waiting for the next one and the last for the first. ``culprits``: of all other
    waits, those of most steps first."""

    cycles: tuple[tuple[Hop, ...], ...]
    culprits: tuple[Culprit, ...]


@dataclass(frozen=True)
class _End:
    """A node of the graph that waits for nothing: a culprit."""

    task: str
    kind: str
    text: str


_Wait = tuple[str, int]  # task, position among its waits
_Node = _Wait | _End | str  # a str: a step


def explain(cluster: ClusterSnapshot, least_s: float = LEAST_S) -> Explanation:
    """Explains the waits of at least ``least_s`` seconds."""
    return Explainer(cluster, least_s).explanation()


def without_passing(first: Explanation, later: Explanation) -> Explanation:
    """The later one; of `MISSING` parts only those of steps that missed them in the first one, too.

    The tasks do not answer at exactly the same time, so a part may end between the answers of two of them.
    """
    before = {(culprit.task, step) for culprit in first.culprits for step in culprit.steps if culprit.kind == MISSING}
    kept = (c for c in later.culprits if c.kind != MISSING or before.intersection((c.task, step) for step in c.steps))
    return Explanation(later.cycles, tuple(kept))


class Explainer:
    """The waits of a cluster as a graph.

    Args:
      least_s: waits that have lasted for less time end by themselves.
    """

    def __init__(self, cluster: ClusterSnapshot, least_s: float) -> None:
        self._least_s = least_s
        self._tasks = {task.task: task for task in cluster.tasks}
        self._waits: dict[_Wait, WaitSnapshot] = {}
        self._by_step: dict[str, list[_Wait]] = collections.defaultdict(list)
        for task in cluster.tasks:
            for index, wait in enumerate(task.waits):
                self._waits[task.task, index] = wait
                self._by_step[wait.step_id].append((task.task, index))
        self._runner = {step.step_id: task.task for task in cluster.tasks for step in task.running}
        # Steps that fill queues are none by which a client could end the wait of another step.
        self._running = {t.task: [step.step_id for step in t.running if not step.fills] for t in cluster.tasks}
        self._graph: dict[_Node, tuple[str, Sequence[_Node]]] = {}
        for key, wait in self._waits.items():
            if wait.kind not in CONSEQUENCES:
                self._graph[key] = self._edges(key)
        for step_id, keys in self._by_step.items():
            self._graph[step_id] = (ALL, self._of_step(keys))
        self._successors = edges_of(self._graph)

    def explanation(self) -> Explanation:
        """See `Explanation`."""
        stuck = deadlocked(self._graph)
        order = sorted((key for key in self._waits if key in stuck), key=lambda key: -self._waits[key].since_s)
        rounds = [self._hops(cycle) for cycle in cycles(self._successors, [*order, *(stuck - set(order))])]
        return Explanation(tuple(tuple(hops) for hops in rounds if hops), self._culprits(stuck))

    def ends_of(self, step_id: str) -> dict[str, list[WaitSnapshot]]:
        """The tasks that a step comes down to -> the waits on the way there."""
        step: _Node = step_id
        return {
            end.task: [self._waits[node] for node in path if isinstance(node, tuple)]
            for end, path in paths_to_ends(self._successors, step).items()
            if isinstance(end, _End) and end.task
        }

    # ---- the graph --------------------------------------------------------------------------

    def _of_step(self, keys: Sequence[_Wait]) -> list[_Node]:
        """What a step waits for: the waits of its parts, and tasks that do not answer."""
        found: list[_Node] = [key for key in keys if self._waits[key].kind not in CONSEQUENCES]
        waits = [self._waits[key] for key in keys]
        senders = {task for wait in waits if wait.kind in CONSEQUENCES for task in wait.from_tasks}
        found += [node for task in sorted(senders) for node in self._bad(task) if node not in found]
        return found or [_End(task, MISSING, _MISSING_TEXT) for task in self._quiet_senders(keys)]

    def _quiet_senders(self, keys: Sequence[_Wait]) -> list[str]:
        """The tasks that a step waits for and that report no wait of it: a task that waits itself sends later."""
        busy = {task for task, i in keys if self._waits[task, i].kind == TENSOR}
        for kind in CONSEQUENCES:
            waits = [self._waits[key] for key in keys if self._waits[key].kind == kind]
            senders = {task for wait in waits for task in wait.from_tasks}
            if senders:
                return sorted(senders - busy) or sorted(senders)
        return []

    def _edges(self, key: _Wait) -> tuple[str, Sequence[_Node]]:
        wait, (task, _) = self._waits[key], key
        if wait.kind == COMPUTES:
            return ALL, [_End(task, COMPUTES, "")]
        if wait.since_s < self._least_s:
            return ALL, [_End(task, MOVES, "waits, but not for long")]
        if wait.kind == COLLECTIVE:
            others = wait.from_tasks or self._outside(task, wait.on)
            found = [node for other in others for node in self._of_client(other, wait)]
            return ALL, found or [_End(task, wait.kind, f"waits for {wait.text}")]
        if wait.kind in _NEEDS:
            found = self._who_may(key, _NEEDS[wait.kind])
            return (ALL if wait.kind in (GRADIENT, LOCK) else ANY), found
        return ALL, [_End(task, wait.kind, f"waits for {wait.text}")]

    def _outside(self, task: str, group: str) -> list[str]:
        """The tasks of the same job that wait in no collective of a group: one of them keeps it from forming.

        A group that has not formed does not know its members.
        """
        job, within = job_of(task), {key[0] for key, wait in self._waits.items() if wait.on == group}
        return [other for other in self._tasks if job_of(other) == job and other not in within]

    def _bad(self, task: str) -> list[_Node]:
        """The culprit if a task is silent, unknown or stuck: what a stuck one computes, if it computes."""
        found = self._tasks.get(task)
        if found is None:
            return [_End(task, MISSING, "is not in the cluster that was asked")]
        if found.state == OK:
            return []
        computing: list[_Node] = [(task, i) for i, wait in enumerate(found.waits) if wait.kind == COMPUTES]
        return computing or [_End(task, found.state, f"is {found.state}: {found.why}")]

    def _of_client(self, task: str, wait: WaitSnapshot) -> list[_Node]:
        """What the steps that a task's master runs wait for; a client that runs none is a culprit."""
        bad = self._bad(task)
        if bad:
            return bad
        others = [step for step in self._running.get(task, ()) if step != wait.step_id and step in self._by_step]
        fills = any(step.fills for step in self._tasks[task].running)
        return list(others) or [_End(task, RUNS_NOTHING, "only fills queues" if fills else "runs no step")]

    def _who_may(self, key: _Wait, action: str) -> list[_Node]:
        """The steps that have still to do what ends a wait, and the tasks that may begin such steps."""
        wait, holder = self._waits[key], self._tasks[key[0]]
        steps = list(dict.fromkeys(
            p.step_id for p in holder.pending if p.action == action and p.on == wait.on and p.step_id in self._by_step
        ))  # fmt: skip
        others = [step for step in steps if step != wait.step_id]
        nodes: list[_Node] = []
        covered = {self._runner.get(step, "") for step in others}
        if wait.kind == GRADIENT:  # each of the tasks that are missing must contribute
            nodes += [step for step in others if self._runner.get(step, "") in wait.from_tasks]
        else:
            nodes += others
        for task in wait.from_tasks:
            if task not in covered:
                nodes += [node for node in self._of_client(task, wait) if node not in nodes]
        if not nodes and wait.step_id in steps:
            nodes = [wait.step_id]  # only the step itself would do it, later
        what = {PUT: "puts anything into", TAKE: "takes anything from", RELEASE: "releases"}[action]
        return nodes or [_End("", NO_STEP, f'no step {what} "{wait.on}"')]

    # ---- words ------------------------------------------------------------------------------

    def _who(self, task: str, wait: WaitSnapshot) -> str:
        """The task whose client waits."""
        return self._runner.get(wait.step_id, task)

    def _hops(self, nodes: Iterable[_Node]) -> list[Hop]:
        found = []
        for node in nodes:
            if isinstance(node, tuple):
                wait = self._waits[node]
                found.append(Hop(self._who(node[0], wait), node[0], wait))
        return found

    def _culprits(self, stuck: set[_Node]) -> tuple[Culprit, ...]:
        steps: dict[_End, dict[str, float]] = collections.defaultdict(dict)
        ways: dict[_End, list[Hop]] = {}
        doing: dict[_End, dict[str, None]] = collections.defaultdict(dict)  # what a task computes
        for step_id, keys in self._by_step.items():
            since_s = max(self._waits[key].since_s for key in keys)
            if step_id in stuck or since_s < self._least_s:
                continue
            for end, path in paths_to_ends(self._successors, step_id).items():
                if isinstance(end, _End) and not stuck.intersection(path):
                    steps[end][step_id] = since_s
                    way = self._hops(path)
                    if end.kind == COMPUTES:
                        doing[end][way[-1].wait.text] = None
                    if len(way) > len(ways.get(end, ())):
                        ways[end] = way
        found = [
            Culprit(end.task, end.kind, _doing(doing[end]) or end.text, max(ids.values()), tuple(ids),
                    tuple(ways.get(end, ())))
            for end, ids in steps.items()
            if end.kind != MOVES and not (end.kind == MISSING and _End(end.task, COMPUTES, "") in steps)
        ]  # fmt: skip
        return tuple(sorted(found, key=lambda culprit: (-len(culprit.steps), -culprit.since_s, culprit.task)))


def _doing(texts: Iterable[str]) -> str:
    """``computes A and B`` for ``computes A`` and ``computes B``."""
    whats = sorted(text.removeprefix(COMPUTES).strip() for text in texts)
    known = [what for what in whats if what]
    shown = ", ".join(known[:_SHOWN]) + (f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else "")
    return f"{COMPUTES} {shown}".strip() if whats else ""


def job_of(task: str) -> str:
    """The job of a full task name."""
    return parse(task).job or ""


# ---- An explanation in words, for the terminal ---------------------------------------------------------------------

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


def explanation_lines(explanation: Explanation) -> list[str]:
    """Deadlocks first, then the culprits of the other waits."""
    lines: list[str] = []
    for cycle in explanation.cycles:
        lines += [f"DEADLOCK of {len(cycle)} waits:", *("  " + line for line in cycle_lines(cycle)), ""]
    for culprit in explanation.culprits:
        lines += [*culprit_lines(culprit), ""]
    return lines or ["No step has waited for long.", ""]


def task_lines(task: TaskSnapshot, idle: str = "no step runs here") -> list[str]:
    """The waits of one task; ``idle``: the words for none."""
    state = "" if task.state == "ok" else f" is {task.state}: {task.why}"
    lines = [f"{short(task.task)}{state}"]
    lines += [
        f"  step {wait.step_id} {wait_text(wait)}{f' (node {wait.node})' if wait.node else ''}" for wait in task.waits
    ]
    if len(lines) == 1 and not state:
        lines[0] += f": {idle}"
    return lines


def stack_lines(cluster: ClusterSnapshot) -> list[str]:
    """The Python stacks of all threads, innermost frame last."""
    lines: list[str] = []
    for task in cluster.tasks:
        for thread in task.stacks:
            lines += [f"{short(task.task)} thread {thread.name}", *(f"  {frame}" for frame in thread.frames)]
    return lines


# ---- A snapshot as metrics, in Prometheus's text format ------------------------------------------------------------
# The names are documented in docs/guides/status.md and stay as they are. A task that does not answer has ``tfmini_up
# 0`` and no other metric, so counters do not fall to 0.

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

GAUGE, COUNTER, HISTOGRAM = "gauge", "counter", "histogram"
Labels = dict[str, str]
Sample = tuple[Labels, float]


class Metric(NamedTuple):
    """One metric of a task. ``labels``: beside ``task``. ``samples``: its values in a task's snapshot."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]
    samples: Callable[[TaskSnapshot], Iterable[Sample]]


def _one(value: Callable[[TaskSnapshot], float]) -> Callable[[TaskSnapshot], list[Sample]]:
    return lambda task: [({}, value(task))]


def _link(field: str) -> Callable[[TaskSnapshot], Iterable[Sample]]:
    return lambda task: [({"peer": link.peer}, getattr(link, field)) for link in task.links]


def _waits(task: TaskSnapshot) -> Iterator[Sample]:
    for kind in sorted({wait.kind for wait in task.waits}):
        yield {"kind": kind}, sum(wait.kind == kind for wait in task.waits)


def _contributions(field: str) -> Callable[[TaskSnapshot], Iterable[Sample]]:
    return lambda task: [
        ({"accumulator": found.name, "worker": each.task}, getattr(each, field))
        for found in task.accumulators
        for each in found.contributions
    ]


METRICS = (
    Metric("tfmini_up", GAUGE, "1 if the task answers, else 0.", (), _one(lambda t: t.state != SILENT)),
    Metric("tfmini_stuck", GAUGE, "1 if no thread of the task is free to handle messages.", (),
           _one(lambda t: t.state == STUCK)),
    Metric("tfmini_uptime_seconds", GAUGE, "Seconds since the task began.", (), _one(lambda t: t.uptime_s)),
    Metric("tfmini_cpu_seconds_total", COUNTER, "CPU time of the task's process.", (), _one(lambda t: t.cpu_s)),
    Metric("tfmini_memory_bytes", GAUGE, "Resident memory of the task's process.", (), _one(lambda t: t.memory_bytes)),
    Metric("tfmini_threads", GAUGE, "Python threads of the task's process.", (), _one(lambda t: t.threads)),
    Metric("tfmini_sessions", GAUGE, "Open sessions of the task's master.", (), _one(lambda t: len(t.sessions))),
    Metric("tfmini_steps_total", COUNTER, "Training steps that the task's master has ended.", (),
           _one(lambda t: t.steps)),
    Metric("tfmini_steps_failed_total", COUNTER, "Training steps that have ended with an error.", (),
           _one(lambda t: t.steps_failed)),
    Metric("tfmini_steps_in_flight", GAUGE, "Training steps that the task's master runs now.", (),
           _one(lambda t: t.steps_in_flight)),
    Metric("tfmini_runs_total", COUNTER, "Steps of any kind, as those of queue runners, that have ended.", (),
           _one(lambda t: t.runs)),
    Metric("tfmini_parts_total", COUNTER, "Parts of steps that the task's worker has run for any master.", (),
           _one(lambda t: t.parts)),
    Metric("tfmini_parts_in_flight", GAUGE, "Parts of steps that run now.", (), _one(lambda t: t.parts_in_flight)),
    Metric("tfmini_waits", GAUGE, "What steps wait for on the task now, by kind.", ("kind",), _waits),
    Metric("tfmini_longest_wait_seconds", GAUGE, "How long the longest wait on the task has lasted.", (),
           _one(lambda t: max((wait.since_s for wait in t.waits), default=0.0))),
    Metric("tfmini_variables", GAUGE, "Variables that the task holds.", (),
           _one(lambda t: len(t.variables) + t.omitted.get("variables", 0))),
    Metric("tfmini_variables_bytes", GAUGE, "Bytes of the values of the task's variables.", (),
           _one(lambda t: t.variable_bytes)),
    Metric("tfmini_link_sent_bytes_total", COUNTER, "Bytes sent to a peer, with those in shared memory.", ("peer",),
           _link("sent_bytes")),
    Metric("tfmini_link_received_bytes_total", COUNTER, "Bytes received from a peer.", ("peer",),
           _link("received_bytes")),
    Metric("tfmini_link_sent_messages_total", COUNTER, "Messages sent to a peer.", ("peer",), _link("sent_messages")),
    Metric("tfmini_link_received_messages_total", COUNTER, "Messages received from a peer.", ("peer",),
           _link("received_messages")),
    Metric("tfmini_link_backlog_bytes", GAUGE, "Bytes queued for a peer and not sent yet.", ("peer",),
           _link("backlog_bytes")),
    Metric("tfmini_queue_elements", GAUGE, "Elements in a queue.", ("queue",),
           lambda t: [({"queue": q.name}, q.length) for q in t.queues]),
    Metric("tfmini_queue_capacity", GAUGE, "The most elements that a queue holds; -1: no limit.", ("queue",),
           lambda t: [({"queue": q.name}, q.capacity) for q in t.queues]),
    Metric("tfmini_accumulator_step", GAUGE, "Global step of an accumulator of synchronous updates.", ("accumulator",),
           lambda t: [({"accumulator": a.name}, a.global_step) for a in t.accumulators]),
    Metric("tfmini_accumulator_gradients", GAUGE, "Gradients that an accumulator holds now.", ("accumulator",),
           lambda t: [({"accumulator": a.name}, a.count) for a in t.accumulators]),
    Metric("tfmini_gradients_accepted_total", COUNTER, "Gradients that an accumulator has accepted from a worker.",
           ("accumulator", "worker"), _contributions("accepted")),
    Metric("tfmini_gradients_dropped_total", COUNTER, "Gradients that an accumulator has dropped as stale.",
           ("accumulator", "worker"), _contributions("dropped")),
    Metric("tfmini_collective_runs_total", COUNTER, "Collectives that the task has run.", (),
           _one(lambda t: sum(c.runs for c in t.collectives))),
    Metric("tfmini_collective_bytes_total", COUNTER, "Bytes that the task has sent in collectives.", (),
           _one(lambda t: sum(c.bytes for c in t.collectives))),
    Metric("tfmini_collective_messages_total", COUNTER, "Messages that the task has sent in collectives.", (),
           _one(lambda t: sum(c.messages for c in t.collectives))),
    Metric("tfmini_scalar", GAUGE, "Latest value of a scalar that the script writes as a summary.", ("tag",),
           lambda t: [({"tag": s.tag}, s.value) for s in t.scalars]),
    Metric("tfmini_scalar_step", GAUGE, "Step of that value.", ("tag",),
           lambda t: [({"tag": s.tag}, s.step) for s in t.scalars]),
    Metric("tfmini_connection_events_total", COUNTER, "Messages that were malformed, dropped, late, and the like.",
           ("event",), lambda t: [({"event": name}, count) for name, count in sorted(t.counters.items())]),
)  # fmt: skip

STALENESS = "tfmini_update_staleness"
CLUSTER = (
    ("tfmini_deadlocks", "Deadlocks of steps in the cluster."),
    ("tfmini_snapshot_seconds", "For how long the tasks were asked."),
)


@export("tf.prometheus_metrics")
def to_prometheus(cluster: ClusterSnapshot) -> str:
    """The metrics of a cluster, as ``tf.cluster_status`` returns it, in Prometheus's text format (`CONTENT_TYPE`)."""
    lines: list[str] = []
    for metric in METRICS:
        samples = [
            _line(metric.name, {"task": task.task, **labels}, value)
            for task in cluster.tasks
            if task.state != SILENT or metric.name == "tfmini_up"
            for labels, value in metric.samples(task)
        ]
        if samples:
            lines += [*_head(metric.name, metric.kind, metric.help), *samples]
    stale = [(task.task, each) for task in cluster.tasks for each in task.staleness]
    if stale:
        lines += _head(STALENESS, HISTOGRAM, "Updates by other steps while an asynchronous update's step ran.")
        lines += [line for task, each in stale for line in _histogram({"task": task, "worker": each.worker}, each)]
    for (name, text), value in zip(CLUSTER, (len(explain(cluster).cycles), cluster.took_s)):
        lines += [*_head(name, GAUGE, text), _line(name, {}, value)]
    return "\n".join(lines) + "\n"


def _head(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def _histogram(labels: Labels, stale: StalenessSnapshot) -> Iterator[str]:
    """The buckets hold 0, 1, 2-3, 4-7, …; the last one all above."""
    total = 0
    for index, count in enumerate(stale.histogram[:-1]):
        total += count
        yield _line(f"{STALENESS}_bucket", {**labels, "le": str(2**index - 1)}, total)
    yield _line(f"{STALENESS}_bucket", {**labels, "le": "+Inf"}, stale.updates)
    yield _line(f"{STALENESS}_sum", labels, stale.mean * stale.updates)
    yield _line(f"{STALENESS}_count", labels, stale.updates)


def _line(name: str, labels: Labels, value: float) -> str:
    shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{f'{{{shown}}}' if shown else ''} {_number(value)}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isfinite(value):
        return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
