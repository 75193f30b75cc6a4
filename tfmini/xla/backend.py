"""The kinds of devices that compile by JAX, and which devices this process has.

This module imports JAX when a device of this process is looked for or used, and not before: a master may place ops on
GPUs of other tasks without it.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from tfmini import errors
from tfmini.devices import parse
from tfmini.graph.device_types import FAKE_ENV, DeviceWishes, LocalDevice, may_have
from tfmini.graph.lowering import lacks
from tfmini.graph.node import Node
from tfmini.library_log import library_logger

_PRIORITIES = {"GPU": 210, "TPU": 200, "XLA_CPU": 50}
_PLATFORMS = {"GPU": ("cuda", "rocm"), "TPU": ("tpu",)}
_FAKE_MEMORY = 1 << 30


def _numbers(text: str) -> tuple[int, ...] | None:
    if not text.strip():
        return None
    try:
        found = tuple(int(word) for word in text.split(","))
    except ValueError:
        raise errors.InvalidArgumentError.of(
            f"Could not parse entry in 'visible_device_list': '{text}'. It lists numbers of GPUs: '0,2'."
        ) from None
    if len(set(found)) != len(found):
        raise errors.InvalidArgumentError.of(f"visible_device_list contains a duplicate: '{text}'")
    return found


# ---- which devices there are ---------------------------------------------------------------------------------------


def local_devices(wishes: DeviceWishes) -> list[LocalDevice]:
    """See `graph.device_types.local_devices`."""
    found: list[LocalDevice] = []
    counts = dict(wishes.counts)
    if counts.get("GPU", 1):
        found += _gpus(wishes)
    if counts.get("TPU", 1) and may_have("TPU"):
        found += _real("TPU", wishes)
    for index in range(counts.get("XLA_CPU", 0)):
        _need_jax("XLA_CPU")
        found.append(LocalDevice("XLA_CPU", index, index, _FAKE_MEMORY, "device: XLA_CPU device"))
    for device in found:  # the latest word counts: all sessions of a process see the same
        _numbers_of[f"{device.device_type}:{device.index}"] = device.number
    return found


def fake_gpus() -> int:
    """The number in `FAKE_ENV`, 0 without it.

    Raises:
      InvalidArgumentError: it is no number.
    """
    text = os.environ.get(FAKE_ENV, "") or "0"
    if not text.isdigit():
        raise errors.InvalidArgumentError.of(f"{FAKE_ENV} must be a number of GPUs, not {text!r}.")
    return int(text)


def _gpus(wishes: DeviceWishes) -> list[LocalDevice]:
    count = fake_gpus()
    if count:
        _need_jax("GPU")
        all_numbers = _not_hidden(count)
        description = "device: fake, name: XLA on the CPU (TFMINI_FAKE_GPUS)"
        numbers = _visible(wishes, all_numbers)
        return [LocalDevice("GPU", i, n, _FAKE_MEMORY, description) for i, n in enumerate(numbers)]
    return _real("GPU", wishes) if may_have("GPU") else []


def _not_hidden(count: int) -> list[int]:
    """The numbers of fake GPUs that CUDA_VISIBLE_DEVICES leaves; CUDA itself does so with real ones."""
    text = os.environ.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return list(range(count))
    chosen: list[int] = []
    for word in text.split(","):
        if not word.strip().isdigit() or int(word) >= count:  # as CUDA: what follows does not count
            break
        chosen.append(int(word))
    return chosen


def _visible(wishes: DeviceWishes, numbers: list[int]) -> list[int]:
    visible = _numbers(wishes.visible)
    if visible is not None:
        for number in visible:
            if not 0 <= number < len(numbers):
                raise errors.InvalidArgumentError.of(
                    f"'visible_device_list' listed an invalid GPU id '{number}' but visible device count is"
                    f" {len(numbers)}"
                )
        numbers = [numbers[i] for i in visible]
    return numbers[: dict(wishes.counts).get("GPU", len(numbers))]


def _real(kind: str, wishes: DeviceWishes) -> list[LocalDevice]:
    if importlib.util.find_spec("jax") is None:
        return []
    _set_memory(wishes)
    devices = _jax_devices(kind)
    numbers = _visible(wishes, list(range(len(devices)))) if kind == "GPU" else list(range(len(devices)))
    return [
        LocalDevice(kind, i, n, _memory(devices[n]), f"device: {n}, name: {devices[n].device_kind}")
        for i, n in enumerate(numbers)
    ]


def _set_memory(wishes: DeviceWishes) -> None:
    """Tells JAX how to take memory, unless the user has told it."""
    if wishes.allow_growth:
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    if wishes.fraction:
        os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", f"{wishes.fraction:.3f}")


def _jax_devices(kind: str) -> list[Any]:
    """JAX's devices of a kind; none, with a line in the log, where its backend cannot start."""
    import jax

    for platform in _PLATFORMS[kind]:
        try:
            return list(jax.devices(platform))
        except RuntimeError as error:
            library_logger().debug("JAX has no %s devices: %s", platform, error)
    return []


