"""Queue ops: ``FIFOQueueV2`` and other kinds, enqueue, dequeue, close; by handle and by the old references."""

from __future__ import annotations

from typing import Any, TypeVar, Unpack

import numpy as np

from tfmini import errors
from tfmini.core_types import TensorLike
from tfmini.dtypes import DType, cpp_name, int64
from tfmini.graph.families import OpHandle, ShapeRule, all_of, unknown_shapes
from tfmini.graph.node import Node
from tfmini.graph.op_types import DeviceResources, Traits, Wait
from tfmini.ops.array.kernel_arguments import refuse
from tfmini.ops.queues.queue_state import (
    UNBOUNDED,
    PaddingQueueState,
    PriorityQueueState,
    QueueState,
    ShuffleQueueState,
)
from tfmini.ops.waiting_line import find_or_create, state_op
from tfmini.shapes import RawShape, compatible_raw, format_raw

_QUEUE = """component_types: list(type) >= 1
    shapes: list(shape) >= 0 = []
    capacity: int = -1
    container: string = ''
    shared_name: string = ''"""
_SHUFFLE = """component_types: list(type) >= 1
    shapes: list(shape) >= 0 = []
    capacity: int = -1
    min_after_dequeue: int = 0
    seed: int = 0
    seed2: int = 0
    container: string = ''
    shared_name: string = ''"""
_PRIORITY = """component_types: list(type) >= 0 = []
    shapes: list(shape) >= 0
    capacity: int = -1
    container: string = ''
    shared_name: string = ''"""


def _queue(name: str, attrs: str) -> tuple[OpHandle[Any], OpHandle[Any]]:
    """Declares a queue op with a resource handle, and the old op with a reference."""
    new = state_op(f"{name}V2() -> handle: resource\n{attrs}", [()], meeting=True)
    return new, state_op(f"{name}() -> handle: Ref(string)\n{attrs}", [(2,)], meeting=True)


def _access(
    name: str, inputs: str, outputs: str, attrs: str = "", shape: ShapeRule | None = None, **traits: Unpack[Traits]
) -> tuple[OpHandle[Any], OpHandle[Any]]:
    """Declares an op on a queue, for each kind of handle."""
    result, rule = (f" -> {outputs}", shape or unknown_shapes) if outputs else ("", [])
    new = state_op(f"{name}V2(handle: resource{inputs}){result}\n{attrs}", rule, **traits)
    return new, state_op(f"{name}(handle: Ref(string){inputs}){result}\n{attrs}", rule, **traits)


# An attr of an enqueue of many elements that counts only if there was none since the queue was made or renewed.
FIRST_ELEMENTS = "_first_elements"
_ELEMENTS = "components: component_types"
Q = TypeVar("Q", bound=QueueState)
_TAKES = "component_types: list(type) >= 1; timeout_ms: int = -1"
_GIVES = "Tcomponents: list(type) >= 1; timeout_ms: int = -1"

fifo_queue, fifo_queue_v1 = _queue("FIFOQueue", _QUEUE)
padding_fifo_queue, padding_fifo_queue_v1 = _queue("PaddingFIFOQueue", _QUEUE)
random_shuffle_queue, random_shuffle_queue_v1 = _queue("RandomShuffleQueue", _SHUFFLE)
priority_queue, priority_queue_v1 = _queue("PriorityQueue", _PRIORITY)
fake_queue = state_op("FakeQueue(resource: resource) -> handle: Ref(string)", [(2,)])
fake_queue.kernel("CPU")(lambda resource: resource)
_ADDS: Traits = {"queue": "enqueue", "keeps": True}
enqueue, enqueue_v1 = _access("QueueEnqueue", ", components: Tcomponents", "", _GIVES, **_ADDS)
enqueue_many, enqueue_many_v1 = _access("QueueEnqueueMany", ", components: Tcomponents", "", _GIVES, **_ADDS)
dequeue, dequeue_v1 = _access("QueueDequeue", "", _ELEMENTS, _TAKES, queue="dequeue")
dequeue_many, dequeue_many_v1 = _access("QueueDequeueMany", ", n: int32", _ELEMENTS, _TAKES, queue="dequeue")
dequeue_up_to, dequeue_up_to_v1 = _access("QueueDequeueUpTo", ", n: int32", _ELEMENTS, _TAKES, queue="dequeue")
close, close_v1 = _access("QueueClose", "", "", "cancel_pending_enqueues: bool = false")
size, size_v1 = _access("QueueSize", "", "size: int32", shape=[()])
is_closed, is_closed_v1 = _access("QueueIsClosed", "", "is_closed: bool", shape=[()])
# Not in TensorFlow: reopens a queue on a server that a finished run has closed.
queue_reopen = state_op("_QueueReopen(handle: resource)", [])
# Empties it as well, for a model with other values.
queue_renew = state_op("_QueueRenew(handle: resource)", [])
# Names who fills it: see `QueueState.begin_run`.
queue_begin_run = state_op("_QueueBeginRun(handle: resource)\nchief: string", [])
# Close it, and say why: see `QueueState.end_run` and `QueueState.fail_run`.
queue_end_run = state_op("_QueueEndRun(handle: resource)\nreason: string", [])
queue_fail_run = state_op("_QueueFailRun(handle: resource)\nworker: string; reason: string; spare: int >= 0 = 0", [])


