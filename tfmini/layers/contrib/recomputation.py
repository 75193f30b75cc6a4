"""Layers that are computed again for their gradients (``tf.contrib.layers``): less memory for more time."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tfmini.export import export
from tfmini.graph import nest
from tfmini.graph.operation import Tensor
from tfmini.graph.scoping import control_dependencies
from tfmini.layers.contrib.model_variables import arg_scope, current_arg_scope
from tfmini.ops.array.identity import identity
from tfmini.ops.custom_gradient import custom_gradient
from tfmini.ops.gradients import gradients
from tfmini.ops.math.sums import add_n
from tfmini.ops.variables.scope import VariableScope, get_variable_scope, variable_scope


@contextmanager
def _again(scope: VariableScope, defaults: Any, grads: Sequence[Any]) -> Iterator[None]:
    """For ops that compute a layer again, with its variables.

    They wait for the gradients, or they would run, and be kept, with the first ones.
    """
    known = [grad for grad in grads if grad is not None]
    with control_dependencies(known), variable_scope(scope, reuse=True), arg_scope(defaults):
        yield


@export("tf.contrib.layers.recompute_grad", "tf.contrib.slim.recompute_grad")
def recompute_grad(
    fn: Callable[..., Any], use_data_dep: Any = None, tupleize_grads: bool = False
) -> Callable[..., Any]:
    """``fn``, whose gradient computes ``fn`` again instead of keeping its intermediate values.

    (``tf.contrib.layers.recompute_grad``)

    Args:
      fn: a function of tensors that returns a tensor or a structure of them. It is called a second time, in the same
        variable and argument scopes, where its variables are reused: they must be resource variables. If it has an
        argument ``is_recomputing``, that tells the two calls apart.
      use_data_dep, tupleize_grads: of XLA; without effect.

    Raises (when called):
      ValueError: for arguments that are no tensors.
      TypeError: for a reference variable.
    """
    tells = "is_recomputing" in inspect.signature(fn).parameters

    @functools.wraps(fn)
    def decorated(*args: Tensor) -> Any:
        if not all(isinstance(arg, Tensor) for arg in args):
            raise ValueError("All inputs to function must be Tensors")
        scope, defaults = get_variable_scope(), current_arg_scope()

        @custom_gradient
        def recomputed(*inputs: Tensor) -> tuple[Any, Callable[..., Any]]:
            def gradient(*grads: Any, variables: Sequence[Any] = ()) -> Any:
                with _again(scope, defaults, grads):
                    again = [identity(tensor) for tensor in inputs]
                    outputs = nest.flatten(fn(*again, **({"is_recomputing": True} if tells else {})))
                found = gradients(outputs, [*again, *variables], list(grads))
                return (found[: len(again)], found[len(again) :]) if variables else found

            return fn(*inputs, **({"is_recomputing": False} if tells else {})), gradient

        return recomputed(*args)

    return decorated


@export("tf.contrib.layers.rev_block", "tf.contrib.slim.rev_block")
def rev_block(
    x1: Tensor, x2: Tensor, f: Any, g: Any, num_layers: int = 1, f_side_input: Sequence[Tensor] | None = None,
    g_side_input: Sequence[Tensor] | None = None, is_training: bool = True,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Layers whose inputs can be computed from their outputs (``tf.contrib.layers.rev_block``).

    A layer is ``y1 = x1 + f(x2)``, ``y2 = x2 + g(y1)``. For the gradient only the outputs of the last one are kept
    (Gomez and others, The Reversible Residual Network, 2017).

    Args:
      x1, x2: tensors of shapes that ``f`` and ``g`` keep.
      f, g: a function of a tensor, and of the side inputs if there are any; or a list with one for each layer.
      num_layers: the number of layers.
      f_side_input, g_side_input: lists of tensors, which the functions get as second argument. They have gradients.
      is_training: False keeps all values.

    Returns:
      y1 and y2 of the last layer.

    Raises:
      ValueError: a list has another length than ``num_layers``.
    """
    with variable_scope(None, "revblock", use_resource=True) as scope:
        sides = list(f_side_input or ()), list(g_side_input or ())
        block = _Block(scope, _for_layers(f, num_layers, "f"), _for_layers(g, num_layers, "g"), len(sides[0]))
        if not is_training:
            return block.forward(x1, x2, *sides[0], *sides[1])
        found: tuple[Tensor, Tensor] = custom_gradient(block.with_gradient)(x1, x2, *sides[0], *sides[1])
        return found


