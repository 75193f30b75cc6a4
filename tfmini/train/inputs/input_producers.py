"""Queues that produce inputs: ``tf.train.string_input_producer``, ``slice_input_producer``, ``limit_epochs``, …"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tfmini import dtypes
from tfmini.export import export
from tfmini.graph.conversion import convert_n_to_tensor_or_indexed_slices, convert_to_tensor
from tfmini.graph.keys import GraphKeys
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import control_dependencies, name_scope
from tfmini.layers.functional import sharing
from tfmini.ops.array.casting import cast
from tfmini.ops.array.constant import constant
from tfmini.ops.array.filling import range as range_of
from tfmini.ops.array.gather import gather
from tfmini.ops.array.identity import identity
from tfmini.ops.array.shape import shape as shape_of
from tfmini.ops.array.shape import size as size_of
from tfmini.ops.debugging.assertion import Assert
from tfmini.ops.io.file_ops import matching_files
from tfmini.ops.math.comparison import greater
from tfmini.ops.queues.queues import FIFOQueue, QueueBase
from tfmini.ops.random.functions import random_shuffle
from tfmini.ops.summary.functions import scalar
from tfmini.ops.variables.base import Variable
from tfmini.train.inputs.queue_runners import QueueRunner, add_queue_runner


@export("tf.io.match_filenames_once", "tf.train.match_filenames_once")
def match_filenames_once(pattern: Any, name: str | None = None) -> Any:
    """A local variable whose initializer finds the names of the files that match (``tf.train.match_filenames_once``).

    Args:
      pattern: one or more glob patterns.
      name: name of the variable; default ``matching_filenames``.
    """
    with name_scope(name, "matching_filenames", [pattern]) as scope:
        return Variable(
            name=scope, initial_value=matching_files(pattern), trainable=False, validate_shape=False,
            collections=[GraphKeys.LOCAL_VARIABLES],
        )  # fmt: skip


@export("tf.train.limit_epochs")
def limit_epochs(tensor: Any, num_epochs: int | None = None, name: str | None = None) -> Any:
    """Returns ``tensor`` in ``num_epochs`` steps, then raises `OutOfRangeError` (``tf.train.limit_epochs``).

    The count is a local variable, so ``tf.local_variables_initializer`` must run first.

    Raises:
      ValueError: when ``num_epochs`` is not positive.
    """
    if num_epochs is None:
        return tensor
    if num_epochs <= 0:
        raise ValueError(f"num_epochs must be > 0 not {num_epochs}.")
    with name_scope(name, "limit_epochs", [tensor]) as scope:
        zero = constant(0, dtype=dtypes.int64)
        epochs = Variable(zero, name="epochs", trainable=False, collections=[GraphKeys.LOCAL_VARIABLES])
        with control_dependencies([epochs.count_up_to(num_epochs)]):
            return identity(tensor, name=scope)


@dataclass
class _Producing:
    """The arguments that the producers share; see `input_producer`."""

    num_epochs: int | None = None
    shuffle: bool = True
    seed: int | None = None
    capacity: int = 32
    shared_name: str | None = None
    name: str | None = None


@export("tf.train.input_producer")
@sharing(_Producing, before={"summary_name": "name"})
def input_producer(
    given: _Producing, input_tensor: Any, element_shape: Any = None, *, summary_name: str | None = None,
    cancel_op: Any = None,
) -> QueueBase:  # fmt: skip
    """A queue that a queue runner fills with the rows of ``input_tensor`` repeatedly (``tf.train.input_producer``).

    Args:
      input_tensor: [n, …].
      element_shape: shape of a row, if it is not known.
      num_epochs: number of repetitions; None for no end. See `limit_epochs`.
      shuffle: whether to shuffle the rows in each epoch.
      seed: seed of the shuffling.
      capacity: capacity of the queue.
      shared_name: name under which sessions share the queue.
      summary_name: name of a summary of the queue's fill level.
      name: name of the queue.
      cancel_op: see `QueueRunner`.

    Raises:
      ValueError: when the shape of a row is not known.
    """
    with name_scope(given.name, "input_producer", [input_tensor]):
        tensor = convert_to_tensor(input_tensor, name="input_tensor")
        shape = tensor.shape[1:].merge_with(element_shape)
        if not shape.is_fully_defined():
            raise ValueError(
                "Either `input_tensor` must have a fully defined shape or `element_shape` must be specified"
            )
        if given.shuffle:
            tensor = random_shuffle(tensor, seed=given.seed)
        tensor = limit_epochs(tensor, given.num_epochs)
        dtype, called = tensor.dtype.base_dtype, given.name or ""
        queue = FIFOQueue(given.capacity, [dtype], [shape], shared_name=given.shared_name, name=called)
        add_queue_runner(QueueRunner(queue, [queue.enqueue_many([tensor])], cancel_op=cancel_op))
        if summary_name is not None:
            scalar(summary_name, cast(queue.size(), dtypes.float32) * (1.0 / given.capacity))
        return queue


@export("tf.train.string_input_producer")
@sharing(_Producing)
def string_input_producer(given: _Producing, string_tensor: Any, *, cancel_op: Any = None) -> QueueBase:
    """A queue of strings, usually file names (``tf.train.string_input_producer``); see `input_producer`.

    Raises:
      ValueError: when the list is empty. (An empty tensor makes the step fail.)
    """
    problem = "string_input_producer requires a non-null input tensor"
    if not isinstance(string_tensor, Tensor) and not hasattr(string_tensor, "graph") and not len(string_tensor):
        raise ValueError(problem)
    with name_scope(given.name, "input_producer", [string_tensor]) as scope:
        tensor = convert_to_tensor(string_tensor, dtype=dtypes.string)
        with control_dependencies([Assert(greater(size_of(tensor), 0), [problem])]):
            tensor = identity(tensor)
        summary_name, more = f"fraction_of_{given.capacity}_full", {**vars(given), "name": scope}
        return input_producer(tensor, [], summary_name=summary_name, cancel_op=cancel_op, **more)


@export("tf.train.range_input_producer")
@sharing(_Producing)
def range_input_producer(given: _Producing, limit: Any) -> QueueBase:
    """A queue of the integers from 0 to ``limit - 1`` (``tf.train.range_input_producer``); see `input_producer`."""
    with name_scope(given.name, "input_producer", [limit]) as scope:
        summary_name, more = f"fraction_of_{given.capacity}_full", {**vars(given), "name": scope}
        return input_producer(range_of(limit), [], summary_name=summary_name, **more)


@export("tf.train.slice_input_producer")
@sharing(_Producing)
def slice_input_producer(given: _Producing, tensor_list: Any) -> list[Tensor]:
    """One row of each tensor, all with the same index (``tf.train.slice_input_producer``); see `input_producer`.

    Args:
      tensor_list: tensors with equal first dimensions.

    Raises:
      ValueError: when the list is empty.
    """
    with name_scope(given.name, "input_producer", tensor_list):
        tensors = convert_n_to_tensor_or_indexed_slices(tensor_list)
        if not tensors:
            raise ValueError("Expected at least one tensor in slice_input_producer().")
        sizes: Any = shape_of(tensors[0])
        rows = sizes[0]
        queue = range_input_producer(rows, **{**vars(given), "name": None})
        index = queue.dequeue()
        return [gather(tensor, index) for tensor in tensors]
