"""Deadlocks in a wait-for graph, where a node waits for all of its successors or for any of them.

A step waits for all that its parts wait for. A dequeue waits for any step that may enqueue. So a cycle alone is no
deadlock: another step may end one of its waits. A set of nodes is deadlocked if none of them can end however the others
go on: each has a successor in the set, and those that wait for any successor have all of theirs in it.
"""

from __future__ import annotations

import collections
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import TypeVar

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


def cycles(graph: Graph[N], among: Collection[N], limit: int = 10) -> list[list[N]]:
    """Cycles among these nodes, each as short as it gets from its first node; no node is in two of them.

    Args:
      among: in the order in which cycles are looked for.
      limit: how many are enough.
    """
    found: list[list[N]] = []
    left = dict.fromkeys(among)
    for start in list(left):
        if len(found) == limit:
            break
        if start in left:
            cycle = _shortest(graph, start, left)
            for node in cycle:
                del left[node]
            if cycle:
                found.append(cycle)
    return found


def _shortest(graph: Graph[N], start: N, among: Collection[N]) -> list[N]:
    """The shortest cycle through a node; [] if there is none."""
    before: dict[N, N] = {}
    queue = collections.deque([start])
    while queue:
        node = queue.popleft()
        for successor in graph[node][1]:
            if successor == start:
                path = [node]
                while path[-1] != start:
                    path.append(before[path[-1]])
                return path[::-1]
            if successor in among and successor not in before:
                before[successor] = node
                queue.append(successor)
    return []


def paths_to_ends(graph: Graph[N], start: N) -> dict[N, list[N]]:
    """Each node without successors that can be reached -> a shortest path to it, the nearest first."""
    before: dict[N, N] = {}
    seen = {start}
    queue = collections.deque([start])
    found: dict[N, list[N]] = {}
    while queue:
        node = queue.popleft()
        successors = graph[node][1] if node in graph else ()
        if not successors:
            path = [node]
            while path[-1] != start:
                path.append(before[path[-1]])
            found[node] = path[::-1]
        for successor in successors:
            if successor not in seen:
                seen.add(successor)
                before[successor] = node
                queue.append(successor)
    return found
