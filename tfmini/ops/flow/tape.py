"""``tf.GradientTape`` in a graph: the gradients of what a block computes, by `tf.gradients`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tfmini.core_types import TensorLike
from tfmini.export import export
from tfmini.graph import nest
from tfmini.graph.default_graph import get_default_graph
from tfmini.graph.names import GraphKeys
from tfmini.graph.operation import Tensor
from tfmini.graph.prune import traverse
from tfmini.graph.scoping import get_collection
from tfmini.ops import gradients as derivatives
from tfmini.ops.array.filling import zeros
from tfmini.ops.array.identity import identity
from tfmini.ops.array.joining import concat
from tfmini.ops.array.shape import shape
from tfmini.ops.flow import functional
from tfmini.ops.gradients import UnconnectedGradients
from tfmini.ops.variables.base import Variable


@export("tf.GradientTape", "tensorflow.python.eager.backprop.GradientTape")
class GradientTape:
    """Gradients of what is computed from watched tensors (``tf.GradientTape``).

    A graph keeps all ops, so the tape records nothing itself: `gradient` is `tf.gradients` for the sources that are
    watched. So it also differentiates what is computed before and after the tape's block, and what was computed from a
    tensor before `watch`, which TensorFlow takes for constants.

    Args:
      persistent: whether gradients may be asked for more than once.
      watch_accessed_variables: whether trainable variables are watched without `watch`.
    """

    def __init__(self, persistent: bool = False, watch_accessed_variables: bool = True) -> None:
        self._persistent, self._watches_variables = persistent, watch_accessed_variables
        self._watched: dict[Any, Any] = {}
        self._unrecorded: list[Tensor] = []  # of blocks of `stop_recording`
        self._recording = self._used = False
        self._start: int | None = None

    def __enter__(self) -> GradientTape:
        if self._recording:
            raise ValueError("Tape is already recording.")
        self._recording = True
        self._start = len(get_default_graph().get_operations()) if self._start is None else self._start
        return self

    def __exit__(self, *error: object) -> None:
        self._recording = False

    def watch(self, tensor: Any) -> None:
        """Makes a tensor, variable or structure of them a source of gradients."""
        for one in nest.flatten(tensor, expand_composites=True):
            self._watched[_key(one)] = one

    @contextmanager
    def stop_recording(self) -> Iterator[None]:
        """The results of the block's ops are constants; ValueError when the tape does not record."""
        if not self._recording:
            raise ValueError("Trying to stop recording a tape which is not recording.")
        self._recording, begin = False, len(get_default_graph().get_operations())
        try:
            yield
        finally:
            self._recording = True
            self._unrecorded += [x for op in get_default_graph().get_operations()[begin:] for x in op.outputs]

    def reset(self) -> None:
        """Forgets what is watched."""
        self._watched, self._start = {}, len(get_default_graph().get_operations())

    def watched_variables(self) -> tuple[Any, ...]:
        """The variables that are watched: those of `watch`, and the trainable ones that the block has read."""
        given = [one for one in self._watched.values() if isinstance(one, Variable)]
        if not self._watches_variables:
            return tuple(given)
        graph = get_default_graph()
        new = graph.get_operations()[self._start or 0 :]
        read = {tensor.op.name for op in new for tensor in op.inputs} | {op.name for op in new}
        captures = graph.captures if isinstance(graph, functional.FunctionGraph) else {}
        read |= {outer.op.name for outer, inner in captures.items() if inner.op.name in read}
        every = get_collection(GraphKeys.TRAINABLE_VARIABLES)
        others = [one for one in every if _key(one) not in self._watched and _key(one).op.name in read]
        return (*given, *others)

    def gradient(
        self, target: TensorLike, sources: Any, output_gradients: Any = None,
        unconnected_gradients: UnconnectedGradients | str = UnconnectedGradients.NONE,
    ) -> Any:  # fmt: skip
        """The gradient of the sum of ``target`` by each of ``sources``; None where nothing is watched.

        Raises:
          RuntimeError: it is the second call, and the tape is not persistent.
        """
        self._use("gradient")
        flat = nest.flatten(sources)
        seeds = None if output_gradients is None else [*nest.flatten(output_gradients)]
        found = derivatives.gradients(
            nest.flatten(target), self._seen(flat), seeds, stop_gradients=self._unrecorded,
            unconnected_gradients=unconnected_gradients,
        )  # fmt: skip
        return nest.pack_sequence_as(sources, found)

    def jacobian(
        self, target: Tensor, sources: Any, unconnected_gradients: Any = UnconnectedGradients.NONE,
        parallel_iterations: int | None = None, experimental_use_pfor: bool = True,
    ) -> Any:  # fmt: skip
        """The derivatives of each element of ``target``; see `gradient`."""
        self._use("jacobian")
        flat = nest.flatten(sources)
        found = functional.jacobian(target, self._seen(flat), experimental_use_pfor, parallel_iterations)
        if UnconnectedGradients(unconnected_gradients) is UnconnectedGradients.ZERO:
            found = [_zeros(shape(target), one) if made is None else made for made, one in zip(found, flat)]
        return nest.pack_sequence_as(sources, found)

    def batch_jacobian(
        self, target: Tensor, source: Tensor, unconnected_gradients: Any = UnconnectedGradients.NONE,
        parallel_iterations: int | None = None, experimental_use_pfor: bool = True,
    ) -> Any:  # fmt: skip
        """The derivatives of each row of ``target`` by the same row of ``source``."""
        self._use("batch_jacobian")
        (seen,) = self._seen([source])
        found = functional.batch_jacobian(target, seen, experimental_use_pfor, parallel_iterations)
        if found is None and UnconnectedGradients(unconnected_gradients) is UnconnectedGradients.ZERO:
            return _zeros(shape(target), source[0])
        return found

    def _use(self, method: str) -> None:
        if self._used and not self._persistent:
            raise RuntimeError(
                f"GradientTape.{method} can only be called once on non-persistent tapes: give persistent=True."
            )
        self._used = True

    def _seen(self, sources: Sequence[Any]) -> list[Any]:
        """The sources; in place of one that is not watched, nor computed from what is, one that nothing depends on."""
        return [one if self._watches(one) else identity(one) for one in sources]

    def _watches(self, source: Any) -> bool:
        if isinstance(source, Variable) and self._watches_variables and source.trainable:
            return True
        every = get_collection(GraphKeys.TRAINABLE_VARIABLES) if self._watches_variables else []
        watched = {*self._watched, *map(_key, every)}
        if _key(source) in watched:
            return True
        if not isinstance(source, Tensor) or source in self._unrecorded:
            return False
        return any(x in watched for x in traverse([source], lambda x: x.op.inputs))


def _key(value: Any) -> Any:
    """What stands for a tensor or variable in the graph."""
    if isinstance(value, Variable):
        return value.handle if hasattr(value, "handle") else value.op.outputs[0]
    return value if isinstance(value, Tensor) else id(value)


def _zeros(sizes: Tensor, source: Any) -> Tensor:
    """The derivatives of a target of that shape by a source on which it does not depend."""
    return zeros(concat([sizes, shape(source)], 0), source.dtype)
