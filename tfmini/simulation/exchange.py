"""Collectives in virtual time: the bytes that their members send, and when the last one has arrived.

Between machines the bytes go through the NICs, beside all other messages, and are those that the inspector lists
(`collectives.costs.flows`). What one member sends to another in the steps of a ring is taken as one piece. So the time
of a ring is that of its slowest link, and the latencies of all its steps; a step that waits for one slow message does
not delay the bytes of the next one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from tfmini.collectives.costs import flows, serial_steps, shared_all_reduce_cost
from tfmini.inspection.clusters import task_order
from tfmini.simulation.links import Nics
from tfmini.simulation.prediction import Event
from tfmini.simulation.waits import Member


def exchange(members: Sequence[Member], cause: Event, nics: Nics, now: float) -> None:
    """Runs a collective whose members have all come, and answers them: the cause of what follows is the collective.

    Members on one machine share memory. Otherwise the group is a ring in the order of its tasks.
    """
    ordered = sorted(members, key=lambda member: task_order(member.task))
    wait, cluster = ordered[0].wait, nics.cluster
    event = Event(wait.collective, ordered[0].task, now, cause)
    if len({cluster.hosts[member.task] for member in ordered}) == 1:
        link = cluster.local
        event.end = now + link.latency_s
        cpu_s = link.receive_s + shared_all_reduce_cost(wait.nbytes, wait.count).nbytes * link.copy_s_per_byte
        for member in ordered:
            member.answer(event, cpu_s)
        return
    cpu = _send_all(ordered, event, nics, now)
    for member in ordered:
        member.answer(event, cpu[member.task])


def _send_all(members: Sequence[Member], event: Event, nics: Nics, now: float) -> dict[str, float]:
    """Sends the bytes of all members. The event then ends with the last one, and names the link that carried it.

    Returns:
      The seconds of CPU of each task.
    """
    wait, tasks = members[0].wait, [member.task for member in members]
    cpu: dict[str, float] = defaultdict(float)
    latency_s = 0.0
    root = next((i for i, member in enumerate(members) if member.wait.is_root), 0)
    for flow in flows(wait.collective, wait.nbytes, len(tasks), root):
        source, target, nbytes = tasks[flow.source], tasks[flow.target], flow.nbytes or 0
        link = nics.cluster.between(source, target)
        cpu[source] += flow.messages * link.send_s + nbytes * link.copy_s_per_byte
        cpu[target] += flow.messages * link.receive_s + nbytes * link.copy_s_per_byte
        latency_s = max(latency_s, link.latency_s)
        end = nics.arrival(source, target, nbytes, now, flow.messages)
        if end > event.end:
            event.end, event.task = end, f"{source} -> {target}"
    event.end += max(0, serial_steps(wait.collective, wait.nbytes, len(tasks)) - 1) * latency_s
    return cpu