# ---- the queues -----------------------------------------------------------------------------


@all_of(fifo_queue, fifo_queue_v1).state_kernel("CPU")
def _fifo(
    resources: DeviceResources, *, container: bytes, shared_name: bytes, node: Node, component_types: list[DType],
    shapes: list[RawShape], capacity: int,
) -> QueueState:  # fmt: skip
    return _found(resources, container, shared_name, node, QueueState, capacity, component_types, shapes)


@all_of(padding_fifo_queue, padding_fifo_queue_v1).state_kernel("CPU")
def _padding(
    resources: DeviceResources, *, container: bytes, shared_name: bytes, node: Node, component_types: list[DType],
    shapes: list[RawShape], capacity: int,
) -> QueueState:  # fmt: skip
    if len(component_types) != len(shapes):
        refuse(
            f"Shapes must be provided for all components, but received {len(component_types)} dtypes and"
            f" {len(shapes)} shapes."
        )
    return _found(resources, container, shared_name, node, PaddingQueueState, capacity, component_types, shapes)


@all_of(random_shuffle_queue, random_shuffle_queue_v1).state_kernel("CPU")
def _shuffle(
    resources: DeviceResources, *, container: bytes, shared_name: bytes, node: Node, component_types: list[DType],
    shapes: list[RawShape], capacity: int, min_after_dequeue: int, seed: int, seed2: int,
) -> QueueState:  # fmt: skip
    limit = UNBOUNDED if capacity < 0 else capacity
    if min_after_dequeue < 0:
        refuse(f"min_after_dequeue {min_after_dequeue} must be >= 0")
    if min_after_dequeue >= limit:
        refuse(f"min_after_dequeue {min_after_dequeue} must be < capacity {limit}")
    queue = _found(
        resources, container, shared_name, node, ShuffleQueueState, capacity, component_types, shapes,
        min_after_dequeue, (seed, seed2),
    )  # fmt: skip
    if queue.min_after_dequeue != min_after_dequeue:
        raise _differs(queue, "min_after_dequeue", queue.min_after_dequeue, "min_after_dequeue was", min_after_dequeue)
    if (seed or seed2) and (seed, seed2) != queue.seeds:
        raise _differs(queue, "random seeds", queue.seeds, "seeds are", f"{(seed, seed2)}.")
    return queue


@all_of(priority_queue, priority_queue_v1).state_kernel("CPU")
def _priority(
    resources: DeviceResources, *, container: bytes, shared_name: bytes, node: Node, component_types: list[DType],
    shapes: list[RawShape], capacity: int,
) -> QueueState:  # fmt: skip
    types = [int64, *component_types]
    all_shapes: list[RawShape] = [(), *shapes] if shapes or not component_types else []
    return _found(resources, container, shared_name, node, PriorityQueueState, capacity, types, all_shapes)


def _found(
    resources: DeviceResources, container: bytes, shared_name: bytes, node: Node, kind: type[Q], capacity: int,
    types: list[DType], shapes: list[RawShape], *more: object,
) -> Q:  # fmt: skip
    """The queue behind a handle node, made with ``more`` if there is none yet.

    Raises:
      InvalidArgumentError: when a queue of the same name was made with other parameters.
    """
    queue = find_or_create(
        resources, container, shared_name, node, "queue", lambda name: kind(name, capacity, types, shapes, *more)
    )
    queue.users.add(resources)
    if type(queue) is not kind:
        refuse(
            f"Shared queue '{queue.name}' has type '{queue.kind}' that does not match type of Node '{node.name}':"
            f" {node.op}"
        )
    limit = UNBOUNDED if capacity < 0 else capacity
    if queue.capacity != limit:
        raise _differs(queue, "capacity", queue.capacity, "capacity was", limit)
    if queue.dtypes != types:
        raise _differs(queue, "component types", _types(queue.dtypes), "component types were", _types(types))
    same = len(queue.shapes) == len(shapes) and all(map(compatible_raw, queue.shapes, shapes))
    if not same:
        raise _differs(queue, "component shapes", _shapes(queue.shapes), "component shapes were", _shapes(shapes))
    return queue


