"""The functions of ``tf.test`` and ``tensorflow.python.framework.test_util`` besides assertions."""

from __future__ import annotations

import functools
import os
import socket
import sys
import unittest
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from tfmini.cluster import ClusterSpec
from tfmini.compat.test_case import TestCase
from tfmini.export import export, export_names
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.graph import Graph
from tfmini.graph.scoping import device as device_scope
from tfmini.runtime.server import Server

TensorFlowTestCase = TestCase


def _free_ports(count: int) -> list[int]:
    """Different free ports of this machine: all sockets stay open until the last port is found."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("localhost", 0))
        return [one.getsockname()[1] for one in sockets]


@export("tf.test.create_local_cluster")
def create_local_cluster(
    num_workers: int, num_ps: int, protocol: str = "grpc", worker_config: Any = None, ps_config: Any = None
) -> tuple[list[Server], list[Server]]:
    """A cluster of servers in this process (``tf.test.create_local_cluster``).

    Args:
      num_workers, num_ps: the number of tasks of the jobs ``worker`` and ``ps``.
      protocol: as for `tf.train.Server`.
      worker_config, ps_config: ConfigProtos.

    Returns:
      (servers of the workers, servers of the ps), started.
    """
    ports = _free_ports(num_workers + num_ps)
    addresses = [f"localhost:{port}" for port in ports]
    spec = ClusterSpec({"worker": addresses[:num_workers], "ps": addresses[num_workers:]})
    workers = [Server(spec, "worker", i, protocol, worker_config) for i in range(num_workers)]
    return workers, [Server(spec, "ps", i, protocol, ps_config) for i in range(num_ps)]


@export("tf.test.is_gpu_available")
def is_gpu_available(cuda_only: bool = False, min_cuda_compute_capability: Any = None) -> bool:
    """False: the devices are CPUs (``tf.test.is_gpu_available``)."""
    return False


@export("tf.test.is_built_with_cuda")
def is_built_with_cuda() -> bool:
    """False: the devices are CPUs (``tf.test.is_built_with_cuda``)."""
    return False


is_built_with_rocm = is_built_with_gpu_support = is_built_with_cuda


@export("tf.test.gpu_device_name")
def gpu_device_name() -> str:
    """ "": there is no GPU (``tf.test.gpu_device_name``)."""
    return ""


@export("tf.test.test_src_dir_path")
def test_src_dir_path(relative_path: str = "") -> str:
    """A path in the directory of the running script (``tf.test.test_src_dir_path``)."""
    return os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), relative_path)


vars(test_src_dir_path)["__test__"] = False  # else pytest would collect it


@export("tf.test.benchmark_config")
def benchmark_config() -> Any:
    """A ConfigProto for measurements (``tf.test.benchmark_config``)."""
    from tfmini.protos import ConfigProto  # `import tfmini` must not import protobuf

    return ConfigProto()


def assert_ops_in_graph(expected_ops: dict[str, str], graph: Graph) -> dict[str, Any]:
    """Checks that ops exist: ``expected_ops`` is name -> type. Returns the NodeDefs by name.

    Raises:
      ValueError: when an op is missing or has another type.
    """
    nodes = {node.name: node for node in graph.as_graph_def().node}
    for name, kind in expected_ops.items():
        if name not in nodes:
            raise ValueError(f"Expected op {name} is missing from the graph.")
        if nodes[name].op != kind:
            raise ValueError(f"Expected op for node {name} is different. {nodes[name].op} vs {kind}")
    return {name: nodes[name] for name in expected_ops}


@export("tf.test.assert_equal_graph_def")
def assert_equal_graph_def(
    actual: Any, expected: Any, checkpoint_v2: bool = False, hash_table_shared_name: bool = False
) -> None:
    """Raises AssertionError unless two GraphDefs have the same nodes, in any order."""
    wanted, found = ({node.name: node for node in one.node} for one in (expected, actual))
    if set(wanted) != set(found):
        only = sorted(set(found) - set(wanted)), sorted(set(wanted) - set(found))
        raise AssertionError(f"Nodes only in the actual graph: {only[0]}; only in the expected: {only[1]}")
    for name, node in wanted.items():
        if node != found[name]:
            raise AssertionError(f"Node {name} differs:\n{found[name]}\nexpected:\n{node}")


@contextmanager
def device(use_gpu: bool) -> Iterator[None]:
    """A device scope for the CPU, or without a device if a GPU may be used."""
    with device_scope(None if use_gpu else "/device:CPU:0"):
        yield


def use_gpu() -> Any:
    return device(use_gpu=True)


force_gpu = use_gpu


def force_cpu() -> Any:
    return device_scope("/device:CPU:0")


def _in_graph(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(self: Any, *args: object, **kwargs: Any) -> Any:
        with self.test_session(graph=get_default_graph()):
            return function(self, *args, **kwargs)

    return run


def run_in_graph_and_eager_modes(func: Any = None, *_: object, **__: object) -> Any:
    """Runs a test in a session of the default graph; there is no eager mode."""
    return _in_graph if func is None else _in_graph(func)


def _undecorated(func: Any = None, *_: object, **__: object) -> Any:
    return func if callable(func) else _undecorated


run_deprecated_v1 = deprecated_graph_mode_only = build_as_function_and_v1_graph = _undecorated


def run_v1_only(reason: str, func: Any = None) -> Any:
    """Returns the test unchanged, since tfmini has only the behaviour of 1.x."""
    return _undecorated if func is None else func


def _skipped(reason: str) -> Callable[..., Any]:
    def decorator(func: Any = None, *_: object, **__: object) -> Any:
        return unittest.skip(reason)(func) if callable(func) else decorator

    return decorator


run_v2_only = _skipped("tfmini follows TensorFlow 1.x")
run_gpu_only = run_cuda_only = _skipped("there is no GPU")


def run_all_in_graph_and_eager_modes(cls: Any) -> Any:
    """Applies `run_in_graph_and_eager_modes` to every test of a class."""
    for name, value in list(vars(cls).items()):
        if callable(value) and name.startswith("test") and name != "test_session":
            setattr(cls, name, _in_graph(value))
    return cls


# contrib.eager.python.tfe
run_all_tests_in_graph_and_eager_modes = run_all_in_graph_and_eager_modes
run_test_in_graph_and_eager_modes = run_in_graph_and_eager_modes

export_names("tf.test", "is_built_with_gpu_support is_built_with_rocm")
