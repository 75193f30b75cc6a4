"""Programs that replicas of a worker share: their partitions differ in nothing but the worker's name.

A thousand workers with a graph of thousands of ops each would take minutes and gigabytes to place, cut and compile. So
only the first worker's plan is built. The others register it: in place of its nodes, a part has one node that names it.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import FunctionType
from typing import Any

from tfmini.graph.node import Node
from tfmini.placement.task_graph import TaskGraph
from tfmini.runtime.compiler.levels import Level, Segment
from tfmini.runtime.compiler.program import Program
from tfmini.runtime.master.plan import Part, Plan

_NAME, _PART, _CLIENT = "a part of the first worker's plan", "_part", "_client"
Namespace = dict[str, Any]


class SharedPrograms:
    """The plan of the first worker, and the programs of its parts.

    Args:
      first: the first worker's task.

    Attributes:
      plan: None until it is registered.
    """

    def __init__(self, first: str) -> None:
        self._first = first
        self.plan: Plan | None = None
        self._programs: dict[str, Program] = {}

    def keep(self, plan: Plan, programs: dict[str, Program]) -> None:
        """Keeps the plan and the programs of its parts, by task."""
        self.plan, self._programs = plan, programs

    def replica(self, client: str) -> Plan:
        """The plan of another worker, to be registered."""
        plan = self.plan
        assert plan is not None
        parts = []
        for part in plan.parts:
            named = Node(_NAME, "NoOp", attrs={_PART: part.task.encode(), _CLIENT: client.encode()})
            task = client if part.task == self._first else part.task
            parts.append(Part(task, TaskGraph({_NAME: named}), part.feed_indices, part.fetch_indices))
        return Plan(plan.feeds, plan.fetches, plan.partitions, parts, targets=plan.targets)

    def program(self, graph: TaskGraph) -> Program | None:
        """The program of a replica's part; None if the graph is one to compile."""
        named = graph.nodes.get(_NAME)
        if named is None:
            return None
        part, client = named.attrs[_PART].decode(), named.attrs[_CLIENT].decode()
        found = copy.copy(self._programs[part])
        found.sends = {group: client if task == self._first else task for group, task in found.sends.items()}
        return _moved(found) if part == self._first else found  # the others are where their first one is


def _moved(program: Program) -> Program:
    """The program for another task: its text, with resources of its own."""
    old, new = program.namespace, dict(program.namespace)
    for name, value in old.items():
        if isinstance(value, FunctionType):
            new[name] = _function(value, old, new)
    program.namespace = new
    program.segments = _segments(program, old, new)
    program.loops = {
        key: replace(loop, level=replace(loop.level, segments=_segments(loop.level, old, new)))
        for key, loop in program.loops.items()
    }
    program._lock = threading.Lock()
    return program


def _segments(level: Level, old: Namespace, new: Namespace) -> list[Segment]:
    return [segment.with_text(lambda f: _function(f, old, new)) for segment in level.segments]  # type: ignore[attr-defined]


def _function(function: Any, old: Namespace, new: Namespace) -> Any:
    """Generated functions with the names of another namespace; others as they are."""
    if getattr(function, "__globals__", None) is old:
        return FunctionType(function.__code__, new, function.__name__)
    blocks = _blocks(function)
    if blocks and all(getattr(each, "__globals__", None) is old for each in blocks):
        return _in_turn([_function(each, old, new) for each in blocks])
    return function


def _blocks(function: Any) -> list[Any]:
    """The blocks of the function of a long segment; nothing for other functions."""
    cells: Sequence[Any] = getattr(function, "__closure__", None) or ()
    contents = cells[0].cell_contents if len(cells) == 1 else None
    return contents if isinstance(contents, list) else []


def _in_turn(functions: list[Callable[..., None]]) -> Callable[..., None]:
    def run(step: Any, slots: list[Any]) -> None:
        for function in functions:
            function(step, slots)

    return run
