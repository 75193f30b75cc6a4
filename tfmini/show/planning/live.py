"""`tfmini place --live`: which variables of a running cluster should move, by what its ps tasks do now.

What a ps does as a whole is measured: the seconds of its CPU, the bytes on its connections. A traced step of each task
that trains says which variables they are for; what is for none, such as a queue, stays where it is, with its part of
the bytes and of the time that goes with bytes.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tfmini.devices import parse, task_of_device
from tfmini.errors import NotFoundError, OpError
from tfmini.graph.op_types import VARIABLE_OPS
from tfmini.progress import work
from tfmini.runtime.client.variable_mover import VariableMover, VariableUnit
from tfmini.runtime.snapshot import SILENT, ClusterSnapshot, TaskSnapshot
from tfmini.show.inspection.trace import OP, WIRE, Span, StepTrace
from tfmini.show.planning.models import Arrangement, Item, Problem
from tfmini.show.planning.search import by_load, neighbours
from tfmini.show.status.gather import Gatherer

_ANSWER_S = 4.0
_TRACE_S = 5.0
_MOST_TRACED = 8  # tasks
_MESSAGE_COST = 64_000  # bytes, which cost a ps about as much time as a message by itself
_MOST_UNITS = 40  # those with the largest loads may move: the search compares pairs
_SHARP = 8  # the cost of an arrangement is nearly that of its busiest ps; that of the others breaks ties
WORTH = 0.05
"""A smaller gain is within what loads change by themselves."""
_MOST_STATES = 200  # that the search for an order of moves looks at: others are as many as there are sets of moves
_PRICE = 0.05  # of moving everything, as a share of the cost: of two moves that gain the same, the smaller one


@dataclass(frozen=True)
class PsLoad:
    """What keeps a ps busy, per second: seconds of CPU, and bytes in both directions."""

    busy: float = 0.0
    sent: float = 0.0
    received: float = 0.0

    def __add__(self, other: PsLoad) -> PsLoad:
        return PsLoad(self.busy + other.busy, self.sent + other.sent, self.received + other.received)

    def __sub__(self, other: PsLoad) -> PsLoad:
        left = (self.busy - other.busy, self.sent - other.sent, self.received - other.received)
        return PsLoad(*(max(0.0, each) for each in left))

    def seconds(self, bytes_per_s: float) -> float:
        """Of a second, how long the busiest part is at it: the CPU, or a direction of a link of that rate."""
        return max(self.busy, self.sent / bytes_per_s, self.received / bytes_per_s)


@dataclass
class VariableUse:
    """What steps do with a variable on its ps: seconds of ops, bytes, and messages."""

    op_s: float = 0.0
    sent: float = 0.0
    received: float = 0.0
    messages: float = 0.0

    def add(self, other: VariableUse, times: float = 1.0) -> None:
        """Adds another use, so many times."""
        self.op_s += times * other.op_s
        self.sent += times * other.sent
        self.received += times * other.received
        self.messages += times * other.messages

    @property
    def weight(self) -> float:
        """Its share of the time that messages take, in bytes."""
        return self.sent + self.received + _MESSAGE_COST * self.messages


@dataclass(frozen=True)
class LiveUnit:
    """Variables that move together. ``task``: the number of their ps, in `LiveCluster.tasks`."""

    unit: VariableUnit
    task: int
    load: PsLoad

    @property
    def name(self) -> str:
        """The first of them: the others are called after it."""
        return min((name for _, name in self.unit.keys), key=lambda name: (len(name), name))


@dataclass(frozen=True)
class LiveCluster:
    """What the ps of a cluster hold and do.

    Attributes:
      tasks: full names.
      loads, held: of each task: what it does, and the bytes of its variables.
      units: what may move.
      steps_s: training steps per second, of all tasks.
      window_s: for how long it was measured.
      note: why nothing is known of single variables; "" if something is.
    """

    tasks: tuple[str, ...]
    loads: tuple[PsLoad, ...]
    held: tuple[int, ...]
    units: tuple[LiveUnit, ...]
    steps_s: float = 0.0
    window_s: float = 0.0
    note: str = ""

    @property
    def is_idle(self) -> bool:
        """Whether nothing trains, so that only bytes count."""
        return not self.steps_s

    def with_another(self) -> LiveCluster:
        """The same with one more ps, which holds nothing."""
        number = max((parse(task).task or 0 for task in self.tasks), default=-1) + 1
        more = parse(self.tasks[0] if self.tasks else "/job:ps/replica:0/task:0")._replace(task=number).task_name
        return replace(self, tasks=(*self.tasks, more), loads=(*self.loads, PsLoad()), held=(*self.held, 0))


@dataclass(frozen=True)
class LiveMove:
    """A move, and what the busiest ps is expected to do after it and those before it.

    Attributes:
      target: full name of the task.
      loads, held: of each task, after the move.
    """

    unit: LiveUnit
    target: str
    loads: tuple[PsLoad, ...]
    held: tuple[int, ...]


# ---- What is measured ----------------------------------------------------------------------------------------------


def measure(gatherer: Gatherer, mover: VariableMover, seconds: float, job: str = "ps") -> LiveCluster:
    """Looks at a cluster for some seconds, and traces one step of each task that trains.

    Raises:
      OpError: a ps does not answer, or there is none.
    """
    first = gatherer.gather(timeout_s=_ANSWER_S)
    with work(f"measuring for {seconds:g} s"):
        time.sleep(seconds)
    last = gatherer.gather(timeout_s=_ANSWER_S)
    mover.learn({task.task: task.address for task in last.tasks})
    names = [t.task for t in last.tasks if parse(t.task).job == job and t.state != SILENT]
    if not names:
        raise NotFoundError.of(f"No task of the job {job} of the cluster at {last.target} answers.")
    held = {task: there for task, there in mover.variables(names).items() if there.forwarding.rest is None}
    gains = {task.task: _gained(first, task) for task in last.tasks}
    steps = {task: steps_s for task, (_, steps_s) in gains.items() if steps_s}
    uses, note = _traced(gatherer, steps, held)
    loads, units = [], list[LiveUnit]()
    for number, (task, there) in enumerate(held.items()):
        loads.append(gains[task][0])
        sizes = {name: size for (_, name), size in there.sizes.items()}
        shares = shared(loads[-1], uses.get(task, {}) if not note else _by_bytes(sizes))
        for unit in there.units():
            load = sum((shares[name] for _, name in unit.keys if name in shares), PsLoad())
            units.append(LiveUnit(unit, number, load))
    bytes_held = tuple(sum(there.sizes.values()) for there in held.values())
    window_s = last.taken_s - first.taken_s
    return LiveCluster(tuple(held), tuple(loads), bytes_held, tuple(units), sum(steps.values()), window_s, note)


def _gained(first: ClusterSnapshot, now: TaskSnapshot) -> tuple[PsLoad, float]:
    """What a task and its steps have done between two looks, per second; nothing, if it was not the same process."""
    before = first.task(now.task)
    if before is None or before.incarnation != now.incarnation or now.taken_s <= before.taken_s:
        return PsLoad(), 0.0
    window_s = now.taken_s - before.taken_s
    sent, received = (
        sum(getattr(link, name) for link in now.links) - sum(getattr(link, name) for link in before.links)
        for name in ("sent_bytes", "received_bytes")
    )
    load = PsLoad((now.cpu_s - before.cpu_s) / window_s, max(0.0, sent / window_s), max(0.0, received / window_s))
    return load, (now.steps - before.steps) / window_s


def _traced(
    gatherer: Gatherer, steps: Mapping[str, float], held: Mapping[str, object]
) -> tuple[dict[str, dict[str, VariableUse]], str]:
    """What the steps of each second do with each variable of each ps; and why nothing is known."""
    from tfmini import protos

    traces, why = dict[str, StepTrace](), "no training step ran"
    for task in sorted(steps, key=lambda task: -steps[task])[:_MOST_TRACED]:
        try:
            traces[task] = StepTrace.of(protos.StepStats.FromString(gatherer.trace(task, _TRACE_S)))
        except (OpError, ValueError) as error:
            why = f"no training step could be traced: {getattr(error, 'message', error)}"
    times = sum(steps.values()) / max(sum(steps[task] for task in traces), 1e-9)  # for those that were not traced
    found: dict[str, dict[str, VariableUse]] = {ps: {} for ps in held}
    for task, trace in traces.items():
        for ps, there in found.items():
            for name, use in used_in(trace, ps).items():
                there.setdefault(name, VariableUse()).add(use, steps[task] * times)
    return found, "" if traces else why


def used_in(trace: StepTrace, task: str) -> dict[str, VariableUse]:
    """What a traced step does on a ps with each of its variables, by name; with the rest, by ""."""
    spans = [span for span in trace.spans if span.task == task and span.kind == OP]
    owners = _owners(spans)
    found: dict[str, VariableUse] = {}
    for span in spans:
        found.setdefault(owners.get(span.name, ""), VariableUse()).op_s += span.duration / 1e6 if span.computes else 0.0
    takers = {source: owners.get(span.name, "") for span in reversed(spans) for source in _inputs(span)}
    for span in trace.of_kind(WIRE):
        if span.task == task:
            found.setdefault(takers.get(span.name, ""), VariableUse()).add(VariableUse(0.0, 0.0, span.bytes, 1.0))
        elif task_of_device(span.peer) == task:
            found.setdefault(owners.get(span.name, ""), VariableUse()).add(VariableUse(0.0, span.bytes, 0.0, 1.0))
    return found


def _owners(spans: Sequence[Span]) -> dict[str, str]:
    """Op of a task -> the variable that it reads, or whose update needs it."""
    owners = {span.name: span.variable or span.name for span in spans if span.op in VARIABLE_OPS}
    users: dict[str, list[str]] = {}
    for span in spans:
        for source in _inputs(span):
            users.setdefault(source, []).append(span.name)
    inputs = {span.name: list(_inputs(span)) for span in spans}
    for near in (inputs, users):
        has_changed = True
        while has_changed:
            has_changed = False
            for name in inputs:
                owner = next((owners[each] for each in near.get(name, ()) if each in owners), "")
                if owner and name not in owners:
                    owners[name], has_changed = owner, True
    return owners


def _inputs(span: Span) -> Iterator[str]:
    return (each.partition(":")[0] for each in span.inputs if not each.startswith("^"))


def _by_bytes(sizes: Mapping[str, int]) -> dict[str, VariableUse]:
    """As if each step sent and received all variables."""
    return {name: VariableUse(0.0, size, size) for name, size in sizes.items()}


def shared(load: PsLoad, uses: Mapping[str, VariableUse]) -> dict[str, PsLoad]:
    """Divides the measured load of a ps among its variables.

    The time of ops is theirs; what is left of the CPU's goes with bytes and messages. Bytes that no traced step sends
    are of others, such as queue runners, and so is their part of that time.

    Args:
      uses: what the steps of a second do with each variable, by name.
    """
    ops, weight = sum(use.op_s for use in uses.values()), sum(use.weight for use in uses.values())
    sent, received = sum(use.sent for use in uses.values()), sum(use.received for use in uses.values())
    scale = min(1.0, load.busy / ops) if ops else 0.0
    explained = min(1.0, (sent + received) / max(load.sent + load.received, 1.0))
    left = explained * (load.busy - scale * ops) if weight else 0.0
    return {
        name: PsLoad(
            scale * use.op_s + left * use.weight / max(weight, 1.0),
            use.sent * min(1.0, load.sent / max(sent, 1.0)),
            use.received * min(1.0, load.received / max(received, 1.0)),
        )
        for name, use in uses.items()
    }


# ---- What should move ----------------------------------------------------------------------------------------------


class LivePlanner:
    """Looks for moves that relieve the busiest ps of a cluster; if they do nothing, the fullest.

    Args:
      limits: the bytes that each ps may hold.
      bytes_per_s: of a direction of the link of a ps; infinite for tasks of one machine.

    Attributes:
      cluster: as given.
      left_out: what `moves` would move as well, if a ps had room for it meanwhile.
    """

    def __init__(self, cluster: LiveCluster, limits: Sequence[float], bytes_per_s: float = math.inf) -> None:
        self.cluster, self._rate = cluster, bytes_per_s
        units = sorted(cluster.units, key=lambda unit: (-unit.load.seconds(bytes_per_s), -unit.unit.size, unit.name))
        self._units = units[:_MOST_UNITS]
        self._now = Arrangement(tuple((unit.task,) for unit in self._units))
        self._loads, self._held = list(cluster.loads), list(cluster.held)  # of what stays
        for unit in self._units:
            self._loads[unit.task] -= unit.load
            self._held[unit.task] -= unit.unit.size
        self.left_out: list[LiveUnit] = []
        items = [Item(unit.name, unit.unit.size, unit.load.seconds(bytes_per_s)) for unit in self._units]
        room = tuple(max(0.0, limit - held) for limit, held in zip(limits, self._held))
        self._problem = Problem(tuple(items), room, alike=False)

    def moves(self) -> list[LiveMove]:
        """What should move, the most useful first; each move leaves every target within its limit.

        Raises:
          NoRoom: the variables do not fit within the limits.
        """
        if not self._units or len(self._loads) < 2:
            return []
        goal = self._goal()
        way = self._way(self._now, goal)
        self.left_out = [self._units[index] for index in _changed(way[-1], goal)]
        return [
            LiveMove(self._units[index], self.cluster.tasks[after.tasks[index][0]], *self._after(after))
            for before, after in itertools.pairwise(way)
            for index in _changed(before, after)
        ]

    def _goal(self) -> Arrangement:
        """The best arrangement to which there is a way; if a better one has none, that, so that it can be told."""
        best = self._now if self._problem.fits(self._now) else by_load(self._problem, cut=False)
        while True:
            near = sorted((self._cost(each), each.tasks) for each in neighbours(self._problem, best))
            better = [Arrangement(tasks) for cost, tasks in near if cost < self._cost(best) * (1 - WORTH)]
            step = next((each for each in better if self._way(best, each)[-1] == each), None)
            if step is None:
                return better[0] if better else best
            best = step

    def _way(self, start: Arrangement, goal: Arrangement) -> tuple[Arrangement, ...]:
        """States in which one item after another moves to where room is, up to the goal, or the best that was found."""
        best: tuple[Arrangement, ...] = (start,)
        ways, seen = [best], set[Arrangement]()
        while ways and len(seen) < _MOST_STATES:
            way = ways.pop()
            here = way[-1]
            if here == goal:
                return way
            if here not in seen:
                seen.add(here)
                best = min(best, way, key=lambda each: self._rank(each[-1]))
                near = [here.with_item(index, goal.tasks[index]) for index in _changed(here, goal)]
                ways += [(*way, each) for each in sorted(near, key=self._cost) if self._has_room(here, each)][::-1]
        return best

    def _has_room(self, before: Arrangement, after: Arrangement) -> bool:
        """Whether no task gets more than its limit; one that has too much already may still give some away."""
        both = zip(self._problem.memory(before), self._problem.memory(after), self._problem.limits)
        return all(now <= was or now <= limit for was, now, limit in both)

    def _rank(self, arrangement: Arrangement) -> tuple[float, float]:
        """What is above the limits, then the cost."""
        both = zip(self._problem.memory(arrangement), self._problem.limits)
        return sum(max(0.0, held - limit) for held, limit in both), self._cost(arrangement)

    def _after(self, arrangement: Arrangement) -> tuple[tuple[PsLoad, ...], tuple[int, ...]]:
        """What each task would do and hold."""
        loads, held = self._loads[:], self._held[:]
        for unit, (task,) in zip(self._units, arrangement.tasks):
            loads[task] += unit.load
            held[task] += unit.unit.size
        return tuple(loads), tuple(held)

    def worst(self, loads: Sequence[PsLoad], held: Sequence[int]) -> float:
        """Of a second, how long the busiest ps is busy; of idle ones, the bytes of the fullest."""
        return max(self._sizes(loads, held), default=0.0)

    def _sizes(self, loads: Sequence[PsLoad], held: Sequence[int]) -> list[float]:
        return [float(size) for size in held] if self.cluster.is_idle else [load.seconds(self._rate) for load in loads]

    def _cost(self, arrangement: Arrangement) -> float:
        loads, held = self._after(arrangement)
        sizes = self._sizes(loads, held)
        moved = sum(u.unit.size for u, tasks in zip(self._units, arrangement.tasks) if tasks != (u.task,))
        price = 1 + _PRICE * moved / max(sum(held), 1)
        norm: float = math.fsum(size**_SHARP for size in sizes) ** (1 / _SHARP)
        return price * norm


def _changed(one: Arrangement, other: Arrangement) -> list[int]:
    """The items that are elsewhere."""
    return [index for index, tasks in enumerate(one.tasks) if tasks != other.tasks[index]]
