"""The functions of ``tf.test`` and ``tensorflow.python.framework.test_util`` besides assertions."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import itertools
import os
import sys
import unittest
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.compat.test_case import TestCase
from tfmini.core_types import ShapeLike, TensorLike
from tfmini.export import export, export_names
from tfmini.graph.conversion import IndexedSlices, convert_to_tensor
from tfmini.graph.device_types import FAKE_ENV, DeviceWishes, LocalDevice, local_devices
from tfmini.graph.graph import Graph
from tfmini.graph.operation import Tensor
from tfmini.graph.scopes import get_default_session
from tfmini.graph.scoping import device as device_scope
from tfmini.ops.array.constant import constant
from tfmini.ops.array.identity import identity, placeholder
from tfmini.ops.gradients import gradients
from tfmini.protos import ConfigProto, GraphDef

TensorFlowTestCase = TestCase


@export("tf.test.is_gpu_available")
def is_gpu_available(cuda_only: bool = False, min_cuda_compute_capability: object = None) -> bool:
    """Whether this process has a GPU (``tf.test.is_gpu_available``); a fake one counts (``TFMINI_FAKE_GPUS``)."""
    return bool(_gpus())


def _gpus() -> list[LocalDevice]:
    return [device for device in local_devices(DeviceWishes()) if device.device_type == "GPU"]


@export("tf.test.is_built_with_cuda")
def is_built_with_cuda() -> bool:
    """Whether JAX is installed with its plugin for CUDA (``tf.test.is_built_with_cuda``), or GPUs are fake."""
    plugins = ("jax_cuda12_plugin", "jax_cuda13_plugin")
    return bool(os.environ.get(FAKE_ENV)) or any(importlib.util.find_spec(plugin) is not None for plugin in plugins)


is_built_with_rocm = is_built_with_gpu_support = is_built_with_cuda


@export("tf.test.gpu_device_name")
def gpu_device_name() -> str:
    """The name of the first GPU, "" without one (``tf.test.gpu_device_name``)."""
    return "/device:GPU:0" if _gpus() else ""


@export("tf.test.test_src_dir_path")
def test_src_dir_path(relative_path: str = "") -> str:
    """A path in the directory of the running script (``tf.test.test_src_dir_path``)."""
    return os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), relative_path)


vars(test_src_dir_path)["__test__"] = False  # else pytest would collect it


@export("tensorflow.python.ops.spectral_ops_test_util.fft_kernel_label_map")
def fft_kernel_label_map() -> AbstractContextManager[None]:
    """A block whose Fourier transforms run by the one kernel that there is."""
    return contextlib.nullcontext()


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
    actual: GraphDef, expected: GraphDef, checkpoint_v2: bool = False, hash_table_shared_name: bool = False
) -> None:
    """Raises AssertionError unless two GraphDefs have the same nodes, in any order."""
    wanted, found = ({node.name: node for node in one.node} for one in (expected, actual))
    if set(wanted) != set(found):
        only = sorted(set(found) - set(wanted)), sorted(set(wanted) - set(found))
        raise AssertionError(f"Nodes only in the actual graph: {only[0]}; only in the expected: {only[1]}")
    for name, node in wanted.items():
        if node != found[name]:
            raise AssertionError(f"Node {name} differs:\n{found[name]}\nexpected:\n{node}")


def device(use_gpu: bool) -> AbstractContextManager[None]:
    """A device scope for the first GPU if one may be used and is there, else for the CPU."""
    return device_scope((use_gpu and gpu_device_name()) or "/device:CPU:0")


def use_gpu() -> AbstractContextManager[None]:
    return device(use_gpu=True)


def force_gpu() -> AbstractContextManager[None]:
    return device_scope("/device:GPU:0")


def force_cpu() -> AbstractContextManager[None]:
    return device_scope("/device:CPU:0")


def run_in_graph_and_eager_modes(
    func: Callable[..., Any] | None = None, config: ConfigProto | None = None, use_gpu: bool = True, **_: object
) -> Any:
    """Runs a test in its cached session, whose ops request no device with ``use_gpu``; there is no eager mode."""

    def decorator(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def run(self: Any, *args: object, **kwargs: object) -> Any:
            with self.test_session(use_gpu=use_gpu, config=config):
                return function(self, *args, **kwargs)

        return run

    return decorator if func is None else decorator(func)


def _undecorated(func: Callable[..., Any] | None = None, *_: object, **__: object) -> Any:
    return func if callable(func) else _undecorated


run_deprecated_v1 = deprecated_graph_mode_only = build_as_function_and_v1_graph = _undecorated
disable_cudnn_autotune = use_deterministic_cudnn = also_run_as_tf_function = _undecorated
with_control_flow_v2 = enable_control_flow_v2 = _undecorated


def disable_xla(description: str) -> Callable[..., Any]:
    """Returns a decorator that leaves a test unchanged: XLA runs no test here."""
    return _undecorated


def for_all_test_methods(decorator: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[[type], type]:
    """A decorator of a class that applies ``decorator(*args, **kwargs)`` to each of its tests."""

    def decorate_all(cls: type) -> type:
        for name, value in list(vars(cls).items()):
            if callable(value) and name.startswith("test"):
                setattr(cls, name, decorator(*args, **kwargs)(value))
        return cls

    return decorate_all


def generate_combinations_with_testcase_name(**lists: Any) -> list[Any]:
    """All combinations of values, each a dictionary with a ``testcase_name``, for absl's named parameters."""
    axes = [
        [(name, value) for value in (values if isinstance(values, list) else [values])]
        for name, values in sorted(lists.items())
    ]
    return [
        OrderedDict([*chosen, ("testcase_name", "_test" + "".join(f"_{_letters(k)}_{_letters(v)}" for k, v in chosen))])
        for chosen in itertools.product(*axes)
    ]


