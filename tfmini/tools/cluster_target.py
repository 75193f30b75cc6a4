"""Which cluster a command asks: an address, a job of `tfmini launch`, or the cluster of TF_CONFIG."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import click

from tfmini import errors
from tfmini.cluster import tf_config_cluster, tf_config_object
from tfmini.command_line import no_such
from tfmini.launch.jobs import Job, addresses_by_task, running_jobs
from tfmini.rpc.keys import Keys, load_keys


class ClusterTarget(NamedTuple):
    """What `tfmini.show.status.gather.Gatherer` needs.

    Attributes:
      target: for people, and the address that is asked first.
      tasks: full task name -> address, as far as it is known.
      keys: None: those of this user.
    """

    target: str
    tasks: Mapping[str, str]
    keys: Keys | None


def find_cluster(target: str | None) -> ClusterTarget:
    """The cluster that the user means.

    Args:
      target: ``HOST:PORT``, with or without a scheme; the name of a job, or its script or process id; None: the only
        job that runs, or the cluster of TF_CONFIG. The address of a task of a job means the job, which has a key.

    Raises:
      ClickException: there is none, or more than one.
    """
    jobs = running_jobs()
    if target is not None and ":" in target:
        address = _by_number(target.rpartition("//")[2])
        owner = next((job for job in jobs if address in map(_by_number, job.tasks.values())), None)
        return ClusterTarget(target, {}, None) if owner is None else _of_job(owner)._replace(target=target)
    if target is None and not jobs:
        return cluster_of_tf_config()
    return _of_job(find_job(target, "No job runs. Give the address of a server, HOST:PORT."))


def find_job(target: str | None, hint: str = "No job of `tfmini launch` runs here.") -> Job:
    """The running job that the user means, by its name, its script or process id; None: the only one.

    Args:
      hint: what the error says if none runs.

    Raises:
      click.UsageError: there is none, or more than one.
    """
    jobs = running_jobs()
    if target is not None:
        return _job_called(target, jobs, hint)
    if not jobs:
        raise click.UsageError(hint)
    if len(jobs) > 1:
        raise click.UsageError(f"Which job? {len(jobs)} of them run: {_names(jobs)}.")
    return jobs[0]


def _by_number(address: str) -> str:
    """The address with the number of ``localhost``, by which `tfmini launch` calls it."""
    host, colon, port = address.rpartition(":")
    return f"127.0.0.1:{port}" if host == "localhost" else f"{host}{colon}{port}"


def _job_called(target: str, jobs: list[Job], hint: str) -> Job:
    found = [job for job in jobs if target in (job.name, str(job.pid), *_scripts_of(job))]
    if len(found) > 1:
        raise click.UsageError(f"{len(found)} jobs run {target}; give the name of one: {_names(found)}.")
    if not found:
        told = f"The jobs are {_names(jobs)}." if jobs else hint
        known = dict.fromkeys(name for job in jobs for name in (*_scripts_of(job)[:1], job.name))
        raise click.UsageError(no_such("job", target, known, told))
    return found[0]


def _scripts_of(job: Job) -> tuple[str, ...]:
    """``train`` of the job ``train-4064``; also the script's path and the name of its file."""
    return job.name.rpartition("-")[0], job.script, Path(job.script).name


def _of_job(job: Job) -> ClusterTarget:
    try:
        keys = load_keys(job.key_file) if job.key_file else None
    except errors.OpError as error:
        raise click.ClickException(f"The key of {job.name}: {error.message}") from None
    return ClusterTarget(next(iter(job.tasks.values())), job.tasks, keys)


def cluster_of_tf_config() -> ClusterTarget:
    """The cluster that TF_CONFIG describes.

    Raises:
      ClickException: it describes none.
    """
    try:
        spec = tf_config_cluster(tf_config_object())
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    tasks = addresses_by_task(spec)
    if not tasks:
        raise click.UsageError(
            "Which cluster? No job of `tfmini launch` runs. Give the address of a server, HOST:PORT, or set TF_CONFIG."
        )
    return ClusterTarget(next(iter(tasks.values())), tasks, None)


def _names(jobs: list[Job]) -> str:
    return ", ".join(f"{job.name} ({len(job.tasks)} task{'s' if len(job.tasks) != 1 else ''})" for job in jobs)
