"""Why steps do not end: who waits for whom through a whole cluster, the deadlocks, and the culprits.

`explain` is a pure function of a snapshot. Steps and their waits become the nodes of a wait-for graph (`wait_graph`).
A step leads to the waits of all its parts; a tensor that has not arrived only says that another part waits, or that a
task is gone. A wait for an element leads to the steps that have still to enqueue one, and to the tasks that could begin
such a step. What leads nowhere is a culprit: a kernel that computes, a silent task, a client that runs no step.

A step counts as a whole: whatever it has still to do is taken to need all that it waits for.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tfmini.status.snapshot import (
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
    TAKE,
    TENSOR,
    TOKEN,
    ClusterSnapshot,
    WaitSnapshot,
)
from tfmini.status.wait_graph import ALL, ANY, cycles, deadlocked, paths_to_ends

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
    return _Explainer(cluster, least_s).explanation()


def without_passing(first: Explanation, later: Explanation) -> Explanation:
    """The later one; of `MISSING` parts only those of steps that missed them in the first one, too.

    The tasks do not answer at exactly the same time, so a part may end between the answers of two of them.
    """
    before = {(culprit.task, step) for culprit in first.culprits for step in culprit.steps if culprit.kind == MISSING}
    kept = (c for c in later.culprits if c.kind != MISSING or before.intersection((c.task, step) for step in c.steps))
    return Explanation(later.cycles, tuple(kept))


def blames(cluster: ClusterSnapshot) -> dict[str, set[str]]:
    """Each task whose master runs steps now -> the other tasks that these steps come down to at this moment."""
    explainer = _Explainer(cluster, 0.0)
    found: dict[str, set[str]] = {}
    for task in cluster.tasks:
        if task.running:
            ends = {name for step in task.running for name in explainer.ends_of(step.step_id)}
            found[task.task] = ends - {task.task}
    return found


class _Explainer:
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
        self._running = {task.task: [step.step_id for step in task.running] for task in cluster.tasks}
        self._graph: dict[_Node, tuple[str, Sequence[_Node]]] = {}
        for key, wait in self._waits.items():
            if wait.kind not in CONSEQUENCES:
                self._graph[key] = self._edges(key)
        for step_id, keys in self._by_step.items():
            self._graph[step_id] = (ALL, self._of_step(keys))

    def explanation(self) -> Explanation:
        """See `Explanation`."""
        stuck = deadlocked(self._graph)
        order = sorted((key for key in self._waits if key in stuck), key=lambda key: -self._waits[key].since_s)
        rounds = [self._hops(cycle) for cycle in cycles(self._graph, [*order, *(stuck - set(order))])]
        return Explanation(tuple(tuple(hops) for hops in rounds if hops), self._culprits(stuck))

    def ends_of(self, step_id: str) -> set[str]:
        """The tasks that a step comes down to."""
        return {end.task for end in paths_to_ends(self._graph, step_id) if isinstance(end, _End) and end.task}

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
            return ALL, [node for other in wait.from_tasks for node in self._of_client(other, wait)]
        if wait.kind in _NEEDS:
            found = self._who_may(key, _NEEDS[wait.kind])
            return (ALL if wait.kind in (GRADIENT, LOCK) else ANY), found
        return ALL, [_End(task, wait.kind, f"waits for {wait.text}")]

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
        return list(others) or [_End(task, RUNS_NOTHING, "runs no step")]

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
            for end, path in paths_to_ends(self._graph, step_id).items():
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
