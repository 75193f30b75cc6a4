"""Which devices a process has, by options and environment; and what a program of the user sees of them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest

import tfmini as tf
from tfmini.compat.internal_names import list_local_devices
from tfmini.graph.device_types import FAKE_ENV, why_missing

pytest.importorskip("jax")


@pytest.fixture(autouse=True)
def _fake_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FAKE_ENV, "3")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def names(**options: Any) -> list[str]:
    with tf.Session(config=tf.ConfigProto(**options)) as session:
        return [device.name.rpartition("device:")[2] for device in session.list_devices()]


def test_fake_gpus_are_listed_after_the_cpu() -> None:
    assert names() == ["CPU:0", "GPU:0", "GPU:1", "GPU:2"]
    assert names(device_count={"GPU": 0}) == ["CPU:0"]
    assert names(device_count={"GPU": 2, "CPU": 2}) == ["CPU:0", "CPU:1", "GPU:0", "GPU:1"]
    assert names(device_count={"GPU": 0, "XLA_CPU": 1}) == ["CPU:0", "XLA_CPU:0"]


def test_visible_devices_are_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    assert names(gpu_options=tf.GPUOptions(visible_device_list="2,0")) == ["CPU:0", "GPU:0", "GPU:1"]
    for text, message in (
        ("3", "invalid GPU id '3' but visible device count is 3"),
        ("0,0", "duplicate"),
        ("x", "parse"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            names(gpu_options=tf.GPUOptions(visible_device_list=text))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert names() == ["CPU:0", "GPU:0"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert names() == ["CPU:0"] and not tf.test.is_gpu_available() and not tf.test.gpu_device_name()


def test_programs_see_the_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tf.test.is_gpu_available() and tf.test.gpu_device_name() == "/device:GPU:0"
    found = list_local_devices(tf.ConfigProto(device_count={"GPU": 1}))
    assert [device.name for device in found] == ["/device:CPU:0", "/device:GPU:0"]
    assert "XLA on the CPU" in found[1].physical_device_desc
    monkeypatch.setenv(FAKE_ENV, "many")
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be a number of GPUs, not 'many'"):
        names()


def test_a_missing_gpu_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FAKE_ENV)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with tf.Graph().as_default(), tf.device("/gpu:0"):
        x = tf.constant(1.0) + 1
        with pytest.raises(tf.errors.InvalidArgumentError, match="CUDA_VISIBLE_DEVICES hides all GPUs"):
            tf.Session().run(x)


def test_a_device_without_jax_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "jax" else find(name, *rest))
    with pytest.raises(tf.errors.UnimplementedError, match=r"pip install 'tfmini-cluster\[xla\]'"):
        names()
    monkeypatch.delenv(FAKE_ENV)
    assert "JAX is not installed" in why_missing("GPU")
    with pytest.raises(tf.errors.UnimplementedError, match="A XLA_CPU device was asked for"):
        names(device_count={"XLA_CPU": 1})


def test_ops_without_numbers_or_lowering_are_refused_on_a_gpu() -> None:
    with tf.Graph().as_default(), tf.device("/gpu:0"):
        text = tf.identity(tf.constant(["a"]), name="text")
        with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="it has no numbers: string"):
            session.run(text)
    with tf.Graph().as_default(), tf.device("/gpu:0"):
        root = tf.raw_ops.MatrixSquareRoot(input=tf.eye(2) * 4, name="root")
        with tf.Session() as session, pytest.raises(tf.errors.InvalidArgumentError, match="it has no lowering"):
            session.run(root)
        with tf.Session(config=tf.ConfigProto(allow_soft_placement=True)) as session:
            np.testing.assert_allclose(session.run(root), np.eye(2) * 2)


def test_unplaced_ops_go_to_the_gpu_if_they_can() -> None:
    with tf.Graph().as_default():
        text = tf.constant("a") + "b"
        product = tf.matmul(tf.ones([2, 2]), tf.ones([2, 2]))
        metadata = tf.RunMetadata()
        with tf.Session() as session:
            options = tf.RunOptions(output_partition_graphs=True)
            assert session.run([text, product], options=options, run_metadata=metadata)[0] == b"ab"
    places = {node.op: node.device[-5:] for graph in metadata.partition_graphs for node in graph.node}
    assert (places["MatMul"], places["Add"]) == ("GPU:0", "CPU:0")


def test_xla_cpu_gets_only_what_asks_for_it() -> None:
    config = tf.ConfigProto(device_count={"GPU": 0, "XLA_CPU": 1})
    with tf.Graph().as_default():
        with tf.device("/device:XLA_CPU:0"):
            asked = tf.constant([1.0, 2.0]) * 3
        other = tf.constant([1.0]) * 2
        with tf.Session(config=config) as session:
            metadata = tf.RunMetadata()
            options = tf.RunOptions(output_partition_graphs=True)
            found = session.run([asked, other], options=options, run_metadata=metadata)
            assert [value.tolist() for value in found] == [[3.0, 6.0], [2.0]]
    assert {n.device[-9:] for g in metadata.partition_graphs for n in g.node if n.op == "Mul"} == {
        "XLA_CPU:0",
        "ice:CPU:0",
    }


def test_a_process_without_such_devices_imports_nothing_of_them() -> None:
    program = """
        import sys, tfmini as tf
        assert tf.Session(config=tf.ConfigProto(device_count={"GPU": 0, "TPU": 0})).run(tf.constant(1.0) + 1) == 2
        ours = {"tfmini.runtime.compiler.lowering", "tfmini.graph.lowering"}
        ours |= {"tfmini.xla", "tfmini.xla.experimental"}  # the public namespace, tf.xla
        found = {n for n in sys.modules if n.partition(".")[0] == "jax" or "tfmini.xla" in n or n.endswith(".lowering")}
        assert found <= ours, found
    """
    env = {"PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
