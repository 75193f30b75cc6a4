"""Simulated steps of tasks with a GPU, whose curves come from the profile. No JAX is needed."""

from __future__ import annotations

import tomllib

import pytest

import tfmini as tf
from tests.show.simulation.profiles import TEXT, plain
from tfmini.show.inspection.findings import Inspection
from tfmini.show.simulation.gpu_costs import gpu_seconds, without_gpu
from tfmini.show.simulation.prediction import Topology
from tfmini.show.simulation.predictor import StepModel, tasks_of
from tfmini.show.simulation.profile import Profile, format_profile, parse_profile

GPU = """
[machines.plain.gpu]
copy_us = 10
copy_gbit_per_s = 8

[machines.plain.gpu.kernels]
matmul = [[1000, 1], [1000000, 5]]
elementwise = [[64, 2], [1000000000, 3]]
"""
SIDE, FLOATS = 1_000, 1_000_000


def _profile(text: str = TEXT + GPU) -> Profile:
    return parse_profile(tomllib.loads(text))


def _found(worker_device: str, gpus: int) -> Inspection:
    """A worker's step: a product with a weight of a ps, and the text of its largest element."""
    with tf.Graph().as_default() as graph, tf.device(tf.train.replica_device_setter(1, worker_device=worker_device)):
        w = tf.get_variable("w", [SIDE, SIDE])
        product = tf.matmul(tf.placeholder(tf.float32, [SIDE, SIDE], name="x"), w, name="product")
        text = tf.as_string(tf.reduce_max(product, name="largest"), name="text")
    return tf.inspect(graph, ps=1, workers=1, fetches=text, gpus=gpus)


def _seconds(found: Inspection, profile: Profile) -> float:
    return StepModel(found, Topology.of(tasks_of(found), profile, "8Gbit"), profile).predict().step_s


def test_a_gpu_survives_the_file_of_its_profile() -> None:
    profile = _profile()
    assert profile.machine.gpu is not None and profile.machine.gpu.copy_bytes_per_s == 1e9
    assert parse_profile(tomllib.loads(format_profile(profile))) == profile != plain()
    unlimited = _profile(TEXT + GPU.replace("copy_gbit_per_s = 8", ""))
    assert parse_profile(tomllib.loads(format_profile(unlimited))) == unlimited
    with pytest.raises(ValueError, match=r"machines.plain.gpu has the unknown field 'copy'"):
        _profile(TEXT + GPU.replace("copy_us", "copy"))


def test_ops_on_a_gpu_take_its_times_and_pay_for_copies() -> None:
    found = _found("/job:worker/task:0", 1)
    seconds = {op: seconds for op, seconds in gpu_seconds(found, _profile().machine).items() if seconds}
    copy_s, whole_s = 10e-6, 10e-6 + 4 * FLOATS / 1e9
    product_s = 5e-6 * (2 * SIDE**3 + 6 * 3 * 4 * FLOATS) / 1e6
    assert seconds == pytest.approx({"product": product_s + 2 * whole_s, "largest": seconds["largest"]})
    assert seconds["largest"] > copy_s  # of its output, which the host's op takes
    assert not gpu_seconds(found, plain().machine)
    assert "between devices of one task, not over the network, 4 B" in found.text()


def test_a_value_that_goes_to_several_tasks_is_copied_to_the_host_once() -> None:
    with tf.Graph().as_default() as graph:
        with tf.device("/job:worker/task:0/gpu:0"):
            product = tf.matmul(*[tf.random_uniform([SIDE, SIDE], seed=1)] * 2, name="product")
        for task in range(2):
            with tf.device(f"/job:ps/task:{task}"):
                tf.negative(product, name=f"taken_{task}")
    machine = _profile().machine
    one, both = (
        gpu_seconds(tf.inspect(graph, ps=2, workers=1, fetches=fetches, gpus=1), machine)["product"]
        for fetches in (["taken_0"], ["taken_0", "taken_1"])
    )
    assert both == one > 4 * FLOATS / 1e9


def test_a_step_takes_as_much_less_as_the_gpu_is_faster() -> None:
    on_cpu, on_gpu = _found("/job:worker/task:0", 0), _found("/job:worker/task:0", 1)
    profile = _profile()
    on_cpu_s, on_gpu_s = _seconds(on_cpu, profile), _seconds(on_gpu, profile)
    product_s = profile.machine.kernels["matmul"](2.0 * SIDE**3 + 6 * 3 * 4 * FLOATS)
    on_gpu_sum = sum(gpu_seconds(on_gpu, profile.machine).values())
    assert on_cpu_s - on_gpu_s == pytest.approx(product_s - on_gpu_sum, rel=0.05)


def test_ops_that_ask_for_an_absent_gpu_are_told() -> None:
    with tf.Graph().as_default() as graph, tf.device("/job:worker/task:0/gpu:0"):
        total = tf.reduce_sum(tf.random_uniform([4]), name="total")
        step = tf.group(total, name="step")
    found = tf.inspect(graph, ps=1, workers=1, fetches=step)
    assert "total" in without_gpu(found) and "step" not in without_gpu(found)
    assert not without_gpu(tf.inspect(graph, ps=1, workers=1, fetches=step, gpus=1))
