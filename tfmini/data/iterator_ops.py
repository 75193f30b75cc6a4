"""Iterator ops: an iterator is a resource of its task, which holds a position in a dataset."""

from __future__ import annotations

import threading
import uuid
import weakref
from typing import Any

import numpy as np

from tfmini import errors
from tfmini.core_types import Array
from tfmini.data.dataset_ops import TYPES, element_shapes
from tfmini.data.pipeline import Drawn, Element, Reading, Source, Stage, compiled
from tfmini.data.prefetching import AsyncReader
from tfmini.dtypes import DType
from tfmini.graph.families import Operation, OpHandle, op
from tfmini.graph.node import FunctionBody, Node
from tfmini.graph.op_types import RunningStep, Wait
from tfmini.ops.array.kernel_arguments import ComponentWait, check_components, refuse
from tfmini.ops.waiting_line import find_or_create
from tfmini.runtime.executor.registered_graph import RunOwner
from tfmini.runtime.resources import Resources
from tfmini.shapes import RawShape, compatible_raw

iterator_op = op(
    f"IteratorV2() -> handle: resource; shared_name: string; container: string; {TYPES}",
    stateful=True,
    shape=[()],
    differentiable=False,
)
one_shot_op = op(
    f"OneShotIterator() -> handle: resource; dataset_factory: func; {TYPES};"
    " container: string = ''; shared_name: string = ''",
    stateful=True,
    shape=[()],
    differentiable=False,
)
make_iterator_op: OpHandle[Operation] = op(
    "MakeIterator(dataset: variant, iterator: resource)", stateful=True, shape=[], differentiable=False
)
get_next_op: OpHandle[Any] = op(
    f"IteratorGetNext(iterator: resource) -> components: output_types; {TYPES}",
    stateful=True,
    iterates=True,
    shape=element_shapes,
    differentiable=False,
)
get_next_sync_op: OpHandle[Any] = op(
    f"IteratorGetNextSync(iterator: resource) -> components: output_types; {TYPES}",
    stateful=True, waits=True, iterates=True, shape=element_shapes, differentiable=False,
)  # fmt: skip
to_string_op = op(
    "IteratorToStringHandle(resource_handle: resource) -> string_handle: string",
    stateful=True,
    shape=[()],
    differentiable=False,
)
# Our own ops: TensorFlow's SerializeIterator writes the state of each stage. Here an iterator that is restored reads
# its elements again, up to the place where the other one was; the state is how many they are, and the drawn seeds.
state_op = op(
    "_IteratorState(iterator: resource) -> state: int64", stateful=True, shape=[(None,)], differentiable=False
)
restore_op: OpHandle[Operation] = op(
    "_RestoreIterator(iterator: resource, state: int64)", stateful=True, waits=True, shape=[], differentiable=False
)
from_string_op = op(
    "IteratorFromStringHandleV2(string_handle: string) -> resource_handle: resource;"
    " output_types: list(type) >= 0 = []; output_shapes: list(shape) >= 0 = []",
    stateful=True,
    shape=[()],
    differentiable=False,
)

_KIND = "iterator"
_BY_HANDLE = "iterator by string handle"


class _Place:
    """A dataset that is being read: its reading, its last stage, and the reader that steps wait for."""

    def __init__(
        self, source: Source, owner: RunOwner, name: str, seeds: Drawn | None = None, before: Reading | None = None
    ) -> None:
        self.source = source
        self.lost = False  # a restore has ended this reading; another one has not taken its place
        self.turns = 0  # elements that others than the reader have taken, and errors in their place
        self.reading = Reading(owner, None, seeds, before)
        self.stage = source.open(self.reading)
        self.reader = AsyncReader(self.stage, name)
        # A session that is dropped without being closed must not leave the reader's thread behind.
        self._finalizer = weakref.finalize(self, _leave, self.reader, self.reading, self.stage, "it was dropped")

    def skip(self, turns: int, step: RunningStep) -> None:
        """Reads the elements that another reading has taken."""
        self.reading.step = step
        for _ in range(turns):
            self.reading.check()
            try:
                if next(self.stage, None) is None:
                    break
            except errors.OpError:
                self.reading.check()  # it may be the end of this step and not an error of the element
        self.turns, self.reading.step = turns, None

    def close(self, name: str, why: str) -> None:
        self._finalizer.detach()
        _leave(self.reader, self.reading, self.stage, f'The iterator "{name}" was read while {why}.')


def _leave(reader: AsyncReader, reading: Reading, stage: Stage, why: str) -> None:
    reading.closed = True
    reader.close(why)
    stage.close()


