"""The cluster resolver for Slurm. The expected values are TensorFlow's, in the same environment."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tfmini.train.cluster_resolver import SlurmClusterResolver, expand_host_list, expand_tasks_per_node

STEP = {
    "SLURM_PROCID": "0",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_STEP_NODELIST": "t02n13,t02n41,t02n43",
    "SLURM_STEP_TASKS_PER_NODE": "1(x3)",
}


@pytest.fixture(autouse=True)
def step(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**STEP, "CUDA_VISIBLE_DEVICES": "5,6"}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("text, hosts", [
    ("n[1-3,5]", ["n1", "n2", "n3", "n5"]), ("m[08-10],k", ["m08", "m09", "m10", "k"]), ("a[1],b", ["a1", "b"]),
    ("a1,b[2-3]", ["a1", "b2", "b3"]), ("x[9-11]", ["x9", "x10", "x11"]), ("n1", ["n1"]),
])  # fmt: skip
def test_host_lists_are_expanded(text: str, hosts: list[str]) -> None:
    assert expand_host_list(text) == hosts


@pytest.mark.parametrize("text, counts", [("2(x2),1", [2, 2, 1]), ("3", [3]), ("1,2,1", [1, 2, 1])])
def test_tasks_per_node_are_expanded(text: str, counts: list[int]) -> None:
    assert expand_tasks_per_node(text) == counts


@pytest.mark.parametrize("text", ["x[1-2]-eth", "m[08-10]x,k", "a]b"])
def test_other_host_lists_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Invalid hostlist format"):
        expand_host_list(text)


def test_a_short_text_cannot_stand_for_any_number_of_hosts() -> None:
    for expand, text in (
        (expand_host_list, "n[1-999999999]"), (expand_host_list, f"n[1-{9**30}]"),
        (expand_tasks_per_node, "2(x999999999)"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="at most 65536 can be used"):
            expand(text)


@pytest.mark.parametrize("text", ["abc", "2(x", "1("])
def test_other_counts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Invalid tasks-per-node list format"):
        expand_tasks_per_node(text)


def test_all_tasks_are_workers_by_default() -> None:
    resolver = SlurmClusterResolver()
    assert (resolver.master(), resolver.get_task_info(), resolver.environment) == ("", (None, None), "")
    assert resolver.cluster_spec().as_dict() == {"worker": ["t02n13:8888", "t02n41:8888", "t02n43:8888"]}
    assert resolver.get_task_info() == ("worker", 0)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert resolver.master() == "grpc://t02n13:8888" and resolver.master("worker", 1, "ab") == "ab://t02n41:8888"
    assert resolver.num_accelerators() == {"GPU": 2}


@pytest.mark.parametrize("rank, task, devices", [("1", ("worker", 0), "2,3"), ("4", ("worker", 3), "0,1")])
def test_tasks_of_a_node_have_ports_and_devices_of_their_own(
    monkeypatch: pytest.MonkeyPatch, rank: str, task: tuple[str, int], devices: str
) -> None:
    monkeypatch.setenv("SLURM_PROCID", rank)
    monkeypatch.setenv("SLURM_STEP_TASKS_PER_NODE", "2(x2),1")
    resolver = SlurmClusterResolver({"ps": 1, "worker": 4}, gpus_per_node=4, gpus_per_task=2)
    workers = ["t02n13:8889", "t02n41:8888", "t02n41:8889", "t02n43:8888"]
    assert resolver.cluster_spec().as_dict() == {"ps": ["t02n13:8888"], "worker": workers}
    assert resolver.get_task_info() == task and os.environ["CUDA_VISIBLE_DEVICES"] == devices


def test_a_node_without_accelerators_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorFlow fails here: it needs nvidia-smi."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    monkeypatch.setenv("PATH", "")
    resolver = SlurmClusterResolver({"ps": 1, "worker": 2})
    assert resolver.cluster_spec().num_tasks("worker") == 2 and "CUDA_VISIBLE_DEVICES" not in os.environ


@pytest.mark.parametrize("arguments, said", [
    ({"jobs": {"ps": 1, "worker": 5}}, "Requested 6 tasks but only 3 were assigned."),
    ({"jobs": {"ps": 1, "worker": 1}}, "Requested 2 tasks but only 3 were assigned."),
    ({"gpus_per_node": 1, "gpus_per_task": 2}, "Requested more GPUs per node than available"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(RuntimeError, match=said):
        SlurmClusterResolver(**arguments)


@pytest.mark.parametrize("name", STEP)
def test_outside_of_a_step_the_missing_variable_is_named(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delenv(name)
    with pytest.raises(RuntimeError, match=f"{name} not found in environment. Not running inside a SLURM step?"):
        SlurmClusterResolver()
