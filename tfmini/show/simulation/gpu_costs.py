"""What ops on a GPU cost in a simulated step: their kernels there, and the copies between the GPU and its host.

The simulated servers have CPUs only, so ops on a GPU run in their task's thread and take these times. That thread would
wait for the GPU at the next send anyway. Several tasks on one machine do not slow down each other's GPU.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tfmini.devices import parse, task_of_device
from tfmini.show.inspection.findings import Inspection
from tfmini.show.simulation.profile import KernelCosts, Machine, class_of


def gpu_count(machine: Machine) -> int:
    """How many GPUs each task but ps has: the argument ``gpus`` of `tfmini.inspect`."""
    return int(machine.gpu is not None)


def on_host(device: str) -> str:
    """The CPU of the task of a device; full names."""
    return f"{task_of_device(device)}/device:CPU:0"


def without_gpu(found: Inspection) -> list[str]:
    """The ops of the step that ask for a GPU and are on none, but for groups, which compute nothing."""
    step = found.partitions.step.nodes
    own = (node for name, node in found.nodes.items() if name in step and node.op != "NoOp")
    return [node.name for node in own if _is_gpu(node.device) and not _is_gpu(found.placement[node.name].device)]


def gpu_seconds(found: Inspection, machine: Machine) -> Mapping[str, float]:
    """Op -> seconds, for the ops of the step that are on a GPU. Empty if the machine has none."""
    gpu = machine.gpu
    if gpu is None:
        return {}
    kernels = KernelCosts(replace(machine, kernels=gpu.kernels), found.nodes, found.shapes, {})
    seconds: dict[str, float] = defaultdict(float)
    for name in found.partitions.step.nodes:
        if name in found.nodes and _is_gpu(found.placement[name].device):
            node = found.nodes[name]
            # XLA makes a view of a view, and a constant is part of the program.
            seconds[name] = 0.0 if class_of(node) == "view" or node.op == "Const" else kernels.seconds(node)
    for name, nbytes in _copies(found):
        seconds[name] += gpu.copy_s + nbytes / gpu.copy_bytes_per_s
    return seconds


def _copies(found: Inspection) -> Iterator[tuple[str, int]]:
    """For each value that passes between a GPU and a host: an op of that GPU that makes or takes it, and its bytes.

    A value that goes to several tasks is copied to the host once.
    """
    copied = set[tuple[str, str]]()
    for transfer in found.transfers:
        if transfer.control:
            continue
        if _is_gpu(transfer.src) and (copy := (transfer.tensor, transfer.src)) not in copied:
            copied.add(copy)
            yield transfer.producer, transfer.bytes or 0
        takers = [op for op in transfer.consumers if op in found.nodes]
        if _is_gpu(transfer.dst) and takers:
            yield takers[0], transfer.bytes or 0


def _is_gpu(device: str) -> bool:
    return bool(device) and parse(device).device_type == "GPU"
