"""Tasks as processes of an MPI launcher (mpirun of Open MPI and MPICH, others with PMIx or PMI), or of Slurm.

The tasks do not talk by MPI. Its launcher only starts them, and passes the invitation from rank 0 to the others: by
mpi4py if it is installed, else by the launcher's PMI connection, else by a shared directory.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tfmini.launch.engine import EngineError, EngineOptions, Resources, TaskRequest
from tfmini.launch.hub import AgentEngine, EngineCommand
from tfmini.launch.invitation import AGENT_ENV, Invitation
from tfmini.launch.members import InvitationExchange, SchedulerMember, SharedDirectory
from tfmini.launch.supervision import TaskId

# Open MPI, MPICH and Intel MPI, MVAPICH, other PMIx launchers.
RANKS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "PMIX_RANK")
SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
_RUNS = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID", "SLURM_JOB_ID")


class MpiEngine(AgentEngine):
    """Starts the agents of all tasks by one mpirun."""

    def __init__(self, options: EngineOptions) -> None:
        super().__init__(options)
        self._command: EngineCommand | None = None

    def start_agents(self, requests: Sequence[TaskRequest], invitation: Invitation) -> None:
        """See `AgentEngine.start_agents`."""
        name = "mpirun"
        argv = [
            *(name, *mpirun_options(len(requests), self._options, is_open_mpi=_is_open_mpi(name))),
            *(sys.executable, "-m", "tfmini.launch.agent", "0", *RANKS),
        ]
        self._command = EngineCommand(argv, invitation, self._events, self._selector)

    def reap(self) -> None:
        """Reports that mpirun has ended before all tasks had a place."""
        if self._command is not None and self._command.has_ended() and not self.is_complete:
            self.no_agent(self._command.complaint())

    def end_agents(self) -> None:
        """Returns when mpirun has ended."""
        if self._command is not None:
            self._command.close()


def mpirun_options(count: int, options: EngineOptions, is_open_mpi: bool) -> list[str]:
    """The options of mpirun. (It knows no resources of single tasks: its host file says how many run where.)"""
    found = ["-np", str(count)]
    if is_open_mpi:
        found += ["-x", AGENT_ENV]  # MPICH hands the whole environment on
        if options.pack is not None:
            found += ["--map-by", "slot" if options.pack else "node"]
    return [*found, *options.arguments]


def _is_open_mpi(name: str) -> bool:
    try:
        said = subprocess.run([name, "--version"], capture_output=True, text=True, timeout=60, check=False).stdout
    except OSError as error:
        raise EngineError(f"Cannot run {name}: {error.strerror}. Is an MPI installed, and in PATH?") from None
    return "Open MPI" in said or "Open RTE" in said


# ---------------------------------------------------------------- processes that mpirun has started


def member() -> SchedulerMember:
    """This process as one of mpirun: ``mpirun -np 8 tfmini run --cluster mpi``.

    Raises:
      EngineError: it is none.
    """
    return member_of_launcher(os.environ)


def member_of_launcher(env: Mapping[str, str]) -> SchedulerMember:
    """The process of an MPI launcher, by its environment variables."""
    rank = next((env[name] for name in RANKS if env.get(name)), None)
    size = next((env[name] for name in SIZES if env.get(name)), None)
    if rank is None or size is None:
        missing = "/".join(RANKS if rank is None else SIZES)
        raise EngineError(f"No known MPI launcher has started this process (none of {missing} is set): use mpirun.")
    return SchedulerMember("mpirun", int(rank), int(size), lambda: exchange_of(env, int(size)))


def exchange_of(env: Mapping[str, str], size: int) -> InvitationExchange:
    """How rank 0 reaches the others under this launcher."""
    with contextlib.suppress(ImportError, RuntimeError):
        by_mpi = MpiBroadcast(importlib.import_module("mpi4py.MPI"))
        if by_mpi.size == size:  # else mpi4py belongs to another MPI than the launcher
            return by_mpi
    if env.get("PMI_FD", "").isdecimal():
        return PmiExchange(int(env["PMI_FD"]), int(env.get("PMI_RANK", "0")))
    return SharedDirectory("mpi-" + next((env[name] for name in _RUNS if env.get(name)), "0"))


class MpiBroadcast(InvitationExchange):
    """A broadcast by mpi4py. MPI is finalized after it.

    Args:
      mpi: the module ``mpi4py.MPI``, whose import has initialized MPI.
    """

    def __init__(self, mpi: Any) -> None:
        self._mpi = mpi
        self._word = ""
        self.size: int = mpi.COMM_WORLD.Get_size()

    def publish(self, word: str) -> None:
        """Sends the word to all ranks."""
        self._word = self._mpi.COMM_WORLD.bcast(word, root=0)
        self._mpi.Finalize()  # mpirun takes a process for crashed that ends without it

    def receive(self) -> str:
        """Waits for the word of rank 0. If rank 0 dies, mpirun ends this process."""
        if not self._word:
            self.publish("")
        return self._word

    def withdraw(self) -> None:
        """Nothing is left behind."""


class PmiExchange(InvitationExchange):
    """The key-value space of a launcher that speaks PMI 1, over the descriptor that this process has inherited.

    The protocol is one line of text per request and per answer, ``cmd=NAME key=value …``.
    """

    def __init__(self, fd: int, rank: int) -> None:
        self._file = os.fdopen(fd, "r+b", buffering=0)
        self._rank = rank
        self._word = ""

    def publish(self, word: str) -> None:
        """Puts the word into the space of the run."""
        self._meet(word)

    def receive(self) -> str:
        """Waits for the word of rank 0. If rank 0 dies, the launcher ends this process."""
        if not self._word:
            self._meet(None)
        return self._word

    def withdraw(self) -> None:
        """Nothing is left behind."""

    def _meet(self, word: str | None) -> None:
        self._ask("cmd=init pmi_version=1 pmi_subversion=1")
        space = self._ask("cmd=get_my_kvsname")["kvsname"]
        if word is not None:
            self._ask(f"cmd=put kvsname={space} key=tfmini value={word}")
        self._ask("cmd=barrier_in")
        self._word = word or self._ask(f"cmd=get kvsname={space} key=tfmini")["value"]
        self._ask("cmd=finalize")
        self._file.close()

    def _ask(self, request: str) -> dict[str, str]:
        self._file.write(request.encode() + b"\n")
        answer = self._file.readline().decode()
        found = dict(word.partition("=")[::2] for word in answer.split())
        if found.get("rc", "0") != "0" or not answer:
            asked = request.split()[0]
            raise EngineError(f"The MPI launcher does not answer {asked!r} as PMI 1 says: {answer.strip()!r}.")
        return found


# ---- Tasks in an allocation of Slurm: one job step per kind of resources, started by srun, or by the user ----------


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
                *(sys.executable, "-m", "tfmini.launch.agent", str(first), "SLURM_PROCID"),
            ]
            self._steps.append(EngineCommand(argv, invitation, self._events, self._selector))

    def start_agent(self, number: int, request: TaskRequest) -> None:
        """See `AgentEngine.start_agent`."""
        argv = [
            *("srun", *step_options(1, request.resources, self._options, shares=False), "--nodes=1", "--overlap"),
            *(sys.executable, "-m", "tfmini.launch.agent", str(number)),
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


def slurm_member() -> SchedulerMember:
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
