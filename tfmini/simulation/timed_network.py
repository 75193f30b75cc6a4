"""The tasks of a cluster in virtual time, with the machines and links of a profile.

Calls are made in order of time by one thread, which hands over to the threads of clients and of pools one at a time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from tfmini.rpc.waiter import Waiter
from tfmini.simulation.cores import Cores, Stalls
from tfmini.simulation.links import Nics, Topology
from tfmini.simulation.profile import Machine
from tfmini.simulation.simulated_process import Killed, SimulatedHost
from tfmini.simulation.timed_host import ThreadWait, TimedHost
from tfmini.simulation.virtual_network import VirtualNetwork


class TimedNetwork(VirtualNetwork):
    """See the module.

    Args:
      cluster: where the tasks are; hosts have the tasks' full names.
      model_for: the kernel model of a machine.
      seed: of the random numbers of processes.

    Attributes:
      labels: group -> a tensor in it, for people. ``running``: the process whose code runs now, or None.
      stalls: the waits of tasks that wake up on crowded machines.
      work: how many messages of steps have been sent. ``under_way``: messages that have not arrived.
    """

    def __init__(self, cluster: Topology, model_for: Callable[[TimedNetwork, Machine], Any], seed: int = 0) -> None:
        super().__init__(seed, (0.0, 0.0))
        self.cluster, self.nics = cluster, Nics(cluster, self)
        self.labels: dict[int, str] = {}
        self.running: TimedHost | None = None
        self.work = self.under_way = 0
        self._model_for = model_for
        self._models: dict[int, Any] = {}  # by machine
        self._cores = {host: Cores(self, machine.cores, machine.overload) for host, machine in cluster.machines.items()}
        self._tasks = Counter(cluster.hosts.values())
        self.stalls = Stalls()

    def _new_host(self, name: str, life: int) -> TimedHost:
        place = self.cluster.hosts[name]
        machine = self.cluster.machines[place]
        return TimedHost(self, name, machine, self._cores[place], self._tasks[place] > machine.cores)

    def timed_host(self, name: str) -> TimedHost:
        """The process of a task."""
        found = self.host(name)
        assert isinstance(found, TimedHost)
        return found

    def hosts(self) -> list[TimedHost]:
        """All processes."""
        return [host for host in self._hosts.values() if isinstance(host, TimedHost)]

    def kernel_model(self, machine: Machine) -> Any:
        """Returns the model of the kernels of a machine."""
        if id(machine) not in self._models:
            self._models[id(machine)] = self._model_for(self, machine)
        return self._models[id(machine)]

    @property
    def is_idle(self) -> bool:
        """Whether no core computes and no message is under way."""
        return not self.under_way and not any(cores.is_busy for cores in self._cores.values())

    def run_while(self, goes_on: Callable[[], bool], seconds: float) -> None:
        """Makes calls in order of time, as long as that is so, and for so many virtual seconds at most."""
        end = self._time + seconds
        while goes_on() and (due := self.heap.pop_due(end)) is not None:
            self._make(due)

    # ---- threads ----------------------------------------------------------------------------

    def drive(self, waiter: Waiter, deadline: float | None = None, host: SimulatedHost | None = None) -> bool:
        """Makes calls until the waiter is done; called by a process, lets its thread stand still until then."""
        if not isinstance(host, TimedHost):
            return super().drive(waiter, deadline)
        if not host.alive:
            raise Killed
        if self.turn is self._main_turn:  # a handler, which cannot wait for its own thread
            return waiter.done
        wait, expired = ThreadWait(host, self.turn), Waiter()
        wait.prepare(waiter)
        wait.prepare(expired)
        timer = None if deadline is None else host.call_later(deadline - host.now(), expired.set)
        while not (waiter.done or expired.done):
            wait.is_over = False
            self.suspend()
            if not host.alive:
                raise Killed
        if timer is not None:
            timer.cancel()
        return waiter.done

    def suspend(self) -> None:
        """The calling thread of a process stands still until the simulation hands over to it again."""
        self.hand_over(self._main_turn)

    def end(self) -> None:
        """Ends all processes and their threads."""
        for host in self.hosts():
            host.alive = False
        for host in self.hosts():
            for thread in list(host.threads):
                self.hand_over(thread.turn)
