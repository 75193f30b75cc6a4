"""Manifests of Kubernetes for a cluster: a JobSet with stable host names, or a TFJob of Kubeflow; `tfmini manifest`."""

from __future__ import annotations

import base64
import collections
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import click

from tfmini.cluster import ClusterSpec
from tfmini.command_line import BEFORE_SCRIPT, BeforeScript, misplaced
from tfmini.compat.roles import defined_options
from tfmini.launch.engine import Resources
from tfmini.launch.launch_options import LaunchOptions, manifest_options
from tfmini.launch.supervision import SERVICE_JOBS
from tfmini.rpc.keys import keys_in_memory

Object = dict[str, Any]
JOB_ENV = "TFMINI_JOB"
CLUSTER_ENV = "TFMINI_CLUSTER"
_KEYS_PATH = "/var/run/tfmini"
_KEY_FILE = "tfmini.key_secret"
_USER = 1000  # that of the Dockerfile; its group may read the key, which belongs to root
_GRACE_S = 60  # a worker finishes its step and saves
# Seconds for which a ps goes on when it is told to end: Kubernetes tells all pods at once, and a chief saves then.
_SERVES_ON_S = 30
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_OF_TASKS = ("ps", "workers", "chief", "ps_cpus", "worker_cpus", "worker_memory", "worker_gpus")
_LABEL_LENGTH = 63
_LABEL = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?")


@dataclass(frozen=True)
class Deployment:
    """What runs, and where.

    Attributes:
      name: of the JobSet or TFJob, and the beginning of the pods' names.
      namespace: of all objects; "": the user's current one.
      image: of all containers.
      jobs: job -> number of tasks.
      resources: job -> what each of its tasks needs.
      script: path of the script in the image, and its arguments.
      secret: name of a Secret with the file `tfmini.key_secret`.
      key: content of that file, for a Secret that belongs to the manifest; b"": there is such a Secret already.
      port: of every task.
      restarts: how often the whole job starts again after a failure.
      pack: True: on few nodes; False: on many; None: as Kubernetes likes.
    """

    name: str
    image: str
    jobs: Mapping[str, int]
    script: Sequence[str]
    namespace: str = ""
    resources: Mapping[str, Resources] = field(default_factory=dict)
    secret: str = ""
    key: bytes = b""
    port: int = 2222
    restarts: int = 3
    pack: bool | None = None

    def check(self) -> None:
        """Refuses what Kubernetes would refuse.

        Raises:
          ValueError: a name is no DNS label, or too long for the names of the pods; there is no image.
        """
        if not self.image:
            raise ValueError("The image has no name: give --image.")
        for option, name in (("name", self.name), ("namespace", self.namespace)):
            if name and not _LABEL.fullmatch(name):
                rule = f"use at most {_LABEL_LENGTH} of a-z, 0-9 and -, a letter first"
                raise ValueError(f"--{option} {name!r} is no DNS label: {rule}.")
        pods = (f"{self.name}-{job}-0-{count - 1}" for job, count in self.jobs.items())
        longest = max(pods, key=len, default="")
        if len(longest) > _LABEL_LENGTH:
            raise ValueError(
                f"--name {self.name} is too long: a pod would be called {longest}, and names of hosts have at most"
                f" {_LABEL_LENGTH} characters. Choose one with at most"
                f" {len(self.name) - len(longest) + _LABEL_LENGTH} characters."
            )

    @property
    def secret_name(self) -> str:
        """The name of the Secret with the key of the cluster."""
        return self.secret or f"{self.name}-keys"

    def cluster(self) -> ClusterSpec:
        """The addresses of all tasks: names that stay when a pod comes back with another IP."""
        domain = f"{self.name}.{self.namespace}.svc" if self.namespace else self.name
        return ClusterSpec(
            {
                job: [f"{self.name}-{job}-0-{index}.{domain}:{self.port}" for index in range(count)]
                for job, count in self.jobs.items()
                if count
            }
        )


