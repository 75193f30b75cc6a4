"""replica_device_setter and its strategies, on operations that are small fakes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.oracle import Oracle
from tests.placement import oracle_device_setter
from tfmini import dtypes
from tfmini.cluster import ClusterSpec
from tfmini.placement.device_setter import (
    GreedyLoadBalancingStrategy,
    RandomStrategy,
    byte_size_load_fn,
    replica_device_setter,
)
from tfmini.shapes import TensorShape

CLUSTER = {"ps": ["p0:1", "p1:2"], "worker": ["w0:1", "w1:2", "w2:3"]}


@dataclass
class FakeTensor:
    shape: TensorShape
    dtype: Any = dtypes.float32

    def get_shape(self) -> TensorShape:
        return self.shape


@dataclass
class FakeOp:
    type: str = "VariableV2"
    device: str = ""
    name: str = "v"
    outputs: list[FakeTensor] = field(default_factory=list)
    attrs: dict[str, Any] = field(default_factory=dict)

    def get_attr(self, name: str) -> Any:
        return self.attrs[name]


def variable(*dims: int | None, dtype: Any = dtypes.float32) -> FakeOp:
    return FakeOp(outputs=[FakeTensor(TensorShape(dims), dtype)])


def placed(ops: list[tuple[str, str]], **arguments: Any) -> list[str]:
    function = replica_device_setter(**arguments)
    assert function is not None
    return [function(FakeOp(op, device, f"n{number}")) for number, (op, device) in enumerate(ops)]


def test_a_cluster_in_the_place_of_the_number_of_tasks_is_refused() -> None:
    with pytest.raises(TypeError, match="ps_tasks must be the number of ps tasks, got ClusterSpec. .* cluster=…"):
        replica_device_setter(ClusterSpec(CLUSTER))  # type: ignore[arg-type]


def test_variables_alternate_and_the_rest_goes_to_the_worker() -> None:
    ops = [("VariableV2", ""), ("Const", ""), ("VarHandleOp", ""), ("Assign", "/cpu:0"), ("Variable", "")]
    assert placed(ops, cluster=CLUSTER, worker_device="/job:worker/task:1") == [
        "/job:ps/task:0",
        "/job:worker/task:1",
        "/job:ps/task:1",
        "/job:worker/task:1/device:CPU:0",
        "/job:ps/task:0",
    ]


def test_a_device_of_an_inner_scope_is_kept() -> None:
    ops = [
        ("VariableV2", ""),
        ("VariableV2", "/cpu:0"),
        ("VariableV2", "/job:worker/task:2"),  # another job: no turn
        ("VariableV2", "/job:ps/task:9"),  # the task is kept, but the turn is taken
        ("VariableV2", ""),
    ]
    assert placed(ops, ps_tasks=2) == [
        "/job:ps/task:0",
        "/job:ps/task:1/device:CPU:0",
        "/job:worker/task:2",
        "/job:ps/task:9",
        "/job:ps/task:1",
    ]


def test_queues_and_ref_accumulators_are_not_ps_ops() -> None:
    ops = [("FIFOQueueV2", ""), ("ConditionalAccumulator", ""), ("ResourceConditionalAccumulator", "")]
    assert placed(ops, ps_tasks=1) == ["/job:worker", "/job:worker", "/job:ps/task:0"]


def test_ps_ops_and_strategy_can_be_given() -> None:
    assert placed([("MyTable", ""), ("Variable", "")], ps_tasks=2, ps_ops=["MyTable"]) == [
        "/job:ps/task:0",
        "/job:worker",
    ]
    assert placed([("Variable", "")], ps_tasks=3, ps_strategy=lambda op: 2) == ["/job:ps/task:2"]
    with pytest.raises(TypeError, match="ps_strategy must be callable"):
        replica_device_setter(ps_tasks=1, ps_strategy=3)  # type: ignore[arg-type]


def test_empty_devices_are_allowed() -> None:
    ops = [("Variable", ""), ("Const", "")]
    assert placed(ops, ps_tasks=1, worker_device="") == ["/job:ps/task:0", ""]
    assert placed(ops, ps_tasks=1, ps_device="") == ["/job:worker", "/job:worker"]
    assert placed(ops, ps_tasks=1, ps_device="/cpu:0") == ["/device:CPU:0", "/job:worker"]


def test_without_ps_there_is_no_function() -> None:
    assert replica_device_setter() is None
    assert replica_device_setter(cluster={"worker": ["w:1"]}, ps_tasks=3) is None
    assert replica_device_setter(cluster={"ps": []}) is None


@pytest.mark.parametrize(
    "cluster",
    [CLUSTER, ClusterSpec(CLUSTER), ClusterSpec(CLUSTER).as_cluster_def(), {"ps": {3: "a:1", 5: "b:1"}}],
)
def test_every_form_of_cluster_counts_ps_tasks(cluster: Any) -> None:
    ops = [("Variable", "")] * 3
    assert placed(ops, cluster=cluster) == ["/job:ps/task:0", "/job:ps/task:1", "/job:ps/task:0"]


def test_wrong_clusters_and_devices_are_refused() -> None:
    with pytest.raises(TypeError, match="`cluster` must be a dictionary"):
        replica_device_setter(cluster=["ps:1"])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Unknown attribute: 'jobs'"):
        replica_device_setter(ps_tasks=1, worker_device="/jobs:worker")


def test_without_merging_a_set_device_is_returned(caplog: pytest.LogCaptureFixture) -> None:
    ops = [("Variable", "/cpu:0"), ("Variable", ""), ("Const", "/gpu:0")]
    assert placed(ops, ps_tasks=2, merge_devices=False) == ["/cpu:0", "/job:ps/task:0", "/gpu:0"]
    assert "DEPRECATION" in caplog.text


def test_the_greedy_strategy_balances_bytes() -> None:
    strategy = GreedyLoadBalancingStrategy(2, byte_size_load_fn)
    sizes = [(100, 10), (5,), (5,), (500,), (1,)]
    assert [strategy(variable(*size)) for size in sizes] == [0, 1, 1, 1, 1]
    function = replica_device_setter(ps_tasks=2, ps_strategy=GreedyLoadBalancingStrategy(2, byte_size_load_fn))
    assert function is not None
    assert [function(variable(n)) for n in (2, 1, 1, 1)] == [f"/job:ps/task:{t}" for t in (0, 1, 1, 0)]


def test_the_size_of_a_variable_is_that_of_its_elements() -> None:
    assert byte_size_load_fn(variable(3, 4, dtype=dtypes.float64)) == 96
    assert byte_size_load_fn(variable()) == 4
    not_yet = FakeOp(outputs=[FakeTensor(TensorShape(None))], attrs={"shape": [2, 3]})
    assert byte_size_load_fn(not_yet) == 24
    with pytest.raises(ValueError, match="must have a single output"):
        byte_size_load_fn(FakeOp())
    with pytest.raises(ValueError, match="not fully defined"):
        byte_size_load_fn(FakeOp(outputs=[FakeTensor(TensorShape(None))], attrs={"shape": [None, 3]}))


def test_random_strategy_is_a_function_of_name_and_seed() -> None:
    names = ["w", "b", "layer/kernel", "ü"]
    # From TensorFlow's rule, int(md5(name_seed)) mod n, computed apart.
    assert [RandomStrategy(7)(FakeOp(name=name)) for name in names] == [4, 3, 5, 1]
    assert [RandomStrategy(7, seed=1)(FakeOp(name=name)) for name in names] == [6, 6, 5, 5]


@pytest.mark.oracle
def test_tensorflow_agrees(oracle: Oracle) -> None:
    devices = ["", "/cpu:0", "/job:ps", "/job:ps/task:9", "/job:worker/task:2", "/job:x/gpu:1", "/task:1"]
    kinds = ["VariableV2", "VarHandleOp", "Const", "FIFOQueueV2", "MutableHashTableV2", "Assign"]
    ops = [(kind, device) for device in devices for kind in kinds]
    cases: list[dict[str, Any]] = [
        {},
        {"ps_tasks": 3},
        {"cluster": CLUSTER},
        {"cluster": {"worker": ["w:1"]}},
        {"ps_tasks": 2, "ps_device": "/job:ps/cpu:0", "worker_device": "/job:worker/task:0/gpu:0"},
        {"ps_tasks": 2, "ps_device": "/cpu:0", "worker_device": ""},
        {"ps_tasks": 2, "ps_device": "", "ps_ops": ["Const"]},
        {"ps_tasks": 2, "merge_devices": False, "ps_ops": ["Const", "Assign"]},
    ]
    answers = oracle.call(oracle_device_setter.placements, cases, ops)
    for arguments, theirs in zip(cases, answers, strict=True):
        has_function = replica_device_setter(**arguments) is not None
        assert (placed(ops, **arguments) if has_function else None) == theirs, arguments
