"""The options of `tfmini launch`, and what of them concerns the engine and each role.

`tfmini run --cluster` and `tfmini manifest` share some of them.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from tfmini.command_line import Decorator, OutputFile, former, valued
from tfmini.core_types import TensorLike
from tfmini.launch.engine import ENGINES, MEMBERS, EngineOptions, Resources, TaskRequest
from tfmini.launch.supervision import EVALUATOR_JOB, SERVICE_JOBS, WORKER_JOB, TaskId
from tfmini.program import words
from tfmini.show.simulation.profile import LAPTOP, OWN, ChosenProfile

_MIB = {"": 1, "M": 1, "G": 1024, "T": 1024 * 1024}


class Memory(click.ParamType):
    """An amount of memory as MiB: ``500M``, ``4G``; a number alone counts MiB."""

    name = "memory"

    def convert(self, value: TensorLike, param: click.Parameter | None, ctx: click.Context | None) -> int:
        text = str(value).upper().removesuffix("IB").removesuffix("B")
        number, unit = (text[:-1], text[-1:]) if text[-1:].isalpha() else (text, "")
        if not number.isdecimal() or unit not in _MIB or not int(number):
            self.fail(f"{value!r} is no amount of memory; write 500M or 4G.", param, ctx)
        return int(number) * _MIB[unit]


class Words(click.ParamType):
    """Arguments for another command, quoted as for a shell."""

    name = "words"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        try:
            return tuple(shlex.split(value)) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(f"{value!r} has {str(error).lower()}; quote it as for a shell.", param, ctx)


chief_option = click.option("--chief", is_flag=True, help="Add a task chief/0 beside the workers.")
_ROLES = (
    valued("--ps", click.IntRange(0), "N", "Number of ps tasks.", default=1),
    valued("--workers", click.IntRange(0), "N", "Number of worker tasks.", default=1),
    chief_option,
)
_MORE_ROLES = (
    click.option("--master", is_flag=True, help="Add a task master/0, which is the chief's name in older scripts."),
    click.option("--evaluator", is_flag=True, help="Add a task evaluator/0, which evaluates the checkpoints."),
)
_RESOURCES = (
    valued("--ps-cpus", click.IntRange(1), "N", "Cores of each ps task."),
    valued("--worker-cpus", click.IntRange(1), "N", "Cores of each worker, and of the chief."),
    valued("--worker-memory", Memory(), "SIZE", "Memory of each worker, such as 4G."),
    click.option("--worker-gpus", type=click.IntRange(0), default=0, metavar="N", help="Accelerators of each worker."),
    click.option("--pack/--spread", default=None, help="Use few hosts, or many.  [default: as the engine likes]"),
)
_SECONDS = click.FloatRange(0, min_open=True)
_RUN = (
    valued("--coordinator-timeout", _SECONDS, "S",
           "Stop all tasks and fail (exit code 124) if the run has not ended after S seconds."),
    valued("--grace", click.FloatRange(0), "S",
           "Seconds between the request to end (SIGTERM) and SIGKILL.  [default: 10; by another engine: 25]"),
    click.option("--keep-going", is_flag=True, help="When a worker fails, let the other workers finish first."),
    valued("--cpus-per-task", click.IntRange(1), "N",
           "Threads of a task's numeric libraries.  [default: the task's cores]"),
    click.option("--no-color", is_flag=True, help="Print the names of the tasks without colours."),
    click.option("--log-json", is_flag=True, help="Print each line of output as a JSON object."),
    click.option("--dashboard", is_flag=True, help="Serve a live page of the cluster while it runs."),
    valued("--dashboard-port", click.IntRange(1, 65535), "P", "Port of the page.  [default: a free port]"),
)  # fmt: skip
_START_WITHIN = valued(
    "--start-within", _SECONDS, "S", "Fail if the tasks have no places after S seconds.", default=300.0
)
_ENGINE = (
    valued("--on", click.Choice(sorted(ENGINES)), None, "Who starts the tasks.", default="local"),
    _START_WITHIN,
    valued("--restarts", click.IntRange(0), "N",
           "How often a task is started again that was killed, or lost with its host.", default=0),
    valued("--port-base", click.IntRange(1, 65535), "P",
           "With --on local: use the ports P, P+1, …  [default: free ports]"),
    valued("--ray-address", None, "ADDRESS", "With --on ray: the Ray cluster to use.  [default: auto]"),
    former("--address", "--ray-address", "ray_address"),
    valued("--engine-args", Words(), "ARGS", "With --on slurm or mpi: arguments for srun or mpirun."),
    valued("--sbatch", OutputFile(), "FILE", "With --on slurm: start nothing; write a batch script that does."),
    valued("--image", None, "IMAGE", "With --on kubernetes: an image with tfmini and SCRIPT."),
    valued("--namespace", None, "NAME", "With --on kubernetes.  [default: the current one]"),
    click.option("--predict", is_flag=True, help="Print the predicted step time beside the measured one at the end."),
    valued("--profile", click.Path(dir_okay=False), "FILE", "Costs for --predict: a file of `tfmini calibrate`, or"
           f" {LAPTOP}, which comes with tfmini.  [default: {OWN}, or without it {LAPTOP}]"),
)  # fmt: skip


def options(*groups: tuple[Decorator, ...]) -> Decorator:
    """A decorator that gives a command the options of these groups, in their order."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed([option for group in groups for option in group]):
            function = option(function)
        return function

    return decorate