class IteratorState:
    """The state of an iterator in a task.

    Args:
      name: the iterator's name, for messages and string handles.
      types, shapes: the types and shapes of an element's components.
      session: the session whose own it is, and with which its string handle ends; empty if it is shared.
      device: the iterator's, which its string handle names.
    """

    def __init__(
        self, name: str, types: list[DType], shapes: list[RawShape], session: str = "", device: str = ""
    ) -> None:
        self.name = name
        # Names repeat in other tasks and sessions, where a handle must not find another iterator.
        self.key = f"{session and session + '/'}{name}/{uuid.uuid4().hex}"
        self.string_handle = f"{device} {self.key}"
        self.types = types
        self.shapes = shapes
        self._lock = threading.Lock()
        self._place: _Place | None = None

    def begin(self, source: Source, owner: RunOwner) -> None:
        """Starts at the beginning of a dataset."""
        place = _Place(source, owner, self.name)
        before, self._place = self._place, place
        if before is not None:
            before.close(self.name, "it was initialized again")

    def get_next(self, step: RunningStep) -> Element:
        """The next element, read in the caller's thread; several callers take turns.

        Raises:
          OutOfRangeError: at the end.
          FailedPreconditionError: before `begin`, and once a `restore` has not ended.
        """
        with self._lock:
            place = self._current(step.owner)
            place.reading.step = step
            try:
                element = next(place.stage)
            except StopIteration:
                raise errors.OutOfRangeError.of("End of sequence") from None
            except errors.OpError:
                place.turns += not place.reading.stopped
                raise
            else:
                place.turns += 1
                return element
            finally:
                place.reading.step = None

    def ask(self, wait: Wait) -> None:
        """Answers ``wait`` with the next element when it has been read; the errors are those of `get_next`."""
        with self._lock:
            place = self._current(wait.step.owner)
        place.reader.ask(wait)

    def saved(self, owner: RunOwner) -> Array:
        """The state from which `restore` goes on, int64 [1 + 3 * seeds]: the number of elements taken; lanes and seeds.

        Raises:
          FailedPreconditionError: before `begin`, or when another reading of the dataset would have other elements.
        """
        place = self._current(owner, "Save", "saving it")
        if place.reading.stateful:
            raise errors.FailedPreconditionError.of(
                f"The position of the iterator {self.name!r} cannot be saved: a function of its dataset is stateful,"
                f" since it has an op of type {place.reading.stateful}."
            )
        if place.reading.unrepeatable:
            raise errors.FailedPreconditionError.of(
                f"The position of the iterator {self.name!r} cannot be saved: {place.reading.unrepeatable}, and a"
                " reading of those files draws other seeds. Put the shuffling behind the cache, or cache without a"
                " filename."
            )
        # Copies: the threads that read ahead draw meanwhile.
        rows = [(at, pair) for at, pairs in list(place.reading.seeds.items()) for pair in list(pairs)]
        seeds = [number % 2**64 for at, pair in rows for number in (at, *pair)]
        return np.array([place.turns + place.reader.turns, *seeds], np.uint64).view(np.int64)

    def restore(self, state: Array, step: RunningStep) -> None:
        """Goes on where the iterator of a saved state was; reads what that had read.

        Raises:
          FailedPreconditionError: before `begin`.
        """
        before = self._place or self._first(step.owner, "Restore", "restoring it")
        turns, *seeds = state.view(np.uint64).tolist()
        given: Drawn = {}
        for at, *pair in zip(*(seeds[i::3] for i in range(3))):
            given.setdefault(at, []).append((pair[0], pair[1]))
        place = _Place(before.source, step.owner, self.name, given, before.reading)
        before.lost = True
        before.close(self.name, "it was restored")  # first: it may hold the lock of a cache's files
        try:
            place.skip(turns, step)
        except errors.OpError:  # a deadline, or a session that is closed
            place.close(self.name, "it was restored")
            raise
        self._place = place

    def _current(self, owner: RunOwner, *doing: str) -> _Place:
        """Where the next element comes from."""
        place = self._place or self._first(owner, *doing)
        if place.lost:
            raise errors.FailedPreconditionError.of(
                f"The iterator {self.name!r} has no position: it is being restored, or restoring it did not end."
                " Restore it again, or run its initializer."
            )
        return place

    def _first(self, owner: RunOwner, call: str = "GetNext", doing: str = "getting the next element") -> _Place:
        raise errors.FailedPreconditionError.of(
            f"{call}() failed because the iterator has not been initialized. Ensure that you have run the"
            f" initializer operation for this iterator before {doing}."
        )

    def release(self) -> None:
        """Ends the reading when the session is closed or its container is cleared."""
        # Without the lock, which a thread may hold for as long as a generator takes.
        place, self._place = self._place, None
        if place is not None:
            place.close(self.name, "its session was closed")

    clear = release


