"""Queues of TF1: ``tf.QueueBase``, ``tf.FIFOQueue``, ``tf.PaddingFIFOQueue``, ``tf.PriorityQueue``,
``tf.RandomShuffleQueue``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from tfmini import dtypes as types
from tfmini.core_types import DTypeLike, ShapeLike, TensorLike
from tfmini.export import export
from tfmini.graph import raw_ops
from tfmini.graph.families import Operation, Tensor, convert_to_tensor
from tfmini.graph.scoping import get_seed, name_scope
from tfmini.ops.array.constant_value import constant_value
from tfmini.ops.queues import queue_ops
from tfmini.shapes import TensorShape, as_shape, unknown_shape


@export("tf.QueueBase", "tf.io.QueueBase", "tf.queue.QueueBase")
class QueueBase:
    """A queue of elements, each a tuple of tensors (``tf.QueueBase``); see the subclasses.

    The queue is on the device of its handle and outlives steps; sessions that use the same
    ``shared_name`` share it.

    Args:
      dtypes: of the components of an element.
      shapes: of the components, or None.
      names: of the components; if given, elements are dictionaries.
      queue_ref: the handle.

    Raises:
      ValueError: when the lists differ in length.
    """

    def __init__(self, dtypes: list[types.DType], shapes: Any, names: Any, queue_ref: Tensor) -> None:
        self._dtypes = dtypes
        if shapes is not None and len(shapes) != len(dtypes):
            raise ValueError("Queue shapes must have the same length as dtypes")
        self._shapes = [unknown_shape() for _ in dtypes] if shapes is None else [TensorShape(s) for s in shapes]
        if names is not None and len(names) != len(dtypes):
            raise ValueError("Queue names must have the same length as dtypes")
        self._names = names
        self._queue_ref = queue_ref
        self._name = queue_ref.op.name.split("/")[-1]

    @staticmethod
    def from_list(index: TensorLike, queues: Sequence[QueueBase]) -> QueueBase:
        """The queue at ``index`` (an int tensor) of a list of queues.

        Raises:
          TypeError: when the list is empty, holds other objects, or the queues' components differ.
        """
        if not queues or not isinstance(queues, list) or not all(isinstance(q, QueueBase) for q in queues):
            raise TypeError("A list of queues expected")
        first = queues[0]
        if not all(first.dtypes == q.dtypes for q in queues[1:]):
            raise TypeError("Queues do not have matching component dtypes.")
        if not all(first.names == q.names for q in queues[1:]):
            raise TypeError("Queues do not have matching component names.")
        shapes = [reduce(_common_shape, same) for same in zip(*(q.shapes for q in queues))]
        handles = raw_ops.Pack([q.queue_ref for q in queues], name="stack")
        selected = raw_ops.GatherV2(handles, index, 0, name="GatherV2")
        return QueueBase(first.dtypes, shapes, first.names, selected)

    @property
    def queue_ref(self) -> Tensor:
        """The handle."""
        return self._queue_ref

    @property
    def name(self) -> str:
        """The name of the handle's op."""
        return self._queue_ref.op.name

    @property
    def dtypes(self) -> list[types.DType]:
        """The types of the components."""
        return self._dtypes

    @property
    def shapes(self) -> list[TensorShape]:
        """The shapes of the components."""
        return self._shapes

    @property
    def names(self) -> list[str] | None:
        """The names of the components, if they have any."""
        return self._names  # type: ignore[no-any-return]

    def _op(self, name: str) -> Any:
        """The raw op for this queue's kind of handle."""
        is_resource = self._queue_ref.dtype.base_dtype is types.resource
        return getattr(queue_ops, name if is_resource else f"{name}_v1")

    def _components(self, vals: object) -> list[Tensor]:
        if isinstance(vals, dict):
            if not self._names:
                raise ValueError("Queue must have names to enqueue a dictionary")
            if sorted(self._names, key=str) != sorted(vals, key=str):
                raise ValueError(
                    "Keys in dictionary to enqueue do not match names of Queue.  "
                    f"Dictionary: ({sorted(vals)}), Queue: ({sorted(self._names)})"
                )
            vals = [vals[name] for name in self._names]
        elif self._names:
            raise ValueError("You must enqueue a dictionary in a Queue with names")
        elif not isinstance(vals, (list, tuple)):
            vals = [vals]
        return [
            convert_to_tensor(value, dtype=dtype, name=f"component_{i}")
            for i, (value, dtype) in enumerate(zip(vals, self._dtypes))
        ]

    def enqueue(self, vals: TensorLike | Mapping[str, TensorLike], name: str | None = None) -> Operation:
        """Adds one element; waits while the queue is full.

        Args:
          vals: a tensor, a list of tensors, or with names a dictionary.
          name: default ``<queue>_enqueue``.

        Returns:
          An operation. It fails with `CancelledError` when the queue is closed or, with
          ``cancel_pending_enqueues``, is being closed while it waits.

        Raises:
          ValueError, TypeError: when the values do not fit the components.
        """
        with name_scope(name, f"{self._name}_enqueue", values_of(vals)) as scope:
            tensors = self._components(vals)
            for tensor, shape in zip(tensors, self._shapes):
                tensor.shape.assert_is_compatible_with(shape)
            return self._op("enqueue")(self._queue_ref, tensors, name=scope)  # type: ignore[no-any-return]

    def enqueue_many(self, vals: TensorLike | Mapping[str, TensorLike], name: str | None = None) -> Operation:
        """Adds the slices of ``vals`` along their first dimension as elements; waits while the queue is full.

        It is not atomic: elements of other enqueues may come in between, and elements that were added
        before a cancellation stay. Arguments and errors are those of `enqueue`.
        """
        with name_scope(name, f"{self._name}_EnqueueMany", values_of(vals)) as scope:
            tensors = self._components(vals)
            batch = tensors[0].shape.with_rank_at_least(1)[:1]
            for tensor, shape in zip(tensors, self._shapes):
                batch = batch.merge_with(tensor.shape.with_rank_at_least(1)[:1])
                tensor.shape[1:].assert_is_compatible_with(shape)
            return self._op("enqueue_many")(self._queue_ref, tensors, name=scope)  # type: ignore[no-any-return]

    def dequeue(self, name: str | None = None) -> Any:
        """Takes one element; waits while the queue is empty.

        Returns:
          A tensor, a list of tensors, or with names a dictionary. They fail with
          `OutOfRangeError` when the queue is closed and empty.
        """
        found = self._op("dequeue")(self._queue_ref, component_types=self._dtypes, name=name or f"{self._name}_Dequeue")
        for output, shape in zip(found, self._shapes):
            output.set_shape(shape)
        return self._element(found)

    def dequeue_many(self, n: TensorLike, name: str | None = None) -> Any:
        """Takes ``n`` elements as one batch; waits until the queue has ``n``.

        Returns:
          Like `dequeue`, with ``n`` as additional first dimension. They fail with `OutOfRangeError`
          when the queue is closed and has fewer elements, which then stay in the queue.
        """
        name = name or f"{self._name}_DequeueMany"
        found = self._op("dequeue_many")(self._queue_ref, n, component_types=self._dtypes, name=name)
        count = constant_value(found[0].op.inputs[1])
        for output, shape in zip(found, self._shapes):
            output.set_shape(TensorShape([None if count is None else int(count)]).concatenate(shape))
        return self._element(found)

    def dequeue_up_to(self, n: TensorLike, name: str | None = None) -> Any:
        """Takes ``n`` elements as one batch; after closing, the remaining ones, at least one."""
        name = name or f"{self._name}_DequeueUpTo"
        found = self._op("dequeue_up_to")(self._queue_ref, n, component_types=self._dtypes, name=name)
        for output, shape in zip(found, self._shapes):
            output.set_shape(TensorShape([None]).concatenate(shape))
        return self._element(found)

    def _element(self, tensors: list[Tensor]) -> Any:
        if self._names:
            return dict(zip(self._names, tensors))
        return tensors[0] if len(tensors) == 1 else list(tensors)

    def close(self, cancel_pending_enqueues: bool = False, name: str | None = None) -> Operation:
        """Refuses further enqueues; dequeues go on until the queue is empty.

        Args:
          cancel_pending_enqueues: whether to cancel waiting enqueues. Otherwise the operation waits
            for those that came before it.
          name: default ``<queue>_Close``.
        """
        name = name or f"{self._name}_Close"
        return self._op("close")(self._queue_ref, cancel_pending_enqueues=cancel_pending_enqueues, name=name)  # type: ignore[no-any-return]

    def is_closed(self, name: str | None = None) -> Tensor:
        """Whether the queue is closed, a bool scalar."""
        return self._op("is_closed")(self._queue_ref, name=name or f"{self._name}_Is_Closed")  # type: ignore[no-any-return]

    def size(self, name: str | None = None) -> Tensor:
        """The number of elements in the queue, an int32 scalar."""
        return self._op("size")(self._queue_ref, name=name or f"{self._name}_Size")  # type: ignore[no-any-return]


