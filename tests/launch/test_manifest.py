"""Manifests for Kubernetes, without a cluster."""

from __future__ import annotations

import base64
import dataclasses
import importlib.util
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from tests.launch import crds
from tests.launch.requirements import only_with
from tfmini.launch.engine import Resources
from tfmini.launch.manifest import Deployment, jobset, tfjob, to_yaml
from tfmini.rpc.keys import load_keys
from tfmini.tools.cli import main

DIGITS = Deployment(
    name="digits", namespace="ml", image="registry/digits:1", jobs={"ps": 2, "chief": 0, "worker": 3},
    resources={"ps": Resources(1), "worker": Resources(4, 8192, 1)}, script=["train.py", "--data=a: b"], secret="keys",
)  # fmt: skip


def printed(*options: str) -> list[dict[str, Any]]:
    done = CliRunner().invoke(main, ["manifest", "--image", "registry/digits:1", *options])
    assert done.exit_code == 0, done.output
    return list(yaml.safe_load_all(done.output))


def pods(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """job -> the only container of its pods, in a JobSet."""
    jobs = found["spec"]["replicatedJobs"]
    return {job["name"]: job["template"]["spec"]["template"]["spec"]["containers"][0] for job in jobs}


def test_names_are_those_that_a_jobset_gives() -> None:
    assert DIGITS.cluster().as_dict() == {
        "ps": [f"digits-ps-0-{i}.digits.ml.svc:2222" for i in range(2)],
        "worker": [f"digits-worker-0-{i}.digits.ml.svc:2222" for i in range(3)],
    }


def test_a_jobset_succeeds_with_its_workers() -> None:
    (found,) = jobset(DIGITS)
    assert found["spec"]["successPolicy"] == {"operator": "All", "targetReplicatedJobs": ["worker"]}
    assert found["spec"]["network"]["enableDNSHostnames"] and found["spec"]["network"]["subdomain"] == "digits"
    completions = {job["name"]: job["template"]["spec"]["completions"] for job in found["spec"]["replicatedJobs"]}
    assert completions == {"ps": 2, "worker": 3}
    worker = pods(found)["worker"]
    assert worker["args"] == ["run", "--cluster", "kubernetes", "train.py", "--data=a: b"]
    assert worker["resources"]["limits"] == {"cpu": "4", "memory": "8192Mi", "nvidia.com/gpu": "1"}


def test_a_tfjob_has_a_replica_type_per_job() -> None:
    (found,) = tfjob(DIGITS)
    assert {job: each["replicas"] for job, each in found["spec"]["tfReplicaSpecs"].items()} == {"PS": 2, "Worker": 3}
    assert found["spec"]["runPolicy"]["cleanPodPolicy"] == "Running" and found["spec"]["successPolicy"] == "AllWorkers"


def test_yaml_says_what_the_objects_say() -> None:
    strange = [{"a": {}, "b": [], "c": [[1, 2], {"x": [{"y": "yes"}]}], "d": None, "e": True, "f": 'x: "y"\n# z'}]
    for objects in (strange, jobset(DIGITS), tfjob(DIGITS)):
        assert list(yaml.safe_load_all(to_yaml(objects))) == objects


def test_each_manifest_has_a_new_key_unless_a_secret_is_named(tmp_path: Any) -> None:
    secret, found = printed("--name", "digits", "examples/digits_async.py")
    key = tmp_path / "key"
    key.write_bytes(base64.b64decode(secret["data"]["tfmini.key_secret"]))
    key.chmod(0o600)
    assert load_keys(str(key)).secret and secret["metadata"]["name"] == "digits-keys"
    (volume,) = found["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["volumes"]
    assert volume["secret"] == {"secretName": "digits-keys", "defaultMode": 0o440}
    assert printed("--name", "digits", "x.py")[0]["data"] != secret["data"]
    assert [each["kind"] for each in printed("--secret", "mine", "x.py")] == ["JobSet"]


def test_the_name_comes_from_the_script_and_a_cluster_has_tasks() -> None:
    assert printed("--secret", "s", "/app/My_Train.py")[0]["metadata"]["name"] == "my-train"
    done = CliRunner().invoke(main, ["manifest", "--image", "x", "--ps", "0", "--workers", "0", "x.py"])
    assert done.exit_code == 2 and "at least one task" in done.output


@pytest.mark.parametrize("options, said", [
    (["--name", "My_Train"], "--name 'My_Train' is no DNS label"),
    (["--name", "1st"], "--name '1st' is no DNS label"),
    (["--namespace", "a b"], "--namespace 'a b' is no DNS label"),
    (["--image", ""], "give --image"),
    (["--name", "a" * 60, "--workers", "11"], "Choose one with at most 51 characters"),
])  # fmt: skip
def test_what_kubernetes_would_refuse_is_named(options: list[str], said: str) -> None:
    done = CliRunner().invoke(main, ["manifest", "--image", "x", *options, "x.py"])
    assert done.exit_code == 2 and said in " ".join(done.output.split()), done.output


@pytest.mark.parametrize("script", ["2nd_try.py", "/", f"{'a' * 39}_b.py", "Über.py"])
def test_the_name_of_any_script_makes_a_label(script: str) -> None:
    assert re.fullmatch("[a-z][a-z0-9-]*[a-z0-9]", printed("--secret", "s", script)[0]["metadata"]["name"])


def test_an_empty_name_of_a_secret_names_none() -> None:
    assert [each["kind"] for each in printed("--secret", "", "x.py")] == ["Secret", "JobSet"]


@pytest.mark.ci
@only_with("kubernetes")
@pytest.mark.skipif(not os.environ.get("TFMINI_CRDS"), reason="TFMINI_CRDS names no definitions")
@pytest.mark.skipif(importlib.util.find_spec("kubernetes_validate") is None, reason="there is no kubernetes-validate")
@pytest.mark.parametrize("placing", [[], ["--pack"], ["--spread"]])
@pytest.mark.parametrize("kind", ["jobset", "tfjob"])
def test_the_schemas_accept_the_manifests(kind: str, placing: list[str]) -> None:
    options = ["--ps", "2", "--workers", "3", "--chief", "--worker-gpus", "1", "--worker-memory", "4G"]
    found = printed("--kind", kind, "--namespace", "ml", *options, *placing, "train.py")
    for each in found:
        crds.validate(each)
    if kind == "jobset":
        for job in found[-1]["spec"]["replicatedJobs"]:  # as the JobSet's controller makes it
            crds.validate({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, **job["template"]})
    with pytest.raises(Exception, match="unknown"):
        crds.validate({**found[-1], "spec": {**found[-1]["spec"], "unknown": 1}})


def test_yaml_holds_every_character() -> None:
    text = "a\x85b\u2028c\ufeff\x7f\x9b\u202e: # 'é😀\n---\r"
    found = [{"args": [text, "yes", "1"]}]
    assert list(yaml.safe_load_all(to_yaml(found))) == found


def test_kubernetes_puts_no_variable_into_an_argument() -> None:
    (found,) = jobset(dataclasses.replace(DIGITS, script=["train.py", "--name=$(TFMINI_KEYS)", "$x"]))
    assert pods(found)["worker"]["args"][-2:] == ["--name=$$(TFMINI_KEYS)", "$x"]


def test_pods_have_no_token_of_kubernetes_and_do_not_run_as_root() -> None:
    (found,) = jobset(DIGITS)
    for job in found["spec"]["replicatedJobs"]:
        pod = job["template"]["spec"]["template"]["spec"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"] == {"runAsNonRoot": True, "runAsUser": 1000, "runAsGroup": 1000, "fsGroup": 1000}
        assert pod["containers"][0]["securityContext"] == {"allowPrivilegeEscalation": False}
    dockerfile = (Path(__file__).parents[2] / "Dockerfile").read_text()
    assert "\nUSER 1000:1000\n" in dockerfile and re.search(r"\nFROM \S+@sha256:[0-9a-f]{64}\n", dockerfile)