class OneShotState(IteratorState):
    """An iterator that makes its dataset once, at the first use."""

    def __init__(
        self, name: str, types: list[DType], shapes: list[RawShape], session: str, device: str, body: FunctionBody,
        resources: Resources,
    ) -> None:  # fmt: skip
        super().__init__(name, types, shapes, session, device)
        self._body = body
        self._resources = resources

    def _first(self, owner: RunOwner, call: str = "", doing: str = "") -> _Place:
        (source,) = compiled(self._body, self._resources, ())(Reading(owner))
        self._place = place = _Place(source, owner, self.name)
        return place


@iterator_op.state_kernel("CPU")
def _iterator(
    resources: Resources, *, container: bytes, shared_name: bytes, node: Node, output_types: list[DType],
    output_shapes: list[RawShape],
) -> IteratorState:  # fmt: skip
    def create(name: str) -> IteratorState:
        session = "" if shared_name else resources.session
        return IteratorState(name, output_types, output_shapes, session, node.device)

    return find_or_create(resources, container, shared_name, node, _KIND, create)


@one_shot_op.state_kernel("CPU")
def _one_shot(
    resources: Resources, *, container: bytes, shared_name: bytes, node: Node, dataset_factory: FunctionBody,
    output_types: list[DType], output_shapes: list[RawShape],
) -> IteratorState:  # fmt: skip
    def create(name: str) -> IteratorState:
        session = "" if shared_name else resources.session
        return OneShotState(name, output_types, output_shapes, session, node.device, dataset_factory, resources)

    return find_or_create(resources, container, shared_name, node, _KIND, create)


@make_iterator_op.kernel("CPU")
def _make(step: RunningStep, dataset: Source, iterator: IteratorState) -> tuple[()]:
    iterator.begin(dataset, step.owner)
    return ()


@get_next_op.async_kernel("CPU")
def _get_next(wait: Wait, iterator: IteratorState, *, output_types: list[DType], output_shapes: list[RawShape]) -> None:
    iterator.ask(ComponentWait(wait, output_types, output_shapes))


@get_next_sync_op.kernel("CPU")
def _get_next_sync(
    step: RunningStep, iterator: IteratorState, *, output_types: list[DType], output_shapes: list[RawShape]
) -> Element:
    element = iterator.get_next(step)
    check_components(element, output_types, output_shapes)
    return element


@state_op.kernel("CPU")
def _state(step: RunningStep, iterator: IteratorState) -> Array:
    return iterator.saved(step.owner)


@restore_op.kernel("CPU")
def _restore(step: RunningStep, iterator: IteratorState, state: Array) -> tuple[()]:
    if state.ndim != 1 or state.size % 3 != 1 or state[0] < 0:
        refuse(f"This is no state of an iterator: {state!r:.80}")
    iterator.restore(state, step)
    return ()


@to_string_op.kernel("CPU")
def _to_string(iterator: IteratorState, *, resources: Resources) -> bytes:
    resources.lookup_or_create("", _BY_HANDLE, iterator.key, lambda: iterator)
    return iterator.string_handle.encode()


def _named_by(handle: str, resources: Resources, here: str) -> IteratorState:
    device, _, key = handle.partition(" ")
    if not key:
        refuse(f"Could not parse string_handle as a valid ResourceHandle: {handle!r:.80}")
    if here and device != here:
        refuse(f'Attempted create an iterator on device "{here}" from handle defined on device "{device}"')
    try:
        return resources.lookup("", _BY_HANDLE, key)  # type: ignore[no-any-return]
    except errors.NotFoundError:
        raise errors.NotFoundError.of(
            f"No iterator on this task has the string handle '{handle}'. A handle belongs to one iterator of one"
            " session: run string_handle() in this session before the step that is fed with it."
        ) from None


@from_string_op.kernel("CPU")
def _from_string(
    handle: Array, *, resources: Resources, node: Node, output_types: list[DType], output_shapes: list[RawShape]
) -> IteratorState:
    iterator = _named_by(np.asarray(handle, object).item().decode(errors="replace"), resources, node.device)
    if output_types and output_types != iterator.types:
        raise errors.InvalidArgumentError.of(
            f"Number of components does not match: expected {[t.name for t in output_types]} but the iterator"
            f" '{iterator.name}' has {[t.name for t in iterator.types]}."
        )
    for wanted, have in zip(output_shapes, iterator.shapes):
        if not compatible_raw(wanted, have):
            text = f"Incompatible shapes of the iterator '{iterator.name}': expected {wanted} but got {have}."
            raise errors.InvalidArgumentError.of(text)
    return iterator