def _letters(value: object) -> str:
    return "".join(filter(str.isalnum, str(value)))


def run_v1_only(reason: str, func: Callable[..., Any] | None = None) -> Any:
    """Returns the test unchanged, since tfmini has only the behaviour of 1.x."""
    return _undecorated if func is None else func


def _skipped(reason: str) -> Callable[..., Any]:
    def decorator(func: Callable[..., Any] | None = None, *_: object, **__: object) -> Any:
        return unittest.skip(reason)(func) if callable(func) else decorator

    return decorator


run_v2_only = _skipped("tfmini follows TensorFlow 1.x")
run_gpu_only = run_cuda_only = _skipped("there is no GPU")
assert_no_new_pyobjects_executing_eagerly = _skipped("tfmini follows TensorFlow 1.x")


def run_all_in_graph_and_eager_modes(cls: type) -> Any:
    """Applies `run_in_graph_and_eager_modes` to every test of a class."""
    for name, value in list(vars(cls).items()):
        if callable(value) and name.startswith("test") and name != "test_session":
            setattr(cls, name, run_in_graph_and_eager_modes(value))
    return cls


# contrib.eager.python.tfe
run_all_tests_in_graph_and_eager_modes = run_all_in_graph_and_eager_modes
run_test_in_graph_and_eager_modes = run_in_graph_and_eager_modes

export_names("tf.test", "is_built_with_gpu_support is_built_with_rocm")


# ---- ``tf.test.compute_gradient``: compares Jacobians from the graph's gradients with finite differences -----------

_CHECKED = (dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64, dtypes.complex64, dtypes.complex128)
Jacobians = tuple[np.ndarray, np.ndarray]


@export("tf.test.compute_gradient")
def compute_gradient(
    x: Tensor | Sequence[Tensor],
    x_shape: Any,
    y: Tensor,
    y_shape: ShapeLike,
    x_init_value: Any = None,
    delta: float = 1e-3,
    init_targets: Any = None,
    extra_feed_dict: dict[Any, Any] | None = None,
) -> Jacobians | list[Jacobians]:
    """Computes the Jacobian dy/dx by gradients and by finite differences of ``delta``, in the default session.

    Args:
      x: a tensor or a list of tensors; a complex tensor counts as twice as many reals.
      x_shape: its shape, or a list of shapes.
      y: a tensor.
      y_shape: its shape.
      x_init_value: the point, default random; a list if x is a list.
      init_targets: ops to run first.
      extra_feed_dict: further feeds.

    Returns:
      (theoretical, numeric), each ``[size of x, size of y]``; a list of pairs if x is a list.
    """
    many = isinstance(x, list)
    xs = x if many else [x]
    shapes = x_shape if many else [x_shape]
    starts = (x_init_value if many else [x_init_value]) or [None] * len(xs)
    pairs = [_gradient_node(one, y, y_shape) for one in xs]
    for target in init_targets or ():
        target.run()
    feeds = extra_feed_dict or {}
    found = [
        _jacobians(one, _start(one, shape, start), dx, y, dy, delta, feeds)
        for one, shape, start, (dx, dy) in zip(xs, shapes, starts, pairs)
    ]
    return found if many else found[0]


@export("tf.test.compute_gradient_error")
def compute_gradient_error(
    x: Tensor | Sequence[Tensor],
    x_shape: ShapeLike,
    y: Tensor,
    y_shape: ShapeLike,
    x_init_value: TensorLike | None = None,
    delta: float = 1e-3,
    init_targets: TensorLike | None = None,
    extra_feed_dict: dict[Any, Any] | None = None,
) -> float:
    """The largest difference between the two Jacobians of `compute_gradient` (``tf.test.compute_gradient_error``)."""
    found = compute_gradient(x, x_shape, y, y_shape, x_init_value, delta, init_targets, extra_feed_dict)
    return max_error(*zip(*(found if isinstance(found, list) else [found])))


def max_error(grad1: Sequence[np.ndarray], grad2: Sequence[np.ndarray]) -> float:
    """The largest difference between arrays of two lists; NaN if one is."""
    return float(np.max([np.abs(a - b).max() for a, b in zip(grad1, grad2) if a.size], initial=0.0))


