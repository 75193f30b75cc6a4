"""Registration of gradients by user code: ``tf.RegisterGradient``, ``tf.NotDifferentiable``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tfmini.export import export, export_names
from tfmini.graph.op_types import OPS, register_gradient

F = TypeVar("F", bound=Callable[..., Any])


@export("tf.RegisterGradient")
class RegisterGradient:
    """Decorator that makes ``f(op, *grads)`` the gradient of an op type or override name.

    Args:
      op_type: an op type, or any name for use with ``graph.gradient_override_map``.

    Raises:
      TypeError: when ``op_type`` is not a string.
      KeyError: when the name has a gradient already.
    """

    def __init__(self, op_type: str) -> None:
        if not isinstance(op_type, str):
            raise TypeError("op_type must be a string")
        self._op_type = op_type

    def __call__(self, f: F) -> F:
        OPS.get(self._op_type)  # so that a gradient that tfmini has is registered first
        register_gradient(self._op_type, f)
        return f


@export("tf.no_gradient")
def no_gradient(op_type: str) -> None:
    """Declares that gradients stop at ops of this type (``tf.NotDifferentiable``, ``tf.NoGradient``).

    Raises:
      TypeError: when ``op_type`` is not a string.
      KeyError: when the type has a gradient already.
    """
    if not isinstance(op_type, str):
        raise TypeError("op_type must be a string")
    OPS.get(op_type)  # as above
    register_gradient(op_type, None)


NotDifferentiable = no_gradient
NoGradient = no_gradient

export_names("tf", "NoGradient NotDifferentiable")
