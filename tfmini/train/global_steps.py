"""The global step: the variable that counts the training steps of a model."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from tfmini import dtypes
from tfmini.core_types import GraphTensor, TensorLike
from tfmini.export import export
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.graph import Graph
from tfmini.graph.names import GraphKeys
from tfmini.graph.operation import Tensor
from tfmini.ops.variables.functions import Variable
from tfmini.ops.variables.initializers import zeros_initializer
from tfmini.ops.variables.scope import get_variable
from tfmini.runtime.client.session import BaseSession

_log = logging.getLogger("tensorflow")

# The collection with the single tensor from which hooks read the global step.
GLOBAL_STEP_READ_KEY = "global_step_read_op_cache"


@export("tf.train.global_step")
def global_step(sess: BaseSession, global_step_tensor: GraphTensor) -> int:
    """The value of the global step in a session (``tf.train.global_step``).

    Args:
      sess: a session.
      global_step_tensor: the variable or tensor of the global step.
    """
    return int(np.asarray(sess.run(global_step_tensor)).item())  # also of a variable of shape [1]


@export("tf.train.get_global_step", "tf.contrib.framework.get_global_step", "tf.contrib.slim.get_global_step")
def get_global_step(graph: Graph | None = None) -> Any:
    """The global step of a graph (default: the default graph), or None.

    It is the only member of the collection ``global_step``, or the tensor ``global_step:0``.

    Raises:
      TypeError: when the global step is not a scalar integer variable or tensor.
    """
    graph = graph or get_default_graph()
    candidates = graph.get_collection(GraphKeys.GLOBAL_STEP)
    if len(candidates) > 1:
        _log.error("Multiple tensors in global_step collection.")
        return None
    if candidates:
        found = candidates[0]
    else:
        try:
            found = graph.get_tensor_by_name("global_step:0")
        except KeyError:
            return None
    assert_global_step(found)
    return found


@export("tf.train.create_global_step", "tf.contrib.framework.create_global_step", "tf.contrib.slim.create_global_step")
def create_global_step(graph: Graph | None = None) -> Any:
    """Creates the global step, a scalar int64 variable with initial value zero.

    Raises:
      ValueError: when the graph has a global step.
    """
    graph = graph or get_default_graph()
    if get_global_step(graph) is not None:
        raise ValueError('"global_step" already exists.')
    with graph.as_default(), graph.name_scope(None):
        return get_variable(
            GraphKeys.GLOBAL_STEP,
            shape=[],
            dtype=dtypes.int64,
            initializer=zeros_initializer(),
            trainable=False,
            collections=[GraphKeys.GLOBAL_VARIABLES, GraphKeys.GLOBAL_STEP],
        )


@export(
    "tf.train.get_or_create_global_step",
    "tf.contrib.framework.get_or_create_global_step",
    "tf.contrib.slim.get_or_create_global_step",
)
def get_or_create_global_step(graph: Graph | None = None) -> Any:
    """The global step of a graph; created if it does not exist.

    Args:
      graph: default: the default graph.

    Returns:
      An int64 variable, which no optimizer trains.
    """
    graph = graph or get_default_graph()
    found = get_global_step(graph)
    return create_global_step(graph) if found is None else found


@export("tf.train.assert_global_step", "tf.contrib.framework.assert_global_step", "tf.contrib.slim.assert_global_step")
def assert_global_step(global_step_tensor: GraphTensor) -> None:
    """Raises TypeError unless the argument is a scalar integer variable or tensor."""
    if not isinstance(global_step_tensor, (Variable, Tensor)):
        raise TypeError(f'Existing "global_step" must be a Variable or Tensor: {global_step_tensor}.')
    if not global_step_tensor.dtype.base_dtype.is_integer:
        raise TypeError(f'Existing "global_step" does not have integer type: {global_step_tensor.dtype}')
    shape = global_step_tensor.get_shape()
    if shape.ndims != 0 and shape.is_fully_defined():
        raise TypeError(f'Existing "global_step" is not scalar: {shape}')


@export("tf.contrib.framework.assert_or_get_global_step")
def assert_or_get_global_step(graph: Graph | None = None, global_step_tensor: GraphTensor | None = None) -> Any:
    """A step that has been checked, or the graph's, or None (``tf.contrib.framework.assert_or_get_global_step``).

    Args:
      graph: where to look for one; default: the default graph.
      global_step_tensor: the step to check instead.

    Raises:
      TypeError: as `assert_global_step`.
    """
    if global_step_tensor is None:
        return get_global_step(graph)
    assert_global_step(global_step_tensor)
    return global_step_tensor


def _get_global_step_read(graph: Graph | None = None) -> Any:
    """The tensor from which hooks read the global step, or None.

    Raises:
      RuntimeError: when the graph has several such tensors.
    """
    found = (graph or get_default_graph()).get_collection(GLOBAL_STEP_READ_KEY)
    if len(found) > 1:
        raise RuntimeError(f"There are multiple items in collection {GLOBAL_STEP_READ_KEY}. There should be only one.")
    return found[0] if found else None


def _get_or_create_global_step_read(graph: Graph | None = None) -> Any:
    """A tensor with the global step's value, valid even before initialization; None without a global step."""
    graph = graph or get_default_graph()
    read = _get_global_step_read(graph)
    if read is not None:
        return read
    step = get_global_step(graph)
    if step is None:
        return None
    with graph.as_default(), graph.name_scope(None), graph.name_scope(step.op.name + "/"):
        value = step.initialized_value() if isinstance(step, Variable) else step  # type: ignore[attr-defined]
        # The addition makes a copy, which an update in the same step does not change.
        read = value + 0
        graph.add_to_collection(GLOBAL_STEP_READ_KEY, read)
    return read


def _increment_global_step(increment: TensorLike, graph: Graph | None = None) -> Any:
    """Adds to the global step, after the step's hooks have read its value.

    Raises:
      ValueError: when the graph has no global step.
    """
    graph = graph or get_default_graph()
    step = get_global_step(graph)
    if step is None:
        raise ValueError(
            "Global step tensor should be created by tf.train.get_or_create_global_step before calling increment."
        )
    read = _get_or_create_global_step_read(graph)
    with (
        graph.as_default(),
        graph.name_scope(None),
        graph.name_scope(step.op.name + "/"),
        graph.control_dependencies([read]),
    ):
        return step.assign_add(increment)
