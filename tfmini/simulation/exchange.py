"""Collectives in virtual time: the bytes that their members send, and when the last one has arrived.

Between machines the bytes go through the NICs, beside all other messages, and are those that the inspector lists
(`collectives.costs.flows`). What one member sends to another in the steps of a ring is taken as one piece. So the time
of a ring is that of its slowest link, and the latencies of all its steps; a step that waits for one slow message does
not delay the bytes of the next one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from tfmini.collectives.costs import flows, serial_steps, shared_all_reduce_cost
from tfmini.inspection.clusters import task_order
from tfmini.simulation.links import Nics
from tfmini.simulation.prediction import Event
from tfmini.simulation.waits import Member


def exchange(members: Sequence[Member], cause: Event, nics: Nics) -> None:
    """Runs a collective whose members have all come, and answers them when it ends.

    Members on one machine share memory. Otherwise the group is a ring in the order of its tasks. The event of the
    collective is the cause of what follows; it names the link that was the last to carry its bytes.
    """
    ordered = sorted(members, key=lambda member: task_order(member.task))
    wait, cluster = ordered[0].wait, nics.cluster
    event = Event(wait.collective, ordered[0].task, nics.clock.now(), cause)
    if len({cluster.hosts[member.task] for member in ordered}) > 1:
        _Exchange(ordered, event, nics).begin()
        return
    link = cluster.local
    cpu_s = link.receive_s + shared_all_reduce_cost(wait.nbytes, wait.count).nbytes * link.reduce_s_per_byte
    nics.clock.call_later(link.latency_s, _answer, ordered, event, nics, {member.task: cpu_s for member in ordered})


def _answer(members: Sequence[Member], event: Event, nics: Nics, cpu: Mapping[str, float]) -> None:
    event.end = nics.clock.now()
    for member in members:
        member.answer(event, cpu[member.task])


class _Exchange:
    """The messages of one collective between machines."""

    def __init__(self, members: Sequence[Member], event: Event, nics: Nics) -> None:
        self._members, self._event, self._nics = members, event, nics
        self._cpu: dict[str, float] = dict.fromkeys((member.task for member in members), 0.0)
        self._latency_s = 0.0
        self._left = 0

    def begin(self) -> None:
        """Sends all bytes."""
        wait, tasks, nics = self._members[0].wait, [member.task for member in self._members], self._nics
        root = next((i for i, member in enumerate(self._members) if member.wait.is_root), 0)
        for flow in flows(wait.collective, wait.nbytes, len(tasks), root):
            source, target, nbytes = tasks[flow.source], tasks[flow.target], flow.nbytes or 0
            link = nics.cluster.between(source, target)
            self._cpu[source] += flow.messages * link.send_s + nbytes * link.copy_s_per_byte
            self._cpu[target] += flow.messages * link.receive_s + nbytes * link.copy_s_per_byte
            self._latency_s = max(self._latency_s, link.latency_s)
            self._left += 1
            nics.send(source, target, nbytes, partial(self._arrived, f"{source} -> {target}"), flow.messages)

    def _arrived(self, link: str) -> None:
        self._left -= 1
        if self._left == 0:
            self._event.task = link
            wait = self._members[0].wait
            steps = serial_steps(wait.collective, wait.nbytes, len(self._members)) - 1
            self._nics.clock.call_later(
                steps * self._latency_s, _answer, self._members, self._event, self._nics, self._cpu
            )