def _for_layers(function: Any, count: int, name: str) -> list[Callable[..., Any]]:
    if not isinstance(function, (list, tuple)):
        return [function] * count
    if len(function) != count:
        raise ValueError(f"{name} has {len(function)} functions for {count} layers")
    return list(function)


class _Block:
    """The layers of `rev_block`; the last arguments of its methods are the side inputs of f, then those of g."""

    def __init__(self, scope: VariableScope, f: list[Any], g: list[Any], f_sides: int) -> None:
        self._scope, self._f, self._g, self._f_sides = scope, f, g, f_sides
        self._defaults = current_arg_scope()

    def forward(self, x1: Tensor, x2: Tensor, *sides: Tensor) -> tuple[Tensor, Tensor]:
        for i in range(len(self._f)):
            x1 = x1 + self._residual(i, "f", x2, sides)
            x2 = x2 + self._residual(i, "g", x1, sides)
        return x1, x2

    def _residual(self, layer: int, name: str, x: Tensor, sides: Sequence[Tensor]) -> Any:
        function = (self._f if name == "f" else self._g)[layer]
        own = list(sides[: self._f_sides] if name == "f" else sides[self._f_sides :])
        with variable_scope(f"revlayer_{layer}"), variable_scope(name):
            return function(x, own) if own else function(x)

    def with_gradient(self, x1: Tensor, x2: Tensor, *sides: Tensor) -> tuple[tuple[Tensor, Tensor], Callable[..., Any]]:
        """What `custom_gradient` takes: the outputs, and the function of their gradients."""
        outputs = self.forward(x1, x2, *sides)

        def gradient(dy1: Any, dy2: Any, variables: Sequence[Any] = ()) -> Any:
            return self._backward(outputs, (dy1, dy2), sides, variables)

        return outputs, gradient

    def _backward(self, outputs: tuple[Any, Any], grads: tuple[Any, Any], sides: Any, variables: Any) -> Any:
        """From the last layer to the first, the inputs of each and their gradients."""
        (y1, y2), (dy1, dy2), others = outputs, grads, [*sides, *variables]
        sums: list[list[Any]] = [[] for _ in others]
        for i in reversed(range(len(self._f))):
            y2, dy1, of_g = self._undone(i, "g", y1, y2, dy1, dy2, sides, others)
            y1, dy2, of_f = self._undone(i, "f", y2, y1, dy2, dy1, sides, others)
            for found, *parts in zip(sums, of_g, of_f):
                found += [part for part in parts if part is not None]
        totals = [None if not parts else parts[0] if len(parts) == 1 else add_n(parts) for parts in sums]
        own = [dy1, dy2, *totals[: len(sides)]]
        return (own, totals[len(sides) :]) if variables else own

    def _undone(
        self, layer: int, name: str, kept: Any, changed: Any, d_kept: Any, d_changed: Any, sides: Any, others: Any
    ) -> tuple[Any, Any, list[Any]]:
        """Takes the residual of ``kept`` out of ``changed``.

        Returns:
          What ``changed`` was, the gradient of ``kept``, and those of the side inputs and variables.
        """
        with _again(self._scope, self._defaults, [d_kept, d_changed]):
            x = identity(kept)
            residual = self._residual(layer, name, x, sides)
            before = changed - residual
        # ``kept`` was itself computed from outputs by layers with variables, which are none of this one's.
        of_x, *rest = gradients([residual], [x, *others], [d_changed], stop_gradients=[x])
        return before, d_kept if of_x is None else d_kept + of_x, rest