def _memory(device: Any) -> int:
    statistics = device.memory_stats() or {}
    return int(statistics.get("bytes_limit", 0))


def _need_jax(kind: str) -> None:
    if importlib.util.find_spec("jax") is None:
        raise errors.UnimplementedError.of(
            f"A {kind} device was asked for, but JAX is not installed. Install it: pip install 'tfmini-cluster[xla]'"
            " (for NVIDIA's GPUs [cuda12] or [cuda13], for TPUs [tpu])."
        )


def why_missing(kind: str) -> str:
    """See `graph.device_types.why_missing`."""
    if kind == "XLA_CPU":
        return "A session or server has an XLA_CPU if its ConfigProto has device_count={'XLA_CPU': 1}."
    if kind == "TPU":
        return "JAX sees no TPU here; the extra [tpu] of tfmini-cluster brings its library."
    return _why_no_gpu()


def _why_no_gpu() -> str:
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return "CUDA_VISIBLE_DEVICES hides all GPUs."
    if importlib.util.find_spec("jax") is None:
        return "JAX is not installed: pip install 'tfmini-cluster[cuda13]' (or [cuda12]) brings it."
    if not may_have("GPU"):
        return f"This machine has no device file of a GPU (driver). For tests, {FAKE_ENV}=1 makes one on the CPU."
    if not any(importlib.util.find_spec(f"jax_cuda{version}_plugin") for version in (12, 13)):
        return "JAX has no plugin for CUDA: install the extra [cuda12] or [cuda13] of tfmini-cluster."
    return "JAX sees no GPU; tfmini's log at level DEBUG has its reason."


# ---- JAX's devices -------------------------------------------------------------------------------------------------

_numbers_of: dict[str, int] = {}  # local name of a device, such as GPU:1 -> the number of JAX's device
_lock = threading.Lock()
_CPU_DEVICES = 16  # how many JAX gets for fake GPUs and XLA_CPU, before its first computation


def jax_device(name: str) -> Any:
    """Returns JAX's device for the full name of a device of this process.

    Raises:
      InvalidArgumentError: the process has none.
    """
    import jax

    place = parse(name)
    kind = place.device_type or ""
    number = _numbers_of.get(place.local_name, place.device_index or 0)
    if kind == "XLA_CPU" or fake_gpus():
        with _lock:
            _make_cpu_devices(jax)
        devices = jax.devices("cpu")
        return devices[number % len(devices)]
    devices = _jax_devices(kind)
    if number >= len(devices):
        raise errors.InvalidArgumentError.of(f"{name} is not here: {why_missing(kind)}")
    _use_cache(jax)
    return devices[number]


def _make_cpu_devices(jax: Any) -> None:
    """Gives JAX several devices on the CPU, if it has not begun to compute."""
    if not jax._src.xla_bridge.backends_are_initialized():
        jax.config.update("jax_num_cpu_devices", max(_CPU_DEVICES, fake_gpus()))


def _use_cache(jax: Any) -> None:
    """Keeps compiled programs between processes, unless the user has chosen a folder."""
    if jax.config.jax_compilation_cache_dir is None:
        root = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        jax.config.update("jax_compilation_cache_dir", os.path.join(root, "tfmini", "xla"))


# ---- the kinds -----------------------------------------------------------------------------------------------------


class XlaType:
    """A kind of device whose ops XLA compiles: the `DeviceType` of GPU, TPU and XLA_CPU."""

    compiles = True

    def __init__(self, name: str) -> None:
        self.name = name
        self.priority = _PRIORITIES[name]

    def lacks(self, node: Node) -> str | None:
        return lacks(node)

    def new_variable(self, make: Callable[..., Any], device: str, *args: Any, **kwargs: Any) -> Any:
        from tfmini.xla.variables import DeviceVariable

        return DeviceVariable(jax_device(device), *args, **kwargs)

    def to_host(self, value: Any) -> Any:
        if isinstance(value, (np.ndarray, np.generic)) or not hasattr(value, "addressable_data"):
            return value
        array = np.array(value)  # a copy: a view would keep the buffer from being donated
        return array if array.ndim else array[()]

    def memory(self, device: str) -> tuple[int, int]:
        jax = sys.modules.get("jax")
        if jax is None or not jax._src.xla_bridge.backends_are_initialized():
            return 0, 0  # nothing has used it
        own = jax_device(device)
        counted = own.memory_stats()
        if counted is None:  # a CPU that stands for a device
            return sum(array.nbytes for array in jax.live_arrays() if array.devices() == {own}), 0
        return int(counted.get("bytes_in_use", 0)), int(counted.get("peak_bytes_in_use", 0))

    def compile(self, node: Any) -> Callable[..., Any]:
        from tfmini.xla.execution import CompiledStretch

        return CompiledStretch(node, jax_device(node.device))


def device_type(name: str) -> XlaType:
    """Makes a kind, for `graph.device_types`."""
    return XlaType(name)
