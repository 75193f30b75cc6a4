"""What tasks cost each other on one machine: the rules that both models of a run follow."""

from __future__ import annotations

from tfmini.simulation.profile import Machine

POOL = 2  # threads of a task for long segments, as of a server's default options
# A short segment uses little of what has left the caches: this is the most that it takes longer.
_WAITED_MOST, _CROWDED_MOST = 0.4, 0.8
_GOLDEN = 0.618034  # multiples of it, without their whole part, spread evenly


def coldness(seconds: float, machine: Machine, is_crowded: bool) -> float:
    """By which share a segment takes longer after its task has waited.

    Args:
      seconds: of the segment on a warm machine; above 0.
      is_crowded: whether the machine has more tasks than cores, so that others have used the caches meanwhile.
    """
    if is_crowded:
        return min(_CROWDED_MOST, machine.crowded_s / seconds)
    return min(_WAITED_MOST, machine.wake_s / seconds)


class Stalls:
    """The waits of tasks that wake up on crowded machines, spread evenly, so that tasks do not fall into step."""

    def __init__(self) -> None:
        self._spread = 0.0

    def next_s(self, machine: Machine) -> float:
        """Seconds from 0 to twice `Machine.stall_s`."""
        self._spread = (self._spread + _GOLDEN) % 1.0
        return 2.0 * self._spread * machine.stall_s