def jobset(deployment: Deployment) -> list[Object]:
    """The objects of a JobSet. It succeeds when all workers (and the chief) have; the ps tasks are then deleted."""
    jobs = [job for job, count in deployment.jobs.items() if count]
    spec: Object = {
        # A pod is found by its name before it is ready: tasks wait for each other.
        "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True, "subdomain": deployment.name},
        "failurePolicy": {"maxRestarts": deployment.restarts},
        "replicatedJobs": [_replicated_job(deployment, job) for job in jobs],
    }
    working = [job for job in jobs if job not in SERVICE_JOBS]
    if working:
        spec["successPolicy"] = {"operator": "All", "targetReplicatedJobs": working}
    found = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": _metadata(deployment, deployment.name),
        "spec": spec,
    }  # fmt: skip
    return [*_secret(deployment), found]


def tfjob(deployment: Deployment) -> list[Object]:
    """The objects of a TFJob, for the training operator of Kubeflow, which sets TF_CONFIG itself."""
    replicas = {
        job.capitalize() if job != "ps" else "PS": {
            "replicas": count,
            "restartPolicy": "ExitCode",  # again after a signal, not after an error of the script
            "template": _pod(deployment, job, []),
        }
        for job, count in deployment.jobs.items()
        if count
    }
    policy = {"cleanPodPolicy": "Running", "backoffLimit": deployment.restarts}
    found = {
        "apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": _metadata(deployment, deployment.name),
        "spec": {"runPolicy": policy, "successPolicy": "AllWorkers", "tfReplicaSpecs": replicas},
    }  # fmt: skip
    return [*_secret(deployment), found]


def _metadata(deployment: Deployment, name: str) -> Object:
    labels = {"app.kubernetes.io/name": "tfmini", "app.kubernetes.io/instance": deployment.name}
    return {"name": name, **({"namespace": deployment.namespace} if deployment.namespace else {}), "labels": labels}


def _secret(deployment: Deployment) -> Iterator[Object]:
    if deployment.key:
        yield {
            "apiVersion": "v1", "kind": "Secret", "metadata": _metadata(deployment, deployment.secret_name),
            "type": "Opaque", "data": {_KEY_FILE: base64.b64encode(deployment.key).decode()},
        }  # fmt: skip


def _replicated_job(deployment: Deployment, job: str) -> Object:
    variables = [
        {"name": JOB_ENV, "value": job},
        {"name": CLUSTER_ENV, "value": json.dumps(deployment.cluster().as_dict(), separators=(",", ":"))},
    ]
    count = deployment.jobs[job]
    return {
        "name": job,
        "replicas": 1,
        "template": {
            "spec": {
                "completionMode": "Indexed",
                "completions": count,
                "parallelism": count,
                "backoffLimit": 0,  # a failed task fails the set, which starts again as a whole
                "template": _pod(deployment, job, variables),
            }
        },
    }


def _pod(deployment: Deployment, job: str, variables: list[Object]) -> Object:
    run = ["run", "--cluster", "kubernetes"]
    container: Object = {
        # TFJob knows its container by this name, and the port that it puts into TF_CONFIG by the port's.
        "name": "tensorflow",
        "image": deployment.image,
        "args": [*run, *(word.replace("$(", "$$(") for word in deployment.script)],  # else Kubernetes puts variables in
        "env": [
            *variables,
            {"name": "PYTHONUNBUFFERED", "value": "1"},
            {"name": "TFMINI_KEYS", "value": f"{_KEYS_PATH}/{_KEY_FILE}"},
        ],
        "ports": [{"name": "tfjob-port", "containerPort": deployment.port}],
        "securityContext": {"allowPrivilegeEscalation": False},
        "volumeMounts": [{"name": "keys", "mountPath": _KEYS_PATH, "readOnly": True}],
    }
    resources = deployment.resources.get(job, Resources())
    if resources.cpus is not None:  # else a library starts a thread for each core of the node
        container["env"] += [{"name": name, "value": str(resources.cpus)} for name in _THREAD_VARIABLES]
    if job in SERVICE_JOBS:
        container["lifecycle"] = {"preStop": {"exec": {"command": ["sleep", str(_SERVES_ON_S)]}}}
    needed = _quantities(resources)
    if needed:
        container["resources"] = {"requests": needed, "limits": needed}
    spec: Object = {
        "automountServiceAccountToken": False,  # no task speaks to Kubernetes
        "securityContext": {"runAsNonRoot": True, "runAsUser": _USER, "runAsGroup": _USER, "fsGroup": _USER},
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": _GRACE_S,
        "containers": [container],
        "volumes": [{"name": "keys", "secret": {"secretName": deployment.secret_name, "defaultMode": 0o440}}],
    }
    labels = _metadata(deployment, "")["labels"]
    return {"metadata": {"labels": labels}, "spec": spec | _spreading(deployment, labels)}


