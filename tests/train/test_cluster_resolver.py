"""Cluster resolvers: the tasks they name and the master they choose."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from tfmini.cluster import ClusterSpec
from tfmini.train.cluster_resolver import (
    KubernetesClusterResolver,
    SimpleClusterResolver,
    TFConfigClusterResolver,
    UnionClusterResolver,
)

WORKERS = ClusterSpec({"worker": ["w0:1", "w1:1"]})


def test_simple_resolver_puts_the_scheme_before_the_address_of_a_task() -> None:
    resolver = SimpleClusterResolver(WORKERS, rpc_layer="grpc")
    assert resolver.master("worker", 1) == "grpc://w1:1"
    assert resolver.num_accelerators() == {}


def test_simple_resolver_refuses_other_descriptions() -> None:
    with pytest.raises(TypeError, match="must be a ClusterSpec"):
        SimpleClusterResolver({"worker": ["w0:1"]})  # type: ignore[arg-type]


def test_union_joins_lists_and_prefers_its_own_settings() -> None:
    more = SimpleClusterResolver(ClusterSpec({"worker": ["w2:1"], "ps": ["p:1"]}), task_type="ps", task_id=4)
    union = UnionClusterResolver(more, SimpleClusterResolver(WORKERS), task_id=0)
    assert union.cluster_spec().as_dict() == {"worker": ["w2:1", "w0:1", "w1:1"], "ps": ["p:1"]}
    assert (union.task_type, union.task_id) == ("ps", 0)


def test_union_refuses_a_task_that_comes_twice() -> None:
    sparse = SimpleClusterResolver(ClusterSpec({"worker": {1: "x:1"}}))
    with pytest.raises(KeyError, match="Duplicate keys"):
        UnionClusterResolver(SimpleClusterResolver(WORKERS), sparse).cluster_spec()


def test_tf_config_is_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    resolver = TFConfigClusterResolver()
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert resolver.master() == ""
    config = {"cluster": WORKERS.as_dict(), "task": {"type": "worker", "index": 1}, "rpc_layer": "grpc"}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    assert resolver.master() == "grpc://w1:1"
    assert (resolver.task_type, resolver.task_id) == ("worker", 1)
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": {"worker": {"1": "w1:1"}}}))
    assert resolver.cluster_spec().as_dict() == {"worker": {1: "w1:1"}}
    monkeypatch.setenv("TF_CONFIG", "{cluster")
    with pytest.raises(ValueError, match="TF_CONFIG is not valid JSON"):
        resolver.master()


def test_kubernetes_pods_are_ordered_by_name() -> None:
    def pod(name: str, phase: str = "Running") -> Any:
        return SimpleNamespace(
            metadata=SimpleNamespace(name=name), status=SimpleNamespace(phase=phase, host_ip="ip-" + name)
        )

    pods = [pod("b"), pod("a")]
    client = SimpleNamespace(list_pod_for_all_namespaces=lambda label_selector: SimpleNamespace(items=pods))
    resolver = KubernetesClusterResolver(tf_server_port=7, override_client=client)
    assert resolver.cluster_spec().as_dict() == {"worker": ["ip-a:7", "ip-b:7"]}
    pods.append(pod("c", "Failed"))
    with pytest.raises(RuntimeError, match='Pod "c" is not running; phase: "Failed"'):
        resolver.cluster_spec()


def test_a_local_session_has_no_accelerators() -> None:
    assert TFConfigClusterResolver().num_accelerators() == {}


@pytest.mark.parametrize("text", ["[" * 3000, '{"task": 3}', '{"task": {"index": []}}', '{"task": {"index": "x"}}'])
def test_a_hostile_tf_config_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(ValueError, match="TF_CONFIG"):
        _ = TFConfigClusterResolver().task_id


def test_the_task_must_be_known_to_choose_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["a:1", "b:2"]}}')
    with pytest.raises(ValueError, match="must say which task this is"):
        TFConfigClusterResolver().master()
