"""What the options of `tfmini launch` ask of an engine."""

from __future__ import annotations

from typing import Any

import click
import pytest

from tfmini.launch.engine import ENGINES, EngineOptions, Resources, engine_class
from tfmini.launch.launch_options import LaunchOptions, Memory, Words
from tfmini.launch.supervision import TaskId


@pytest.mark.parametrize("text, mib", [("500", 500), ("500M", 500), ("4G", 4096), ("4GiB", 4096), ("1tb", 1 << 20)])
def test_memory_is_counted_in_mib(text: str, mib: int) -> None:
    assert Memory().convert(text, None, None) == mib


@pytest.mark.parametrize("text", ["", "G", "4X", "1.5G", "-1", "0", "0G"])
def test_other_texts_are_no_memory(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is no amount of memory; write 500M or 4G"):
        Memory().convert(text, None, None)


def test_each_role_has_its_resources() -> None:
    options = LaunchOptions(ps=1, workers=1, chief=True, ps_cpus=1, worker_cpus=2, worker_memory=512, worker_gpus=1)
    worker = Resources(2, 512, 1)
    found = {str(request.task): request.resources for request in options.requests()}
    assert found == {"ps/0": Resources(1), "chief/0": worker, "worker/0": worker}


def test_threads_are_those_asked_for_or_the_cores_of_the_place() -> None:
    ps, worker = TaskId("ps", 0), TaskId("worker", 0)
    assert LaunchOptions().threads(worker, 8) == 8
    options = LaunchOptions(worker_cpus=2)
    assert (options.threads(ps, 8), options.threads(worker, 8)) == (8, 2)
    assert LaunchOptions(worker_cpus=2, cpus_per_task=3).threads(worker, 8) == 3


@pytest.mark.parametrize("options, said", [
    ({"sbatch": "job"}, "--sbatch is for --on slurm."),
    ({"ray_address": "head:6379", "on": "mpi"}, "--ray-address is for --on ray."),
    ({"engine_args": ("-v",), "on": "ray"}, "--engine-args is for --on slurm and --on mpi."),
    ({"port_base": 9, "on": "slurm"}, "--port-base is for --on local; elsewhere TFMINI_PORTS names a range of ports."),
    ({"chief": True, "master": True}, "--chief and --master are two names of one task"),
    ({"ps": 0, "workers": 0}, "A cluster needs at least one task"),
])  # fmt: skip
def test_options_of_other_engines_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(click.UsageError, match=f"^{said}"):
        LaunchOptions(**options).check()


def test_resources_that_an_engine_does_not_reserve_are_named() -> None:
    assert LaunchOptions().unused() == []
    asked: dict[str, Any] = {"worker_memory": 512, "worker_gpus": 1, "pack": False, "worker_cpus": 2}
    assert LaunchOptions(**asked).unused() == ["--worker-memory", "--worker-gpus", "--spread"]
    assert LaunchOptions(on="mpi", **asked).unused() == ["--worker-memory", "--worker-gpus"]
    assert LaunchOptions(on="slurm", **asked).unused() == []
    assert LaunchOptions(pack=True).unused() == ["--pack"]


def test_arguments_for_the_engine_are_quoted_as_for_a_shell() -> None:
    assert Words().convert("-N 2 --comment 'a b'", None, None) == ("-N", "2", "--comment", "a b")
    with pytest.raises(click.BadParameter, match="has no closing quotation; quote it as for a shell"):
        Words().convert("'a", None, None)


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_exists_and_takes_its_options(name: str) -> None:
    engine = engine_class(name)(EngineOptions())
    assert all(callable(getattr(engine, call)) for call in ("reserve", "start", "signal", "reap", "close"))