def compute_gradient_v2(f: Callable[..., Tensor], x: list[Any], delta: float = 1e-3) -> tuple[Any, ...]:
    """Compute the gradients of a function, as version 2 of `compute_gradient` does.

    Args:
      f: makes a tensor of as many tensors as ``x`` has values.
      x: a list of the values.
      delta: the distance of the finite differences.

    Returns:
      Two tuples with an array for each value: the theoretical Jacobians, and the numeric ones.

    Raises:
      ValueError: ``x`` is no list.
    """
    if not isinstance(x, list):
        raise ValueError(f"`x` must be a list of Tensors (arguments to `f`), not a {type(x)}")
    session = get_default_session()
    starts = session.run([convert_to_tensor(one) for one in x])
    xs = [placeholder(start.dtype) for start in starts]
    y = f(*xs)
    feeds = dict(zip(xs, starts))
    shape = np.shape(session.run(y, feeds))
    found = compute_gradient(xs, [start.shape for start in starts], y, shape, starts, delta, extra_feed_dict=feeds)
    return tuple(zip(*found))


export_names("tensorflow.python.ops.gradient_checker_v2", "compute_gradient=compute_gradient_v2 max_error")


def _gradient_node(x: Any, y: Tensor, y_shape: ShapeLike) -> tuple[Any, Any]:
    with x.graph.as_default():
        # Fed below. The identity separates it from dx, which is dy itself for an Add.
        dy = constant(1.0, shape=y_shape, dtype=y.dtype)
        return gradients(y, x, identity(dy))[0], dy


def _start(x: Tensor, shape: Any, value: TensorLike) -> Any:
    dtype = dtypes.as_dtype(x.dtype).base_dtype
    if dtype not in _CHECKED:
        raise TypeError(f"compute_gradient needs a float or complex x, not {dtype.name}")
    if value is None:
        value = np.random.random_sample(tuple(shape))
        if dtype.is_complex:
            value = value + 1j * np.random.random_sample(tuple(shape))
    value = np.asarray(value, dtype.as_numpy_dtype)
    if list(value.shape) != list(shape):
        raise ValueError(f"x_shape = {shape}, init_data shape = {value.shape}")
    return value


def _reals(array: np.ndarray) -> Any:
    """A flat view of the array, with real and imaginary parts as separate elements."""
    flat = np.ascontiguousarray(array).reshape(-1)
    return flat.view(flat.real.dtype) if flat.dtype.kind == "c" else flat


def _jacobians(
    x: Tensor,
    at: np.ndarray,
    dx: Tensor | IndexedSlices,
    y: Tensor,
    dy: TensorLike,
    delta: float,
    feeds: dict[Any, Any],
) -> Jacobians:
    theoretical = _by_gradients(x, at, dx, dy, feeds)
    return theoretical, _by_differences(x, at, y, delta, feeds).reshape(theoretical.shape)


def _by_gradients(x: Tensor, at: np.ndarray, dx: Tensor | IndexedSlices, dy: Any, feeds: dict[Any, Any]) -> np.ndarray:
    session = get_default_session()
    weights = np.zeros(dy.shape.as_list(), dtypes.as_dtype(dy.dtype).as_numpy_dtype)
    outputs = _reals(weights).size
    jacobian = np.zeros((_reals(at).size, outputs), _reals(at).dtype)
    for column in range(outputs):
        chosen = np.zeros(outputs, _reals(weights).dtype)
        chosen[column] = 1
        value = session.run(dx, {**feeds, x: at, dy: chosen.view(weights.dtype).reshape(weights.shape)})
        jacobian[:, column] = _reals(_dense(value, at) if isinstance(dx, IndexedSlices) else value)
    if not outputs:
        value = session.run(dx, {**feeds, x: at, dy: weights})
        if value.shape != at.shape:
            raise ValueError(f"Empty gradient has wrong shape: expected {at.shape}, got {value.shape}")
        if np.any(value):
            raise ValueError(f"Empty tensor with nonzero gradients: {value}")
    return jacobian


def _dense(slices: Any, like: np.ndarray) -> Any:
    whole = np.zeros_like(like)
    np.add.at(whole, slices.indices, slices.values)
    return whole


def _by_differences(x: Tensor, at: np.ndarray, y: Tensor, delta: float, feeds: dict[Any, Any]) -> Any:
    session = get_default_session()
    rows = []
    for row in range(_reals(at).size):
        ends = []
        for step in (delta, -delta):
            moved = _reals(at.copy())
            moved[row] += step
            value = session.run(y, {**feeds, x: moved.view(at.dtype).reshape(at.shape)})
            ends.append(_reals(np.asarray(value)))
        rows.append((ends[0] - ends[1]) / np.asarray(2 * delta, ends[0].dtype))
    return np.array(rows, _reals(at).dtype)
