"""Properties of the runtime in virtual time, for random graphs on random clusters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tfmini as tf
from tests.show.simulation.profiles import plain
from tfmini.devices import task_of_device
from tfmini.placement.task_graph import Route
from tfmini.runtime.compiler.levels import Segment
from tfmini.show.inspection.findings import Inspection
from tfmini.show.simulation.cores import Cores
from tfmini.show.simulation.modelled_kernels import KernelTimes
from tfmini.show.simulation.prediction import Event, Nics, Topology
from tfmini.show.simulation.predictor import StepModel, tasks_of
from tfmini.show.simulation.timed_host import TimedConnection

_STEPS = 3
_EPS = 1e-9


@dataclass
class Seen:
    """What happened in a run.

    Attributes:
      work: cores -> (CPU seconds, begin, end) of each piece.
      carried: direction of a NIC -> (begin, seconds) of each message.
      messages: (event, bytes, when it was handled).
    """

    work: dict[int, list[tuple[float, float, float]]] = field(default_factory=lambda: defaultdict(list))
    carried: dict[Any, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    messages: list[tuple[Event, int, float]] = field(default_factory=list)
    segments: int = 0


@contextmanager
def watched() -> Iterator[Seen]:
    """Notes what cores and NICs do."""
    seen = Seen()
    run, reserve, receive, make_segment = Cores.run, Nics.reserve, TimedConnection.receive, KernelTimes.segment

    def noted_run(self: Cores, seconds: float, done: Any) -> None:
        begin = self._clock.now()

        def over() -> None:
            seen.work[id(self)].append((seconds, begin, self._clock.now()))
            done()

        run(self, seconds, over)

    def noted_reserve(self: Nics, usage: Any, direction: Any, nbytes: int, messages: int, seconds: float) -> float:
        wait_s = reserve(self, usage, direction, nbytes, messages, seconds)
        seen.carried[id(self), direction].append((self.clock.now() + wait_s, seconds))
        return wait_s

    def noted_receive(self: TimedConnection, parts: Any, nbytes: int, event: Event) -> None:
        seen.messages.append((event, nbytes, self.host.network.now()))
        receive(self, parts, nbytes, event)

    def noted_segment(self: KernelTimes, segment: Segment, units: Any) -> Segment:
        return watch(make_segment(self, segment, units))

    def watch(made: Any) -> Segment:
        run, with_text = made.run, type(made).with_text
        made.run = partial(noted_segment_run, made, run)
        made.with_text = lambda moved: watch(with_text(made, moved))  # its copies for other tasks
        return made  # type: ignore[no-any-return]

    def noted_segment_run(made: Segment, run: Any, step: Any, slots: list[Any]) -> None:
        program = step.run.program
        index = [each is made for each in program.segments].index(True)
        for key, (_, needs) in program.arrivals.items():
            assert needs != index or key < 0 or key not in step.run.missing  # the group is here
        seen.segments += 1
        run(step, slots)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Cores, "run", noted_run)
        patched.setattr(Nics, "reserve", noted_reserve)
        patched.setattr(TimedConnection, "receive", noted_receive)
        patched.setattr(KernelTimes, "segment", noted_segment)
        yield seen


@st.composite
def clusters(draw: Any) -> tuple[Inspection, Topology]:
    """A step of products and sums on random tasks, and machines for them."""
    ps, workers = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    tasks = [f"/job:ps/task:{i}" for i in range(ps)] + [f"/job:worker/task:{i}" for i in range(workers)]
    with tf.Graph().as_default() as graph:
        values: list[Any] = []
        for i in range(draw(st.integers(2, 12))):
            with tf.device(draw(st.sampled_from(tasks))):
                values.append(_value(draw, i, values))
        with tf.device("/job:worker/task:0"):
            fetched = tf.add_n([tf.reduce_sum(value) for value in values], name="fetched")
    found = tf.inspect(graph, ps=ps, workers=workers, fetches=fetched)
    profile = plain()
    names = tasks_of(found)
    if draw(st.booleans()):
        return found, Topology.on_own_machines(names, profile, draw(st.sampled_from(["1Gbit", "10Gbit"])))
    cores = draw(st.integers(1, 3))
    hosts = {name: draw(st.sampled_from("ab")) for name in names}
    machines = {host: replace(profile.machine, cores=cores) for host in "ab"}
    return found, Topology(hosts, machines, profile.local, profile.link("1Gbit"))


def _value(draw: Any, number: int, values: list[Any]) -> Any:
    """A tensor of 128 columns."""
    kind = draw(st.sampled_from(["variable", "product", "sum", "fed"])) if values else "variable"
    if kind == "variable":
        return 2.0 * tf.get_variable(f"v{number}", [128, 128], initializer=tf.zeros_initializer(), use_resource=False)
    if kind == "fed":
        return tf.placeholder(tf.float32, [128, 128], name=f"x{number}")
    one, other = draw(st.sampled_from(values)), draw(st.sampled_from(values))
    return tf.matmul(one, other) if kind == "product" else tf.add(one, other)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(clusters())
def test_nothing_is_used_early_and_nothing_carries_more_than_it_can(drawn: tuple[Inspection, Topology]) -> None:
    found, cluster = drawn
    with watched() as seen:
        predicted = StepModel(found, cluster, plain(), steps=_STEPS).predict()
    assert seen.segments
    for event, nbytes, handled in seen.messages:
        source, _, target = event.task.partition(" -> ")
        link = cluster.between(source, target)
        rate = link.bytes_per_s if cluster.hosts[source] != cluster.hosts[target] else float("inf")
        assert handled >= event.end >= event.start + link.latency_s + nbytes / rate - _EPS
        assert event.cause is None or event.cause.end <= event.start + _EPS
    for intervals in seen.carried.values():
        ordered = sorted(intervals)
        assert all(begin + s <= later + _EPS for (begin, s), (later, _) in zip(ordered, ordered[1:]))
    count = max(machine.cores for machine in cluster.machines.values())
    for pieces in seen.work.values():
        _check_capacity(pieces, count)
    assert {link: n for link, n in predicted.nbytes.items() if n} == _inspected(found)


def _check_capacity(pieces: list[tuple[float, float, float]], cores: int) -> None:
    """The pieces that lie within any time have no more CPU than the cores give in it, and none has more than one."""
    assert all(seconds <= end - begin + _EPS for seconds, begin, end in pieces)
    for _, since, _ in pieces[::7]:
        total = 0.0
        for seconds, begin, end in pieces:  # in the order of their ends
            total += seconds if begin >= since else 0.0
            assert begin < since or total <= cores * (end - since) + _EPS


def _inspected(found: Inspection) -> dict[tuple[str, str], int]:
    wanted: dict[tuple[str, str], int] = {}
    for transfer in found.transfers:
        if transfer.bytes and transfer.route in (Route.SENT, Route.FED, Route.FETCHED):
            link = task_of_device(transfer.src), task_of_device(transfer.dst)
            wanted[link] = wanted.get(link, 0) + _STEPS * transfer.bytes
    return wanted