def _common_shape(a: TensorShape, b: TensorShape) -> TensorShape:
    """The most specific shape that describes both."""
    if a.ndims is None or a.ndims != b.ndims:
        return unknown_shape()
    return TensorShape([x if x == y else None for x, y in zip(a.as_list(), b.as_list())])


@export("tf.FIFOQueue", "tf.queue.FIFOQueue")
class FIFOQueue(QueueBase):
    """A queue that returns elements in the order of their enqueues (``tf.FIFOQueue``).

    Args:
      capacity: the most elements that it holds; negative: no bound.
      dtypes: of the components of an element.
      shapes: fully defined, of the components; needed for ``dequeue_many``.
      names: of the components; if given, elements are dictionaries.
      shared_name: the name by which other sessions find it.
      name: of the handle.
    """

    def __init__(
        self, capacity: int, dtypes: DTypeLike | Sequence[DTypeLike],
        shapes: ShapeLike | Sequence[ShapeLike] | None = None, names: Any = None, shared_name: str | None = None,
        name: str = "fifo_queue",
    ) -> None:  # fmt: skip
        kinds, known = as_type_list(dtypes), as_shape_list(shapes)
        handle = queue_ops.fifo_queue(
            component_types=kinds, shapes=known or [], capacity=capacity, shared_name=shared_name or "", name=name
        )
        super().__init__(kinds, known, as_name_list(names, len(kinds)), handle)