def _quantities(resources: Resources) -> dict[str, str]:
    found: dict[str, str] = {}
    if resources.cpus is not None:
        found["cpu"] = str(resources.cpus)
    if resources.memory_mb is not None:
        found["memory"] = f"{resources.memory_mb}Mi"
    if resources.gpus:
        found["nvidia.com/gpu"] = str(resources.gpus)
    return found


def _spreading(deployment: Deployment, labels: Object) -> Object:
    selector = {"labelSelector": {"matchLabels": labels}}
    node = "kubernetes.io/hostname"
    if deployment.pack is None:
        return {}
    if deployment.pack:
        term = {"weight": 100, "podAffinityTerm": {**selector, "topologyKey": node}}
        return {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}}
    spread = {"maxSkew": 1, "topologyKey": node, "whenUnsatisfiable": "ScheduleAnyway", **selector}
    return {"topologySpreadConstraints": [spread]}


def name_of(script: str, longest: int = 40) -> str:
    """A DNS label from the name of a script."""
    name = re.sub(r"[^a-z0-9]+", "-", PurePath(script).stem.lower())[:longest].strip("-")
    return name if name[:1].isalpha() else f"tfmini-{name}".strip("-")


# ---------------------------------------------------------------- YAML

_UNPRINTABLE = re.compile(
    r"[\x7f-\xa0\xad\u061c\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ufff0-\uffff\ud800-\udfff]"
)


def _escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def to_yaml(objects: Sequence[Object]) -> str:
    """The objects as YAML documents. All texts are in double quotes, so that none is taken for a number or a date."""
    return "---\n".join("\n".join(_lines(found)) + "\n" for found in objects)


def _lines(value: Any) -> Iterator[str]:
    """The lines of a dictionary or list that is not empty."""
    is_dictionary = isinstance(value, dict)
    for head, item in [(f"{key}:", value[key]) if is_dictionary else ("-", key) for key in value]:
        if not isinstance(item, dict | list) or not item:
            # JSON leaves characters that end a line of YAML as they are; what YAML shows as itself stays.
            yield f"{head} {_UNPRINTABLE.sub(_escape, json.dumps(item, ensure_ascii=False))}"
            continue
        inner = list(_lines(item))
        if head == "-":
            yield f"- {inner[0]}"
            yield from (f"  {line}" for line in inner[1:])
        else:
            yield head
            yield from (f"  {line}" for line in inner)


@click.command(cls=BeforeScript, context_settings=BEFORE_SCRIPT)
@manifest_options
@click.argument("script")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def manifest(script: str, args: tuple[str, ...], **values: Any) -> None:
    """Print the YAML of a JobSet (or a TFJob) that runs SCRIPT ARGS... as every task of a cluster.

    SCRIPT is a path in the image; its own options follow it (a -- between them is ignored). The manifest holds a Secret
    with a new key for the cluster, unless --secret names one that exists; do not commit that key to a repository.
    """
    options = LaunchOptions(**{name: values[name] for name in _OF_TASKS})
    # The script may be in the image alone: then every option behind it is told.
    defined = defined_options if Path(script).is_file() else lambda script, words: ()
    if text := misplaced(click.get_current_context(), script, args, defined):
        click.echo(f"tfmini: {text}", err=True)
    key = b""
    if not values["secret"]:
        with keys_in_memory() as path:
            key = Path(path).read_bytes()
    deployment = Deployment(
        name=values["name"] or name_of(script),
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
    objects = {"jobset": jobset, "tfjob": tfjob}[values["kind"]](deployment)
    click.echo(to_yaml(objects), nl=False)