_MEMBER = (
    click.option("--cluster", type=click.Choice(sorted(MEMBERS)), help="Who has started this process as a task."),
    _ROLES[0],
    valued("--workers", click.IntRange(0), "N", "Number of worker tasks.  [default: all other processes]"),
    chief_option,
)
_MANIFEST = (
    valued("--kind", click.Choice(["jobset", "tfjob"]), None, "JobSet, or TFJob of Kubeflow's training operator.",
           default="jobset"),
    click.option("--image", required=True, help="Image with tfmini and the script."),
    click.option("--name", help="Name of the job.  [default: from SCRIPT]"),
    click.option("--namespace", help="Namespace of all objects.  [default: the current one]"),
    valued("--secret", None, "NAME", "Secret with a file tfmini.key_secret.  [default: a new one]"),
    valued("--port", click.IntRange(1, 65535), None, "Port of every task.", default=2222),
    valued("--restarts", click.IntRange(0), None, "How often the job starts again after a failure.", default=3),
)  # fmt: skip
manifest_options = options(_ROLES, _MANIFEST, _RESOURCES)
member_options = options(_MEMBER, (_START_WITHIN,), _RUN)
launch_options = options(_ROLES, _MORE_ROLES, _ENGINE, _RESOURCES, _RUN)


def _check_profile(name: str | None) -> None:
    """Raises click.UsageError: a profile cannot be read. It is read now, and not after a long run."""
    try:
        ChosenProfile.of(name).read()
    except (OSError, ValueError) as error:
        raise click.UsageError(str(error)) from None


_WORKERS_PER_CORE = 64  # of a machine; more than that is a typing error that would stop the machine
_ONLY_FOR = {
    "port_base": (("local",), "; elsewhere TFMINI_PORTS names a range of ports"),
    "ray_address": (("ray",), ""),
    "engine_args": (("slurm", "mpi"), ""),
    "sbatch": (("slurm",), ""),
    "image": (("kubernetes",), ""),
    "namespace": (("kubernetes",), ""),
}
_NO_EFFECT = {
    "local": ("worker_memory", "worker_gpus", "pack"),
    "mpi": ("worker_memory", "worker_gpus"),
    "kubernetes": ("cpus_per_task", "keep_going"),
}