@export("tf.PaddingFIFOQueue", "tf.io.PaddingFIFOQueue", "tf.queue.PaddingFIFOQueue")
class PaddingFIFOQueue(QueueBase):
    """A `FIFOQueue` whose batches are padded with zeros (``tf.PaddingFIFOQueue``).

    Args:
      shapes: of the components; unknown sizes (None) may differ between elements.

    Raises:
      ValueError: when the numbers of shapes and dtypes differ.
    """

    def __init__(
        self, capacity: int, dtypes: DTypeLike | Sequence[DTypeLike], shapes: ShapeLike | Sequence[ShapeLike],
        names: Any = None, shared_name: str | None = None, name: str = "padding_fifo_queue",
    ) -> None:  # fmt: skip
        kinds = as_type_list(dtypes)
        known = as_shape_list(shapes, unknown_dim_allowed=True) or []
        labels = as_name_list(names, len(kinds))
        if len(kinds) != len(known):
            raise ValueError(
                f"Shapes must be provided for all components, but received {len(kinds)} dtypes and {len(known)} shapes."
            )
        handle = queue_ops.padding_fifo_queue(
            component_types=kinds, shapes=known, capacity=capacity, shared_name=shared_name or "", name=name
        )
        super().__init__(kinds, known, labels, handle)


