"""This process as a pod that Kubernetes has started: ``tfmini run --cluster kubernetes``."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from tfmini import errors
from tfmini.cluster import ClusterSpec, cluster_from_tf_config
from tfmini.engines.manifest import CLUSTER_ENV, JOB_ENV
from tfmini.tools.engine import EngineError, NamedRole

_INDEX_ENV = "JOB_COMPLETION_INDEX"


def member() -> NamedRole:
    """The role of this pod.

    Raises:
      EngineError: the variables of a JobSet and of a TFJob are missing.
    """
    return role_of_pod(os.environ)


def role_of_pod(env: Mapping[str, str]) -> NamedRole:
    """The role by the variables of a JobSet that `tfmini manifest` wrote, or by the TF_CONFIG of a TFJob."""
    if env.get(JOB_ENV) and env.get(CLUSTER_ENV):
        return _role_in_jobset(env[JOB_ENV], env[CLUSTER_ENV], env.get(_INDEX_ENV, ""))
    config = cluster_from_tf_config(env)
    if config.task_type is None or config.task_id is None:
        raise EngineError(
            f"This process has no role: neither {JOB_ENV} and {CLUSTER_ENV} are set, as in the pods of `tfmini"
            " manifest`, nor TF_CONFIG, as in those of a TFJob."
        )
    return NamedRole(config.task_type, config.task_id, config.cluster)


def _role_in_jobset(job: str, cluster: str, index: str) -> NamedRole:
    with errors.reading(f"{CLUSTER_ENV} is not as `tfmini manifest` writes it", EngineError):
        spec = ClusterSpec(json.loads(cluster))
    if not index.isdecimal():
        raise EngineError(f"{_INDEX_ENV} is not set: the Job of this pod must have completionMode Indexed.")
    if job not in spec.jobs or int(index) not in spec.task_indices(job):
        raise EngineError(
            f"{CLUSTER_ENV} has no task {job}/{index}, which {JOB_ENV} and {_INDEX_ENV} name. The manifest was changed"
            " by hand, or is of another cluster: print it anew."
        )
    return NamedRole(job, int(index), spec)