@dataclass(frozen=True)
class LaunchOptions:
    """The values of `launch_options`; times in seconds, memory in MiB."""

    ps: int = 1
    workers: int = 1
    chief: bool = False
    master: bool = False
    evaluator: bool = False
    on: str = "local"
    start_within: float = 300.0
    restarts: int = 0
    ray_address: str | None = None
    engine_args: tuple[str, ...] | None = None
    sbatch: str | None = None
    image: str | None = None
    namespace: str | None = None
    predict: bool = False
    profile: str | None = None
    ps_cpus: int | None = None
    worker_cpus: int | None = None
    worker_memory: int | None = None
    worker_gpus: int = 0
    pack: bool | None = None
    coordinator_timeout: float | None = None
    grace: float | None = None
    keep_going: bool = False
    cpus_per_task: int | None = None
    port_base: int | None = None
    no_color: bool = False
    log_json: bool = False
    dashboard: bool = False
    dashboard_port: int | None = None

    def check(self) -> None:
        """Refuses options that belong to another engine.

        Raises:
          click.UsageError: one does, or there is no task.
        """
        self.tasks()
        for name, (engines, hint) in _ONLY_FOR.items():
            if getattr(self, name) is not None and self.on not in engines:
                option = "--" + name.replace("_", "-")
                raise click.UsageError(f"{option} is for --on {' and --on '.join(engines)}{hint}.")
        if self.predict and (self.on != "local" or self.chief or self.master or not self.workers):
            raise click.UsageError(
                "--predict is for workers on this machine (--on local), without --chief or --master."
            )
        if self.predict:
            _check_profile(self.profile)
        if self.on == "kubernetes" and not self.image:
            raise click.UsageError("--on kubernetes needs an image with tfmini and the script: give --image.")

    def unused(self) -> list[str]:
        """The options that have no effect with this engine."""
        names = [name for name in _NO_EFFECT.get(self.on, ()) if getattr(self, name) != getattr(LaunchOptions, name)]
        return ["--spread" if name == "pack" and not self.pack else "--" + name.replace("_", "-") for name in names]

    def tasks(self) -> list[TaskId]:
        """The tasks of the cluster, services first.

        Raises:
          click.UsageError: there is none.
        """
        if self.chief and self.master:
            raise click.UsageError("--chief and --master are two names of one task: give the one that the script uses.")
        tasks = cluster_tasks(self.ps, self.workers, self.chief, self.master)
        if not tasks:
            raise click.UsageError("A cluster needs at least one task: give --ps, --workers or --chief.")
        return [*tasks, TaskId(EVALUATOR_JOB, 0)] if self.evaluator else tasks

    def requests(self) -> list[TaskRequest]:
        """The tasks with what each needs."""
        return [self.request_of(task) for task in self.tasks()]

    def request_of(self, task: TaskId) -> TaskRequest:
        """A task with what it needs."""
        worker = Resources(self.worker_cpus, self.worker_memory, self.worker_gpus)
        return TaskRequest(task, Resources(self.ps_cpus) if task.job in SERVICE_JOBS else worker)

    def most_workers(self) -> int | None:
        """How many workers `tfmini scale` may ask for; None: as many as the engine has room for."""
        return _WORKERS_PER_CORE * (os.cpu_count() or 1) if self.on == "local" else None

    @property
    def grace_s(self) -> float:
        """Seconds between SIGTERM and SIGKILL: 4 for a last step, the rest to save. Schedulers give a job about 30."""
        return self.grace if self.grace is not None else 10.0 if self.on == "local" else 25.0

    def engine_options(self, script: str, args: Sequence[str]) -> EngineOptions:
        """What the engine gets."""
        return EngineOptions(
            self.grace_s, self.port_base, self.pack, self.ray_address, self.engine_args or (), self.restarts,
            self.image or "", self.namespace or "", (*words(script), *args),
        )  # fmt: skip

    def page_port(self) -> int | None:
        """The port of the live page; 0: a free one; None: there is no page."""
        return (self.dashboard_port or 0) if self.dashboard or self.dashboard_port else None

    def threads(self, task: TaskId, cpus: int) -> int:
        """The threads of a task's numeric libraries, if its place has ``cpus`` cores for it."""
        asked = self.ps_cpus if task.job in SERVICE_JOBS else self.worker_cpus
        return self.cpus_per_task or asked or cpus


def cluster_tasks(ps: int, workers: int, chief: bool, master: bool = False) -> list[TaskId]:
    """The tasks of a cluster, services first."""
    counts = {"ps": ps, "chief": int(chief), "master": int(master), WORKER_JOB: workers}
    return [TaskId(job, task) for job, count in counts.items() for task in range(count)]
