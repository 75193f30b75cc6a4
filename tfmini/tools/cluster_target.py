"""Which cluster a command asks: an address, a job of `tfmini launch`, or the cluster of TF_CONFIG."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import click

from tfmini import errors
from tfmini.cluster import tf_config_cluster, tf_config_object
from tfmini.command_line import no_such
from tfmini.jobs import Job, addresses_by_task, job_at, jobs_called, names_of, running_jobs, scripts_of
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
        owner = job_at(target.rpartition("//")[2], jobs)
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
        raise click.UsageError(f"Which job? {len(jobs)} of them run: {names_of(jobs)}.")
    return jobs[0]


def _job_called(target: str, jobs: list[Job], hint: str) -> Job:
    found = jobs_called(target, jobs)
    if len(found) > 1:
        raise click.UsageError(f"{len(found)} jobs run {target}; give the name of one: {names_of(found)}.")
    if not found:
        told = f"The jobs are {names_of(jobs)}." if jobs else hint
        known = dict.fromkeys(name for job in jobs for name in (*scripts_of(job)[:1], job.name))
        raise click.UsageError(no_such("job", target, known, told))
    return found[0]


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
