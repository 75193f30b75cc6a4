"""What a prediction says: step times, the use of tasks and links, and the critical path."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tfmini.simulation.links import Nics

_NEAR = 2000  # the steps for which staleness is counted


class Event:
    """Work of one task, or a message on its way.

    Attributes:
      label: the op that takes most of the time, or what is sent.
      task: full task name; of a message, ``source -> target``.
      start, end: virtual seconds.
      cause: what it waited for last, or None.
    """

    __slots__ = ("label", "task", "start", "end", "cause")

    def __init__(self, label: str, task: str, start: float, cause: Event | None) -> None:
        self.label, self.task, self.start, self.end, self.cause = label, task, start, start, cause


@dataclass(frozen=True)
class Prediction:
    """The prediction of a run.

    Attributes:
      step_s: the median seconds of a step, as a client sees it.
      steps_s: the seconds of each step that counts, of all workers, in the order of their ends.
      throughput: steps per second of all workers together.
      busy: task -> the share of the time in which it computed, of one core.
      links: host -> the share of the time in which its NIC (sent, received) was busy.
      staleness: how many updates of other workers ended during a step, on average.
      nbytes: (source, target) task -> payload bytes of the whole run. ``steps``: how many steps it had.
      critical: the critical path of the latest step, first event first.
    """

    step_s: float
    steps_s: Sequence[float]
    throughput: float
    busy: Mapping[str, float]
    links: Mapping[str, tuple[float, float]]
    nbytes: Mapping[tuple[str, str], int]
    steps: int
    critical: Sequence[Event] = field(default=())
    staleness: float = 0.0

    def bottleneck(self) -> tuple[str, float]:
        """What is busy for the largest share of the time (a task's CPU, or a direction of a host's NIC)."""
        shares = {f"the CPU of {task}": share for task, share in self.busy.items()}
        for host, (sent, received) in self.links.items():
            shares[f"what {host} sends"], shares[f"what {host} receives"] = sent, received
        name = max(shares, key=lambda key: shares[key])
        return name, shares[name]

    def quantile(self, share: float) -> float:
        """The seconds that this share of the steps did not exceed."""
        ordered = sorted(self.steps_s)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def path_to(event: Event | None, since: float = 0.0) -> list[Event]:
    """The chain of causes that ends with an event, first event first, from a time on."""
    path: list[Event] = []
    while event is not None and event.end > since:
        path.append(event)
        event = event.cause
    return path[::-1]


def prediction_of(
    ends: Sequence[tuple[int, float, float, Event]], clients: int, busy: Mapping[str, float], nics: Nics, seconds: float
) -> Prediction:
    """The prediction of a run.

    Args:
      ends: of each step, in the order of their ends: the number of its client, begin, end, and the last event.
      busy: task -> share of the time.
      seconds: of the whole run.
    """
    counted = ends[clients:-clients] or ends[clients:] or ends  # while all clients run
    steps_s = [end - began for _, began, end, _ in counted]
    last = ends[-1]
    others = [sum(began < each[2] <= end and each[0] != client for each in ends[-_NEAR:]) for client, began, end, _
              in counted[-_NEAR // 2 :]]  # fmt: skip
    return Prediction(
        step_s=statistics.median(steps_s), steps_s=steps_s, throughput=clients / statistics.mean(steps_s), busy=busy,
        links={
            host: (nics.sent[host].busy_s / seconds, nics.received[host].busy_s / seconds)
            for host in nics.cluster.machines
        },
        nbytes=dict(nics.carried), steps=len(ends), critical=path_to(last[3], last[1]),
        staleness=statistics.mean(others),
    )  # fmt: skip
