"""The entry point of a container, with the variables that a manifest gives it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.network import Network, why_not
from tests.launch.programs import accuracies
from tests.launch.requirements import only_with
from tfmini.launch.engine import EngineError
from tfmini.launch.kubernetes import role_of_pod
from tfmini.launch.manifest import Deployment, jobset
from tfmini.rpc.keys import generate_keys

ROOT = Path(__file__).parents[2]
CLUSTER = {"ps": ["a:1"], "worker": ["b:1", "c:1"]}


def test_the_role_follows_from_a_jobset_or_from_a_tfjob() -> None:
    of_jobset = {"TFMINI_JOB": "worker", "TFMINI_CLUSTER": json.dumps(CLUSTER), "JOB_COMPLETION_INDEX": "1"}
    of_tfjob = {"TF_CONFIG": json.dumps({"cluster": CLUSTER, "task": {"type": "worker", "index": 1}})}
    for env in (of_jobset, of_tfjob):
        role = role_of_pod(env)
        assert (role.job, role.index, role.cluster.as_dict()) == ("worker", 1, CLUSTER)


def test_a_pod_without_a_role_is_refused() -> None:
    with pytest.raises(EngineError, match="This process has no role"):
        role_of_pod({})
    with pytest.raises(EngineError, match="must have completionMode Indexed"):
        role_of_pod({"TFMINI_JOB": "ps", "TFMINI_CLUSTER": "{}"})
    of_jobset = {"TFMINI_JOB": "worker", "TFMINI_CLUSTER": json.dumps(CLUSTER), "JOB_COMPLETION_INDEX": "1"}
    with pytest.raises(EngineError, match="TFMINI_CLUSTER is not as `tfmini manifest` writes it: Expecting value"):
        role_of_pod(of_jobset | {"TFMINI_CLUSTER": "worker"})
    for other in ({"JOB_COMPLETION_INDEX": "2"}, {"TFMINI_JOB": "chief"}):
        with pytest.raises(EngineError, match="TFMINI_CLUSTER has no task (worker/2|chief/1).*print it anew"):
            role_of_pod(of_jobset | other)


def test_the_script_runs_with_its_role(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import argparse, os\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--job_name'), parser.add_argument('--task_index'), parser.add_argument('--ps_hosts')\n"
        "print(parser.parse_args(), os.environ['TF_CONFIG'])\n"
    )
    variables = {"TFMINI_JOB": "ps", "TFMINI_CLUSTER": json.dumps(CLUSTER), "JOB_COMPLETION_INDEX": "0"}
    done = subprocess.run(
        [sys.executable, "-m", "tfmini", "run", "--cluster", "kubernetes", str(script)],
        env={**os.environ, **variables, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.stdout.startswith("Namespace(job_name='ps', task_index='0', ps_hosts='a:1') {"), done.stderr


@only_with("kubernetes")
@pytest.mark.skipif(bool(why_not()), reason=why_not())
@pytest.mark.parametrize("script, jobs", [
    pytest.param("digits_async.py", {"ps": 1, "worker": 3}, marks=pytest.mark.ci),
    ("digits_sync.py", {"ps": 1, "worker": 3}),
    ("digits_allreduce.py", {"worker": 4}),
])  # fmt: skip
def test_examples_train_on_hosts_with_the_names_of_a_jobset(script: str, jobs: dict[str, int], tmp_path: Path) -> None:
    """Four network namespaces are the pods. In each runs what the manifest says, under the names of a JobSet."""
    key = generate_keys(str(tmp_path))
    deployment = Deployment("digits", "image", jobs, [f"examples/{script}"], "ml", secret="keys")
    (found,) = jobset(deployment)
    with Network(4) as network:
        tasks = list(deployment.cluster().tasks())
        names = {task.address.rpartition(":")[0]: host.address for task, host in zip(tasks, network)}
        started: dict[Any, subprocess.Popen[str]] = {}
        for task, host in zip(tasks, network):
            host.names(names)
            (job,) = [job for job in found["spec"]["replicatedJobs"] if job["name"] == task.job]
            container = job["template"]["spec"]["template"]["spec"]["containers"][0]
            variables = {each["name"]: each["value"] for each in container["env"]}
            variables |= {"TFMINI_KEYS": key, "JOB_COMPLETION_INDEX": str(task.task), "PYTHONPATH": str(ROOT)}
            command = [sys.executable, "-m", "tfmini", *container["args"]]
            started[task] = host.start(command, variables, cwd=ROOT)
        outputs = [started[task].communicate(timeout=200)[0] for task in tasks if task.job == "worker"]
        assert all(started[task].returncode == 0 for task in tasks if task.job == "worker"), outputs
    scores = accuracies("".join(outputs))
    assert scores and min(scores) >= 95