@export("tf.RandomShuffleQueue", "tf.io.RandomShuffleQueue", "tf.queue.RandomShuffleQueue")
class RandomShuffleQueue(QueueBase):
    """A queue that returns its elements in random order (``tf.RandomShuffleQueue``).

    Args:
      min_after_dequeue: the number of elements that stay in the queue, for mixing, until it is closed.
      seed: of the order; see ``tf.set_random_seed``.
    """

    def __init__(
        self, capacity: int, min_after_dequeue: int, dtypes: DTypeLike | Sequence[DTypeLike],
        shapes: ShapeLike | Sequence[ShapeLike] | None = None, names: Any = None, seed: int | None = None,
        shared_name: str | None = None, name: str = "random_shuffle_queue",
    ) -> None:  # fmt: skip
        kinds, known = as_type_list(dtypes), as_shape_list(shapes)
        labels = as_name_list(names, len(kinds))
        seed1, seed2 = get_seed(seed)
        if seed1 is None and seed2 is None:
            seed1, seed2 = 0, 0
        elif seed is None and shared_name is not None:
            import hashlib  # Imported here to save some ms in `import tfmini`.

            # All graphs that share the queue must have the same seeds, whatever the number of ops before it.
            digest = hashlib.md5((str(seed1) + shared_name).encode(), usedforsecurity=False).hexdigest()
            seed2 = int(digest[:8], 16) & 0x7FFFFFFF
        handle = queue_ops.random_shuffle_queue(
            component_types=kinds, shapes=known or [], capacity=capacity, min_after_dequeue=min_after_dequeue,
            seed=seed1, seed2=seed2, shared_name=shared_name or "", name=name,
        )  # fmt: skip
        super().__init__(kinds, known, labels, handle)


@export("tf.PriorityQueue", "tf.io.PriorityQueue", "tf.queue.PriorityQueue")
class PriorityQueue(QueueBase):
    """A queue that returns the element with the smallest priority first (``tf.PriorityQueue``).

    The first component of an element is its priority, an int64 scalar; it is not among ``types``.
    """

    def __init__(
        self, capacity: int, types: DTypeLike | Sequence[DTypeLike],
        shapes: ShapeLike | Sequence[ShapeLike] | None = None, names: Any = None, shared_name: str | None = None,
        name: str = "priority_queue",
    ) -> None:  # fmt: skip
        kinds, known = as_type_list(types), as_shape_list(shapes)
        handle = queue_ops.priority_queue(
            component_types=kinds, shapes=known or [], capacity=capacity, shared_name=shared_name or "", name=name
        )
        super().__init__([_INT64, *kinds], [TensorShape([]), *known] if known else known, names, handle)


_INT64 = types.int64


# ---- Arguments of queue-like objects: types, shapes and names of the components of an element ----------------------


def as_type_list(dtypes: object) -> list[types.DType]:
    """One type or a list of them, as a list."""
    given = dtypes if isinstance(dtypes, (list, tuple)) else [dtypes]
    return [types.as_dtype(dtype) for dtype in given]


def as_shape_list(shapes: Any, unknown_dim_allowed: bool = False) -> list[TensorShape] | None:
    """One shape or a list of them, as a list; None for no shapes.

    Raises:
      ValueError: for shapes that are not fully defined (or of unknown rank, where partial shapes are allowed).
      TypeError: for values that are not shapes.
    """
    if unknown_dim_allowed:
        is_list = isinstance(shapes, Sequence) and bool(shapes)
        if not is_list or any(shape is None or isinstance(shape, (int, np.integer)) for shape in shapes):
            raise ValueError("When providing partial shapes, a list of shapes must be provided.")
    if shapes is None:
        return None
    if isinstance(shapes, TensorShape):
        shapes = [shapes]
    if not isinstance(shapes, (tuple, list)):
        raise TypeError("shapes must be a TensorShape or a list or tuple of TensorShapes.")
    if all(shape is None or isinstance(shape, (int, np.integer)) for shape in shapes):
        shapes = [shapes]
    found = [as_shape(shape) for shape in shapes]
    if not unknown_dim_allowed and any(not shape.is_fully_defined() for shape in found):
        raise ValueError(f"All shapes must be fully defined: {found}")
    if any(shape.ndims is None for shape in found):
        raise ValueError(f"All shapes must have a defined rank: {found}")
    return found


def as_name_list(names: str | Sequence[str] | None, count: int) -> list[str] | None:
    """One name or a list of them, as a list; None for no names.

    Raises:
      ValueError: when the number of names is not that of the components.
    """
    if names is None:
        return None
    given = names if isinstance(names, (list, tuple)) else [names]
    if len(given) != count:
        raise ValueError("List of names must have the same length as the list of dtypes")
    return list(given)


def values_of(vals: TensorLike | Mapping[str, TensorLike]) -> list[Any]:
    """The component values of an element as a list, for name scopes."""
    if isinstance(vals, dict):
        return list(vals.values())
    return list(vals) if isinstance(vals, (list, tuple)) else [vals]
