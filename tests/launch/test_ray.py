"""What tfmini asks of Ray, without Ray."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tfmini.launch import ray
from tfmini.launch.engine import EngineError, EngineOptions, Resources


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(EngineError, match=r"--on ray needs the package ray: pip install 'tfmini-cluster\[ray\]'"):
        ray.run(lambda: None)


def test_resources_become_a_bundle() -> None:
    assert ray.bundle(Resources()) == {"CPU": 1}
    assert ray.bundle(Resources(4, 2, 1)) == {"CPU": 4, "memory": 2 << 20, "GPU": 1}


def test_tasks_get_the_variables_of_tfmini_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TFMINI_LANE", "off")
    secret = ("SECRET", "TFMINI_DASHBOARD_TOKEN", "TFMINI_AGENT", "TFMINI_AGENT_LIFELINE", "TFMINI_LISTEN_FD")
    for name in secret:
        monkeypatch.setenv(name, "x")
    found = ray.environment()
    assert found["TFMINI_LANE"] == "off" and not found.keys() & set(secret)


def test_a_cluster_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**options: Any) -> None:
        raise ConnectionError(f"nobody at {options['address']}")

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False, init=init))
    with pytest.raises(EngineError, match="There is no Ray cluster at a:1: nobody at a:1. Start one by `ray start"):
        ray.run(lambda: None, address="a:1")
    ray.RayEngine(EngineOptions(address="a:1"))  # asks nobody yet