def _differs(queue: QueueState, what: str, has: object, asked: str, requested: object) -> errors.OpError:
    text = f"Shared queue '{queue.name}' has {what} {has} but requested {asked} {requested}"
    return errors.InvalidArgumentError.of(text)


def _types(types: list[DType]) -> str:
    return ", ".join(map(cpp_name, types))


def _shapes(shapes: list[RawShape]) -> str:
    return f"[{', '.join(map(format_raw, shapes))}]"


# ---- access ---------------------------------------------------------------------------------


def _check_signature(queue: QueueState, have: list[DType], arrow: str, more: str = "") -> None:
    """Refuses an op whose components have other types than the queue's.

    Raises:
      InvalidArgumentError: with both signatures.
    """
    if have != queue.dtypes:
        head = "resource" + more
        sides = [f"{head},{','.join(map(cpp_name, t))}->" if arrow == "in" else f"{head}->{','.join(map(cpp_name, t))}"
                 for t in (have, queue.dtypes)]  # fmt: skip
        refuse(f"Signature mismatch, have: {sides[0]} expected: {sides[1]} (queue '{queue.name}')")


@all_of(enqueue, enqueue_v1).async_kernel("CPU")
def _enqueue(
    wait: Wait, queue: QueueState, components: list[Any], *, Tcomponents: list[DType], resources: DeviceResources
) -> None:  # fmt: skip
    if Tcomponents != queue.dtypes:
        _check_signature(queue, Tcomponents, "in")
    if queue.users.are_outdated:
        queue.users.check(resources, queue.name)
    queue.enqueue(wait, components)


@all_of(enqueue_many, enqueue_many_v1).async_kernel("CPU")
def _enqueue_many(
    wait: Wait, queue: QueueState, components: list[Any], *, Tcomponents: list[DType], node: Node,
    resources: DeviceResources,
) -> None:  # fmt: skip
    _check_signature(queue, Tcomponents, "in")
    queue.users.check(resources, queue.name)
    if FIRST_ELEMENTS in node.attrs and not queue.is_fresh:
        wait.done(())
        return
    queue.enqueue_many(wait, components)


@all_of(dequeue, dequeue_v1).async_kernel("CPU")
def _dequeue(wait: Wait, queue: QueueState, *, component_types: list[DType], resources: DeviceResources) -> None:
    if component_types != queue.dtypes:
        _check_signature(queue, component_types, "out")
    if queue.users.are_outdated:
        queue.users.check(resources, queue.name)
    queue.dequeue(wait)


@all_of(dequeue_many, dequeue_many_v1).async_kernel("CPU")
def _dequeue_many(wait: Wait, queue: QueueState, n: TensorLike, *, component_types: list[DType]) -> None:
    count = _count(n, "DequeueManyOp")
    _check_signature(queue, component_types, "out", ",int32")
    queue.dequeue_many(wait, count, False)


@all_of(dequeue_up_to, dequeue_up_to_v1).async_kernel("CPU")
def _dequeue_up_to(wait: Wait, queue: QueueState, n: TensorLike, *, component_types: list[DType]) -> None:
    count = _count(n, "DequeueUpToOp")
    _check_signature(queue, component_types, "out", ",int32")
    queue.dequeue_many(wait, count, True)


def _count(n: Any, name: str) -> int:
    count = int(n)
    if count < 0:
        refuse(f"{name} requested {count} < 0 elements")
    return count


@all_of(close, close_v1).async_kernel("CPU")
def _close(wait: Wait, queue: QueueState, *, cancel_pending_enqueues: bool) -> None:
    queue.close(wait, cancel_pending_enqueues)


@all_of(size, size_v1).kernel("CPU")
def _size(queue: QueueState) -> Any:
    return np.int32(queue.size())


@all_of(is_closed, is_closed_v1).kernel("CPU")
def _is_closed(queue: QueueState) -> Any:
    return np.bool_(queue.is_closed)


@queue_renew.kernel("CPU")
def _renew(queue: QueueState) -> tuple[()]:
    queue.renew()
    return ()


@queue_begin_run.kernel("CPU")
def _begin_run(queue: QueueState, *, chief: bytes) -> tuple[()]:
    queue.begin_run(chief.decode(errors="replace"))
    return ()


@queue_end_run.kernel("CPU")
def _end_run(queue: QueueState, *, reason: bytes) -> tuple[()]:
    queue.end_run(reason.decode(errors="replace"))
    return ()


@queue_fail_run.kernel("CPU")
def _fail_run(queue: QueueState, *, worker: bytes, reason: bytes, spare: int) -> tuple[()]:
    queue.fail_run(worker.decode(errors="replace"), reason.decode(errors="replace"), spare)
    return ()


@queue_reopen.kernel("CPU")
def _reopen(queue: QueueState) -> tuple[()]:
    queue.reopen()
    return ()
