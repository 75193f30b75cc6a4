"""Tasks in an allocation of Slurm: one job step per kind of resources, started by srun, or by the user."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator, Mapping, Sequence

from tfmini.engines.command import EngineCommand
from tfmini.engines.hub import AgentEngine
from tfmini.engines.invitation import Invitation
from tfmini.engines.members import SchedulerMember, SharedDirectory
from tfmini.tools.engine import EngineError, EngineOptions, Resources, TaskRequest
from tfmini.tools.supervision import TaskId


class SlurmEngine(AgentEngine):
    """Starts the agents of the tasks as job steps of the allocation that it runs in.

    A task that is added is a step of its own, and shares the allocation's cores with the others.
    """

    adds_tasks = True

    def __init__(self, options: EngineOptions) -> None:
        super().__init__(options)
        self._steps: list[EngineCommand] = []
        self._added: dict[TaskId, EngineCommand] = {}

    def start_agents(self, requests: Sequence[TaskRequest], invitation: Invitation) -> None:
        """See `AgentEngine.start_agents`."""
        if not os.environ.get("SLURM_JOB_ID"):
            raise EngineError(
                "--on slurm needs an allocation, and this shell has none. Run it by salloc or in a batch script, which "
                "--sbatch FILE writes."
            )
        steps = list(steps_of(requests))
        for first, count, resources in steps:
            argv = [
                *("srun", *step_options(count, resources, self._options, shares=len(steps) > 1)),
                *(sys.executable, "-m", "tfmini.engines.agent", str(first), "SLURM_PROCID"),
            ]
            self._steps.append(EngineCommand(argv, invitation, self._events, self._selector))

    def start_agent(self, number: int, request: TaskRequest) -> None:
        """See `AgentEngine.start_agent`."""
        argv = [
            *("srun", *step_options(1, request.resources, self._options, shares=False), "--nodes=1", "--overlap"),
            *(sys.executable, "-m", "tfmini.engines.agent", str(number)),
        ]
        step = EngineCommand(argv, self._invitation, self._events, self._selector)
        self._added[request.task] = step
        self._steps.append(step)

    def reap(self) -> None:
        """Reports that a step has ended before all its tasks had a place."""
        for task, added in list(self._added.items()):
            if added.has_ended():
                del self._added[task]
                self.no_agent(added.complaint(), [task])
        for step in self._steps:
            if step.has_ended() and not self.is_complete:
                self.no_agent(step.complaint())

    def end_agents(self) -> None:
        """Returns when the steps have ended."""
        for step in self._steps:
            step.close()


def steps_of(requests: Sequence[TaskRequest]) -> Iterator[tuple[int, int, Resources]]:
    """(number of the first task, number of tasks, resources) of each step: neighbours with the same resources."""
    first = 0
    for resources, group in itertools.groupby(requests, key=lambda request: request.resources):
        count = len(list(group))
        yield first, count, resources
        first += count


def step_options(count: int, resources: Resources, options: EngineOptions, shares: bool) -> list[str]:
    """The options of srun for a step.

    Args:
      shares: whether other steps run beside it, so that it must not take the whole allocation.
    """
    found = [f"--ntasks={count}", "--job-name=tfmini", "--input=none", "--kill-on-bad-exit=0", "--mpi=none"]
    if resources.cpus is not None:
        found.append(f"--cpus-per-task={resources.cpus}")
    if resources.memory_mb is not None:
        found.append(f"--mem-per-cpu={-(-resources.memory_mb // (resources.cpus or 1))}M")
    if resources.gpus:
        found.append(f"--gpus-per-task={resources.gpus}")
    if options.restarts:
        found.append("--no-kill")
    if options.pack is not None:
        found.append(f"--distribution={'pack' if options.pack else 'cyclic'}")
    if shares:
        found.append("--exact")
    return [*found, *options.arguments]


def member() -> SchedulerMember:
    """This process as a task of a job step: ``srun tfmini run --cluster slurm``.

    Raises:
      EngineError: it is none.
    """
    return member_of_step(os.environ)


def member_of_step(env: Mapping[str, str]) -> SchedulerMember:
    """The task of a job step, by the environment variables of srun."""
    wanted = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_JOB_ID", "SLURM_STEP_ID")
    missing = [name for name in wanted if not env.get(name)]
    if missing:
        raise EngineError(f"This process is no task of a Slurm job step ({missing[0]} is not set): start it by srun.")
    rank, size, job, step = (env[name] for name in wanted)
    run = f"slurm-{job}.{step}.{env.get('SLURM_RESTART_COUNT', '0')}"
    return SchedulerMember("srun", int(rank), int(size), lambda: SharedDirectory(run))
