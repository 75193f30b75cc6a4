"""Whether this machine can run a scheduler: ``python -m tests.launch.probe slurm``. If not, the last line says why."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

from tests.hosts import network
from tests.launch import slurm_cluster
from tests.launch.requirements import MPI_AS_ROOT


def hosts() -> str:
    return network.why_not()


def mpi() -> str:
    for launcher, *options in (("mpirun.openmpi", "--oversubscribe"), ("mpirun.mpich",)):
        done = subprocess.run(
            [launcher, *options, "-np", "2", "true"], env={**os.environ, **MPI_AS_ROOT},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            return f"{launcher}: {done.stderr.strip()}"
    return ""


def slurm() -> str:
    if slurm_cluster.missing():
        return f"there is no {', '.join(slurm_cluster.missing())}"
    with slurm_cluster.slurm_cluster() as cluster:
        done = cluster.run("srun", "-N4", "true")
        return done.stderr.strip() if done.returncode else ""


def ray() -> str:
    if importlib.util.find_spec("ray") is None:
        return "there is no ray"
    from ray.cluster_utils import Cluster

    Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}).shutdown()
    return ""


def kubernetes() -> str:
    packages = ("kubernetes", "kubernetes_validate", "jsonschema")
    missing = [package for package in packages if importlib.util.find_spec(package) is None]
    return f"there is no {', '.join(missing)}" if missing else ""


PROBES = {probe.__name__: probe for probe in (hosts, mpi, slurm, ray, kubernetes)}


def main(name: str) -> int:
    try:
        why_not = PROBES[name]()
    except Exception as error:  # whatever keeps it from starting is the answer
        why_not = f"{type(error).__name__}: {error}"
    print(" ".join(why_not.split()))
    return 1 if why_not else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
