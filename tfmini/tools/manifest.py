"""`tfmini manifest`: prints what Kubernetes needs to run a script as a cluster."""

from __future__ import annotations

import collections
import importlib
from pathlib import Path
from typing import Any

import click

from tfmini.rpc.keys import keys_in_memory
from tfmini.tools.launch_options import LaunchOptions, manifest_options
from tfmini.tools.usage import Command

_OF_TASKS = ("ps", "workers", "chief", "ps_cpus", "worker_cpus", "worker_memory", "worker_gpus")


@click.command(cls=Command, context_settings={"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]})
@manifest_options
@click.argument("script")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def manifest(script: str, args: tuple[str, ...], **values: Any) -> None:
    """Print the YAML of a JobSet (or a TFJob) that runs SCRIPT ARGS... as every task of a cluster.

    SCRIPT is a path in the image. The manifest holds a Secret with a new key for the cluster, unless --secret names one
    that exists; do not commit that key to a repository.
    """
    kubernetes = importlib.import_module("tfmini.engines.manifest")
    options = LaunchOptions(**{name: values[name] for name in _OF_TASKS})
    key = b""
    if not values["secret"]:
        with keys_in_memory() as path:
            key = Path(path).read_bytes()
    deployment = kubernetes.Deployment(
        name=values["name"] or kubernetes.name_of(script),
        namespace=values["namespace"] or "",
        image=values["image"],
        jobs=collections.Counter(task.job for task in options.tasks()),
        resources={request.task.job: request.resources for request in options.requests()},
        script=[script, *args],
        secret=values["secret"] or "",
        key=key,
        port=values["port"],
        restarts=values["restarts"],
        pack=values["pack"],
    )
    try:
        deployment.check()
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    objects = {"jobset": kubernetes.jobset, "tfjob": kubernetes.tfjob}[values["kind"]](deployment)
    click.echo(kubernetes.to_yaml(objects), nl=False)
